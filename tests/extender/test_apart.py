"""The score `apart` by the wire: pods that a scale-in takes, and pods that none takes."""

from collections.abc import Iterable
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.programs import ExtenderConfig
from core.edge.decode.kinds import NODES, PODS
from core.marks.keys import MARK_LABEL, TAINT_KEY
from core.model.pod import Pod
from extender import wire
from extender.view import View
from tests.support.builders import node
from tests.support.builders import pod as any_pod
from tests.support.clock import FakeClock

NAMES = ["n0", "n1", "n2", "unknown"]
KINDS = ["ReplicaSet", "Job", "StatefulSet", ""]
OFF = {"n2": "soft"}
"""The mark of a node that has one."""


def view_of(pods: Iterable[Pod], score: str = "apart") -> View:
    found = View(ExtenderConfig(score=score), TAINT_KEY, FakeClock(0))
    marks = {name: {MARK_LABEL: OFF[name]} if name in OFF else {} for name in NAMES[:3]}
    found.replaced(NODES, [node(name, 4000, labels=marks[name]) for name in NAMES[:3]])
    found.replaced(PODS, list(pods))
    for kind in (NODES, PODS):
        found.news.alive(kind, 0.0)
    return found


def on(name: str, number: int, cpu: int, kind: str, *, daemon: bool = False) -> Pod:
    made = any_pod(f"p{number}", name, cpu, 0)
    return replace(made, owner_kind=kind, owner_name="o" if kind else "", daemon=daemon)


def asked(view: View, kind: str) -> dict[str, int]:
    owners = [{"kind": kind, "name": "o", "controller": True}] if kind else []
    meta = {"name": "new", "namespace": "d", "ownerReferences": owners}
    pod = orjson.dumps({"metadata": meta, "spec": {"containers": [{"name": "main"}]}})
    return dict(wire.scores(view.answer(wire.names_body(NAMES, pod), 0.0)[0]))


def plain(pods: Iterable[Pod], kind: str) -> dict[str, int]:
    """Score from the objects alone."""
    found = {}
    for name in NAMES:
        here = [pod for pod in pods if pod.node == name and name != "unknown"]
        used = sum(pod.requests.cpu_millis for pod in here)
        eighth = min(used * 9 // 4000, 8)
        kinds = {pod.owner_kind for pod in here if not pod.daemon}
        if name in OFF:
            found[name] = 0
        elif not kinds:
            found[name] = 2
        elif (kinds == {"ReplicaSet"}) == (kind == "ReplicaSet"):
            found[name] = 7 + eighth * 4 // 9
        else:
            found[name] = 3 + eighth * 4 // 9
    return found


@pytest.mark.parametrize(
    ("kind", "scores"),
    [
        ("ReplicaSet", {"n0": 8, "n1": 4, "n2": 0, "unknown": 2}),
        ("Job", {"n0": 4, "n1": 8, "n2": 0, "unknown": 2}),
        ("StatefulSet", {"n0": 4, "n1": 8, "n2": 0, "unknown": 2}),
        ("", {"n0": 4, "n1": 8, "n2": 0, "unknown": 2}),
    ],
)
def test_pods_go_where_their_sort_is(kind: str, scores: dict[str, int]) -> None:
    """One job makes a node one of jobs."""
    one, other = on("n0", 1, 1500, "ReplicaSet"), on("n1", 2, 750, "ReplicaSet")
    assert asked(view_of([one, other, on("n1", 3, 750, "Job")]), kind) == scores


def test_a_pod_that_goes_with_its_node_is_of_no_sort() -> None:
    view = view_of([on("n0", 1, 3900, "DaemonSet", daemon=True)])
    assert {asked(view, kind)["n0"] for kind in KINDS} == {2}


def test_a_pod_that_cannot_be_read_gets_the_scores_of_pack() -> None:
    pods = [on("n0", 1, 3900, "Job"), on("n1", 2, 1000, "ReplicaSet")]
    body = wire.names_body(NAMES, b'{"metadata": 1}')
    found = [view_of(pods, score).answer(body, 0.0)[0] for score in ("apart", "pack")]
    assert found[0] == found[1]


PODS_THERE = st.tuples(
    st.sampled_from(NAMES[:3]), st.integers(0, 4), st.sampled_from([0, 700, 2000]),
    st.sampled_from(KINDS), st.booleans(),
)  # fmt: skip


@given(st.lists(PODS_THERE, max_size=12), st.lists(st.integers(0, 4), max_size=3))
def test_after_any_events_it_is_what_the_objects_say(
    events: list[tuple[str, int, int, str, bool]], gone: list[int]
) -> None:
    view, there = view_of([]), dict[str, Pod]()
    for kind in KINDS:
        asked(view, kind)  # its answers are kept from here on
    for name, number, cpu, kind, daemon in events:
        one = on(name, number, cpu, kind, daemon=daemon)
        there[one.key] = one
        view.changed(PODS, one)
    for number in gone:
        there.pop(f"d/p{number}", None)
        view.deleted(PODS, f"d/p{number}")
    for kind in KINDS:
        assert asked(view, kind) == plain(there.values(), kind)
    again = view_of(there.values())
    assert {kind: asked(again, kind) for kind in KINDS} == {k: asked(view, k) for k in KINDS}
