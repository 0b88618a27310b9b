"""CapacityBuffers of Ebb's reserve, as the simulated autoscaler reads them."""

from dataclasses import replace
from fractions import Fraction

from core.config.budgets import Reserve
from core.config.programs import ExtenderConfig
from core.config.schedule import Window
from core.config.settings import Config, Mode
from core.marks.wellknown import TAINT_KEY
from core.model.pod import Pod
from extender.view import View
from sim.cluster import ClusterState
from sim.ebb import Ebb, InProcessCalls
from tests.support.builders import UNLIMITED, node, pod

RESERVE = Reserve(window_seconds=60, percentile=Fraction(1))
CONFIG = Config(mode=Mode.ENFORCE, budgets=replace(UNLIMITED, reserve=RESERVE))
START_MS = 300_000_000


def job(state: ClusterState, name: str) -> Pod:
    one = replace(pod(name, None, 500, 100), owner_kind="Job", owner_name=name, uid=name)
    state.arrive(one, 0)
    return state.bind(one, "a")


def played(then: Config) -> tuple[list[Pod], list[Pod]]:
    """Return the buffer pods after three pods have arrived, and after a change of leader."""
    view = View(ExtenderConfig(), TAINT_KEY)
    ebb = Ebb(CONFIG, view, InProcessCalls(view, CONFIG), publishes=True)
    state = ClusterState()
    for name, cpu in (("a", 1700), ("b", 700)):
        state.add_node(node(name, cpu), 0)
    ebb.reconcile(state, state.replace_node, START_MS)
    for number in range(3):
        job(state, f"j{number}")
    ebb.reconcile(state, state.replace_node, START_MS + 10_000)
    told = list(state.buffers)
    ebb.restart(then)
    for seconds in (20, 30):  # a new leader does not know at once that it may write buffers
        ebb.reconcile(state, state.replace_node, START_MS + seconds * 1000)
    ebb.close()
    return told, list(state.buffers)


def test_simulation_ignores_settings_for_real_dates() -> None:
    never = Window(start="0 0 29 2 *", duration_seconds=60)
    given = replace(CONFIG, schedule=(never,), pause_until_seconds=2**40)
    assert played(given) == played(CONFIG)
    view = View(ExtenderConfig(), TAINT_KEY)
    ebb = Ebb(given, view, InProcessCalls(view, given), publishes=True)
    assert ebb.config == CONFIG
    ebb.close()


def test_buffers_match_recent_pods_and_survive_leader_change() -> None:
    told, then = played(CONFIG)
    assert [one.requests for one in told] == [pod("x", None, 500, 100).requests] * 2, "half"
    assert len({one.key for one in told}) == 2
    assert then == told


def test_buffers_are_removed_when_reserve_is_disabled() -> None:
    for changed in (
        replace(CONFIG, mode=Mode.OBSERVE),
        replace(CONFIG, budgets=replace(UNLIMITED, reserve=Reserve(window_seconds=None))),
    ):
        told, then = played(changed)
        assert len(told) == 2
        assert then == []
