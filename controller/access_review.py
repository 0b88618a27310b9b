"""A permission of this program: reviewed again now and then, so that a change is seen."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from core.edge.clock import Clock
from core.edge.logs import fields
from core.model.errors import UnavailableError

RIGHT_SECONDS: Final = 300
"""How long an answer counts."""

log = logging.getLogger("ebb.access-review")


class AccessReview:
    """Keeps the API server's last answer."""

    def __init__(self, ask: Callable[[], Awaitable[bool]], clock: Clock, what: str) -> None:
        """*ask* raises UnavailableError; *what* may be done with the right, for the log."""
        self._ask, self._clock, self._what = ask, clock, what
        self.forget()

    def forget(self) -> None:
        """Let it be asked for anew, when it is next of use."""
        self.held: bool | None = None
        """None: there is no answer yet."""
        self._asked_at = 0.0

    async def look_up(self) -> bool:
        """Ask, where the last answer does not count any more; say whether it is another one.

        Without an answer the last one holds on.
        """
        now = self._clock.monotonic_seconds()
        if self.held is not None and now - self._asked_at < RIGHT_SECONDS:
            return False
        try:
            held = await self._ask()
        except UnavailableError as fault:
            log.warning(
                "cannot tell about a right", extra=fields(to=self._what, reason=str(fault))
            )
            return False
        changed = held is not self.held
        self.held, self._asked_at = held, now
        return changed
