"""Log when evictions or moves begin to wait because a node has its share of new pods."""

import logging
from collections.abc import Iterable

from core.model.reason import Blocker, Reason
from runtime.logs import fields


class PauseLog:
    """A log line for the first of the decisions in a row that wait for the same reason."""

    def __init__(self, log: logging.Logger, message: str, reason: Reason) -> None:
        """Create a log line with a constant *message*; *reason*: why decisions wait."""
        self._log, self._message, self._reason = log, message, reason
        self._paused = False

    def decided(self, waits: Iterable[Blocker]) -> None:
        """Log the pod and the message of the reason, unless the last decision waited for it too.

        *waits*: why pods wait, according to the newest decision.
        """
        why = next((wait for wait in waits if wait.reason is self._reason), None)
        if why is not None and not self._paused:
            self._log.info(self._message, extra=fields(pod=why.pod, reason=why.message))
        self._paused = why is not None
