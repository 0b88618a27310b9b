"""Structs of API objects, in the wire format, with the fields that Ebb reads.

Typed decoding skips all other fields. Blocks that all pods of a template share (labels, resources,
affinity, tolerations) stay raw, so that equal bytes are decoded once (core.edge.decode.templates).
The API reference describes structs and fields:
https://kubernetes.io/docs/reference/kubernetes-api/
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

Quantity = str | int | float
Amounts = dict[str, Quantity]
NULL_BYTES: Final = b"null"
NULL: Final = msgspec.Raw(NULL_BYTES)
FINISHED: Final = ("Succeeded", "Failed")
"""Phases of finished pods, which use no resources any more."""


class Struct(msgspec.Struct, gc=False, rename="camel"):
    """Base of structs with the field names of JSON; missing and null fields are empty."""


class Present(Struct):
    """A field of which only the presence matters."""


class Owner(Struct):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class Name(Struct):
    """The minimal metadata of an object, so that hardly anything in it can be invalid."""

    name: str = ""
    namespace: str | None = None
    resource_version: str = ""


class Meta(Name):
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class PodMeta(Name):
    uid: str = ""
    labels: msgspec.Raw = NULL
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Requests(Struct):
    requests: Amounts | None = None


class Port(Struct):
    host_port: int | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    container_port: int | None = None
    protocol: str | None = None


class RestartRule(Struct):
    action: str = ""


class Container(Struct):
    resources: msgspec.Raw = NULL
    ports: list[Port] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None
    name: str = ""


class ClaimSource(Struct):
    claim_name: str = ""


class EmptyDir(Struct):
    medium: str | None = None


class InTreeSource(Struct):
    """The name of the disk, in the field that its type of volume has for it."""

    volume_id: str | None = msgspec.field(default=None, name="volumeID")
    pd_name: str | None = None
    disk_uri: str | None = msgspec.field(default=None, name="diskURI")
    volume_path: str | None = None
    iqn: str | None = None
    pool: str | None = None
    image: str | None = None
    kind: str | None = None
    read_only: bool | None = None


class InTreeSources(Struct):
    """The sources of volumes and PersistentVolumes that name a disk without a CSI driver."""

    gce_persistent_disk: InTreeSource | None = None
    aws_elastic_block_store: InTreeSource | None = None
    azure_disk: InTreeSource | None = None
    cinder: InTreeSource | None = None
    iscsi: InTreeSource | None = None
    portworx_volume: InTreeSource | None = None
    rbd: InTreeSource | None = None
    vsphere_volume: InTreeSource | None = None


class Volume(InTreeSources):
    """A volume, with the sources that bind a pod to nodes or to local data."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Present | None = None
    empty_dir: EmptyDir | None = None
    host_path: Present | None = None


class System(Struct):
    """The operating system that a pod requires."""

    name: str = ""


class SchedulingGroup(Struct):
    """The PodGroup of a pod (KEP-4671, from 1.36)."""

    pod_group_name: str | None = None


class WorkloadRef(Struct):
    """The pod group of a pod inside a Workload (KEP-4671, in 1.35)."""

    name: str | None = None
    pod_group: str | None = None
    pod_group_replica_key: str | None = None


class PodSpec(Struct):
    node_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: msgspec.Raw = NULL
    resources: msgspec.Raw = NULL
    node_selector: msgspec.Raw = NULL
    affinity: msgspec.Raw = NULL
    tolerations: msgspec.Raw = NULL
    topology_spread_constraints: msgspec.Raw = NULL
    volumes: list[Volume] | None = None
    resource_claims: list[Present] | None = None
    scheduling_gates: list[Present] | None = None
    host_network: bool | None = None
    host_users: bool | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    restart_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    os: System | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadRef | None = None


class ContainerStatus(Struct):
    name: str = ""
    allocated_resources: msgspec.Raw = NULL
    resources: msgspec.Raw = NULL


class Condition(Struct):
    type: str = ""
    status: str = ""
    reason: str | None = None


class PodStatus(Struct):
    phase: str = ""
    nominated_node_name: str | None = None
    start_time: str | None = None
    conditions: msgspec.Raw = NULL
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: msgspec.Raw = NULL
    resources: msgspec.Raw = NULL


class PodObject(Struct):
    metadata: PodMeta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus | None = None


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


class PodAffinity(Struct):
    required: list[PodTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None

    @property
    def nodes(self) -> NodeSelector | None:
        """Return the required node affinity."""
        return self.node_affinity.required if self.node_affinity else None

    @property
    def near(self) -> Sequence[PodTerm]:
        """Return the terms of required pod affinity."""
        return (self.pod_affinity and self.pod_affinity.required) or ()

    @property
    def apart(self) -> Sequence[PodTerm]:
        """Return the terms of required pod anti-affinity."""
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


class AnyObject(Struct):
    """The fields of any object that identify its kind."""

    kind: str = ""
    api_version: Any = None
    """The apiVersion, of any type, so that an object with an invalid one can still be read."""
    metadata: msgspec.Raw = NULL
    items: list[msgspec.Raw] | None = None


class ListMeta(Struct):
    """The fields of a list that say whether the server has more of it."""

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
REQUESTS_DECODER: Final = msgspec.json.Decoder(Requests | None)
AMOUNTS_DECODER: Final = msgspec.json.Decoder(Amounts | None)
CONDITIONS_DECODER: Final = msgspec.json.Decoder(list[Condition] | None)
AFFINITY_DECODER: Final = msgspec.json.Decoder(Affinity | None)
TOLERATIONS_DECODER: Final = msgspec.json.Decoder(list[Toleration] | None)
SPREADS_DECODER: Final = msgspec.json.Decoder(list[Spread] | None)
TEXTS_DECODER: Final = msgspec.json.Decoder(dict[str, str] | None)
"""Decoder of labels and selectors."""
