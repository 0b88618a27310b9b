"""Run `ebb top` in a terminal until the user quits."""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
from rich.live import Live

from cli.page.following import Source, publish, until_first_ends, until_signal
from cli.page.worker import Worker
from cli.terminal import console
from cli.top.screen import ScreenState, State, press, render, selected


class Top:
    """The screen of `ebb top`, to which the feed publishes states and warnings."""

    def __init__(self, live: Live) -> None:
        self._live, self._view = live, ScreenState()
        self._state: State | None = None
        self._banners: Sequence[str] = ()

    async def publish(self, state: bytes) -> None:
        """Draw the screen with a new state of the cluster, the JSON of `PageState.document`."""
        self._state = orjson.loads(state)
        self.draw()

    def warn(
        self,
        banners: Sequence[str],
        heard_seconds: int | None = None,  # noqa: ARG002 the warning names the time
        *,
        stale: bool = False,  # noqa: ARG002 as above
    ) -> None:
        """Draw the screen with these warnings about the connection to the cluster."""
        if banners != self._banners:
            self._banners = banners
            self.draw()

    def press(self, key: str) -> bool:
        """Act on a pressed key, and draw the screen. Returns: False if the user quits."""
        nodes = len(selected(self._state, self._view)) if self._state else 0
        view = press(self._view, key, nodes)
        if view is not None:
            self._view = view
            self.draw()
        return view is not None

    def draw(self) -> None:
        """Draw the screen with the last state; nothing happens before the first state."""
        if self._state is not None:
            width, height = self._live.console.size
            shown = render(self._state, self._banners, self._view, width, height)
            self._live.update(shown, refresh=True)


async def follow(source: Source) -> None:
    """Show the cluster in the terminal until the user quits.

    Raises: EbbError if there is no first plan, or if the connection fails.
    """

    async def show(worker: Worker) -> None:
        with Live(console=console(), screen=True, auto_refresh=False) as live, _keys() as keys:
            top = Top(live)
            await until_first_ends(publish(source, top, worker), _read(keys, top))

    await until_signal(show)


async def _read(keys: asyncio.Queue[str], top: Top) -> None:
    """Act on keys until the user quits."""
    while top.press(await keys.get()):
        pass


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
