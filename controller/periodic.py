"""Run a coroutine whenever an Event is set, and at least at an interval."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from core.model.errors import EbbError
from runtime.logs import fields

PAUSE_SECONDS: Final = 1.0
"""Minimum pause between two runs, however often there are changes."""

log = logging.getLogger("ebb.periodic")


async def run_on_change(
    changed: asyncio.Event, seconds: float, failure: str, run: Callable[[], Awaitable[object]]
) -> None:
    """Await *run* whenever *changed* is set, and at least every *seconds*, until cancelled.

    An EbbError is logged with the message *failure*; the next run retries.
    """
    while True:
        changed.clear()
        try:
            await run()
        except EbbError as fault:
            log.warning(failure, extra=fields(reason=str(fault)))
        await asyncio.sleep(PAUSE_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), seconds - PAUSE_SECONDS)
