"""Reference implementation of packing: first-fit decreasing, Pending pods, and headroom.

The order of pods and nodes is part of the specification, so that plans are reproducible.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from core.config.settings import Config
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from tests.support.reference_beside import Beside
from tests.support.reference_buffers import wanted
from tests.support.reference_fit import admits, has_room
from tests.support.reference_rules import guarded, holds_pods, is_marked, keeps, leaving
from tests.support.reference_scalable import is_fixed
from tests.support.reference_state import Members, State, is_ignored, is_spare, plain_key
from tests.support.reference_sums import dominant

if TYPE_CHECKING:
    from core.engine.leader_state import RateLimits

Moves = list[tuple[str, str]]
"""Pods, by namespace/name, and their target nodes."""


class Packing(State):
    """The orders of pods and nodes, and the placements before any removal."""

    def __init__(
        self,
        cluster: Cluster,
        config: Config,
        mutant: str = "",
        rate_limits: "RateLimits | None" = None,
        *,
        key: Callable[[Members], str] = plain_key,
        clock: int | None = None,
    ) -> None:
        """Order the nodes before any pod is moved."""
        super().__init__(cluster, config, mutant, rate_limits, key=key, clock=clock)
        everywhere = mutant == "shares of all nodes"
        self.shared = Resources.total(
            n.allocatable for n in cluster.nodes if everywhere or n.name in self.reached
        )
        """Capacity that the shares of pods refer to."""
        names = {name for pod in cluster.pods for name, _ in pod.requests.extended}
        self.devices = sorted(names, reverse=True)
        self.start = self.standing()
        self.first_fit = sorted(cluster.nodes, key=self.fullest_first)
        self.kept_free: frozenset[str] = frozenset()
        self.idle = {
            n.name
            for n in cluster.nodes
            if mutant != "headroom on empty nodes"
            and not holds_pods(n, cluster, clock or 0)
            and not is_unremovable(n, cluster, self)
        }

    def fullest_first(self, node: Node) -> tuple[int, str]:
        """Return the sort key of a node for packing, by its initial pods."""
        used = Resources.total(pod.requests for pod in self.start[node.name])
        return -dominant(used, node.allocatable), node.name

    def largest_first(self, pod: Pod) -> tuple[object, ...]:
        """Return the sort key of a pod: share of reached capacity, requests, template, name."""
        share = dominant(pod.requests, self.shared)
        sign = 1 if self.mutant == "smallest first" else -1
        amounts = [-amount for amount in self.amounts(pod)]
        return sign * share, amounts, repr(pod.node_constraints), pod.namespace, pod.name

    def amounts(self, pod: Pod) -> list[int]:
        """Return the requests by weight: devices in descending order of names, then the others."""
        one, devices = pod.requests, dict(pod.requests.extended)
        found = [devices.get(name, 0) for name in self.devices]
        return [*found, one.ephemeral_bytes, one.pods, one.memory_bytes, one.cpu_millis]

    def pack(
        self, pods: Iterable[Pod], barred: Members = frozenset()
    ) -> tuple[list[tuple[Pod, Node]], bool]:
        """Return placements by first-fit decreasing, and whether all pods are placed."""
        ordered = sorted(pods, key=self.largest_first)
        ends_when = {pod.key for pod in ordered}
        there = self.standing()
        takes = [n for n in self.first_fit if self.open(n, there[n.name]) and n.name not in barred]
        free = {
            n.name: n.allocatable - Resources.total(pod.requests for pod in there[n.name])
            for n in takes
        }
        standing = [
            (self.pods[key], self.nodes[name])
            for key, name in self.at.items()
            if key not in ends_when
        ]
        placed: list[tuple[Pod, Node]] = []
        left, before, sweeps = ordered, len(ordered) + 1, 0
        while len(left) < before and sweeps < 16:
            before, sweeps = len(left), sweeps + 1
            for pod in left:
                for node in takes:
                    if (
                        admits(node, pod.node_constraints, TAINT_KEY, self.mutant)
                        and has_room(pod.requests, free[node.name], self.mutant)
                        and not (pod.key in self.kept_free and node.name in self.idle)
                        and self.beside(pod, node, standing)
                    ):
                        free[node.name] -= pod.requests
                        placed.append((pod, node))
                        standing.append((pod, node))
                        break
            found = {pod.key for pod, _ in placed}
            left = [pod for pod in left if pod.key not in found]
            if self.mutant == "pods are tried once":
                break
        return placed, len(placed) == len(ordered)

    def beside(self, pod: Pod, node: Node, standing: list[tuple[Pod, Node]]) -> bool:
        """Return whether the inter-pod rules admit the pod."""
        return Beside(pod, node, standing, self.cluster, TAINT_KEY, self.mutant).fits()

    def settle(self) -> Moves:
        """Place unschedulable and other Pending pods, displaced pods, buffers, then headroom."""
        pending = [pod for pod in self.movable if pod.node is None]
        refused = [pod for pod in pending if pod.unschedulable]
        others = [pod for pod in pending if not pod.unschedulable]
        displaced = [p for p in self.movable if p.node and leaving(self.nodes[p.node])]
        headroom, buffered = self.headroom(), self.buffered()
        self.spare = [*headroom, *buffered]
        self.pods |= {pod.key: pod for pod in self.spare}
        self.kept_free, settled = frozenset(pod.key for pod in headroom), []
        for group in (refused, [*others, *displaced], buffered, headroom):
            placed, _ = self.pack(group)
            self.at |= {pod.key: node.name for pod, node in placed}
            settled += [(p.key, node.name) for p, node in placed if not is_spare(p)]
        return settled

    def remove(self, node: Node) -> Moves | None:
        """Remove the node and return the placements of its pods, or return None.

        A marked node is tried again without the headroom, which is then placed again.
        """
        moves = self.try_remove(node)
        if moves is not None or not is_marked(node) or self.mutant == "headroom removes marks":
            return moves
        before = self.at
        self.at = {key: name for key, name in before.items() if key not in self.kept_free}
        moves = self.try_remove(node)
        if moves is None:
            self.at = before
        elif self.mutant != "headroom is not placed again":
            placed, _ = self.pack(self.pods[key] for key in self.kept_free if key in before)
            self.at |= {pod.key: to.name for pod, to in placed}
        return moves

    def try_remove(self, node: Node) -> Moves | None:
        """Remove the node if the policy allows it."""
        raise NotImplementedError

    def buffered(self) -> list[Pod]:
        """Return the pods of CapacityBuffers, and add their devices to the order of resources."""
        made = wanted(self.cluster, Fraction(1, 2), self.reach_of, self.mutant)
        names = {name for pod in made for name, _ in pod.requests.extended}
        self.devices = sorted({*self.devices, *names}, reverse=True)
        return made

    def headroom(self) -> list[Pod]:
        """Return placeholders like the largest pod of each reach, with its node constraints."""
        made = []
        for number, members in enumerate(self.all_reaches):
            own = [pod for pod in self.movable if self.reach[pod.key] == members]
            if len(members) > 1:
                largest = max(own, key=self.headroom_rank)
                names = [f"headroom-{number}-{n}" for n in range(self.config.budgets.headroom)]
                asks = largest.requests
                if self.mutant != "headroom asks for devices":
                    asks = replace(asks, extended=())
                made += [like(replace(largest, requests=asks), name) for name in names]
        if self.mutant == "headroom of one reach":
            return made[: self.config.budgets.headroom]
        return made

    def headroom_rank(self, pod: Pod) -> tuple[object, ...]:
        """Return the sort key for the largest pod of a reach: requests, then constraints."""
        one, bare = pod.requests, replace(pod.node_constraints, volumes=())
        amounts = (one.cpu_millis, one.memory_bytes, one.ephemeral_bytes, one.pods, one.extended)
        return amounts, [-ord(letter) for letter in repr(bare)]


def like(pod: Pod, name: str) -> Pod:
    """Return a placeholder with the requests and node constraints of the pod."""
    node_constraints = replace(pod.node_constraints, volumes=())
    return Pod(namespace="", name=name, requests=pod.requests, node_constraints=node_constraints)


def is_unremovable(node: Node, cluster: Cluster, packing: Packing) -> bool:
    """Return whether the node is unremovable because of itself or its pods."""
    odd = [
        pod
        for pod in cluster.pods
        if not (known(pod) and not packing.is_promised(pod))
        and not (packing.leaves_with_node(pod) or is_ignored(pod))
    ]
    beyond = [
        pod
        for pod in odd
        if not (pod.too_much or pod.unreadable or virtual(pod, packing))
        and node.name in packing.reach_of(pod)
    ]
    return (
        any(pod.node == node.name for pod in odd)
        or guarded(node)
        or keeps(node, cluster)
        or is_fixed(node, cluster, packing.config)
        or (node.name not in packing.reached and bool(beyond))
    )


def known(pod: Pod) -> bool:
    """Return whether Ebb can evaluate all constraints of the pod."""
    return not (pod.unsupported or pod.too_much or pod.unreadable)


def virtual(pod: Pod, packing: Packing) -> bool:
    """Return whether the pod runs on a virtual node."""
    at = packing.nodes.get(pod.node or "")
    return at is not None and at.virtual
