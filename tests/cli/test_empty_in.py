"""In how long nodes are expected to be empty: what plan, status and explain say of it."""

import asyncio
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from cli.__main__ import main
from cli.forms.text import emptying
from core.marks.keys import MARK_LABEL
from core.model.workload import Workload
from core.survival.left import Left
from core.survival.look import Emptying
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import KUBECONFIG
from tests.support.plan_cli import LONG, Json, dump, ebb, node, on_terminal, pod

MINUTE, HOUR = 60, 3600
ENDED = 12
AGED, BIG, EMPTY, SERVES, STAYS = (LONG.format(number) for number in range(1, 6))
ROWS = [
    f"{AGED} 37 min 8 s 14 min 15 s 1 h 4 min",
    f"{BIG} 7 min 42 s 1 min 55 s longer",
    "1 more not known",
    "",
]
"""What plan and status say of the nodes, below their headings."""


def written(unix_seconds: int) -> str:
    return f"{datetime.fromtimestamp(unix_seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def aged(found: Json, created: int, kind: str = "Job", name: str = "nightly") -> Json:
    owner = {"kind": kind, "name": name, "controller": True}
    found["metadata"] |= {"creationTimestamp": written(created), "ownerReferences": [owner]}
    return found


def over(number: int, created: int, ended: int) -> Json:
    found = aged(pod(f"over-{number}", AGED), created)
    state = {"terminated": {"finishedAt": written(ended)}}
    found["status"] = {"phase": "Succeeded", "containerStatuses": [{"state": state}]}
    return found


def items(now: int) -> Iterator[Json]:
    """A cluster of which two nodes will be empty at times that are known."""
    marked = {"name": AGED, "labels": {MARK_LABEL: "soft"}}
    yield node(AGED, metadata=marked)
    yield node(SERVES, metadata={**marked, "name": SERVES})
    yield node(BIG, metadata={**marked, "name": BIG})
    for name in (EMPTY, STAYS):
        yield node(name)
    yield aged(pod("young", AGED, "100m"), now - MINUTE)
    yield aged(pod("old", BIG, "200m"), now - 58 * MINUTE)
    yield aged(pod("web", SERVES, "100m"), now - HOUR, "ReplicaSet", "web")
    yield aged(pod("much", STAYS, "2"), now - HOUR, "ReplicaSet", "web")
    for number in range(ENDED):
        begin = now - 5 * HOUR + number * 20 * MINUTE
        yield over(number, begin, begin + (number + 1) * 5 * MINUTE)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A dump that is a day old: its times count from when it was made."""
    file = tmp_path / "dump.json"
    then = int(time.time()) - 24 * HOUR
    beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": written(then)}
    found = list(items(then))
    for one in found:
        if one["kind"] == "Node":
            one["status"]["conditions"] = [beat]
    file.write_bytes(dump(*found))
    return str(file)


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "-o", "json"]) == 0
    return orjson.loads(capsys.readouterr().out)


def table(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main([*arguments]) == 0
    return re.sub(" +", " ", capsys.readouterr().out).splitlines()


BARE = "bare pods in a, "
YOUNG = {"early": 855, "expected": 2228, "late": 3875}
OLD = {"early": 115, "expected": 462, "late": None}
NOTHING = {"early": 0, "expected": 0, "late": 0}


class TestPlan:
    def test_json_has_it_for_every_node_that_can_go(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = asked(capsys, "plan", "--from-file", path)
        found = {one["node"]: one["emptyIn"] for one in plan["removals"]}
        assert found == {AGED: YOUNG, BIG: OLD, SERVES: None}

    def test_the_table_names_those_of_which_it_is_known(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lines = table(capsys, "plan", "--from-file", path)
        at = lines.index("node that can go empty in early late")
        assert lines[at + 1 : at + 5] == ROWS

    def test_where_nothing_is_known_the_plan_is_what_it_was(
        self, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        every = orjson.loads(Path(path).read_bytes())["items"]
        file = tmp_path / "running"
        file.write_bytes(dump(*(one for one in every if "containerStatuses" not in one["status"])))
        with_them = table(capsys, "plan", "--from-file", path)
        without = table(capsys, "plan", "--from-file", str(file))
        assert not any("empty in" in line for line in without)
        at = with_them.index("node that can go empty in early late")
        assert with_them[:at] + with_them[at + 5 :] == without
        plan = asked(capsys, "plan", "--from-file", str(file))
        assert [one["emptyIn"] for one in plan["removals"]] == [None, None, None]


class TestStatus:
    def test_marked_nodes(self, path: str, capsys: pytest.CaptureFixture[str]) -> None:
        found = asked(capsys, "status", "--from-file", path)
        assert {one["node"]: one["emptyIn"] for one in found["marks"]} == {
            AGED: YOUNG,
            BIG: OLD,
            SERVES: None,
        }
        lines = table(capsys, "status", "--from-file", path)
        at = lines.index("marked node empty in early late")
        assert lines[at + 1 : at + 5] == ROWS


class TestExplain:
    @pytest.mark.parametrize(
        ("name", "line", "left", "unknown"),
        [
            (AGED, "37 min 8 s (early 14 min 15 s, late 1 h 4 min), if no pod comes", YOUNG, []),
            (BIG, "7 min 42 s (early 1 min 55 s, late longer), if no pod comes", OLD, []),
            (EMPTY, "now: nothing is left that keeps it", NOTHING, []),
            (
                SERVES,
                "not known: too few pods are seen to have ended like those of ReplicaSet shop/web",
                None,
                [{"namespace": "shop", "ownerKind": "ReplicaSet", "ownerName": "web"}],
            ),
        ],
    )
    def test_a_node(
        self,
        name: str,
        line: str,
        left: Json | None,
        unknown: list[Json],
        path: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        assert f"empty in {line}" in table(capsys, "explain", "node", name, "--from-file", path)
        found = asked(capsys, "explain", "node", name, "--from-file", path)
        assert (found["emptyIn"], found["notKnownOf"]) == (left, unknown)


@pytest.mark.parametrize("command", [["plan"], ["status"], ["explain", "node", AGED]])
def test_a_terminal_of_80_columns_breaks_no_name_and_no_time(
    command: list[str], path: str
) -> None:
    shown = on_terminal(*command, "--from-file", path, COLUMNS="80", TERM="xterm")
    lines = [line for line in shown.split("\r\n") if path not in line]
    assert any("37 min 8 s" in line for line in lines)
    assert any(AGED in line for line in lines)
    plain = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in lines]
    wide = [line for line in plain if len(line) > 80]
    assert not [line for line in wide if "min" in line or "early" in line]


async def test_a_live_cluster_is_asked_for_nothing_more(tmp_path: Path) -> None:
    """Finished pods stand in the list of pods: there is no other call, and nothing is written."""
    now = int(time.time())
    async with FakeApi() as api:
        for one in items(now):
            resource = {"Node": "nodes", "Pod": "pods"}[one["kind"]]
            api.put(resource, one)
        file = tmp_path / "kubeconfig"
        file.write_text(KUBECONFIG.format(url=api.url))
        done = await asyncio.to_thread(ebb, "status", "-o", "json", KUBECONFIG=str(file))
        assert (done.returncode, done.stderr) == (0, b"")
        assert {call.verb for call in api.calls} == {"list", "get"}
        assert len([call for call in api.calls if call.resource == "pods"]) == 1
    marks = {one["node"]: one["emptyIn"] for one in orjson.loads(done.stdout)["marks"]}
    assert marks[SERVES] is None
    for name, seconds in YOUNG.items():
        assert marks[AGED][name] == pytest.approx(seconds, abs=MINUTE), "the clock has gone on"


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (Emptying(Left(None, None, None)), "longer (early longer, late longer), if no pod comes"),
        (
            Emptying(None, tuple(Workload("a", "", "") for _ in range(5))),
            f"not known: too few pods are seen to have ended like those of {3 * BARE}and 2 more",
        ),
    ],
)
def test_what_cannot_be_told(found: Emptying, line: str) -> None:
    assert emptying.sentence(found) == line


def test_who_asks_for_no_node_is_told_nothing() -> None:
    assert emptying.table("node", {}) is None
    assert emptying.table("node", {"a": Emptying(None), "b": Emptying(Left(0, 0, 0))}) is None
