"""Print the answer of a command again whenever it changes, for the option -w."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, TextIO

from cli.input.cluster_input import ClusterInput
from cli.page.changes import Changes
from cli.page.feed import Feed
from cli.page.worker import with_objects
from kube.inventory import Inventory
from runtime.clock import SystemClock
from runtime.messages import tell

BETWEEN: Final = {"json": "", "yaml": "---\n"}
"""Text between two answers of a format; a blank line in others."""


class _Answers:
    """Make answers from the objects of a feed, in a thread of this process."""

    def __init__(self, answer: Callable[[ClusterInput], str]) -> None:
        self._answer, self._inventory = answer, Inventory(SystemClock().unix_seconds)
        self.has_plan = False

    async def state(self, cluster_input: ClusterInput, changes: Changes | None = None) -> bytes:
        if changes is not None:
            changes.apply(self._inventory)
            cluster_input = with_objects(cluster_input, self._inventory)
        text = await asyncio.to_thread(self._answer, cluster_input)
        self.has_plan = True
        return text.encode("utf-8", "surrogatepass")


class _Printer:
    """Print each answer that differs from the one before, and warnings."""

    def __init__(self, out: TextIO, between: str) -> None:
        self._out, self._between = out, between
        self._last: bytes | None = None
        self._warned: Sequence[str] = ()

    async def publish(self, state: bytes) -> None:
        if state == self._last:
            return
        text = state.decode("utf-8", "surrogatepass")
        self._out.write(text if self._last is None else self._between + text)
        self._out.flush()
        self._last = state

    def warn(
        self, banners: Sequence[str], heard_seconds: int | None = None, *, stale: bool = False
    ) -> None:
        del heard_seconds, stale  # the banners say so
        for banner in banners:
            if banner not in self._warned:
                tell(f"Warning: {banner}")
        self._warned = banners


async def print_each(
    feed: Feed, answer: Callable[[ClusterInput], str], form: str, out: TextIO
) -> None:
    """Print the answer for the cluster of *feed*, now and whenever it changes, until cancelled.

    *form*: name of the format of the answers. Raises: EbbError, OSError of *out*.
    """
    logging.getLogger("ebb").addHandler(logging.NullHandler())  # warnings are printed
    try:
        await feed.run(_Printer(out, BETWEEN.get(form, "\n")), _Answers(answer))
    except ExceptionGroup as several:  # of the tasks of the feed
        raise several.exceptions[0] from several
