"""CapacityBuffers: room for pods that users ask the autoscaler to keep free.

Ebb reads the status that the autoscaler's controller writes. That controller has resolved the pod
template, computed the number of replicas, and applied quotas. Source: the API
autoscaling.x-k8s.io, and its use in Cluster Autoscaler and Karpenter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from core.model.constraints import without_volumes
from core.model.pod import REPLICA_SET, TEMPLATE_LABEL, Pod

BUFFER: Final = "CapacityBuffer"
"""Owner kind of the placeholder pods of a buffer; no other pods have this owner kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A CapacityBuffer."""

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
    """A placeholder pod of the buffer, set by `looked_up`; without constraints on other pods."""
    published: int | None = None
    """Number of pods in a buffer that Ebb itself has written; None for buffers of others.

    Ebb keeps no room for its own buffers: the reserve already keeps room for these pods."""

    @property
    def key(self) -> str:
        """Return namespace/name, unique in a cluster."""
        return f"{self.namespace}/{self.name}"

    @property
    def accepted(self) -> int:
        """Return the number of pods of Ebb's own buffer that an autoscaler has accepted."""
        return 0 if self.fault or self.published is None else min(self.replicas, self.published)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """A PodTemplate."""

    namespace: str
    name: str
    pod: Pod
    """A pod with the requests and constraints of the template."""

    @property
    def key(self) -> str:
        """Return namespace/name, unique in a cluster."""
        return f"{self.namespace}/{self.name}"


def looked_up(
    buffers: Iterable[Buffer], templates: Iterable[PodTemplate], pods: Iterable[Pod]
) -> tuple[Buffer, ...]:
    """Return the buffers with their placeholder pods, sorted by namespace and name."""
    ordered = sorted(buffers, key=lambda buffer: (buffer.namespace, buffer.name))
    if not ordered:
        return ()
    known = {template.key: template.pod for template in templates}
    wanted = {(buffer.namespace, *buffer.scalable) for buffer in ordered if buffer.scalable}
    examples = _examples(pods, wanted) if wanted else {}
    return tuple(_looked_up(buffer, known, examples) for buffer in ordered)


Workload = tuple[str, str, str]
"""Namespace, kind and name."""


def _looked_up(
    buffer: Buffer, templates: Mapping[str, Pod], examples: Mapping[Workload, Pod]
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
        return replace(buffer, fault="it names neither a PodTemplate nor a workload")
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


def _examples(pods: Iterable[Pod], wanted: set[Workload]) -> dict[Workload, Pod]:
    """Return the pod with the largest CPU request of each wanted workload.

    If several have the same request, memory decides, then the name. The name of a ReplicaSet's
    Deployment is its own name without the template hash.
    """
    examples: dict[Workload, Pod] = {}
    for pod in pods:
        for workload in _workloads(pod):
            if workload in wanted:
                best = examples.get(workload)
                if best is None or _rank(pod) < _rank(best):
                    examples[workload] = pod
    return examples


def _workloads(pod: Pod) -> Iterable[Workload]:
    yield pod.namespace, pod.owner_kind, pod.owner_name
    if pod.owner_kind == REPLICA_SET and (hashed := pod.labels.get(TEMPLATE_LABEL)):
        yield pod.namespace, "Deployment", pod.owner_name.removesuffix(f"-{hashed}")


def _rank(pod: Pod) -> tuple[int, int, str]:
    return -pod.requests.cpu_millis, -pod.requests.memory_bytes, pod.name
