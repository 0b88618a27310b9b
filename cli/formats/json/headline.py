"""The headline of a plan as JSON."""

from typing import Any

from cli.explain.headline import Cost, Headline
from cli.formats.json import DIGITS


def headline(one: Headline) -> dict[str, Any]:
    """Return the headline; times are in Unix seconds."""
    return {
        "mode": one.mode.value,
        "nodes": one.nodes,
        "removable": one.removable,
        "capacity": {
            "cpu": one.capacity.cpu_millis,
            "memory": one.capacity.memory_bytes,
            "devices": dict(sorted(one.capacity.devices.items())),
        },
        "savings": _savings(one.cost) if one.cost else None,
        "marked": one.marked,
        "toMarkNow": list(one.marking.now),
        "waiting": len(one.marking.waiting),
        "waits": [wait._asdict() for wait in one.marking.waits],
        "leaderAsked": one.leader_asked,
        "empty": one.empty,
        "emptiedByThemselves": one.by_themselves,
        "emptiedByMoves": one.by_moves,
        "emptiedLate": one.emptied_late,
        "lateBecause": [late._asdict() for late in one.late_because],
    }


def _savings(cost: Cost) -> dict[str, Any]:
    return {
        "perHour": round(float(cost.removed), DIGITS),
        "perMonth": round(float(cost.saved_per_month), DIGITS),
        "unpriced": list(cost.unpriced),
    }


def devices(one: Headline) -> list[dict[str, Any]]:
    """Return the devices of the nodes that pods can use, before and after the plan."""
    return [
        {
            "name": device.resource,
            "before": {"requested": device.requested[0], "capacity": device.capacity[0]},
            "after": {"requested": device.requested[1], "capacity": device.capacity[1]},
        }
        for device in one.devices
    ]
