"""Decode facts about the disruption of a pod from its volumes and annotations."""

from collections.abc import Sequence
from sys import intern
from typing import Final

from core.edge.decode.byte_lru import ByteBoundedCache
from core.edge.decode.fields import unix_seconds
from core.edge.decode.objects import NO_ANNOTATIONS, PodAnnotations, PodObject, Volume
from core.edge.decode.pod_limits import VOLUMES_MAX
from core.guards.drainability import (
    DO_NOT_DISRUPT,
    PREFER_NO_EVICTION,
    SAFE_TO_EVICT,
    SAFE_VOLUMES,
)
from core.model.constraints import NO_DISRUPTION_FACTS, ClaimUse, DisruptionFacts

NOTE_CHARS_MAX: Final = 1024
"""Maximum length of an annotation that is kept with the pod; the rest is cut."""
_SAME: Final = ByteBoundedCache[tuple[str, ...], DisruptionFacts]()
"""Shared facts of pods that have neither claims nor times."""
IN_MEMORY: Final = "Memory"
GRACE_SECONDS: Final = 30
"""Default of the API server for the grace period."""
OVERDUE_SECONDS: Final = 30
"""Time after the grace period for which Cluster Autoscaler counts a pod (LongTerminating)."""


def disruption_facts_of(obj: PodObject, volumes: Sequence[Volume]) -> tuple[DisruptionFacts, bool]:
    """Return the facts of a pod, and whether it has an inline disk; excess volumes are ignored."""
    claims: list[ClaimUse] = []
    local: list[str] = []
    inline = False
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
        elif _is_disk(volume):
            inline = True
    notes = _notes(obj.metadata.annotations or NO_ANNOTATIONS)
    if not (claims or notes or obj.metadata.deletion_timestamp):
        return _of_data(tuple(local)), inline
    ties = DisruptionFacts(
        claims=tuple(sorted(set(claims))),
        local_volumes=_of_data(tuple(local)).local_volumes,
        notes=notes,
        started_seconds=unix_seconds(obj.status.start_time) if notes and obj.status else None,
        overdue_seconds=_overdue(obj),
    )
    return ties, inline


def _is_disk(volume: Volume) -> bool:
    """Return whether kube-scheduler's volume plugins check a volume that is not a claim."""
    return bool(
        volume.gce_persistent_disk
        or volume.aws_elastic_block_store
        or volume.azure_disk
        or volume.cinder
        or volume.iscsi
        or volume.portworx_volume
        or volume.rbd
    )


def _of_data(volumes: tuple[str, ...]) -> DisruptionFacts:
    """Return one shared object for all pods with local data in volumes of these names."""
    if not volumes:
        return NO_DISRUPTION_FACTS
    return _SAME[volumes] or _SAME.made(
        volumes, lambda: DisruptionFacts(local_volumes=tuple(sorted(map(intern, volumes))))
    )


def _notes(found: PodAnnotations) -> tuple[tuple[str, str], ...]:
    if found is NO_ANNOTATIONS:
        return ()
    notes = (
        (SAFE_TO_EVICT, found.safe_to_evict),
        (SAFE_VOLUMES, found.safe_volumes),
        (DO_NOT_DISRUPT, found.do_not_disrupt),
        (PREFER_NO_EVICTION, found.prefer_no_eviction),
    )
    return tuple(
        sorted([(key, value[:NOTE_CHARS_MAX]) for key, value in notes if value is not None])
    )


def _overdue(obj: PodObject) -> int | None:
    """Return the Unix second by which a terminating pod should have ended."""
    since = unix_seconds(obj.metadata.deletion_timestamp)
    if since is None:
        return None
    grace = obj.spec.termination_grace_period_seconds
    return since + (GRACE_SECONDS if grace is None else grace) + OVERDUE_SECONDS
