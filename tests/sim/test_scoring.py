"""Scores of the simulated scheduler, compared with kube-scheduler and with examples."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from core.model.pod import DETACHED_LABEL, TEMPLATE_LABEL
from core.placement.usable_capacity import Amount
from sim.cluster import ClusterState, Place
from sim.scheduler import Scheduler
from sim.scoring import (
    PACKED,
    Profile,
    Strategy,
    Weighed,
    balanced,
    least_allocated,
    most_allocated,
    spread,
)
from tests.support.builders import node, pod

RECORDED = json.loads((Path(__file__).parent / "recorded" / "kubernetes.json").read_bytes())
MOST = Strategy.MOST_ALLOCATED


def test_scores_match_kube_scheduler() -> None:
    for case in RECORDED["scores"]:
        requested, allocated, whole = (
            Amount(*case[name]) for name in ("requested", "allocated", "allocatable")
        )
        found = (
            least_allocated(requested, whole),
            most_allocated(requested, whole),
            balanced(requested, allocated, whole),
        )
        assert found == (case["least"], case["most"], case["balanced"]), case


def test_recorded_scores_differ_between_strategies() -> None:
    names = ("least", "most", "balanced")
    answers = {name: {case[name] for case in RECORDED["scores"]} for name in names}
    assert all(len(found) > 10 for found in answers.values())


def state(*used: int) -> ClusterState:
    """Return nodes of four cores and 8 GiB with these requested millicores."""
    found = ClusterState()
    for number, cpu in enumerate(used):
        found.add_node(node(f"n{number}", 4000), 0)
        one = pod(f"p{number}", None, cpu, 100)
        found.arrive(one, 0)
        found.bind(one, f"n{number}")
    return found


@pytest.mark.parametrize(
    ("profile", "chosen"),
    [(Profile(), "n0"), (Profile(MOST, balanced_weight=0), "n1"), (PACKED, "n1")],
)
def test_profile_determines_whether_fuller_node_is_chosen(profile: Profile, chosen: str) -> None:
    scheduler = Scheduler(state(500, 2500), None, 1, profile)
    assert scheduler.choose(pod("new", None, 500, 100)) == chosen


def test_scores_are_multiplied_by_weights() -> None:
    place: Place = state(1000).places["n0"]
    new = pod("new", None, 1000, 0)
    fit = Weighed(Profile(MOST, fit_weight=1, balanced_weight=0)).score(place, new)
    both = Weighed(Profile(MOST, fit_weight=3, balanced_weight=2)).score(place, new)
    balance = Weighed(Profile(MOST, fit_weight=0, balanced_weight=1)).score(place, new)
    assert both == 3 * fit + 2 * balance
    assert balance >= 50


def test_pod_without_requests_is_not_balanced_and_counts_as_small() -> None:
    place = state(1000).places["n0"]
    nothing, something = pod("a", None, 0, 0), pod("b", None, 100, 200)
    only_balance = Weighed(Profile(fit_weight=0))
    assert only_balance.score(place, nothing) == 0
    assert only_balance.score(place, something) > 0
    assert Weighed(PACKED).score(place, nothing) == Weighed(PACKED).score(place, something)


def test_replicas_are_spread_when_profile_allows() -> None:
    assert spread([0, 0, 0]) == [100, 100, 100]
    assert spread([0, 1, 5]) == [100, 80, 20]
    found = state(2500, 500)
    mine = replace(pod("mine", None, 500, 100), owner_kind="ReplicaSet", owner_name="a")
    found.arrive(mine, 0)
    found.bind(mine, "n0")
    for owner, by_default, packed in (("a", "n1", "n0"), ("b", "n1", "n0")):
        new = replace(mine, name=f"new-{owner}", owner_name=owner)
        assert Scheduler(found, None, 1).choose(new) == by_default
        assert Scheduler(found, None, 1, PACKED).choose(new) == packed
    once = Profile(MOST, balanced_weight=0)
    choices = {
        o: Scheduler(found, None, 1, once).choose(replace(mine, name=o, owner_name=o))
        for o in "ab"
    }
    assert choices == {"a": "n1", "b": "n0"}


def test_detached_pod_does_not_count_when_replicas_are_spread() -> None:
    """The selector of its ReplicaSet does not match it, so its own node is as good as others."""
    found = state(2500, 500)
    mine = replace(
        pod("mine", None, 500, 100, labels={TEMPLATE_LABEL: "1"}),
        owner_kind="ReplicaSet",
        owner_name="a",
    )
    found.arrive(mine, 0)
    bound = found.bind(mine, "n0")
    new, once = replace(mine, name="new"), Profile(MOST, balanced_weight=0)
    assert Scheduler(found, None, 1, once).choose(new) == "n1"
    found.replace_pod(replace(bound, labels={DETACHED_LABEL: "1"}))
    assert Scheduler(found, None, 1, once).choose(new) == "n0"
