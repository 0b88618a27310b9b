"""Files: the configuration, and dumps that may be gzipped or come from standard input."""

import gzip
import sys
import zlib
from pathlib import Path
from typing import Any, Final

import yaml

from core.config import Config, parse
from core.errors import ConfigError, InvalidInputError

CONFIG_BYTES_MAX: Final = 1024 * 1024
DUMP_BYTES_MAX: Final = 4 * 1024**3
GZIP_MAGIC: Final = b"\x1f\x8b"


def read_config(path: str) -> Config:
    """Read a configuration file. Raises: ConfigError with the file and every fault."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as fault:
        raise ConfigError(path, [fault.strerror or str(fault)]) from fault
    if len(raw) > CONFIG_BYTES_MAX:
        raise ConfigError(path, [f"larger than {CONFIG_BYTES_MAX} bytes"])
    try:
        document = yaml.load(raw.decode("utf-8"), Loader=_Loader)  # noqa: S506 a safe loader's heir
    except UnicodeDecodeError as fault:
        raise ConfigError(path, [f"not UTF-8 (byte {fault.start})"]) from fault
    except yaml.MarkedYAMLError as fault:
        line = f"line {fault.problem_mark.line + 1}: " if fault.problem_mark else ""
        raise ConfigError(path, [f"{line}{fault.problem or 'not YAML'}"]) from fault
    except (yaml.YAMLError, ValueError, RecursionError) as fault:
        raise ConfigError(path, [f"not YAML: {str(fault).splitlines()[0]}"]) from fault
    return parse(document, path)


def read_dump(path: str) -> bytes:
    """Read a dump, plain or gzipped; `-` is standard input. Raises: InvalidInputError."""
    name = "standard input" if path == "-" else path
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        if not raw.startswith(GZIP_MAGIC):
            return raw
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        plain = unpacker.decompress(raw, DUMP_BYTES_MAX)
    except (OSError, zlib.error) as fault:
        problem = getattr(fault, "strerror", None) or f"damaged gzip: {fault}"
        raise InvalidInputError(name, problem) from fault
    if not unpacker.eof:
        raise InvalidInputError(name, f"gzip ends too early, or is over {DUMP_BYTES_MAX} bytes")
    return plain


def write_dump(path: str, raw: bytes) -> None:
    """Write a dump, gzipped when the name says so, the same bytes for the same dump."""
    try:
        Path(path).write_bytes(gzip.compress(raw, mtime=0) if path.endswith(".gz") else raw)
    except OSError as fault:
        raise InvalidInputError(path, fault.strerror or str(fault)) from fault


class _Loader(yaml.SafeLoader):
    """YAML without the two things that make a file mean something else than it shows."""

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 PyYAML's own types
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002
        seen: set[object] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str) or name in seen:
                problem = f"field {name!r:.80} stands there twice, or is no text"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep=deep)
