"""The score `pack`: how full a node is, who owns its pods, which resources a pod would waste."""

from collections.abc import Iterable
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.programs import ExtenderConfig
from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from core.model.pod import Pod
from core.model.resources import Resources
from extender import wire
from extender.scores import NO_REQUESTS, RequestsByNode
from extender.view import View
from kube.decode.kinds import NODES, PODS
from tests.support.builders import node
from tests.support.builders import pod as any_pod

GPU = "nvidia.com/gpu"
NAMES = ["n0", "n1", "gpu", "marked", "unknown"]
KINDS = ["ReplicaSet", "Job", "StatefulSet", ""]
GPUS = 2
"""GPUs of the node `gpu`."""
ASKS = {"resources": {"requests": {"cpu": "1", GPU: "1"}}}
PLAIN = {"resources": {"requests": {"cpu": "1", "hugepages-2Mi": "4Mi"}}}


def view_of(pods: Iterable[Pod]) -> View:
    found = View(ExtenderConfig(), TAINT_KEY)
    nodes = [node(name, 4000) for name in NAMES[:4]]
    offered = {"gpu": ((GPU, GPUS),), "n1": (("hugepages-2Mi", 1024),)}
    nodes[3] = replace(nodes[3], labels={MARK_LABEL: "PreferNoSchedule"})
    for at, one in enumerate(nodes):
        whole = replace(one.allocatable, extended=offered.get(one.name, ()))
        nodes[at] = replace(one, allocatable=whole)
    found.replaced(NODES, nodes)
    found.replaced(PODS, list(pods))
    for kind in (NODES, PODS):
        found.freshness.alive(kind, 0.0)
    return found


def on(name: str, number: int, cpu: int, kind: str, *, daemon: bool = False, gpus: int = 0) -> Pod:
    made = any_pod(f"p{number}", name, cpu, 0)
    extended = ((GPU, gpus),) if gpus else ()
    asked = replace(made.requests, extended=extended)
    owner = "o" if kind else ""
    return replace(made, requests=asked, owner_kind=kind, owner_name=owner, daemon=daemon)


def body(kind: str, spec: object) -> bytes:
    owners = [{"kind": kind, "name": "o", "controller": True}] if kind else []
    meta = {"name": "new", "namespace": "d", "ownerReferences": owners}
    return wire.names_body(NAMES, orjson.dumps({"metadata": meta, "spec": spec}))


def asked(view: View, kind: str, *, devices: bool = False) -> dict[str, int]:
    spec = {"containers": [{"name": "main", **(ASKS if devices else PLAIN)}]}
    return dict(wire.scores(view.answer(body(kind, spec), 0.0)[0]))


def _fullness(name: str, pods: Iterable[Pod]) -> float:
    used = sum(pod.requests.cpu_millis for pod in pods) / 4000
    taken = sum(dict(pod.requests.extended).get(GPU, 0) for pod in pods) / GPUS
    return min(max(used, taken if name == "gpu" else 0), 1)


def plain(pods: Iterable[Pod], kind: str, *, devices: bool) -> dict[str, int]:
    """Return the expected scores, computed from the objects without any cache."""
    found = {}
    for name in NAMES:
        here = [pod for pod in pods if pod.node == name and name != "unknown"]
        full = _fullness(name, here)
        kinds = {pod.owner_kind for pod in here if not pod.daemon}
        alike = (kinds == {"ReplicaSet"}) == (kind == "ReplicaSet")
        if alike and kind != "ReplicaSet":
            lasting = [pod for pod in here if pod.owner_kind != "ReplicaSet" and not pod.daemon]
            full = _fullness(name, lasting)
        ninth = min(int(full * 9), 8)
        if name == "marked":
            found[name] = 0
        elif not kinds:
            found[name] = 4
        else:
            found[name] = 8 + ninth * 3 // 9 if alike else 6 + ninth * 2 // 9
    if not devices:  # a core of the GPU node is worth 5.4 times a core of another node
        found["gpu"] = max(found["gpu"] - 7, 2)
    return found


@pytest.mark.parametrize(
    ("kind", "scores"),
    [
        ("ReplicaSet", {"n0": 9, "n1": 6, "gpu": 2, "marked": 0, "unknown": 4}),
        ("Job", {"n0": 6, "n1": 8, "gpu": 2, "marked": 0, "unknown": 4}),
        ("StatefulSet", {"n0": 6, "n1": 8, "gpu": 2, "marked": 0, "unknown": 4}),
        ("", {"n0": 6, "n1": 8, "gpu": 2, "marked": 0, "unknown": 4}),
    ],
)
def test_pack_prefers_nodes_with_pods_of_same_owner_kind(
    kind: str, scores: dict[str, int]
) -> None:
    """A single Job pod makes its node a node of Jobs."""
    one, other = on("n0", 1, 1500, "ReplicaSet"), on("n1", 2, 750, "ReplicaSet")
    assert asked(view_of([one, other, on("n1", 3, 750, "Job")]), kind) == scores


@pytest.mark.parametrize(
    ("kind", "prefers"), [("Job", "n1"), ("StatefulSet", "n1"), ("ReplicaSet", "gpu")]
)
def test_pod_of_job_prefers_node_where_such_pods_request_most(kind: str, prefers: str) -> None:
    """A fuller node that has few of them could become empty soon."""
    few = [on("n0", 1, 2800, "ReplicaSet"), on("n0", 2, 800, "Job")]
    many = [on("n1", 3, 2000, "Job")]
    scores = asked(view_of([*few, *many, on("gpu", 4, 400, "ReplicaSet")]), kind, devices=True)
    assert max(scores, key=scores.__getitem__) == prefers


def test_bare_pod_without_requests_lowers_score_of_its_node_above_marked_nodes() -> None:
    """docs/threat-model.md describes this for a tenant with such pods on all nodes but one."""
    full, emptier = on("n0", 1, 3600, "ReplicaSet"), on("n1", 2, 400, "ReplicaSet")
    bare = on("n0", 3, 0, "")
    before, after = (asked(view_of([full, emptier, *more]), "ReplicaSet") for more in ([], [bare]))
    assert (before["n0"], before["n1"]) == (10, 8)
    assert (after["n0"], after["n1"]) == (7, 8)
    assert after["marked"] < min(score for name, score in after.items() if name != "marked")


@pytest.mark.parametrize(
    ("gpus", "scores"),
    [
        pytest.param(0, {False: 2, True: 8}, id="no GPU in use"),
        pytest.param(1, {False: 2, True: 9}, id="one GPU in use"),
        pytest.param(2, {False: 3, True: 10}, id="all GPUs in use"),
    ],
)
def test_pack_avoids_gpu_node_when_pod_requests_no_gpu(gpus: int, scores: dict[bool, int]) -> None:
    view = view_of([on("gpu", 1, 500, "Job", gpus=gpus)])
    found = {devices: asked(view, "Job", devices=devices)["gpu"] for devices in (False, True)}
    assert found == scores


@pytest.mark.parametrize(
    ("spec", "devices"),
    [
        ({}, True),
        ({"containers": [PLAIN]}, False),
        ({"containers": [{"resources": {"limits": {"cpu": "1"}}}]}, True),
        ({"containers": [{"resources": {"requests": {"cpu": "1", GPU: "0"}}}]}, False),
        ({"containers": [PLAIN], "overhead": {GPU: "1"}}, True),
        ({"containers": [PLAIN, ASKS]}, True),
        ({"containers": [PLAIN], "initContainers": [ASKS]}, True),
    ],
)
def test_pod_requests_devices_when_any_container_does(
    spec: dict[str, object], devices: bool
) -> None:
    """For a pod that requests neither devices nor CPU, all nodes cost the same."""
    found = wire.scores(view_of([]).answer(body("Job", spec), 0.0)[0])["gpu"]
    assert found == (4 if devices else 2)


def test_daemonset_pods_do_not_affect_score() -> None:
    view = view_of([on("n0", 1, 3900, "DaemonSet", daemon=True)])
    assert {asked(view, kind)["n0"] for kind in KINDS} == {4}


def test_unreadable_pod_is_scored_by_node_fullness() -> None:
    view = view_of([on("n0", 1, 3900, "Job"), on("n1", 2, 1000, "ReplicaSet")])
    unread = wire.names_body(NAMES, b'{"metadata": 1}')
    found = dict(wire.scores(view.answer(unread, 0.0)[0]))
    assert found == {"n0": 10, "n1": 4, "gpu": 2, "marked": 0, "unknown": 2}


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 3)), min_size=1)
)
def test_requests_by_node_are_empty_when_all_pods_are_removed(
    asked: list[tuple[str, int, int]],
) -> None:
    """Node names change without end, and users who create pods can write any name."""
    pods = [
        replace(any_pod(f"p{at}", name, cpu, cpu), requests=Resources(cpu, cpu, 0, 1, some))
        for at, (name, cpu, many) in enumerate(asked)
        for some in [tuple((f"x.y/{number}", 1) for number in range(many))]
    ]
    found = RequestsByNode()
    found.replace_all({pod.key: pod for pod in pods})
    for pod in pods:
        sums = [one.requests for one in pods[pods.index(pod) :] if one.node == pod.node]
        whole, told = Resources.total(sums), found.of(pod.node or "")
        assert (told.cpu_millis, told.memory_bytes) == (whole.cpu_millis, whole.memory_bytes)
        assert told.devices == whole.devices
        found.add(pod, -1)
    assert found.of("a") is found.of("b") is NO_REQUESTS
    assert (NO_REQUESTS.cpu_millis, NO_REQUESTS.devices) == (0, {})


PODS_THERE = st.tuples(
    st.sampled_from(NAMES[:4]), st.integers(0, 4), st.sampled_from([0, 700, 2000]),
    st.sampled_from(KINDS), st.booleans(), st.integers(0, 2),
)  # fmt: skip
EVERY = [(kind, devices) for kind in KINDS for devices in (False, True)]


@given(st.lists(PODS_THERE, max_size=12), st.lists(st.integers(0, 4), max_size=3))
def test_scores_after_any_events_equal_scores_of_new_view(
    events: list[tuple[str, int, int, str, bool, int]], gone: list[int]
) -> None:
    view, there = view_of([]), dict[str, Pod]()
    for kind, devices in EVERY:
        asked(view, kind, devices=devices)  # from here on the view caches the answers
    for name, number, cpu, kind, daemon, gpus in events:
        one = on(name, number, cpu, kind, daemon=daemon, gpus=gpus)
        there[one.key] = one
        view.changed(PODS, one)
    for number in gone:
        there.pop(f"d/p{number}", None)
        view.deleted(PODS, f"d/p{number}")
    again = view_of(there.values())
    for kind, devices in EVERY:
        found = asked(view, kind, devices=devices)
        assert found == plain(there.values(), kind, devices=devices)
        assert found == asked(again, kind, devices=devices)
