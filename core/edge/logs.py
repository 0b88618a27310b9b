"""Logs: one JSON object a line on standard error, as Kubernetes' JSON format has it.

Messages are constant; what varies stands in fields: `log.info("marked", extra=fields(node=name))`.
"""

import logging
import math
import sys
from collections.abc import Callable
from typing import Any, Final

import orjson

_FIELDS = "ebb_fields"
SELDOM_SECONDS: Final = 60.0
"""From one line to the next of what others can cause as often as they like."""


def fields(**values: object) -> dict[str, Any]:
    """Wrap the varying parts of a message for logging's `extra`."""
    return {_FIELDS: values}


class RateLimitedLog:
    """A warning of what whoever reaches a port can cause: one line now and then tells of all."""

    def __init__(self, log: logging.Logger, message: str, now: Callable[[], float]) -> None:
        """*now*: returns monotonic seconds."""
        self._log, self._message, self._now = log, message, now
        self._told = -math.inf
        self._untold = 0

    def warn(self, **values: object) -> None:
        """Hear of one more; a line has the fields of the last, and how many there were."""
        now = self._now()
        self._untold += 1
        if now - self._told >= SELDOM_SECONDS:
            self._log.warning(self._message, extra=fields(**values, since_last=self._untold))
            self._told, self._untold = now, 0


def start() -> None:
    """Send all logging to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    sys.unraisablehook = _unraisable


def _unraisable(found: "sys.UnraisableHookArgs") -> None:
    """Log in one line what a callback could not raise: a caller's server name that is no text."""
    logging.getLogger("ebb").warning("unraisable", extra=fields(reason=repr(found.exc_value)))


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["err"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()
