"""What a look at a cluster cannot tell, as JSON."""

from collections.abc import Sequence
from typing import Any, Final

from cli.caveats import message
from core.explain.caveats import Caveat

NODES_LISTED: Final = 20
"""Of one warning."""


def document(found: Sequence[Caveat]) -> list[dict[str, Any]]:
    """Return the warnings in the form that orjson writes."""
    return [
        {
            "code": one.code,
            "message": message(one),
            "count": one.count,
            "nodes": [{"node": node, "pods": pods} for node, pods in one.nodes[:NODES_LISTED]],
        }
        for one in found
    ]
