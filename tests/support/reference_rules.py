"""Reference implementation of removability, removal order and limits.

It follows the documented labels, annotations and taints, and shares only values with the product.
"""

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from tests.support.reference_fit import LEAVING, ZONE, passing
from tests.support.reference_scalable import group_of

if TYPE_CHECKING:
    from core.config.budgets import Budget, Limit, Pool
    from core.config.settings import Config
    from core.engine.leader_state import RateLimits

MARK = "kube-ebb.node-restriction.kubernetes.io/mark"
DETAILS = "kube-ebb.io/mark"
KEEP, KARPENTER_KEEP = "kube-ebb.io/keep", "karpenter.sh/do-not-disrupt"
KARPENTER = "karpenter.sh/nodepool"
SCALE_DOWN_DISABLED, PROTECTION = (
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "kube-ebb.io/protection",
)
CAST_AI = "autoscaling.cast.ai/removal-disabled"
CONTROL_PLANE = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)
ROUTINE_OWNERS = ("ReplicaSet", "ReplicationController", "Job")
Shares = tuple[Fraction, Fraction]


def leaving(node: Node) -> bool:
    """Return whether the node is being removed."""
    return bool(node.deleting or node.leaving) or any(
        taint.key in LEAVING or taint.key in node.leaving_taints for taint in node.taints
    )


def is_open(node: Node, pods: Sequence[Pod]) -> bool:
    """Return whether the node is schedulable, given the pods on it."""
    known = not node.unreadable and not any(pod.unreadable for pod in pods)
    standing = not node.virtual and not leaving(node)
    return standing and takes_now(node) and not node.unschedulable and known


def takes_now(node: Node) -> bool:
    """Return whether the node is Ready and has no blocking transient taint."""
    away = (one.key for one in node.taints if one.effect in ("NoSchedule", "NoExecute"))
    return (
        node.ready
        and not node.suspended
        and not any(
            passing(key) and key != "node.kubernetes.io/memory-pressure" and "unsched" not in key
            for key in away
        )
    )


def untainted(node: Node, taint_key: str) -> bool:
    """Return whether the node has no taints except Ebb's and transient ones."""
    return all(
        taint.key == taint_key or passing(taint.key) or taint.key in node.leaving_taints
        for taint in node.taints
    )


def guarded(node: Node) -> bool:
    """Return whether annotations or the state of the node make it unremovable."""
    annotations = node.annotations
    said = annotations.get(PROTECTION)
    at = (
        KARPENTER_KEEP
        if said and said.split(" ", 1)[1:] == [KARPENTER_KEEP]
        else SCALE_DOWN_DISABLED
    )
    ours = at if said is not None and annotations.get(at) == "true" else None
    any_word = {SCALE_DOWN_DISABLED} | ({KARPENTER_KEEP} if KARPENTER in node.labels else set())
    return (
        node.virtual
        or leaving(node)
        or bool(node.unreadable)
        or node.unschedulable
        or not takes_now(node)
        or annotations.get(KEEP) == "true"
        or annotations.get(CAST_AI) == "true"
        or node.labels.get(CAST_AI) == "true"
        or (annotations.get(KARPENTER_KEEP) == "true" and ours != KARPENTER_KEEP)
        or any(key in annotations and ours != key for key in any_word)
        or any(label in node.labels for label in CONTROL_PLANE)
        or any(taint.key in CONTROL_PLANE for taint in node.taints)
    )


def keeps(node: Node, cluster: Cluster) -> bool:
    """Return whether a pod on the node, or its Namespace, asks Ebb to leave the node alone."""
    return any(
        pod.node == node.name
        and KEEP in dict(pod.disruption_facts.notes)
        and dict(pod.disruption_facts.notes)[KEEP].startswith("true")
        and not (pod.daemon or pod.mirror or pod.terminating)
        for pod in cluster.pods
    )


def holds_pods(node: Node, cluster: Cluster, now: int) -> bool:
    """Return whether the node has pods that an autoscaler would have to move."""
    pods = [pod for pod in cluster.pods if pod.node == node.name]
    moved = [pod for pod in pods if not (pod.daemon or pod.mirror or pod.priority < -10)]
    karpenters = "karpenter.sh/nodepool" in node.labels
    if karpenters:
        asks = ("karpenter.sh/do-not-disrupt", "true")
        moved = [
            pod
            for pod in pods
            if asks in pod.disruption_facts.notes
            or not (pod.owner_kind == "DaemonSet" or pod.mirror)
        ]
    return any(
        (pod.disruption_facts.overdue_seconds or now) >= now
        or (karpenters and pod.owner_kind == "StatefulSet")
        for pod in moved
    )


def is_shut(node: Node, rate_limits: "RateLimits | None") -> bool:
    """Return whether the node has a NoSchedule mark that could not be removed."""
    refused = rate_limits is not None and node.name in rate_limits.ends.get("mark-refused", {})
    return refused and node.labels.get(MARK) == "NoSchedule"


def is_marked(node: Node) -> bool:
    """Return whether the node is marked."""
    return node.labels.get(MARK) in ("PreferNoSchedule", "NoSchedule")


def mark_rank(node: Node, taint_key: str) -> tuple[int, int, str]:
    """Return the sort key of a marked node: second, order in the plan, name."""
    try:
        details = json.loads(node.annotations[DETAILS])
        return details["since"], details["order"], node.name
    except (KeyError, ValueError):
        values = [t.value for t in node.taints if t.key == taint_key and t.value.isdecimal()]
        return int(values[0]) if values else 0, 0, node.name


def is_sticky(pod: Pod) -> bool:
    """Return whether the pod is long-lived, as far as known without a clock."""
    notes = dict(pod.disruption_facts.notes)
    evict = notes.get("cluster-autoscaler.kubernetes.io/safe-to-evict")
    if pod.stays_with_node or pod.priority < -10 or pod.terminating or evict == "on-completion":
        return False
    safe = notes.get("cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes", "").split(",")
    return (
        notes.get("karpenter.sh/do-not-disrupt") == "true"
        or notes.get(CAST_AI) == "true"
        or evict == "false"
        or pod.owner_kind == "StatefulSet"
        or not (pod.owner_kind in ROUTINE_OWNERS or pod.disruption_facts.completes)
        or pod.namespace == "kube-system"
        or pod.priority >= 2_000_000_000
        or not set(pod.disruption_facts.local_volumes) <= set(safe)
    )


def price_of(config: "Config", node: Node) -> Fraction:
    """Return the price of the first entry that matches the node."""
    for entry in config.prices:
        if set(entry.node_selector) <= set(node.labels.items()):
            return entry.price
    return Fraction(0)


def pool_of(config: "Config", node: Node) -> "Pool | None":
    """Return the first pool that selects the node."""
    return next((pool for pool in config.budgets.pools if is_in(pool, node)), None)


def is_in(pool: "Pool", node: Node) -> bool:
    """Return whether the selector of the pool matches the node."""
    for one in pool.selector.match_expressions:
        value = node.labels.get(one.key)
        met = {
            "In": value in one.values,
            "NotIn": value not in one.values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not met[str(one.operator.value)]:
            return False
    return set(pool.selector.match_labels) <= set(node.labels.items())


def limit_of(limit: "Limit", nodes: int) -> int:
    """Return the limit for a number of nodes; shares are rounded down, to at least 1."""
    if limit.share is None:
        return limit.number or 0
    return max(1, int(nodes * limit.share))


def limits(config: "Config", *, marked: bool) -> Shares:
    """Return the thresholds of the cluster, with the hysteresis for marked nodes."""
    enter = config.thresholds.cpu, config.thresholds.memory
    return loosened(config, enter) if marked else enter


def loosened(config: "Config", enter: Shares) -> Shares:
    """Return the thresholds plus the hysteresis, at most 100%."""
    more, most = config.hysteresis, Fraction(1)
    return min(enter[0] + more, most), min(enter[1] + more, most)


def limits_at(config: "Config", node: Node, *, marked: bool) -> Shares:
    """Return the thresholds of the node's pool, or those of the cluster."""
    pool = pool_of(config, node)
    if pool is None or pool.thresholds is None:
        return limits(config, marked=marked)
    enter = pool.thresholds.cpu, pool.thresholds.memory
    return loosened(config, enter) if marked else enter


def device_limit_at(config: "Config", node: Node, *, marked: bool) -> Fraction:
    """Return the threshold for devices of the node's pool, else the configuration's."""
    pool = pool_of(config, node)
    own = pool.thresholds if pool and pool.thresholds else config.thresholds
    enter = own.cpu if own.devices is None else own.devices
    return min(enter + config.hysteresis, Fraction(1)) if marked else enter


Reaches = Mapping[frozenset[str], tuple[str, frozenset[str]]]
"""Reaches: node names, with the key, and with the reach without names of nodes and zones."""


class Counts:
    """Counts for the limits, while nodes are removed one after the other."""

    def __init__(
        self,
        cluster: Cluster,
        config: "Config",
        rate_limits: "RateLimits | None",
        found: Reaches,
        mutant: str = "",
    ) -> None:
        """Prepare the counts for all reaches of the cluster."""
        self.plain = {
            n.name
            for n in cluster.nodes
            if mutant == "taints are ignored" or untainted(n, TAINT_KEY)
        }
        self.takes_pods = {
            n.name
            for n in cluster.nodes
            if mutant == "unschedulable nodes count"
            or (
                is_open(n, [p for p in cluster.pods if p.node == n.name])
                and not is_shut(n, rate_limits)
            )
        }
        self.config, self.rate_limits, self.mutant = config, rate_limits, mutant
        self.cluster = cluster
        self.reaches = {members: key for members, (key, _) in found.items()}
        self.wide = {members: wide for members, (_, wide) in found.items()}
        self.reached = frozenset().union(*found)
        self.all = [n for n in cluster.nodes if not n.virtual and not leaving(n)]
        self.gone: list[Node] = []

    def pool_name(self, node: Node) -> str:
        """Return the name of the node's pool, or an empty text."""
        pool = pool_of(self.config, node)
        return pool.name if pool else ""

    def scopes(self, node: Node) -> list[tuple[str, "Budget", list[Node]]]:
        """Return name, budget and nodes of the cluster and of the node's pool.

        For a node in a reach, only nodes in reaches count.
        """
        among = [n for n in self.all if node.name not in self.reached or n.name in self.reached]
        found = [("", self.config.budgets.cluster, among)]
        pool = pool_of(self.config, node)
        if pool is not None:
            mine = [n for n in among if self.pool_name(n) == pool.name]
            found.append((pool.name, pool.budget, mine))
        return found

    def hold(self, node: Node) -> bool:
        """Return whether a limit makes the node unremovable."""
        scopes = self.scopes(node)
        in_none = self.config.budgets.pools and not self.pool_name(node)
        if in_none or self.is_at_minimum(node):
            return True
        for number, (_, budget, members) in enumerate(scopes):
            enough = [n for n in members if is_marked(node) or n.name in self.takes_pods]
            if len([n for n in enough if n not in self.gone]) - 1 < budget.min_nodes:
                return True
            left = [n for n in enough if n.name in self.plain and n not in self.gone]
            least = 0 if number else self.config.budgets.min_untainted_nodes
            if node in left and len(left) - 1 < least:
                return True
        if is_marked(node):
            return False
        unbalances = self.config.budgets.balance_zones and self.unbalances(node)
        if unbalances or self.saves_too_little(node):
            return True
        return self.rate_limits is not None and self.too_fast(node, scopes, self.rate_limits)

    def saves_too_little(self, node: Node) -> bool:
        """Return whether the node costs less than the minimum savings, if there are prices."""
        little = price_of(self.config, node) < self.config.min_savings
        return bool(self.config.prices) and little and self.mutant != "savings are ignored"

    def is_at_minimum(self, node: Node) -> bool:
        """Return whether the node's group is at the minimum size that its autoscaler has."""
        groups = {n.name: group_of(n, self.cluster, self.config) for n in self.all}
        mine = groups.get(node.name)
        if mine is None or self.mutant == "groups have no minimum":
            return False
        left = [n for n in self.all if groups[n.name] == mine and n not in self.gone]
        return len(left) <= mine.min_size

    def unbalances(self, node: Node) -> bool:
        """Return whether the removal would unbalance the smallest reach that spans zones.

        Reaches are evaluated without names of nodes and zones. Schedulable nodes are counted; any
        node defines a zone.
        """
        mine = node.labels.get(ZONE)
        alike = [
            n
            for n in self.all
            if n.labels.get(ZONE)
            and self.pool_name(n) == self.pool_name(node)
            and (self.similar(n, node) or self.mutant == "GPU nodes are similar to others")
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
        among = (
            spanning if self.mutant != "zones outside of reaches count" else [self.wide[decides]]
        )
        there = self.wide[decides] & frozenset().union(*among) & self.takes_pods
        left = [n.labels[ZONE] for n in alike if n.name in there and n not in self.gone]
        most = max((left.count(zone) for zone in left if zone != mine), default=0)
        return left.count(mine) - 1 < most - 1

    def similar(self, one: Node, other: Node) -> bool:
        """Return whether nodes have the same lasting taints and the same kinds of devices."""
        return self.properties(one) == self.properties(other)

    def properties(self, node: Node) -> tuple[set[tuple[str, str, str]], set[str]]:
        """Return the taints that keep pods away, and the names of devices."""
        taints = {
            (taint.key, taint.value, taint.effect)
            for taint in node.taints
            if taint.effect in ("NoSchedule", "NoExecute")
            and taint.key != TAINT_KEY
            and not passing(taint.key)
        }
        return taints, {name for name, _ in node.allocatable.extended if "hugepages" not in name}

    def too_fast(
        self, node: Node, scopes: list[tuple[str, "Budget", list[Node]]], rate_limits: "RateLimits"
    ) -> bool:
        """Return whether a rate limit delays the node."""
        if rate_limits.beginning.blockers and self.mutant != "refusals are ignored":
            return True
        ends = rate_limits.ends
        if ends.get("cooldown") or ends.get("pods-pending"):
            return True
        old_jobs = {} if self.mutant == "old Jobs do not matter" else ends.get("old-job", {})
        skipped = ends.get("backoff", {}), ends.get("mark-refused", {}), old_jobs
        if any(node.name in found for found in skipped):
            return True
        for name, budget, members in scopes:
            new = len([n for n in self.gone if n in members and not is_marked(n)])
            marked = len([n for n in members if is_marked(n)]) + new
            window = len(ends.get("budget-new-marks", {}).get(name, ())) + new
            if budget.max_marked and marked >= limit_of(budget.max_marked, len(members)):
                return True
            if budget.max_new_marks and window >= limit_of(budget.max_new_marks, len(members)):
                return True
        return False
