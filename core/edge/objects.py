"""The Kubernetes objects as they stand on the wire, as far as they are read.

Typed decoding skips every field that is not named here. What all pods of a template share
(labels, resources, affinity, tolerations) stays raw, so that equal bytes are decoded once.
"""

from typing import Final

import msgspec

Quantity = str | int | float
Amounts = dict[str, Quantity]
NULL: Final = msgspec.Raw(b"null")


class Struct(msgspec.Struct, gc=False, rename="camel"):
    """Fields by their JSON names; what is absent or null reads as empty."""


class Present(Struct):
    """Something whose presence alone matters."""


class Owner(Struct):
    """An owner reference."""

    kind: str = ""
    name: str = ""
    controller: bool | None = None


class Meta(Struct):
    """Object metadata."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodMeta(Struct):
    """A pod's metadata."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    labels: msgspec.Raw = NULL
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None


class Name(Struct):
    """Who an object is."""

    name: str = ""
    namespace: str | None = None


class Requests(Struct):
    """The requests of a resources block."""

    requests: Amounts | None = None


class Port(Struct):
    """A container port."""

    host_port: int | None = None


class Container(Struct):
    """A container of a pod."""

    resources: msgspec.Raw = NULL
    ports: list[Port] | None = None
    restart_policy: str | None = None
    name: str = ""


class Toleration(Struct):
    """A toleration."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Spread(Struct):
    """A topology spread constraint."""

    when_unsatisfiable: str | None = None


class Volume(Struct):
    """A volume, as far as it binds a pod to places (kube-scheduler's Volume* plugins)."""

    persistent_volume_claim: Present | None = None
    ephemeral: Present | None = None
    gce_persistent_disk: Present | None = None
    aws_elastic_block_store: Present | None = None
    azure_disk: Present | None = None
    cinder: Present | None = None
    iscsi: Present | None = None
    rbd: Present | None = None


class PodSpec(Struct):
    """A pod's spec."""

    node_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: msgspec.Raw = NULL
    resources: msgspec.Raw = NULL
    node_selector: msgspec.Raw = NULL
    affinity: msgspec.Raw = NULL
    tolerations: msgspec.Raw = NULL
    topology_spread_constraints: list[Spread] | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[Present] | None = None
    host_network: bool | None = None
    scheduler_name: str | None = None
    priority: int | None = None


class ContainerStatus(Struct):
    """What a container has been given."""

    name: str = ""
    allocated_resources: msgspec.Raw = NULL
    resources: msgspec.Raw = NULL


class Condition(Struct):
    """A condition of a node or a pod."""

    type: str = ""
    status: str = ""
    reason: str | None = None


class PodStatus(Struct):
    """A pod's status."""

    phase: str = ""
    conditions: msgspec.Raw = NULL
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: msgspec.Raw = NULL
    resources: msgspec.Raw = NULL


class PodObject(Struct):
    """A v1 Pod, as far as it is read."""

    metadata: PodMeta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus | None = None


class Taint(Struct):
    """A taint."""

    key: str = ""
    value: str | None = None
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Struct):
    """A node's spec."""

    taints: list[Taint] | None = None
    unschedulable: bool | None = None


class NodeStatus(Struct):
    """A node's status."""

    allocatable: Amounts | None = None
    capacity: Amounts | None = None
    conditions: list[Condition] | None = None


class NodeObject(Struct):
    """A v1 Node, as far as it is read."""

    metadata: Meta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class BudgetStatus(Struct):
    """A PodDisruptionBudget's status."""

    disruptions_allowed: int = 0


class BudgetObject(Struct):
    """A PodDisruptionBudget."""

    metadata: Meta
    status: BudgetStatus | None = None


class AnyObject(Struct):
    """Enough of any object to know what it is."""

    kind: str = ""
    items: list[msgspec.Raw] | None = None


class NamedObject(Struct):
    """Enough of any object to say in a fault which it is."""

    kind: str = ""
    metadata: Name | None = None


class Expression(Struct):
    """A selector requirement."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeTerm(Struct):
    """A node selector term."""

    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeSelector(Struct):
    """Node selector terms, any of which suffices."""

    node_selector_terms: list[NodeTerm] | None = None


class NodeAffinity(Struct):
    """Node affinity."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class LabelSelector(Struct):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class PodTerm(Struct):
    """A pod affinity term."""

    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class PodAffinity(Struct):
    """Pod affinity or anti-affinity."""

    required: list[PodTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct):
    """All affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


POD_DECODER: Final = msgspec.json.Decoder(PodObject)
NODE_DECODER: Final = msgspec.json.Decoder(NodeObject)
BUDGET_DECODER: Final = msgspec.json.Decoder(BudgetObject)
HEAD_DECODER: Final = msgspec.json.Decoder(AnyObject)
NAME_DECODER: Final = msgspec.json.Decoder(NamedObject)
REQUESTS_DECODER: Final = msgspec.json.Decoder(Requests | None)
AMOUNTS_DECODER: Final = msgspec.json.Decoder(Amounts | None)
CONDITIONS_DECODER: Final = msgspec.json.Decoder(list[Condition] | None)
AFFINITY_DECODER: Final = msgspec.json.Decoder(Affinity | None)
TOLERATIONS_DECODER: Final = msgspec.json.Decoder(list[Toleration] | None)
TEXTS_DECODER: Final = msgspec.json.Decoder(dict[str, str] | None)
"""Labels and selectors."""
