"""List the objects of a namespace that select pods by labels, before a move begins.

They are listed and not watched: a cluster can have thousands of them, and few moves begin.
Source: k8s.io/api core/v1, apps/v1, policy/v1 and networking/v1.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from core.model.constraints import NO_POD, PodSelector
from core.model.errors import UnavailableError
from core.moves.selecting import SelectingObject, SelectingObjects
from kube.client import Client, answered
from kube.decode.kinds import in_namespace
from kube.decode.objects import LabelSelector, Name, Struct
from kube.decode.selectors import pods_of
from kube.listing import Page

OBJECTS_MAX: Final = 10_000
"""Maximum number of objects of a kind in a namespace; with more, no pod of it is moved."""


class _BySelector(Struct):
    selector: LabelSelector | None = None


class _ByLabels(Struct):
    selector: dict[str, str] | None = None


class _Peer(Struct):
    pod_selector: LabelSelector | None = None


class _Ingress(Struct):
    peers: list[_Peer] | None = msgspec.field(default=None, name="from")


class _Egress(Struct):
    peers: list[_Peer] | None = msgspec.field(default=None, name="to")


class _Policy(Struct):
    pod_selector: LabelSelector | None = None
    ingress: list[_Ingress] | None = None
    egress: list[_Egress] | None = None


class _WithSelector(Struct):
    metadata: Name
    spec: _BySelector | None = None


class _WithLabels(Struct):
    metadata: Name
    spec: _ByLabels | None = None


class _NetworkPolicy(Struct):
    metadata: Name
    spec: _Policy | None = None


class _Kind(NamedTuple):
    name: str
    path: str
    """Path of the list of all namespaces."""
    wire: type[Any]
    selectors: Callable[[Any], Iterator[PodSelector]]
    """Yields the selectors of a spec."""

    @property
    def access(self) -> tuple[str, str]:
        """Return the API group and the resource, as in RBAC rules."""
        _, root, group, *_ = self.path.split("/")
        return "" if root == "api" else group, self.path.rpartition("/")[2]


def _by_selector(spec: _BySelector) -> Iterator[PodSelector]:
    yield pods_of(spec.selector, None)


def _by_labels(spec: _ByLabels) -> Iterator[PodSelector]:
    # An empty map selects nothing here, unlike an empty label selector.
    yield pods_of(LabelSelector(match_labels=spec.selector), None) if spec.selector else NO_POD


def _of_policy(spec: _Policy) -> Iterator[PodSelector]:
    yield pods_of(spec.pod_selector or LabelSelector(), None)
    for rule in (*(spec.ingress or ()), *(spec.egress or ())):
        for peer in rule.peers or ():
            yield pods_of(peer.pod_selector, None)


CONTROLLERS: Final = (
    _Kind("ReplicaSet", "/apis/apps/v1/replicasets", _WithSelector, _by_selector),
    _Kind("DaemonSet", "/apis/apps/v1/daemonsets", _WithSelector, _by_selector),
    _Kind("ReplicationController", "/api/v1/replicationcontrollers", _WithLabels, _by_labels),
)
OBSERVERS: Final = (
    _Kind("Service", "/api/v1/services", _WithLabels, _by_labels),
    _Kind(
        "PodDisruptionBudget",
        "/apis/policy/v1/poddisruptionbudgets",
        _WithSelector,
        _by_selector,
    ),
    _Kind(
        "NetworkPolicy",
        "/apis/networking.k8s.io/v1/networkpolicies",
        _NetworkPolicy,
        _of_policy,
    ),
)


async def selecting_objects(client: Client, namespace: str) -> SelectingObjects:
    """Return all objects of the namespace that select pods by labels.

    Raises: UnavailableError, also if there are more than OBJECTS_MAX of a kind.
    """
    controllers = [one for kind in CONTROLLERS for one in await _listed(client, kind, namespace)]
    observers = [one for kind in OBSERVERS for one in await _listed(client, kind, namespace)]
    return SelectingObjects(tuple(controllers), tuple(observers))


async def _listed(client: Client, kind: _Kind, namespace: str) -> list[SelectingObject]:
    decoder: msgspec.json.Decoder[Page[Any]] = msgspec.json.Decoder(Page[kind.wire])  # type: ignore[name-defined]
    found: list[SelectingObject] = []
    token: str | None = None
    while True:
        path = in_namespace(kind.path, namespace)
        page = answered(decoder, await client.page(path, label_selector=None, token=token))
        for item in page.items or ():
            selectors = tuple(kind.selectors(item.spec)) if item.spec else ()
            found.append(SelectingObject(kind.name, item.metadata.name, selectors))
        token = page.metadata.token
        if len(found) > OBJECTS_MAX:
            raise UnavailableError(
                f"namespace {namespace} has more than {OBJECTS_MAX} objects of kind {kind.name}"
            )
        if not token:
            return found
