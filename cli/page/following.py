"""Show a cluster until the user ends the command: what `ebb page` and `ebb top` share."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from cli.input import reader
from cli.input.cluster_input import ClusterInput
from cli.input.cluster_options import ClusterOptions, Environment
from cli.page.feed import Feed, Sink
from cli.page.worker import Worker
from runtime.clock import SystemClock
from serving import http

Source = ClusterInput | Feed
"""A dump, or the feed of a live cluster."""


def source_of(environment: Environment, where: ClusterOptions) -> Source:
    """Read the cluster that the command line selects; a live cluster becomes a feed.

    Raises: as `reader.read`.
    """
    if where.from_file:
        return reader.read(environment, where)
    return Feed(reader.read_live(environment, where), SystemClock())


async def until_signal(show: Callable[[Worker], Coroutine[Any, Any, None]]) -> None:
    """Run *show* until it ends, or until SIGINT or SIGTERM. Raises: as *show*."""
    # The page and the screen show what the watches would log.
    logging.getLogger("ebb").addHandler(logging.NullHandler())
    worker = Worker()
    try:
        await until_first_ends(http.until_signal(), show(worker))
    finally:
        worker.stop()


async def until_first_ends(*works: Coroutine[Any, Any, None]) -> None:
    """Run several coroutines until one ends, and cancel the others. Raises: as the first."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()


async def publish(source: Source, sink: Sink, worker: Worker) -> None:
    """Publish the cluster until cancelled.

    Raises: EbbError if there is no first plan, or if the connection fails.
    """
    if isinstance(source, Feed):
        await source.run(sink, worker)
    else:
        await sink.publish(await worker.state(source))
        await asyncio.Event().wait()  # a dump does not change
