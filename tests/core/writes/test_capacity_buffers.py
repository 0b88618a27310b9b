"""CapacityBuffers that announce expected pods to autoscalers."""

import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from core.placement.node_order import SHARE_SCALE
from core.writes.capacity_buffers import (
    PUBLISHED_MAX,
    REPLICAS_MAX,
    BufferChange,
    BufferShape,
    ExistingBuffer,
    Found,
    Operation,
    Wanted,
    changes,
    pod_spec,
    wanted,
)
from kube.decode.kinds import PODS

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


def shape(
    requests: Resources,
    node_constraints: NodeConstraints = NO_NODE_CONSTRAINTS,
    reach: str = "general",
) -> PodShape:
    return PodShape(reach, requests, node_constraints)


@pytest.mark.parametrize("node_constraints", [NO_NODE_CONSTRAINTS, GREEN])
@pytest.mark.parametrize(
    "requests", [SMALL, Resources(0, 7, 5 * 2**20, 1, (("nvidia.com/gpu", 2),)), Resources(pods=1)]
)
def test_template_pod_has_expected_requests_and_constraints(
    node_constraints: NodeConstraints, requests: Resources
) -> None:
    """Decode the template as the pod that an autoscaler would create from it."""
    raw = orjson.dumps({"metadata": {"name": "a"}, "spec": pod_spec(requests, node_constraints)})
    found = PODS.decode(raw)
    assert found is not None
    names = tuple(name for name, _ in requests.extended)
    assert (found.requests, found.node_constraints) == (
        requests,
        with_extended(node_constraints, names),
    )


def test_template_is_valid_for_api_server() -> None:
    spec = pod_spec(SMALL, GREEN)
    (container,) = spec["containers"]
    assert container.keys() == {"name", "image", "resources"}
    assert re.fullmatch("[a-z]+", container["name"])
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (exists, _) = affinity["nodeSelectorTerms"][1]["matchExpressions"]
    assert exists == {"key": "x", "operator": "Exists"}


def test_each_pod_shape_has_buffer_with_stable_name() -> None:
    found = wanted({shape(SMALL): 3, shape(LARGE): 2}, WHOLE, HALF)
    assert sorted(one.replicas for one in found.values()) == [2, 3]
    assert found.keys() == wanted({shape(LARGE): 9, shape(SMALL): 1}, WHOLE, HALF).keys()
    other = wanted({shape(SMALL, GREEN): 3}, WHOLE, HALF)
    assert other.keys().isdisjoint(found)
    assert all(len(name) < 64 for name in (*found, *other))


def test_equal_pods_of_two_reaches_share_one_buffer() -> None:
    (one,) = wanted({shape(SMALL): 3, shape(SMALL, reach="b"): 4}, WHOLE, HALF).values()
    assert one.replicas == 7


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "hugepages-2Mi"])
def test_template_has_limits_when_resource_cannot_be_overcommitted(name: str) -> None:
    """The API server rejects other templates; huge pages also need a CPU or memory request."""
    for more in (SMALL, Resources(pods=1)):
        (container,) = pod_spec(replace(more, extended=((name, 2),)), NO_NODE_CONSTRAINTS)[
            "containers"
        ]
        declared = container["resources"]
        assert declared["limits"] == {name: "2"}
        assert declared["requests"][name] == "2"
        assert declared["requests"].keys() & {"cpu", "memory"}
    (container,) = pod_spec(SMALL, NO_NODE_CONSTRAINTS)["containers"]
    assert "limits" not in container["resources"], "CPU and memory can be overcommitted"


def test_buffers_share_their_part_of_capacity_in_turns() -> None:
    found = wanted({shape(SMALL): 10**6, shape(LARGE): 5}, WHOLE, HALF)
    assert [one.replicas for one in found.values()] == [60, 5]
    found = wanted({shape(SMALL): 30, shape(LARGE): 10}, WHOLE, HALF)
    assert sorted(one.replicas for one in found.values()) == [8, 30]
    huge = Resources(60_000, 1, 0, 1)
    (one,) = wanted({shape(huge): 1, shape(SMALL): 3}, WHOLE, HALF).values()
    assert one.replicas == 3, "a pod larger than the share uses nothing of it"


def test_reach_gets_no_larger_share_when_it_has_many_pod_shapes() -> None:
    many = {shape(Resources(1000 + number, 1, 0, 1), reach="b"): 100 for number in range(50)}
    found = wanted({**many, shape(SMALL, GREEN): 100}, WHOLE, HALF)
    assert len(found) == PUBLISHED_MAX
    green = [one.replicas for one in found.values() if "nodeSelector" in one.spec]
    assert 49 <= green[0] <= 51, "half of the capacity"


def test_pod_without_requests_counts_as_smallest_share() -> None:
    (one,) = wanted({shape(Resources(pods=1)): 10}, WHOLE, Fraction(3, SHARE_SCALE)).values()
    assert one.replicas == 3


@pytest.mark.parametrize(
    ("requests", "replicas"), [(Resources(1, 1, 60 * 2**30, 1), 16), (Resources(1, 1, 0, 1), 1000)]
)
def test_replicas_are_bounded_by_storage_and_pod_count(requests: Resources, replicas: int) -> None:
    whole = Resources(100_000, 200 * 2**30, 2000 * 2**30, 2000)
    (one,) = wanted({shape(requests): 2000}, whole, HALF).values()
    assert one.replicas == replicas, "half of the capacity"


def test_buffers_do_not_depend_on_order_of_pod_shapes() -> None:
    kinds = [shape(SMALL, on_host(f"n{number:02}")) for number in range(PUBLISHED_MAX + 1)]
    found = wanted(dict.fromkeys(kinds, 1), WHOLE, HALF)
    assert found == wanted(dict.fromkeys(reversed(kinds), 1), WHOLE, HALF)


@pytest.mark.parametrize("reaches", [("alpha", "beta", "gamma"), ("gamma", "beta", "alpha")])
def test_pod_shape_of_two_reaches_gets_its_turn_in_first_reach(
    reaches: tuple[str, str, str],
) -> None:
    """Independent of the counting order; in the second reach it would get a larger share."""
    middle = Resources(2000, 2**30, 0, 1)
    counts = {shape(SMALL, reach=one): 10**4 for one in reaches if one != "gamma"}
    counts[shape(LARGE, reach="alpha")] = counts[shape(middle, reach="gamma")] = 10**4
    found = {
        one.spec["containers"][0]["resources"]["requests"]["cpu"]: one.replicas
        for one in wanted(counts, WHOLE, HALF).values()
    }
    assert found == {"500m": 28, "4000m": 3, "2000m": 12}


def on_host(name: str) -> NodeConstraints:
    return NodeConstraints(node_selector=(("kubernetes.io/hostname", name),))


def test_number_of_buffers_and_replicas_is_bounded() -> None:
    counts = {shape(Resources(1 + number, 1, 0, 1)): 1 for number in range(PUBLISHED_MAX + 5)}
    assert len(wanted(counts, WHOLE, HALF)) == PUBLISHED_MAX
    (one,) = wanted({shape(Resources(pods=1)): 10**6}, WHOLE, HALF).values()
    assert one.replicas == REPLICAS_MAX
    assert wanted({}, WHOLE, HALF) == {}


ASKED = wanted({shape(SMALL): 10}, WHOLE, HALF)
((NAME, ONE),) = ASKED.items()


def existing(replicas: int, *names: str) -> Found:
    own = dict.fromkeys(names or (NAME,), ExistingBuffer(replicas, "7"))
    return Found(own, dict.fromkeys(own, (SMALL, NO_NODE_CONSTRAINTS)))


@pytest.mark.parametrize(
    ("found", "made"),
    [
        (Found(), [(Operation.ADD_TEMPLATE, 0), (Operation.ADD_BUFFER, 10)]),
        (Found({}, {NAME: None}), [(Operation.ADD_BUFFER, 10)]),
        (Found({NAME: ExistingBuffer(10, "7")}), [(Operation.ADD_TEMPLATE, 0)]),
        (existing(10), []),
        (existing(9), [(Operation.RESIZE, 10)]),
        (existing(11), []),
        (existing(12), [(Operation.RESIZE, 10)]),
        (existing(0), [(Operation.RESIZE, 10)]),
    ],
)
def test_changes_are_limited_to_material_differences(
    found: Found, made: list[tuple[Operation, int]]
) -> None:
    assert [(one.operation, one.replicas) for one in changes(ASKED, found)] == made


@pytest.mark.parametrize(("was", "now", "written"), [(10, 11, 0), (10, 12, 1), (10, 8, 1)])
def test_buffer_is_not_resized_when_change_is_small(was: int, now: int, written: int) -> None:
    buffers = {NAME: ONE._replace(replicas=now)}
    assert len(list(changes(buffers, existing(was)))) == written


def test_buffer_is_deleted_before_its_template() -> None:
    assert list(changes({}, existing(3, "ebb-reserve-a"))) == [
        BufferChange(Operation.DROP_BUFFER, "ebb-reserve-a", version="7"),
        BufferChange(Operation.DROP_TEMPLATE, "ebb-reserve-a"),
    ]


def test_smaller_buffer_is_written_before_larger_one() -> None:
    buffers = {"a": ONE._replace(replicas=20), "b": ONE._replace(replicas=10)}
    found = Found(
        {"a": ExistingBuffer(10, "1"), "b": ExistingBuffer(20, "2")}, dict.fromkeys("ab")
    )
    assert [one.name for one in changes(buffers, found)] == ["b", "a"]


def test_buffers_differ_when_node_constraints_differ() -> None:
    all_constraints = [GREEN, replace(GREEN, affinity=None), replace(GREEN, tolerations=())]
    found = wanted({shape(SMALL, one): 1 for one in all_constraints}, WHOLE, HALF)
    assert len(found) == 3
    assert pod_spec(SMALL, GREEN) in [one.spec for one in found.values()]


SOME: Final = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 40), max_size=5)


@given(SOME, SOME)
def test_total_replicas_never_exceed_old_and_new_total(
    was: dict[str, int], now: dict[str, int]
) -> None:
    found = Found({name: ExistingBuffer(many, "7") for name, many in was.items()})
    buffers = {name: ONE._replace(replicas=many) for name, many in now.items()}
    existing, totals = dict(was), []
    for change in changes(buffers, found):
        if change.operation in (Operation.ADD_BUFFER, Operation.RESIZE):
            existing[change.name] = change.replicas
        elif change.operation is Operation.DROP_BUFFER:
            del existing[change.name]
        totals.append(sum(existing.values()))
    assert existing.keys() == now.keys()
    assert all(total <= max(sum(was.values()), totals[-1]) for total in totals)


def test_change_has_version_that_was_read() -> None:
    (one,) = changes(ASKED, existing(1))
    assert one.version == "7"


def test_no_changes_when_buffers_are_up_to_date() -> None:
    assert list(changes(ASKED, existing(ONE.replicas))) == []


def read(written: dict[str, Wanted]) -> Found:
    """Return the buffers as the next leader reads them."""
    templates = {}
    for name, one in written.items():
        pod = PODS.decode(orjson.dumps({"metadata": {"name": name}, "spec": one.spec}))
        assert pod is not None
        templates[name] = pod.requests, pod.node_constraints
    return Found(
        {name: ExistingBuffer(one.replicas, "1") for name, one in written.items()}, templates
    )


def replicas(many: int, requests: Resources = SMALL) -> dict[BufferShape, int]:
    return {(requests, NO_NODE_CONSTRAINTS): many}


@pytest.mark.parametrize(
    "node_constraints",
    [NO_NODE_CONSTRAINTS, GREEN, NodeConstraints(system=(("os", "linux"),), features=("UserNS",))],
)
def test_next_leader_keeps_buffer_names(
    node_constraints: NodeConstraints,
) -> None:
    before = wanted(
        {shape(SMALL, node_constraints): 3, shape(LARGE, node_constraints): 2}, WHOLE, HALF
    )
    assert wanted({}, WHOLE, HALF, read(before).published) == before
    assert (
        wanted({shape(SMALL, node_constraints): 3}, WHOLE, HALF, read(before).published) == before
    )


def test_buffer_has_larger_of_expected_and_inherited_replicas() -> None:
    for many in (2, 30):
        (one,) = wanted({shape(SMALL): many}, WHOLE, HALF, replicas(20)).values()
        assert one.replicas == max(many, 20)


def test_buffer_is_not_inherited_when_empty_or_without_template() -> None:
    sizes = {"a": ExistingBuffer(3, "1"), "b": ExistingBuffer(3, "1"), "c": ExistingBuffer(3, "1")}
    templates = {"a": None, "c": (SMALL, NO_NODE_CONSTRAINTS), "d": (LARGE, NO_NODE_CONSTRAINTS)}
    assert Found({**sizes, "d": ExistingBuffer(0, "1")}, templates).published == replicas(3)


def test_larger_buffer_is_inherited_when_templates_are_equal() -> None:
    """Another version of Ebb may have used other names."""
    sizes = {"a": ExistingBuffer(3, "1"), "b": ExistingBuffer(5, "1"), "c": ExistingBuffer(4, "1")}
    assert Found(sizes, dict.fromkeys(sizes, (SMALL, NO_NODE_CONSTRAINTS))).published == replicas(
        5
    )


def test_inherited_and_expected_pods_share_the_same_bounds() -> None:
    expected = {shape(Resources(1000 + number, 1, 0, 1)): 10**4 for number in range(50)}
    inherited = {
        (Resources(500 + number, 1, 0, 1), NO_NODE_CONSTRAINTS): 10**4 for number in range(50)
    }
    found = wanted(expected, WHOLE, HALF, inherited)
    assert len(found) == PUBLISHED_MAX
    cpu = Counter[bool]()
    for one in found.values():
        millis = int(one.spec["containers"][0]["resources"]["requests"]["cpu"].removesuffix("m"))
        cpu[millis < 1000] += millis * one.replicas
    assert cpu.total() <= WHOLE.cpu_millis * HALF
    assert min(cpu.values()) > WHOLE.cpu_millis * HALF * Fraction(4, 10)
