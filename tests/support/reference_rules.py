"""Which nodes and pods may go at all, in which order, and how many: written out plainly.

From the documented words on Nodes and Pods; nothing of the product but its values.
"""

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from tests.support.reference_fit import LEAVING, ZONE, passing

if TYPE_CHECKING:
    from core.config.budgets import Budget, Limit, Pool
    from core.config.settings import Config
    from core.engine.leader_state import RateLimits

MARK = "kube-ebb.node-restriction.kubernetes.io/drain"
DETAILS = "kube-ebb.io/drain"
KEEP, KARPENTER_KEEP = "kube-ebb.io/keep", "karpenter.sh/do-not-disrupt"
KARPENTER = "karpenter.sh/nodepool"
GUARD, GUARD_OURS = "cluster-autoscaler.kubernetes.io/scale-down-disabled", "kube-ebb.io/guard"
CONTROL_PLANE = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)
ROUTINE_OWNERS = ("ReplicaSet", "ReplicationController", "Job")
Shares = tuple[Fraction, Fraction]


def leaving(node: Node) -> bool:
    """Say whether somebody takes the node away."""
    return node.deleting or any(taint.key in LEAVING for taint in node.taints)


def is_open(node: Node, pods: Sequence[Pod]) -> bool:
    """Say whether the node takes pods, given those on it."""
    known = not node.unreadable and not any(pod.unreadable for pod in pods)
    standing = not node.virtual and not leaving(node)
    return standing and takes_now(node) and not node.unschedulable and known


def takes_now(node: Node) -> bool:
    """Say whether it is Ready, and no taint that comes and goes keeps pods with requests away."""
    away = (one.key for one in node.taints if one.effect in ("NoSchedule", "NoExecute"))
    return node.ready and not any(
        passing(key) and key != "node.kubernetes.io/memory-pressure" and "unsched" not in key
        for key in away
    )


def untainted(node: Node, taint_key: str) -> bool:
    """Say whether the node is for all pods: no taint is on it but ours, or one that passes."""
    return all(taint.key == taint_key or passing(taint.key) for taint in node.taints)


def guarded(node: Node) -> bool:
    """Say whether the node's own words or its state keep it."""
    annotations = node.annotations
    said = annotations.get(GUARD_OURS)
    at = KARPENTER_KEEP if said and said.split(" ", 1)[1:] == [KARPENTER_KEEP] else GUARD
    ours = at if said is not None and annotations.get(at) == "true" else None
    any_word = {GUARD} | ({KARPENTER_KEEP} if KARPENTER in node.labels else set())
    return (
        node.virtual
        or leaving(node)
        or bool(node.unreadable)
        or node.unschedulable
        or not takes_now(node)
        or annotations.get(KEEP) == "true"
        or (annotations.get(KARPENTER_KEEP) == "true" and ours != KARPENTER_KEEP)
        or any(key in annotations and ours != key for key in any_word)
        or any(label in node.labels for label in CONTROL_PLANE)
        or any(taint.key in CONTROL_PLANE for taint in node.taints)
    )


def holds_pods(node: Node, cluster: Cluster, now: int = 0) -> bool:
    """Say whether an autoscaler would have to move anything off the node."""
    pods = [pod for pod in cluster.pods if pod.node == node.name]
    moved = [pod for pod in pods if not (pod.daemon or pod.mirror or pod.priority < -10)]
    if "karpenter.sh/nodepool" in node.labels:
        asks = ("karpenter.sh/do-not-disrupt", "true")
        moved = [
            pod
            for pod in pods
            if asks in pod.ties.notes or not (pod.owner_kind == "DaemonSet" or pod.mirror)
        ]
    return any((pod.ties.overdue_seconds or now) >= now for pod in moved)


def is_shut(node: Node, pace: "RateLimits | None") -> bool:
    """Say whether it carries a hard mark that could not be taken away."""
    refused = pace is not None and node.name in pace.failed_writes
    return refused and node.labels.get(MARK) == "hard"


def is_marked(node: Node) -> bool:
    """Say whether the node carries a mark."""
    return node.labels.get(MARK) in ("soft", "hard")


def mark_rank(node: Node, taint_key: str) -> tuple[int, int, str]:
    """Return what marked nodes are ordered by: second, place in the plan, name."""
    try:
        details = json.loads(node.annotations[DETAILS])
        return details["since"], details["order"], node.name
    except (KeyError, ValueError):
        values = [t.value for t in node.taints if t.key == taint_key and t.value.isdecimal()]
        return int(values[0]) if values else 0, 0, node.name


def is_sticky(pod: Pod) -> bool:
    """Say whether the pod rarely leaves by itself, as far as is known without a clock."""
    notes = dict(pod.ties.notes)
    evict = notes.get("cluster-autoscaler.kubernetes.io/safe-to-evict")
    if pod.stays_with_node or pod.priority < -10 or pod.terminating or evict == "on-completion":
        return False
    safe = notes.get("cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes", "").split(",")
    return (
        notes.get("karpenter.sh/do-not-disrupt") == "true"
        or evict == "false"
        or pod.owner_kind not in ROUTINE_OWNERS
        or pod.namespace == "kube-system"
        or pod.priority >= 2_000_000_000
        or not set(pod.ties.local_volumes) <= set(safe)
    )


def price_of(config: "Config", node: Node) -> Fraction:
    """Return the price of the first entry whose labels the node carries."""
    for entry in config.prices:
        if set(entry.node_selector) <= set(node.labels.items()):
            return entry.price
    return Fraction(0)


def pool_of(config: "Config", node: Node) -> "Pool | None":
    """Return the first pool whose labels the node carries."""
    for pool in config.budgets.pools:
        if set(pool.node_selector) <= set(node.labels.items()):
            return pool
    return None


def limit_of(limit: "Limit", nodes: int) -> int:
    """Return how many of so many nodes: a share is rounded down, but to one at least."""
    if limit.share is None:
        return limit.number or 0
    return max(1, int(nodes * limit.share))


def limits(config: "Config", *, marked: bool) -> Shares:
    """Return the thresholds of the configuration; those to leave are five points higher."""
    enter, leave = config.thresholds, config.release_thresholds
    if not marked:
        return enter.cpu, enter.memory
    if leave is not None:
        return leave.cpu, leave.memory
    return loosened((enter.cpu, enter.memory))


def loosened(enter: Shares) -> Shares:
    """Return five points more, up to all."""
    more, most = Fraction(5, 100), Fraction(1)
    return min(enter[0] + more, most), min(enter[1] + more, most)


def limits_at(config: "Config", node: Node, *, marked: bool) -> Shares:
    """Return the thresholds of the node's pool where it has its own, else the configuration's."""
    pool = pool_of(config, node)
    if pool is None:
        return limits(config, marked=marked)
    own = pool.thresholds
    enter = (own.cpu, own.memory) if own else limits(config, marked=False)
    if not marked:
        return enter
    if pool.release_thresholds is None:
        return loosened(enter) if own else limits(config, marked=True)
    leave = pool.release_thresholds
    return max(leave.cpu, enter[0]), max(leave.memory, enter[1])


Reaches = Mapping[frozenset[str], tuple[str, frozenset[str]]]
"""Sets of nodes, by name, each with the reach's key and what it would be without places' names."""


class Counts:
    """How many nodes the brakes still let go, as nodes go one after the other."""

    def __init__(
        self,
        cluster: Cluster,
        config: "Config",
        pace: "RateLimits | None",
        found: Reaches,
        mutant: str = "",
    ) -> None:
        """Take all reaches of the cluster."""
        self.plain = {
            n.name
            for n in cluster.nodes
            if mutant == "taints are no matter" or untainted(n, config.taint_key)
        }
        self.takes_pods = {
            n.name
            for n in cluster.nodes
            if mutant == "closed nodes count"
            or (is_open(n, [p for p in cluster.pods if p.node == n.name]) and not is_shut(n, pace))
        }
        self.config, self.pace, self.mutant = config, pace, mutant
        self.reaches = {members: key for members, (key, _) in found.items()}
        self.wide = {members: wide for members, (_, wide) in found.items()}
        self.reached = frozenset().union(*found)
        self.all = [n for n in cluster.nodes if not n.virtual and not leaving(n)]
        self.gone: list[Node] = []

    def pool_name(self, node: Node) -> str:
        """Return the name of the node's pool; empty: it is in none."""
        pool = pool_of(self.config, node)
        return pool.name if pool else ""

    def scopes(self, node: Node) -> list[tuple[str, "Budget", list[Node]]]:
        """Return the cluster and the node's pool: its name, its budget, its nodes.

        Of a reached node only reached nodes count.
        """
        among = [n for n in self.all if node.name not in self.reached or n.name in self.reached]
        found = [("", self.config.budgets.cluster, among)]
        pool = pool_of(self.config, node)
        if pool is not None:
            mine = [n for n in among if self.pool_name(n) == pool.name]
            found.append((pool.name, pool.budget, mine))
        return found

    def hold(self, node: Node) -> bool:
        """Say whether the node must stay."""
        scopes = self.scopes(node)
        if self.config.budgets.pools and not self.pool_name(node):
            return True
        for _, budget, members in scopes:
            enough = [n for n in members if is_marked(node) or n.name in self.takes_pods]
            if len([n for n in enough if n not in self.gone]) - 1 < budget.min_nodes:
                return True
            left = [n for n in enough if n.name in self.plain and n not in self.gone]
            if node in left and len(left) - 1 < budget.min_untainted_nodes:
                return True
        if is_marked(node):
            return False
        if self.config.budgets.balance_zones and self.unbalances(node):
            return True
        return self.pace is not None and self.too_fast(node, scopes, self.pace)

    def unbalances(self, node: Node) -> bool:
        """Say whether the node's zone would fall behind in the narrowest reach with zones.

        Each is as wide as if nobody named nodes or zones, among the nodes of all with zones. Where
        it counts are nodes that take pods; a zone is one by any node.
        """
        mine = node.labels.get(ZONE)
        alike = [
            n for n in self.all if n.labels.get(ZONE) and self.pool_name(n) == self.pool_name(node)
        ]
        spanning = [
            members
            for members in self.reaches
            if len({n.labels[ZONE] for n in alike if n.name in members}) > 1
        ]
        own = [members for members in spanning if node.name in members]
        if not mine or not own:
            return False
        decides = min(own, key=lambda one: (len(self.wide[one]), self.reaches[one]))
        among = spanning if self.mutant != "zones of nobody count" else [self.wide[decides]]
        there = self.wide[decides] & frozenset().union(*among) & self.takes_pods
        left = [n.labels[ZONE] for n in alike if n.name in there and n not in self.gone]
        most = max((left.count(zone) for zone in left if zone != mine), default=0)
        return left.count(mine) - 1 < most - 1

    def too_fast(
        self, node: Node, scopes: list[tuple[str, "Budget", list[Node]]], pace: "RateLimits"
    ) -> bool:
        """Say whether it must wait for its turn."""
        if pace.cooling_until or pace.pending_until:
            return True
        if node.name in pace.backing_off or node.name in pace.failed_writes:
            return True
        for name, budget, members in scopes:
            new = len([n for n in self.gone if n in members and not is_marked(n)])
            marked = len([n for n in members if is_marked(n)]) + new
            window = pace.in_window.get(name, 0) + new
            if budget.max_marked and marked >= limit_of(budget.max_marked, len(members)):
                return True
            if budget.max_in_window and window >= limit_of(budget.max_in_window, len(members)):
                return True
        return False
