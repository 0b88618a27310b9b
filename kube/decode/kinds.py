"""The kinds of the API that Ebb reads, one entry each; dumps, lists and watches use this table.

A new kind needs an entry here, and a module next to this one that decodes it. Tests check that the
manifests grant RBAC permissions for these kinds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

import msgspec

from core.cluster.devices import DeviceClass
from core.cluster.namespaces import Namespace
from core.cluster.volumes import Attachment, Claim, CsiNode, StorageClass, Volume
from core.config.settings import Config
from core.model.buffers import Buffer, PodTemplate
from core.model.cluster import DaemonSet, DisruptionBudget
from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.node_groups import AutoscalerStatus, NodeClaim, NodePool
from core.model.pod import Pod
from core.moves.listed import ListedDeployment, ListedReplicaSet
from core.moves.objects import HorizontalAutoscaler
from core.moves.quotas import ResourceQuota
from kube.decode import (
    autoscalers,
    budget,
    buffers,
    devices,
    namespaces,
    node,
    placeholders,
    pod,
    quotas,
    storage,
    workloads,
)
from kube.decode.field_decoding import (
    DECODE_ERRORS,
    TOO_DEEP,
    Bytes,
    decode_json,
    join,
    location_of,
)
from kube.decode.json_depth import decoded
from kube.decode.objects import NAME_DECODER, PodObject
from kube.decode.placeholders import Outline

Object = (
    Node | Pod | DisruptionBudget | Claim | Volume | CsiNode | Namespace | Attachment
    | PodTemplate | Buffer | NodePool | NodeClaim | AutoscalerStatus | DaemonSet
    | StorageClass | DeviceClass
    | ListedDeployment | ListedReplicaSet | HorizontalAutoscaler | ResourceQuota
)  # fmt: skip
Wire_ = TypeVar("Wire_")
Model_ = TypeVar("Model_")


@dataclass(frozen=True, eq=False, kw_only=True)
class Kind(Generic[Wire_, Model_]):
    """A kind of the API: its names, its paths, and the functions that decode its objects."""

    # Objects are decoded directly from bytes. Typed decoding skips unknown fields, so a pod of
    # 5 kB takes microseconds.

    name: str
    path: str
    """Path of the list of all objects."""
    older: tuple[str, ...] = ()
    """Paths in older versions of the API, for servers that do not serve the current one."""
    optional: bool = False
    """The kind has no objects if the API server does not serve it or RBAC does not allow reading
    it."""
    in_dumps: bool = True
    """The command that creates a dump names the kind, because every cluster serves it."""
    only: Callable[[Config], str] | None = None
    """Returns namespace/name of the only object that is listed and watched; None: all objects."""
    needed: Callable[[Config], bool] | None = None
    """Returns whether a running controller watches the kind; None: it always does."""
    wire: type[Wire_]
    make: Callable[[Wire_], Model_]
    """Converts an object from its wire format to the model; errors name the field."""
    field: str
    """Name of the argument for the objects: of core.cluster.build.build_cluster, or, for
    SURGE_KINDS, of core.moves.listed.surge_objects."""
    namespaced: bool = False
    nickname: str = ""
    """Name of the kind in kubectl; empty if it is that of the resource."""
    make_placeholder: Callable[[Bytes, str], Model_ | None] = placeholders.no_placeholder
    """Creates a placeholder from the bytes of an object that cannot be decoded, and the reason."""

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Wire_]:
        """Return the decoder from JSON to the wire format of the kind."""
        return msgspec.json.Decoder(self.wire)

    @cached_property
    def resource(self) -> str:
        """Return the plural name in paths, RBAC rules and metrics, such as pods."""
        return self.path.rpartition("/")[2]

    @cached_property
    def group(self) -> str:
        """Return the API group; empty for the core group."""
        _, root, group, *_ = self.path.split("/")
        return group if root == "apis" else ""

    def is_of(self, api_version: object) -> bool:
        """Return whether an apiVersion belongs to the API group of the kind.

        Other APIs have kinds of the same name: Longhorn and OpenShift have a Node of their own.
        True also without an apiVersion.
        """
        if not isinstance(api_version, str) or not api_version:
            return True
        return api_version.rpartition("/")[0] == self.group

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of the list of all objects, the preferred API version first."""
        return (self.path, *self.older)

    @property
    def short(self) -> str:
        """Return the name that kubectl accepts, such as pdb."""
        return self.nickname or self.resource

    def within(self, outer: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 a generic struct
        """Return a decoder for *outer*, a page or a watch event, with objects of this kind."""
        return msgspec.json.Decoder(outer[self.wire])

    def key(self, obj: Any) -> str:  # noqa: ANN401 an object of the model, or any metadata
        """Return namespace/name of an object, or the name of a cluster-scoped object.

        *obj*: a decoded object, or the metadata of an object.
        """
        name: str = obj.name
        return f"{obj.namespace or 'default'}/{name}" if self.namespaced else name

    def path_of(self, key: str) -> str:
        """Return the path of an object; *key*: its namespace/name, or name if cluster-scoped."""
        namespace, _, name = key.rpartition("/")
        return f"{in_namespace(self.path, namespace) if namespace else self.path}/{name}"

    def decode(self, raw: Bytes, source: str = "") -> Model_:
        """Decode the JSON of an object; None if it does not count, such as a finished pod.

        *source*: name of the file, for errors. Raises: InvalidInputError that names source, object
        and field, if the object is invalid.
        """
        return self.model_of(self._wire_of(raw, source), source)

    def model_of(self, obj: Wire_, source: str = "") -> Model_:
        """Convert an object from its wire format to Ebb's own type.

        None if the object does not count, such as a finished pod. *source*: name of the file, for
        errors. Raises: InvalidInputError that names source, object and field, if the object is
        invalid.
        """
        try:
            return self.make(obj)
        except InvalidInputError as fault:
            meta = obj.metadata  # type: ignore[attr-defined]
            where = join(location_of(source, self.name, meta.namespace, meta.name), fault.where)
            raise InvalidInputError(where, fault.problem) from fault

    def model_or_placeholder(self, item: Any) -> Model_:  # noqa: ANN401 see above
        """Convert an object, or return a placeholder if it cannot be decoded.

        A placeholder is a Pod or Node with only its name and the fault. *item*: wire format, JSON,
        or the Outline of an object that is nested too deeply. Returns None for an object that does
        not count, such as a finished pod. Raises: InvalidInputError if the object is invalid, and
        there is no placeholder for it.
        """
        if isinstance(item, Outline):
            where = location_of("", self.name, item.metadata.namespace, item.metadata.name)
            return self._placeholder_or_raise(item.raw, InvalidInputError(where, TOO_DEEP))
        try:
            return self.decode(item) if isinstance(item, msgspec.Raw) else self.model_of(item)
        except InvalidInputError as fault:
            # Only the invalid field is known here: read the placeholder from the bytes.
            raw = item if isinstance(item, msgspec.Raw) else msgspec.json.encode(item)
            return self._placeholder_or_raise(raw, fault)

    def _placeholder_or_raise(self, raw: Bytes, fault: InvalidInputError) -> Model_:
        placeholder = self.make_placeholder(raw, str(fault))
        if placeholder is None:
            raise fault
        return placeholder

    def _wire_of(self, raw: Bytes, source: str) -> Wire_:
        try:
            return decoded(self.decoder.decode, raw)
        except DECODE_ERRORS:
            # Only an error needs the name, and its lookup takes a second pass over the JSON.
            where = join(source, self.name)
            named = decode_json(NAME_DECODER.decode, raw, where).metadata
            if named:
                where = location_of(source, self.name, named.namespace, named.name)
            return decode_json(self.decoder.decode, raw, where)


def in_namespace(path: str, namespace: str) -> str:
    """Return the path of the list of one namespace; *path*: the list of all namespaces."""
    root, _, resource = path.rpartition("/")
    return f"{root}/namespaces/{namespace}/{resource}"


AnyKind = Kind[Any, Any]
NODES: Final = Kind(
    name="Node",
    path="/api/v1/nodes",
    wire=node.NodeObject,
    make=node.node,
    make_placeholder=placeholders.node,
    field="nodes",
)
NODES_WITH_ALL_KEYS: Final = Kind(
    name=NODES.name,
    path=NODES.path,
    wire=node.AnyKeysObject,
    make=node.node_with_all_keys,
    make_placeholder=placeholders.node,
    field=NODES.field,
)
"""Nodes with each annotation that a version of Ebb may have written, for `ebb cleanup`."""
PODS: Final[Kind[PodObject, Pod | None]] = Kind(
    name="Pod",
    path="/api/v1/pods",
    namespaced=True,
    wire=PodObject,
    make=pod.pod,
    make_placeholder=placeholders.pod,
    field="pods",
)
BUDGETS: Final = Kind(
    name="PodDisruptionBudget",
    path="/apis/policy/v1/poddisruptionbudgets",
    nickname="pdb",
    namespaced=True,
    wire=budget.BudgetObject,
    make=budget.budget,
    field="budgets",
    needed=lambda config: config.evicts,
)
CLAIMS: Final = Kind(
    name="PersistentVolumeClaim",
    path="/api/v1/persistentvolumeclaims",
    nickname="pvc",
    namespaced=True,
    wire=storage.ClaimObject,
    make=storage.claim,
    field="claims",
)
VOLUMES: Final = Kind(
    name="PersistentVolume",
    path="/api/v1/persistentvolumes",
    nickname="pv",
    wire=storage.VolumeObject,
    make=storage.volume,
    field="volumes",
)
CSI_NODES: Final = Kind(
    name="CSINode",
    path="/apis/storage.k8s.io/v1/csinodes",
    wire=storage.CsiNodeObject,
    make=storage.csi_node,
    field="csi_nodes",
)
NAMESPACES: Final = Kind(
    name="Namespace",
    path="/api/v1/namespaces",
    nickname="ns",
    wire=namespaces.NamespaceObject,
    make=namespaces.namespace,
    field="namespaces",
    optional=True,
)
ATTACHMENTS: Final = Kind(
    name="VolumeAttachment",
    path="/apis/storage.k8s.io/v1/volumeattachments",
    wire=storage.AttachmentObject,
    make=storage.attachment,
    field="attachments",
    optional=True,
)
TEMPLATES: Final = Kind(
    name="PodTemplate",
    path="/api/v1/podtemplates",
    namespaced=True,
    wire=buffers.TemplateObject,
    make=buffers.template,
    field="templates",
    optional=True,
    in_dumps=False,
)
BUFFERS: Final[Kind[buffers.BufferObject, Buffer | None]] = Kind(
    name="CapacityBuffer",
    path="/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers",
    older=("/apis/autoscaling.x-k8s.io/v1alpha1/capacitybuffers",),
    namespaced=True,
    wire=buffers.BufferObject,
    make=buffers.buffer,
    field="buffers",
    optional=True,
    in_dumps=False,
)
NODE_POOLS: Final = Kind(
    name="NodePool",
    path="/apis/karpenter.sh/v1/nodepools",
    wire=autoscalers.NodePoolObject,
    make=autoscalers.node_pool,
    field="node_pools",
    optional=True,
    in_dumps=False,
)
NODE_CLAIMS: Final = Kind(
    name="NodeClaim",
    path="/apis/karpenter.sh/v1/nodeclaims",
    wire=autoscalers.NodeClaimObject,
    make=autoscalers.node_claim,
    field="node_claims",
    optional=True,
    in_dumps=False,
)
STATUSES: Final = Kind(
    name="ConfigMap",
    path="/api/v1/configmaps",
    namespaced=True,
    wire=autoscalers.StatusObject,
    make=autoscalers.autoscaler_status,
    field="statuses",
    optional=True,
    in_dumps=False,
    only=lambda config: config.cluster_autoscaler.status_key,
)
DAEMON_SETS: Final[Kind[workloads.DaemonSetObject, DaemonSet | None]] = Kind(
    name="DaemonSet",
    path="/apis/apps/v1/daemonsets",
    nickname="ds",
    namespaced=True,
    wire=workloads.DaemonSetObject,
    make=workloads.daemon_set,
    field="daemon_sets",
    optional=True,
    in_dumps=False,
)
STORAGE_CLASSES: Final = Kind(
    name="StorageClass",
    path="/apis/storage.k8s.io/v1/storageclasses",
    nickname="sc",
    wire=storage.StorageClassObject,
    make=storage.storage_class,
    field="storage_classes",
    optional=True,
    in_dumps=False,
)
DEVICE_CLASSES: Final = Kind(
    name="DeviceClass",
    path="/apis/resource.k8s.io/v1/deviceclasses",
    wire=devices.DeviceClassObject,
    make=devices.device_class,
    field="device_classes",
    optional=True,
    in_dumps=False,
)
DEPLOYMENTS: Final[Kind[workloads.DeploymentObject, ListedDeployment | None]] = Kind(
    name="Deployment",
    path="/apis/apps/v1/deployments",
    nickname="deploy",
    namespaced=True,
    wire=workloads.DeploymentObject,
    make=workloads.deployment,
    field="deployments",
    in_dumps=False,
    needed=lambda config: config.surges,
)
REPLICA_SETS: Final[Kind[workloads.ReplicaSetObject, ListedReplicaSet | None]] = Kind(
    name="ReplicaSet",
    path="/apis/apps/v1/replicasets",
    nickname="rs",
    namespaced=True,
    wire=workloads.ReplicaSetObject,
    make=workloads.replica_set,
    field="replica_sets",
    in_dumps=False,
    needed=lambda config: config.surges,
)
HORIZONTAL_AUTOSCALERS: Final[Kind[workloads.AutoscalerObject, HorizontalAutoscaler | None]] = (
    Kind(
        name="HorizontalPodAutoscaler",
        path="/apis/autoscaling/v2/horizontalpodautoscalers",
        nickname="hpa",
        namespaced=True,
        wire=workloads.AutoscalerObject,
        make=workloads.horizontal_autoscaler,
        field="autoscalers",
        in_dumps=False,
        needed=lambda config: config.surges,
    )
)
QUOTAS: Final = Kind(
    name="ResourceQuota",
    path="/api/v1/resourcequotas",
    nickname="quota",
    namespaced=True,
    wire=quotas.QuotaObject,
    make=quotas.resource_quota,
    field="quotas",
    in_dumps=False,
    needed=lambda config: config.surges,
)
CLUSTER_KINDS: Final[tuple[AnyKind, ...]] = (
    NODES, PODS, BUDGETS, CLAIMS, VOLUMES, CSI_NODES, NAMESPACES, ATTACHMENTS,
    TEMPLATES, BUFFERS, NODE_POOLS, NODE_CLAIMS, STATUSES, DAEMON_SETS,
    STORAGE_CLASSES, DEVICE_CLASSES,
)  # fmt: skip
"""The kinds of a Cluster in the order of listing, nodes first; without them there is no plan.

If a node is added after the list of nodes, its pods are ignored. In the other order, the node
would look empty by mistake."""
SURGE_KINDS: Final[tuple[AnyKind, ...]] = (
    DEPLOYMENTS, REPLICA_SETS, HORIZONTAL_AUTOSCALERS, QUOTAS
)  # fmt: skip
"""The kinds that only surge moves need; without them no move begins."""
KINDS: Final[tuple[AnyKind, ...]] = (*CLUSTER_KINDS, *SURGE_KINDS)
BY_NAME: Final[Mapping[str, AnyKind]] = {kind.name: kind for kind in KINDS}
"""All kinds by the `kind` of their objects in a dump."""
