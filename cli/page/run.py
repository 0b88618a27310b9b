"""Run `ebb page` until Ctrl-C."""

import html
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cli.page.following import Source, publish, until_signal
from cli.page.hub import Hub
from cli.page.server import PageServer
from cli.page.worker import Worker
from core.model.errors import InvalidInputError
from runtime.messages import tell

Open = Callable[[str], object]
"""Opens a URL in the browser of the user."""
REDIRECT: Final = """\
<!DOCTYPE html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>ebb</title>
<a href="{url}">Open the page</a>
"""


def open_browser(url: str) -> None:
    """Open a URL in the user's browser, without waiting until the browser ends.

    Other users of the machine can read the URL on the command line of the browser.
    """
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


@contextmanager
def redirect_to(url: str, folder: str | None = None) -> Iterator[str]:
    """Write a file that sends a browser to *url*, and yield the URL of the file.

    Only this user may read the file (mode 0600). It is deleted when the context ends. *folder*:
    None for the folder of temporary files. Raises: InvalidInputError if it cannot be written.
    """
    # Not a cookie instead of the token: browsers send it to every port of the host.
    try:
        file = tempfile.NamedTemporaryFile(  # noqa: SIM115 closed below
            "w", encoding="utf-8", prefix="ebb-", suffix=".html", dir=folder
        )
    except OSError as fault:
        problem = f"cannot write the file that opens the page: {fault.strerror}; use --no-browser"
        raise InvalidInputError(fault.filename or tempfile.gettempdir(), problem) from fault
    with file:
        file.write(REDIRECT.format(url=html.escape(url)))
        file.flush()
        yield Path(file.name).as_uri()


async def serve(source: Source, port: int, open_url: Open | None) -> None:
    """Serve the page of a cluster, and open it in a browser, until SIGINT or SIGTERM.

    *port*: 0 for any free port. *open_url*: opens a URL in a browser; it gets the URL of a file,
    because the URL of the page has the token. None: open no browser. Raises: InvalidInputError if
    the port is not free; EbbError if there is no first plan, or if the connection fails.
    """

    async def show(worker: Worker) -> None:
        hub = Hub()
        async with PageServer(hub, worker, port) as server:
            sys.stdout.write(f"{server.url}\n")
            sys.stdout.flush()
            tell("Serving the page; Ctrl-C ends it.")
            if open_url is None:
                await publish(source, hub, worker)
                return
            with redirect_to(server.url) as url:
                open_url(url)
                await publish(source, hub, worker)

    await until_signal(show)
