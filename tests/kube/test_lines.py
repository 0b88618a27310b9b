"""Split a stream of chunks into lines."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.errors import UnavailableError
from kube.watch import lines


async def read_lines(chunks: list[bytes], bytes_max: int = 100) -> list[bytes]:
    left = iter([chunk for chunk in chunks if chunk])

    async def read() -> bytes:
        return next(left, b"")

    return [line async for line in lines(read, silence_seconds_max=20, bytes_max=bytes_max)]


@given(st.lists(st.text("ab\r\n", max_size=8).map(str.encode), max_size=12))
def test_lines_do_not_depend_on_chunks(chunks: list[bytes]) -> None:
    whole = b"".join(chunks) + b"\n"
    expected = [line for line in whole.split(b"\n") if line.strip()]
    assert asyncio.run(read_lines([*chunks, b"\n"])) == expected


async def test_line_is_rejected_when_it_is_too_long() -> None:
    assert await read_lines([b"x" * 60, b"x" * 40, b"\n"]) == [b"x" * 100]
    with pytest.raises(UnavailableError, match="larger than 100 bytes"):
        await read_lines([b"x" * 60, b"x" * 41])
