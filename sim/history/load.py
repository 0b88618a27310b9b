"""Convert a history to a simulated load: node groups, Jobs and Deployments.

Pods of a ReplicaSet become a number of replicas over time; the simulated controller selects the
pods that a scale-in deletes, as in a cluster. All other pods start at their recorded time and run
for their recorded duration.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from core.config.settings import Config
from core.model.constraints import NO_DISRUPTION_FACTS, DisruptionFacts, names_node
from core.model.errors import InvalidInputError
from core.model.humanize import plural
from core.model.node import Node
from core.model.pod import REPLICA_SET, Pod
from core.placement.filters import first_failing_filter
from sim.costs import price_of
from sim.history.cluster_history import ClusterHistory, PodLifetime
from sim.history.groups import Groups, capacity_for_pods, without_node_name
from sim.simulated_load import DAY_MS, HOUR_MS, Arrival, Deployment, SimulatedLoad
from sim.simulator import Result

LIFE_MS_MIN: Final = 1000
REPLACED_MS: Final = 30_000
"""A pod replaces another pod of its ReplicaSet if it was created within this time before or after
the other pod's end."""
SHORT: Final = (
    "the history is shorter than an hour: an autoscaler waits ten minutes before it removes a "
    "node, so variants differ little"
)


class HistoryLoad(NamedTuple):
    """The simulated load of a history, and notes about parts of the history that it leaves out."""

    load: SimulatedLoad
    notes: tuple[str, ...]
    recorded: Result
    """Totals of the nodes as recorded; all other fields are 0."""


def load_of(history: ClusterHistory, config: Config) -> HistoryLoad:
    """Convert a history to a simulated load, with notes about parts that it leaves out.

    *config* determines the labels that distinguish node groups, and the prices. Raises:
    InvalidInputError when no pod is left.
    """
    virtual = {lifetime.node.name for lifetime in history.node_lifetimes if lifetime.node.virtual}
    in_history = [lifetime for lifetime in history.pod_lifetimes if _needs_node(lifetime, history)]
    simulated = [lifetime for lifetime in in_history if lifetime.pod.node not in virtual]
    unpinned = [without_node_name(lifetime) for lifetime in simulated]
    groups = Groups(history, unpinned, config)
    placeable = _placeable(unpinned, groups.templates.values())
    if not placeable:
        of = f"of {plural(len(unpinned), 'pod')}, none fits on an empty node of any group"
        raise InvalidInputError(history.source, f"has no pods to simulate: {of}")
    load = SimulatedLoad(
        history.source,
        groups.first,
        tuple(_arrivals(history, placeable)),
        history.duration_ms,
        interval_ms=None,
        groups=groups.templates,
        deployments=tuple(_deployments(history, placeable)),
        largest_first=True,
    )
    pinned = sum(names_node(lifetime.pod.node_constraints) for lifetime in simulated)
    with_affinity = sum(
        bool(lifetime.pod.pod_constraints.near or lifetime.pod.pod_constraints.apart)
        for lifetime in placeable
    )
    counted = (
        (groups.left_out, "nodes left out (control plane, virtual or unreadable)"),
        (len(in_history) - len(simulated), "pods left out (they ran on virtual nodes)"),
        (len(unpinned) - len(placeable), "pods left out (they fit on no empty node)"),
        (pinned, "pods that select a node by name (simulated with any node of its group)"),
        (with_affinity, "pods with inter-pod affinity or anti-affinity (ignored)"),
    )
    short = (SHORT,) if history.duration_ms < HOUR_MS else ()
    counts = (f"{what}: {count:,}" for count, what in counted if count)
    return HistoryLoad(
        load, (*short, *history.notes, *counts), groups.recorded_totals(price_of(config))
    )


def _needs_node(lifetime: PodLifetime, history: ClusterHistory) -> bool:
    """Return whether the pod must be placed on a node during the history.

    Pods that ended before its start or begin at its end need no node. DaemonSet and static pods do
    not count either: they come with every node.
    """
    ended = lifetime.ends_ms is not None and lifetime.ends_ms <= max(
        history.begins_ms, lifetime.begins_ms
    )
    return not (lifetime.pod.stays_with_node or ended or lifetime.begins_ms >= history.ends_ms)


def _placeable(
    pod_lifetimes: Iterable[PodLifetime], templates: Iterable[Node]
) -> list[PodLifetime]:
    """Return the pods that fit on an empty node of any group; others would be Pending forever.

    *templates*: a Node of each group.
    """
    nodes = list(templates)
    known: dict[object, bool] = {}
    placeable = []
    for lifetime in pod_lifetimes:
        pod = lifetime.pod
        key = pod.requests, pod.node_constraints
        if key not in known:
            known[key] = any(_would_take(node, pod) for node in nodes)
        if known[key]:
            placeable.append(lifetime)
    return placeable


def _would_take(node: Node, pod: Pod) -> bool:
    return (
        pod.requests.fits_in(capacity_for_pods(node))
        and first_failing_filter(node, pod.node_constraints) is None
    )


# Pods of no ReplicaSet


def _arrivals(history: ClusterHistory, pod_lifetimes: Iterable[PodLifetime]) -> Iterator[Arrival]:
    """Yield the pods that belong to no ReplicaSet by time; at equal times the largest first."""
    names: Counter[str] = Counter()
    single = [lifetime for lifetime in pod_lifetimes if lifetime.pod.owner_kind != REPLICA_SET]
    for lifetime in sorted(single, key=lambda lifetime: _order(lifetime, history)):
        pod = lifetime.pod
        name = f"{pod.namespace}.{pod.name}"
        names[name] += 1
        suffix = f".{names[name]}" if names[name] > 1 else ""
        at_ms = max(lifetime.begins_ms, history.begins_ms)
        left_ms = _end(lifetime, history) - max(lifetime.bound_ms, history.begins_ms)
        yield Arrival(
            at_ms - history.begins_ms,
            name + suffix,
            pod.requests,
            max(left_ms, LIFE_MS_MIN),
            pod.node_constraints,
            pod.owner_kind,
            f"{pod.namespace}.{pod.owner_name}" if pod.owner_kind else "",
            _disruption_facts(pod),
        )


def _order(lifetime: PodLifetime, history: ClusterHistory) -> tuple[int, int, int, str]:
    requests = lifetime.pod.requests
    at_ms = max(lifetime.begins_ms - history.begins_ms, 0)
    return at_ms, -requests.cpu_millis, -requests.memory_bytes, lifetime.pod.key


def _end(lifetime: PodLifetime, history: ClusterHistory) -> int:
    """Return the end of a pod in Unix ms.

    For a pod that still existed at the end of the history, it is a day later, so that the pod does
    not end during the simulation.
    """
    return history.ends_ms + DAY_MS if lifetime.ends_ms is None else lifetime.ends_ms


def _disruption_facts(pod: Pod) -> DisruptionFacts | None:
    """Return the facts that decide how a pod leaves its node; None without any.

    They are annotations and local volumes that block its eviction, and whether it completes.
    """
    facts = pod.disruption_facts
    disruption_facts = DisruptionFacts(
        local_volumes=facts.local_volumes, notes=facts.notes, completes=facts.completes
    )
    return disruption_facts if disruption_facts != NO_DISRUPTION_FACTS else None


# Pods of ReplicaSets


def _deployments(
    history: ClusterHistory, pod_lifetimes: Iterable[PodLifetime]
) -> Iterator[Deployment]:
    """Yield a Deployment for each ReplicaSet; a recorded rollout scales one down and another up.

    Pods of one ReplicaSet with different requests or constraints become several Deployments.
    """
    sets: dict[tuple[object, ...], list[PodLifetime]] = {}
    for lifetime in pod_lifetimes:
        pod = lifetime.pod
        if pod.owner_kind == REPLICA_SET:
            key = (
                pod.namespace,
                pod.owner_name,
                pod.requests,
                pod.node_constraints,
                _disruption_facts(pod),
            )
            sets.setdefault(key, []).append(lifetime)
    names: Counter[str] = Counter()
    for (namespace, owner, requests, node_constraints, disruption_facts), members in sets.items():
        name = f"{namespace}.{owner}"
        names[name] += 1
        suffix = f".{names[name]}" if names[name] > 1 else ""
        replicas, restarts = _counted(history, members)
        yield Deployment(
            name + suffix,
            requests,  # type: ignore[arg-type]
            replicas,
            restarts=restarts,
            node_constraints=node_constraints,  # type: ignore[arg-type]
            disruption_facts=disruption_facts,  # type: ignore[arg-type]
            ages_ms=_ages(history, members),
        )


def _ages(history: ClusterHistory, pod_lifetimes: Iterable[PodLifetime]) -> tuple[int, ...]:
    """Return the ages in ms of the pods that exist at the start of the history, oldest first."""
    ages = (history.begins_ms - lifetime.begins_ms for lifetime in pod_lifetimes)
    return tuple(sorted((age_ms for age_ms in ages if age_ms >= 0), reverse=True))


Steps = tuple[tuple[int, int], ...]


def _counted(
    history: ClusterHistory, pod_lifetimes: Sequence[PodLifetime]
) -> tuple[Steps, tuple[int, ...]]:
    """Return the replicas of a ReplicaSet over time, and the times of its restarts.

    The replicas are pairs (start, replicas). A restart is a new pod that replaced another one, so
    that the replicas remained equal. All times are milliseconds since the start of the history.
    """
    started = sorted(
        lifetime.begins_ms for lifetime in pod_lifetimes if lifetime.begins_ms > history.begins_ms
    )
    ended = sorted(
        (lifetime.ends_ms, lifetime.slack_ms)
        for lifetime in pod_lifetimes
        if lifetime.ends_ms is not None and lifetime.ends_ms < history.ends_ms
    )
    changes: Counter[int] = Counter()
    restarts, at = [], 0
    for ends_ms, slack_ms in ended:
        while at < len(started) and started[at] < ends_ms - slack_ms - REPLACED_MS:
            changes[started[at]] += 1
            at += 1
        if at < len(started) and started[at] <= ends_ms + slack_ms + REPLACED_MS:
            restarts.append(started[at] - history.begins_ms)
            at += 1
        else:
            changes[ends_ms] -= 1
    for begins_ms in started[at:]:
        changes[begins_ms] += 1
    count = len(pod_lifetimes) - len(started)
    steps = [(0, count)]
    for at_ms in sorted(changes):
        count += changes[at_ms]
        steps.append((at_ms - history.begins_ms, count))
    return tuple(steps), tuple(restarts)
