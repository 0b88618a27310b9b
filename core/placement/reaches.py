"""Compute the reaches of a cluster: the sets of nodes that its pods can use.

A reach is the set of nodes that the node constraints of a movable pod admit: selectors, required
node affinity, taints, declared features and the extended resources that a node must offer. Amounts
of resources, other pods and volumes do not matter. Temporary states of nodes are ignored: cordons,
taints such as not-ready, and Ebb's own taint. Pods with the same set of nodes have the same reach.
Free capacity on a node helps only the pods that can use the node, so thresholds apply to each
reach.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from core.model.constraints import NodeConstraints, without_volumes
from core.model.node import Node, Taint
from core.model.node_lifecycle import is_transient_taint
from core.model.pod import Pod
from core.placement.filters import FILTERS, TAINT_TOLERATION
from core.placement.matching import is_blocking
from core.placement.node_classes import NodeClasses
from core.placement.node_index import Taints

REACHES_MAX: Final = 256
"""Maximum number of reaches that are tracked; namespaces take turns."""
NAME_CHARACTERS_MAX: Final = 60
"""Maximum length of a reach's name."""
BETWEEN: Final = ", "
GENERAL: Final = "general"
"""Name of the reach of pods without node constraints."""

_Set = tuple[str, tuple[int, ...]]
"""Text of the constraints and nodes of a reach that has no name yet."""
Groups = Sequence[Sequence[Pod]]
"""Groups of pods with equal requests and node constraints."""


@dataclass(frozen=True, slots=True)
class Reach:
    """A set of at least two nodes that some pods can use, with its name.

    Examples: the general nodes of a cluster, a pool behind a taint, a zone. Thresholds do not
    apply to pods that can use one node only.
    """

    key: str
    """Full text of its constraints. It is stable between reconciliations, unless a pod selects the
    same nodes in a shorter way (core.engine.reach_keys)."""
    nodes: tuple[int, ...]
    """Node ids, ascending."""
    name: str
    """Name for people, unique within a cluster."""


class Reaches:
    """All reaches of a cluster: the sets of nodes that its movable pods can use.

    Node ids are positions in *nodes*.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        asked: Mapping[NodeConstraints, Groups],
        others: Iterable[NodeConstraints] = (),
        recent: Collection[NodeConstraints] = (),
    ) -> None:
        """Compute the reaches; *asked*: the movable pods by node constraints without volumes.

        Nodes of virtual kubelets are in no reach, because they accept no pods. *others*:
        constraints that define no reach but are passed to `members` later. *recent*: constraints
        that pods had recently; their reach is kept even if no pod selects the same nodes now.
        """
        self._nodes = nodes
        self._bare = [bare(node) for node in nodes]
        self._virtual = frozenset(n for n, node in enumerate(nodes) if node.virtual)
        self._passing = frozenset(
            number for number, node in enumerate(nodes) if self._bare[number].taints != node.taints
        )
        self._classes = NodeClasses(self._bare, chain(asked, others, recent))
        self._shown = _Shown(self._bare, self._classes)
        self._members: dict[int, tuple[int, ...]] = {}
        by_nodes = self._by_members(asked)
        here = frozenset(by_nodes)
        for members, templates in self._by_members(recent).items():
            by_nodes.setdefault(members, templates)
        self.all: tuple[Reach, ...]
        """Reaches with at least two nodes, largest first, then by key."""
        self.untracked: frozenset[NodeConstraints]
        """Node constraints whose reach is beyond REACHES_MAX."""
        self.all, self.untracked = self._track(by_nodes, asked)
        self._by_nodes: dict[tuple[int, ...], Reach] = {one.nodes: one for one in self.all}
        self._asking = [by_nodes[one.nodes] for one in self.all]
        tracked = [
            members for members in by_nodes if len(members) == 1 or members in self._by_nodes
        ]
        self.reached: frozenset[int] = frozenset(node for nodes in tracked for node in nodes)
        """Nodes that at least one movable pod reaches."""
        self.current_templates: Sequence[NodeConstraints] = [
            by_nodes[nodes][0] for nodes in tracked if nodes in here
        ]
        """One of the node constraints for each set of nodes that pods select now."""
        self.recent_templates: Sequence[NodeConstraints] = [
            by_nodes[n][0] for n in tracked if n not in here
        ]
        """One of the node constraints for each set of nodes that only recent pods selected."""
        self.by_node: list[tuple[int, ...]] = _by_node(self.all, len(nodes))
        """Positions in `all` of the reaches of each node."""

    def _by_members(
        self, all_constraints: Iterable[NodeConstraints]
    ) -> dict[tuple[int, ...], list[NodeConstraints]]:
        """Return the node constraints by the ids of the nodes that they admit.

        Constraints that admit no node are omitted.
        """
        found: dict[tuple[int, ...], list[NodeConstraints]] = {}
        for node_constraints in all_constraints:
            if members := self.members(node_constraints):
                found.setdefault(members, []).append(node_constraints)
        return found

    def members(self, node_constraints: NodeConstraints) -> tuple[int, ...]:
        """Return the ids of the nodes that the constraints admit, ascending.

        Volumes are ignored, and temporary states of nodes: cordons and taints such as not-ready.
        """
        ids = self._classes.allowing(without_volumes(node_constraints))
        found = self._members.get(id(ids))
        if found is None:
            found = self._members[id(ids)] = tuple(n for n in ids if n not in self._virtual)
        return found

    def reach_of(self, node_constraints: NodeConstraints) -> Reach | None:
        """Return the reach of pods with these constraints.

        Return None if the constraints admit fewer than two nodes, or if the reach is not among the
        REACHES_MAX reaches that are tracked.
        """
        return self._by_nodes.get(self.members(node_constraints))

    def templates_of(self, number: int) -> Sequence[NodeConstraints]:
        """Return the node constraints of the pods whose reach is `all[number]`."""
        return self._asking[number]

    def admitting(self, node_constraints: NodeConstraints) -> list[int]:
        """Return the ids of the nodes that the constraints admit now, ascending.

        Current taints matter, but cordons are ignored.
        """
        ids = self._classes.allowing(node_constraints)
        if not self._virtual and not self._passing:
            return ids
        return [
            n
            for n in ids
            if n not in self._virtual
            and (
                n not in self._passing or TAINT_TOLERATION.admits(self._nodes[n], node_constraints)
            )
        ]

    def unreached_nodes_for(self, all_constraints: Iterable[NodeConstraints]) -> frozenset[int]:
        """Return the ids of nodes that these constraints admit, but no movable pod can use.

        It is enough that one of the constraints admits the node.
        """
        aside = self.reached | self._virtual
        left = [n for n in range(len(self._nodes)) if n not in aside]
        asked = (
            {without_volumes(node_constraints) for node_constraints in all_constraints}
            if left
            else ()
        )
        classes = NodeClasses([self._bare[n] for n in left], asked)
        return frozenset(left[n] for n in chain.from_iterable(map(classes.allowing, asked)))

    def _track(
        self,
        by_nodes: Mapping[tuple[int, ...], list[NodeConstraints]],
        asked: Mapping[NodeConstraints, Groups],
    ) -> tuple[tuple[Reach, ...], frozenset[NodeConstraints]]:
        """Choose at most REACHES_MAX reaches.

        Return these reaches, and the node constraints of all other reaches.
        """
        found: list[_Set] = []
        for nodes, all_constraints in by_nodes.items():
            if len(nodes) > 1:
                parts = min(
                    map(self._shown.parts, all_constraints), key=lambda one: (len(one), one)
                )
                found.append((BETWEEN.join(parts) or GENERAL, nodes))
        kept = found if len(found) <= REACHES_MAX else _fair(found, by_nodes, asked)
        gone = {nodes for _, nodes in found} - {nodes for _, nodes in kept}
        kept = sorted(kept, key=lambda one: (-len(one[1]), one))
        texts, sets = [key for key, _ in kept], [nodes for _, nodes in kept]
        keys, names = _numbered(texts), _numbered(map(_short, texts))
        return tuple(map(Reach, keys, sets, names)), frozenset(
            one for nodes in gone for one in by_nodes[nodes]
        )


def _by_node(reaches: Sequence[Reach], nodes: int) -> list[tuple[int, ...]]:
    """Return for each node the positions in *reaches* of the reaches that contain it.

    *nodes*: number of nodes; their ids are the positions in the result.
    """
    of: list[list[int]] = [[] for _ in range(nodes)]
    for number, reach in enumerate(reaches):
        for node in reach.nodes:
            of[node].append(number)
    return [tuple(numbers) for numbers in of]


def _fair(
    found: list[_Set],
    by_nodes: Mapping[tuple[int, ...], list[NodeConstraints]],
    asked: Mapping[NodeConstraints, Groups],
) -> list[_Set]:
    """Choose REACHES_MAX of the sets, so that no namespace displaces the reaches of another."""
    counts = {nodes: _namespaces(by_nodes[nodes], asked) for _, nodes in found}
    by_namespace: dict[str, list[tuple[int, _Set]]] = {}
    for one in found:
        for namespace, pods in counts[one[1]].items():
            by_namespace.setdefault(namespace, []).append((-pods, one))
    best: dict[tuple[int, ...], int] = {}
    for own in by_namespace.values():
        for rank, (_, (_, nodes)) in enumerate(sorted(own)):
            best[nodes] = min(best.get(nodes, rank), rank)
    last = len(found)  # reaches without current pods belong to no namespace
    found = sorted(found, key=lambda one: (best.get(one[1], last), -counts[one[1]].total(), one))
    return found[:REACHES_MAX]


def _namespaces(
    all_constraints: Iterable[NodeConstraints], asked: Mapping[NodeConstraints, Groups]
) -> Counter[str]:
    """Count the pods with these node constraints by namespace."""
    return Counter(
        pod.namespace
        for node_constraints in all_constraints
        for group in asked.get(node_constraints, ())
        for pod in group
    )


def bare(node: Node) -> Node:
    """Return the node without cordon and without taints that describe a temporary state."""
    taints = tuple(taint for taint in node.taints if not is_transient_taint(node, taint))
    if len(taints) == len(node.taints) and not node.unschedulable:
        return node
    return replace(node, taints=taints, unschedulable=False)


class _Shown:
    """Describe node constraints as texts, except constraints that every real node satisfies."""

    def __init__(self, bare: Sequence[Node], classes: NodeClasses) -> None:
        real = [node for node in bare if not node.virtual]
        found = {taint for node in real for taint in node.taints if is_blocking(taint)}
        self._by_name = Taints(found)
        self._classes = classes
        self._real = classes.classes_of(n for n, node in enumerate(bare) if not node.virtual)

    def parts(self, node_constraints: NodeConstraints) -> list[str]:
        """Return a text for each constraint that excludes a node, then for each tolerated taint.

        Only taints that a node of the cluster has are included.
        """
        parts = [
            text
            for one in FILTERS
            for text, single in one.parts(node_constraints)
            if not self._classes.allows(single, self._real, (one,))
        ]
        covered = sorted(set(self._by_name.covered(node_constraints.tolerations)), key=_taint)
        return [*parts, *(f"tolerates {_taint(taint)}" for taint in covered)]


def _taint(taint: Taint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _short(key: str) -> str:
    """Shorten the key of a reach to a name for people, of at most NAME_CHARACTERS_MAX characters.

    The domain of labels such as kubernetes.io/os is dropped.
    """
    name = BETWEEN.join(part.removeprefix("kubernetes.io/") for part in key.split(BETWEEN))
    return name if len(name) <= NAME_CHARACTERS_MAX else f"{name[: NAME_CHARACTERS_MAX - 3]}..."


def _numbered(texts: Iterable[str]) -> list[str]:
    """Return the texts with numbers appended to repeated ones, so that all are distinct.

    Two reaches may have equal texts but different nodes.
    """
    found: dict[str, None] = {}
    for text in texts:
        number, own = 1, text
        while own in found:
            number, own = number + 1, f"{text} #{number + 1}"
        found[own] = None
    return list(found)
