"""Read a configuration; report all faults at once, with path, value and allowed values."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from core.config.moved import instead_of
from core.config.schema import (
    Schema,
    adapter,
    allowed,
    fields_of,
    flattened,
    grouped,
    named_of,
    schema,
)
from core.config.settings import API_VERSION, KIND, Config
from core.config.thresholds import FileContext
from core.model.errors import ConfigError
from core.policies.all import POLICIES
from core.setting_types.structure import MISSING, NAMED, is_flattened

_UNKNOWN: Final = "unexpected_keyword_argument"
_NAMES: Final = "propertyNames"
_NAME_ITSELF: Final = "[key]"
"""Last part of pydantic's location if the name of a section is invalid, not its content."""


def parse(document: object, source: str, policy: str | None = None) -> Config:
    """Read a configuration from a decoded YAML document.

    A missing setting gets the default of the policy, or else its own default.

    *source*: name of the file in error messages. *policy*: name of a policy that replaces the
    policy in the document.

    Raises: ConfigError with all faults.
    """
    if document is None:
        raise ConfigError(
            source, ["document: the file is empty; allowed: apiVersion, kind and settings"]
        )
    if isinstance(document, dict):
        document = _with_policy(document, policy)
    try:
        return (
            adapter().validate_python(_nested(document, grouped()), context=FileContext()).config
        )
    except ValidationError as refused:
        faults = [_fault(error) for error in refused.errors(include_url=False)]
        raise ConfigError(source, faults) from None


def built_in(policy: str | None = None) -> Config:
    """Return the configuration of an empty file.

    *policy*: name of a policy to use, with its own defaults; None: the default policy.
    """
    if policy is None:
        return Config()
    return parse({"apiVersion": API_VERSION, "kind": KIND}, "built in", policy)


def _with_policy(document: Mapping[Any, Any], policy: str | None) -> object:
    """Return the document with *policy*, and the defaults of its policy for missing settings.

    *policy*: None keeps the policy in the document.
    """
    given = dict(document) if policy is None else {**document, "policy": policy}
    name = given.get("policy")
    rule = POLICIES.get(name) if isinstance(name, str) else None
    return _merged(rule.defaults, given) if rule else given


def _merged(defaults: Mapping[str, Any], given: Any) -> Any:  # noqa: ANN401 YAML holds anything
    """Return the values of a file, and the defaults of missing ones; null counts as missing."""
    if not isinstance(given, dict):
        return given
    written = {
        name: _merged(defaults[name], value) if isinstance(defaults.get(name), Mapping) else value
        for name, value in given.items()
        if not (value is None and name in defaults)
    }
    return {**defaults, **written}


def _nested(given: Any, section_schema: Schema) -> Any:  # noqa: ANN401 YAML holds anything
    """Return the fields of a file in the groups that Config has; unknown fields stay.

    *section_schema*: schema of this section, in the form that `grouped` returns.
    """
    if isinstance(given, list) and "items" in section_schema:
        return [_nested(entry, section_schema["items"]) for entry in given]
    if isinstance(given, dict) and NAMED in section_schema:
        return {
            name: _nested(section, named_of(section_schema)) for name, section in given.items()
        }
    fields = fields_of(section_schema)
    if not isinstance(given, dict) or not fields:
        return given
    remaining, values = dict(given), {}
    for name in sorted(fields, key=lambda name: "." not in name):
        value = _pop_field(remaining, name, fields[name])
        if value is not None:
            values[name] = _nested(value, fields[name])
    return values | {_shown(name, fields): value for name, value in remaining.items()}


def _pop_field(remaining: dict[str, Any], name: str, field: Schema) -> object:
    """Remove from *remaining* what the file says about a field, and return it; None if nothing.

    *name*: alias of the field. *remaining*: the mapping in the file.
    """
    if is_flattened(name):
        return {own: remaining.pop(own) for own in fields_of(flattened(field)) if own in remaining}
    section, _, last = name.rpartition(".")
    if not section:
        return remaining.pop(name, None)
    if not isinstance(remaining.get(section), dict):
        return None
    remaining[section] = dict(remaining[section])
    return remaining[section].pop(last, None)


def _shown(name: object, fields: Mapping[str, Schema]) -> str:
    """Return the name of an unknown field in printable form, different from all known names."""
    return str(name) if str(name).isprintable() and name not in fields else ascii(name)


def _fault(error: ErrorDetails) -> str:
    if error["type"] == _UNKNOWN:
        return _unknown(*error["loc"])
    path, field = _at(error["loc"])
    given = None if error["type"] == "missing" or error["input"] is MISSING else error["input"]
    shown = "missing" if given is None else _written(given)
    values = (
        error["msg"] if error["type"] == "not_allowed" else allowed(field) + _meant(given, field)
    )
    return f"{path or 'document'}: {shown}; allowed: {values}"


def _written(given: object) -> str:
    """Format a value for an error message; booleans are lowercase as in YAML."""
    return str(given).lower() if isinstance(given, bool) else f"{given!r:.80}"


def _unknown(*location: int | str) -> str:
    path, section = _at(location[:-1])
    name, known = str(location[-1]), list(fields_of(section))
    whole = f"{f'{path}.' if path else ''}{name:.80}"
    instead = instead_of(whole)
    if instead is not None:
        return f"{whole}: {instead}"
    close = get_close_matches(name, known, n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"{whole}: unknown field; allowed: {', '.join(known)}{meant}"


def _meant(given: object, field: Schema) -> str:
    close = get_close_matches(str(given), field.get("enum", ()), n=1)
    return f"; did you mean {close[0]}?" if close and given is not None else ""


def _at(location: tuple[int | str, ...]) -> tuple[str, Schema]:
    """Return the path in the file for a location in the settings, and the schema of that path.

    *location*: the location of an error, as pydantic reports it.
    """
    path, field, names = "", schema(), {}
    for step in location:
        if NAMED in field:
            path, field, names = f"{path}.{_shown(step, {}):.80}", named_of(field), field[_NAMES]
            continue
        if isinstance(step, int):
            path, field = f"{path}[{step}]", field["items"]
            continue
        if step == _NAME_ITSELF:
            field = names
        for name in step.split("."):
            if name in fields_of(field):
                path, field = f"{path}.{name}" if path else name, fields_of(field)[name]
    return path, field
