"""Filter nodes by the node constraints of a pod, as kube-scheduler's Filter plugins do.

A filter reads only the constraints and the node, so nodes with equal values in the fields that
filters read are checked once. Free resources (core.placement.packer) and other pods
(core.placement.inter_pod) change while pods are placed, so they are checked elsewhere. A
constraint that no filter can evaluate is listed in Pod.unsupported and makes the pod unmovable.

Source: kube-scheduler plugins NodeUnschedulable, TaintToleration, NodeAffinity, VolumeBinding (for
bound claims), VolumeZone, NodeDeclaredFeatures (from 1.36; an older scheduler does not know these
features and may admit a pod that is refused here) and NodeResourcesFit for extended resources that
a node does not offer at all.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from core.model.constraints import (
    NodeConstraints,
    Requirement,
    SelectorTerm,
    VolumeTopology,
)
from core.model.node import Effect, Node, Taint
from core.placement.matching import is_blocking, matches_requirement, tolerates
from core.placement.node_index import NAME_FIELD, NodeIndex

UNSCHEDULABLE_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "", Effect.NO_SCHEDULE)
ZONE_LABELS: Final[Mapping[str, str]] = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels that bind a volume to a zone or region, and the label that replaces each on a node."""

NodeField = tuple[str, str]
"""A part of a node that a filter reads: (LABEL, label key), (OFFERS, extended resource), or
(attribute of Node, empty)."""
LABEL: Final = "label"
OFFERS: Final = "offers"
NAME: Final[NodeField] = ("name", "")
TAINTS: Final[NodeField] = ("taints", "")
UNSCHEDULABLE: Final[NodeField] = ("unschedulable", "")
DECLARED_FEATURES: Final[NodeField] = ("features", "")
NamedPart = tuple[str, NodeConstraints]
"""A text such as `zone=a`, and node constraints with only the constraint that it describes."""


def value_of(node: Node, field: NodeField) -> object:
    """Return the value of a field of the node, such as a label; None for a label that it lacks.

    *field*: ("label", key of the label), ("offers", name of an extended resource), or (attribute
    of Node, ""). For "offers" the value is a bool.
    """
    what, key = field
    if what == LABEL:
        return node.labels.get(key)
    return node.allocatable.offers(key) if what == OFFERS else getattr(node, what)


class Filter(ABC):
    """A check of a node against the node constraints of a pod, like a plugin of kube-scheduler.

    To add a filter, write a subclass, add an instance to FILTERS, and extend the generators of
    tests/core/placement/test_node_index.py so that the filter refuses a generated node. All else
    is derived from FILTERS: reaches (sets of nodes that some pods can use) and their names,
    classes of equal nodes, indexes.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Return the name of the filter in messages to users, such as "node-affinity"."""

    @abstractmethod
    def admits(self, node: Node, node_constraints: NodeConstraints) -> bool:
        """Report whether the node admits pods with these constraints."""

    @abstractmethod
    def reads(self, node_constraints: NodeConstraints) -> Iterable[NodeField]:
        """Return the node fields, such as labels, on which `admits` depends for these constraints.

        Nodes with equal values in these fields must get the same answer.
        """

    @abstractmethod
    def feasible_nodes(self, index: NodeIndex, node_constraints: NodeConstraints) -> int:
        """Return the nodes of the index that `admits` accepts: bit n stands for node n.

        The running time must not grow with nodes times requirements: a pod may have a thousand
        requirements.
        """

    @abstractmethod
    def parts(self, node_constraints: NodeConstraints) -> Iterable[NamedPart]:
        """Return each constraint that this filter reads, as a pair of a text and node constraints.

        The text is, for example, "zone=a"; the node constraints contain only the constraint that
        it describes. The texts name the reach of pods with these constraints
        (core.placement.reaches). Return nothing for constraints that define no reach: of volumes,
        and tolerations.
        """


class VolumeFilter(Filter):
    """A filter that decides for each volume of a pod separately whether a node can use the volume.

    NodeClasses caches the answer for each volume. Each pod of a StatefulSet with local volumes has
    constraints of its own, and checking every node for every pod would be slow.
    """

    @abstractmethod
    def admits_volume(self, node: Node, volume: VolumeTopology) -> bool:
        """Report whether the node can use the volume."""

    @abstractmethod
    def volume_reads(self, volume: VolumeTopology) -> Iterable[NodeField]:
        """Return the node fields, such as labels, that decide if a node can use the volume."""

    @abstractmethod
    def nodes_of_volume(self, index: NodeIndex, volume: VolumeTopology) -> int:
        """Return the nodes of the index that can use the volume: bit n stands for node n."""

    def admits(self, node: Node, node_constraints: NodeConstraints) -> bool:
        """Report whether the node can use all volumes of the pod."""
        return all(self.admits_volume(node, volume) for volume in node_constraints.volumes)

    def reads(self, node_constraints: NodeConstraints) -> Iterable[NodeField]:
        """Return the node fields that decide whether a node can use all volumes of the pod."""
        return chain.from_iterable(map(self.volume_reads, node_constraints.volumes))

    def feasible_nodes(self, index: NodeIndex, node_constraints: NodeConstraints) -> int:
        """Return the nodes that can use all volumes of the pod: bit n stands for node n."""
        nodes = index.all
        for volume in node_constraints.volumes:
            nodes &= self.nodes_of_volume(index, volume)
        return nodes

    def parts(self, _: NodeConstraints) -> Iterable[NamedPart]:
        """Return nothing, because volumes define no reach."""
        return ()


class NodeUnschedulable(Filter):
    """Refuse cordoned nodes, unless the pod tolerates the taint that represents the cordon."""

    name = "cordoned"

    def admits(self, node: Node, node_constraints: NodeConstraints) -> bool:
        return not node.unschedulable or _tolerates_cordon(node_constraints)

    def reads(self, _: NodeConstraints) -> Iterable[NodeField]:
        return (UNSCHEDULABLE,)

    def feasible_nodes(self, index: NodeIndex, node_constraints: NodeConstraints) -> int:
        return (
            index.all if _tolerates_cordon(node_constraints) else index.all ^ index.unschedulable
        )

    def parts(self, _: NodeConstraints) -> Iterable[NamedPart]:
        return ()


def _tolerates_cordon(node_constraints: NodeConstraints) -> bool:
    return any(
        tolerates(toleration, UNSCHEDULABLE_TAINT) for toleration in node_constraints.tolerations
    )


class TaintToleration(Filter):
    """Refuse nodes with a NoSchedule or NoExecute taint that the pod does not tolerate."""

    name = "taint"

    def admits(self, node: Node, node_constraints: NodeConstraints) -> bool:
        return all(
            any(tolerates(toleration, taint) for toleration in node_constraints.tolerations)
            for taint in node.taints
            if is_blocking(taint)
        )

    def reads(self, _: NodeConstraints) -> Iterable[NodeField]:
        return (TAINTS,)

    def feasible_nodes(self, index: NodeIndex, node_constraints: NodeConstraints) -> int:
        return index.taints.tolerated(node_constraints.tolerations)

    def parts(self, _: NodeConstraints) -> Iterable[NamedPart]:
        return ()


class MatchNodeSelector(Filter):
    """Refuse nodes without the labels of the pod's nodeSelector and of its operating system.

    The name is from the former predicate of kube-scheduler; the API has a type NodeSelector.
    """

    name = "node-selector"

    def admits(self, node: Node, node_constraints: NodeConstraints) -> bool:
        return all(node.labels.get(key) == value for key, value in node_constraints.labels)

    def reads(self, node_constraints: NodeConstraints) -> Iterable[NodeField]:
        return ((LABEL, key) for key, _ in node_constraints.labels)

    def feasible_nodes(self, index: NodeIndex, node_constraints: NodeConstraints) -> int:
        nodes = index.all
        for key, value in node_constraints.labels:
            if not nodes:
                break
            nodes &= index.label(key).one_of((value,))
        return nodes

    def parts(self, node_constraints: NodeConstraints) -> Iterable[NamedPart]:
        return (
            (f"{key}={value}", NodeConstraints(node_selector=((key, value),)))
            for key, value in node_constraints.labels
        )


class NodeAffinity(Filter):
    """Refuse nodes that match no term of the pod's required node affinity, if it has any."""

    name = "node-affinity"

    def admits(self, node: Node, node_constraints: NodeConstraints) -> bool:
        return node_constraints.affinity is None or _matches_any(node, node_constraints.affinity)

    def reads(self, node_constraints: NodeConstraints) -> Iterable[NodeField]:
        return _fields_of(node_constraints.affinity or ())

    def feasible_nodes(self, index: NodeIndex, node_constraints: NodeConstraints) -> int:
        return (
            index.all
            if node_constraints.affinity is None
            else _nodes_of_any(index, node_constraints.affinity)
        )

    def parts(self, node_constraints: NodeConstraints) -> Iterable[NamedPart]:
        terms = node_constraints.affinity
        if terms is not None:
            yield " or ".join(map(_term_text, terms)), NodeConstraints(affinity=terms)


class VolumeNodeAffinity(VolumeFilter):
    """Refuse nodes that match no term of a volume's required node affinity, if it has any."""

    name = "volume-node-affinity"

    def admits_volume(self, node: Node, volume: VolumeTopology) -> bool:
        return volume.affinity is None or _matches_any(node, volume.affinity)

    def volume_reads(self, volume: VolumeTopology) -> Iterable[NodeField]:
        return _fields_of(volume.affinity or ())

    def nodes_of_volume(self, index: NodeIndex, volume: VolumeTopology) -> int:
        return index.all if volume.affinity is None else _nodes_of_any(index, volume.affinity)


def _matches_any(node: Node, terms: Iterable[SelectorTerm]) -> bool:
    return any(_matches_term(node, term) for term in terms)


def _matches_term(node: Node, term: SelectorTerm) -> bool:
    if not term.labels and not term.fields:
        return False  # the API: an empty term matches no object
    fields = {NAME_FIELD: node.name}
    return all(matches_requirement(one, node.labels) for one in term.labels) and all(
        matches_requirement(one, fields) for one in term.fields
    )


def _term_text(term: SelectorTerm) -> str:
    return " and ".join(map(_requirement_text, (*term.labels, *term.fields)))


def _requirement_text(requirement: Requirement) -> str:
    key, values = requirement.key, "|".join(requirement.values)
    match requirement.operator:
        case "In" if len(requirement.values) == 1:
            return f"{key}={values}"
        case "Exists":
            return f"has {key}"
        case "DoesNotExist":
            return f"no {key}"
        case "NotIn":
            return f"{key} not in {values}"
        case other:
            return f"{key} {other.lower()} {values}"


def _fields_of(terms: Iterable[SelectorTerm]) -> Iterable[NodeField]:
    for term in terms:
        yield from ((LABEL, requirement.key) for requirement in term.labels)
        if term.fields:
            yield NAME


def _nodes_of_any(index: NodeIndex, terms: Iterable[SelectorTerm]) -> int:
    nodes = 0
    for term in terms:
        nodes |= _nodes_of_term(index, term)
    return nodes


def _nodes_of_term(index: NodeIndex, term: SelectorTerm) -> int:
    nodes = index.all if term.labels or term.fields else 0
    for requirement in term.labels:
        if not nodes:
            return 0
        nodes &= index.label(requirement.key).matching(requirement)
    for requirement in term.fields:
        nodes &= index.field(requirement.key).matching(requirement)
    return nodes


class VolumeZone(VolumeFilter):
    """Refuse nodes outside the zone or region of a volume.

    A node without any zone or region label is admitted.
    """

    name = "volume-zone"

    def admits_volume(self, node: Node, volume: VolumeTopology) -> bool:
        labels = node.labels
        if not any(key in labels for key in ZONE_LABELS):
            return True
        return all(
            labels.get(key, labels.get(ZONE_LABELS[key])) in values for key, values in volume.zones
        )

    def volume_reads(self, _: VolumeTopology) -> Iterable[NodeField]:
        return ((LABEL, key) for key in ZONE_LABELS)

    def nodes_of_volume(self, index: NodeIndex, volume: VolumeTopology) -> int:
        if not volume.zones:
            return index.all
        zoned = 0
        for key in ZONE_LABELS:
            zoned |= index.label(key).any
        nodes = index.all
        for key, values in volume.zones:
            old, new = index.label(key), index.label(ZONE_LABELS[key])
            nodes &= old.one_of(values) | (new.one_of(values) & ~old.any)
        return nodes | (index.all ^ zoned)


class NodeDeclaredFeatures(Filter):
    """Refuse nodes whose kubelet does not declare a feature that the pod needs."""

    name = "declared-features"

    def admits(self, node: Node, node_constraints: NodeConstraints) -> bool:
        return all(feature in node.features for feature in node_constraints.features)

    def reads(self, node_constraints: NodeConstraints) -> Iterable[NodeField]:
        return (DECLARED_FEATURES,) if node_constraints.features else ()

    def feasible_nodes(self, index: NodeIndex, node_constraints: NodeConstraints) -> int:
        nodes = index.all
        for feature in node_constraints.features:
            nodes &= index.by(_features).one_of((feature,))
        return nodes

    def parts(self, node_constraints: NodeConstraints) -> Iterable[NamedPart]:
        return (
            (f"declares {name}", NodeConstraints(features=(name,)))
            for name in node_constraints.features
        )


def _features(node: Node) -> Iterable[str]:
    return node.features


class ExtendedResources(Filter):
    """Refuse nodes that do not offer an extended resource that the pod requests.

    Whether enough of the resource is free is checked while pods are placed.
    """

    name = "extended-resources"

    def admits(self, node: Node, node_constraints: NodeConstraints) -> bool:
        return all(map(node.allocatable.offers, node_constraints.extended))

    def reads(self, node_constraints: NodeConstraints) -> Iterable[NodeField]:
        return ((OFFERS, name) for name in node_constraints.extended)

    def feasible_nodes(self, index: NodeIndex, node_constraints: NodeConstraints) -> int:
        nodes = index.all
        for name in node_constraints.extended:
            nodes &= index.by(_extended_resources).one_of((name,))
        return nodes

    def parts(self, node_constraints: NodeConstraints) -> Iterable[NamedPart]:
        return (
            (f"requests {name}", NodeConstraints(extended=(name,)))
            for name in node_constraints.extended
        )


def _extended_resources(node: Node) -> Iterable[str]:
    return (name for name, units in node.allocatable.extended if units > 0)


Filters = tuple[Filter, ...]
TAINT_TOLERATION: Final = TaintToleration()
LABEL_FILTERS: Final[Filters] = (MatchNodeSelector(), NodeAffinity())
FILTERS: Final[Filters] = (
    NodeUnschedulable(),
    TAINT_TOLERATION,
    *LABEL_FILTERS,
    VolumeNodeAffinity(),
    VolumeZone(),
    NodeDeclaredFeatures(),
    ExtendedResources(),
)
"""All filters, in the order of kube-scheduler's default profile."""
VOLUME_FILTERS: Final = tuple(one for one in FILTERS if isinstance(one, VolumeFilter))


def first_failing_filter(
    node: Node, node_constraints: NodeConstraints, filters: Filters = FILTERS
) -> str | None:
    """Return the name of the first filter that refuses the node, or None if all admit it."""
    return next((one.name for one in filters if not one.admits(node, node_constraints)), None)
