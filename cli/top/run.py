"""Run `ebb top` in a terminal until the user quits."""

import asyncio
import logging
import os
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
from rich.live import Live

from cli.input.cluster_input import ClusterInput
from cli.page.feed import Feed
from cli.page.worker import Worker
from cli.terminal import console
from cli.top.keys import press
from cli.top.screen import State, View, render, selected
from core.edge import http


class Top:
    """The screen; the feed publishes states and warnings to it."""

    def __init__(self, live: Live) -> None:
        self._live, self._view = live, View()
        self._state: State | None = None
        self._banners: Sequence[str] = ()
        self.quit = asyncio.Event()

    async def publish(self, state: bytes) -> None:
        """Show a new state."""
        self._state = orjson.loads(state)
        self.draw()

    def warn(self, banners: Sequence[str]) -> None:
        """Show warnings about the connection to the cluster."""
        if banners != self._banners:
            self._banners = banners
            self.draw()

    def press(self, key: str) -> None:
        """Act on a key."""
        nodes = len(selected(self._state, self._view)) if self._state else 0
        view = press(self._view, key, nodes)
        if view is None:
            self.quit.set()
        else:
            self._view = view
            self.draw()

    def draw(self) -> None:
        """Draw the screen anew."""
        if self._state is not None:
            width, height = self._live.console.size
            shown = render(self._state, self._banners, self._view, width, height)
            self._live.update(shown, refresh=True)


async def follow(first: ClusterInput, feed: Feed | None) -> None:
    """Show the cluster until the user quits; *feed*: None for a dump.

    Raises: EbbError if there is no first plan, or if the connection fails.
    """
    # The screen shows what the watches would log.
    logging.getLogger("ebb").addHandler(logging.NullHandler())
    worker, stopped = Worker(), asyncio.create_task(http.until_signal())
    try:
        with Live(console=console(), screen=True, auto_refresh=False) as live, _keys() as keys:
            top = Top(live)
            await top.publish(await worker.state(first))
            reading = asyncio.create_task(_read(keys, top))
            ends = [
                stopped,
                reading,
                asyncio.create_task(top.quit.wait()),
                *([asyncio.create_task(feed.run(top, worker))] if feed else []),
            ]
            done, left = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for one in left:
                one.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            for one in done:
                one.result()
    finally:
        stopped.cancel()
        worker.stop()


async def _read(keys: asyncio.Queue[str], top: Top) -> None:
    while True:
        top.press(await keys.get())


@contextmanager
def _keys() -> Iterator[asyncio.Queue[str]]:
    """Yield a queue of the keys that the user presses, with the terminal in cbreak mode."""
    keys: asyncio.Queue[str] = asyncio.Queue()
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    before: list[Any] = termios.tcgetattr(descriptor)

    def read() -> None:
        # A special key arrives as one escape sequence.
        text = os.read(descriptor, 16).decode(errors="replace")
        for key in [text] if text.startswith("\x1b") else text:
            keys.put_nowait(key)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield keys
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
