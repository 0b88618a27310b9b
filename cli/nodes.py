"""One row for each node of a plan, for tables of nodes, CSV and names."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, NamedTuple

from core.config.settings import Config
from core.eligibility.scalability import group_name, largest_groups
from core.engine.plan import Plan
from core.engine.zones import ZONE_LABEL
from core.marks.mark import mark_of
from core.model.cluster import Cluster
from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import Pod

TYPE_LABELS: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node of a plan: its mark, pods, requests and price, and why it is not removable."""

    node: Node
    order: int | None
    """Position among the removals; None if the node is not removable."""
    mark: str
    """Effect of its mark, such as NoSchedule; empty if the node is not marked."""
    pods: int
    """Number of pods without DaemonSet and static pods."""
    requested: Fraction
    """Share of allocatable CPU or memory that all pods request, whichever is larger."""
    price: Fraction | None
    """Configured price; None if no entry of `prices` selects the node."""
    pool: str
    """Group of the node for display: what a label of its provider names, else its pool of the
    setting `pools`; empty if there is neither."""
    age_seconds: int | None
    reasons: tuple[str, ...]
    """Codes of the reasons why the node is not removable."""

    @property
    def name(self) -> str:
        """Return the name of the node."""
        return self.node.name

    @property
    def zone(self) -> str:
        """Return the zone of the node; empty if the node has no zone label."""
        return self.node.labels.get(ZONE_LABEL, "")

    @property
    def instance_type(self) -> str:
        """Return the instance type of the node; empty if the node has no such label."""
        return next((self.node.labels[key] for key in TYPE_LABELS if key in self.node.labels), "")


SORT_KEYS: Final[Mapping[str, Callable[[NodeRow], Any]]] = {
    "order": lambda row: (row.order is None, row.order or 0),
    "name": lambda row: row.name,
    "pods": lambda row: row.pods,
    "requested": lambda row: row.requested,
    "price": lambda row: -(row.price or 0),
    "age": lambda row: -(row.age_seconds or 0),
    "pool": lambda row: row.pool,
    "zone": lambda row: row.zone,
    "type": lambda row: row.instance_type,
}
"""Sort key by the value of --sort-by; prices and ages are sorted in descending order."""


def node_rows(plan: Plan, cluster: Cluster, config: Config, now_seconds: int) -> list[NodeRow]:
    """Return a row for each node that the plan names.

    Removable nodes come first, in removal order; then the others, by name. *now_seconds*: Unix
    time from which the ages of the nodes are computed.
    """
    order = {removal.node: removal.order for removal in plan.removals}
    reasons = {node.node: _codes(node.blockers) for node in plan.kept}
    own = Counter(pod.node for pod in cluster.pods if pod.node and not pod.stays_with_node)
    used, pools = cluster.used(), _pools(cluster, config)
    rows = [
        NodeRow(
            node=node,
            order=order.get(node.name),
            mark=_effect(node),
            pods=own[node.name],
            requested=_share(used[node.name], node),
            price=_price(node, config),
            pool=pools[node.name],
            age_seconds=None
            if node.created_seconds is None
            else max(0, now_seconds - node.created_seconds),
            reasons=reasons.get(node.name, ()),
        )
        for node in cluster.nodes
        if node.name in order or node.name in reasons
    ]
    return sorted(rows, key=lambda row: (SORT_KEYS["order"](row), row.name))


def _codes(blockers: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(blocker.code for blocker in blockers))


def _effect(node: Node) -> str:
    return mark_of(node.labels) or ""


def _share(used: Any, node: Node) -> Fraction:  # noqa: ANN401 core.model.resources.Resources
    whole = node.allocatable
    pairs = (used.cpu_millis, whole.cpu_millis), (used.memory_bytes, whole.memory_bytes)
    return max((Fraction(part, total) for part, total in pairs if total), default=Fraction())


def _price(node: Node, config: Config) -> Fraction | None:
    priced = any(
        all(node.labels.get(key) == value for key, value in entry.node_selector)
        for entry in config.prices
    )
    return config.price_of(node.labels) if priced else None


def _pools(cluster: Cluster, config: Config) -> Mapping[str, str]:
    """Return the group of each node for display, by name of the node."""
    return largest_groups(
        {node.name: group_name(node, _pool(node, config)) for node in cluster.nodes}
    )


def _pool(node: Node, config: Config) -> str:
    pool = config.budgets.pool_of(node.labels)
    return pool.name if pool else ""


class LabelRequirement(NamedTuple):
    """One requirement of a label selector."""

    key: str
    values: frozenset[str] | None
    """Values of which one is required; None: any value."""
    negated: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels of a node meet the requirement."""
        value = labels.get(self.key)
        met = value is not None if self.values is None else value in self.values
        return met is not self.negated


_REQUIREMENT: Final = re.compile(
    r"\s*(?:(?P<absent>!)?\s*(?P<bare>[^\s!=,()]+)"
    r"|(?P<key>[^\s!=,()]+)\s*(?P<sign>==|=|!=)\s*(?P<value>[^\s!=,()]*)"
    r"|(?P<member>[^\s!=,()]+)\s+(?P<word>in|notin)\s*\((?P<list>[^()]*)\))\s*(?:,|\Z)"
)


def selector(text: str) -> Sequence[LabelRequirement]:
    """Parse a label selector as kubectl does, and return its requirements.

    A node must meet all of them; an empty text has none. Raises: InvalidInputError.
    """
    requirements, at = [], 0
    while at < len(text):
        match = _REQUIREMENT.match(text, at)
        if match is None:
            allowed = "requirements such as key=value, key!=value, key, !key, key in (a, b)"
            raise InvalidInputError("--selector", f"{text!r:.200}; allowed: {allowed}")
        requirements.append(_requirement(match))
        at = match.end()
    return requirements


def _requirement(match: re.Match[str]) -> LabelRequirement:
    if (bare := match["bare"]) is not None:
        return LabelRequirement(bare, None, negated=match["absent"] is not None)
    if (key := match["key"]) is not None:
        return LabelRequirement(key, frozenset((match["value"],)), negated=match["sign"] == "!=")
    values = frozenset(value.strip() for value in match["list"].split(","))
    return LabelRequirement(match["member"], values, negated=match["word"] == "notin")


class Selection(NamedTuple):
    """The nodes that a command shows, selected by their labels and their pods' namespaces."""

    requirements: Sequence[LabelRequirement] = ()
    """Requirements on the labels of a node."""
    namespace: str | None = None
    """Namespace of which a node runs a pod, without DaemonSet and static pods; None: any node."""

    def names(self, cluster: Cluster) -> Collection[str] | None:
        """Return the names of the selected nodes; None if every node is selected."""
        if not self.requirements and self.namespace is None:
            return None
        running = {pod.node for pod in cluster.pods if self.has(pod) and not pod.stays_with_node}
        return {
            node.name
            for node in cluster.nodes
            if (self.namespace is None or node.name in running)
            and all(requirement.matches(node.labels) for requirement in self.requirements)
        }

    def has(self, pod: Pod) -> bool:
        """Return whether the pod is in the selected namespace; True if none is selected."""
        return self.namespace is None or pod.namespace == self.namespace


EVERYTHING: Final = Selection()


def shown(plan: Plan, names: Collection[str] | None) -> Plan:
    """Return the plan with only the named nodes, or with all nodes if *names* is None.

    The totals remain those of all nodes.
    """
    if names is None:
        return plan
    return replace(
        plan,
        removals=tuple(removal for removal in plan.removals if removal.node in names),
        kept=tuple(node for node in plan.kept if node.node in names),
        marked_infeasible=tuple(name for name in plan.marked_infeasible if name in names),
    )
