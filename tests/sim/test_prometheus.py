"""A cluster history that is read from responses of Prometheus: metrics, lifetimes, errors."""

import re
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from core.model.constraints import Toleration, names_node
from core.model.errors import InvalidInputError
from core.model.node import Taint
from sim import simulated_load, waves
from sim.history import prometheus
from sim.history.cluster_history import ClusterHistory
from tests.support.pages import console
from tests.support.recorder import EPOCH, Scraped, record

Json = dict[str, Any]
LOOP = console("docs/replay.md", "PROMETHEUS=")
STEP = 60
EVERY_MS = 300_000
WHO = {"namespace": "shop", "pod": "p", "uid": "u"}


def series(
    name: str, value: str = "1", first: int = 0, last: int = 10, /, **labels: str
) -> tuple[str, Json]:
    values = [[EPOCH + STEP * at, value] for at in range(first, last + 1)]
    return name, {"metric": {"__name__": name, **labels}, "values": values}


def body(*found: Json) -> bytes:
    data = {"resultType": "matrix", "result": list(found)}
    return orjson.dumps({"status": "success", "data": data})


NODE = [
    series("kube_node_status_allocatable", "3.92", node="n", resource="cpu"),
    series("kube_node_status_allocatable", "1.6e+10", node="n", resource="memory"),
    series("kube_node_status_allocatable", "58", node="n", resource="pods"),
    series("kube_node_status_allocatable", "2", node="n", resource="nvidia_com_gpu"),
    series("kube_node_status_allocatable", "25", node="n", resource="attachable_volumes_ebs"),
]
TAINT = series("kube_node_spec_taint", node="n", key="gpu", value="yes", effect="NoSchedule")
ASKED = series(
    "kube_pod_container_resource_requests", "0.25", **WHO, container="main", resource="cpu"
)
INFO = series("kube_pod_info", **WHO, node="n", created_by_kind="Job", created_by_name="j")


def past_of(tmp_path: Path, *found: tuple[str, Json]) -> ClusterHistory:
    metrics: dict[str, list[Json]] = {}
    for name, one in found:
        metrics.setdefault(name, []).append(one)
    for name, all_of in metrics.items():
        (tmp_path / f"{name}.json").write_bytes(body(*all_of))
    return prometheus.read(str(tmp_path), [], ["pool.example/ownName"])


@pytest.mark.parametrize("unanswered", ["", "kube_pod_owner"])
def test_documented_loop_keeps_only_successful_responses(unanswered: str, tmp_path: Path) -> None:
    stand_in = f"curl() {{ echo '{{}}'; [[ $4 != query={unanswered} ]]; }}\n"
    subprocess.run(["bash", "-uc", stand_in + LOOP.commands], cwd=tmp_path, check=True)
    found = {one.name for one in (tmp_path / "prometheus").glob("*.json.gz")}
    asked = set(re.findall(r"\bkube_\w+", LOOP.commands))
    assert found == {f"{name}.json.gz" for name in asked - {unanswered}}


def test_node_is_read_from_its_metrics(tmp_path: Path) -> None:
    found = past_of(
        tmp_path,
        *NODE,
        INFO,
        ASKED,
        TAINT,
        series(
            "kube_node_labels",
            node="n",
            label_pool_example_own_name="batch",
            label_topology_kubernetes_io_zone="a",
            label_other="x",
        ),
        series("kube_node_role", node="n", role="control-plane"),
    )
    (stay,) = found.node_lifetimes
    whole = stay.node.allocatable
    assert (whole.cpu_millis, whole.memory_bytes, whole.pods) == (3920, 16 * 10**9, 58)
    assert whole.extended == (("nvidia_com_gpu", 2),)
    assert stay.node.taints == (Taint("gpu", "yes", "NoSchedule"),)
    assert stay.node.labels == {
        "pool.example/ownName": "batch",
        "topology.kubernetes.io/zone": "a",
        "other": "x",
        "node-role.kubernetes.io/control-plane": "",
    }


@pytest.mark.parametrize(
    ("came", "first", "last", "counts"),
    [
        (0, 0, 30, True),
        (0, 0, 0, True),  # like a dump of that time
        (0, 1, 30, False),
        (0, 20, 30, False),
        (5, 5, 15, False),  # during the startup of the node
        (5, 5, 30, True),
        (5, 16, 16, True),
        (5, 17, 30, False),
        (25, 30, 30, True),  # its startup did not end: the last state counts
        (25, 25, 29, False),
    ],
)
def test_taint_counts_when_it_exists_after_startup(
    tmp_path: Path, came: int, first: int, last: int, counts: bool
) -> None:
    allocatable = "kube_node_status_allocatable"
    stood = series(
        "kube_node_spec_taint", "1", first, last, node="n", key="k", effect="NoSchedule"
    )
    found = past_of(
        tmp_path,
        series(allocatable, "58", came, 30, node="n", resource="pods"),
        series(allocatable, "58", 0, 30, node="other", resource="pods"),
        stood,
        INFO,
        ASKED,
    )
    stay = next(stay for stay in found.node_lifetimes if stay.node.name == "n")
    assert stay.node.taints == ((Taint("k", "", "NoSchedule"),) if counts else ())


def test_taint_is_absent_between_its_samples(tmp_path: Path) -> None:
    name, taint = series("kube_node_spec_taint", node="n", key="k", effect="NoSchedule")
    taint["values"] = [[EPOCH + STEP * at, "1"] for at in (5, 30)]
    allocatable = "kube_node_status_allocatable"
    found = past_of(
        tmp_path,
        series(allocatable, "58", 5, 30, node="n", resource="pods"),
        series(allocatable, "58", 0, 30, node="other", resource="pods"),
        (name, taint),
        INFO,
        ASKED,
    )
    assert not any(stay.node.taints for stay in found.node_lifetimes)


@pytest.mark.parametrize(
    "told",
    [
        series("kube_node_labels", node="n", label_type="virtual-kubelet"),
        series("kube_node_labels", node="n", label_eks_amazonaws_com_compute_type="fargate"),
        series("kube_node_labels", node="n", label_liqo_io_type="virtual-node"),
        series("kube_node_role", node="n", role="virtual-node"),
        series("kube_node_spec_taint", node="n", key="virtual-kubelet.io/provider", value="azure"),
    ],
)
def test_virtual_node_is_recognized_by_labels_and_taints(
    tmp_path: Path, told: tuple[str, Json]
) -> None:
    (stay,) = past_of(tmp_path, *NODE, INFO, ASKED, told).node_lifetimes
    assert stay.node.virtual
    (tmp_path / f"{told[0]}.json").unlink()
    (stay,) = past_of(tmp_path, *NODE, INFO, ASKED).node_lifetimes
    assert not stay.node.virtual


def test_node_has_highest_reported_allocatable(tmp_path: Path) -> None:
    """A restarted kubelet reports no devices at first; values that are no numbers are ignored."""
    name, gpus = NODE[3]
    values = ["0", "NaN", "2", "1", "much"]
    samples = [[EPOCH + STEP * at, value] for at, value in enumerate(values)]
    restarted = name, {"metric": gpus["metric"], "values": samples}
    again = series(name, "0", 6, 10, node="n", resource="nvidia_com_gpu")
    for told in ([restarted, again], [again, restarted]):
        (stay,) = past_of(tmp_path, *NODE[:3], *told, INFO, ASKED).node_lifetimes
        assert stay.node.allocatable.extended == (("nvidia_com_gpu", 2),)


def test_pod_is_read_from_its_metrics(tmp_path: Path) -> None:
    resources = "kube_pod_container_resource_requests"
    found = past_of(
        tmp_path,
        *NODE,
        INFO,
        ASKED,
        series(resources, "1e+09", **WHO, container="main", resource="memory"),
        series(resources, "0.5", **WHO, container="side", resource="cpu"),
        series(
            "kube_pod_init_container_resource_requests",
            "2",
            **WHO,
            container="first",
            resource="cpu",
        ),
        series(
            "kube_pod_owner",
            **WHO,
            owner_kind="ReplicaSet",
            owner_name="web-1",
            owner_is_controller="true",
        ),
        series("kube_pod_tolerations", **WHO, key="gpu", operator="Exists", effect="NoSchedule"),
        series("kube_pod_nodeselectors", **WHO, nodeselector_pool_example_own_name="batch"),
    )
    (life,) = found.pod_lifetimes
    pod = life.pod
    assert (pod.key, pod.uid, pod.node) == ("shop/p", "u", "n")
    assert (pod.requests.cpu_millis, pod.requests.memory_bytes) == (2000, 10**9)
    assert (pod.owner_kind, pod.owner_name) == ("ReplicaSet", "web-1")
    assert pod.node_constraints.node_selector == (("pool.example/ownName", "batch"),)
    assert pod.node_constraints.tolerations == (Toleration("gpu", "Exists", "", "NoSchedule"),)


@pytest.mark.parametrize(
    ("policy", "cpu"),
    [
        ("Always", 1700),  # a sidecar runs beside the init container
        ("", 1500),
        ("OnFailure", 1500),
    ],
)
def test_requests_of_sidecars_are_added(tmp_path: Path, policy: str, cpu: int) -> None:
    asked = "kube_pod_init_container_resource_requests"
    mesh = {**WHO, "container": "mesh"}
    found = past_of(
        tmp_path,
        *NODE,
        INFO,
        ASKED,
        series(asked, "1.5", **WHO, container="migrate", resource="cpu"),
        series(asked, "0.2", **mesh, resource="cpu"),
        series("kube_pod_init_container_info", **mesh, image="i", restart_policy=policy),
    )
    (life,) = found.pod_lifetimes
    assert life.pod.requests.cpu_millis == cpu


def test_sidecar_without_other_init_containers_is_added_to_requests(tmp_path: Path) -> None:
    mesh = {**WHO, "container": "mesh"}
    told = series("kube_pod_init_container_resource_requests", "0.2", **mesh, resource="cpu")
    of = series("kube_pod_init_container_info", **mesh, restart_policy="Always")
    (life,) = past_of(tmp_path, *NODE, INFO, ASKED, told, of).pod_lifetimes
    assert life.pod.requests.cpu_millis == 450


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_daemonset_and_static_pods_are_recognized_by_owner(tmp_path: Path, kind: str) -> None:
    other = {"namespace": "shop", "pod": "d", "uid": "d"}
    daemon = series("kube_pod_info", **other, node="n", created_by_kind=kind, created_by_name="x")
    found = past_of(tmp_path, *NODE, INFO, ASKED, daemon)
    assert [life.pod.stays_with_node for life in found.pod_lifetimes] == [True, False]


def phase(name: str, first: int, last: int) -> tuple[str, Json]:
    return series("kube_pod_status_phase", "1", first, last, **WHO, phase=name)


@pytest.mark.parametrize(
    ("more", "begins", "bound", "ends"),
    [
        ([], 0, 0, None),
        ([phase("Running", 3, 6)], 2.5, 2.5, 6.5),
        ([phase("Pending", 3, 4), phase("Running", 5, 10)], 2.5, 2.5, None),
        ([phase("Running", 3, 6), phase("Succeeded", 7, 10)], 2.5, 2.5, 6.5),
        ([series("kube_pod_created", str(EPOCH - 600), **WHO)], -10, -10, None),
        (
            [
                phase("Running", 3, 6),
                series("kube_pod_created", str(EPOCH + 130), **WHO),
                series("kube_pod_start_time", str(EPOCH + 140), **WHO),
                series("kube_pod_completion_time", str(EPOCH + 370), **WHO),
            ],
            130 / 60, 140 / 60, 370 / 60,
        ),
    ],
)  # fmt: skip
def test_pod_lifetime_is_read_from_phase_and_times(
    tmp_path: Path, more: list[tuple[str, Json]], begins: float, bound: float, ends: float | None
) -> None:
    (life,) = past_of(tmp_path, *NODE, INFO, ASKED, *more).pod_lifetimes
    assert life.begins_ms == 1000 * EPOCH + round(begins * 60_000)
    assert life.bound_ms == 1000 * EPOCH + round(bound * 60_000)
    assert life.ends_ms == (None if ends is None else 1000 * EPOCH + round(ends * 60_000))


def test_pod_finished_before_beginning_is_ignored(tmp_path: Path) -> None:
    other = {"namespace": "shop", "pod": "done", "uid": "v"}
    found = past_of(
        tmp_path,
        *NODE,
        INFO,
        ASKED,
        phase("Running", 0, 10),
        series("kube_pod_info", **other, node="n"),
        series("kube_pod_status_phase", "0", **other, phase="Running"),
        series("kube_pod_status_phase", "1", **other, phase="Succeeded"),
    )
    assert [life.pod.name for life in found.pod_lifetimes] == ["p"]


def test_exported_labels_take_precedence(tmp_path: Path) -> None:
    own = {"namespace": "monitoring", "pod": "exporter", "uid": "u"}
    aside = {"exported_namespace": "shop", "exported_pod": "p"}
    name = "kube_pod_container_resource_requests"
    found = past_of(
        tmp_path,
        *NODE,
        series("kube_pod_info", **own, **aside, node="n"),
        series(name, "1", **own, **aside, container="exporter", exported_container="a",
               resource="cpu"),
        series(name, "2", **own, **aside, container="exporter", exported_container="b",
               resource="cpu"),
    )  # fmt: skip
    (life,) = found.pod_lifetimes
    assert (life.pod.key, life.pod.requests.cpu_millis) == ("shop/p", 3000)


def test_pending_pod_is_not_on_node_of_exporter(tmp_path: Path) -> None:
    """Prometheus drops empty labels, so a pending pod has no exported_node."""
    own = {"namespace": "monitoring", "node": "own"}
    found = past_of(
        tmp_path,
        *NODE,
        ASKED,
        series("kube_pod_info", **own, exported_namespace="shop", pod="waits", uid="w"),
        series("kube_pod_info", "1", 0, 4, **own, exported_namespace="shop", pod="runs", uid="r"),
        series("kube_pod_info", "1", 5, 10, **own, exported_namespace="shop", pod="runs", uid="r",
               exported_node="n"),
    )  # fmt: skip
    assert {life.pod.name: life.pod.node for life in found.pod_lifetimes} == {
        "waits": None,
        "runs": "n",
    }


def test_gap_of_node_is_distinguished_from_gap_of_all_metrics(tmp_path: Path) -> None:
    """Without any samples it is unknown whether the node existed."""
    one, other = (
        [(EPOCH + STEP * at, "58") for at in range(11) if at not in away]
        for away in ((5, 6), (2, 5, 6, 8, 9))
    )
    allocatable = {"__name__": "kube_node_status_allocatable", "resource": "pods"}
    nodes: list[Json] = [
        {"metric": {**allocatable, "node": name}, "values": values}
        for name, values in (("stays", one), ("goes", other))
    ]
    found = past_of(
        tmp_path, *(("kube_node_status_allocatable", node) for node in nodes), INFO, ASKED
    )
    stays = [
        (stay.node.name, stay.begins_ms / 1000 - EPOCH, stay.ends_ms / 1000 - EPOCH)
        for stay in found.node_lifetimes
    ]
    assert stays == [
        ("goes", 0, 1.5 * STEP),
        ("goes", 2.5 * STEP, 7.5 * STEP),
        ("goes", 9.5 * STEP, 10 * STEP),
        ("stays", 0, 10 * STEP),
    ]


def test_gap_of_all_metrics_does_not_lengthen_step(tmp_path: Path) -> None:
    """A pod that existed shortly before and after the gap has two samples."""
    name, info = INFO
    there = [EPOCH + STEP * at for at in range(31) if at not in range(5, 15)]
    found = [
        (metric, {**one, "values": [[at, one["values"][0][1]] for at in there]})
        for metric, one in (*NODE, INFO, ASKED)
    ]
    who = {**WHO, "pod": "q", "uid": "v"}
    few = [[EPOCH + STEP * at, "1"] for at in (4, 15)]
    found.append((name, {"metric": {**info["metric"], **who}, "values": few}))
    past = past_of(tmp_path, *found)
    ended = {life.pod.name: (life.ends_ms, life.slack_ms) for life in past.pod_lifetimes}
    assert ended == {"p": (None, 0), "q": (1000 * (EPOCH + 15 * STEP + STEP // 2), 500 * STEP)}
    assert [note.partition(":")[0] for note in past.notes] == [f"a sample every {STEP} s"]


def test_pod_with_hostname_selector_names_node(tmp_path: Path) -> None:
    selector = series("kube_pod_nodeselectors", **WHO, nodeselector_kubernetes_io_hostname="n")
    (life,) = past_of(tmp_path, *NODE, INFO, ASKED, selector).pod_lifetimes
    assert names_node(life.pod.node_constraints)


def test_unreadable_value_is_reported_and_its_pod_skipped(tmp_path: Path) -> None:
    other = {"namespace": "shop", "pod": "bad", "uid": "b"}
    name = "kube_pod_container_resource_requests"
    for metric, all_of in (
        ("kube_node_status_allocatable", [one for _, one in NODE]),
        ("kube_pod_info", [INFO[1], series("kube_pod_info", **other, node="n")[1]]),
        (name, [ASKED[1], series(name, "NaN", **other, container="x", resource="cpu")[1]]),
    ):
        (tmp_path / f"{metric}.json").write_bytes(body(*all_of))
    refused: list[str] = []
    found = prometheus.read(str(tmp_path), refused)
    assert [life.pod.name for life in found.pod_lifetimes] == ["p"]
    assert len(refused) == 1
    assert "Pod shop/bad: kube_pod_container_resource_requests.cpu: 'NaN' is not" in refused[0]


INFINITE = orjson.dumps(
    {
        "status": "success",
        "data": {
            "resultType": "matrix",
            "result": [{"metric": {"__name__": "kube_pod_info"}, "values": [[1e300, "1"]]}],
        },
    }
)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "x.json: is not complete, valid JSON"),
        (b"[]", "x.json: Expected `object`, got `array`"),
        (
            b'{"status": "error", "error": "too many"}',
            "x.json: is a failed response of Prometheus: too many",
        ),
        (
            b'{"status": "success", "data": {"resultType": "vector", "result": []}}',
            "x.json: data.resultType: 'vector'; allowed: 'matrix'",
        ),
        (
            body({"metric": {}, "values": []}),
            "x.json: data.result[0].metric.__name__: missing; query the metric",
        ),
        (
            body({"metric": {"__name__": "kube_pod_info"}, "values": [["x", "1"]]}),
            "x.json: data.result[0].values: [0][0]: Expected `float`, got `str`",
        ),
        (INFINITE, "x.json: data.result[0].values: invalid time; allowed: Unix seconds"),
        (body(NODE[0][1]), "holds no response for kube_pod_info, kube_pod_container_resource_"),
    ],
)
def test_invalid_folder_is_rejected_in_one_line(tmp_path: Path, raw: bytes, problem: str) -> None:
    (tmp_path / "x.json").write_bytes(raw)
    with pytest.raises(InvalidInputError) as caught:
        prometheus.read(str(tmp_path), [])
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_metrics_of_simulated_cluster_yield_its_pod_lifetimes(tmp_path: Path) -> None:
    """Creation times are exact to the second; ends may differ by one and a half steps."""
    whole = waves.mixed(3, 1)
    looks = 20
    load = simulated_load.SimulatedLoad(
        "w",
        whole.nodes,
        whole.arrivals,
        looks * EVERY_MS + 1,
        None,
        deployments=whole.deployments,
    )
    scraped = Scraped()
    was = record(load, EVERY_MS, scraped.look)
    scraped.write(tmp_path)
    found = prometheus.read(str(tmp_path), [])
    assert {life.pod.uid for life in found.pod_lifetimes} == {
        key for key in was.seen if "/" in key
    }
    assert len(found.pod_lifetimes) > 100
    for life in found.pod_lifetimes:
        key = life.pod.uid
        assert abs(life.begins_ms - 1000 * EPOCH - was.created[key]) <= 1000
        assert life.pod.requests.cpu_millis == was.pods[key].requests.cpu_millis
        assert life.pod.requests.memory_bytes == was.pods[key].requests.memory_bytes
        if life.ends_ms is None:
            assert was.seen[key][-1] >= (looks - 1) * EVERY_MS
        else:
            assert abs(life.ends_ms - 1000 * EPOCH - was.ended[key]) <= EVERY_MS // 2 + 1000
