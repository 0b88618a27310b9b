"""A history as a workload: node groups, Jobs and Deployments.

Pods of a ReplicaSet become a number of replicas over time; the simulated controller selects the
pods that a scale-in deletes, as in a cluster. All other pods start at their recorded time and run
for their recorded duration.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from core.config.settings import Config
from core.fit.filters import first_failing_filter
from core.model.constraints import NO_DISRUPTION_FACTS, DisruptionFacts, names_node
from core.model.errors import InvalidInputError
from core.model.humanize import plural
from core.model.node import Node
from core.model.pod import Pod
from core.model.workload import REPLICA_SET
from sim.costs import price_of
from sim.history.cluster_history import ClusterHistory, PodLifetime
from sim.history.groups import Groups, anywhere, offered
from sim.simulator import Result
from sim.workload import DAY_MS, HOUR_MS, Arrival, Deployment, Workload

LIFE_MS_MIN: Final = 1000
REPLACED_MS: Final = 30_000
"""A pod created within this time after another of its ReplicaSet ended replaces it."""
SHORT: Final = (
    "shorter than an hour: an autoscaler waits ten minutes before it takes a node, so there is "
    "little to compare"
)


class HistoryWorkload(NamedTuple):
    """The workload, and notes about parts of the history that it leaves out."""

    workload: Workload
    notes: tuple[str, ...]
    stood: Result
    """Totals of the nodes as recorded; all other fields are 0."""


def workload_of(past: ClusterHistory, config: Config) -> HistoryWorkload:
    """Return the workload of a history.

    *config* determines the labels that distinguish node groups, and the prices.

    Raises: InvalidInputError when no pod is left.
    """
    virtual = {stay.node.name for stay in past.stays if stay.node.virtual}
    every = [life for life in past.lives if _counts(life, past)]
    asked = [life for life in every if life.pod.node not in virtual]
    freed = [anywhere(life) for life in asked]
    groups = Groups(past, freed, config)
    able = _able(freed, groups.templates.values())
    if not able:
        of = f"of {plural(len(freed), 'pod')} in its time no kind of node admits any when empty"
        raise InvalidInputError(past.source, f"has nothing to play: {of}")
    whole = Workload(
        past.source,
        groups.first,
        tuple(_arrivals(past, able)),
        past.duration_ms,
        tick_ms=None,
        groups=groups.templates,
        deployments=tuple(_deployments(past, able)),
        largest_first=True,
    )
    named = sum(names_node(life.pod.placing) for life in asked)
    social = sum(bool(life.pod.company.near or life.pod.company.apart) for life in able)
    counted = (
        (groups.left_out, "nodes left out, as of the control plane, virtual or unreadable"),
        (len(every) - len(asked), "pods left out, as they ran on virtual nodes"),
        (len(freed) - len(able), "pods left out, as no kind of node admits them when empty"),
        (named, "pods that ask for a node by its name, and are played as if one like it would do"),
        (social, "pods that ask to be near or apart from others, which is not played"),
    )
    short = (SHORT,) if past.duration_ms < HOUR_MS else ()
    told = (f"{what}: {count:,}" for count, what in counted if count)
    return HistoryWorkload(whole, (*short, *past.notes, *told), groups.spent(price_of(config)))


def _counts(life: PodLifetime, past: ClusterHistory) -> bool:
    """Return whether the pod needs a node during the history; not DaemonSet and static pods."""
    ended = life.ends_ms is not None and life.ends_ms <= max(past.begins_ms, life.begins_ms)
    return not (life.pod.stays_with_node or ended or life.begins_ms >= past.ends_ms)


def _able(lives: Iterable[PodLifetime], templates: Iterable[Node]) -> list[PodLifetime]:
    """Return the pods that fit on an empty node of some group; others would be Pending forever."""
    nodes = list(templates)
    known: dict[object, bool] = {}
    found = []
    for life in lives:
        pod = life.pod
        key = pod.requests, pod.placing
        if key not in known:
            known[key] = any(_would_take(node, pod) for node in nodes)
        if known[key]:
            found.append(life)
    return found


def _would_take(node: Node, pod: Pod) -> bool:
    return pod.requests.fits_in(offered(node)) and first_failing_filter(node, pod.placing) is None


# Pods that come and end


def _arrivals(past: ClusterHistory, lives: Iterable[PodLifetime]) -> Iterator[Arrival]:
    """Yield the pods that belong to no ReplicaSet by time; pods of one time largest first."""
    names: Counter[str] = Counter()
    single = [life for life in lives if life.pod.owner_kind != REPLICA_SET]
    for life in sorted(single, key=lambda life: _order(life, past)):
        pod = life.pod
        name = f"{pod.namespace}.{pod.name}"
        names[name] += 1
        again = f".{names[name]}" if names[name] > 1 else ""
        at_ms = max(life.begins_ms, past.begins_ms)
        left_ms = _end(life, past) - max(life.bound_ms, past.begins_ms)
        yield Arrival(
            at_ms - past.begins_ms,
            name + again,
            pod.requests,
            max(left_ms, LIFE_MS_MIN),
            pod.placing,
            pod.owner_kind,
            f"{pod.namespace}.{pod.owner_name}" if pod.owner_kind else "",
            _ties(pod),
        )


def _order(life: PodLifetime, past: ClusterHistory) -> tuple[int, int, int, str]:
    asked = life.pod.requests
    at_ms = max(life.begins_ms - past.begins_ms, 0)
    return at_ms, -asked.cpu_millis, -asked.memory_bytes, life.pod.key


def _end(life: PodLifetime, past: ClusterHistory) -> int:
    """Return the end of a pod; a pod that still existed does not end during the simulation."""
    return past.ends_ms + DAY_MS if life.ends_ms is None else life.ends_ms


def _ties(pod: Pod) -> DisruptionFacts | None:
    """Return facts that block an eviction: annotations, and data on the node."""
    ties = DisruptionFacts(local_volumes=pod.ties.local_volumes, notes=pod.ties.notes)
    return ties if ties != NO_DISRUPTION_FACTS else None


# Pods that a ReplicaSet makes


def _deployments(past: ClusterHistory, lives: Iterable[PodLifetime]) -> Iterator[Deployment]:
    """Yield each ReplicaSet as a Deployment; a rollout shrinks one and grows the other."""
    sets: dict[tuple[object, ...], list[PodLifetime]] = {}
    for life in lives:
        pod = life.pod
        if pod.owner_kind == REPLICA_SET:
            key = pod.namespace, pod.owner_name, pod.requests, pod.placing, _ties(pod)
            sets.setdefault(key, []).append(life)
    names: Counter[str] = Counter()
    for (namespace, owner, requests, placing, ties), members in sets.items():
        name = f"{namespace}.{owner}"
        names[name] += 1
        again = f".{names[name]}" if names[name] > 1 else ""
        replicas, restarts = _counted(past, members)
        yield Deployment(
            name + again,
            requests,  # type: ignore[arg-type]
            replicas,
            restarts=restarts,
            placing=placing,  # type: ignore[arg-type]
            ties=ties,  # type: ignore[arg-type]
            ages_ms=_ages(past, members),
        )


def _ages(past: ClusterHistory, lives: Iterable[PodLifetime]) -> tuple[int, ...]:
    """Return the ages of the pods that exist at the start, oldest first."""
    ages = (past.begins_ms - life.begins_ms for life in lives)
    return tuple(sorted((one for one in ages if one >= 0), reverse=True))


Steps = tuple[tuple[int, int], ...]


def _counted(past: ClusterHistory, lives: Sequence[PodLifetime]) -> tuple[Steps, tuple[int, ...]]:
    """Return (start, replicas) over time, and the times at which a pod replaced another."""
    come = sorted(life.begins_ms for life in lives if life.begins_ms > past.begins_ms)
    gone = sorted(
        (life.ends_ms, life.slack_ms)
        for life in lives
        if life.ends_ms is not None and life.ends_ms < past.ends_ms
    )
    changes: Counter[int] = Counter()
    restarts, at = [], 0
    for ends_ms, slack_ms in gone:
        while at < len(come) and come[at] < ends_ms - slack_ms - REPLACED_MS:
            changes[come[at]] += 1
            at += 1
        if at < len(come) and come[at] <= ends_ms + slack_ms + REPLACED_MS:
            restarts.append(come[at] - past.begins_ms)
            at += 1
        else:
            changes[ends_ms] -= 1
    for begins_ms in come[at:]:
        changes[begins_ms] += 1
    count = len(lives) - len(come)
    steps = [(0, count)]
    for at_ms in sorted(changes):
        count += changes[at_ms]
        steps.append((at_ms - past.begins_ms, count))
    return tuple(steps), tuple(restarts)
