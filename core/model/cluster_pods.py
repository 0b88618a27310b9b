"""The pods of a cluster, with the few that `build_cluster` and the steps before it look at.

These steps change few pods, such as pods with volumes or a nominated node. To search all pods in
each reconciliation takes a hundred times as long as to update a list of these few with each change
of a pod.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, count
from operator import is_not
from typing import NamedTuple

from core.model.constraints import (
    NO_DISRUPTION_FACTS,
    NO_POD_CONSTRAINTS,
    NodeConstraints,
    PodConstraints,
)
from core.model.pod import DEFAULT_SCHEDULER, Pod
from core.model.sorted_objects import BY_NAMESPACE_AND_NAME, SortedObjects

SharedKey = tuple[str, int, int, bool]
"""Namespace, `id` of the node constraints, `id` of the pod constraints, whether the pod is a
mirror pod."""


class SharedConstraints(NamedTuple):
    """Constraints that pods of a namespace share."""

    namespace: str
    placing: NodeConstraints
    company: PodConstraints
    mirror: bool


@dataclass(frozen=True, slots=True)
class ClusterPods:
    """The pods of a cluster at one moment, by namespace and name."""

    all: tuple[Pod, ...]
    special: Sequence[Pod]
    """The pods for which `is_special` was true when they were decoded, in the same order."""
    shared: Mapping[SharedKey, SharedConstraints]
    """The constraints of all pods, and those that other versions of the pods had."""
    number: Mapping[str, int]
    """Number of pods by namespace, without namespaces that have none."""

    def replacing(self, changed: Mapping[int, Pod]) -> "ClusterPods":
        """Return the pods with other versions of some of them, by the `id` of the pod here."""
        if not changed:
            return self
        # No step adds anything to a pod that a later step looks up, so no other pod
        # becomes special.
        return replace(
            self,
            all=tuple([changed.get(id(pod), pod) for pod in self.all]),
            special=[changed.get(id(pod), pod) for pod in self.special],
            shared={**self.shared, **{_shared_key(pod): _shared(pod) for pod in changed.values()}},
        )


Completed = Mapping[int, tuple[Pod, Pod]]
"""Pods before and after `build_cluster` has completed them, by the `id` of the former."""


def same_objects(
    pods: tuple[Pod, ...], completed: tuple[Pod, ...], before: Completed
) -> tuple[tuple[Pod, ...], Completed]:
    """Return the completed pods, as the same objects as in the last call where they are equal.

    Callers compare pods by identity from one reconciliation to the next.
    *completed*: other versions of *pods*, in the same order. *before*: the second value of the
    last call.
    """
    known: dict[int, tuple[Pod, Pod]] = {}
    if completed is pods:
        return completed, known
    found = list(completed)
    for number in compress(count(), map(is_not, pods, completed)):
        pod, now = pods[number], completed[number]
        then = before.get(id(pod))
        if then is not None and then[1] == now:
            now = found[number] = then[1]
        known[id(pod)] = pod, now
    return tuple(found), known


class SortedPods:
    """The known pods by namespace and name, updated with each change."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._pods = SortedObjects(BY_NAMESPACE_AND_NAME, pods)
        listed = self._pods.snapshot()
        self._special = SortedObjects(BY_NAMESPACE_AND_NAME, filter(is_special, listed))
        self._users: dict[SharedKey, int] = {}
        """Number of pods with each of the shared constraints."""
        self._shared: dict[SharedKey, SharedConstraints] = {}
        for pod in listed:
            self._count(pod)

    def update(self, before: Pod | None, after: Pod | None) -> None:
        """Replace a pod; None: there was or is no pod."""
        self._pods.update(before, after)
        self._special.update(_if_special(before), _if_special(after))
        if after is not None:
            self._count(after)
        if before is not None:
            self._discount(before)

    def snapshot(self) -> ClusterPods:
        """Return the pods as they are now."""
        number = Counter[str]()
        for key, users in self._users.items():
            number[key[0]] += users
        return ClusterPods(
            self._pods.snapshot(), self._special.snapshot(), self._shared.copy(), number
        )

    def _count(self, pod: Pod) -> None:
        key = _shared_key(pod)
        if key in self._users:
            self._users[key] += 1
        else:
            self._users[key] = 1
            # It refers to the constraints, so an `id` in the key is not used again.
            self._shared[key] = _shared(pod)

    def _discount(self, pod: Pod) -> None:
        key = _shared_key(pod)
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key], self._shared[key]


def is_special(pod: Pod) -> bool:
    """Return whether the pod has something to look up, such as a volume or a nominated node.

    A Cluster can have another version of such a pod. Of any other pod it has another version only
    if a setting, the operating systems of the nodes or the evaluation budget say so.
    """
    company, ties = pod.company, pod.ties
    return bool(
        pod.unsupported
        or pod.nominated_node
        or pod.requests.extended
        or pod.scheduler != DEFAULT_SCHEDULER
        or (ties is not NO_DISRUPTION_FACTS and (ties.claims or ties.disks))
        or (company is not NO_POD_CONSTRAINTS and chooses_namespaces(company))
    )


def chooses_namespaces(company: PodConstraints) -> bool:
    """Return whether a term selects pods by the labels of their namespace."""
    return any(term.chosen for term in (*company.near, *company.apart))


def _if_special(pod: Pod | None) -> Pod | None:
    return pod if pod is not None and is_special(pod) else None


def _shared_key(pod: Pod) -> SharedKey:
    return pod.namespace, id(pod.placing), id(pod.company), pod.mirror


def _shared(pod: Pod) -> SharedConstraints:
    return SharedConstraints(pod.namespace, pod.placing, pod.company, pod.mirror)
