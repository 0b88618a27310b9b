"""Log one JSON object per line to standard error, in Kubernetes' JSON format.

Messages are constant; variable parts are fields: `log.info("marked", extra=fields(node=name))`.
"""

import logging
import math
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from runtime.messages import printable_json

_FIELDS = "ebb_fields"
INFO: Final = "info"
LEVELS: Final[Mapping[str, int]] = {
    INFO: logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
"""Levels of the log by name."""
LOG_INTERVAL_SECONDS: Final = 60.0
"""Minimum interval between two log lines about events that others can cause at any rate."""


def fields(**values: object) -> dict[str, Any]:
    """Return the argument `extra` of a logging call; *values* become fields of the JSON line."""
    return {_FIELDS: values}


class RateLimitedLog:
    """A warning about events that clients can cause at any rate, logged once for many events."""

    def __init__(self, log: logging.Logger, message: str, now: Callable[[], float]) -> None:
        """Create a warning with a constant *message*; *now* returns monotonic seconds."""
        self._log, self._message, self._now = log, message, now
        self._last = -math.inf
        self._events = 0

    def warn(self, **values: object) -> None:
        """Count an event, and log the warning unless it was logged within LOG_INTERVAL_SECONDS.

        The log line has *values* as fields, and the number of events since the last line.
        """
        now = self._now()
        self._events += 1
        if now - self._last >= LOG_INTERVAL_SECONDS:
            self._log.warning(self._message, extra=fields(**values, since_last=self._events))
            self._last, self._events = now, 0


def start(level: str = INFO) -> None:
    """Send log messages to standard error as JSON lines; *level*: a key of LEVELS."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=LEVELS[level], handlers=[handler], force=True)
    sys.unraisablehook = _unraisable


def _unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    # One line: clients can cause such exceptions, for example with an invalid server name.
    logging.getLogger("ebb").warning(
        "ignored an exception in a callback", extra=fields(reason=repr(unraisable.exc_value))
    )


def _rfc3339(unix_seconds: float) -> str:
    at = datetime.fromtimestamp(unix_seconds, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": _rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["err"] = self.formatException(record.exc_info)
        return printable_json(orjson.dumps(line, default=str).decode())
