"""Decode the objects that select pods by labels: controllers, and others that observe pods.

Source: k8s.io/api core/v1, apps/v1, policy/v1 and networking/v1.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from core.model.constraints import NO_POD, PodSelector
from kube.decode.objects import LabelSelector, Name, Struct
from kube.decode.selectors import pods_of


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


class SelectingKind(NamedTuple):
    """A kind of objects that select pods by labels."""

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
    SelectingKind("ReplicaSet", "/apis/apps/v1/replicasets", _WithSelector, _by_selector),
    SelectingKind("DaemonSet", "/apis/apps/v1/daemonsets", _WithSelector, _by_selector),
    SelectingKind(
        "ReplicationController", "/api/v1/replicationcontrollers", _WithLabels, _by_labels
    ),
)
OBSERVERS: Final = (
    SelectingKind("Service", "/api/v1/services", _WithLabels, _by_labels),
    SelectingKind(
        "PodDisruptionBudget",
        "/apis/policy/v1/poddisruptionbudgets",
        _WithSelector,
        _by_selector,
    ),
    SelectingKind(
        "NetworkPolicy",
        "/apis/networking.k8s.io/v1/networkpolicies",
        _NetworkPolicy,
        _of_policy,
    ),
)
