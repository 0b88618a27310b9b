"""Turns of something that goes on as long as the program, or its lead."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from core.edge.logs import fields
from core.model.errors import EbbError

PAUSE_SECONDS: Final = 1.0
"""Between two turns at least, however often there are news."""

log = logging.getLogger("ebb.rounds")


async def every(seconds: float, what: str, turn: Callable[[], Awaitable[object]]) -> None:
    """Take a turn every so often until cancelled; one that fails is logged, and tried again."""
    while True:
        await _taken(what, turn)
        await asyncio.sleep(seconds)


async def at_news(
    news: asyncio.Event, seconds: float, what: str, turn: Callable[[], Awaitable[object]]
) -> None:
    """Take a turn whenever there are news, and every so often, as `every` does."""
    while True:
        news.clear()
        await _taken(what, turn)
        await asyncio.sleep(PAUSE_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), seconds - PAUSE_SECONDS)


async def until_some(seconds: float, what: str, turn: Callable[[], Awaitable[object]]) -> None:
    """Take a turn every so often until one returns something."""
    while True:
        if await _taken(what, turn) is not None:
            return
        await asyncio.sleep(seconds)


async def _taken(what: str, turn: Callable[[], Awaitable[object]]) -> object:
    try:
        return await turn()
    except EbbError as fault:
        log.warning(what, extra=fields(reason=str(fault)))
        return None
