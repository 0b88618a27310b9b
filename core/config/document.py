"""Reading a configuration: every fault at once, with path, value and what is allowed."""

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
    laid_out,
    named_of,
    nested,
    schema,
)
from core.config.settings import API_VERSION, KIND, Config
from core.config.thresholds import Told
from core.fields.structure import NAMED, UNSAID, is_beside
from core.model.errors import ConfigError
from core.policies.all import POLICIES

_UNKNOWN: Final = "unexpected_keyword_argument"
_NAMES: Final = "propertyNames"
_NAME_ITSELF: Final = "[key]"
"""What pydantic says after the name where it means the name of a section, not the section."""


def parse(document: object, source: str, policy: str | None = None) -> Config:
    """Read a configuration, with *policy* in place of the one that it names, if one is given.

    What it does not say is as the policy has it by default, then as the settings have it.

    Raises: ConfigError with all faults.
    """
    if document is None:
        raise ConfigError(source, ["document: it is empty; allowed: a mapping of fields"])
    if isinstance(document, dict):
        document = _with_policy(document, policy)
    try:
        return adapter().validate_python(_nested(document, nested()), context=Told()).config
    except ValidationError as refused:
        faults = [_fault(one) for one in refused.errors(include_url=False)]
        raise ConfigError(source, faults) from None


def built_in(policy: str | None = None) -> Config:
    """Return the configuration of an empty file, under that policy if one is given."""
    if policy is None:
        return Config()
    return parse({"apiVersion": API_VERSION, "kind": KIND}, "built in", policy)


def _with_policy(document: Mapping[Any, Any], policy: str | None) -> object:
    """Fill in the policy, and what the file does not say of the policy's own defaults."""
    given = dict(document) if policy is None else {**document, "policy": policy}
    name = given.get("policy")
    rule = POLICIES.get(name) if isinstance(name, str) else None
    return _over(rule.defaults, given) if rule else given


def _over(defaults: Mapping[str, Any], given: Any) -> Any:  # noqa: ANN401 YAML holds anything
    """Lay what a file says over defaults; null says nothing."""
    if not isinstance(given, dict):
        return given
    said = {
        name: _over(defaults[name], value) if isinstance(defaults.get(name), Mapping) else value
        for name, value in given.items()
        if not (value is None and name in defaults)
    }
    return {**defaults, **said}


def _nested(given: Any, one: Schema) -> Any:  # noqa: ANN401 YAML holds anything
    """Nest what a file holds as the settings do; what is unknown stays where it is."""
    if isinstance(given, list) and "items" in one:
        return [_nested(entry, one["items"]) for entry in given]
    if isinstance(given, dict) and NAMED in one:
        return {name: _nested(section, named_of(one)) for name, section in given.items()}
    fields = fields_of(one)
    if not isinstance(given, dict) or not fields:
        return given
    left, found = dict(given), {}
    for name in sorted(fields, key=lambda name: "." not in name):
        value = _taken(left, name, fields[name])
        if value is not None:
            found[name] = _nested(value, fields[name])
    return found | {_shown(name, fields): value for name, value in left.items()}


def _taken(left: dict[str, Any], name: str, one: Schema) -> object:
    """Take what is a field's out of what is left of the file's mapping."""
    if is_beside(name):
        return {own: left.pop(own) for own in fields_of(laid_out(one)) if own in left}
    section, _, last = name.rpartition(".")
    if not section:
        return left.pop(name, None)
    if not isinstance(left.get(section), dict):
        return None
    left[section] = dict(left[section])
    return left[section].pop(last, None)


def _shown(name: object, fields: Mapping[str, Schema]) -> str:
    """Return an unknown name as a line can show it, and unlike any known one."""
    return str(name) if str(name).isprintable() and name not in fields else ascii(name)


def _fault(one: ErrorDetails) -> str:
    if one["type"] == _UNKNOWN:
        return _unknown(*one["loc"])
    path, field = _at(one["loc"])
    given = None if one["type"] == "missing" or one["input"] is UNSAID else one["input"]
    shown = "missing" if given is None else _written(given)
    told = one["msg"] if one["type"] == "not_allowed" else allowed(field) + _meant(given, field)
    return f"{path or 'document'}: {shown}; allowed: {told}"


def _written(given: object) -> str:
    """Return a value as a line can show it: true and false as YAML has them."""
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
    """Return the path of a place in the settings as the file has it, and what is allowed there."""
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
