"""Pods without topology spread constraints get those of the cluster."""

from dataclasses import replace

from core.cluster.default_spread import DefaultSpread, with_default_spread
from core.model.constraints import PodConstraints, PodSelector, Requirement, SpreadConstraint
from core.model.pod import Pod
from tests.support.builders import pod
from tests.support.cluster_pods import cluster_pods

ZONES = (DefaultSpread("zone", 1),)
HASH = {"app": "web", "pod-template-hash": "1"}


def of(kind: str = "ReplicaSet", **changes: object) -> Pod:
    made = replace(pod("p", "n", 100, 100, labels=HASH), owner_kind=kind, owner_name="web-1")
    return replace(made, **changes)  # type: ignore[arg-type]


def spread(*pods: Pod) -> list[tuple[SpreadConstraint, ...]]:
    return [
        one.pod_constraints.spread
        for one in with_default_spread(ZONES, cluster_pods(*pods), {})[0].all
    ]


def counted(**labels: str) -> tuple[SpreadConstraint, ...]:
    wanted = tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items()))
    return (SpreadConstraint(PodSelector(("d",), wanted), "zone", 1),)


def test_default_spread_counts_pods_of_same_controller() -> None:
    ordinal = {"app": "db", "apps.kubernetes.io/pod-index": "0", "controller-revision-hash": "x"}
    hashed, labelled = spread(of(), of("StatefulSet", labels=ordinal))
    assert hashed == counted(**{"pod-template-hash": "1"})
    assert labelled == counted(app="db")


def test_pods_of_one_controller_share_their_constraints() -> None:
    one, other = with_default_spread(ZONES, cluster_pods(of(), of(name="q")), {})[0].all
    assert one.pod_constraints is other.pod_constraints


def test_other_pods_have_none() -> None:
    own = PodConstraints(spread=counted(app="web"))
    none = (of("Job"), of(""), of(own_spread=True), of(daemon=True), of(labels={}))
    assert spread(*none, of(too_much="terms"), of(unreadable="spec")) == [()] * 7
    assert spread(of(pod_constraints=own)) == [own.spread]


def test_unchanged_pod_is_returned_as_same_object() -> None:
    pods = cluster_pods(of())
    first, before = with_default_spread(ZONES, pods, {})
    again, _ = with_default_spread(ZONES, pods, before)
    assert first.all[0] is again.all[0]
    assert with_default_spread((), pods, before) == (pods, {})
