"""The simulated controllers: number of pods, order of deletion, and the effect of Ebb on it."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config.settings import Config, Mode, PodDeletionCost
from core.marks.mark import mark_of
from core.marks.wellknown import TAINT_KEY
from core.model.pod import Pod
from extender.view import View
from sim.autoscaler import ScaleDown
from sim.ebb import Ebb, InProcessCalls
from sim.simulated_load import HOUR_MS, Deployment, SimulatedLoad, amount
from sim.simulator import DEFAULT_OPTIONS, Compactor, Simulator
from tests.support.examples import examples

SHAPE = amount(4000, 8192, 0, 110)
SMALL = amount(500, 64, 0)
MINUTE_MS = 60_000


def of(*replicas: tuple[int, int], **others: tuple[int, ...]) -> Deployment:
    return Deployment("web", SMALL, replicas, **others)  # type: ignore[arg-type]


def load(*deployments: Deployment, nodes: int = 6, until_ms: int = HOUR_MS) -> SimulatedLoad:
    return SimulatedLoad(
        "made", (SHAPE,) * nodes, (), until_ms, MINUTE_MS, deployments=tuple(deployments)
    )


class Counted(Simulator):
    """A simulator that records the number of pods and of ready pods after each change."""

    def __init__(
        self, load: SimulatedLoad, how: ScaleDown, compactor: Compactor | None, seed: int
    ) -> None:
        super().__init__(load, how, compactor, seed, DEFAULT_OPTIONS)
        self.seen: list[tuple[int, int, int]] = []
        self.began: dict[str, int] = {}

    def _run_urgent_reconciliations(self) -> None:
        super()._run_urgent_reconciliations()
        pods = self.pods()
        for one in pods:
            if one.node is not None:
                self.began.setdefault(one.key, self.now_ms())
        ready = sum(self.began.get(p.key, HOUR_MS**2) + 10_000 <= self.now_ms() for p in pods)
        self.seen.append((self.now_ms(), len(pods), ready))

    def pods(self) -> list[Pod]:
        return [one for one in self.state.pods.values() if not one.daemon]


def played(load: SimulatedLoad, how: ScaleDown = ScaleDown.NEVER) -> Counted:
    world = Counted(load, how, None, 1)
    world.run()
    return world


def test_deployment_has_requested_number_of_pods() -> None:
    world = played(load(of((0, 10), (10 * MINUTE_MS, 17), (20 * MINUTE_MS, 3))))
    at = {at_ms: pods for at_ms, pods, _ in world.seen}
    assert [at[n * MINUTE_MS] for n in (5, 15, 25)] == [10, 17, 3]
    assert world.result.pods == 17
    assert world.result.lost_millis_ms == 0


@settings(max_examples=examples(25))
@given(st.integers(1, 30))
def test_rollout_replaces_all_pods_within_surge_and_unavailability(wanted: int) -> None:
    begins = 10 * MINUTE_MS
    world = played(load(of((0, wanted), rollouts=(begins,))))
    assert {one.owner_name for one in world.pods()} == {"web-2"}
    assert len(world.pods()) == wanted
    during = [one for one in world.seen if one[0] >= begins]
    assert max(pods for _, pods, _ in during) <= wanted + -(-wanted // 4)
    assert min(ready for _, _, ready in during) >= wanted - wanted // 4
    assert world.result.pods == 2 * wanted


def test_restart_replaces_oldest_pod() -> None:
    world = played(load(of((0, 4), (MINUTE_MS, 6), restarts=(5 * MINUTE_MS, 6 * MINUTE_MS))))
    names = {one.name for one in world.pods()}
    assert len(names) == 6
    assert {"web-1-00007", "web-1-00008"} < names
    assert {"web-1-00005", "web-1-00006"} < names


def test_initial_pods_have_their_recorded_age() -> None:
    old = replace(of((0, 3), (MINUTE_MS, 4)), ages_ms=(3 * HOUR_MS, HOUR_MS, 2_000))
    world = played(replace(load(old), duration_ms=2 * MINUTE_MS))
    rolling = next(iter(world._deployments._owner.values()))
    created = [one.created_ms // 1000 for _, one in rolling.pods.values()]
    assert created == [-3 * 3600, -3600, -2, 60]
    # The controller first deletes the pods that have been ready for the shortest time.
    fewer = replace(old, replicas=((0, 3), (MINUTE_MS, 1)))
    (left,) = played(replace(load(fewer), duration_ms=2 * MINUTE_MS)).pods()
    assert left.name == "web-1-00001"
    rolled = replace(old, replicas=((0, 3),), rollouts=(1,))
    assert len(played(replace(load(rolled), duration_ms=10)).pods()) == 4, "all three are ready"


def test_evicted_pod_is_recreated_without_lost_work() -> None:
    """The autoscaler drains one of two underutilized nodes."""
    far = load(of((0, 2)), nodes=2)
    world = played(far, ScaleDown.UTILIZATION)
    assert world.result.evicted == 1
    assert world.result.lost_millis_ms == 0
    assert len(world.state.places) == 1
    assert [one.name for one in world.pods()] == ["web-1-00001", "web-1-00003"] or [
        one.name for one in world.pods()
    ] == ["web-1-00002", "web-1-00003"]


def test_scale_in_deletes_pending_pod_first() -> None:
    grows = load(of((0, 7), (MINUTE_MS, 9), (MINUTE_MS + 1000, 7)), nodes=1)
    world = played(grows)
    assert Counter(one.node is None for one in world.pods()) == {False: 7}
    assert world.result.pending_ms == 2 * 1000


@pytest.mark.parametrize("order", PodDeletionCost)
def test_scale_in_empties_marked_nodes_when_deletion_cost_is_set(
    order: PodDeletionCost,
) -> None:
    config = Config(mode=Mode.ENFORCE, unneeded_time_seconds=60, pod_deletion_cost=order)
    view = View(config.extender, TAINT_KEY)
    ebb = Ebb(config, view, InProcessCalls(view, config))
    day = load(of((0, 80), (90 * MINUTE_MS, 40), (120 * MINUTE_MS, 20)), nodes=20)
    world = Simulator(replace(day, duration_ms=121 * MINUTE_MS), ScaleDown.NEVER, ebb, 1)
    world.run()
    ebb.close()
    marked = [one for one in world.state.places.values() if mark_of(one.node.labels) is not None]
    left = sum(len(one.pods) for one in marked)
    assert marked
    assert (left == 0) is (order is not PodDeletionCost.DISABLED)
    following = {one.node for one in world.state.pods.values() if one.deletion_cost is not None}
    assert len(following) == (0 if order is PodDeletionCost.DISABLED else 2), "of twenty nodes"
    assert not following & {one.node.name for one in marked}


def test_missing_pods_count_by_eviction_until_replacements_are_ready() -> None:
    world = Counted(load(of((0, 4), restarts=(20 * MINUTE_MS,))), ScaleDown.NEVER, None, 1)
    world.after(10 * MINUTE_MS, lambda: world.evict(world.pods()[0]))
    result = world.run()
    assert (result.below_by_eviction_ms, result.below_desired_ms) == (10_000, 20_000)
