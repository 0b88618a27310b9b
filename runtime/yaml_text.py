"""Read and write a strict subset of YAML, without aliases, tags and duplicate fields.

So a text has only one meaning.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml

from core.model.errors import ConfigError
from core.setting_types.value_types import without_exponent

LINE_CHARS_MAX: Final = 1024 * 1024
"""Length up to which `as_yaml` does not wrap a line."""


def parse_yaml(raw: bytes, source: str, *, single: bool = False) -> list[Any]:
    """Return the documents of a YAML stream, parsed strictly.

    Aliases, tags and duplicate fields are errors. *source*: name of the file, for errors.
    *single*: return exactly one document, None for an empty stream; several are an error. Raises:
    ConfigError.
    """
    try:
        text = raw.decode("utf-8")
        if single:
            return [yaml.load(text, Loader=_Loader)]  # noqa: S506 a SafeLoader
        return list(yaml.load_all(text, Loader=_Loader))
    except UnicodeDecodeError as fault:
        raise ConfigError(source, [f"not UTF-8 (byte {fault.start})"]) from fault
    except yaml.MarkedYAMLError as fault:
        line = f"line {fault.problem_mark.line + 1}: " if fault.problem_mark else ""
        problem = fault.problem or "not YAML"
        if fault.context and problem.startswith(
            "but "
        ):  # PyYAML reports what it expected separately
            problem = f"{fault.context}, {problem}"
        raise ConfigError(source, [f"{line}{problem}"]) from fault
    except (yaml.YAMLError, ValueError, RecursionError) as fault:
        raise ConfigError(source, [f"not YAML: {str(fault).splitlines()[0]}"]) from fault


class Embedded(NamedTuple):
    """The text of a configuration, and its position in the file that contains it."""

    raw: bytes
    first_line: int
    """Line of the file, from 1, with the first line of the text; 1 if the text has other lines
    than the file."""


def embedded_config(raw: bytes, source: str, key: str) -> Embedded:
    """Return the configuration in *raw*: the whole file, or the value of *key* in a ConfigMap.

    *source*: name of the file, for errors. Raises: ConfigError if the file is not YAML, or is a
    ConfigMap without this key.
    """
    (document,) = parse_yaml(raw, source, single=True)
    if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
        return Embedded(raw, 1)
    data = document.get("data")
    text = data.get(key) if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise ConfigError(source, [f"data.{key}: missing; allowed: an EbbConfiguration as text"])
    data_node = dict(_fields(_composed(raw)))["data"]
    value = dict(_fields(data_node))[key]
    block = value.style == "|"  # each line of the text is a line of the file
    return Embedded(text.encode(), value.start_mark.line + 2 if block else 1)


def field_lines(raw: bytes) -> Mapping[str, int]:
    """Return the line number, from 1, of every field of a YAML document, by the field's path.

    Paths have the form `budgets.maxMarked` or `pools[0].name`. *raw* must be valid YAML.
    """
    lines: dict[str, int] = {}
    left = [("", _composed(raw))]
    while left:
        path, node = left.pop()
        if isinstance(node, yaml.SequenceNode):
            inner = [(f"{path}[{number}]", value) for number, value in enumerate(node.value)]
            lines.update((name, value.start_mark.line + 1) for name, value in inner)
        else:
            inner = [(f"{path}.{name}" if path else name, value) for name, value in _fields(node)]
            keys = node.value if isinstance(node, yaml.MappingNode) else ()
            names = (name for name, _ in inner)
            lines.update(zip(names, (key.start_mark.line + 1 for key, _ in keys), strict=True))
        left += inner
    return lines


def _composed(raw: bytes) -> Any:  # noqa: ANN401 PyYAML's own types
    return yaml.compose(raw.decode(), Loader=_Loader)


def _fields(node: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
    if not isinstance(node, yaml.MappingNode):
        return []
    return [(str(key.value), value) for key, value in node.value]


def as_yaml(document: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return a document as YAML text that `parse_yaml` can read."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=LINE_CHARS_MAX)


class _Loader(yaml.SafeLoader):
    """A YAML loader that rejects ambiguous documents: aliases, tags and duplicate fields.

    An unquoted scalar is text, unless it is null, a boolean, or a number as JSON writes it.
    """

    # YAML 1.1 reads `010` as 8 and `1:30` as 90. A duplicate field would silently replace the
    # first one.

    yaml_implicit_resolvers = {  # noqa: RUF012 PyYAML's own name and type
        first: [(tag, form) for tag, form in forms if tag.endswith((":null", ":bool"))]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 PyYAML's own types
        event = self.peek_event()  # type: ignore[no-untyped-call]
        for feature, present in (
            ("aliases", isinstance(event, yaml.events.AliasEvent)),
            ("tags", getattr(event, "tag", None)),
        ):
            if present:
                problem = f"{feature} are not allowed"
                raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)

    def construct_scalar(self, node: Any) -> Any:  # noqa: ANN401
        """Return the value of a scalar, with surrogate pairs joined to characters, as in JSON.

        PyYAML reads each half of a pair as a character.
        """
        text = super().construct_scalar(node)
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as fault:
            problem = "half of a surrogate pair is not valid text"
            raise yaml.constructor.ConstructorError(
                None, None, problem, node.start_mark
            ) from fault

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002
        names: set[object] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str) or name in names:
                problem = f"field {name!r:.80} is a duplicate, or its name is not text"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            names.add(name)
        return super().construct_mapping(node, deep=deep)


for _tag, _form in (("int", r"-?(?:0|[1-9]\d*)\Z"), ("float", r"-?(?:0|[1-9]\d*)\.\d+\Z")):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?a){_form}"), list("-0123456789")
    )


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes numbers without exponent, which `_Loader` would read as text."""

    def represent_float(self, value: float) -> yaml.ScalarNode:
        """Return the YAML of a float, with a decimal point, unlike a whole number."""
        written = without_exponent(value)
        written += "" if "." in written else ".0"
        return self.represent_scalar("tag:yaml.org,2002:float", written)


_Dumper.add_representer(float, _Dumper.represent_float)
