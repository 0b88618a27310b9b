"""A cluster history that is read from a folder of dumps: times, lifetimes, errors."""

import gzip
import subprocess
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import InvalidInputError
from sim import simulated_load, waves
from sim.history import dumps
from sim.history.cluster_history import ClusterHistory, PodLifetime
from tests.support import recorder
from tests.support.pages import console
from tests.support.plan_cli import dump, node, pod
from tests.support.recorder import EPOCH, record

Json = dict[str, Any]
MINUTE_MS = 60_000
LOOP = console("docs/replay.md", "while :")
EVERY_MS = 20 * MINUTE_MS


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("2026-11-01T08:00:00Z.json", EPOCH),
        ("2026-11-01T08-00-00Z.json", EPOCH),
        ("dump-2026-11-01_08-00.json.gz", EPOCH),
        ("20261101T080000.json", EPOCH),
        ("202611010800.json", EPOCH),
        ("nodes.2026-11-01T10:00:00+02:00.json", EPOCH),
        ("2026-11-01T04:30:00-0330.json", EPOCH),
        ("2026-11-01T08:00:00.5Z.json", EPOCH),
        (f"{EPOCH}.json", EPOCH),
        (f"dump-{EPOCH}-nodes.json", EPOCH),
        ("dump.json", None),
        ("dump-12.json", None),
    ],
)
def test_time_of_dump_is_read_from_file_name(name: str, seconds: int | None) -> None:
    assert dumps.time_of(f"/some/20250101T000000/{name}") == (seconds and 1000 * seconds)


def test_invalid_time_in_file_name_is_rejected() -> None:
    with pytest.raises(InvalidInputError, match=r"invalid time, '2026-13-01T08:00:00Z': month"):
        dumps.time_of("2026-13-01T08:00:00Z.json")


@pytest.mark.parametrize(("status", "kept"), [(0, 1), (1, 0)])
def test_documented_loop_keeps_only_complete_dumps(status: int, kept: int, tmp_path: Path) -> None:
    stand_ins = f"kubectl() {{ echo '{{}}'; return {status}; }}\nsleep() {{ exit 0; }}\n"
    subprocess.run(["bash", "-uc", stand_ins + LOOP.commands], cwd=tmp_path, check=True)
    found = [*(tmp_path / "dumps").glob("*.json.gz")]
    assert len(found) == kept
    assert all(dumps.time_of(str(one)) for one in found)


def dated(one: Json, created: int | None = 0, **status: Any) -> Json:
    if created is not None:
        one["metadata"]["creationTimestamp"] = at(created)
    one["status"].update(status)
    return one


def at(minutes: int) -> str:
    return recorder.written(minutes * MINUTE_MS)


def ms(minutes: float) -> int:
    return round(1000 * (EPOCH + 60 * minutes))


def past_of(tmp_path: Path, *looks: tuple[int, list[Json]]) -> ClusterHistory:
    for minutes, items in looks:
        (tmp_path / f"{at(minutes)}.json").write_bytes(dump(*items))
    return dumps.read(str(tmp_path), [])


def ended(state: str) -> Json:
    return {"state": {"terminated": {"finishedAt": state}}}


NODE = node("n", metadata={"name": "n", "creationTimestamp": at(-60)})
STAYS = dated(pod("stays", "n"), created=-10)


def going(one: Json, minutes: int) -> Json:
    one["metadata"]["deletionTimestamp"] = at(minutes)
    return one


@pytest.mark.parametrize(
    ("first", "second", "begins", "ends", "slack"),
    [
        ([dated(pod("p", "n"), -5)], [dated(pod("p", "n"), -5)], -5, None, 0),
        ([dated(pod("p", "n"), -5)], [], -5, 5, 5),
        ([going(dated(pod("p", "n"), -5), 2)], [], -5, 2, 0),
        ([going(dated(pod("p", "n"), -5), 99)], [], -5, 5, 5),
        ([], [dated(pod("p", "n"), 3)], 3, None, 0),
        ([], [dated(pod("p", "n"), None)], 5, None, 0),
        ([], [dated(pod("p", "n"), 11)], 10, None, 0),  # the clock of the API server is ahead
        (
            [],
            [dated(pod("p", "n"), 1, phase="Succeeded", containerStatuses=[ended(at(4))])],
            1, 4, 0,
        ),
        ([], [dated(pod("p", "n"), 2, phase="Failed")], 2, 6, 4),
    ],
)  # fmt: skip
def test_pod_lifetime_is_derived_from_two_dumps(
    tmp_path: Path,
    first: list[Json],
    second: list[Json],
    begins: int,
    ends: int | None,
    slack: int,
) -> None:
    found = past_of(tmp_path, (0, [NODE, STAYS, *first]), (10, [NODE, STAYS, *second]))
    (life,) = [life for life in found.pod_lifetimes if life.pod.name == "p"]
    assert life.begins_ms == ms(begins)
    assert life.ends_ms == (None if ends is None else ms(ends))
    assert life.slack_ms == slack * MINUTE_MS


def test_pod_begins_when_its_last_scheduling_gate_is_removed(tmp_path: Path) -> None:
    """For example a job in a queue, whose quota then also applies in the simulation."""
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    names = "first", "second", "never"
    queued = [dated(pod(name, None, schedulingGates=gates), 0) for name in names]
    first = dated(pod("first", "n"), 0, startTime=at(17))
    over = dated(pod("first", "n"), 0, startTime=at(17), phase="Succeeded")
    done = dated(over, 0, containerStatuses=[ended(at(33))])
    second = dated(pod("second", "n"), 0, startTime=at(31))
    looks = [queued, queued, [first, *queued[1:]], [first, *queued[1:]], [done, second, queued[2]]]
    made = [(10 * number, [NODE, STAYS, *items]) for number, items in enumerate(looks)]
    found = past_of(tmp_path, *made)
    lives = {
        life.pod.name: (life.begins_ms, life.bound_ms, life.ends_ms)
        for life in found.pod_lifetimes
    }
    del lives["stays"]
    assert lives == {
        "first": (ms(15), ms(17), ms(33)),
        "second": (ms(31), ms(31), None),
    }


def test_finished_pod_counts_once_when_it_is_in_several_dumps(tmp_path: Path) -> None:
    done = dated(pod("p", "n"), 1, phase="Succeeded", containerStatuses=[ended(at(4))])
    looks = [(minutes, [NODE, STAYS, *([done] if minutes else [])]) for minutes in (0, 10, 20, 30)]
    found = past_of(tmp_path, *looks)
    assert [life.pod.name for life in found.pod_lifetimes].count("p") == 1


def test_pods_with_same_name_and_other_uid_are_different(tmp_path: Path) -> None:
    looks = []
    for minutes, uid in ((0, "a"), (10, "b")):
        one = dated(pod("p", "n"), minutes)
        one["metadata"]["uid"] = uid
        looks.append((minutes, [NODE, STAYS, one]))
    found = past_of(tmp_path, *looks)
    assert sorted(life.begins_ms for life in found.pod_lifetimes if life.pod.name == "p") == [
        ms(0),
        ms(10),
    ]


def test_node_lifetimes_are_derived_from_dumps(tmp_path: Path) -> None:
    new = node("new", metadata={"name": "new", "creationTimestamp": at(4)})
    found = past_of(tmp_path, (0, [NODE, STAYS]), (10, [NODE, new, STAYS]), (20, [NODE, STAYS]))
    stays = {stay.node.name: (stay.begins_ms, stay.ends_ms) for stay in found.node_lifetimes}
    assert stays == {"n": (ms(-60), ms(20)), "new": (ms(4), ms(15))}


def seen(gpus: int, *, ready: bool = True, taint: str = "") -> Json:
    """Return a node created at minute 4; its devices and their label appear together."""
    labels = {"gpu": "A100"} if gpus else {}
    one = node("new", metadata={"name": "new", "creationTimestamp": at(4), "labels": labels})
    one["spec"] = {"taints": [{"key": taint, "effect": "NoSchedule"}] if taint else []}
    one["status"]["allocatable"]["nvidia.com/gpu"] = str(gpus)
    one["status"]["conditions"] = [{"type": "Ready", "status": "True" if ready else "False"}]
    return one


@pytest.mark.parametrize(
    ("looks", "gpus", "taints"),
    [
        ({5: seen(0), 10: seen(8), 20: seen(8)}, 8, []),
        ({5: seen(0, taint="starts"), 60: seen(8)}, 8, []),
        ({5: seen(8), 15: seen(8), 25: seen(8, taint="work")}, 8, []),
        ({15: seen(0, ready=False), 25: seen(8), 35: seen(0)}, 8, []),
        ({5: seen(0), 10: seen(8, taint="kept")}, 8, ["kept"]),
    ],
)
def test_node_is_described_as_after_its_startup(
    tmp_path: Path, looks: dict[int, Json], gpus: int, taints: list[str]
) -> None:
    made = [(minutes, [NODE, STAYS, new]) for minutes, new in looks.items()]
    found = past_of(tmp_path, (0, [NODE, STAYS]), *made)
    (stay,) = [stay for stay in found.node_lifetimes if stay.node.name == "new"]
    assert stay.begins_ms == ms(4)
    assert dict(stay.node.allocatable.extended).get("nvidia.com/gpu", 0) == gpus
    assert stay.node.labels == {"gpu": "A100"}
    assert [one.key for one in stay.node.taints] == taints


def test_files_of_same_time_are_one_dump(tmp_path: Path) -> None:
    for minutes in (0, 10):
        (tmp_path / f"nodes-{at(minutes)}.json").write_bytes(dump(NODE))
        packed = gzip.compress(dump(STAYS))
        (tmp_path / f"pods-{at(minutes)}.json.gz").write_bytes(packed)
    found = dumps.read(str(tmp_path), [])
    assert (len(found.node_lifetimes), len(found.pod_lifetimes), found.duration_ms) == (
        1,
        1,
        10 * MINUTE_MS,
    )


def test_time_of_dump_is_read_from_heartbeats_when_name_has_none(tmp_path: Path) -> None:
    for minutes in (0, 10):
        beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": at(minutes)}
        one = node("n")
        one["status"]["conditions"] = [beat]
        (tmp_path / f"{minutes}.json").write_bytes(dump(one, STAYS))
    assert dumps.read(str(tmp_path), []).duration_ms == 10 * MINUTE_MS


def test_node_objects_of_other_apis_are_ignored(tmp_path: Path) -> None:
    theirs = {"apiVersion": "longhorn.io/v1beta2", "kind": "Node", "metadata": {"name": "lh"}}
    for minutes in (0, 10):
        (tmp_path / f"{at(minutes)}.json").write_bytes(dump(NODE, theirs, STAYS))
    refused: list[str] = []
    found = dumps.read(str(tmp_path), refused)
    assert ([stay.node.name for stay in found.node_lifetimes], refused) == (["n"], [])


def test_unreadable_object_is_reported_and_skipped(tmp_path: Path) -> None:
    bad = dated(pod("bad", "n", cpu="much"))
    strange = {"kind": "Pod", "metadata": {"name": 7}}
    for minutes in (0, 10):
        items = [NODE, STAYS, bad, strange]
        (tmp_path / f"{at(minutes)}.json").write_bytes(dump(*items))
    refused: list[str] = []
    found = dumps.read(str(tmp_path), refused)
    assert [life.pod.name for life in found.pod_lifetimes] == ["stays"]
    assert len(refused) == 4
    assert "Pod shop/bad: spec.containers[0].resources.requests.cpu: 'much' is not" in refused[0]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, "holds no file that ends in .json or .json.gz"),
        ({"x.json": b""}, "x.json: is empty; create it with: kubectl get nodes"),
        ({"x.json": b"{"}, "x.json: is not complete, valid JSON"),
        ({"x.json": dump(node("n"), pod("p", "n"))}, "x.json: does not say when it was made"),
        (
            {f"{at(0)}.json": dump(pod("p", "n"))},
            f"{at(0)}.json: holds no nodes that can be read",
        ),
        ({f"{at(0)}.json": dump(NODE)}, f"{at(0)}.json: holds no pods that can be read"),
        ({f"{at(0)}.json": dump(NODE, STAYS)}, "covers 0 s; allowed: at least a minute"),
        (
            {f"{at(m)}.json": dump(NODE, STAYS) for m in (0, 61 * 24 * 60)},
            "covers 61 days; allowed: up to 60",
        ),
    ],
)
def test_invalid_folder_is_rejected_in_one_line(
    tmp_path: Path, files: dict[str, bytes], problem: str
) -> None:
    for name, raw in files.items():
        (tmp_path / name).write_bytes(raw)
    with pytest.raises(InvalidInputError) as caught:
        dumps.read(str(tmp_path), [])
    assert problem in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_missing_folder_is_rejected_with_its_name() -> None:
    with pytest.raises(InvalidInputError, match="/no/such: No such file"):
        dumps.read("/no/such", [])


@pytest.mark.long
@pytest.mark.parametrize("created", [True, False])
def test_dumps_of_simulated_cluster_yield_its_pod_lifetimes(
    tmp_path: Path, *, created: bool
) -> None:
    """Times may differ by half the interval between dumps, plus the rounding to seconds."""
    whole = waves.mixed(3, 1)
    load = simulated_load.SimulatedLoad(
        "w", whole.nodes, whole.arrivals, 10 * EVERY_MS + 1, None, deployments=whole.deployments
    )
    was = record(load, EVERY_MS, recorder.dumps_into(tmp_path, created=created))
    found = dumps.read(str(tmp_path), [])
    lives = {life.pod.uid: life for life in found.pod_lifetimes}
    assert lives.keys() == {key for key in was.seen if "/" in key}
    assert len(lives) > 100
    last_ms = 10 * EVERY_MS
    for key, life in lives.items():
        _near(was, key, life, last_ms, exact=created)


def _near(
    was: recorder.Recorder, key: str, life: PodLifetime, last_ms: int, *, exact: bool
) -> None:
    begun_ms, gone_ms = was.created[key], was.ended.get(key, last_ms + 1)
    begins_ms = life.begins_ms - 1000 * EPOCH
    if not exact and begun_ms <= EVERY_MS:
        assert begins_ms == EVERY_MS  # the first dump shows no earlier time
    else:
        assert abs(begins_ms - begun_ms) <= 1000 + (0 if exact else EVERY_MS // 2)
    assert life.pod.requests.cpu_millis == was.pods[key].requests.cpu_millis
    if life.ends_ms is None:
        assert gone_ms >= last_ms
    else:
        assert gone_ms <= last_ms
        assert abs(life.ends_ms - 1000 * EPOCH - gone_ms) <= life.slack_ms + 1000
        assert life.slack_ms <= EVERY_MS // 2
