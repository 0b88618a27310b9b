"""Structs of API objects, in the wire format, with the fields that Ebb reads.

Typed decoding skips all other fields. Blocks that all pods of a template share (labels, resources,
affinity, tolerations) stay raw, so that equal bytes are decoded once (kube.decode.templates).
The API reference describes structs and fields:
https://kubernetes.io/docs/reference/kubernetes-api/
"""

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec

from core.eligibility.drainability import (
    DISRUPTION_COST,
    DO_NOT_DISRUPT,
    PREFER_NO_EVICTION,
    SAFE_TO_EVICT,
    SAFE_VOLUMES,
)
from core.marks.wellknown import (
    COST_ANNOTATION,
    COST_OURS_ANNOTATION,
    KEEP_ANNOTATION,
    MOVE_ANNOTATION,
    REMOVAL_DISABLED,
)
from kube.decode.field_decoding import NULL, ApiName, BoundedField

Quantity = str | int | float
Amounts = dict[str, Quantity]
DAEMON_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
"""Annotation with the PodGroup of a pod; Volcano sets it too, for each pod that it schedules."""
KUEUE_TOPOLOGY: Final = "kueue.x-k8s.io/podset-"
"""Prefix of Kueue's annotations for topology-aware scheduling; a new one is a field of
PodAnnotations. The size of slices and the name of a group never come alone.

Source: apis/kueue/v1beta2/topology_types.go of kubernetes-sigs/kueue 0.17."""
FINISHED: Final = ("Succeeded", "Failed")
"""Phases of finished pods, which use no resources any more."""


BLOCK_BYTES_MAX: Final = 32 * 1024
"""Maximum size in JSON of each of labels, nodeSelector, affinity, tolerations and spread
constraints."""
RESOURCE_BYTES_MAX: Final = 128 * 1024
"""Maximum size of all resource blocks in spec and status; a container has some hundred bytes.

A pod with more is unreadable; nothing of the blocks is decoded."""
TEXTS: Final = BoundedField[dict[str, str]](dict[str, str], bytes_max=BLOCK_BYTES_MAX)
"""Limit on labels and nodeSelectors."""
AMOUNTS: Final = BoundedField[Amounts](Amounts, bytes_max=RESOURCE_BYTES_MAX)


class Struct(msgspec.Struct, gc=False, rename="camel"):
    """Base of structs with the field names of JSON; missing and null fields are empty."""


def keyed(key: str) -> Any:  # noqa: ANN401 a field of any type
    """Return a field for one key of labels or annotations. The other keys are not decoded."""
    return msgspec.field(default=None, name=key)


def set_keys(struct: Struct) -> dict[str, str]:
    """Return the values of a struct of `keyed` fields by key, without keys that are not set."""
    written: dict[str, str | None] = msgspec.to_builtins(struct)
    return {key: value for key, value in written.items() if value is not None}


class Present(Struct):
    """A field of which only the presence matters."""


PRESENT_LIST: Final = BoundedField[list[Present]](list[Present], items_max=1024)
"""A list of which only the length matters."""


class OwnerReference(Struct):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


OWNERS: Final = BoundedField[list[OwnerReference]](list[OwnerReference], items_max=1024)


class Name(Struct):
    """The metadata that identify an object; few fields, so that they can hardly be invalid."""

    name: str = ""
    namespace: str | None = None
    resource_version: ApiName = ""


class Meta(Name):
    uid: ApiName = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class PodAnnotations(Struct):
    """The annotations of a Pod that Ebb reads."""

    safe_to_evict: str | None = keyed(SAFE_TO_EVICT)
    safe_volumes: str | None = keyed(SAFE_VOLUMES)
    do_not_disrupt: str | None = keyed(DO_NOT_DISRUPT)
    prefer_no_eviction: str | None = keyed(PREFER_NO_EVICTION)
    removal_disabled: str | None = keyed(REMOVAL_DISABLED)
    disruption_cost: str | None = keyed(DISRUPTION_COST)
    do_not_disrupt_common: str | None = keyed("node-autoscaling.kubernetes.io/do-not-disrupt")
    disruption_cost_common: str | None = keyed("node-autoscaling.kubernetes.io/disruption-cost")
    keep: str | None = keyed(KEEP_ANNOTATION)
    daemon: str | None = keyed(DAEMON_ANNOTATION)
    mirror: str | None = keyed(MIRROR_ANNOTATION)
    cost: str | None = keyed(COST_ANNOTATION)
    cost_ours: str | None = keyed(COST_OURS_ANNOTATION)
    move: str | None = keyed(MOVE_ANNOTATION)
    topology_required: str | None = keyed(f"{KUEUE_TOPOLOGY}required-topology")
    topology_preferred: str | None = keyed(f"{KUEUE_TOPOLOGY}preferred-topology")
    topology_unconstrained: str | None = keyed(f"{KUEUE_TOPOLOGY}unconstrained-topology")
    topology_slice: str | None = keyed(f"{KUEUE_TOPOLOGY}slice-required-topology")
    topology_slices: str | None = keyed(f"{KUEUE_TOPOLOGY}slice-required-topology-constraints")
    gang_koordinator: str | None = keyed("gang.scheduling.koordinator.sh/name")
    gang_volcano: str | None = keyed(VOLCANO_GROUP)
    gang_volcano_own: str | None = keyed("scheduling.volcano.sh/group-name")
    gang_yunikorn: str | None = keyed("yunikorn.apache.org/task-group-name")
    leader_worker_size: str | None = keyed("leaderworkerset.sigs.k8s.io/size")

    @property
    def needs_topology(self) -> bool:
        """Return whether Kueue chooses the node of the pod (topology-aware scheduling).

        It does if one of the annotations with the prefix KUEUE_TOPOLOGY is set. Kueue adds one of
        them itself if the pod's queue requires it.
        """
        return any(value is not None for value in _topologies(self))

    @property
    def gangs(self) -> tuple[str | None, ...]:
        """Return the values of the annotations that name the pod's gang: the fields `gang_*`."""
        found: tuple[str | None, ...] = _gangs(self)
        return found


_topologies: Final = attrgetter(
    *(
        name
        for name, key in zip(
            PodAnnotations.__struct_fields__, PodAnnotations.__struct_encode_fields__, strict=True
        )
        if key.startswith(KUEUE_TOPOLOGY)
    )
)
_gangs: Final = attrgetter(
    *(name for name in PodAnnotations.__struct_fields__ if name.startswith("gang_"))
)
NO_ANNOTATIONS: Final = PodAnnotations()


class PodMeta(Meta):
    labels: Annotated[msgspec.Raw, TEXTS] = NULL
    annotations: PodAnnotations | None = None
    owner_references: Annotated[msgspec.Raw, OWNERS] = NULL


class Limits(Struct):
    """The limits that ResourceQuotas count."""

    cpu: Quantity | None = None
    memory: Quantity | None = None
    ephemeral_storage: Quantity | None = keyed("ephemeral-storage")


class ContainerResources(Struct):
    requests: Amounts | None = None
    limits: Limits | None = None


CONTAINER_RESOURCES: Final = BoundedField[ContainerResources](
    ContainerResources, bytes_max=RESOURCE_BYTES_MAX
)


class Port(Struct):
    host_port: int | None = None
    host_ip: ApiName | None = msgspec.field(default=None, name="hostIP")
    container_port: int | None = None
    protocol: ApiName | None = None


class RestartRule(Struct):
    action: ApiName = ""


class Container(Struct):
    resources: Annotated[msgspec.Raw, CONTAINER_RESOURCES] = NULL
    ports: list[Port] | None = None
    restart_policy: ApiName | None = None
    restart_policy_rules: list[RestartRule] | None = None
    name: ApiName = ""


CONTAINERS: Final = BoundedField[list[Container]](list[Container], items_max=65_536)
"""Limit on containers. In real pods, most braces are in environment variables and scripts."""


class VolumeMount(Struct):
    bind_mount_options: list[str] | None = None


class MountingContainer(Struct):
    """A container with its volume mounts, which only few pods need decoded."""

    volume_mounts: list[VolumeMount] | None = None


MOUNTING_CONTAINERS: Final = BoundedField[list[MountingContainer]](
    list[MountingContainer], items_max=65_536
)


class ClaimSource(Struct):
    claim_name: ApiName = ""


class EmptyDir(Struct):
    medium: ApiName | None = None


DiskName = Annotated[str, msgspec.Meta(max_length=4096)]
"""The name of a disk in a cloud, which may be a URI."""


class InTreeSource(Struct):
    """The fields that name a disk; each type of in-tree volume uses its own fields."""

    volume_id: DiskName | None = msgspec.field(default=None, name="volumeID")
    pd_name: DiskName | None = None
    disk_uri: DiskName | None = msgspec.field(default=None, name="diskURI")
    volume_path: DiskName | None = None
    iqn: DiskName | None = None
    pool: DiskName | None = None
    image: DiskName | None = None
    kind: ApiName | None = None
    read_only: bool | None = None


class InTreeSources(Struct):
    """The sources of pod volumes and PersistentVolumes that name a disk without a CSI driver."""

    gce_persistent_disk: InTreeSource | None = None
    aws_elastic_block_store: InTreeSource | None = None
    azure_disk: InTreeSource | None = None
    cinder: InTreeSource | None = None
    iscsi: InTreeSource | None = None
    portworx_volume: InTreeSource | None = None
    rbd: InTreeSource | None = None
    vsphere_volume: InTreeSource | None = None


class Volume(InTreeSources):
    """A volume of a pod, with the sources that bind the pod to nodes or to local data."""

    name: ApiName = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Present | None = None
    empty_dir: EmptyDir | None = None
    host_path: Present | None = None


VOLUMES: Final = BoundedField[list[Volume]](list[Volume], items_max=16_384, bytes_max=512 * 1024)
"""Limit on volumes. In real pods, most braces are in projected volumes."""


class Toleration(Struct):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Expression(Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeTerm(Struct):
    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeSelector(Struct):
    """Node selector terms; one matching term suffices."""

    node_selector_terms: list[NodeTerm] | None = None


class NodeAffinity(Struct):
    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class LabelSelector(Struct):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class PodTerm(Struct):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class TermNamespaces(Struct):
    """The fields by which a preferred term of pod affinity names namespaces."""

    namespaces: list[str] | None = None
    namespace_selector: Present | None = None


class WeightedPodTerm(Struct):
    pod_affinity_term: TermNamespaces | None = None


class PodAffinity(Struct):
    required: list[PodTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )

    @property
    def names_namespaces(self) -> bool:
        """Return whether a term, required or preferred, names namespaces or selects them."""
        terms = [*(self.required or ())]
        weighted = [one.pod_affinity_term for one in self.preferred or ()]
        return any(
            term.namespaces or term.namespace_selector is not None
            for term in (*terms, *filter(None, weighted))
        )


class Affinity(Struct):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None

    @property
    def nodes(self) -> NodeSelector | None:
        """Return the required node affinity, or None if there is none."""
        return self.node_affinity.required if self.node_affinity else None

    @property
    def names_namespaces(self) -> bool:
        """Return whether a term of pod affinity or anti-affinity names or selects namespaces."""
        both = self.pod_affinity, self.pod_anti_affinity
        return any(one.names_namespaces for one in both if one is not None)

    @property
    def near(self) -> Sequence[PodTerm]:
        """Return the terms of required pod affinity; empty if there are none."""
        return (self.pod_affinity and self.pod_affinity.required) or ()

    @property
    def apart(self) -> Sequence[PodTerm]:
        """Return the terms of required pod anti-affinity; empty if there are none."""
        return (self.pod_anti_affinity and self.pod_anti_affinity.required) or ()


class Spread(Struct):
    max_skew: int | None = None
    topology_key: str = ""
    when_unsatisfiable: str | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


AFFINITY: Final = BoundedField[Affinity](Affinity, bytes_max=BLOCK_BYTES_MAX)
TOLERATIONS: Final = BoundedField[list[Toleration]](list[Toleration], bytes_max=BLOCK_BYTES_MAX)
SPREADS: Final = BoundedField[list[Spread]](list[Spread], bytes_max=BLOCK_BYTES_MAX)


class System(Struct):
    """The operating system that a pod requires."""

    name: ApiName = ""


class SchedulingGroup(Struct):
    """The PodGroup of a pod (KEP-4671, from 1.36)."""

    pod_group_name: ApiName | None = None


class WorkloadRef(Struct):
    """The pod group of a pod inside a Workload (KEP-4671, in 1.35)."""

    name: ApiName | None = None
    pod_group: ApiName | None = None
    pod_group_replica_key: ApiName | None = None


class PodSpec(Struct):
    node_name: ApiName | None = None
    containers: Annotated[msgspec.Raw, CONTAINERS] = NULL
    init_containers: Annotated[msgspec.Raw, CONTAINERS] = NULL
    overhead: Annotated[msgspec.Raw, AMOUNTS] = NULL
    resources: Annotated[msgspec.Raw, CONTAINER_RESOURCES] = NULL
    node_selector: Annotated[msgspec.Raw, TEXTS] = NULL
    affinity: Annotated[msgspec.Raw, AFFINITY] = NULL
    tolerations: Annotated[msgspec.Raw, TOLERATIONS] = NULL
    topology_spread_constraints: Annotated[msgspec.Raw, SPREADS] = NULL
    volumes: Annotated[msgspec.Raw, VOLUMES] = NULL
    resource_claims: Annotated[msgspec.Raw, PRESENT_LIST] = NULL
    scheduling_gates: Annotated[msgspec.Raw, PRESENT_LIST] = NULL
    host_network: bool | None = None
    host_users: bool | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    priority_class_name: ApiName | None = None
    active_deadline_seconds: int | None = None
    restart_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    os: System | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadRef | None = None


class ContainerStatus(Struct):
    name: ApiName = ""
    allocated_resources: Annotated[msgspec.Raw, AMOUNTS] = NULL
    resources: Annotated[msgspec.Raw, CONTAINER_RESOURCES] = NULL


STATUSES: Final = BoundedField[list[ContainerStatus]](list[ContainerStatus], items_max=65_536)


class Condition(Struct):
    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None


CONDITIONS: Final = BoundedField[list[Condition]](list[Condition], items_max=4096)
"""Limit on conditions. Their messages contain braces too, because they quote taints."""


_READY_AS_SENT: Final = re.compile(
    rb'"type":"Ready"(?:,"observedGeneration":\d+)?,"status":"(\w+)"'
    rb'(?:(?:,"lastProbeTime":null)?,"lastTransitionTime":"([^"\\]{1,40})")?'
)
"""The condition as API servers write it; inside a JSON string its quotes would be escaped."""


def ready_as_sent(conditions: bytes) -> tuple[bool, str] | None:
    """Search the JSON of a pod's or node's conditions for Ready, without decoding.

    Returns: whether the condition is True, and its lastTransitionTime, which may be empty; None if
    the JSON has no condition Ready in the form that API servers write.
    """
    match = _READY_AS_SENT.search(conditions)
    return None if match is None else (match[1] == b"True", (match[2] or b"").decode())


class PodStatus(Struct):
    phase: str = ""
    nominated_node_name: ApiName | None = None
    start_time: str | None = None
    conditions: Annotated[msgspec.Raw, CONDITIONS] = NULL
    container_statuses: Annotated[msgspec.Raw, STATUSES] = NULL
    init_container_statuses: Annotated[msgspec.Raw, STATUSES] = NULL
    allocated_resources: Annotated[msgspec.Raw, AMOUNTS] = NULL
    resources: Annotated[msgspec.Raw, CONTAINER_RESOURCES] = NULL


NO_STATUS: Final = PodStatus()


class PodObject(Struct):
    metadata: PodMeta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus | None = None


class AnyObject(Struct):
    """The fields of any object or list that identify its kind, and the items of a list."""

    kind: str = ""
    api_version: Any = None
    """The apiVersion, of any type, so that an object with an invalid one can still be read."""
    metadata: msgspec.Raw = NULL
    items: list[msgspec.Raw] | None = None


class ListMeta(Struct):
    """The fields of a list that say whether the API server has more pages of it."""

    continue_: str | None = msgspec.field(default=None, name="continue")
    remaining_item_count: int | None = None


class NamedObject(Struct):
    """The fields of any object that identify it in errors."""

    kind: str = ""
    metadata: Name | None = None


HEAD_DECODER: Final = msgspec.json.Decoder(AnyObject)
LIST_META_DECODER: Final = msgspec.json.Decoder(ListMeta | None)
LINES_DECODER: Final = msgspec.json.Decoder(msgspec.Raw)
NAME_DECODER: Final = msgspec.json.Decoder(NamedObject)
