"""How `ebb page` opens the browser: no command line has the token."""

import asyncio
import os
import signal
import stat
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import pytest

from cli.page import run
from core.model.errors import InvalidInputError
from tests.support import builders
from tests.support.browser import chromium, needs_chromium
from tests.support.page import input_of

URL = "http://127.0.0.1:1/?token=se-cret_&x"


def path_of(url: str) -> Path:
    return Path(url2pathname(urlparse(url).path))


def test_file_that_redirects_is_private_and_deleted_at_the_end() -> None:
    previous = os.umask(0)
    try:
        with run.redirect_to(URL) as url:
            path = path_of(url)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert path.stat().st_uid == os.getuid()
            assert "url=http://127.0.0.1:1/?token=se-cret_&amp;x" in path.read_text()
            assert "cret" not in url
    finally:
        os.umask(previous)
    assert not path.exists()


def test_error_names_the_file_when_it_cannot_be_written(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with (
        pytest.raises(InvalidInputError, match=r"missing.*use --no-browser"),
        run.redirect_to(URL, missing),
    ):
        pass


async def test_browser_gets_a_file_and_never_the_token(capsys: pytest.CaptureFixture[str]) -> None:
    opened: list[str] = []

    def open_url(url: str) -> None:
        opened.append(path_of(url).read_text())
        opened.append(url)
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)

    await run.serve(input_of([builders.node("n")], []), 0, open_url)
    content, url = opened
    (printed,) = capsys.readouterr().out.splitlines()
    token = printed.partition("token=")[2]
    assert len(token) > 20
    assert printed in content
    assert token not in url
    assert not path_of(url).exists()


@needs_chromium
@pytest.mark.long
async def test_chromium_follows_the_file(unused_tcp_port: int) -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", unused_tcp_port)
    target = f"http://127.0.0.1:{unused_tcp_port}/?token=a"
    async with server, chromium() as browser:
        page = await browser.new_page()
        with run.redirect_to(target) as url:
            await page.goto(url)
            await page.wait_for_url(target)
    head = asked[0].lower()
    assert head.startswith(b"get /?token=a ")
    assert b"referer" not in head
    assert b"origin:" not in head
