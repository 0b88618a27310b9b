"""The answer of `ebb history` as JSON."""

from typing import Any

import msgspec

from cli.answers import PastDays
from cli.formats.json.leader import UNITS
from core.config.settings import API_VERSION
from runtime.messages import printable


def document(answer: PastDays) -> dict[str, Any]:
    """Return the figures of a period as a JSON document."""
    return {
        "apiVersion": API_VERSION,
        "kind": "History",
        "units": UNITS,
        "time": answer.now_seconds,
        "cluster": printable(answer.cluster),
        "period": answer.period,
        "first": answer.first,
        "last": answer.last,
        "countedUntil": answer.counted_until_seconds,
        "total": msgspec.to_builtins(answer.total),
        "days": msgspec.to_builtins(answer.days),
    }
