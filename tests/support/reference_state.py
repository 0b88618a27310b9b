"""State of the reference plan: current placement of pods, reaches, and totals.

Nothing is cached; every function evaluates all objects.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from core.config.settings import Config, UsabilityMode
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from tests.support.reference_fit import (
    has_room,
    reaches,
    volumes_reach,
    volumes_zoned,
    without_places,
)
from tests.support.reference_rules import (
    Counts,
    Shares,
    device_limit_at,
    is_open,
    is_shut,
    leaving,
    limits,
    limits_at,
)
from tests.support.reference_sums import (
    NONE,
    Pair,
    Sums,
    Useful,
    derived,
    given,
    held,
    minus,
    offered,
    plus,
    usable_of,
)

if TYPE_CHECKING:
    from core.engine.leader_state import RateLimits

REACHES_MAX = 256
Moves = list[tuple[str, str]]
Members = frozenset[str]
"""The node names of a reach."""


def is_ignored(pod: Pod) -> bool:
    """Return whether no autoscaler adds a node for the pod: it is Pending and expendable."""
    return pod.node is None and pod.priority < -10


def plain_key(members: Members) -> str:
    """Return a key for a set of nodes, independent of the product."""
    return " ".join(sorted(members))


def made_anew(cluster: Cluster) -> Cluster:
    """Return the cluster with owned pods of missing nodes as Pending, and without bare ones."""
    names = {node.name for node in cluster.nodes}
    pods = []
    for pod in cluster.pods:
        if pod.node is None or pod.node in names:
            pods.append(pod)
        elif pod.owner_kind and not (pod.terminating or pod.stays_with_node):
            pods.append(replace(pod, node=None))
    return replace(cluster, pods=tuple(pods))


def least_needs(pod: Pod) -> Pod:
    """Return a Pending pod without those volumes of which only the number is known."""
    if pod.node is not None or not any(disk.driver == "" for disk in pod.pod_constraints.disks):
        return pod
    disks = tuple(disk for disk in pod.pod_constraints.disks if disk.driver)
    return replace(pod, pod_constraints=replace(pod.pod_constraints, disks=disks))


class State:
    """The current state; *key* returns the key of a reach in the product."""

    def __init__(
        self,
        cluster: Cluster,
        config: Config,
        mutant: str = "",
        rate_limits: "RateLimits | None" = None,
        *,
        due: frozenset[str] | None = None,
        key: Callable[[Members], str] = plain_key,
        clock: int | None = None,
    ) -> None:
        """Compute reaches and counts of the initial cluster."""
        self.clock = clock
        if mutant != "pods end with their node":
            cluster = made_anew(cluster)
        cluster = replace(cluster, pods=tuple(map(least_needs, cluster.pods)))
        self.cluster, self.config, self.mutant = cluster, config, mutant
        self.rate_limits, self.due, self.key = rate_limits, due, key
        self.nodes = {node.name: node for node in cluster.nodes}
        self.pods = {pod.key: pod for pod in cluster.pods}
        self.at = {p.key: p.node for p in cluster.pods if p.node and p.node in self.nodes}
        """Current node of each bound pod, by key."""
        self.gone: list[str] = []
        self.spare: list[Pod] = []
        movable = [pod for pod in cluster.pods if self.might_move(pod)]
        self.reach = {pod.key: self.reach_of(pod) for pod in movable}
        self.all_reaches = self.distinct_reaches(movable)
        self.movable = [
            p for p in movable if self.reach[p.key] in (*self.all_reaches, frozenset())
        ]
        self.moves = {pod.key for pod in self.movable}
        self.devices_by_reach: dict[Members, set[str]] = {}
        for pod in self.movable:
            names = {n for n, _ in pod.requests.extended if "hugepages" not in n}
            if names and len(self.reach[pod.key]) > 1:
                self.devices_by_reach.setdefault(self.reach[pod.key], set()).update(names)
        self.reached: Members = frozenset().union(*self.all_reaches)
        named = {one: (key(one), self.wide(one)) for one in self.all_reaches}
        if mutant == "all nodes count":
            named = {frozenset(self.nodes): ("", frozenset(self.nodes))}
        self.counts = Counts(cluster, config, rate_limits, named, mutant)
        self.useful = {members: self.usability(members) for members in self.all_reaches}
        self.useful_whole = self.usability(None)

    # Pods and reaches.

    def might_move(self, pod: Pod) -> bool:
        """Return whether the engine can place the pod: it is Pending, or not on a virtual node."""
        known = not (pod.unsupported or pod.too_much or pod.unreadable)
        if (
            pod.node is None
            and self.mutant != "Pending pods with unknown constraints need no room"
        ):
            known = not (pod.too_much or pod.unreadable)
        if is_ignored(pod):
            return False
        if self.is_promised(pod) or self.is_overdue(pod):
            return False
        if pod.node is None:
            counts = self.mutant == "pods that cannot be bound count" or self.might_be_bound(pod)
            return known and not pod.stays_with_node and counts
        node = self.nodes.get(pod.node)
        if node is None or (node.virtual and self.mutant != "virtual nodes count as nodes"):
            return False
        return known and not pod.stays_with_node

    def was_movable(self, pod: Pod) -> bool:
        """Return whether the pod could have been moved before it was overdue."""
        node = self.nodes.get(pod.node or "")
        known = not (pod.unsupported or pod.too_much or pod.unreadable)
        return self.is_overdue(pod) and known and node is not None and not node.virtual

    def is_promised(self, pod: Pod) -> bool:
        """Return whether the pod is Pending with a node that kube-scheduler has nominated."""
        return bool(pod.node and pod.nominated_node)

    def is_overdue(self, pod: Pod) -> bool:
        """Return whether the pod should have terminated; a StatefulSet replaces it only then."""
        due = pod.disruption_facts.overdue_seconds
        late = due is not None and self.clock is not None and due < self.clock
        return (
            pod.node is not None
            and late
            and pod.owner_kind != "StatefulSet"
            and self.mutant != "overdue pods move"
        )

    def leaves_with_node(self, pod: Pod) -> bool:
        """Return whether the pod ends with its node and needs no other node."""
        return pod.stays_with_node or self.is_overdue(pod)

    def residents(self, pods: list[Pod]) -> list[Pod]:
        """Return the pods that end with their node."""
        return [pod for pod in pods if self.leaves_with_node(pod)]

    def might_be_bound(self, pod: Pod) -> bool:
        """Return whether an empty node could hold the pod, or an equal pod is bound."""
        return any(
            (other.requests, other.node_constraints) == (pod.requests, pod.node_constraints)
            for other in self.cluster.pods
            if other.node and (self.might_move(other) or self.was_movable(other))
        ) or any(self.could_hold(node, pod) for node in self.cluster.nodes)

    def could_hold(self, node: Node, pod: Pod) -> bool:
        """Return whether the node, when Ready, has room for it beside its DaemonSet pods."""
        own = [p for p in self.cluster.pods if p.node == node.name and p.stays_with_node]
        room = node.allocatable - Resources.total(other.requests for other in own)
        return (
            not (node.virtual or node.unreadable or leaving(node))
            and reaches(node, pod.node_constraints, TAINT_KEY)
            and volumes_reach(node, pod.node_constraints)
            and volumes_zoned(node, pod.node_constraints)
            and has_room(pod.requests, room)
        )

    def reach_of(self, pod: Pod) -> Members:
        """Return the nodes that the node constraints of the pod admit, without virtual nodes."""
        return frozenset(
            node.name
            for node in self.cluster.nodes
            if (not node.virtual or self.mutant == "virtual nodes count as nodes")
            and reaches(node, pod.node_constraints, TAINT_KEY, self.mutant)
        )

    def wide(self, members: Members) -> Members:
        """Return the reach that its pods would have without names of nodes and zones."""
        asking = [pod for pod in self.movable if self.reach[pod.key] == members]
        found = [
            self.reach_of(
                replace(pod, node_constraints=without_places(pod.node_constraints, self.mutant))
            )
            for pod in asking
        ]
        return min(found, key=lambda one: (len(one), sorted(one)))

    def distinct_reaches(self, pods: list[Pod]) -> list[Members]:
        """Return the reaches; beyond the limit, the most common of each namespace come first."""
        counts: dict[str, dict[Members, int]] = {}
        for pod in pods:
            if members := self.reach[pod.key]:
                mine = counts.setdefault(pod.namespace, {})
                mine[members] = mine.get(members, 0) + 1
        ranks: dict[Members, list[int]] = {}
        for mine in counts.values():
            ordered = sorted(mine, key=lambda one: (-mine[one], self.key(one)))
            for rank, members in enumerate(ordered):
                ranks.setdefault(members, []).append(rank)

        def order(members: Members) -> tuple[int, int, str]:
            total = sum(mine.get(members, 0) for mine in counts.values())
            return min(ranks[members]), -total, self.key(members)

        alone = [members for members in ranks if len(members) == 1]
        return alone + sorted(set(ranks) - set(alone), key=order)[:REACHES_MAX]

    def usability(self, members: Members | None) -> Useful | None:
        """Return the usability numbers of a reach; None is the whole cluster."""
        if self.config.usable_capacity is UsabilityMode.ALL:
            return None
        if self.config.usable_capacity is not UsabilityMode.AUTO:
            return given(self.config.usable_capacity)
        everyone = members is None or self.mutant == "one usability"
        pods = [pod for pod in self.movable if everyone or self.reach[pod.key] == members]
        nodes = members or frozenset()
        beside = [pod for pod in self.movable if everyone or self.reach[pod.key] & nodes]
        return derived(pods, beside, smallest=self.mutant == "the one smallest pod")

    def standing(self) -> dict[str, list[Pod]]:
        """Return the current pods by node, with placeholders."""
        found: dict[str, list[Pod]] = {name: [] for name in self.nodes}
        for key, name in self.at.items():
            found[name].append(self.pods[key])
        return found

    def open(self, node: Node, pods: list[Pod]) -> bool:
        """Return whether the node is schedulable, given the pods on it."""
        if node.name in self.gone:
            return False
        if self.mutant == "virtual nodes count as nodes" and node.virtual:
            return True
        return is_open(node, pods) and not is_shut(node, self.rate_limits)

    # Totals.

    def sums(self, members: Members, useful: Useful | None) -> Sums:
        """Return the totals of the nodes; placeholders are no load."""
        nodes, capacity, requests, usable = 0, NONE, NONE, NONE
        load = self.mutant == "headroom is load"
        standing = self.standing()
        for node in self.cluster.nodes:
            if node.name not in members or node.name in self.gone:
                continue
            pods = [pod for pod in standing[node.name] if not is_spare(pod) or load]
            if self.open(node, pods) or self.mutant == "unschedulable nodes have capacity":
                used = held(node, pods)
                nodes += 1
                capacity = plus(capacity, offered(node))
                usable = plus(usable, usable_of(offered(node), used, useful))
            elif self.mutant == "unschedulable nodes have no requests":
                used = NONE
            else:
                used = minus(held(node, pods), held(node, self.residents(pods)))
            requests = plus(requests, used)
        return Sums(nodes, capacity, requests, usable)

    def whole(self) -> Sums:
        """Return the totals of all nodes in reaches."""
        everywhere = self.mutant == "the cluster total includes unreachable nodes"
        members = frozenset(self.nodes) if everywhere else self.reached
        return self.sums(members, self.useful_whole)

    def reserve(self, members: Members | None, *, marked: bool) -> Pair:
        """Return the excess of the peak over current requests; for marked nodes it is 0."""
        if marked and self.mutant != "the peak removes marks":
            return NONE
        if self.rate_limits is None or self.mutant == "no peak":
            return NONE
        found = self.rate_limits.peak_excess.get(
            "" if members is None else self.key(members), NONE
        )
        return found[0], found[1]

    def device_sums(self) -> dict[tuple[Members, str], tuple[int, int]]:
        """Return requested and offered units of each device that the pods of a reach request."""
        found: dict[tuple[Members, str], tuple[int, int]] = {}
        if not self.devices_by_reach:
            return found
        standing = self.standing()
        for members, names in self.devices_by_reach.items():
            for name in names:
                requested = offered_units = 0
                for node in self.cluster.nodes:
                    if node.name not in members or node.name in self.gone:
                        continue
                    there = dict(node.allocatable.extended).get(name, 0)
                    pods = [pod for pod in standing[node.name] if not is_spare(pod)]
                    requested += min(units(pods, name), there)
                    if self.open(node, pods):
                        offered_units += there
                    else:
                        requested -= min(units(self.residents(pods), name), there)
                found[members, name] = requested, offered_units
        return found

    def device_threshold(self, members: Members, *, marked: bool) -> Fraction:
        """Return the smallest threshold for devices that any node of the reach has."""
        nodes = [self.nodes[name] for name in members]
        return min(device_limit_at(self.config, node, marked=marked) for node in nodes)

    def thresholds(self, members: Members, *, marked: bool) -> Shares:
        """Return the lowest thresholds of the nodes in the reach."""
        each = [limits_at(self.config, self.nodes[name], marked=marked) for name in members]
        if self.mutant == "no thresholds of pools":
            each = [limits(self.config, marked=marked)]
        return min(cpu for cpu, _ in each), min(memory for _, memory in each)


def units(pods: list[Pod], name: str) -> int:
    """Return the DaemonSet pods and static pods."""
    return sum(dict(pod.requests.extended).get(name, 0) for pod in pods)


def is_spare(pod: Pod) -> bool:
    """Return whether the pod is a placeholder."""
    return not pod.namespace
