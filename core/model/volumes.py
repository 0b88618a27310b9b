"""What stands behind the claims of pods: bound volumes, whence they are reached, who attaches.

Pods name claims, claims name volumes, volumes name nodes. `cluster_of` looks all that up once, so
that the filters find it on the pod: Placing.volumes (VolumeBinding and VolumeZone), and
Company.sole and Company.disks (VolumeRestrictions and NodeVolumeLimits). What cannot be looked up
leaves the pod as it was, not movable, with the reason.
Source: the four plugins of kube-scheduler, their filters. Two cases are decided more strictly than
there, because the pod would be bound and never start: a node whose CSINode lacks the driver takes
none of its volumes, and a ReadWriteOnce claim that several pods share moves none of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from core.model.allowance import within_budget
from core.model.buffers import Buffer, PodTemplate, looked_up
from core.model.cluster import Cluster, DaemonSet, DisruptionBudget
from core.model.constraints import (
    ANY_DRIVER,
    EVERYWHERE,
    NO_POD_CONSTRAINTS,
    ClaimUse,
    Disk,
    NodeConstraints,
    PodConstraints,
    VolumeTopology,
)
from core.model.devices import offered, without_claimed
from core.model.node import Node
from core.model.pod import Pod

CLAIMS_FIELD: Final = "spec.volumes[*].persistentVolumeClaim"
"""In Pod.unsupported: claims that are not looked up, or not known well enough."""
VOLUMES_FIELD: Final = "spec.volumes"
"""In Pod.unsupported: disks that stand in the pod itself."""
SOLE_MODE: Final = "ReadWriteOncePod"
ONE_NODE_MODES: Final = frozenset({"ReadWriteOnce", SOLE_MODE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    volume: str = ""
    """The PersistentVolume that it is bound to, for good; empty: none yet."""
    modes: tuple[str, ...] = ()
    """Access modes, as they are written."""
    deleting: bool = False
    owner_uid: str = ""
    """Of the controlling owner: the pod, if the claim was made for an ephemeral volume."""

    @property
    def key(self) -> str:
        """Return namespace/name, unique in a cluster."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A PersistentVolume."""

    name: str
    disk: Disk | None = None
    """What is attached to a node; None: nothing is, or nothing that is counted."""
    reach: VolumeTopology = EVERYWHERE
    fault: str = ""
    """Why it cannot be evaluated; empty: it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiNode:
    """A CSINode: the drivers on the node of that name."""

    name: str
    limits: Mapping[str, int | None] = field(default_factory=dict, hash=False)
    """By driver: volumes it takes at the same time; None: any number."""


def build_cluster(  # noqa: PLR0913 one for each kind of the API
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    budgets: Iterable[DisruptionBudget] = (),
    claims: Iterable[Claim] = (),
    volumes: Iterable[Volume] = (),
    csi_nodes: Iterable[CsiNode] = (),
    *,
    buffers: Iterable[Buffer] = (),
    templates: Iterable[PodTemplate] = (),
    daemon_sets: Iterable[DaemonSet] = (),
) -> Cluster:
    """Make a Cluster whose pods know what stands behind their claims, and buffers their pods.

    Devices that no node offers are nothing that they can be judged by. Pods that the evaluation
    budget of their namespace does not cover ask too much.
    """
    drivers = {one.name: one.limits for one in csi_nodes}
    limits = {node.name: drivers[node.name] for node in nodes if node.name in drivers}
    pods = within_budget(pods)
    lookup = _Lookup(
        claims={one.key: one for one in claims},
        volumes={one.name: one for one in volumes},
        users=Counter(
            f"{pod.namespace}/{one.name}"
            for pod in pods
            if pod.unsupported
            for one in pod.ties.claims
        ),
        limits_known=bool(drivers),
        unlimited=_unlimited(nodes, limits),
    )
    found = [lookup.pod(pod) if pod.unsupported else pod for pod in pods]
    there = offered(nodes)
    judged = [without_claimed(pod, there) if pod.requests.extended else pod for pod in found]
    return replace(
        Cluster.of(nodes, judged, budgets),
        attach_limits=limits,
        buffers=looked_up(buffers, templates, pods),
        daemon_sets=tuple(sorted(daemon_sets, key=lambda one: (one.namespace, one.name))),
    )


def _unlimited(
    nodes: Sequence[Node], limits: Mapping[str, Mapping[str, int | None]]
) -> frozenset[str]:
    """Return the drivers that take any number of volumes on every node: nothing to count."""
    drivers = {driver for of_node in limits.values() for driver in of_node}
    return frozenset(
        driver
        for driver in drivers
        if all(limits.get(node.name, {}).get(driver, 0) is None for node in nodes)
    )


def _company(
    company: PodConstraints, sole: tuple[str, ...], disks: tuple[Disk, ...]
) -> PodConstraints:
    if (
        company is NO_POD_CONSTRAINTS
    ):  # as with most pods; making one anew is cheaper than `replace`
        return PodConstraints(sole=sole, disks=disks) if sole or disks else NO_POD_CONSTRAINTS
    return replace(company, sole=sole, disks=disks)


@dataclass(slots=True, kw_only=True)
class _Lookup:
    """Looks up the claims of pods."""

    claims: Mapping[str, Claim]
    volumes: Mapping[str, Volume]
    users: Mapping[str, int]
    """By claim: how many pods use it."""
    limits_known: bool
    unlimited: frozenset[str]
    placings: dict[tuple[NodeConstraints, tuple[VolumeTopology, ...]], NodeConstraints] = field(
        default_factory=dict
    )

    def pod(self, pod: Pod) -> Pod:
        """Return the pod with what stands behind its claims, as far as it is known."""
        faults: list[str] = []
        volumes: list[Volume] = []
        unknown: set[Disk] = set()
        sole: list[str] = []
        for use in pod.ties.claims:
            key = f"{pod.namespace}/{use.name}"
            found = self._volume(pod, use, key)
            if isinstance(found, str):
                faults.append(f"claim {key}: {found}")
                unknown.add(Disk(ANY_DRIVER, key))
            else:
                volumes.append(found)
            if key in self.claims and SOLE_MODE in self.claims[key].modes:
                sole.append(key)
        if VOLUMES_FIELD in pod.unsupported:
            unknown.add(Disk(ANY_DRIVER, f"{pod.key} {VOLUMES_FIELD}"))
        if not volumes and not unknown:
            return pod
        known = {one.disk for one in volumes if one.disk is not None}
        disks = unknown | {disk for disk in known if disk.driver not in self.unlimited}
        kept = (field for field in pod.unsupported if faults or field != CLAIMS_FIELD)
        return replace(
            pod,
            placing=self._placing(pod.placing, volumes),
            company=_company(pod.company, tuple(sole), tuple(sorted(disks))),
            unsupported=tuple(kept),
            ties=replace(pod.ties, faults=tuple(faults)) if faults else pod.ties,
        )

    def _volume(self, pod: Pod, use: ClaimUse, key: str) -> Volume | str:
        """Return the volume behind a claim, or why it is not known well enough."""
        claim = self.claims.get(key)
        fault = "it is not known" if claim is None else self._claim_fault(claim, pod, use, key)
        if claim is None or fault:
            return fault
        volume = self.volumes.get(claim.volume)
        if volume is None:
            return f"its volume {claim.volume} is not known"
        if volume.fault:
            return f"its volume {volume.name} {volume.fault}"
        if volume.disk is not None and not self.limits_known:
            return f"no CSINode is known, so how many volumes of {volume.disk.driver} a node takes"
        return volume

    def _claim_fault(self, claim: Claim, pod: Pod, use: ClaimUse, key: str) -> str:
        if claim.deleting:
            return "it is being deleted"
        if use.ephemeral and claim.owner_uid != pod.uid:
            return "it was not made for this pod"
        if not claim.volume:
            return "it is not bound to a volume"
        users = self.users[key]
        shared = (
            users > 1 and SOLE_MODE not in claim.modes and ONE_NODE_MODES.issuperset(claim.modes)
        )
        return f"{users} pods share it, and one node alone may write it" if shared else ""

    def _placing(self, placing: NodeConstraints, volumes: Iterable[Volume]) -> NodeConstraints:
        """Return one object for equal placings, as decoding does."""
        reaches = {one.reach for one in volumes if one.reach != EVERYWHERE}
        if not reaches:
            return placing
        ordered = tuple(sorted(reaches, key=repr)) if len(reaches) > 1 else tuple(reaches)
        found = self.placings.get((placing, ordered))
        if found is None:
            found = self.placings[placing, ordered] = replace(placing, volumes=ordered)
        return found
