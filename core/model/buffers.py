"""CapacityBuffers: room for pods that users ask the autoscaler to keep free.

Ebb reads the status that the autoscaler's controller writes. That controller has resolved the pod
template, computed the number of replicas, and applied quotas. A placeholder pod stands for the
pods of a buffer when Ebb looks for room. Source: the API autoscaling.x-k8s.io, and its use in
Cluster Autoscaler and Karpenter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from core.model.constraints import without_volumes
from core.model.pod import REPLICA_SET, Pod

BUFFER: Final = "CapacityBuffer"
"""Owner kind of the placeholder pods of a buffer; no other pods have this owner kind."""
_WorkloadKey = tuple[str, str, str]
"""Namespace, kind and name of a workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A CapacityBuffer: a number of pods, and a placeholder pod that shows what room they need."""

    namespace: str
    name: str
    replicas: int = 0
    """Number of pods for which the buffer keeps room."""
    ready: int = 0
    """Number of pods for which the autoscaler reports room (Cluster Autoscaler from 1.37)."""
    template: str = ""
    """PodTemplate in the buffer's namespace that describes the pods; empty if `scalable` is
    set."""
    scalable: tuple[str, str] | None = None
    """Kind and name of a workload whose pods the buffer copies, if it names no template."""
    fault: str = ""
    """Why Ebb keeps no room for the buffer; empty if it does."""
    pod: Pod | None = None
    """A placeholder pod of the buffer, set by `with_placeholders`; without constraints on other
    pods. None: Ebb keeps no room for the buffer, or the buffer is Ebb's own."""
    published: int | None = None
    """Number of pods in a buffer that Ebb itself has written; None for buffers of others.

    Ebb keeps no room for its own buffers: the reserve already keeps room for these pods."""

    @property
    def key(self) -> str:
        """Return namespace/name, unique in a cluster."""
        return f"{self.namespace}/{self.name}"

    @property
    def accepted(self) -> int:
        """Return how many pods of a CapacityBuffer that Ebb wrote the autoscaler has accepted.

        0 if the buffer has a fault, or if somebody else wrote it.
        """
        return 0 if self.fault or self.published is None else min(self.replicas, self.published)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """A PodTemplate to which CapacityBuffers refer, with a Pod made from it."""

    namespace: str
    name: str
    pod: Pod
    """A pod with the requests and constraints of the template."""

    @property
    def key(self) -> str:
        """Return namespace/name, unique in a cluster."""
        return f"{self.namespace}/{self.name}"


def with_placeholders(
    buffers: Iterable[Buffer], templates: Iterable[PodTemplate], pods: Iterable[Pod]
) -> tuple[Buffer, ...]:
    """Return the CapacityBuffers by namespace and name, each with a placeholder pod or a fault.

    The placeholder has the requests and node constraints of the buffer's PodTemplate, or of a pod
    of its workload. If there is neither, `fault` says why. Buffers that Ebb wrote are unchanged.

    *pods*: the pods of the cluster, among which the pods of the workloads are found.
    """
    ordered = sorted(buffers, key=lambda buffer: (buffer.namespace, buffer.name))
    if not ordered:
        return ()
    known = {template.key: template.pod for template in templates}
    wanted = {(buffer.namespace, *buffer.scalable) for buffer in ordered if buffer.scalable}
    examples = _examples(pods, wanted) if wanted else {}
    return tuple(_with_placeholder(buffer, known, examples) for buffer in ordered)


def _with_placeholder(
    buffer: Buffer, templates: Mapping[str, Pod], examples: Mapping[_WorkloadKey, Pod]
) -> Buffer:
    if buffer.fault or buffer.published is not None:
        return buffer
    if buffer.template:
        example = templates.get(f"{buffer.namespace}/{buffer.template}")
        source = f"PodTemplate {buffer.template}"
    elif buffer.scalable:
        example = examples.get((buffer.namespace, *buffer.scalable))
        source = f"a pod of {' '.join(buffer.scalable)}"
    else:
        return replace(buffer, fault="the buffer names neither a PodTemplate nor a workload")
    if example is None:
        return replace(buffer, fault=f"{source} was not found")
    if example.too_much or example.unreadable:
        return replace(buffer, fault=f"{source}: {example.too_much or example.unreadable}")
    placeholder = Pod(
        # No namespace: the pod selectors of other pods must not select a placeholder.
        namespace="",
        name=buffer.key,
        requests=example.requests,
        node_constraints=without_volumes(example.node_constraints),
        owner_kind=BUFFER,
        owner_name=buffer.key,
    )
    return replace(buffer, pod=placeholder)


def _examples(pods: Iterable[Pod], wanted: set[_WorkloadKey]) -> dict[_WorkloadKey, Pod]:
    """Return the pod with the largest CPU request of each wanted workload, by workload.

    If several have the same request, memory decides, then the name. Workloads without pods are
    absent.
    """
    examples: dict[_WorkloadKey, Pod] = {}
    for pod in pods:
        for workload in _workloads(pod):
            if workload in wanted:
                best = examples.get(workload)
                if best is None or _rank(pod) < _rank(best):
                    examples[workload] = pod
    return examples


def _workloads(pod: Pod) -> Iterable[_WorkloadKey]:
    yield pod.namespace, pod.owner_kind, pod.owner_name
    # The name of a ReplicaSet is that of its Deployment with the template hash.
    if pod.owner_kind == REPLICA_SET and (hashed := pod.template_hash):
        yield pod.namespace, "Deployment", pod.owner_name.removesuffix(f"-{hashed}")


def _rank(pod: Pod) -> tuple[int, int, str]:
    return -pod.requests.cpu_millis, -pod.requests.memory_bytes, pod.name
