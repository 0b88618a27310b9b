"""The cache of the simulated scheduler never changes its choice."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from core.model.node import Effect, Taint
from core.model.pod import Pod
from sim.cluster import ClusterState
from sim.scheduler import POD_CLASSES_MAX, Scheduler
from tests.support.builders import node, pod

SIZES = (100, 500, 1000)
TAINTS = (
    (),
    (Taint("a", "", Effect.PREFER_NO_SCHEDULE),),
    (Taint("a", "", Effect.NO_SCHEDULE),),
)
NODES = 4
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.sampled_from(SIZES)),
        st.tuples(st.just("end"), st.integers(0, 20)),
        st.tuples(st.just("taint"), st.integers(0, NODES - 1), st.sampled_from(TAINTS)),
        st.tuples(st.just("cordon"), st.integers(0, NODES - 1), st.booleans()),
    ),
    max_size=40,
)


class Side:
    """A cluster and its scheduler, with or without the cache."""

    def __init__(self, *, remembers: bool) -> None:
        self.state = ClusterState()
        self._remembers = remembers
        self._scheduler = Scheduler(self.state, None, 1)
        for number in range(NODES):
            self.state.add_node(node(f"n{number}", 2000 + 500 * number), 0)

    def choose(self, one: Pod) -> str | None:
        if not self._remembers:
            for place in self.state.places.values():
                place.results.clear()
        return self._scheduler.choose(one)

    def change(self, number: int, what: tuple[object, ...]) -> object:
        match what:
            case "place", int(size):
                one = pod(f"p{number}", None, size, 100)
                self.state.arrive(one, 0)
                name = self.choose(one)
                self.state.delete(one.key) if name is None else self.state.bind(one, name)
                return name
            case "end", int(which):
                bound = [
                    one.key for place in self.state.places.values() for one in place.pods.values()
                ]
                return self.state.finish(bound[which]) if which < len(bound) else None
            case "taint", int(which), tuple(taints):
                before = self.state.places[f"n{which}"].node
                self.state.replace_node(replace(before, taints=taints))
            case "cordon", int(which), bool(cordoned):
                before = self.state.places[f"n{which}"].node
                self.state.replace_node(replace(before, unschedulable=cordoned))
            case _:
                raise AssertionError(what)
        return None


@given(changes=CHANGES)
def test_cached_results_equal_uncached_results(
    changes: list[tuple[object, ...]],
) -> None:
    sides = Side(remembers=True), Side(remembers=False)
    for number, what in enumerate(changes):
        remembered, looked = (side.change(number, what) for side in sides)
        assert remembered == looked


def test_cache_of_results_is_bounded() -> None:
    side = Side(remembers=True)
    for size in range(1, POD_CLASSES_MAX + 3):
        side.choose(pod("p", None, size, 100))
        assert all(len(place.results) <= POD_CLASSES_MAX for place in side.state.places.values())
    assert side.choose(pod("p", None, 9000, 100)) is None
    assert side.choose(pod("p", None, 3200, 100)) == "n3"
