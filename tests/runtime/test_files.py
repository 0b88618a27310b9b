"""Files of users: a small gzip file cannot take all memory."""

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.__main__ import main
from core.model.errors import InvalidInputError
from runtime.files import (
    CONFIG_BYTES_MAX,
    UNPACKED_BYTES_MAX,
    UNPACKED_BYTES_MIN,
    UNPACKED_TIMES_MAX,
    read_dump,
    unpacked_bytes_max,
)

MIB = 1024**2


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a gzip file of 1 MB with 500 MB of small objects."""
    path = tmp_path_factory.mktemp("bombs") / "dump-2026-01-01T00:00:00Z.json.gz"
    piece = gzip.compress(b'{"kind":"Node"},' * (MIB // 16))
    path.write_bytes(piece * 500)
    return path


@pytest.mark.parametrize(
    ("packed", "unpacked"),
    [
        (0, UNPACKED_BYTES_MIN),
        (MIB // 2, UNPACKED_BYTES_MIN),
        (MIB, UNPACKED_TIMES_MAX * MIB),
        (1000 * MIB, UNPACKED_BYTES_MAX),
    ],
)
def test_limit_on_unpacked_size_grows_with_file(packed: int, unpacked: int) -> None:
    assert unpacked_bytes_max(packed) == unpacked


@pytest.mark.parametrize("command", ["plan", "replay"])
def test_gzip_bomb_is_rejected_with_its_name_and_the_limit(
    bomb: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    arguments: dict[str, Callable[[], list[str]]] = {
        "plan": lambda: ["plan", "--from-file", str(bomb)],
        "replay": lambda: ["replay", "--dumps", str(bomb.parent)],
    }
    assert main(arguments[command]()) == 2
    size = bomb.stat().st_size
    limit = unpacked_bytes_max(size)
    assert capsys.readouterr().err == (
        f"ebb: {bomb}: unpacks from {size} to more than {limit} bytes; "
        "if you trust the file, unpack it with gunzip\n"
    )


def test_gzip_bomb_takes_little_memory(bomb: Path) -> None:
    limit = unpacked_bytes_max(bomb.stat().st_size)
    tracemalloc.start()
    with pytest.raises(InvalidInputError, match=f"to more than {limit} bytes"):
        read_dump(str(bomb))
    with pytest.raises(InvalidInputError, match="to more than 1048576 bytes"):
        read_dump(str(bomb), CONFIG_BYTES_MAX)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * limit


def test_gzip_file_is_read_when_it_is_below_the_limit(tmp_path: Path) -> None:
    path, content = tmp_path / "dump.gz", b" " * 30 * MIB
    path.write_bytes(gzip.compress(content))
    assert read_dump(str(path)) == content
    with pytest.raises(InvalidInputError, match="larger than 10 bytes"):
        read_dump(str(path), 10)
