"""Decode the fields of a Pod that decide whether it may be disrupted, such as volumes."""

import re
from collections.abc import Mapping, Sequence
from sys import intern
from typing import Final

import msgspec

from core.eligibility.drainability import NOTES
from core.marks.wellknown import REMOVAL_DISABLED
from core.model.constraints import NO_DISRUPTION_FACTS, ClaimUse, DisruptionFacts, InlineDisk
from kube.decode.byte_lru import ByteBoundedCache
from kube.decode.field_decoding import NAME_MAX, unix_seconds
from kube.decode.in_tree import disk_of, mount_of
from kube.decode.objects import (
    NO_ANNOTATIONS,
    Condition,
    PodAnnotations,
    PodObject,
    PodSpec,
    Volume,
)
from kube.decode.pod_limits import VOLUMES_MAX
from kube.decode.requests import Containers

NOTE_CHARS_MAX: Final = 1024
"""Maximum length of an annotation that is kept with the pod; the rest is cut."""
_SAME: Final = ByteBoundedCache[tuple[tuple[str, ...], bool], DisruptionFacts]()
"""Shared objects for pods with no other facts than local volumes and running to completion."""
Notes = tuple[tuple[str, str], ...]
"""Annotations by key, sorted."""
GANG_LABELS: Final = frozenset(
    {
        "scheduling.x-k8s.io/pod-group",  # coscheduling of scheduler-plugins, and Koordinator
        "pod-group.scheduling.sigs.k8s.io",  # coscheduling before
        "pod-group.scheduling.sigs.k8s.io/name",  # lightweight coscheduling, and Koordinator
        "grove.io/podgang",
    }
)
"""Labels that name the group of pods with which a pod is scheduled.

The annotations that do so are the fields `gang_*` of PodAnnotations. Sources: PodGroupLabel of
kubernetes-sigs/scheduler-plugins, GetGangName of koordinator-sh/koordinator, api/common/constants
of ai-dynamo/grove, labels.go of volcano-sh/apis, task groups of apache/yunikorn-k8shim."""
LEADER_WORKER_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
LEADER_WORKER_SET: Final = "leaderworkerset.sigs.k8s.io/name"
"""Labels of a LeaderWorkerSet's pods, which are recreated together; a set has groups of one
size."""
_GROUP_LABELS: Final = GANG_LABELS | {LEADER_WORKER_GROUP}
ALONE: Final = "1"
AUTOMATIC_GROUP: Final = re.compile(r"podgroup-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Name of the group that Volcano creates for the pods of each controller; one pod suffices."""
DEFERRED: Final = "Deferred"
"""Reason of the condition PodResizePending if the kubelet retries when the node has room."""
COMPLETING: Final = frozenset({"Never", "OnFailure"})
"""Restart policies under which the kubelet does not restart a container that has succeeded."""
IN_MEMORY: Final = "Memory"
GRACE_SECONDS: Final = 30
"""Default of terminationGracePeriodSeconds."""
OVERDUE_SECONDS: Final = 30
"""Time after the grace period from which Cluster Autoscaler ignores a pod (LongTerminating)."""


def disruption_facts_of(
    obj: PodObject,
    containers: Containers,
    volumes: Sequence[Volume],
    annotations: PodAnnotations,
    labels: Mapping[str, str],
    resizes: Sequence[Condition],
) -> DisruptionFacts:
    """Return the fields of a Pod that decide whether it may be disrupted.

    The fields are its claims, disks, local volumes and annotations, its pod group, a deferred
    resize, and whether and when it ends. *volumes*: volumes of the pod; volumes beyond VOLUMES_MAX
    are ignored. *annotations*: those of the pod, or NO_ANNOTATIONS itself if it has none that Ebb
    reads. *resizes*: the pod's conditions PodResizePending.
    """
    claims: list[ClaimUse] = []
    local: list[str] = []
    disks: list[InlineDisk] = []
    for volume in volumes[:VOLUMES_MAX]:
        if volume.empty_dir is not None:
            if volume.empty_dir.medium != IN_MEMORY:
                local.append(volume.name)
        elif volume.persistent_volume_claim is not None:
            claims.append(ClaimUse(volume.persistent_volume_claim.claim_name))
        elif volume.host_path is not None:
            local.append(volume.name)
        elif volume.ephemeral is not None:
            claims.append(ClaimUse(f"{obj.metadata.name}-{volume.name}", ephemeral=True))
        elif (disk := disk_of(volume) or mount_of(volume)) is not None:
            disks.append(disk)
    notes = _notes(annotations, labels)
    shared = _shared_facts(tuple(local), completes=_completes(obj.spec, containers))
    # KEP-1287
    resized = bool(resizes) and any(
        resize.reason == DEFERRED and resize.status == "True" for resize in resizes
    )
    gang = _gang(obj.spec, annotations, labels)
    if not (claims or disks or notes or resized or gang or obj.metadata.deletion_timestamp):
        return shared
    return DisruptionFacts(
        claims=tuple(sorted(set(claims))),
        disks=tuple(sorted(set(disks))),
        local_volumes=shared.local_volumes,
        notes=notes,
        started_seconds=unix_seconds(obj.status.start_time) if notes and obj.status else None,
        overdue_seconds=_overdue(obj),
        gang=gang,
        resize_deferred=resized,
        completes=shared.completes,
    )


def _gang(spec: PodSpec, annotations: PodAnnotations, labels: Mapping[str, str]) -> str:
    """Return the name of the group of pods that are scheduled together; empty if there is none."""
    if spec.scheduling_group is not None:
        return (spec.scheduling_group.pod_group_name or "")[:NAME_MAX]
    ref = spec.workload_ref
    if ref is not None and ref.name:
        parts = (ref.name, ref.pod_group, ref.pod_group_replica_key)
        return "/".join(part[:NAME_MAX] for part in parts if part)
    if annotations is NO_ANNOTATIONS and _GROUP_LABELS.isdisjoint(labels):
        return ""
    names = [labels[key] for key in sorted(GANG_LABELS.intersection(labels))]
    if (index := labels.get(LEADER_WORKER_GROUP)) and annotations.leader_worker_size != ALONE:
        names.append(f"{labels.get(LEADER_WORKER_SET, '')}-{index}")
    names += (name for name in annotations.gangs if name and not AUTOMATIC_GROUP.fullmatch(name))
    return next((name[:NAME_MAX] for name in names if name), "")


def _completes(spec: PodSpec, containers: Containers) -> bool:
    """Return whether the pod ends when its containers have succeeded.

    False if one of them has the restart policy Always, which is the default.
    """
    # A container's own restartPolicy replaces the pod's (KEP-5307). Sidecars (init containers
    # with restartPolicy: Always) end with the other containers, so they do not count.
    for _, own, _ in containers.main:
        if (own or spec.restart_policy) not in COMPLETING:
            return False
    return bool(containers.main)


def _shared_facts(volumes: tuple[str, ...], *, completes: bool) -> DisruptionFacts:
    if not (volumes or completes):
        return NO_DISRUPTION_FACTS
    key = volumes, completes
    return _SAME[key] or _SAME.compute(
        key,
        lambda: DisruptionFacts(
            local_volumes=tuple(sorted(map(intern, volumes))), completes=completes
        ),
    )


def _notes(annotations: PodAnnotations, labels: Mapping[str, str]) -> Notes:
    if annotations is NO_ANNOTATIONS and REMOVAL_DISABLED not in labels:
        return ()
    written: dict[str, str | None] = msgspec.to_builtins(annotations)
    if annotations.removal_disabled is None:
        written[REMOVAL_DISABLED] = labels.get(REMOVAL_DISABLED)
    # A note that is no field of the struct raises KeyError, so that none is forgotten.
    notes = ((key, value) for key in sorted(NOTES) if (value := written[key]) is not None)
    return tuple((key, value[:NOTE_CHARS_MAX]) for key, value in notes)


def _overdue(obj: PodObject) -> int | None:
    """Return the Unix second by which a terminating pod should have ended; None for other pods."""
    since = unix_seconds(obj.metadata.deletion_timestamp)
    if since is None:
        return None
    grace = obj.spec.termination_grace_period_seconds
    return since + (GRACE_SECONDS if grace is None else grace) + OVERDUE_SECONDS
