"""Compute the pod deletion costs that other tools would write, to compare Ebb with them.

Sources: kubernetes/enhancements issue 5982 and pull request 6019; RankPods in the package
scaledownbinpack of Koordinator's descheduler, commit a7a1b76.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from fractions import Fraction

from core.model.pod import REPLICA_SET, Pod
from core.model.resources import Resources
from sim.cluster import Place


class ScaleInOrder(StrEnum):
    """The order in which the pod deletion costs of another tool let scale-ins empty nodes."""

    FEWEST_PODS = "KEP-5982"
    """Pods on nodes with fewer active pods are deleted first."""
    BIN_PACK = "ScaleDownBinPack"
    """Nodes are ranked by the requests of pods that no scale-in deletes, those of DaemonSets
    included, divided by the requests of the other pods. Pods of nodes with a lower quotient are
    deleted first."""


def deletion_costs(order: ScaleInOrder, places: Iterable[Place]) -> dict[str, int]:
    """Return the pod deletion costs that another tool would write to pods of ReplicaSets, by key.

    *places*: all nodes. The costs order the pods of one ReplicaSet by their nodes. These pods have
    equal requests, so the further rule of ScaleDownBinPack, larger pods of a node first, has no
    effect.
    """
    targets = [(place, pods_of_place) for place in places if (pods_of_place := _targets(place))]
    if order is ScaleInOrder.FEWEST_PODS:
        return {pod.key: len(place.pods) for place, pods in targets for pod in pods}
    targets.sort(key=lambda target: _bin_pack(*target))
    return {pod.key: rank for rank, (_, pods) in enumerate(targets) for pod in pods}


def _targets(place: Place) -> list[Pod]:
    return [pod for pod in place.pods.values() if pod.owner_kind == REPLICA_SET]


def _bin_pack(place: Place, targets: Sequence[Pod]) -> tuple[bool, Fraction, int, str]:
    total = place.node.allocatable
    by_scale_in = Resources.total(pod.requests for pod in targets)
    ours = _share(by_scale_in, total)
    others = _share(total - place.free - by_scale_in, total)
    # Nodes whose pods request nothing come last: a scale-in there frees no capacity.
    return not ours, others / ours if ours else others, len(targets), place.node.name


def _share(requests: Resources, total: Resources) -> Fraction:
    """Return requested CPU as a share of *total* (allocatable), plus the same for memory."""
    pairs = (
        (requests.cpu_millis, total.cpu_millis),
        (requests.memory_bytes, total.memory_bytes),
    )
    return sum((Fraction(part, whole) for part, whole in pairs if whole), Fraction())
