"""Show a cluster until the user ends the command, for `ebb page` and `ebb top`."""

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
    """Read the cluster that the command line selects.

    Returns: a Feed for a live cluster, or a ClusterInput for a dump. Raises: EbbError if the
    cluster or dump cannot be read.
    """
    if where.from_file:
        return reader.read(environment, where)
    return Feed(reader.read_live(environment, where), SystemClock())


async def until_signal(show: Callable[[Worker], Coroutine[Any, Any, None]]) -> None:
    """Call *show* with a process for plans; run it until it ends, or until SIGINT or SIGTERM.

    Raises: the exceptions of *show*.
    """
    # The page and the screen show what the watches would log.
    logging.getLogger("ebb").addHandler(logging.NullHandler())
    worker = Worker()
    try:
        await until_first_ends(http.until_signal(), show(worker))
    finally:
        worker.stop()


async def until_first_ends(*works: Coroutine[Any, Any, None]) -> None:
    """Run several coroutines until one ends, and cancel the others.

    Raises: the exception of the coroutine that ended first.
    """
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
    """Publish the state of the cluster to *sink*, until cancelled.

    The state of a live cluster is published again after changes. *worker*: process that makes the
    plans. Raises: EbbError if there is no first plan, or if the connection fails.
    """
    if isinstance(source, Feed):
        await source.run(sink, worker)
    else:
        await sink.publish(await worker.state(source))
        await asyncio.Event().wait()  # a dump does not change
