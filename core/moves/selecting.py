"""Find the objects of a namespace because of which a pod must not lose its label for a while.

A move takes the label pod-template-hash from a pod. Any other controller whose selector matches
the pod then adopts it, and deletes it or one of its own pods as one too many: controller
references had protected them before. It can also adopt the pod when the label is given back. And
an object that selects by the hash would not see the pod during a move.

StatefulSets and Jobs adopt only pods that they have named. Source: ControllerRefManager of
kube-controller-manager.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from core.model.constraints import PodSelector
from core.model.pod import TEMPLATE_LABEL, Pod
from core.model.reason import Blocker
from core.moves.reasons import HASH_SELECTED, OTHER_CONTROLLER
from core.placement.matching import selects


class SelectingObject(NamedTuple):
    """An object of a namespace that selects pods of the namespace by their labels."""

    kind: str
    name: str
    selectors: tuple[PodSelector, ...]
    """Its selectors; a NetworkPolicy can have several."""


class SelectingObjects(NamedTuple):
    """The objects of one namespace that select pods."""

    controllers: tuple[SelectingObject, ...] = ()
    """ReplicaSets, ReplicationControllers and DaemonSets, also those without pods."""
    observers: tuple[SelectingObject, ...] = ()
    """Services, PodDisruptionBudgets and NetworkPolicies."""


def selecting_blockers(pod: Pod, objects: SelectingObjects) -> Iterator[Blocker]:
    """Yield why the pod must not lose its label pod-template-hash; nothing if it may."""
    labels = {key: value for key, value in pod.labels.items() if key != TEMPLATE_LABEL}
    without = replace(pod, labels=labels)
    for one in objects.controllers:
        own = (one.kind, one.name) == (pod.owner_kind, pod.owner_name)
        if not own and any(selects(to, pod) or selects(to, without) for to in one.selectors):
            message = f"{one.kind} {one.name} selects the pod too, and would adopt it"
            yield Blocker(OTHER_CONTROLLER, message, pod.key, one.name)
    for one in objects.observers:
        if any(selects(to, pod) != selects(to, without) for to in one.selectors):
            message = f"{one.kind} {one.name} selects on the label {TEMPLATE_LABEL}"
            yield Blocker(HASH_SELECTED, message, pod.key, one.name)
