"""The setup around Ebb: objects on which Ebb depends, and which only `ebb doctor` checks.

It consists of Deployments, the webhook or admission policy, RBAC objects, NodePools, and more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cli.input.setup_objects import (
    BindingObject,
    DeploymentObject,
    PodObject,
    PolicyBindingObject,
    PolicyObject,
    RegistrationObject,
    RoleObject,
    SliceObject,
)
from controller.names import CONFIG_MAP, HISTORY, LEASE, TODAY
from core.config.settings import Config
from core.model.cluster import Cluster
from core.model.pod import Pod
from kube.cluster_kinds import CLUSTER_KINDS, ONLY, SURGE_KINDS
from kube.decode.autoscalers import NodePoolObject
from kube.decode.kinds import in_namespace
from webhook.names import SERVICE

Value_ = TypeVar("Value_")
SYSTEM: Final = "kube-system"
"""Namespace in which distributions run kube-scheduler and Cluster Autoscaler."""
POLICY: Final = "ebb-node-taint"
"""Name of the MutatingAdmissionPolicy and of its binding, as in manifests/."""
OURS: Final = "app.kubernetes.io/name=ebb"
"""Selector of the objects of Ebb, as in manifests/."""
SERVICE_LABEL: Final = "kubernetes.io/service-name"
EXTENDER_LABEL: Final = ("app.kubernetes.io/component", "extender")
"""Label of the pods of the extender, as in manifests/."""
EXTENDER_PORT_NAME: Final = "prioritize"
"""Name of the container port of the extender, as in manifests/."""
SETUP_DUMP: Final = "setup.json of docs/doctor.md#from-a-dump"
"""The dump with the kinds of SETUP_KINDS that every cluster serves, and DaemonSets."""
NOT_IN_DUMP: Final = "not in the dump"


@dataclass(frozen=True, slots=True)
class Read(Generic[Value_]):
    """A value that was read, or why it could not be read."""

    value: Value_ | None = None
    absent: str = ""
    """Why the value is unknown; empty if it is known."""


@dataclass(frozen=True, kw_only=True)
class SetupKind:
    """A kind of objects that only `ebb doctor` reads, or reads with other fields than a plan."""

    name: str
    path: str
    wire: type[Any]
    namespace: str = ""
    """The only namespace of which a live cluster is read; `{ebb}` is that of Ebb."""
    label_selector: str | None = None
    optional: bool = False
    """If the API server does not serve the kind, there are no objects."""
    contains: tuple[bytes, ...] = ()
    """Only objects of a dump with one of these texts are decoded; empty: all."""

    @property
    def dump(self) -> str:
        """Return the name of the dump that contains the kind, for messages."""
        # kubectl fails if the cluster does not serve one of the kinds, so the dump with several
        # kinds does not have the optional ones.
        if not self.optional:
            return SETUP_DUMP
        return f"the output of `kubectl get {self.resource} -o json`"

    @property
    def resource(self) -> str:
        """Return the plural name of the kind, as in API paths and RBAC rules."""
        return self.path.rpartition("/")[2]

    @property
    def group(self) -> str:
        """Return the API group of the kind; empty for the core group."""
        _, root, group, *_ = self.path.split("/")
        return group if root == "apis" else ""

    def live_path(self, namespace: str) -> str:
        """Return the API path that lists the kind; *namespace*: that of Ebb."""
        if not self.namespace:
            return self.path
        return in_namespace(self.path, self.namespace.format(ebb=namespace))


_APPS, _RBAC = "/apis/apps/v1", "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
# A dump has Pods anyway. They contain the flags of a program whose Deployment is missing.
_PROGRAMS: Final = (b"cluster-autoscaler", b"kube-scheduler")
DEPLOYMENTS: Final = SetupKind(
    name="Deployment", path=f"{_APPS}/deployments", wire=DeploymentObject
)
SYSTEM_PODS: Final = SetupKind(
    name="Pod",
    path="/api/v1/pods",
    wire=PodObject,
    namespace=SYSTEM,
    contains=_PROGRAMS,
)
NODE_POOLS: Final = SetupKind(
    name="NodePool",
    path="/apis/karpenter.sh/v1/nodepools",
    wire=NodePoolObject,
    optional=True,
)
REGISTRATIONS: Final = SetupKind(
    name="MutatingWebhookConfiguration",
    path=f"{_ADMISSION}/mutatingwebhookconfigurations",
    wire=RegistrationObject,
)
POLICIES: Final = SetupKind(
    name="MutatingAdmissionPolicy",
    path=f"{_ADMISSION}/mutatingadmissionpolicies",
    wire=PolicyObject,
    optional=True,
)
POLICY_BINDINGS: Final = SetupKind(
    name="MutatingAdmissionPolicyBinding",
    path=f"{_ADMISSION}/mutatingadmissionpolicybindings",
    wire=PolicyBindingObject,
    optional=True,
)
GUARDS: Final = SetupKind(
    name="ValidatingAdmissionPolicy",
    path=f"{_ADMISSION}/validatingadmissionpolicies",
    wire=PolicyObject,
    label_selector=OURS,
)
GUARD_BINDINGS: Final = SetupKind(
    name="ValidatingAdmissionPolicyBinding",
    path=f"{_ADMISSION}/validatingadmissionpolicybindings",
    wire=PolicyBindingObject,
    label_selector=OURS,
)
SLICES: Final = SetupKind(
    name="EndpointSlice",
    path="/apis/discovery.k8s.io/v1/endpointslices",
    wire=SliceObject,
    namespace="{ebb}",
    label_selector=f"{SERVICE_LABEL}={SERVICE}",
)
CLUSTER_ROLES: Final = SetupKind(name="ClusterRole", path=f"{_RBAC}/clusterroles", wire=RoleObject)
CLUSTER_ROLE_BINDINGS: Final = SetupKind(
    name="ClusterRoleBinding", path=f"{_RBAC}/clusterrolebindings", wire=BindingObject
)
ROLES: Final = SetupKind(name="Role", path=f"{_RBAC}/roles", wire=RoleObject)
ROLE_BINDINGS: Final = SetupKind(
    name="RoleBinding", path=f"{_RBAC}/rolebindings", wire=BindingObject
)
RBAC_KINDS: Final = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS)
SETUP_KINDS: Final = (
    DEPLOYMENTS, SYSTEM_PODS, NODE_POOLS, REGISTRATIONS, POLICIES, POLICY_BINDINGS,
    GUARDS, GUARD_BINDINGS, SLICES,
    *RBAC_KINDS,
)  # fmt: skip
"""The kinds that `ebb doctor` reads beside those of a plan; none is required."""


class Right(NamedTuple):
    """One permission: a verb on a resource, in a namespace or in the whole cluster."""

    verb: str
    group: str
    resource: str
    """Resource, with a subresource after a slash."""
    namespace: str = ""
    """Namespace; empty: all of them."""
    name: str = ""
    """Name of the only object; empty: all objects."""

    def __str__(self) -> str:
        """Return the permission as arguments of `kubectl auth can-i`."""
        resource, _, subresource = self.resource.partition("/")
        of = f"{resource}.{self.group}" if self.group else resource
        name = f"/{self.name}" if self.name else ""
        within = f"-n {self.namespace}" if self.namespace else "-A"
        sub = f" --subresource={subresource}" if subresource else ""
        return f"{self.verb} {of}{name}{sub} {within}"

    def attributes(self) -> Mapping[str, str]:
        """Return the permission as resourceAttributes of an access review."""
        resource, _, subresource = self.resource.partition("/")
        attributes = {**self._asdict(), "resource": resource, "subresource": subresource}
        return {field: value for field, value in attributes.items() if value}


def viewer_rights(config: Config, namespace: str) -> tuple[Right, ...]:
    """Return the permissions that a user needs so that the commands of `ebb` can read everything.

    *namespace*: namespace in which Ebb is installed.
    """
    kinds = (*CLUSTER_KINDS, *(SURGE_KINDS if config.surges else ()))
    lists = []
    for kind in kinds:
        within, _, name = ONLY[kind](config).partition("/") if kind in ONLY else ("", "", "")
        lists.append(Right("list", kind.group, kind.resource, within, name))
    return (
        *lists,
        Right("get", "coordination.k8s.io", "leases", namespace, LEASE),
        *(
            Right("get", "", "configmaps", namespace, name)
            for name in (CONFIG_MAP, TODAY, HISTORY)
        ),
        Right("get", "", "pods", namespace),
        Right("create", "", "pods/portforward", namespace),
    )


def running_extenders(cluster: Cluster, namespace: str) -> tuple[Pod, ...]:
    """Return the running pods of Ebb's scheduler extender, sorted by name.

    *namespace*: namespace in which Ebb is installed.
    """
    label, value = EXTENDER_LABEL
    pods_of_ebb = (pod for pod in cluster.pods if pod.namespace == namespace)
    ours = (pod for pod in pods_of_ebb if pod.labels.get(label) == value and pod.node is not None)
    return tuple(sorted(ours, key=lambda pod: pod.name))


class ExtenderCalls(NamedTuple):
    """Calls of kube-scheduler to Ebb's scheduler extender, as its replicas have counted them."""

    by_result: Mapping[str, int]
    """Number of prioritize calls by result: scored, neutral, refused."""
    replicas: int


class ApiTime(NamedTuple):
    """The time of the API server, and that of this machine at the same moment, in Unix seconds."""

    server_seconds: int
    local_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The objects around Ebb that only `ebb doctor` checks, such as RBAC objects and NodePools.

    It also has permissions of the user, calls of the extender, and the API server's time. Each
    value may be unknown, with a reason. The defaults are those of a dump without any of them.
    """

    objects: Mapping[str, Read[tuple[Any, ...]]] = field(default_factory=dict)
    """Objects of SETUP_KINDS by the name of their kind."""
    access: Read[Mapping[Right, bool]] = Read(absent="a dump has no permissions of your user")
    """Whether the user of the command has each of `viewer_rights`."""
    extender: Read[ExtenderCalls] = Read(absent="a dump has no metrics of the extender")
    """Calls that the extender has received."""
    api_time: Read[ApiTime] = Read(absent="a dump has no time of the API server")
    """Time of the API server."""

    def of(self, kind: SetupKind) -> Read[tuple[Any, ...]]:
        """Return the objects of a kind that were read, or why they are unknown."""
        return self.objects.get(kind.name, Read(absent=NOT_IN_DUMP))
