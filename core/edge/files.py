"""Files: the configuration, and dumps that may be gzipped or come from standard input."""

import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

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


def read_config(path: str | None, policy: str | None = None) -> Config:
    """Read a configuration file; None or empty: what is built in.

    *policy*: in place of the one that it names, None: that one.

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
    """Read what a configuration file holds, as `read_config` does."""
    if len(raw) > CONFIG_BYTES_MAX:
        raise ConfigError(source, [f"larger than {CONFIG_BYTES_MAX} bytes"])
    (document,) = parse_yaml(raw, source, single=True)
    return parse(document, source, policy)


def parse_yaml(raw: bytes, source: str, *, single: bool = False) -> list[Any]:
    """Read the documents of a YAML stream, strictly: see `_Loader`. Raises: ConfigError.

    *single*: there may be no second one, and None stands for an empty one.
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
        told = fault.problem or "not YAML"
        if fault.context and told.startswith("but "):  # what it expected stands apart
            told = f"{fault.context}, {told}"
        raise ConfigError(source, [f"{line}{told}"]) from fault
    except (yaml.YAMLError, ValueError, RecursionError) as fault:
        raise ConfigError(source, [f"not YAML: {str(fault).splitlines()[0]}"]) from fault


def as_yaml(document: Mapping[str, Any]) -> str:
    """Write a document as `parse_yaml` reads it."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=CONFIG_BYTES_MAX)


def named(path: str) -> str:
    """Return how messages call a file; `-` is standard input."""
    return "standard input" if path == "-" else path


def read_dump(path: str, bytes_max: int = DUMP_BYTES_MAX) -> bytes:
    """Read a dump, plain or gzipped; `-` is standard input. At most *bytes_max*, also unpacked.

    Raises: InvalidInputError.
    """
    name = named(path)
    try:
        # By its number: Python has no sys.stdin when the shell closed it.
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
    return raw


def check_target(path: str, may: Callable[[Path, int], bool] = os.access) -> None:
    """Refuse at once what could not be written after hours. Raises: InvalidInputError."""
    target = Path(path)
    try:
        written = target if target.exists() else target.parent
        if target.is_dir() or not target.parent.is_dir():
            raise InvalidInputError(path, "is a directory, or stands in one that is not there")
    except OSError as fault:
        raise InvalidInputError(path, fault.strerror or str(fault)) from fault
    if not may(written, os.W_OK):
        raise InvalidInputError(path, "may not be written")


def write_text(path: str, text: str) -> None:
    """Write a file anew. Raises: InvalidInputError."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as fault:
        raise InvalidInputError(path, fault.strerror or str(fault)) from fault


def _unpack(raw: bytes, bytes_max: int) -> bytes | None:
    """Unpack all members, as gzip itself does; None: more than allowed."""
    if raw[2:3] not in (b"", GZIP_DEFLATE):  # gzip would first miss the rest of a short header
        raise gzip.BadGzipFile("unknown compression method")
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
        return _read(packed, bytes_max)


def _read(file: BinaryIO | gzip.GzipFile, bytes_max: int) -> bytes | None:
    """Read to the end in chunks, so that memory follows what is there; None: more than allowed."""
    whole = io.BytesIO()
    while chunk := file.read(CHUNK_BYTES):
        if whole.tell() + len(chunk) > bytes_max:
            return None
        whole.write(chunk)
    return whole.getvalue()


class _Loader(yaml.SafeLoader):
    """YAML without what makes a file mean something else than it shows.

    No aliases, no tags, no field twice, no half characters; of plain texts only null, booleans and
    JSON's numbers are more than text, so that `010` and `1:30` are not 8 and 90.
    """

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
        """Join pairs of surrogates, as JSON means them: PyYAML takes each for a character."""
        text = super().construct_scalar(node)
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as fault:
            problem = "half of a pair of surrogates is no text"
            raise yaml.constructor.ConstructorError(
                None, None, problem, node.start_mark
            ) from fault

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002
        seen: set[object] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str) or name in seen:
                problem = f"field {name!r:.80} stands there twice, or is no text"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep=deep)


for _tag, _form in (("int", r"-?(?:0|[1-9]\d*)\Z"), ("float", r"-?(?:0|[1-9]\d*)\.\d+\Z")):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?a){_form}"), list("-0123456789")
    )


class _Dumper(yaml.SafeDumper):
    """Writes no number with an exponent: to `_Loader` that would be a text."""

    def represent_float(self, value: float) -> yaml.ScalarNode:
        """Write it with a point, as no whole number is."""
        written = without_exponent(value)
        written += "" if "." in written else ".0"
        return self.represent_scalar("tag:yaml.org,2002:float", written)


_Dumper.add_representer(float, _Dumper.represent_float)
