"""What holds values in the file: sections, lists, mappings of names; what ties fields together.

The annotations here tell pydantic how to read, and JSON Schema what is allowed. Formats of values:
core.fields.value_types.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

from pydantic import (
    AfterValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import CoreSchema, InitErrorDetails, core_schema

from core.fields.value_types import Form, not_allowed, percent

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RESTART: Final = "x-restart"
"""The keyword of the schema that names the programs which read a setting once, at their start."""
WEBHOOK: Final = "ebb-webhook"
CONTROLLER: Final = "ebb-controller"
EXTENDER: Final = "ebb-extender"
BESIDE: Final = "*"
"""What the alias of a section begins with whose fields stand in the file beside it."""
INLINE: Final = Field(alias=BESIDE)


def is_beside(alias: str) -> bool:
    """Say whether the fields of the section with this alias stand in the file beside it."""
    return alias.startswith(BESIDE)


AT_CONTROLLER_START: Final = Field(json_schema_extra={RESTART: [CONTROLLER]})


@dataclass(frozen=True, slots=True)
class Listed:
    """What a list is annotated with; one that is too long is not looked into."""

    most: int
    entries: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let pydantic read the entries."""
        return core_schema.no_info_before_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Say what is taken."""
        told = f"a list of at most {self.most} entries {self.entries}"
        return {**handler(core), "maxItems": self.most, "title": told}

    def _checked(self, value: object) -> object:
        if not isinstance(value, list) or len(value) > self.most:
            raise ValueError
        return value


@dataclass(frozen=True, slots=True)
class Named:
    """What a mapping of names to sections is annotated with, as Listed."""

    most: int
    names: Form
    name: str
    """What stands for a name where none is meant in particular."""
    sections: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let pydantic read names and sections."""
        names = handler.generate_schema(Annotated[str, self.names])
        read = core_schema.dict_schema(names, handler.generate_schema(get_args(source)[1]))
        return core_schema.no_info_before_validator_function(self._checked, read)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Say what is taken."""
        (section,) = handler(core)["patternProperties"].values()
        return {
            "type": "object",
            "title": f"a mapping of at most {self.most} names to {self.sections}",
            "maxProperties": self.most,
            "propertyNames": {**self.names.schema},
            "additionalProperties": section,
            NAMED: self.name,
        }

    def _checked(self, value: object) -> object:
        if not isinstance(value, dict) or len(value) > self.most:
            raise ValueError
        return value


NAMED: Final = "x-name"
"""The keyword of the schema that says what stands for a name (`Named`)."""
UNSAID: Final = object()
"""Stands in a section for a field that is missing and must not be (`Needs`)."""


class Needs:
    """What a section is annotated with where a flag, once it is set, needs other fields."""

    def __init__(self, flag: str, *fields: str) -> None:
        self._flag, self._fields = flag, fields

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let pydantic refuse what stands for missing fields along with all else."""
        return core_schema.no_info_before_validator_function(self._completed, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Say what is needed."""
        flag = {"properties": {self._flag: {"const": True}}, "required": [self._flag]}
        return {**handler(core), "if": flag, "then": {"required": [*self._fields]}}

    def _completed(self, value: object) -> object:
        if not isinstance(value, dict) or value.get(self._flag) is not True:
            return value
        missing = [name for name in self._fields if value.get(name) is None]
        return value | dict.fromkeys(missing, UNSAID)


def name_of(field_name: str) -> str:
    """Return a setting's name in the file: without its unit, in camelCase."""
    plain = field_name.removesuffix("_seconds").removesuffix("_millis").removesuffix("_bytes")
    first, *rest = plain.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in rest)


_ACRONYMS: Final = {"ca": "CA", "cpu": "CPU", "gb": "GB"}


def filled(given: object, new: "DataclassInstance") -> object:
    """Fill what a mapping of the file does not say with the values of *new*."""
    if not isinstance(given, dict):
        return given
    return {name_of(field.name): getattr(new, field.name) for field in fields(new)} | given


def where(holds: Callable[[Any], bool], allowed: str) -> AfterValidator:
    """Refuse what has been read and does not hold, for settings whose fields are good alone."""

    def check(found: Any) -> Any:  # noqa: ANN401 of whatever type it is read as
        if holds(found):
            return found
        raise not_allowed(allowed)

    return AfterValidator(check)


def at_least(name: str) -> AfterValidator:
    """Refuse a share that is below that of the field of this name, which stands before it."""

    def check(found: Fraction | None, info: ValidationInfo) -> Fraction | None:
        least = info.data.get(name)
        if found is not None and least is not None and found < least:
            raise not_allowed(f"at least {name_of(name)}, {percent(least)}")
        return found

    return AfterValidator(check)


def refused(faults: Iterable[tuple[str, object, str]]) -> ValidationError:
    """Make one of several such faults, each of a field's name, its value and what is allowed."""
    told: list[InitErrorDetails] = [
        {"loc": (name,), "input": value, "type": not_allowed(allowed)}
        for name, value, allowed in faults
    ]
    return ValidationError.from_exception_data("", told)
