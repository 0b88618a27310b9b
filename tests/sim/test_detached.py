"""Detached pods in the simulation: what the ReplicaSet and Deployment controllers do with them."""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.writes.costs import MOVE_COST, UNDO_COST
from sim.deployments import Scaled
from sim.hpa import HorizontalPodAutoscaler
from sim.simulated_load import HOUR_MS, Deployment
from sim.waves import SYNC_MS, level
from tests.support.deployment_world import (
    DETACHED_MS,
    MINUTE_MS,
    SECOND_MS,
    STARTUP_MS,
    WEB,
    DeploymentWorld,
    shown,
)
from tests.support.examples import examples


def test_detached_pod_serves_while_its_replicaset_creates_another_one() -> None:
    world = DeploymentWorld()
    seen = []
    for at_ms in (0, 9 * SECOND_MS, 11 * SECOND_MS):
        world.at(
            DETACHED_MS + at_ms,
            lambda: seen.append((shown(world), world.deployments.scaled("web"))),
        )
    world.run_until(DETACHED_MS + MINUTE_MS)
    assert seen == [
        ((3, 3, 2), Scaled(3, 4, 3)),
        ((3, 3, 2), Scaled(3, 4, 3)),
        ((3, 3, 3), Scaled(3, 4, 4)),
    ]
    assert world.names == ["1-2", "1-3", "1-4", "1-1"]


def test_move_changes_neither_replicas_nor_generation() -> None:
    world = DeploymentWorld()
    specs = []
    for at_ms in (0, 6 * MINUTE_MS, 8 * MINUTE_MS):
        world.at(at_ms + 1, lambda: specs.append(world.deployments.observed("web")))
    world.at(7 * MINUTE_MS, world.attach)
    world.run_until(10 * MINUTE_MS)
    assert len({(one.replicas, one.generation) for one in specs}) == 1
    assert world.simulator.result.pods == 4


def test_missing_ready_pods_count_detached_pod_but_status_does_not() -> None:
    world = DeploymentWorld()
    world.at(DETACHED_MS + MINUTE_MS, world.attach)
    world.run_until(10 * MINUTE_MS)
    result = world.simulator.result
    assert (result.below_desired_ms, result.unavailable_by_moves_ms) == (0, STARTUP_MS)


def test_status_counts_pod_as_available_after_its_min_ready_seconds() -> None:
    world = DeploymentWorld(replace(WEB, min_ready_ms=15 * SECOND_MS))
    seen = []
    for at_ms in (11, 24, 26):
        world.at(DETACHED_MS + at_ms * SECOND_MS, lambda: seen.append(shown(world)[2]))
    world.at(DETACHED_MS + MINUTE_MS, world.attach)
    world.run_until(10 * MINUTE_MS)
    assert seen == [2, 2, 3]
    assert world.simulator.result.unavailable_by_moves_ms == STARTUP_MS + 15 * SECOND_MS


NEW_STARTS = DETACHED_MS + 5 * SECOND_MS
NEW_IS_READY = DETACHED_MS + MINUTE_MS
LATER = DETACHED_MS + 10 * MINUTE_MS


@pytest.mark.parametrize(
    ("deployment", "attached_ms", "left"),
    [
        pytest.param(WEB, NEW_IS_READY, ["1-2", "1-3", "1-4"], id="a move"),
        pytest.param(WEB, NEW_STARTS, ["1-1", "1-2", "1-3"], id="undone, new pod not Ready"),
        pytest.param(replace(WEB, replicas=((0, 1),)), NEW_IS_READY, ["1-2"], id="one replica"),
        pytest.param(
            replace(WEB, replicas=((0, 3), (NEW_IS_READY - 1, 2))),
            NEW_IS_READY,
            ["1-2", "1-3"],
            id="scale-in deletes the youngest pod, the attach the detached one",
        ),
        pytest.param(
            replace(WEB, replicas=((0, 3), (NEW_STARTS - 1, 2))),
            NEW_IS_READY,
            ["1-2", "1-3"],
            id="scale-in deletes the new pod that is not Ready",
        ),
        pytest.param(
            replace(WEB, replicas=((0, 3), (NEW_IS_READY - 1, 5))),
            LATER,
            ["1-2", "1-3", "1-4", "1-5", "1-6"],
            id="scaled out while detached",
        ),
        pytest.param(
            replace(WEB, replicas=((0, 3), (NEW_IS_READY - 1, 0))),
            NEW_IS_READY,
            [],
            id="scaled to 0 while detached",
        ),
        pytest.param(
            replace(WEB, rollouts=(NEW_IS_READY,)),
            LATER,
            ["2-5", "2-6", "2-7"],
            id="after a rollout",
        ),
    ],
)
def test_replicaset_deletes_one_pod_when_detached_pod_is_attached(
    deployment: Deployment, attached_ms: int, left: list[str]
) -> None:
    world = DeploymentWorld(deployment)
    world.at(attached_ms, world.attach)
    world.run_until(LATER + 5 * MINUTE_MS)
    assert sorted(world.names) == left


@pytest.mark.parametrize(
    ("costs", "left"),
    [
        pytest.param({"1-1": MOVE_COST}, ["1-2", "1-3", "1-4"], id="the lowest cost"),
        pytest.param(
            {"1-1": MOVE_COST, "1-4": UNDO_COST}, ["1-1", "1-2", "1-3"], id="cost of an undo"
        ),
        pytest.param({"1-1": None, "1-4": UNDO_COST}, ["1-1", "1-2", "1-3"], id="no cost"),
    ],
)
def test_attach_deletes_ready_pod_with_lowest_cost(
    costs: dict[str, int | None], left: list[str]
) -> None:
    world = DeploymentWorld()

    def attach() -> None:
        for pod, name in zip(world.pods(), world.names, strict=True):
            if name in costs:
                world.cost(pod, costs[name])
        world.attach()

    world.at(NEW_IS_READY, attach)
    world.run_until(LATER)
    assert sorted(world.names) == left


def test_detached_pod_outlives_rollout_and_scale_to_0_until_it_is_attached() -> None:
    for changed in (
        replace(WEB, replicas=((0, 3), (NEW_IS_READY, 0))),
        replace(WEB, rollouts=(NEW_IS_READY,)),
    ):
        world = DeploymentWorld(changed)
        world.run_until(LATER)
        assert world.names[-1] == "1-1"
        replicas = changed.replicas[-1][1]
        assert shown(world) == (replicas,) * 3, "the rollout seems complete"
        assert len(world.names) == replicas + 1


def test_attach_during_rollout_deletes_one_pod_of_the_old_replicaset() -> None:
    world = DeploymentWorld(replace(WEB, rollouts=(NEW_IS_READY,)))
    world.at(NEW_IS_READY + 2 * SECOND_MS, world.attach)
    seen: list[list[str]] = []
    for at_ms in (-1, 1):
        world.at(NEW_IS_READY + 2 * SECOND_MS + at_ms, lambda: seen.append(sorted(world.names)))
    world.run_until(LATER)
    assert seen == [["1-1", "1-2", "1-3", "1-4", "2-5"], ["1-2", "1-3", "1-4", "2-5"]]
    assert sorted(world.names) == ["2-5", "2-6", "2-7"]
    assert world.simulator.result.below_desired_ms == 0


@pytest.mark.parametrize(
    ("oldest", "left"),
    [
        pytest.param(0, ["1-2", "1-3", "1-4"], id="the detached pod"),
        pytest.param(1, ["1-1", "1-3", "1-4", "1-5"], id="another pod"),
    ],
)
def test_restart_while_a_pod_is_detached_replaces_only_controlled_pods(
    oldest: int, left: list[str]
) -> None:
    ages_ms = tuple(HOUR_MS * (1 + (at == oldest)) for at in range(3))
    world = DeploymentWorld(replace(WEB, restarts=(NEW_IS_READY,), ages_ms=ages_ms))
    world.run_until(LATER)
    assert sorted(world.names) == left


def test_evicted_detached_pod_is_not_recreated() -> None:
    world = DeploymentWorld()
    world.at(NEW_IS_READY, lambda: world.simulator.evict(world.pods()[-1]))
    world.run_until(LATER)
    assert world.names == ["1-2", "1-3", "1-4"]
    assert world.simulator.result.pods == 4


@pytest.mark.parametrize(
    ("load", "min_ready_seconds", "replicas"),
    [
        pytest.param("3.2", 15, 4, id="observed: 3 became 4 in the overlap"),
        pytest.param("3.2", 0, 3, id="observed: no overlap, no change"),
        pytest.param("2.84", 15, 3, id="observed: the load needs no more pods"),
    ],
)
def test_hpa_may_raise_replicas_while_detached_and_new_pod_are_ready(
    load: str, min_ready_seconds: int, replicas: int
) -> None:
    min_ready_ms = min_ready_seconds * SECOND_MS
    world = DeploymentWorld(replace(WEB, min_ready_ms=min_ready_ms))
    hpa = HorizontalPodAutoscaler(Fraction(load) / level(DETACHED_MS), 3)

    def sync() -> None:
        wanted = hpa.sync(world.deployments.scaled("web"), world.simulator.now_ms())
        if wanted != world.deployments.scaled("web").replicas:
            world.deployments.scale("web", wanted)

    for at_ms in range(SYNC_MS, 10 * MINUTE_MS, SYNC_MS):
        world.at(at_ms, sync)

    def attach_when_available() -> None:
        if shown(world)[2] == world.deployments.scaled("web").replicas:
            world.attach()
        else:
            world.simulator.after(100, attach_when_available)

    world.at(DETACHED_MS, attach_when_available)
    world.run_until(10 * MINUTE_MS)
    assert world.deployments.scaled("web") == Scaled(replicas, replicas, replicas)
    assert "1-1" not in world.names


CHANGES = st.tuples(
    st.sampled_from(("scale", "roll out", "restart", "detach", "attach")),
    st.integers(0, 12),  # replicas, or which pod is detached
    st.integers(0, 30),  # seconds until the next change
)


@settings(max_examples=examples(60))
@given(st.lists(CHANGES, max_size=12), st.sampled_from((0, 5)))
def test_controllers_reach_wanted_pods_whatever_happens_while_a_pod_is_detached(
    changes: list[tuple[str, int, int]], min_ready_seconds: int
) -> None:
    """The replicas are those that were set, and no pod stays once it is attached."""
    times = [MINUTE_MS]
    for *_, seconds in changes:
        times.append(times[-1] + seconds * SECOND_MS)
    of = {
        kind: [at for at, (one, *_) in zip(times, changes, strict=False) if one == kind]
        for kind in ("roll out", "restart")
    }
    scales = [(at, n) for at, (one, n, _) in zip(times, changes, strict=False) if one == "scale"]
    deployment = replace(
        WEB,
        replicas=((0, 3), *scales),
        rollouts=tuple(of["roll out"]),
        restarts=tuple(of["restart"]),
        min_ready_ms=min_ready_seconds * SECOND_MS,
    )
    world = DeploymentWorld(deployment, detaches=False, nodes=8)
    detached: list[str] = []
    wanted = scales[-1][1] if scales else 3

    def detach(index: int) -> None:
        pods = [pod for pod in world.pods() if pod.key not in detached]
        if pods and not detached:
            detached.append(pods[index % len(pods)].key)
            world.deployments.detach(detached[0])

    def attach() -> None:
        found = {pod.key for pod in world.pods()}
        if detached and (key := detached.pop()) in found:
            world.deployments.attach(key)

    for at, (one, index, _) in zip(times, changes, strict=False):
        if one == "detach":
            world.at(at, partial(detach, index))
        elif one == "attach":
            world.at(at, attach)
    world.at(times[-1] + 1, attach)
    world.run_until(times[-1] + 10 * MINUTE_MS)
    assert world.deployments.scaled("web") == Scaled(wanted, wanted, wanted)
    assert shown(world) == (wanted, wanted, wanted)
