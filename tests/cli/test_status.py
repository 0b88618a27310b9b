"""`ebb status` of a dump: counts, marks, reasons."""

import re
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from cli import output
from cli.__main__ import main
from cli.input.cluster_input import ClusterInput, Leader, Running
from cli.input.overview import summarize
from core.config.settings import API_VERSION, KIND, Config
from core.marks.mark import Details, encode_details
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    COST_ANNOTATION,
    COST_OURS_ANNOTATION,
    DETAILS_ANNOTATION,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    RESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.model.cluster import Cluster
from tests.support import builders
from tests.support.plan_cli import ITEMS, C, Json, dump, ebb, many_reaches, node, on_terminal, pod

HOUR = 3600
HEAD = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
PROTECTED = {
    SCALE_DOWN_DISABLED_ANNOTATION: "true",
    PROTECTION_ANNOTATION: "unmarked",
    RESERVE_ANNOTATION: "the node is reserved for 1 pod: 1 of 500m + 1Gi",
}


def mark(
    name: str,
    since: int,
    deadline: int,
    *,
    order: int = 0,
    no_schedule: bool = False,
    ours: bool = True,
) -> Json:
    told = Details(since=since, deadline=deadline, owner="me", policy="P", reason="r", order=order)
    annotations = {DETAILS_ANNOTATION: encode_details(told)}
    if ours:
        annotations |= {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "marked"}
    labels = {MARK_LABEL: "NoSchedule" if no_schedule else "PreferNoSchedule"}
    effect = "NoSchedule" if no_schedule else "PreferNoSchedule"
    taint = {"key": TAINT_KEY, "value": str(since), "effect": effect}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return node(name, metadata=metadata, spec={"taints": [taint]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    now = int(time.time())
    going = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    stopped = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
    stray = {"key": TAINT_KEY, "value": "1", "effect": "PreferNoSchedule"}
    items = [
        mark("m-old", now - 3 * HOUR, now - HOUR),
        mark("m-no-schedule", now - 2 * HOUR, now + HOUR, no_schedule=True),
        mark("m-empty", now - HOUR, now + HOUR, ours=False),
        node("gone", spec={"taints": [going]}),
        node("stopped", spec={"taints": [stopped]}),
        node("kept", metadata={"name": "kept", "annotations": {"kube-ebb.io/keep": "true"}}),
        node(
            "stray", metadata={"name": "stray", "annotations": PROTECTED}, spec={"taints": [stray]}
        ),
        pod("a", "m-old"),
        pod("b", "m-no-schedule"),
        pod("c", "kept", "2"),
        pod("d", "kept", "2"),
        pod("w", None),
    ]
    costs = {COST_ANNOTATION: "-7", COST_OURS_ANNOTATION: "-7"}
    for one in items:
        if one["metadata"]["name"] in {"a", "c"}:  # on a marked node, and on another one
            one["metadata"] = {**one["metadata"], "annotations": costs}
    file = tmp_path / "dump.json"
    file.write_bytes(dump(*items))
    return str(file)


def status_of(capsys: pytest.CaptureFixture[str], path: str) -> Any:
    assert main(["status", "--from-file", path, "-o", "json"]) == 0
    return orjson.loads(capsys.readouterr().out)


class TestJson:
    def test_status_has_documented_fields(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        status = status_of(capsys, path)
        assert status["apiVersion"] == "kube-ebb.io/v1alpha1"
        assert status["kind"] == "Status"
        assert (status["source"], status["configuration"], status["leader"]) == (path, None, None)
        counts = status["counts"]
        assert counts.pop("removableNow") == len(status["removable"])
        marked = {one["node"] for one in status["marks"]}
        assert counts.pop("removableAndMarked") == len(marked.intersection(status["removable"]))
        assert counts == {
            "nodes": 7,
            "marked": 3,
            "markedPreferNoSchedule": 2,
            "markedNoSchedule": 1,
            "markedAndEmpty": 1,
            "markedAndProtected": 2,
            "markedAndOverdue": 1,
            "markedWithWrongTaint": 0,
            "unmarkedAndProtected": 1,
            "scaleInTargets": 1,
            "reserved": 1,
            "unmarkedWithLeftOverTaint": 1,
            "leaving": 2,
            "beingDeleted": 1,
        }
        assert [one["node"] for one in status["marks"]] == ["m-old", "m-no-schedule", "m-empty"]
        assert [one["podsLeft"] for one in status["marks"]] == [1, 1, 0]
        assert status["leftOverTaints"] == ["stray"]
        assert status["pendingPods"] == {"all": 1, "unschedulable": 0}
        assert status["before"]["nodes"] == 5
        reasons = {one["code"]: one["nodes"] for one in status["reasons"]}
        assert reasons["reserve"] == 1
        assert (reasons["opted-out"], reasons["being-deleted"]) == (1, 2)

    def test_reserve_annotation_is_ignored_when_node_has_pods(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        nodes = [
            node(name, metadata={"name": name, "annotations": PROTECTED}) for name in ("a", "b")
        ]
        file = tmp_path / "dump.json"
        file.write_bytes(dump(*nodes, pod("p", "a")))
        status = status_of(capsys, str(file))
        assert status["counts"]["reserved"] == 1
        assert {one["code"]: one["nodes"] for one in status["reasons"]}["reserve"] == 1

    def test_pending_pods_that_are_not_placed_do_not_count_as_unplaceable(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The plan does not place DaemonSet pods, expendable pods and pods with unbound claims."""
        daemon, claims = pod("d", None), [{"persistentVolumeClaim": {"claimName": "c"}}]
        daemon["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "controller": True}]
        cheap = pod("cheap", None, priority=-11)
        items = [node("n"), daemon, cheap, pod("c", None, volumes=claims), pod("l", None, "5")]
        file = tmp_path / "d"
        file.write_bytes(dump(*items))
        assert status_of(capsys, str(file))["pendingPods"] == {"all": 4, "unschedulable": 1}
        assert main(["status", "--from-file", str(file)]) == 0
        assert "4, of which 1 fit on no node" in capsys.readouterr().out

    def test_pod_beyond_reach_limit_does_not_count_as_unplaceable(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "d"
        file.write_bytes(dump(*many_reaches()))
        assert status_of(capsys, str(file))["pendingPods"] == {"all": 1, "unschedulable": 0}

    def test_marks_of_same_second_are_listed_in_order_of_plan(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        items = [mark(name, 9, 99, order=place) for name, place in (("a", 3), ("b", 1), ("c", 2))]
        file = tmp_path / "d"
        file.write_bytes(dump(*items, pod("p", "a")))
        marks = status_of(capsys, str(file))["marks"]
        assert [one["node"] for one in marks] == ["b", "c", "a"]

    def test_status_matches_plan(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "d"
        file.write_bytes(dump(*ITEMS))
        status = status_of(capsys, str(file))
        assert main(["plan", "--from-file", str(file), "-o", "json"]) == 0
        plan = orjson.loads(capsys.readouterr().out)
        assert status["removable"] == [one["node"] for one in plan["removals"]] == [C]
        assert (status["before"], status["after"]) == (plan["before"], plan["after"])
        for reason in status["reasons"]:
            carry = [
                one["node"]
                for one in plan["unremovable"]
                if reason["code"] in {found["code"] for found in one["reasons"]}
            ]
            assert reason["nodes"] == len(carry)


class TestTable:
    def test_table_shows_counts_marks_and_reasons(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["status", "--from-file", path]) == 0
        lines = re.sub(" +", " ", capsys.readouterr().out).splitlines()
        for start in (
            f"source {path}",
            "configuration built-in defaults",
            "leader unknown: a dump does not name the leader",
            "marks oldest 3h, youngest 60m",
            "all 7",
            "leaving 2",
            "being deleted 1",
            "marked longer than `deadline` 1",
            "cpu requests, cores",
            "PreferNoSchedule m-old 3h overdue",
            "being-deleted ",
        ):
            assert any(line.startswith(start) for line in lines), start

    @pytest.mark.parametrize("command", ["status", "plan"])
    def test_table_lists_empty_nodes_that_ebb_keeps_with_reason_and_price(
        self, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Some node beside it runs a pod; a released and a foreign protection are not listed."""
        config = tmp_path / "config.yaml"
        config.write_text(f"{HEAD}prices: [{{nodeSelector: {{kind: gpu}}, price: 32.77}}]\n")
        reserved, scoped, until = (
            {**PROTECTED},
            {**PROTECTED, RESERVE_ANNOTATION: ""},
            {**PROTECTED, PROTECTION_ANNOTATION: "4102444800", RESERVE_ANNOTATION: ""},
        )
        others = {SCALE_DOWN_DISABLED_ANNOTATION: "true"}
        named = {"gpu": reserved, "scoped": scoped, "until": until, "others": others, "free": {}}
        nodes = [
            node(
                name,
                metadata={"name": name, "labels": {"kind": "gpu"}, "annotations": annotations},
            )
            for name, annotations in named.items()
        ]
        file = tmp_path / "dump"
        file.write_bytes(dump(*nodes, node("busy"), pod("a", "busy")))
        asked = [command, "--from-file", str(file), "--config", str(config)]
        assert main(asked) == 0
        out = re.sub(" +", " ", capsys.readouterr().out)
        assert "Ebb keeps 3 empty nodes from scale-down, at 98.31 an hour." in out
        lines = [one for one in out.splitlines() if one.startswith(("gpu ", "scoped ", "until "))]
        assert lines[-3] == "gpu - 32.77 the node is reserved for 1 pod: 1 of 500m + 1Gi"
        assert lines[-2] == "scoped - 32.77 protected by Ebb, until it allows scale-down"
        assert re.search(r"^until \d+d 32.77 protected by Ebb, for a while after", lines[-1])
        assert main([*asked, "-o", "json"]) == 0
        kept = orjson.loads(capsys.readouterr().out)["keptEmpty"]
        assert [(one["node"], one["until"], one["price"]) for one in kept] == [
            ("gpu", None, 32.77),
            ("scoped", None, 32.77),
            ("until", 4102444800, 32.77),
        ]

    def test_table_omits_marks_when_cluster_has_none(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "d"
        file.write_bytes(dump(*ITEMS))
        assert main(["status", "--from-file", str(file)]) == 0
        out = capsys.readouterr().out
        assert re.search("^marked +0$", out, re.MULTILINE)
        assert "overdue" not in out

    def test_table_truncates_many_marks(self) -> None:
        items = [mark(f"m{number:02}", 100, 200) for number in range(23)]
        done = ebb("status", "--from-file", "-", stdin=dump(*items, node("n"), pod("p", "n")))
        assert done.returncode == 0
        assert b"\nand 3 more marked nodes; -o json lists all of them\n" in done.stdout

    def test_terminal_receives_lines_of_its_width(self, path: str) -> None:
        text = on_terminal("status", "--from-file", path, COLUMNS="70", TERM="xterm")
        lines = [line for line in text.split("\r\n") if "\x1b" not in line]
        assert max(len(line) for line in lines if path not in line) <= 70


NOW = 1_000_000


def leads(
    renewed: int | None,
    holder: str = "pod-a",
    problem: str | None = None,
    *,
    unread: bool = False,
) -> str:
    leader = Leader(
        lease="ns/l",
        holder=holder,
        renewed_seconds=renewed,
        duration_seconds=15,
        problem=problem,
        unread=unread,
    )
    cluster = Cluster.of([builders.node("n")], [])
    found = ClusterInput(cluster=cluster, config=Config(), where="w", running=Running(leader))
    shown = output.STATUS[0].text(summarize(found, NOW))
    (line,) = [line for line in shown.splitlines() if line.startswith("leader")]
    return line.removeprefix("leader").strip()


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (leads(NOW - 3), "pod-a (Lease ns/l, renewed 3 s ago)"),
        (leads(NOW - 90), "none: pod-a last renewed Lease ns/l 1 min 30 s ago"),
        (leads(None), "pod-a (Lease ns/l, never renewed)"),
        (leads(NOW, holder=""), "none (Lease ns/l has been released)"),
        (leads(None, "", "forbidden", unread=True), "unknown (Lease ns/l: forbidden)"),
        (leads(None, "", "it does not exist"), "none (Lease ns/l: it does not exist)"),
    ],
)
def test_leader_line_shows_state_of_lease(told: str, line: str) -> None:
    assert told == line


MADE = 1_700_000_000
"""Time of the old dump: 2023-11-14 22:13:20 UTC."""


@pytest.fixture
def long_ago(tmp_path: Path) -> str:
    """Return an old dump with marks of several ages, a backoff and a terminating pod."""
    beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2023-11-14T22:13:20Z"}
    apart = mark("m-new", MADE + 60, MADE + HOUR)
    alone = {"name": "alone", "annotations": {BACKOFF_ANNOTATION: f"1 {MADE + HOUR}"}}
    going = pod("going", "kept")
    going["metadata"] |= {
        "creationTimestamp": "2023-11-14T20:00:00Z",
        "deletionTimestamp": "2023-11-14T22:13:00Z",
        "deletionGracePeriodSeconds": 30,
    }
    items = [
        mark("m-old", MADE - 3 * HOUR, MADE + HOUR),
        apart,
        node("alone", metadata=alone),
        node("kept"),
        going,
    ]
    for one in items[:4]:
        one["status"] = {**one["status"], "conditions": [beat]}
    file = tmp_path / "dump.json"
    file.write_bytes(dump(*items))
    return str(file)


def test_ages_are_relative_to_time_of_dump(
    long_ago: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = status_of(capsys, long_ago)
    assert status["counts"]["markedAndOverdue"] == 0
    shown = ebb("status", "--from-file", long_ago).stdout.decode()
    assert re.search(r"PreferNoSchedule +m-old +3h +60m", shown), shown
    assert re.search(r"PreferNoSchedule +m-new +0s +60m", shown), shown
    assert "(3 h ago)" in ebb("explain", "node", "m-old", "--from-file", long_ago).stdout.decode()
    alone = ebb("explain", "node", "alone", "--from-file", long_ago).stdout.decode()
    assert re.search(r"not marked again before +2023-11-14 23:13:20 UTC \(in 1 h\)", alone), alone
    assert re.search(r"\bbackoff\b", alone), alone


def test_terminating_pod_is_not_overdue_at_time_of_dump(long_ago: str) -> None:
    said = ebb("explain", "pod", "shop/going", "--from-file", long_ago).stdout.decode()
    assert "pod-terminating" in said
    assert "pod-long-terminating" not in said


def test_pending_pods_are_those_of_namespace(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = []
    for options in ([], ["-n", "shop"], ["-n", "other"]):
        assert main(["status", "-o", "json", "--from-file", path, *options]) == 0
        counts.append(orjson.loads(capsys.readouterr().out)["pendingPods"]["all"])
    assert counts[0] == counts[1] > counts[2] == 0
