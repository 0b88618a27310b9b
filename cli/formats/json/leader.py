"""How Ebb runs in a live cluster, as JSON."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from cli.input.cluster_input import ClusterInput, Leader
from controller.leader_report import LeaderFacts, LimitUse
from kube.target import Target
from runtime.messages import printable

UNITS: Final = {
    "cpu": "millicores",
    "memory": "bytes",
    "price": "currency of `prices` per hour",
    "cost": "currency of `prices`",
    "time": "Unix seconds",
}
"""Unit of each quantity in a document."""


def origin(cluster_input: ClusterInput, now_seconds: int) -> dict[str, Any]:
    """Return the fields of a document about units, time, sources and failed reads."""
    config_from = cluster_input.config_from
    return {
        "units": UNITS,
        "time": now_seconds,
        "source": printable(cluster_input.where),
        "cluster": _target(cluster_input.target) if cluster_input.target else None,
        "configuration": config_from and printable(config_from),
        "notRead": [printable(problem) for problem in cluster_input.not_read],
    }


def running(cluster_input: ClusterInput) -> dict[str, Any]:
    """Return the leader according to its Lease, and the leader's report; both null for a dump."""
    running = cluster_input.running
    return {
        "leader": _leader(running.leader) if running else None,
        "leaderReport": msgspec.to_builtins(running.report) if running else None,
    }


def about_node(
    facts: LeaderFacts | None, node: str, limits: Sequence[LimitUse]
) -> dict[str, Any] | None:
    """Return as JSON what the leader knows about a node, such as delays and decisions.

    *facts*: state of the leader; if it is None, the result is None too. *limits*: those of the
    node.
    """
    if facts is None:
        return None
    found = {
        "delays": [delay for delay in facts.delays if delay.node == node],
        "refusedWrites": facts.refused_writes,
        "limits": limits,
        "peaks": facts.peaks,
        "decisions": [
            decision
            for decision in facts.decisions
            if (decision.kind, decision.name) == ("Node", node)
        ],
    }
    built: dict[str, Any] = msgspec.to_builtins(found)
    return built


def _target(target: Target) -> dict[str, Any]:
    return {name: printable(value) for name, value in target._asdict().items()}


def _leader(leader: Leader) -> dict[str, Any]:
    return {
        "lease": leader.lease,
        "holder": leader.holder or None,
        "renewed": leader.renewed_seconds,
        "durationSeconds": leader.duration_seconds,
        "problem": leader.problem,
    }
