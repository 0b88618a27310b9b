"""The summary of a plan as JSON."""

from typing import Any

from cli.explain.headline import Cost, Headline
from cli.formats.json import DIGITS


def headline(summary: Headline) -> dict[str, Any]:
    """Return the summary of a plan as JSON: millicores, bytes and Unix seconds."""
    return {
        "mode": summary.mode and summary.mode.value,
        "nodes": summary.nodes,
        "removable": summary.removable,
        "capacity": {
            "cpu": summary.capacity.cpu_millis,
            "memory": summary.capacity.memory_bytes,
            "devices": dict(sorted(summary.capacity.devices.items())),
        },
        "savings": _savings(summary.cost) if summary.cost else None,
        "marked": summary.marked,
        "toMarkNow": list(summary.marking.now),
        "waiting": len(summary.marking.waiting),
        "waits": [wait._asdict() for wait in summary.marking.waits],
        "leaderAsked": summary.leader_asked,
        "empty": summary.empty,
        "emptiedByThemselves": summary.by_themselves,
        "emptiedByMoves": summary.by_moves,
        "emptiedLate": summary.emptied_late,
        "lateBecause": [late._asdict() for late in summary.late_because],
    }


def _savings(cost: Cost) -> dict[str, Any]:
    return {
        "perHour": round(float(cost.removed), DIGITS),
        "perMonth": round(float(cost.saved_per_month), DIGITS),
        "unpriced": list(cost.unpriced),
    }


def devices(summary: Headline) -> list[dict[str, Any]]:
    """Return requests and capacity of each device, before and after the plan, as JSON.

    A device is an extended resource such as nvidia.com/gpu. Only nodes that movable pods can use
    count.
    """
    return [
        {
            "name": device.resource,
            "before": {"requested": device.requested[0], "capacity": device.capacity[0]},
            "after": {"requested": device.requested[1], "capacity": device.capacity[1]},
        }
        for device in summary.devices
    ]
