"""Read and write files: the configuration, and dumps (files with the objects of a cluster)."""

import codecs
import gzip
import io
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from core.config.settings import Config
from core.model.errors import ConfigError, InvalidInputError

CONFIG_BYTES_MAX: Final = 1024 * 1024
DUMP_BYTES_MAX: Final = 4 * 1024**3
CHUNK_BYTES: Final = 4 * 1024**2
UNPACKED_BYTES_MAX: Final = 2 * 1024**3
"""Maximum size of an unpacked gzip file: the objects of 150,000 pods at 13 kB."""
UNPACKED_TIMES_MAX: Final = 100
"""Maximum size of an unpacked gzip file relative to the file; gzip can reach 1,032.

Dumps of clusters have 10 to 40, because names and UIDs differ."""
UNPACKED_BYTES_MIN: Final = 64 * 1024**2
"""Size up to which UNPACKED_TIMES_MAX does not apply."""
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
    """Read and validate a configuration file; without a path, return the default configuration.

    *policy*: name of a policy that replaces the policy of the file or the default; None: no
    change. Raises: ConfigError with the file and every error in it.
    """
    if not path and policy is None:
        return Config()
    if not path:
        from core.config.document import built_in  # noqa: PLC0415 slow to import

        return built_in(policy)
    try:
        with Path(path).open("rb") as file:
            raw = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as fault:
        raise ConfigError(path, [fault.strerror or str(fault)]) from fault
    return parse_config(raw, path, policy)


def parse_config(raw: bytes, source: str, policy: str | None = None) -> Config:
    """Parse and validate the content of a configuration file.

    *source*: name of the file, for error messages. *policy*: name of a policy that replaces the
    policy of the file; None: no change. Raises: ConfigError with every error.
    """
    if len(raw) > CONFIG_BYTES_MAX:
        raise ConfigError(source, [f"larger than {CONFIG_BYTES_MAX} bytes"])
    # YAML and the schema are slow to import, and `ebb` mostly runs with the built-in defaults.
    from core.config.document import parse  # noqa: PLC0415
    from runtime.yaml_text import parse_yaml  # noqa: PLC0415

    (document,) = parse_yaml(raw, source, single=True)
    return parse(document, source, policy)


def named(path: str) -> str:
    """Return the path of a file for messages, or "standard input" for `-`."""
    return "standard input" if path == "-" else path


def read_dump(path: str, bytes_max: int = DUMP_BYTES_MAX) -> bytes:
    """Return the content, in UTF-8, of a dump: a file with the objects of a cluster.

    *path*: `-` is standard input. The file may be gzipped, and in UTF-8, UTF-16 or UTF-32.
    *bytes_max* limits both the file and its unpacked content; see also UNPACKED_BYTES_MAX. Raises:
    InvalidInputError.
    """
    name = named(path)
    try:
        # By file descriptor: sys.stdin is None if the shell has closed it.
        with open(STDIN if path == "-" else path, "rb", closefd=path != "-") as file:
            raw = _read(file, bytes_max)
        if raw is not None and raw.startswith(GZIP_MAGIC):
            raw = _unpack(raw, min(bytes_max, unpacked_bytes_max(len(raw))), name)
    except EOFError as fault:
        raise InvalidInputError(name, "gzip ends too early") from fault
    except (OSError, zlib.error) as fault:
        problem = getattr(fault, "strerror", None) or f"damaged gzip: {fault}"
        raise InvalidInputError(name, problem) from fault
    if raw is None:
        raise InvalidInputError(name, f"larger than {bytes_max} bytes")
    return _as_utf8(raw, name)


def _as_utf8(raw: bytes, name: str) -> bytes:
    """Return a text converted to UTF-8, without byte order mark. Raises: InvalidInputError.

    *name*: name of the file, for errors. Windows PowerShell 5.1 redirects output to files in
    UTF-16.
    """
    marks = (entry for entry in BYTE_ORDER_MARKS if raw.startswith(entry[0]))
    mark, encoding = next(marks, (b"", ""))
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
    """Check, before a long computation, that the file at *path* can be written.

    *may*: access check of the operating system. Raises: InvalidInputError if it cannot be written.
    """
    target = Path(path)
    try:
        written = target if target.exists() else target.parent
        if target.is_dir():
            raise InvalidInputError(path, "is a directory; name a file")
        if not target.parent.is_dir():
            raise InvalidInputError(path, f"the directory {target.parent} does not exist")
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


def unpacked_bytes_max(packed_bytes: int) -> int:
    """Return the maximum size of the content of a gzip file of this size.

    A small file could otherwise take all memory.
    """
    return min(UNPACKED_BYTES_MAX, max(UNPACKED_BYTES_MIN, packed_bytes * UNPACKED_TIMES_MAX))


def _unpack(raw: bytes, bytes_max: int, name: str) -> bytes:
    """Return the unpacked content of a gzip file; *name* is for errors.

    Raises: InvalidInputError if it has more than *bytes_max* bytes; EOFError, OSError, zlib.error
    for a damaged file.
    """
    if raw[2:3] not in (b"", GZIP_DEFLATE):  # gzip would first miss the rest of a short header
        raise gzip.BadGzipFile("unknown compression method")
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
        unpacked = _read(packed, bytes_max)
    if unpacked is None:
        problem = (
            f"unpacks from {len(raw)} to more than {bytes_max} bytes; "
            "if you trust the file, unpack it with gunzip"
        )
        raise InvalidInputError(name, problem)
    return unpacked


def _read(file: BinaryIO | gzip.GzipFile, bytes_max: int) -> bytes | None:
    """Return the rest of a file; None if it has more than *bytes_max* bytes.

    It is read in chunks, so that a small file needs little memory.
    """
    whole = io.BytesIO()
    while chunk := file.read(CHUNK_BYTES):
        if whole.tell() + len(chunk) > bytes_max:
            return None
        whole.write(chunk)
    return whole.getvalue()
