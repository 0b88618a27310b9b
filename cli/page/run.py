"""Run `ebb page` until Ctrl-C."""

import sys
import threading
import webbrowser
from collections.abc import Callable

from cli.page.following import Source, publish, until_signal
from cli.page.hub import Hub
from cli.page.server import PageServer
from cli.page.worker import Worker

Open = Callable[[str], object]
"""Opens a URL in the browser of the user."""


def open_browser(url: str) -> None:
    """Open a URL in the user's browser, without waiting until the browser ends."""
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


async def serve(source: Source, port: int, open_url: Open) -> None:
    """Serve the page of a cluster, and open it in a browser, until SIGINT or SIGTERM.

    *port*: 0 for any free port. *open_url*: opens the URL in a browser. Raises: InvalidInputError
    if the port is not free; EbbError if there is no first plan, or if the connection fails.
    """

    async def show(worker: Worker) -> None:
        hub = Hub()
        async with PageServer(hub, worker, port) as server:
            sys.stdout.write(f"{server.url}\n")
            sys.stderr.write("Serving the page; Ctrl-C ends it.\n")
            sys.stdout.flush()
            open_url(server.url)
            await publish(source, hub, worker)

    await until_signal(show)
