"""Logs: one JSON object a line on standard error, as Kubernetes' JSON format has it.

Messages are constant; what varies stands in fields: `log.info("marked", extra=fields(node=name))`.
"""

import logging
import sys
from typing import Any

import orjson

_FIELDS = "ebb_fields"


def fields(**values: object) -> dict[str, Any]:
    """Wrap the varying parts of a message for logging's `extra`."""
    return {_FIELDS: values}


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
