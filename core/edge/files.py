"""Read and write files: the configuration, and dumps (files with the objects of a cluster)."""

import codecs
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import yaml

from core.config.document import built_in, parse
from core.config.settings import Config
from core.fields.value_types import without_exponent
from core.model.errors import ConfigError, InvalidInputError

CONFIG_BYTES_MAX: Final = 1024 * 1024
DUMP_BYTES_MAX: Final = 4 * 1024**3
CHUNK_BYTES: Final = 4 * 1024**2
GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_DEFLATE: Final = b"\x08"
STDIN: Final = 0
BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins with the mark of UTF-16, so it comes first
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
NUL_BYTES: Final = {(1, 3): "utf-16-le", (0, 2): "utf-16-be", (1, 2, 3): "utf-32-le",
                    (0, 1, 2): "utf-32-be"}  # fmt: skip
"""Encoding by the positions of NUL bytes in the first four bytes, without a byte order mark."""


def read_config(path: str | None, policy: str | None = None) -> Config:
    """Read a configuration file; without a path return the defaults.

    *policy*: replaces the policy of the file, unless None.

    Raises: ConfigError with the file and every fault.
    """
    if not path:
        return built_in(policy)
    try:
        with Path(path).open("rb") as file:
            raw = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as fault:
        raise ConfigError(path, [fault.strerror or str(fault)]) from fault
    return parse_config(raw, path, policy)


def parse_config(raw: bytes, source: str, policy: str | None = None) -> Config:
    """Parse the content of a configuration file, as `read_config` does."""
    if len(raw) > CONFIG_BYTES_MAX:
        raise ConfigError(source, [f"larger than {CONFIG_BYTES_MAX} bytes"])
    (document,) = parse_yaml(raw, source, single=True)
    return parse(document, source, policy)


def parse_yaml(raw: bytes, source: str, *, single: bool = False) -> list[Any]:
    """Parse the documents of a YAML stream strictly: see `_Loader`. Raises: ConfigError.

    *single*: allow one document only; an empty stream yields None.
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
    """The text of a configuration in a file."""

    raw: bytes
    first_line: int
    """Line of the file, from 1, with the first line of the text; 1 if the text has other lines
    than the file."""


def embedded_config(raw: bytes, source: str, key: str) -> Embedded:
    """Return the configuration in *raw*: the whole file, or the value of *key* in a ConfigMap.

    Raises: ConfigError if the file is not YAML, or a ConfigMap without this key.
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
    """Return the line, from 1, of every field of a YAML document that can be parsed.

    Names are paths such as `budgets.maxMarked` and `pools[0].name`.
    """
    found: dict[str, int] = {}
    left = [("", _composed(raw))]
    while left:
        path, node = left.pop()
        if isinstance(node, yaml.SequenceNode):
            inner = [(f"{path}[{number}]", one) for number, one in enumerate(node.value)]
            found.update((name, one.start_mark.line + 1) for name, one in inner)
        else:
            inner = [(f"{path}.{name}" if path else name, one) for name, one in _fields(node)]
            keys = node.value if isinstance(node, yaml.MappingNode) else ()
            names = (name for name, _ in inner)
            found.update(zip(names, (key.start_mark.line + 1 for key, _ in keys), strict=True))
        left += inner
    return found


def _composed(raw: bytes) -> Any:  # noqa: ANN401 PyYAML's own types
    return yaml.compose(raw.decode(), Loader=_Loader)


def _fields(node: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
    """Return the names and values of a mapping; empty for other nodes."""
    if not isinstance(node, yaml.MappingNode):
        return []
    return [(str(key.value), value) for key, value in node.value]


def as_yaml(document: Mapping[str, Any] | Sequence[Any]) -> str:
    """Format a document so that `parse_yaml` can read it."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=CONFIG_BYTES_MAX)


def named(path: str) -> str:
    """Return the name of a file for messages; `-` is standard input."""
    return "standard input" if path == "-" else path


def read_dump(path: str, bytes_max: int = DUMP_BYTES_MAX) -> bytes:
    """Read a dump: a file with the objects of a cluster; `-` is standard input.

    It may be gzipped, and in UTF-8, UTF-16 or UTF-32. *bytes_max* limits both the file and its
    uncompressed content. Returns: the content in UTF-8. Raises: InvalidInputError.
    """
    name = named(path)
    try:
        # By file descriptor: sys.stdin is None if the shell has closed it.
        with open(STDIN if path == "-" else path, "rb", closefd=path != "-") as file:
            raw = _read(file, bytes_max)
        if raw is not None and raw.startswith(GZIP_MAGIC):
            raw = _unpack(raw, bytes_max)
    except EOFError as fault:
        raise InvalidInputError(name, "gzip ends too early") from fault
    except (OSError, zlib.error) as fault:
        problem = getattr(fault, "strerror", None) or f"damaged gzip: {fault}"
        raise InvalidInputError(name, problem) from fault
    if raw is None:
        raise InvalidInputError(name, f"larger than {bytes_max} bytes")
    return _as_utf8(raw, name)


def _as_utf8(raw: bytes, name: str) -> bytes:
    """Return a text in UTF-8 without byte order mark. Raises: InvalidInputError.

    Windows PowerShell 5.1 redirects output to files in UTF-16.
    """
    mark, encoding = next((one for one in BYTE_ORDER_MARKS if raw.startswith(one[0])), (b"", ""))
    if not mark:
        nul = tuple(place for place, byte in enumerate(raw[:4]) if not byte)
        encoding = NUL_BYTES.get(nul, "")
    if not mark and not encoding:
        return raw
    text = memoryview(raw)[len(mark) :]
    if encoding == "utf-8":
        return bytes(text)
    try:
        return codecs.decode(text, encoding).encode()
    except UnicodeError as fault:
        raise InvalidInputError(name, f"is not valid {encoding.upper()}: {fault}") from fault


def check_target(path: str, may: Callable[[Path, int], bool] = os.access) -> None:
    """Check that a file can be written, before a long computation. Raises: InvalidInputError."""
    target = Path(path)
    try:
        written = target if target.exists() else target.parent
        if target.is_dir() or not target.parent.is_dir():
            raise InvalidInputError(path, "is a directory, or its directory does not exist")
    except OSError as fault:
        raise InvalidInputError(path, fault.strerror or str(fault)) from fault
    if not may(written, os.W_OK):
        raise InvalidInputError(path, "is not writable")


def write_text(path: str, text: str) -> None:
    """Write a text file, replacing its content. Raises: InvalidInputError."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as fault:
        raise InvalidInputError(path, fault.strerror or str(fault)) from fault


def _unpack(raw: bytes, bytes_max: int) -> bytes | None:
    """Decompress all members, as gzip does; None if the content is larger than allowed."""
    if raw[2:3] not in (b"", GZIP_DEFLATE):  # gzip would first miss the rest of a short header
        raise gzip.BadGzipFile("unknown compression method")
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
        return _read(packed, bytes_max)


def _read(file: BinaryIO | gzip.GzipFile, bytes_max: int) -> bytes | None:
    """Read to the end in chunks, to use only the memory needed; None if larger than allowed."""
    whole = io.BytesIO()
    while chunk := file.read(CHUNK_BYTES):
        if whole.tell() + len(chunk) > bytes_max:
            return None
        whole.write(chunk)
    return whole.getvalue()


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
        for what, found in (
            ("aliases", isinstance(event, yaml.events.AliasEvent)),
            ("tags", getattr(event, "tag", None)),
        ):
            if found:
                problem = f"{what} are not allowed"
                raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)

    def construct_scalar(self, node: Any) -> Any:  # noqa: ANN401
        """Join surrogate pairs, as JSON defines them; PyYAML reads each half as a character."""
        text = super().construct_scalar(node)
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as fault:
            problem = "half of a surrogate pair is not valid text"
            raise yaml.constructor.ConstructorError(
                None, None, problem, node.start_mark
            ) from fault

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002
        seen: set[object] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str) or name in seen:
                problem = f"field {name!r:.80} is a duplicate, or its name is not text"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep=deep)


for _tag, _form in (("int", r"-?(?:0|[1-9]\d*)\Z"), ("float", r"-?(?:0|[1-9]\d*)\.\d+\Z")):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?a){_form}"), list("-0123456789")
    )


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes numbers without exponent, which `_Loader` would read as text."""

    def represent_float(self, value: float) -> yaml.ScalarNode:
        """Write a float with a decimal point, to distinguish it from a whole number."""
        written = without_exponent(value)
        written += "" if "." in written else ".0"
        return self.represent_scalar("tag:yaml.org,2002:float", written)


_Dumper.add_representer(float, _Dumper.represent_float)
