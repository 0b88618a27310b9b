"""Describe the settings as data: the JSON Schema of the file, and a list of all settings.

The settings are grouped differently than the file. The fields of a section whose alias begins with
FLATTEN are fields of the enclosing mapping in the file. A field with the alias `a.b` is the field
b of section a. `grouped` returns the schema of the settings, `schema` that of the file.
"""

from collections.abc import Iterator, Sequence
from functools import cache, reduce
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from core.config.budgets import Budget, Budgets, LabelSelector, Pool
from core.config.schedule import Window
from core.config.settings import API_VERSION, KIND, Config, Document
from core.setting_types.structure import CONTROLLER, NAMED, POLICY, RESTART, is_flattened

Schema = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE: Final = "#/$defs/"
_NO_TYPE: Final = {"type": "null"}
"""Type of null. The reader accepts null as missing; the schema does not accept it."""


class _Generator(GenerateJsonSchema):
    """Generates schemas with explicit titles, which state allowed values, and no others."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002 pydantic's
        return False


@cache
def adapter() -> TypeAdapter[Document]:
    """Return pydantic's adapter that reads and writes configuration files."""
    return TypeAdapter(Document)


@cache
def grouped() -> Schema:
    """Return the JSON Schema of the settings in the groups that Config has.

    It contains no references and no defaults. `schema` returns the schema of the file.
    """
    generated = adapter().json_schema(schema_generator=_Generator)
    fields: Schema = _expanded(generated, generated.pop("$defs"))
    del fields["title"]
    return fields


@cache
def schema() -> Schema:
    """Return the JSON Schema of a configuration file, with the defaults of the settings."""
    pool = Pool(name="", selector=LabelSelector(), budget=Budget())
    window = Window(start="", duration_seconds=0)
    defaults = written(Config(budgets=Budgets(pools=(pool,)), schedule=(window,)))
    return {"$schema": DIALECT} | _with_defaults(flattened(grouped()), defaults)


def fields_of(one: Schema) -> Schema:
    """Return the schemas of the fields of a mapping, by name; empty if *one* is another type."""
    variants = (one, *one.get("oneOf", ()))
    return next((each["properties"] for each in variants if "properties" in each), {})


def named_of(one: Schema) -> Schema:
    """Return the schema of each section in a mapping whose keys are free names.

    Empty if *one* is another type.
    """
    section: Schema = one["additionalProperties"] if NAMED in one else {}
    return section


def written(config: Config) -> dict[str, Any]:
    """Return a configuration as the mapping of a configuration file, with all settings."""
    document = Document(api_version=API_VERSION, kind=KIND, config=config)
    fields: dict[str, Any] = _ungrouped(
        adapter().dump_python(document, mode="json", by_alias=True), grouped()
    )
    return fields


def changed(config: Config, defaults: Config) -> dict[str, Any]:
    """Return the shortest file for *config*: its policy, and the settings that differ.

    *defaults*: the configuration of a file with nothing but this policy.
    """
    changes = _difference(written(config), written(defaults))
    return {"apiVersion": API_VERSION, "kind": KIND, "policy": config.policy, **changes}


def _difference(given: Schema, defaults: Schema) -> Schema:
    """Return the fields that differ from their defaults; of sections, only such fields in them."""
    changes: Schema = {}
    for name, value in given.items():
        default = defaults.get(name)
        if isinstance(value, dict) and isinstance(default, dict):
            if inner := _difference(value, default):
                changes[name] = inner
        elif value != default:
            changes[name] = value
    return changes


class Setting(NamedTuple):
    """A setting, or a section of settings: its path in the file and its schema."""

    path: str
    """Path in the file; `[]` follows a list, and a word in capitals stands for any name."""
    schema: Schema
    restart: Sequence[str]
    """Programs that read the setting only when they start."""
    of_policy: bool
    """Whether only some policies use the setting, or the thesis defines it."""
    required: bool
    """Whether the section of the setting must have it, so that it has no default."""


def settings(
    one: Schema | None = None,
    path: str = "",
    restart: Sequence[str] = (),
    *,
    of_policy: bool = False,
) -> Iterator[Setting]:
    """Yield every section and setting in the order of the file.

    *one*: schema of a section; None: the whole file. *path*: prefix of its paths. *restart*,
    *of_policy*: those of the section.
    """
    one = schema() if one is None else one
    for name, inner in fields_of(one).items():
        whole, programs = f"{path}{name}", inner.get(RESTART, restart)
        special = inner.get(POLICY, of_policy)
        yield Setting(whole, inner, programs, special, name in one.get("required", ()))
        if "items" in inner:
            yield from settings(inner["items"], f"{whole}[].", programs, of_policy=special)
        elif NAMED in inner:
            yield from settings(
                named_of(inner), f"{whole}.{inner[NAMED]}.", programs, of_policy=special
            )
        else:
            yield from settings(inner, f"{whole}.", programs, of_policy=special)


def restart_needed(before: Config, after: Config) -> list[str]:
    """Return the paths of the settings that differ and that ebb-controller reads only at start.

    Empty if no restart is needed.
    """
    fixed = [setting.path.split(".") for setting in settings() if CONTROLLER in setting.restart]
    was, is_now = written(before), written(after)
    return [
        ".".join(path) for path in fixed if reduce(_at, path, was) != reduce(_at, path, is_now)
    ]


def _at(document: Any, name: str) -> Any:  # noqa: ANN401 JSON
    return (document or {}).get(name)


def allowed(one: Schema) -> str:
    """Return a text for people that describes the allowed values of a setting with this schema."""
    match one:
        case {"title": str(title)}:
            return title
        case {"enum": [*words]}:
            return " | ".join(words)
        case {"type": "boolean"}:
            return "true | false"
        case {"type": "integer", "minimum": least, "maximum": most}:
            return f"a whole number from {least} to {most}"
        case _:
            return "a mapping of fields"


def _expanded(node: Any, defs: Schema) -> Any:  # noqa: ANN401 JSON
    if isinstance(node, list):
        return [_expanded(one, defs) for one in node if one != _NO_TYPE]
    if not isinstance(node, dict):
        return node
    found = {key: _expanded(value, defs) for key, value in node.items() if key not in _LEFT_OUT}
    if name := node.get("$ref"):
        meant = _expanded(defs[name.removeprefix(_REFERENCE)], defs)
        return {key: value for key, value in meant.items() if key != "title"} | found
    if len(found.get("anyOf", ())) == 1:
        return found.pop("anyOf")[0] | found
    return found


_LEFT_OUT: Final = ("$ref", "default")


def flattened(one: Schema) -> Schema:
    """Return the schema of the file for a schema of the settings as Config groups them.

    Fields move from groups of Config to where the file has them.
    """
    if "items" in one:
        return one | {"items": flattened(one["items"])}
    if "properties" not in one:
        return one
    fields: Schema = {}
    required = [name for name in one.get("required", ()) if not is_flattened(name)]
    for name, inner in sorted(one["properties"].items(), key=lambda item: "." in item[0]):
        laid, (section, _, last) = flattened(inner), name.rpartition(".")
        if section:
            fields[section]["properties"][last] = laid
        elif is_flattened(name):
            fields |= laid["properties"]
            required += laid.get("required", ())
        else:
            fields[name] = laid
    return one | {"properties": fields} | ({"required": required} if required else {})


def _with_defaults(one: Schema, default: Any) -> Schema:  # noqa: ANN401 JSON
    if fields_of(one.get("items", {})):
        return one | {"items": _with_defaults(one["items"], default[0] if default else {})}
    if "properties" not in one:
        return one if default is None else one | {"default": default}
    optional = {} if default is None else {**default, **dict.fromkeys(one.get("required", ()))}
    fields = one["properties"].items()
    return one | {
        "properties": {name: _with_defaults(own, optional.get(name)) for name, own in fields}
    }


def _ungrouped(given: Any, one: Schema) -> Any:  # noqa: ANN401 JSON
    if "items" in one:
        return [_ungrouped(entry, one["items"]) for entry in given]
    if NAMED in one:
        return {name: _ungrouped(section, named_of(one)) for name, section in given.items()}
    found: Schema = {}
    for name, inner in fields_of(one).items() if isinstance(given, dict) else ():
        value, (section, _, last) = given.get(name), name.rpartition(".")
        if section:
            found[section][last] = value
        elif is_flattened(name):
            found |= _ungrouped(value, inner)
        elif value is not None:
            found[name] = _ungrouped(value, inner)
    return found or given
