"""The kinds of the API, one entry each: names, paths, and the functions that decode objects.

A new kind needs an entry here, and a module next to this one that decodes it. kube.cluster_kinds
says what its objects are used for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import GenericAlias
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from core.cluster.devices import DeviceClass
from core.cluster.namespaces import Namespace
from core.cluster.volumes import Attachment, Claim, CsiNode, StorageClass, Volume
from core.model.buffers import Buffer, PodTemplate
from core.model.cluster import DaemonSet, DisruptionBudget
from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.node_groups import AutoscalerStatus, NodeClaim, NodePool
from core.model.pod import Pod
from core.model.sorted_objects import BY_NAMESPACE_AND_NAME
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
from kube.decode.objects import NAME_DECODER, Name, PodObject
from kube.decode.placeholders import Outline

Object = (
    Node | Pod | DisruptionBudget | Claim | Volume | CsiNode | Namespace | Attachment
    | PodTemplate | Buffer | NodePool | NodeClaim | AutoscalerStatus | DaemonSet
    | StorageClass | DeviceClass
    | ListedDeployment | ListedReplicaSet | HorizontalAutoscaler | ResourceQuota
)  # fmt: skip


class Named(Protocol):
    """An object of the model, or the metadata of an object."""

    @property
    def name(self) -> str:
        """Return the name, which is unique among all objects of its kind and namespace."""


class WireObject(Protocol):
    """An object in its wire format."""

    @property
    def metadata(self) -> Name:
        """Return the metadata, which identify the object."""


Wire_ = TypeVar("Wire_", bound=WireObject)
Model_co = TypeVar("Model_co", bound=Object | None, covariant=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class Kind(Generic[Wire_, Model_co]):
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
    wire: type[Wire_]
    make: Callable[[Wire_], Model_co]
    """Converts an object from its wire format to the model; errors name the field."""
    namespaced: bool = False
    nickname: str = ""
    """Name of the kind in kubectl; empty if it is that of the resource."""
    make_placeholder: Callable[[Bytes, str], Model_co | None] = placeholders.no_placeholder
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

    def within(self, outer: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
        """Return a decoder for *outer*, a page or a watch event, with objects of this kind."""
        return msgspec.json.Decoder(GenericAlias(outer, (self.wire,)))

    def key(self, obj: Named) -> str:
        """Return namespace/name of an object, or the name of a cluster-scoped object."""
        if not self.namespaced:
            return obj.name
        namespace, name = BY_NAMESPACE_AND_NAME(obj)
        return f"{namespace or 'default'}/{name}"

    def path_of(self, key: str) -> str:
        """Return the path of an object; *key*: its namespace/name, or name if cluster-scoped."""
        namespace, _, name = key.rpartition("/")
        return f"{in_namespace(self.path, namespace) if namespace else self.path}/{name}"

    def decode(self, raw: Bytes, source: str = "") -> Model_co:
        """Decode the JSON of an object; None if it does not count, such as a finished pod.

        *source*: name of the file, for errors. Raises: InvalidInputError that names source, object
        and field, if the object is invalid.
        """
        return self.model_of(self._wire_of(raw, source), source)

    def model_of(self, obj: Wire_, source: str = "") -> Model_co:
        """Convert an object from its wire format to Ebb's own type.

        None if the object does not count, such as a finished pod. *source*: name of the file, for
        errors. Raises: InvalidInputError that names source, object and field, if the object is
        invalid.
        """
        try:
            return self.make(obj)
        except InvalidInputError as fault:
            meta = obj.metadata
            where = join(location_of(source, self.name, meta.namespace, meta.name), fault.where)
            raise InvalidInputError(where, fault.problem) from fault

    def model_or_placeholder(self, item: Wire_ | msgspec.Raw | Outline) -> Model_co:
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

    def _placeholder_or_raise(self, raw: Bytes, fault: InvalidInputError) -> Model_co:
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
)
NODES_WITH_ALL_KEYS: Final = Kind(
    name=NODES.name,
    path=NODES.path,
    wire=node.AnyKeysObject,
    make=node.node_with_all_keys,
    make_placeholder=placeholders.node,
)
"""Nodes with each annotation that a version of Ebb may have written, for `ebb cleanup`."""
PODS: Final[Kind[PodObject, Pod | None]] = Kind(
    name="Pod",
    path="/api/v1/pods",
    namespaced=True,
    wire=PodObject,
    make=pod.pod,
    make_placeholder=placeholders.pod,
)
BUDGETS: Final = Kind(
    name="PodDisruptionBudget",
    path="/apis/policy/v1/poddisruptionbudgets",
    nickname="pdb",
    namespaced=True,
    wire=budget.BudgetObject,
    make=budget.budget,
)
CLAIMS: Final = Kind(
    name="PersistentVolumeClaim",
    path="/api/v1/persistentvolumeclaims",
    nickname="pvc",
    namespaced=True,
    wire=storage.ClaimObject,
    make=storage.claim,
)
VOLUMES: Final = Kind(
    name="PersistentVolume",
    path="/api/v1/persistentvolumes",
    nickname="pv",
    wire=storage.VolumeObject,
    make=storage.volume,
)
CSI_NODES: Final = Kind(
    name="CSINode",
    path="/apis/storage.k8s.io/v1/csinodes",
    wire=storage.CsiNodeObject,
    make=storage.csi_node,
)
NAMESPACES: Final = Kind(
    name="Namespace",
    path="/api/v1/namespaces",
    nickname="ns",
    wire=namespaces.NamespaceObject,
    make=namespaces.namespace,
    optional=True,
)
ATTACHMENTS: Final = Kind(
    name="VolumeAttachment",
    path="/apis/storage.k8s.io/v1/volumeattachments",
    wire=storage.AttachmentObject,
    make=storage.attachment,
    optional=True,
)
TEMPLATES: Final = Kind(
    name="PodTemplate",
    path="/api/v1/podtemplates",
    namespaced=True,
    wire=buffers.TemplateObject,
    make=buffers.template,
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
    optional=True,
    in_dumps=False,
)
NODE_POOLS: Final = Kind(
    name="NodePool",
    path="/apis/karpenter.sh/v1/nodepools",
    wire=autoscalers.NodePoolObject,
    make=autoscalers.node_pool,
    optional=True,
    in_dumps=False,
)
NODE_CLAIMS: Final = Kind(
    name="NodeClaim",
    path="/apis/karpenter.sh/v1/nodeclaims",
    wire=autoscalers.NodeClaimObject,
    make=autoscalers.node_claim,
    optional=True,
    in_dumps=False,
)
STATUSES: Final = Kind(
    name="ConfigMap",
    path="/api/v1/configmaps",
    namespaced=True,
    wire=autoscalers.StatusObject,
    make=autoscalers.autoscaler_status,
    optional=True,
    in_dumps=False,
)
DAEMON_SETS: Final[Kind[workloads.DaemonSetObject, DaemonSet | None]] = Kind(
    name="DaemonSet",
    path="/apis/apps/v1/daemonsets",
    nickname="ds",
    namespaced=True,
    wire=workloads.DaemonSetObject,
    make=workloads.daemon_set,
    optional=True,
    in_dumps=False,
)
STORAGE_CLASSES: Final = Kind(
    name="StorageClass",
    path="/apis/storage.k8s.io/v1/storageclasses",
    nickname="sc",
    wire=storage.StorageClassObject,
    make=storage.storage_class,
    optional=True,
    in_dumps=False,
)
DEVICE_CLASSES: Final = Kind(
    name="DeviceClass",
    path="/apis/resource.k8s.io/v1/deviceclasses",
    wire=devices.DeviceClassObject,
    make=devices.device_class,
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
    in_dumps=False,
)
REPLICA_SETS: Final[Kind[workloads.ReplicaSetObject, ListedReplicaSet | None]] = Kind(
    name="ReplicaSet",
    path="/apis/apps/v1/replicasets",
    nickname="rs",
    namespaced=True,
    wire=workloads.ReplicaSetObject,
    make=workloads.replica_set,
    in_dumps=False,
)
HORIZONTAL_AUTOSCALERS: Final[Kind[workloads.AutoscalerObject, HorizontalAutoscaler | None]] = (
    Kind(
        name="HorizontalPodAutoscaler",
        path="/apis/autoscaling/v2/horizontalpodautoscalers",
        nickname="hpa",
        namespaced=True,
        wire=workloads.AutoscalerObject,
        make=workloads.horizontal_autoscaler,
        in_dumps=False,
    )
)
QUOTAS: Final = Kind(
    name="ResourceQuota",
    path="/api/v1/resourcequotas",
    nickname="quota",
    namespaced=True,
    wire=quotas.QuotaObject,
    make=quotas.resource_quota,
    in_dumps=False,
)
