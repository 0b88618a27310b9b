"""Read a configuration; report all faults at once, with path, value and allowed values."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

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
    """Read a configuration; *policy* replaces the policy that it names.

    A missing setting gets the default of the policy, or else its own default.

    Raises: ConfigError with all faults.
    """
    if document is None:
        raise ConfigError(source, ["document: the file is empty; allowed: a mapping of fields"])
    if isinstance(document, dict):
        document = _with_policy(document, policy)
    try:
        return (
            adapter().validate_python(_nested(document, grouped()), context=FileContext()).config
        )
    except ValidationError as refused:
        faults = [_fault(one) for one in refused.errors(include_url=False)]
        raise ConfigError(source, faults) from None


def built_in(policy: str | None = None) -> Config:
    """Return the configuration of an empty file, with *policy* if given."""
    if policy is None:
        return Config()
    return parse({"apiVersion": API_VERSION, "kind": KIND}, "built in", policy)


def _with_policy(document: Mapping[Any, Any], policy: str | None) -> object:
    """Insert the policy, and the policy's own defaults for missing settings."""
    given = dict(document) if policy is None else {**document, "policy": policy}
    name = given.get("policy")
    rule = POLICIES.get(name) if isinstance(name, str) else None
    return _over(rule.defaults, given) if rule else given


def _over(defaults: Mapping[str, Any], given: Any) -> Any:  # noqa: ANN401 YAML holds anything
    """Merge the values of a file into defaults; null counts as missing."""
    if not isinstance(given, dict):
        return given
    written = {
        name: _over(defaults[name], value) if isinstance(defaults.get(name), Mapping) else value
        for name, value in given.items()
        if not (value is None and name in defaults)
    }
    return {**defaults, **written}


def _nested(given: Any, one: Schema) -> Any:  # noqa: ANN401 YAML holds anything
    """Group the fields of a file as the settings do; unknown fields stay where they are."""
    if isinstance(given, list) and "items" in one:
        return [_nested(entry, one["items"]) for entry in given]
    if isinstance(given, dict) and NAMED in one:
        return {name: _nested(section, named_of(one)) for name, section in given.items()}
    fields = fields_of(one)
    if not isinstance(given, dict) or not fields:
        return given
    remaining, values = dict(given), {}
    for name in sorted(fields, key=lambda name: "." not in name):
        value = _taken(remaining, name, fields[name])
        if value is not None:
            values[name] = _nested(value, fields[name])
    return values | {_shown(name, fields): value for name, value in remaining.items()}


def _taken(left: dict[str, Any], name: str, one: Schema) -> object:
    """Remove and return the part of the file's mapping that belongs to a field."""
    if is_flattened(name):
        return {own: left.pop(own) for own in fields_of(flattened(one)) if own in left}
    section, _, last = name.rpartition(".")
    if not section:
        return left.pop(name, None)
    if not isinstance(left.get(section), dict):
        return None
    left[section] = dict(left[section])
    return left[section].pop(last, None)


def _shown(name: object, fields: Mapping[str, Schema]) -> str:
    """Return an unknown name in printable form, different from all known names."""
    return str(name) if str(name).isprintable() and name not in fields else ascii(name)


def _fault(one: ErrorDetails) -> str:
    if one["type"] == _UNKNOWN:
        return _unknown(*one["loc"])
    path, field = _at(one["loc"])
    given = None if one["type"] == "missing" or one["input"] is MISSING else one["input"]
    shown = "missing" if given is None else _written(given)
    told = one["msg"] if one["type"] == "not_allowed" else allowed(field) + _meant(given, field)
    return f"{path or 'document'}: {shown}; allowed: {told}"


def _written(given: object) -> str:
    """Format a value for an error message; booleans are lowercase as in YAML."""
    return str(given).lower() if isinstance(given, bool) else f"{given!r:.80}"


def _unknown(*location: int | str) -> str:
    path, section = _at(location[:-1])
    name, known = str(location[-1]), list(fields_of(section))
    close = get_close_matches(name, known, n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    whole = f"{f'{path}.' if path else ''}{name:.80}"
    return f"{whole}: unknown field; allowed: {', '.join(known)}{meant}"


def _meant(given: object, field: Schema) -> str:
    close = get_close_matches(str(given), field.get("enum", ()), n=1)
    return f"; did you mean {close[0]}?" if close and given is not None else ""


def _at(location: tuple[int | str, ...]) -> tuple[str, Schema]:
    """Return the path in the file of a location in the settings, and the schema there."""
    path, found, names = "", schema(), {}
    for step in location:
        if NAMED in found:
            path, found, names = f"{path}.{_shown(step, {}):.80}", named_of(found), found[_NAMES]
            continue
        if isinstance(step, int):
            path, found = f"{path}[{step}]", found["items"]
            continue
        if step == _NAME_ITSELF:
            found = names
        for name in step.split("."):
            if name in fields_of(found):
                path, found = f"{path}.{name}" if path else name, fields_of(found)[name]
    return path, found
