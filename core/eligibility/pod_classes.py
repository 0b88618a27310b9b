"""Count the pods on each node by class, and evaluate rules for pods once for each class.

Pods are in the same class if they are equal in everything that these rules read. Most pods of a
cluster are in one class.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from core.eligibility.drainability import CRITICAL_PRIORITY, SYSTEM_NAMESPACE, long_lived_reasons
from core.eligibility.emptiness import occupies_karpenter_node, occupies_node
from core.marks.wellknown import KARPENTER_LABEL
from core.model.constraints import NO_DISRUPTION_FACTS
from core.model.node import Node
from core.model.now import Now
from core.model.pod import EXPENDABLE_BELOW, REPLICA_SET, Pod

TYPICAL: Final = "typical"
"""Class of the pods for which `is_typical` returns True."""
TYPICAL_POD: Final = Pod(namespace="default", name="pod", node="node", owner_kind=REPLICA_SET)
"""An example of the class TYPICAL."""


class PodClass(NamedTuple):
    """Pods for which each rule gives the same result, as an example and counts by node."""

    example: Pod
    """A pod of the class; it may have left the cluster."""
    by_node: Counter[str]
    """Number of pods of the class by node."""


PodClasses = Mapping[Hashable, PodClass]
NO_PODS: Final[Mapping[str, int]] = {}
Key_ = TypeVar("Key_")


def is_typical(pod: Pod) -> bool:
    """Return whether the pod belongs to the most common class, TYPICAL.

    Its pods are on a node and in a ReplicaSet, and have nothing else that rules read. Ebb can
    evaluate and move them, they keep their nodes from being empty, and they have no pod deletion
    cost.
    """
    return (
        pod.owner_kind == REPLICA_SET
        and pod.disruption_facts is NO_DISRUPTION_FACTS
        and pod.node is not None
        and not (pod.daemon or pod.mirror or pod.terminating or pod.nominated_node)
        and not (pod.unsupported or pod.too_much or pod.unreadable)
        and pod.deletion_cost is None
        and pod.deletion_cost_ours is None
        and EXPENDABLE_BELOW <= pod.priority < CRITICAL_PRIORITY
        and pod.namespace != SYSTEM_NAMESPACE
    )


def class_of(pod: Pod) -> Hashable:
    """Return the key of the pod's class: TYPICAL, or the values of all fields that rules read.

    Rules for pods give the same result for pods with equal keys.
    """
    if is_typical(pod):
        return TYPICAL
    facts, system = pod.disruption_facts, pod.namespace == SYSTEM_NAMESPACE
    return (pod.owner_kind, facts.notes, facts.local_volumes, facts.started_seconds,
            facts.completes, pod.priority, pod.daemon, pod.mirror, system, pod.terminating,
            facts.overdue_seconds)  # fmt: skip


def classes_of(pods: Iterable[Pod]) -> dict[Hashable, PodClass]:
    """Return the classes of the pods, by the key that `class_of` returns.

    Pods without a node are left out.
    """
    classes: dict[Hashable, PodClass] = {}
    for pod in pods:
        if pod.node is not None:
            key = class_of(pod)
            if key not in classes:
                classes[key] = PodClass(pod, Counter())
            classes[key].by_node[pod.node] += 1
    return classes


def updated_classes(before: PodClasses, removed: PodClasses, added: PodClasses) -> PodClasses:
    """Return the classes without the pods of *removed* and with the pods of *added*.

    Classes without pods are left out.
    """
    updated = dict(before)
    for key in {**removed, **added}:
        known = before.get(key) or added[key]
        by_node = updated_counts(
            *(
                classes[key].by_node if key in classes else NO_PODS
                for classes in (before, removed, added)
            )
        )
        if by_node:
            updated[key] = PodClass(known.example, by_node)
        else:
            updated.pop(key, None)
    return updated


def updated_counts(
    before: Mapping[Key_, int], removed: Mapping[Key_, int], added: Mapping[Key_, int]
) -> Counter[Key_]:
    """Return *before* minus *removed* plus *added*, by key.

    Keys with a count of 0 are left out.
    """
    counts = Counter(before)
    counts.update(added)
    counts.subtract(removed)
    return +counts


def count_long_lived_pods(classes: PodClasses, now: Now | None = None) -> Counter[str]:
    """Return the number of pods that rarely terminate by themselves, by node name.

    A node with fewer of them empties sooner. *now*: None means that no deadline has passed.
    """
    counts = Counter[str]()
    for example, by_node in classes.values():
        if long_lived_reasons((example,), now):
            counts.update(by_node)
    return counts


def occupied_nodes(nodes: Iterable[Node], classes: PodClasses, now: Now | None) -> frozenset[str]:
    """Return the names of the nodes that their autoscaler does not consider empty.

    *classes*: the classes of the pods of the cluster. *now*: None means that no deadline has
    passed.
    """
    # The first set is for nodes of Cluster Autoscaler, the second for nodes of Karpenter.
    names: tuple[set[str], set[str]] = set(), set()
    for node in nodes:
        names[KARPENTER_LABEL in node.labels].add(node.name)
    occupied = set[str]()
    for example, by_node in classes.values():
        for own, occupies in zip(names, (occupies_node, occupies_karpenter_node), strict=True):
            if own and occupies(example, now):
                occupied |= own & by_node.keys()
    return frozenset(occupied)
