"""One surge move in the simulation: how it ends, and which pods are left."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from core.config.settings import Config
from core.marks.mark import Mark
from core.marks.wellknown import MARK_LABEL
from core.model.now import Now
from core.model.pod import TEMPLATE_LABEL, Pod
from core.moves.move import Move
from core.moves.note import MoveNote, decode
from sim.simulated_load import HOUR_MS, Deployment
from sim.simulator import Result
from sim.surge import SimulatedMoves
from tests.support.deployment_world import (
    DETACHED_MS,
    MINUTE_MS,
    SECOND_MS,
    WEB,
    DeploymentWorld,
    shown,
)

DEADLINE_SECONDS = 120
CHANGED_MS = DETACHED_MS + 5 * SECOND_MS
SLOW = replace(WEB, startup_ms=HOUR_MS // 4, ages_ms=(HOUR_MS,) * 3)
"""New pods do not become Ready before the deadline of a move; the first ones are Ready."""


class MovingWorld(DeploymentWorld):
    """A Deployment, and a surge move of its first pod, which is alone on a marked node."""

    def __init__(self, deployment: Deployment = WEB) -> None:
        super().__init__(deployment, detaches=False, nodes=4)
        self.config = Config()
        self.result = Result()
        self.moves = SimulatedMoves(self, self.simulator.state, self.deployments, ())
        self.at(DETACHED_MS, self._begin)
        for at_ms in range(DETACHED_MS, DETACHED_MS + 4 * MINUTE_MS, SECOND_MS):
            self.at(at_ms, lambda: self.moves.advance(self.result, self.simulator.now_ms()))

    def store_pod(self, pod: Pod) -> None:
        self.simulator.state.replace_pod(pod)

    def _begin(self) -> None:
        pod, now = self.pods()[0], Now(self.simulator.now_ms() // 1000)
        self.key = pod.key
        self.change_node()
        observed = self.deployments.observed("web")
        move = Move(
            namespace=pod.namespace,
            pod=pod.name,
            uid=pod.uid,
            node=pod.node or "",
            replica_set=pod.owner_name,
            hash=pod.labels[TEMPLATE_LABEL],
            note=MoveNote(now.seconds, now.seconds + DEADLINE_SECONDS),
            deployment="web",
            deployment_uid=observed.uid,
            generation=observed.generation,
            others=frozenset(one.uid for one in self.pods()),
        )
        self.moves.begin(move, now)

    def change_node(self, *, cordon: bool = False, mark: bool = True) -> None:
        """Mark, unmark or cordon the node of the first pod."""
        state = self.simulator.state
        node = state.places[state.pods[self.key].node or ""].node
        labels = {MARK_LABEL: Mark.PREFER_NO_SCHEDULE} if mark else {}
        state.replace_node(replace(node, unschedulable=cordon, labels=labels))


def test_move_replaces_pod_and_keeps_ready_pods() -> None:
    world = MovingWorld()
    world.run_until(DETACHED_MS + 5 * MINUTE_MS)
    assert world.names == ["1-2", "1-3", "1-4"]
    assert (world.result.moved, world.result.moves) == (1, {"moved": 1})
    assert shown(world) == (3, 3, 3)


def test_detached_pod_says_so_while_it_is_moved() -> None:
    world = MovingWorld()
    seen: list[Pod] = []
    world.at(CHANGED_MS, lambda: seen.append(world.simulator.state.pods[world.key]))
    world.run_until(DETACHED_MS + MINUTE_MS)
    (pod,) = seen
    assert (pod.detached, pod.owner_name) == ("1", "web-1")
    note = decode(pod.move)
    assert note is not None
    assert note.deadline - note.begun == DEADLINE_SECONDS


@pytest.mark.parametrize(
    ("deployment", "change", "outcome", "left"),
    [
        pytest.param(SLOW, None, "timed_out", ["1-1", "1-2", "1-3"], id="never Ready"),
        pytest.param(
            replace(SLOW, replicas=((0, 3), (CHANGED_MS, 4))),
            None,
            "changed",
            ["1-1", "1-2", "1-3", "1-4"],
            id="scaled out",
        ),
        pytest.param(
            replace(WEB, replicas=((0, 3), (CHANGED_MS, 2))),
            None,
            "changed",
            ["1-1", "1-3"],
            id="scaled in: without the cost of the move, any pod is the one too many",
        ),
        pytest.param(
            replace(WEB, replicas=((0, 3), (CHANGED_MS, 0))), None, "changed", [], id="to 0"
        ),
        pytest.param(
            replace(WEB, rollouts=(CHANGED_MS,)),
            None,
            "changed",
            ["2-5", "2-6", "2-7"],
            id="rolled out",
        ),
        pytest.param(
            WEB,
            lambda world: world.change_node(mark=False),
            "node_unmarked",
            ["1-1", "1-2", "1-3"],
            id="unmarked",
        ),
        pytest.param(
            WEB,
            lambda world: world.change_node(cordon=True),
            "cordoned",
            ["1-1", "1-2", "1-3"],
            id="cordoned",
        ),
        pytest.param(
            replace(WEB, restarts=(CHANGED_MS,), ages_ms=(2 * HOUR_MS, HOUR_MS, HOUR_MS)),
            None,
            "pod_gone",
            ["1-2", "1-3", "1-4"],
            id="deleted",
        ),
    ],
)
def test_move_ends_otherwise(
    deployment: Deployment,
    change: Callable[[MovingWorld], None] | None,
    outcome: str,
    left: list[str],
) -> None:
    world = MovingWorld(deployment)
    if change is not None:
        world.at(CHANGED_MS, lambda: change(world))
    world.run_until(DETACHED_MS + 5 * MINUTE_MS)
    assert (world.result.moved, world.result.moves) == (0, {outcome: 1})
    assert sorted(world.names) == left
    assert not any(pod.detached for pod in world.pods())


def test_pod_keeps_note_of_failure_and_loses_cost_of_move() -> None:
    world = MovingWorld(SLOW)
    world.run_until(DETACHED_MS + 5 * MINUTE_MS)
    pod = world.simulator.state.pods[world.key]
    note = decode(pod.move)
    assert note is not None
    assert (note.outcome, note.failures) == ("timed_out", 1)
    assert (pod.deletion_cost, pod.deletion_cost_ours) == (None, None)
