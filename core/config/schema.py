"""The settings as data: JSON Schema of the file, and a row for each setting.

The settings nest a little differently than the file: the fields of a section whose alias begins
with BESIDE stand in the file beside it, and `a.b` in the section a. `nested` has the one form,
`schema` the other.
"""

from collections.abc import Iterator, Sequence
from functools import cache, reduce
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from core.config.budgets import Budget, Budgets, Pool
from core.config.settings import API_VERSION, KIND, Config, Document
from core.fields.structure import CONTROLLER, NAMED, RESTART, is_beside

Schema = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE: Final = "#/$defs/"
_NO_TYPE: Final = {"type": "null"}
"""null is as good as missing to the reader; the schema leaves it out, and so refuses it."""


class _Generator(GenerateJsonSchema):
    """Titles say what is allowed; those that pydantic makes of names say nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002 pydantic's
        return False


@cache
def adapter() -> TypeAdapter[Document]:
    """Return what reads and writes documents; made when it is first needed."""
    return TypeAdapter(Document)


@cache
def nested() -> Schema:
    """Return the schema of the settings as they nest, without references and defaults."""
    made = adapter().json_schema(schema_generator=_Generator)
    found: Schema = _expanded(made, made.pop("$defs"))
    del found["title"]
    return found


@cache
def schema() -> Schema:
    """Return the JSON Schema of a configuration file."""
    pool = Pool(name="", node_selector=(), budget=Budget())
    defaults = written(Config(budgets=Budgets(pools=(pool,))))
    return {"$schema": DIALECT} | _with_defaults(laid_out(nested()), defaults)


def fields_of(one: Schema) -> Schema:
    """Return the fields of a mapping, by name; none of anything else."""
    found = (each["properties"] for each in (one, *one.get("oneOf", ())) if "properties" in each)
    return next(found, {})


def named_of(one: Schema) -> Schema:
    """Return what each section is in a mapping of names; nothing of anything else."""
    found: Schema = one["additionalProperties"] if NAMED in one else {}
    return found


def written(config: Config) -> dict[str, Any]:
    """Return a configuration as the file would have it."""
    document = Document(api_version=API_VERSION, kind=KIND, config=config)
    found: dict[str, Any] = _unnested(
        adapter().dump_python(document, mode="json", by_alias=True), nested()
    )
    return found


class Setting(NamedTuple):
    """One setting, or a section of some."""

    path: str
    """As in the file; `[]` after a list's, and a word in capitals for any name."""
    schema: Schema
    restart: Sequence[str]
    """The programs that read it once, when they start."""


def settings(
    one: Schema | None = None, path: str = "", restart: Sequence[str] = ()
) -> Iterator[Setting]:
    """Yield every section and setting, in the order of the file."""
    for name, inner in fields_of(schema() if one is None else one).items():
        whole, programs = f"{path}{name}", inner.get(RESTART, restart)
        yield Setting(whole, inner, programs)
        if "items" in inner:
            yield from settings(inner["items"], f"{whole}[].", programs)
        elif NAMED in inner:
            yield from settings(named_of(inner), f"{whole}.{inner[NAMED]}.", programs)
        else:
            yield from settings(inner, f"{whole}.", programs)


def restart_needed(before: Config, after: Config) -> list[str]:
    """Return the settings that differ and that the controller reads only when it starts."""
    fixed = [one.path.split(".") for one in settings() if CONTROLLER in one.restart]
    was, is_now = written(before), written(after)
    return [
        ".".join(path) for path in fixed if reduce(_at, path, was) != reduce(_at, path, is_now)
    ]


def _at(document: Any, name: str) -> Any:  # noqa: ANN401 JSON
    return (document or {}).get(name)


def allowed(one: Schema) -> str:
    """Say for people what a value may be."""
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


def laid_out(one: Schema) -> Schema:
    """Lay a nested schema out as the file is."""
    if "items" in one:
        return one | {"items": laid_out(one["items"])}
    if "properties" not in one:
        return one
    fields: Schema = {}
    required = [name for name in one.get("required", ()) if not is_beside(name)]
    for name, inner in sorted(one["properties"].items(), key=lambda item: "." in item[0]):
        laid, (section, _, last) = laid_out(inner), name.rpartition(".")
        if section:
            fields[section]["properties"][last] = laid
        elif is_beside(name):
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


def _unnested(given: Any, one: Schema) -> Any:  # noqa: ANN401 JSON
    if "items" in one:
        return [_unnested(entry, one["items"]) for entry in given]
    if NAMED in one:
        return {name: _unnested(section, named_of(one)) for name, section in given.items()}
    found: Schema = {}
    for name, inner in fields_of(one).items() if isinstance(given, dict) else ():
        value, (section, _, last) = given.get(name), name.rpartition(".")
        if section:
            found[section][last] = value
        elif is_beside(name):
            found |= _unnested(value, inner)
        elif value is not None:
            found[name] = _unnested(value, inner)
    return found or given
