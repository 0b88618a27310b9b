"""The kinds of the API that Ebb knows, one entry each; dumps, lists and watches go by this table.

A new kind is an entry here, with a module beside this one that says how it is read. Who lists and
watches them needs the right to: the manifests are held to this table by tests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

import msgspec

from core.edge.decode import budget, buffers, node, placeholders, pod, storage
from core.edge.decode.fields import FAULTS, TOO_DEEP, Bytes, join, strictly, where_of
from core.edge.decode.json_depth import decoded
from core.edge.decode.objects import NAME_DECODER, PodObject
from core.edge.decode.placeholders import Outline
from core.model.buffers import Buffer, PodTemplate
from core.model.cluster import DisruptionBudget
from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import Pod
from core.model.volumes import Claim, CsiNode, Volume

Object = Node | Pod | DisruptionBudget | Claim | Volume | CsiNode | PodTemplate | Buffer
Wire_ = TypeVar("Wire_")
Model_ = TypeVar("Model_")


@dataclass(frozen=True, eq=False, kw_only=True)
class Kind(Generic[Wire_, Model_]):
    """One kind: what it is called, where it is listed, and how it becomes an object of the model.

    Reading is straight from bytes: typed decoding skips what is not named, so that a pod of 5 kB
    costs microseconds. Every fault names source, object and field.
    """

    name: str
    path: str
    """Of the list of all."""
    older: tuple[str, ...] = ()
    """The same in other versions of its API, which are asked where that one is not served."""
    optional: bool = False
    """A cluster may do without it, or without the right to read it: then there is none."""
    wire: type[Wire_]
    make: Callable[[Wire_], Model_]
    """Its faults name the field."""
    field: str
    """The argument of core.model.volumes.build_cluster that its objects are."""
    namespaced: bool = False
    nickname: str = ""
    """What kubectl calls it; empty: as the resource."""
    blind: Callable[[Bytes, str], Model_ | None] = placeholders.nothing
    """From the bytes of one that cannot be read, and why not: what stands for it."""

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Wire_]:
        """Return the one of its wire form."""
        return msgspec.json.Decoder(self.wire)

    @cached_property
    def resource(self) -> str:
        """Return the name in paths, rights and metrics."""
        return self.path.rpartition("/")[2]

    @cached_property
    def group(self) -> str:
        """Return that of its API; empty: the core's."""
        _, root, group, *_ = self.path.split("/")
        return group if root == "apis" else ""

    def is_of(self, api_version: object) -> bool:
        """Say whether an object of the kind's name and that apiVersion is one of the kind.

        Other APIs have kinds of the same name: Longhorn and OpenShift have a Node of their own.
        Where there is no apiVersion the name alone says it.
        """
        if not isinstance(api_version, str) or not api_version:
            return True
        return api_version.rpartition("/")[0] == self.group

    @property
    def paths(self) -> tuple[str, ...]:
        """Return where it may be listed, the best first."""
        return (self.path, *self.older)

    @property
    def short(self) -> str:
        """Return what kubectl calls it."""
        return self.nickname or self.resource

    def within(self, outer: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 a generic struct
        """Return a decoder of something around the wire form: a page, an event."""
        return msgspec.json.Decoder(outer[self.wire])

    def key(self, one: Any) -> str:  # noqa: ANN401 an object of the model, or any metadata
        """Return the name, with the namespace before it if it has one."""
        name: str = one.name
        return f"{one.namespace or 'default'}/{name}" if self.namespaced else name

    def path_of(self, key: str) -> str:
        """Return where the object of a key stands."""
        namespace, _, name = key.rpartition("/")
        return f"{in_namespace(self.path, namespace) if namespace else self.path}/{name}"

    def read(self, raw: Bytes, source: str = "") -> Model_:
        """Decode one; None for one that does not count: a finished pod, a gated one.

        Raises: InvalidInputError that names source, object and field.
        """
        return self.made(self._decoded(raw, source), source)

    def made(self, obj: Wire_, source: str = "") -> Model_:
        """Make one of its decoded wire form. Raises: as `read`."""
        try:
            return self.make(obj)
        except InvalidInputError as fault:
            meta = obj.metadata  # type: ignore[attr-defined]
            where = join(where_of(source, self.name, meta.namespace, meta.name), fault.where)
            raise InvalidInputError(where, fault.problem) from fault

    def taken(self, item: Any) -> Model_:  # noqa: ANN401 its wire form, bytes, or Outline
        """Make one, or what stands for it. Raises: as `read` when nothing does."""
        if isinstance(item, Outline):
            where = where_of("", self.name, item.metadata.namespace, item.metadata.name)
            return self._instead(item.raw, InvalidInputError(where, TOO_DEEP))
        try:
            return self.read(item) if isinstance(item, msgspec.Raw) else self.made(item)
        except InvalidInputError as fault:
            # Of the wire form the faulty field alone was read: the rest is found in its bytes.
            raw = item if isinstance(item, msgspec.Raw) else msgspec.json.encode(item)
            return self._instead(raw, fault)

    def _instead(self, raw: Bytes, fault: InvalidInputError) -> Model_:
        """Return what stands for one that cannot be read. Raises: *fault* when nothing does."""
        found = self.blind(raw, str(fault))
        if found is None:
            raise fault
        return found

    def _decoded(self, raw: Bytes, source: str) -> Wire_:
        """Decode one; the search for its name is paid for by faults alone."""
        try:
            return decoded(self.decoder.decode, bytes(raw))
        except FAULTS:
            where = join(source, self.name)
            who = strictly(NAME_DECODER.decode, raw, where).metadata
            if who:
                where = where_of(source, self.name, who.namespace, who.name)
            return strictly(self.decoder.decode, raw, where)


def in_namespace(path: str, namespace: str) -> str:
    """Return where the part of a list is that is in one namespace."""
    root, _, resource = path.rpartition("/")
    return f"{root}/namespaces/{namespace}/{resource}"


AnyKind = Kind[Any, Any]
NODES: Final = Kind(
    name="Node",
    path="/api/v1/nodes",
    wire=node.NodeObject,
    make=node.node,
    blind=placeholders.node,
    field="nodes",
)
PODS: Final[Kind[PodObject, Pod | None]] = Kind(
    name="Pod",
    path="/api/v1/pods",
    namespaced=True,
    wire=PodObject,
    make=pod.pod,
    blind=placeholders.pod,
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
TEMPLATES: Final = Kind(
    name="PodTemplate",
    path="/api/v1/podtemplates",
    namespaced=True,
    wire=buffers.TemplateObject,
    make=buffers.template,
    field="templates",
    optional=True,
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
)
KINDS: Final[tuple[AnyKind, ...]] = (
    NODES, PODS, BUDGETS, CLAIMS, VOLUMES, CSI_NODES, TEMPLATES, BUFFERS
)  # fmt: skip
"""In the order in which they are listed, nodes first: pods on a node that came later are left out,
but no node looks empty that is not."""
BY_NAME: Final[Mapping[str, AnyKind]] = {kind.name: kind for kind in KINDS}
