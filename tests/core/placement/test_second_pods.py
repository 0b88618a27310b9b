"""Running pods for which a second pod has no place while they run: a row for each rule."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from core.config.settings import Config
from core.engine.planner_parts import new_packer
from core.engine.snapshot import ClusterSnapshot
from core.model.cluster import Cluster
from core.model.constraints import (
    HOST_LABEL,
    HostPort,
    PodAffinityTerm,
    PodConstraints,
    Requirement,
    SpreadConstraint,
)
from core.model.node import Node
from core.model.pod import DETACHED_LABEL, TEMPLATE_LABEL, Pod
from tests.support.builders import node, pod, select
from tests.support.reference_fit import ZONE

A: Final = select("a")
OF_HASH: Final = replace(
    A, requirements=(*A.requirements, Requirement(TEMPLATE_LABEL, "In", ("h",)))
)
"""Selector with `matchLabelKeys: [pod-template-hash]`."""
NEAR: Final = PodConstraints(near=(PodAffinityTerm(A, ZONE),))


def zoned(*zones: str) -> list[Node]:
    """Return nodes n0, n1 and so on with these zones."""
    return [
        node(f"n{number}", 1000, labels={ZONE: zone, HOST_LABEL: f"n{number}"})
        for number, zone in enumerate(zones)
    ]


def pods_on(
    pod_constraints: PodConstraints, *on: int, app: str = "a", cpu: int = 100
) -> list[Pod]:
    labels = {"app": app, TEMPLATE_LABEL: "h"}
    return [
        pod(f"{app}{number}", f"n{number}", cpu, 0, labels=labels, pod_constraints=pod_constraints)
        for number in on
    ]


def filling(*on: int) -> list[Pod]:
    """Return pods without constraints that leave no room on these nodes."""
    return pods_on(PodConstraints(), *on, app="full", cpu=950)


def crowded(nodes: Sequence[Node], pods: Sequence[Pod], kinds_max: int = 1000) -> set[str]:
    packer = new_packer(ClusterSnapshot(Cluster.of(nodes, pods), Config()))
    return {packer.pods[number].name for number in packer.second_pods((), kinds_max).crowded}


def apart(key: str = ZONE, selector: object = A) -> PodConstraints:
    return PodConstraints(apart=(PodAffinityTerm(selector, key),))  # type: ignore[arg-type]


def spread(key: str = ZONE, selector: object = A) -> PodConstraints:
    return PodConstraints(spread=(SpreadConstraint(selector, key, 1),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pod_constraints", "zones", "on", "full", "expected"),
    [
        pytest.param(apart(), "aabc", (0, 2, 3), (), {"a0", "a2", "a3"}, id="a pod in each zone"),
        pytest.param(apart(), "aabcd", (0, 2, 3), (), set(), id="a free zone"),
        pytest.param(apart(), "aabcd", (0, 2, 3), (4,), {"a0", "a2", "a3"}, id="a full zone"),
        pytest.param(
            apart(selector=OF_HASH), "aabc", (0, 2, 3), (), {"a0", "a2", "a3"},
            id="the anti-affinity of the old pod keeps the new one away",
        ),
        pytest.param(apart(HOST_LABEL), "aabc", (0, 2, 3), (), set(), id="a pod on each node"),
        pytest.param(spread(), "aabc", (0, 1, 2, 3), (2, 3), {"a0", "a1", "a2", "a3"},
                     id="more would be too many in the zone with room"),
        pytest.param(spread(), "aabc", (0, 1, 2, 3), (2,), {"a3"}, id="only node n3 has room"),
        pytest.param(
            spread(selector=OF_HASH), "aabc", (0, 1, 2, 3), (2, 3), {"a2", "a3"},
            id="the old pod is not counted, so it can be replaced in its zone",
        ),
        pytest.param(spread(HOST_LABEL), "aab", (0, 1, 2), (), set(), id="spread over nodes"),
        pytest.param(
            spread(HOST_LABEL, OF_HASH), "aab", (0, 1, 2), (), {"a0", "a1", "a2"},
            id="without the old pod its own node has the fewest pods",
        ),
        pytest.param(
            spread(HOST_LABEL, OF_HASH), "aabb", (0, 1, 2), (), set(),
            id="another node has as few pods",
        ),
        pytest.param(NEAR, "aab", (0,), (1,), {"a0"}, id="the zone of its affinity is full"),
        pytest.param(NEAR, "aab", (0,), (), set(), id="its zone has room"),
        pytest.param(
            PodConstraints(near=(PodAffinityTerm(OF_HASH, ZONE),)), "aab", (0,), (1,), set(),
            id="the new pod is the first one of its affinity",
        ),
        pytest.param(
            PodConstraints(host_ports=(HostPort(80),)), "ab", (0, 1), (), set(),
            id="host ports concern the node alone",
        ),
    ],
)  # fmt: skip
def test_pod_is_crowded_when_old_and_new_pod_cannot_run_together(
    pod_constraints: PodConstraints,
    zones: str,
    on: Sequence[int],
    full: Sequence[int],
    expected: set[str],
) -> None:
    pods = [*pods_on(pod_constraints, *on), *filling(*full)]
    assert crowded(zoned(*zones), pods) == expected


@pytest.mark.parametrize(
    "changes", [{"owner_kind": "StatefulSet"}, {"labels": {"app": "a", DETACHED_LABEL: "h"}}]
)
def test_only_pods_that_may_be_detached_are_crowded(changes: dict[str, Any]) -> None:
    pods = pods_on(apart(), 0, 2)
    assert crowded(zoned(*"aab"), pods) == {"a0", "a2"}
    pods = [replace(one, **changes) for one in pods]
    assert crowded(zoned(*"aab"), pods) == set()


def test_kinds_of_pods_beyond_the_limit_have_a_place() -> None:
    nodes = zoned(*"aab")
    pods = [*pods_on(apart(), 0, 2), *pods_on(apart(selector=select("b")), 0, 2, app="b")]
    assert crowded(nodes, pods) == {"a0", "a2", "b0", "b2"}
    assert len(crowded(nodes, pods, kinds_max=1)) == 2
    assert crowded(nodes, pods, kinds_max=0) == set()


def test_kinds_of_other_sizes_are_looked_at_anew() -> None:
    """Both pods may run in zone b only, which has room for the small pod alone."""
    nodes, away = zoned(*"aabb"), PodConstraints(apart=(PodAffinityTerm(select("x"), ZONE),))
    pods = [
        *pods_on(away, 0, cpu=100),
        replace(pods_on(away, 0, cpu=300)[0], name="big"),
        *pods_on(PodConstraints(), 0, app="x", cpu=10),
        *pods_on(PodConstraints(), 2, 3, app="full", cpu=800),
    ]
    assert crowded(nodes, pods) == {"big"}
