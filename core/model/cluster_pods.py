"""Keep the pods of a cluster sorted, and list the few pods that need a lookup.

Decoded pods are completed in steps: core.cluster.read_options, core.cluster.default_spread,
core.cluster.assumptions, and `build_cluster` (core.cluster.build). Most steps change only few
pods, such as pods with volumes or a nominated node (`is_special`). To search all pods for them in
each reconciliation takes a hundred times as long as to update a list of these pods with each
change of a pod.
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
"""Namespace, `id` of the node constraints, `id` of the constraints on other pods, and whether the
pod is a mirror pod."""


class SharedConstraints(NamedTuple):
    """Constraints that some pods of a namespace have in common.

    All of these pods are mirror pods, or none is.
    """

    namespace: str
    node_constraints: NodeConstraints
    pod_constraints: PodConstraints
    mirror: bool


@dataclass(frozen=True, slots=True)
class ClusterPods:
    """The pods of a cluster at one moment, sorted by namespace and name.

    With them are the pods that need a lookup, the constraints that pods share, and counts.
    """

    all: tuple[Pod, ...]
    special: Sequence[Pod]
    """The pods for which `is_special` was True when they were decoded, in the same order."""
    shared: Mapping[SharedKey, SharedConstraints]
    """The constraints of all pods; also those that changed pods had before the change."""
    counts: Mapping[str, int]
    """Number of pods by namespace, without namespaces that have none."""

    def replacing(self, changed: Mapping[int, Pod]) -> "ClusterPods":
        """Return a copy with *changed* pods in place of others; the same object if none changed.

        *changed*: new pods, by the `id` of the pods that they replace.
        """
        if not changed:
            return self
        # No step adds anything to a pod that a later step looks up. So no change makes a pod
        # special.
        return replace(
            self,
            all=tuple([changed.get(id(pod), pod) for pod in self.all]),
            special=[changed.get(id(pod), pod) for pod in self.special],
            shared={**self.shared, **{_shared_key(pod): _shared(pod) for pod in changed.values()}},
        )


Completed = Mapping[int, tuple[Pod, Pod]]
"""Decoded and completed pod, by the `id` of the decoded pod; only pods that were changed."""


def same_objects(
    pods: tuple[Pod, ...], completed: tuple[Pod, ...], before: Completed
) -> tuple[tuple[Pod, ...], Completed]:
    """Return the completed pods, and the value to pass as *before* to the next call.

    If a completed pod equals that of the previous call, the object of the previous call is
    returned. So callers can compare pods by identity.

    *pods*, *completed*: the pods before and after `build_cluster`, in the same order. *before*:
    the second value of the previous call; empty in the first call.
    """
    # Callers compare pods by identity from one reconciliation to the next.
    known: dict[int, tuple[Pod, Pod]] = {}
    if completed is pods:
        return completed, known
    reused = list(completed)
    for number in compress(count(), map(is_not, pods, completed)):
        pod, made = pods[number], completed[number]
        previous = before.get(id(pod))
        if previous is not None and previous[1] == made:
            made = reused[number] = previous[1]
        known[id(pod)] = pod, made
    return tuple(reused), known


class SortedPods:
    """The known pods, sorted by namespace and name, and updated with each change of a pod."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._pods = SortedObjects(BY_NAMESPACE_AND_NAME, pods)
        listed = self._pods.snapshot()
        self._special = SortedObjects(BY_NAMESPACE_AND_NAME, filter(is_special, listed))
        self._sharing: dict[SharedKey, int] = {}
        """Number of pods that share each entry of `_shared`."""
        self._shared: dict[SharedKey, SharedConstraints] = {}
        for pod in listed:
            self._count(pod)

    def update(self, before: Pod | None, after: Pod | None) -> None:
        """Add, replace or remove a pod.

        *before*: the known pod, or None to add a pod. *after*: the pod that replaces it, or None
        to remove the known pod.
        """
        self._pods.update(before, after)
        self._special.update(_if_special(before), _if_special(after))
        if after is not None:
            self._count(after)
        if before is not None:
            self._discount(before)

    def snapshot(self) -> ClusterPods:
        """Return the pods that are known now; later updates do not affect the result."""
        counts = Counter[str]()
        for key, pods in self._sharing.items():
            counts[key[0]] += pods
        return ClusterPods(
            self._pods.snapshot(), self._special.snapshot(), self._shared.copy(), counts
        )

    def _count(self, pod: Pod) -> None:
        key = _shared_key(pod)
        if key in self._sharing:
            self._sharing[key] += 1
        else:
            self._sharing[key] = 1
            # This value refers to the constraints. So Python gives no other object an `id` that
            # is in the key.
            self._shared[key] = _shared(pod)

    def _discount(self, pod: Pod) -> None:
        key = _shared_key(pod)
        self._sharing[key] -= 1
        if not self._sharing[key]:
            del self._sharing[key], self._shared[key]


def is_special(pod: Pod) -> bool:
    """Return whether the pod has something to look up, such as a volume or a nominated node.

    Every step that completes pods may change such a pod. The steps change other pods only because
    of a setting, the operating systems of the nodes, or the evaluation budget of the namespace
    (core.cluster.tenant_limits).
    """
    pod_constraints, disruption_facts = pod.pod_constraints, pod.disruption_facts
    return bool(
        pod.unsupported
        or pod.nominated_node
        or pod.requests.extended
        or pod.scheduler != DEFAULT_SCHEDULER
        or (
            disruption_facts is not NO_DISRUPTION_FACTS
            and (disruption_facts.claims or disruption_facts.disks)
        )
        or (pod_constraints is not NO_POD_CONSTRAINTS and chooses_namespaces(pod_constraints))
    )


def chooses_namespaces(pod_constraints: PodConstraints) -> bool:
    """Return whether a pod affinity or anti-affinity term selects pods by labels of namespaces.

    False if the namespaces have been looked up already.
    """
    return any(term.chosen for term in (*pod_constraints.near, *pod_constraints.apart))


def _if_special(pod: Pod | None) -> Pod | None:
    return pod if pod is not None and is_special(pod) else None


def _shared_key(pod: Pod) -> SharedKey:
    return pod.namespace, id(pod.node_constraints), id(pod.pod_constraints), pod.mirror


def _shared(pod: Pod) -> SharedConstraints:
    return SharedConstraints(pod.namespace, pod.node_constraints, pod.pod_constraints, pod.mirror)
