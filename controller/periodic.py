"""Run a coroutine again and again, as long as the program runs or leads."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from core.edge.logs import fields
from core.model.errors import EbbError

PAUSE_SECONDS: Final = 1.0
"""Minimum pause between two runs, however often there are changes."""

log = logging.getLogger("ebb.periodic")


async def run_every(seconds: float, what: str, turn: Callable[[], Awaitable[object]]) -> None:
    """Run *turn* every *seconds* until cancelled; a run that fails is logged and retried."""
    while True:
        await _logged(what, turn)
        await asyncio.sleep(seconds)


async def run_on_change(
    news: asyncio.Event, seconds: float, what: str, turn: Callable[[], Awaitable[object]]
) -> None:
    """Run *turn* whenever *news* is set, and at least every *seconds*, as `run_every` does."""
    while True:
        news.clear()
        await _logged(what, turn)
        await asyncio.sleep(PAUSE_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), seconds - PAUSE_SECONDS)


async def _logged(what: str, turn: Callable[[], Awaitable[object]]) -> object:
    try:
        return await turn()
    except EbbError as fault:
        log.warning(what, extra=fields(reason=str(fault)))
        return None
