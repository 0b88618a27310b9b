"""Measure how long pods wait for new nodes.

The time begins with the reconciliation that first sees a pod unschedulable. It ends with the
reconciliation that sees the pod on a node added since. So it includes the autoscaler's decision,
the start of the machine, its readiness, and the scheduler. Only the leader's clock counts. Each
node counts once per reach (a set of nodes that some pods can use).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from core.engine.reach_keys import RenamedKeys
from core.engine.snapshot import ClusterSnapshot
from core.engine.unschedulable import WAITING_PODS_MAX, by_namespace_in_turns
from core.model.constraints import without_volumes
from core.model.node_lifecycle import START_SECONDS_MAX
from core.model.now import Now
from core.placement.reaches import REACHES_MAX

NODES_MAX: Final = 9
"""Maximum number of durations in a reach's median; several, as one pod may be unusual."""
PodId = tuple[str, str]
"""Key and UID of a pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningTimes:
    """How long pods waited for new nodes, by reach, and what is needed to measure more waits."""

    pending_since: Mapping[PodId, int] = field(default_factory=dict)
    """Time since which pods have been unschedulable, unix seconds."""
    added_at: Mapping[str, int] = field(default_factory=dict)
    """Time at which each node was added while a pod was unschedulable, unix seconds. A node is
    listed until such a pod runs there."""
    durations: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Durations by reach, seconds, latest last. The reaches are in the order of their latest
    duration."""

    @property
    def seconds(self) -> Mapping[str, int]:
        """Return by key of a reach the median time in seconds that pods wait for a new node."""
        return {reach: sorted(times)[len(times) // 2] for reach, times in self.durations.items()}

    def observe(self, added: "AddedNodes", now: Now) -> "ProvisioningTimes":
        """Return the times after a reconciliation; *added*: its snapshot and its new nodes."""
        return _observed(self, added.snapshot, added.new, now.seconds)

    def unchanged(self, now: Now) -> "ProvisioningTimes":  # noqa: ARG002
        """Return the state itself, because it changes only when pods or nodes do."""
        return self

    def renamed(self, keys: RenamedKeys) -> "ProvisioningTimes":
        """Return the times under the current keys of reaches; *keys*: current by previous key.

        A reach is a set of nodes that some pods can use.
        """
        durations: dict[str, tuple[int, ...]] = {}
        for reach, times in self.durations.items():
            key = keys.get(reach, reach)
            durations[key] = (*durations.pop(key, ()), *times)[-NODES_MAX:]
        return replace(self, durations=durations)

    def after(self, earlier: Mapping[str, tuple[int, ...]]) -> "ProvisioningTimes":
        """Return the times after those of the previous leader; *earlier*: its durations."""
        durations = dict(earlier)
        for reach, times in self.durations.items():
            durations[reach] = (*durations.pop(reach, ()), *times)[-NODES_MAX:]
        return replace(self, durations=_latest(durations))


class AddedNodes(NamedTuple):
    """A snapshot, and the names of its nodes that no earlier snapshot of the leader contained."""

    snapshot: ClusterSnapshot
    new: frozenset[str]


def _observed(
    before: ProvisioningTimes, snapshot: ClusterSnapshot, new: frozenset[str], now_seconds: int
) -> ProvisioningTimes:
    if snapshot.config.budgets.reserve.window_seconds is None:
        return ProvisioningTimes()
    names = snapshot.node_order.ids.keys()
    added_at = {name: at for name, at in before.added_at.items() if name in names}
    added_at |= dict.fromkeys(sorted(new), now_seconds)
    durations = _durations(before, snapshot, added_at, now_seconds)
    pending_since = _pending_since(before, snapshot, now_seconds)
    measured = {name for name, _ in durations}
    first = min(pending_since.values(), default=now_seconds)
    return ProvisioningTimes(
        pending_since=pending_since,
        added_at={
            name: at for name, at in added_at.items() if first < at and name not in measured
        },
        durations=_with_durations(before.durations, durations),
    )


def _pending_since(
    before: ProvisioningTimes, snapshot: ClusterSnapshot, now_seconds: int
) -> dict[PodId, int]:
    pods = by_namespace_in_turns(
        pod for pod in snapshot.pods.unschedulable if pod.evaluable and pod.occupies
    )
    ids = [(pod.key, pod.uid) for pod in pods[:WAITING_PODS_MAX]]
    return {pod_id: before.pending_since.get(pod_id, now_seconds) for pod_id in ids}


def _durations(
    before: ProvisioningTimes,
    snapshot: ClusterSnapshot,
    added_at: Mapping[str, int],
    now_seconds: int,
) -> dict[tuple[str, str], int]:
    """Return by node and key of a reach how long pods on a new node had waited, in seconds.

    The longest wait of the pods on the node counts, at most START_SECONDS_MAX. *added_at*: unix
    second at which each new node was added.
    """
    durations: dict[tuple[str, str], int] = {}
    if not added_at or not before.pending_since:
        return durations
    for pod in snapshot.cluster.pods:
        if pod.node is None or pod.node not in added_at:
            continue
        since = before.pending_since.get((pod.key, pod.uid))
        if since is None or since >= added_at[pod.node]:
            continue
        if reach := snapshot.reaches.reach_of(without_volumes(pod.node_constraints)):
            key = pod.node, reach.key
            durations[key] = max(
                durations.get(key, 0), min(now_seconds - since, START_SECONDS_MAX)
            )
    return durations


def _with_durations(
    before: Mapping[str, tuple[int, ...]], measured: Mapping[tuple[str, str], int]
) -> Mapping[str, tuple[int, ...]]:
    """Return the durations *before* by reach, with the *measured* ones appended.

    *measured*: seconds by node and key of a reach. Only the latest NODES_MAX durations of a reach
    are kept, and only the REACHES_MAX reaches with the latest durations.
    """
    durations = dict(before)
    for (_, reach), seconds in sorted(measured.items()):
        durations[reach] = (*durations.pop(reach, ()), seconds)[-NODES_MAX:]
    return _latest(durations)


def _latest(durations: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
    return {reach: durations[reach] for reach in list(durations)[-REACHES_MAX:]}
