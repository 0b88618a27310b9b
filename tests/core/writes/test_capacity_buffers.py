"""What autoscalers are told of the pods that are to be expected."""

import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.edge.decode.kinds import PODS
from core.engine.arrivals import PodShape
from core.model.constraints import (
    NO_NODE_CONSTRAINTS,
    NodeConstraints,
    Requirement,
    SelectorTerm,
    Toleration,
    with_extended,
)
from core.model.resources import Resources
from core.packing.node_order import SHARE_SCALE
from core.writes.capacity_buffers import (
    PUBLISHED_MAX,
    REPLICAS_MAX,
    BufferShape,
    Change,
    ExistingBuffer,
    Found,
    Operation,
    Wanted,
    changes,
    pod_spec,
    wanted,
)

pytestmark = pytest.mark.mutate

WHOLE = Resources(100_000, 200 * 2**30, 0, 0)
HALF = Fraction(1, 2)
SMALL, LARGE = Resources(500, 2**30, 0, 1), Resources(4000, 2**30, 0, 1)
GREEN = NodeConstraints(
    node_selector=(("green", "true"), ("kubernetes.io/os", "linux")),
    affinity=(
        SelectorTerm((), (Requirement("metadata.name", "In", ("n1",)),)),
        SelectorTerm((Requirement("x", "Exists", ()), Requirement("zone", "In", ("a", "b")))),
    ),
    tolerations=(Toleration("gpu", "Exists"), Toleration("team", "Equal", "a", "NoSchedule")),
)


def kind(
    requests: Resources, placing: NodeConstraints = NO_NODE_CONSTRAINTS, reach: str = "general"
) -> PodShape:
    return PodShape(reach, requests, placing)


@pytest.mark.parametrize("placing", [NO_NODE_CONSTRAINTS, GREEN])
@pytest.mark.parametrize(
    "requests", [SMALL, Resources(0, 7, 5 * 2**20, 1, (("nvidia.com/gpu", 2),)), Resources(pods=1)]
)
def test_a_pod_of_the_template_asks_what_was_expected(
    placing: NodeConstraints, requests: Resources
) -> None:
    """Read back as the pod that an autoscaler makes of it."""
    raw = orjson.dumps({"metadata": {"name": "a"}, "spec": pod_spec(requests, placing)})
    found = PODS.read(raw)
    assert found is not None
    names = tuple(name for name, _ in requests.extended)
    assert (found.requests, found.placing) == (requests, with_extended(placing, names))


def test_a_template_is_one_that_an_api_server_takes() -> None:
    spec = pod_spec(SMALL, GREEN)
    (container,) = spec["containers"]
    assert container.keys() == {"name", "image", "resources"}
    assert re.fullmatch("[a-z]+", container["name"])
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (exists, _) = affinity["nodeSelectorTerms"][1]["matchExpressions"]
    assert exists == {"key": "x", "operator": "Exists"}


def test_each_kind_of_pod_has_a_buffer_whose_name_is_the_same_from_look_to_look() -> None:
    found = wanted({kind(SMALL): 3, kind(LARGE): 2}, WHOLE, HALF)
    assert sorted(one.replicas for one in found.values()) == [2, 3]
    assert found.keys() == wanted({kind(LARGE): 9, kind(SMALL): 1}, WHOLE, HALF).keys()
    other = wanted({kind(SMALL, GREEN): 3}, WHOLE, HALF)
    assert other.keys().isdisjoint(found)
    assert all(len(name) < 64 for name in (*found, *other))


def test_the_pods_of_two_reaches_that_ask_the_same_are_one_buffer() -> None:
    (one,) = wanted({kind(SMALL): 3, kind(SMALL, reach="b"): 4}, WHOLE, HALF).values()
    assert one.replicas == 7


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "hugepages-2Mi"])
def test_what_cannot_be_shared_out_twice_is_limited_to_as_much(name: str) -> None:
    """Or an API server refuses the template; it wants CPU or memory beside huge pages too."""
    for more in (SMALL, Resources(pods=1)):
        (container,) = pod_spec(replace(more, extended=((name, 2),)), NO_NODE_CONSTRAINTS)[
            "containers"
        ]
        asked = container["resources"]
        assert asked["limits"] == {name: "2"}
        assert asked["requests"][name] == "2"
        assert asked["requests"].keys() & {"cpu", "memory"}
    (container,) = pod_spec(SMALL, NO_NODE_CONSTRAINTS)["containers"]
    assert "limits" not in container["resources"], "CPU and memory are nobody's alone"


def test_no_more_is_asked_for_than_the_share_and_kinds_take_it_in_turns() -> None:
    found = wanted({kind(SMALL): 10**6, kind(LARGE): 5}, WHOLE, HALF)
    assert [one.replicas for one in found.values()] == [60, 5]
    found = wanted({kind(SMALL): 30, kind(LARGE): 10}, WHOLE, HALF)
    assert sorted(one.replicas for one in found.values()) == [8, 30]
    huge = Resources(60_000, 1, 0, 1)
    (one,) = wanted({kind(huge): 1, kind(SMALL): 3}, WHOLE, HALF).values()
    assert one.replicas == 3, "what is beyond the share takes nothing of it"


def test_a_reach_of_many_kinds_takes_no_more_of_the_share_than_another() -> None:
    many = {kind(Resources(1000 + number, 1, 0, 1), reach="b"): 100 for number in range(50)}
    found = wanted({**many, kind(SMALL, GREEN): 100}, WHOLE, HALF)
    assert len(found) == PUBLISHED_MAX
    green = [one.replicas for one in found.values() if "nodeSelector" in one.spec]
    assert 49 <= green[0] <= 51, "half of what there is"


def test_what_asks_for_almost_nothing_counts_for_one_part() -> None:
    (one,) = wanted({kind(Resources(pods=1)): 10}, WHOLE, Fraction(3, SHARE_SCALE)).values()
    assert one.replicas == 3


@pytest.mark.parametrize(
    ("asked", "told"), [(Resources(1, 1, 60 * 2**30, 1), 16), (Resources(1, 1, 0, 1), 1000)]
)
def test_what_fills_nodes_by_storage_or_by_number_is_bounded_too(
    asked: Resources, told: int
) -> None:
    whole = Resources(100_000, 200 * 2**30, 2000 * 2**30, 2000)
    (one,) = wanted({kind(asked): 2000}, whole, HALF).values()
    assert one.replicas == told, "half of what there is"


def test_of_kinds_that_ask_for_as_much_the_same_are_told_whichever_was_counted_first() -> None:
    kinds = [kind(SMALL, on(f"n{number:02}")) for number in range(PUBLISHED_MAX + 1)]
    found = wanted(dict.fromkeys(kinds, 1), WHOLE, HALF)
    assert found == wanted(dict.fromkeys(reversed(kinds), 1), WHOLE, HALF)


@pytest.mark.parametrize("reaches", [("alpha", "beta", "gamma"), ("gamma", "beta", "alpha")])
def test_what_came_to_two_reaches_has_its_turn_in_the_first_by_name(
    reaches: tuple[str, str, str],
) -> None:
    """Whichever was counted first: in the second it would have that one's half for itself."""
    middle = Resources(2000, 2**30, 0, 1)
    counts = {kind(SMALL, reach=one): 10**4 for one in reaches if one != "gamma"}
    counts[kind(LARGE, reach="alpha")] = counts[kind(middle, reach="gamma")] = 10**4
    found = {
        one.spec["containers"][0]["resources"]["requests"]["cpu"]: one.replicas
        for one in wanted(counts, WHOLE, HALF).values()
    }
    assert found == {"500m": 28, "4000m": 3, "2000m": 12}


def on(name: str) -> NodeConstraints:
    return NodeConstraints(node_selector=(("kubernetes.io/hostname", name),))


def test_buffers_and_their_pods_are_bounded() -> None:
    counts = {kind(Resources(1 + number, 1, 0, 1)): 1 for number in range(PUBLISHED_MAX + 5)}
    assert len(wanted(counts, WHOLE, HALF)) == PUBLISHED_MAX
    (one,) = wanted({kind(Resources(pods=1)): 10**6}, WHOLE, HALF).values()
    assert one.replicas == REPLICAS_MAX
    assert wanted({}, WHOLE, HALF) == {}


ASKED = wanted({kind(SMALL): 10}, WHOLE, HALF)
((NAME, ONE),) = ASKED.items()


def standing(replicas: int, *names: str) -> Found:
    own = dict.fromkeys(names or (NAME,), ExistingBuffer(replicas, "7"))
    return Found(own, dict.fromkeys(own, (SMALL, NO_NODE_CONSTRAINTS)))


@pytest.mark.parametrize(
    ("found", "made"),
    [
        (Found(), [(Operation.ADD_TEMPLATE, 0), (Operation.ADD_BUFFER, 10)]),
        (Found({}, {NAME: None}), [(Operation.ADD_BUFFER, 10)]),
        (Found({NAME: ExistingBuffer(10, "7")}), [(Operation.ADD_TEMPLATE, 0)]),
        (standing(10), []),
        (standing(9), [(Operation.RESIZE, 10)]),
        (standing(11), []),
        (standing(12), [(Operation.RESIZE, 10)]),
        (standing(0), [(Operation.RESIZE, 10)]),
    ],
)
def test_what_is_written_is_what_differs_materially(
    found: Found, made: list[tuple[Operation, int]]
) -> None:
    assert [(one.operation, one.replicas) for one in changes(ASKED, found)] == made


@pytest.mark.parametrize(("was", "now", "written"), [(10, 11, 0), (10, 12, 1), (10, 8, 1)])
def test_a_tenth_more_or_less_is_no_reason_to_write(was: int, now: int, written: int) -> None:
    asked = {NAME: ONE._replace(replicas=now)}
    assert len(list(changes(asked, standing(was)))) == written


def test_a_buffer_goes_before_its_template() -> None:
    assert list(changes({}, standing(3, "ebb-reserve-a"))) == [
        Change(Operation.DROP_BUFFER, "ebb-reserve-a", version="7"),
        Change(Operation.DROP_TEMPLATE, "ebb-reserve-a"),
    ]


def test_of_two_numbers_that_change_the_one_that_falls_is_written_first() -> None:
    asked = {"a": ONE._replace(replicas=20), "b": ONE._replace(replicas=10)}
    found = Found(
        {"a": ExistingBuffer(10, "1"), "b": ExistingBuffer(20, "2")}, dict.fromkeys("ab")
    )
    assert [one.name for one in changes(asked, found)] == ["b", "a"]


def test_what_is_asked_of_nodes_is_told_and_tells_buffers_apart() -> None:
    placings = [GREEN, replace(GREEN, affinity=None), replace(GREEN, tolerations=())]
    found = wanted({kind(SMALL, one): 1 for one in placings}, WHOLE, HALF)
    assert len(found) == 3
    assert pod_spec(SMALL, GREEN) in [one.spec for one in found.values()]


SOME: Final = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 40), max_size=5)


@given(SOME, SOME)
def test_between_two_writes_no_more_is_asked_for_than_before_or_after(
    was: dict[str, int], now: dict[str, int]
) -> None:
    found = Found({name: ExistingBuffer(many, "7") for name, many in was.items()})
    asked = {name: ONE._replace(replicas=many) for name, many in now.items()}
    standing, totals = dict(was), []
    for change in changes(asked, found):
        if change.operation in (Operation.ADD_BUFFER, Operation.RESIZE):
            standing[change.name] = change.replicas
        elif change.operation is Operation.DROP_BUFFER:
            del standing[change.name]
        totals.append(sum(standing.values()))
    assert standing.keys() == now.keys()
    assert all(total <= max(sum(was.values()), totals[-1]) for total in totals)


def test_a_write_rests_on_the_version_that_was_read() -> None:
    (one,) = changes(ASKED, standing(1))
    assert one.version == "7"


def test_once_carried_out_nothing_is_left_to_write() -> None:
    assert list(changes(ASKED, standing(ONE.replicas))) == []


def read(asked: dict[str, Wanted]) -> Found:
    """Return what the next leader finds of it."""
    templates = {}
    for name, one in asked.items():
        pod = PODS.read(orjson.dumps({"metadata": {"name": name}, "spec": one.spec}))
        assert pod is not None
        templates[name] = pod.requests, pod.placing
    return Found(
        {name: ExistingBuffer(one.replicas, "1") for name, one in asked.items()}, templates
    )


def told(many: int, requests: Resources = SMALL) -> dict[BufferShape, int]:
    return {(requests, NO_NODE_CONSTRAINTS): many}


@pytest.mark.parametrize(
    "placing",
    [NO_NODE_CONSTRAINTS, GREEN, NodeConstraints(system=(("os", "linux"),), features=("UserNS",))],
)
def test_what_one_leader_has_told_the_next_tells_under_the_same_name(
    placing: NodeConstraints,
) -> None:
    before = wanted({kind(SMALL, placing): 3, kind(LARGE, placing): 2}, WHOLE, HALF)
    assert wanted({}, WHOLE, HALF, read(before).published) == before
    assert wanted({kind(SMALL, placing): 3}, WHOLE, HALF, read(before).published) == before


def test_of_what_is_expected_and_what_is_inherited_the_most_is_asked_for() -> None:
    for many in (2, 30):
        (one,) = wanted({kind(SMALL): many}, WHOLE, HALF, told(20)).values()
        assert one.replicas == max(many, 20)


def test_a_buffer_of_no_pods_or_without_a_template_that_can_be_read_tells_nothing() -> None:
    sizes = {"a": ExistingBuffer(3, "1"), "b": ExistingBuffer(3, "1"), "c": ExistingBuffer(3, "1")}
    templates = {"a": None, "c": (SMALL, NO_NODE_CONSTRAINTS), "d": (LARGE, NO_NODE_CONSTRAINTS)}
    assert Found({**sizes, "d": ExistingBuffer(0, "1")}, templates).published == told(3)


def test_of_two_templates_that_say_the_same_the_larger_buffer_counts() -> None:
    """As where an Ebb of another version named them otherwise."""
    sizes = {"a": ExistingBuffer(3, "1"), "b": ExistingBuffer(5, "1"), "c": ExistingBuffer(4, "1")}
    assert Found(sizes, dict.fromkeys(sizes, (SMALL, NO_NODE_CONSTRAINTS))).published == told(5)


def test_what_is_inherited_takes_its_turn_within_the_same_bounds() -> None:
    expected = {kind(Resources(1000 + number, 1, 0, 1)): 10**4 for number in range(50)}
    inherited = {
        (Resources(500 + number, 1, 0, 1), NO_NODE_CONSTRAINTS): 10**4 for number in range(50)
    }
    found = wanted(expected, WHOLE, HALF, inherited)
    assert len(found) == PUBLISHED_MAX
    cpu = Counter[bool]()
    for one in found.values():
        asked = int(one.spec["containers"][0]["resources"]["requests"]["cpu"].removesuffix("m"))
        cpu[asked < 1000] += asked * one.replicas
    assert cpu.total() <= WHOLE.cpu_millis * HALF
    assert min(cpu.values()) > WHOLE.cpu_millis * HALF * Fraction(4, 10)
