"""Run `ebb page` until Ctrl-C."""

import asyncio
import logging
import sys
import threading
import webbrowser
from collections.abc import Callable

from cli.input.cluster_input import ClusterInput
from cli.page.feed import Feed
from cli.page.hub import Hub
from cli.page.server import PageServer
from cli.page.worker import Worker
from core.edge import http

Open = Callable[[str], object]
"""Opens a URL in the browser of the user."""


def open_browser(url: str) -> None:
    """Open a URL in the browser of the user, which may block as long as the browser runs."""
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


async def serve(first: ClusterInput, feed: Feed | None, port: int, open_url: Open) -> None:
    """Serve the page until SIGINT or SIGTERM.

    *feed*: None for a dump. Raises: InvalidInputError if the port is not free; EbbError if there
    is no first plan.
    """
    # The page shows what the watches would log.
    logging.getLogger("ebb").addHandler(logging.NullHandler())
    hub, worker = Hub(), Worker()
    stopped = asyncio.create_task(http.until_signal())
    try:
        async with PageServer(hub, worker, port) as server:
            sys.stdout.write(f"{server.url}\n")
            sys.stderr.write("Serving the page; Ctrl-C ends it.\n")
            sys.stdout.flush()
            open_url(server.url)
            running = asyncio.create_task(_follow(first, feed, hub, worker))
            await asyncio.wait({stopped, running}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                running.cancel()
            await asyncio.wait({running})
            if not running.cancelled():
                running.result()
    finally:
        stopped.cancel()
        worker.stop()


async def _follow(first: ClusterInput, feed: Feed | None, hub: Hub, worker: Worker) -> None:
    await hub.publish(await worker.state(first))
    if feed is None:
        await asyncio.Event().wait()  # a dump does not change
    else:
        await feed.run(hub, worker)
