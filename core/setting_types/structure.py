"""Annotations for settings that contain others: sections, lists, mappings by name.

Some annotations make a field depend on other fields. All of them tell pydantic how to read a
value, and state in JSON Schema which values are allowed. core.setting_types.value_types has the
formats of single values.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic_core import CoreSchema, InitErrorDetails, core_schema

from core.setting_types.value_types import ValueFormat, not_allowed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RESTART: Final = "x-restart"
"""Schema keyword that lists the programs that read a setting only when they start."""
FIRST_PAGE: Final = "x-first-page"
"""Schema keyword of a setting that docs/configuration.md has; without effect in lists."""
POLICY: Final = "x-policy"
"""Schema keyword of a setting that only some policies use, or that the thesis defines."""
WEBHOOK: Final = "ebb-webhook"
CONTROLLER: Final = "ebb-controller"
EXTENDER: Final = "ebb-extender"
FLATTEN: Final = "*"
"""Prefix of the alias of a section whose fields belong to the enclosing mapping in the file."""
FLATTENED: Final = Field(alias=FLATTEN)


def is_flattened(alias: str) -> bool:
    """Return whether the fields of a section are written in the enclosing mapping.

    *alias*: pydantic's alias of the section. If the result is True, the section has no name of its
    own in the configuration file.
    """
    return alias.startswith(FLATTEN)


AT_CONTROLLER_START: Final = Field(json_schema_extra={RESTART: [CONTROLLER]})
ON_FIRST_PAGE: Final = Field(json_schema_extra={FIRST_PAGE: True})
POLICY_PART: Final = Field(json_schema_extra={POLICY: True})


class _BeforeValidator(ABC):
    """An annotation whose `_checked` gets the value in the configuration before pydantic."""

    __slots__ = ()

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._checked, handler(source))

    @abstractmethod
    def _checked(self, value: object) -> object:
        """Return the value that pydantic reads in place of *value*.

        Raises: ValueError if the value is not allowed.
        """


@dataclass(frozen=True, slots=True)
class BoundedList(_BeforeValidator):
    """An annotation of a list with at most `most` entries; longer lists are rejected unread.

    `entries` describes the entries in the documentation.
    """

    most: int
    entries: str

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        title = f"a list of at most {self.most} entries {self.entries}"
        return {**handler(core), "maxItems": self.most, "title": title}

    def _checked(self, value: object) -> object:
        if not isinstance(value, list) or len(value) > self.most:
            raise ValueError
        return value


@dataclass(frozen=True, slots=True)
class Named:
    """An annotation of a mapping of at most `most` names to sections.

    `names` is the format of a name; `sections` describes a section in the documentation.
    """

    most: int
    names: ValueFormat
    name: str
    """Placeholder for a name in documentation."""
    sections: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        names = handler.generate_schema(Annotated[str, self.names])
        read = core_schema.dict_schema(names, handler.generate_schema(get_args(source)[1]))
        return core_schema.no_info_before_validator_function(self._checked, read)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
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
"""Schema keyword with the placeholder for names (`Named`)."""
MISSING: Final = object()
"""Value of a required field that is missing, so that pydantic reports it with other faults."""


class Needs(_BeforeValidator):
    """An annotation of a section with a flag that, if true, makes other fields required.

    The arguments are the names of the flag and of these fields in the configuration file.
    """

    def __init__(self, flag: str, *fields: str) -> None:
        self._flag, self._fields = flag, fields

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        flag = {"properties": {self._flag: {"const": True}}, "required": [self._flag]}
        return {**handler(core), "if": flag, "then": {"required": [*self._fields]}}

    def _checked(self, value: object) -> object:
        if not isinstance(value, dict) or value.get(self._flag) is not True:
            return value
        missing = [name for name in self._fields if value.get(name) is None]
        return value | dict.fromkeys(missing, MISSING)


class NeedsOne(_BeforeValidator):
    """An annotation of a section of which at least one of the named fields must not be empty."""

    def __init__(self, *fields: str) -> None:
        self._fields = fields

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        filled = {"minItems": 1, "minProperties": 1}
        one_of = [{"required": [name], "properties": {name: filled}} for name in self._fields]
        return {**handler(core), "anyOf": one_of}

    def _checked(self, value: object) -> object:
        if not isinstance(value, dict) or any(value.get(name) for name in self._fields):
            return value
        return value | {self._fields[0]: MISSING}


class NeedsWith(_BeforeValidator):
    """An annotation of a section with a list that depends on the value of another field.

    The list `listed` must not be empty if `field` has one of `words`, and must be empty otherwise.
    """

    def __init__(self, listed: str, field: str, *words: str) -> None:
        self._listed, self._field, self._words = listed, field, words

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        word = {"properties": {self._field: {"enum": [*self._words]}}}
        some = {"required": [self._listed], "properties": {self._listed: {"minItems": 1}}}
        none = {"properties": {self._listed: {"maxItems": 0}}}
        return {**handler(core), "if": word, "then": some, "else": none}

    def _checked(self, value: object) -> object:
        if not isinstance(value, dict) or not isinstance(value.get(self._listed, []), list):
            return value
        needed = value.get(self._field) in self._words
        fits = needed is bool(value.get(self._listed))
        return value if fits else value | {self._listed: MISSING}


def name_of(field_name: str) -> str:
    """Return the name of a setting in the configuration file: in camelCase, without its unit.

    Example: `unneeded_time_seconds` is `unneededTime`.
    """
    plain = field_name.removesuffix("_seconds").removesuffix("_millis").removesuffix("_bytes")
    first, *rest = plain.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in rest)


_ACRONYMS: Final = {"ca": "CA", "cpu": "CPU", "gb": "GB"}


def filled(given: object, defaults: "DataclassInstance") -> object:
    """Return the mapping *given* with the values of *defaults* for missing fields.

    *given*: a section as read from the configuration file. If it is not a mapping, it is returned
    unchanged.
    """
    if not isinstance(given, dict):
        return given
    return {
        name_of(field.name): getattr(defaults, field.name) for field in fields(defaults)
    } | given


def refused(faults: Iterable[tuple[str, object, str]]) -> ValidationError:
    """Return a single pydantic error for several invalid settings.

    *faults*: name of the field, its value, and a text that says which values are allowed.
    """
    details: list[InitErrorDetails] = [
        {"loc": (name,), "input": value, "type": not_allowed(allowed)}
        for name, value, allowed in faults
    ]
    return ValidationError.from_exception_data("", details)
