"""Reference implementation of the reserve: the empty nodes to protect for expected pods.

Its input is every cluster that a leader has seen, with times. It keeps no state between calls.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from core.config.settings import Config
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from tests.support.reference_fit import starts
from tests.support.reference_packing import Packing, is_unremovable, known, like, virtual
from tests.support.reference_rules import (
    MARK,
    PROTECTION,
    guarded,
    holds_pods,
    is_in,
    is_marked,
    leaving,
    price_of,
)
from tests.support.reference_scalable import is_fixed
from tests.support.reference_sums import dominant, worth

Snapshots = Sequence[tuple[int, Cluster]]
DAY, HOUR = 86_400, 3600
UNBOUND = "spec.volumes[*].persistentVolumeClaim"
BACKOFF = "kube-ebb.io/backoff"
NOBODYS = 3
"""The rank of nodes that Ebb does not protect."""


class Came(NamedTuple):
    """A pod that counts for the reserve, and when it was first seen."""

    second: int
    pod: Pod


class Expected:
    """The pods that have arrived up to the last reconciliation."""

    def __init__(self, snapshots: Snapshots, config: Config, mutant: str = "") -> None:
        """Evaluate all reconciliations."""
        self.config, self.mutant = config, mutant
        window = length_of(config)
        self.slot = max(window // 5, -(-HOUR // 1024))
        self.many = -(-window // self.slot)
        self.came: list[Came] = []
        self.snapshots = snapshots
        self.packing = Packing(snapshots[-1][1], config, clock=snapshots[-1][0])
        left: list[tuple[int, tuple[str, ...]]] = []
        for (_, before), (second, now) in pairwise(snapshots):
            left += [(second // self.slot, whose(p)) for p in before.pods if has_left(p, now)]
            new = [pod for pod in now.pods if is_new(pod, before)]
            for pod in sorted(new, key=lambda one: one.key):
                if wants_room(pod) and not self.replaces(pod, second // self.slot, left):
                    self.come(pod, second, now)

    def replaces(self, pod: Pod, slot: int, left: list[tuple[int, tuple[str, ...]]]) -> bool:
        """Return whether the pod replaces a pod of its workload that left within the window."""
        if self.mutant == "replacements count" or not whose(pod):
            return False
        for one in sorted(left):
            if one[1] == whose(pod) and one[0] > slot - self.many:
                left.remove(one)
                return True
        return False

    def come(self, pod: Pod, second: int, cluster: Cluster) -> None:
        """Record an arrival, unless no node admits the pod or it selects a node by name."""
        packing = Packing(cluster, self.config, clock=second)
        here = pod.node in packing.nodes or packing.might_be_bound(pod)
        named = self.mutant != "pods that select a node by name count" and asks_by_name(pod)
        if here and packing.reach_of(pod) and not virtual(pod, packing) and not named:
            self.came.append(Came(second, pod))

    def pods(self, now: int, whole: Resources) -> list[Pod]:
        """Return the arrivals in the usual window of each reach, by `reserve.percentile`."""
        found: list[Pod] = []
        share = self.config.budgets.reserve.percentile
        share = Fraction(1) if self.mutant == "busiest window" else share
        reaches = [self.packing.reach_of(one.pod) for one in self.came]
        for reach in set(reaches):
            own = [one for one, its in zip(self.came, reaches, strict=True) if its == reach]
            takes = (
                takes_in(self.snapshots, self.config, reach)
                if self.mutant != "no provisioning time"
                else 0
            )
            windows = self.windows(own, now, takes)
            windows.sort(key=lambda one: (weight(one, whole), len(one)))
            if self.mutant != "one burst is usual" and not self.usual(own, now, takes, share):
                continue
            found += next(
                (one for rank, one in enumerate(windows, 1) if rank >= share * len(windows)), []
            )
        return found

    def windows(self, came: list[Came], now: int, takes: int) -> list[list[Pod]]:
        """Return the arrivals in each window that ends with some, in the order of time.

        *takes* is the provisioning time of a new node.
        """
        many = max(self.many, -(-takes // self.slot))
        near = self.near(came, now)
        ends = {one.second // self.slot for one in near}
        if self.mutant == "windows without arrivals count":
            ends = set(range((now - HOUR) // self.slot, now // self.slot + 1))
        return [
            [one.pod for one in near if end - many < one.second // self.slot <= end]
            for end in sorted(ends)
        ]

    def near(self, came: list[Came], now: int) -> list[Came]:
        """Return the arrivals of the last hour."""
        return [one for one in came if (one.second // self.slot + 1) * self.slot > now - HOUR]

    def usual(self, came: list[Came], now: int, takes: int, share: Fraction) -> bool:
        """Return whether pods came more than once, or *share* ranks one burst above none."""
        many = max(self.many, -(-takes // self.slot))
        slots = {one.second // self.slot for one in self.near(came, now)}
        return share * 2 > 1 or any(slot >= min(slots) + many for slot in slots)


def asks_by_name(pod: Pod) -> bool:
    """Return whether the pod selects nodes by name or by hostname label."""
    host = "kubernetes.io/hostname"
    return (
        any(key == host for key, _ in pod.node_constraints.node_selector)
        or any(term.fields for term in pod.node_constraints.affinity or ())
        or any(
            one.key == host for term in pod.node_constraints.affinity or () for one in term.labels
        )
    )


def takes_in(snapshots: Snapshots, config: Config, reach: frozenset[str]) -> int:
    """Return the provisioning time for the reach: the median of the last nine new nodes."""
    packing = Packing(snapshots[-1][1], config, clock=snapshots[-1][0])
    found: list[tuple[int, str, int]] = []
    for number in range(1, len(snapshots)):
        there = {node.name for node in snapshots[number - 1][1].nodes}
        for node in snapshots[number][1].nodes:
            if node.name not in there and not node.virtual:
                found += first_there(snapshots, number, node.name, packing, reach)
    times = [seconds for _, _, seconds in sorted(found)][-9:]
    return sorted(times)[len(times) // 2] if times else 0


def first_there(
    snapshots: Snapshots, number: int, node: str, packing: Packing, reach: frozenset[str]
) -> list[tuple[int, str, int]]:
    """Return when a new node first had pods that had waited for it, and how long they waited.

    Pods of other reaches count for when the node first had pods.
    """
    for at in range(number, len(snapshots)):
        second, now = snapshots[at]
        here = [pod for pod in now.pods if pod.node == node and len(packing.reach_of(pod)) > 1]
        waited = [
            (snapshots[since][0], pod)
            for pod in here
            if (since := waits_since(snapshots, at - 1, pod)) is not None and since < number
        ]
        if waited:
            own = [first for first, pod in waited if packing.reach_of(pod) == reach]
            return [(second, node, min(second - min(own), 900))] if own else []
    return []


def waits_since(snapshots: Snapshots, at: int, pod: Pod) -> int | None:
    """Return the first of the reconciliations up to *at* that all saw the pod unschedulable."""
    first = None
    while at >= 0 and any(
        (one.key, one.uid) == (pod.key, pod.uid) and no_room(one) for one in snapshots[at][1].pods
    ):
        first, at = at, at - 1
    return first


def no_room(pod: Pod) -> bool:
    """Return whether the pod is unschedulable and Ebb can evaluate its constraints."""
    return pod.node is None and pod.unschedulable and known(pod) and wants_room(pod)


def machines(cluster: Cluster) -> Resources:
    """Return the total capacity of all nodes except virtual nodes."""
    return Resources.total(one.allocatable for one in cluster.nodes if not one.virtual)


def weight(pods: list[Pod], whole: Resources) -> int:
    """Return the share of the total that the pods request."""
    return sum(dominant(pod.requests, whole) for pod in pods)


def has_left(pod: Pod, now: Cluster) -> bool:
    """Return whether the pod no longer exists or has started terminating."""
    there = [one for one in now.pods if (one.key, one.uid) == (pod.key, pod.uid)]
    return bool(whose(pod)) and not pod.terminating and not any(not p.terminating for p in there)


def is_new(pod: Pod, before: Cluster) -> bool:
    """Return whether the pod was not in the previous reconciliation."""
    return all((one.key, one.uid) != (pod.key, pod.uid) for one in before.pods)


def wants_room(pod: Pod) -> bool:
    """Return whether the pod counts for the reserve: Ebb can evaluate it, and it needs a node.

    Unbound claims do not matter, as they are bound when the pod is scheduled.
    """
    asks = replace(pod, unsupported=tuple(f for f in pod.unsupported if f != UNBOUND))
    return known(asks) and not (pod.daemon or pod.mirror or pod.priority < -10 or pod.terminating)


def whose(pod: Pod) -> tuple[str, ...]:
    """Return the key of the workload whose pods replace each other, or an empty tuple."""
    if pod.owner_kind == "Job":
        asked = replace(pod.node_constraints, volumes=())
        return pod.namespace, pod.owner_kind, str(pod.requests), str(asked)
    if pod.owner_kind not in ("ReplicaSet", "ReplicationController", "StatefulSet"):
        return ()
    hash_ = pod.labels.get("pod-template-hash", "")
    name = pod.owner_name
    if hash_ and name.endswith(f"-{hash_}"):
        name = name[: -len(hash_) - 1]
    return pod.namespace, pod.owner_kind, name


def protected(snapshots: Snapshots, config: Config, mutant: str = "") -> set[str]:
    """Return the protected empty nodes: needed now, or needed again a short time ago."""
    if config.budgets.reserve.window_seconds is None:
        return set()
    back: dict[str, tuple[int, int]] = {}
    """How often a node was needed after its scale-down was allowed, and when last."""
    empties: list[Node] = []
    found: set[str] = set()
    for many, (now, cluster) in enumerate(snapshots, 1):
        empties = in_order(Packing(cluster, config, clock=now), mutant)
        mine = {n.name for n in empties if is_marked(n) and PROTECTION not in n.annotations}
        if many < len(snapshots) and not mine and not back:
            continue
        new = observed_briefly(snapshots[:many], config)
        found = needed(snapshots[:many], config, mutant)
        if new:
            found |= {n.name for n in empties if mutant == "a new leader keeps all" or is_ours(n)}
        for name in () if new else found:
            times, last = back.get(name, (0, now))
            times = 0 if last + HOUR <= now else times
            times += name in mine and not (times and now < until(times, last, config, mutant))
            if times:
                back[name] = times, now
    marked = {node.name for node in empties if is_marked(node)}
    late = {name for name, (times, at) in back.items() if now < until(times, at, config, mutant)}
    return found | (late & marked)


def is_ours(node: Node) -> bool:
    """Return whether Ebb protects the node now."""
    words = node.annotations.get(PROTECTION, "").split()
    karpenters = words[1:] == ["karpenter.sh/do-not-disrupt"]
    key = words[1] if karpenters else "cluster-autoscaler.kubernetes.io/scale-down-disabled"
    return bool(words) and node.annotations.get(key) == "true"


def until(times: int, last: int, config: Config, mutant: str) -> int:
    """Return until when a node is protected that was last needed at *last*."""
    if mutant == "released at once":
        return last
    seconds = length_of(config)
    for _ in range(1, 1 if mutant == "no doubling" else times):
        seconds *= 2
    return last + min(seconds, HOUR)


def length_of(config: Config) -> int:
    """Return the length of a window, in seconds; 0 if no pods are expected."""
    return config.budgets.reserve.window_seconds or 0


def observed_briefly(snapshots: Snapshots, config: Config) -> bool:
    """Return whether the leader has observed for too short a time."""
    packing = Packing(snapshots[-1][1], config, clock=snapshots[-1][0])
    reaches = {packing.reach_of(pod) for _, one in snapshots for pod in one.pods}
    longest = max((takes_in(snapshots, config, one) for one in reaches), default=0)
    return snapshots[-1][0] - snapshots[0][0] < max(length_of(config), longest)


def needed(snapshots: Snapshots, config: Config, mutant: str = "") -> set[str]:
    """Return the empty nodes that expected pods need."""
    now, cluster = snapshots[-1]
    packing = Packing(cluster, config, clock=now)
    empties = in_order(packing, mutant)
    came = Expected(snapshots, config, mutant).pods(now, machines(cluster))
    placed = _packed(packing, now, empties, came, mutant)
    return {node.name for _, node in placed} & {one.name for one in empties}


def lacking(snapshots: Snapshots, config: Config, mutant: str = "") -> set[frozenset[str]]:
    """Return the reaches for which Ebb publishes buffers: over a quarter of the pods lack room."""
    if config.mode.value == "observe":
        return set()
    now, cluster = snapshots[-1]
    packing = Packing(cluster, config, clock=now)
    came = Expected(snapshots, config).pods(now, machines(cluster))
    reaches = [packing.reach_of(pod) for pod in came]
    empties = in_order(packing, "")
    there = {one.name: one for one in empties} | on_their_way(packing, now, mutant)
    free = [
        name
        for name, one in there.items()
        if turn(one, packing) == NOBODYS and not holds_pods(one, cluster, now)
    ]
    if mutant == "unprotected nodes have room":
        free = []
    found = _packed(packing, now, empties, came, mutant)
    placed = {pod.name for pod, node in found if node.name not in free}
    asked, without = Counter[frozenset[str]](), Counter[frozenset[str]]()
    for number, (pod, reach) in enumerate(zip(came, reaches, strict=True)):
        share = max(dominant(pod.requests, machines(cluster)), 1)
        asked[reach] += share
        without[reach] += share if f"came-{number}" not in placed else 0
    parts = 2 if mutant == "half" else 4
    return {reach for reach in asked if parts * without[reach] > asked[reach]}


def in_order(packing: Packing, mutant: str) -> list[Node]:
    """Return the empty nodes in the order in which they are used."""
    cluster, config = packing.cluster, packing.config
    return sorted(
        (one for one in cluster.nodes if is_empty(one, cluster, packing)),
        key=lambda one: (
            0 if mutant == "marks are ignored" else turn(one, packing, mutant),
            price_of(config, one) * (-1 if mutant == "most expensive first" else 1),
            worth(one.allocatable) * (-1 if mutant == "most expensive first" else 1),
            one.name,
        ),
    )


def _packed(
    packing: Packing, now: int, empties: list[Node], came: list[Pod], mutant: str
) -> list[tuple[Pod, Node]]:
    marks = (
        ("PreferNoSchedule", "NoSchedule")
        if mutant == "marked nodes have no room"
        else ("NoSchedule",)
    )
    nodes = packing.cluster.nodes
    no_room = {one.name for one in nodes if one.labels.get(MARK) in marks and one not in empties}
    coming = {} if mutant == "starting nodes have no room" else on_their_way(packing, now, mutant)
    others = [one for one in packing.first_fit if one not in empties and one.name not in coming]
    there = [coming.pop(one.name, one) for one in empties]
    packing.first_fit = others + there + sorted(coming.values(), key=lambda one: one.name)
    expected = [like(pod, f"came-{number}") for number, pod in enumerate(came)]
    expected += packing.buffered()
    names = {name for pod in expected for name, _ in pod.requests.extended}
    packing.devices = sorted({*packing.devices, *names}, reverse=True)
    waiting = [
        pod for pod in packing.movable if pod.node is None or leaving(packing.nodes[pod.node])
    ]
    found: list[tuple[Pod, Node]] = []
    for group in ([] if mutant == "Pending pods are ignored" else waiting, expected):
        packing.pods |= {pod.key: pod for pod in group}
        placed, _ = packing.pack(group, frozenset(no_room))
        packing.at |= {pod.key: one.name for pod, one in placed}
        found += placed
    return found


def on_their_way(packing: Packing, now: int, mutant: str) -> dict[str, Node]:
    """Return starting nodes younger than 15 minutes, as they will be when Ready."""
    oldest = now - (100 * DAY if mutant == "nodes start forever" else 900)
    found = {}
    for node in packing.cluster.nodes:
        left = tuple(one for one in node.taints if not starts(one.key))
        then = replace(node, ready=True, taints=left)
        own = [pod for pod in packing.cluster.pods if pod.node == node.name]
        made = node.created_seconds
        if made is not None and made > oldest and then != node and packing.open(then, own):
            found[node.name] = then
    return found


def held_back(cluster: Cluster, config: Config, now: int, kept: set[str]) -> set[str]:
    """Return the unmarked nodes to protect from scale-down; *kept* is the reserve."""
    packing = Packing(cluster, config, clock=now)
    found = set()
    for node in cluster.nodes:
        scope = config.scale_down_protection.scope.value
        if scope == "all" and "karpenter.sh/nodepool" in node.labels:
            scope = "reserved"
        pools = config.budgets.pools
        selected = [p for p in pools if is_in(p, node)]
        if scope == "marked" or is_marked(node) or (pools and not selected):
            continue
        if may_drift(node, cluster, now):
            continue
        if holds_pods(node, cluster, now):
            fixed = guarded(node) or is_fixed(node, cluster, config)
            holds = scope == "all" and not fixed
        else:
            _, until = (*node.annotations.get(BACKOFF, "").split(), "0", "0")[:2]
            alone = int(until) > now and node.name not in kept
            holds = (
                not is_unremovable(node, cluster, packing)
                and not alone
                and (scope != "reserved" or node.name in kept)
                and not left_on(node, cluster)
            )
        found |= {node.name} if holds else set()
    return found


def turn(node: Node, packing: Packing, mutant: str = "") -> int:
    """Return the rank: unmarked, marked and protected, marked; unmarked unprotected nodes last."""
    cluster, config = packing.cluster, packing.config
    if node.labels.get(MARK) not in ("PreferNoSchedule", "NoSchedule"):
        pools = config.budgets.pools
        of_none = pools and not any(is_in(one, node) for one in pools)
        nobody = (
            of_none
            or config.scale_down_protection.scope.value == "marked"
            or left_on(node, cluster)
            or may_drift(node, cluster, packing.clock)
        )
        return NOBODYS if nobody and mutant != "scale-down protection is ignored" else 0
    return 2 - (PROTECTION in node.annotations)


def may_drift(node: Node, cluster: Cluster, now: int | None) -> bool:
    """Return whether Karpenter has reported the node as drifted for an hour."""
    return now is not None and any(
        claim.node == node.name
        and claim.drifted_seconds is not None
        and claim.drifted_seconds + 3600 <= now
        for claim in cluster.node_claims
    )


def left_on(node: Node, cluster: Cluster) -> list[Pod]:
    """Return the pods on the node except DaemonSet pods and static pods."""
    return [p for p in cluster.pods if p.node == node.name and not (p.daemon or p.mirror)]


def is_empty(node: Node, cluster: Cluster, packing: Packing) -> bool:
    """Return whether an autoscaler may remove the node as empty."""
    own = [pod for pod in cluster.pods if pod.node == node.name]
    if holds_pods(node, cluster, packing.clock or 0) or is_unremovable(node, cluster, packing):
        return False
    return packing.open(node, own)
