"""CapacityBuffers: room that somebody has asked autoscalers to keep, and for which pods.

What counts is what the controller of the autoscaler has written into the status: it has found the
pods' template, worked out how many there are to be, and held them to quotas.
Source: the API autoscaling.x-k8s.io, and what Cluster Autoscaler and Karpenter do with it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from core.model.constraints import without_volumes
from core.model.pod import TEMPLATE_LABEL, Pod
from core.model.workload import REPLICA_SET

BUFFER: Final = "CapacityBuffer"
"""What owns the pods that a buffer stands for; nothing else of that name owns any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A CapacityBuffer."""

    namespace: str
    name: str
    replicas: int = 0
    """Pods that room is to be kept for."""
    template: str = ""
    """The PodTemplate of its namespace that they are made of; empty: see `scalable`."""
    scalable: tuple[str, str] | None = None
    """Kind and name of the workload whose pods they are like, where no template is named."""
    fault: str = ""
    """Why no room is kept for it; empty: room is kept."""
    pod: Pod | None = None
    """One of them, once it has been looked up; what it asks of other pods is left out."""
    published: int | None = None
    """For how many pods Ebb asks in it; None: it does not bear Ebb's label. Nobody keeps room for
    one that does: what it tells others, Ebb has from itself."""

    @property
    def key(self) -> str:
        """Return namespace/name, unique in a cluster."""
        return f"{self.namespace}/{self.name}"

    @property
    def accepted(self) -> int:
        """Return for how many of the pods that Ebb asks for an autoscaler keeps room."""
        return 0 if self.fault or self.published is None else min(self.replicas, self.published)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """A PodTemplate."""

    namespace: str
    name: str
    pod: Pod
    """What its pods ask for."""

    @property
    def key(self) -> str:
        """Return namespace/name, unique in a cluster."""
        return f"{self.namespace}/{self.name}"


def looked_up(
    buffers: Iterable[Buffer], templates: Iterable[PodTemplate], pods: Iterable[Pod]
) -> tuple[Buffer, ...]:
    """Return the buffers by namespace and name, with the pods that they stand for."""
    ordered = sorted(buffers, key=lambda one: (one.namespace, one.name))
    if not ordered:
        return ()
    known = {one.key: one.pod for one in templates}
    wanted = {(one.namespace, *one.scalable) for one in ordered if one.scalable}
    likes = _likes(pods, wanted) if wanted else {}
    return tuple(_looked_up(one, known, likes) for one in ordered)


Workload = tuple[str, str, str]
"""Namespace, kind, name."""


def _looked_up(
    buffer: Buffer, templates: Mapping[str, Pod], likes: Mapping[Workload, Pod]
) -> Buffer:
    if buffer.fault or buffer.published is not None:
        return buffer
    if buffer.template:
        found = templates.get(f"{buffer.namespace}/{buffer.template}")
        what = f"PodTemplate {buffer.template}"
    elif buffer.scalable:
        found = likes.get((buffer.namespace, *buffer.scalable))
        what = f"a pod of {' '.join(buffer.scalable)}"
    else:
        return replace(buffer, fault="it names no pods")
    if found is None:
        return replace(buffer, fault=f"{what} is not known")
    if found.too_much or found.unreadable:
        return replace(buffer, fault=f"{what}: {found.too_much or found.unreadable}")
    # Of no namespace: nobody's selector is about a pod that does not exist.
    like = Pod(
        namespace="",
        name=buffer.key,
        requests=found.requests,
        placing=without_volumes(found.placing),
        owner_kind=BUFFER,
        owner_name=buffer.key,
    )
    return replace(buffer, pod=like)


def _likes(pods: Iterable[Pod], wanted: set[Workload]) -> dict[Workload, Pod]:
    """Return a pod of each workload: the first by name among those that ask for most CPU.

    A Deployment is that of the ReplicaSets which bear its name before the template's hash.
    """
    found: dict[Workload, Pod] = {}
    for pod in pods:
        for workload in _workloads(pod):
            if workload in wanted:
                best = found.get(workload)
                if best is None or _rank(pod) < _rank(best):
                    found[workload] = pod
    return found


def _workloads(pod: Pod) -> Iterable[Workload]:
    yield pod.namespace, pod.owner_kind, pod.owner_name
    if pod.owner_kind == REPLICA_SET and (hashed := pod.labels.get(TEMPLATE_LABEL)):
        yield pod.namespace, "Deployment", pod.owner_name.removesuffix(f"-{hashed}")


def _rank(pod: Pod) -> tuple[int, int, str]:
    return -pod.requests.cpu_millis, -pod.requests.memory_bytes, pod.name
