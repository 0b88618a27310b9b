"""`ebb plan` and `ebb explain` where CapacityBuffers ask for room: what people are told."""

from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from cli.forms.text.plan import BUFFERS_SHOWN
from tests.core.test_buffers import TEMPLATE, written
from tests.support.plan_cli import dump, node, plan_of, pod

NODES = [node(f"n{number}") for number in range(3)]
LIKE = {**TEMPLATE, "template": {"spec": pod("x", None, "3")["spec"]}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a dump of a cluster, and one of its buffers beside it."""
    (tmp_path / "cluster.json").write_bytes(dump(*NODES, pod("a", "n0", "2")))
    (tmp_path / "buffers.json").write_bytes(
        dump(
            written({"replicas": 5}, name="large"),
            written({"replicas": 1}, name="small"),
            written({"conditions": []}, name="waits"),
            LIKE,
        )
    )
    return tmp_path


def from_files(folder: Path, *names: str) -> list[str]:
    return [part for name in names for part in ("--from-file", str(folder / name))]


def test_what_buffers_keep_is_in_the_plan_of_a_dump(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = plan_of(capsys, *from_files(folder, "cluster.json"))
    assert alone["buffers"] == []
    assert len(alone["removals"]) == 2
    plan = plan_of(capsys, *from_files(folder, "cluster.json", "buffers.json"))
    assert plan["buffers"] == [
        {"buffer": "shop/large", "pods": 5, "allowed": 1, "kept": 1, "fault": ""},
        {"buffer": "shop/small", "pods": 1, "allowed": 1, "kept": 1, "fault": ""},
        {"buffer": "shop/waits", "pods": 1 + 2, "allowed": 0, "kept": 0,
         "fault": "no autoscaler has accepted it"},
    ]  # fmt: skip
    assert len(plan["removals"]) == 0


def test_people_see_each_buffer_and_why_not_all_is_kept(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = from_files(folder, "cluster.json", "buffers.json")
    assert main(["plan", *files]) == 0
    told = capsys.readouterr().out
    assert "room for CapacityBuffer" in told
    assert "more than the share that is kept for buffers (reserve.buffers)" in told
    assert "no autoscaler has accepted it" in told
    assert "CapacityBuffer shop/" in told
    assert main(["explain", "node", "n1", *files]) == 0
    assert "CapacityBuffer shop/" in capsys.readouterr().out


def test_many_buffers_are_counted_not_listed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Any] = [written(name=f"b{n:02}") for n in range(BUFFERS_SHOWN + 3)]
    (folder / "buffers.json").write_bytes(dump(*made, LIKE))
    assert main(["plan", *from_files(folder, "cluster.json", "buffers.json")]) == 0
    told = capsys.readouterr().out
    assert "3 more" in told
    assert f"b{BUFFERS_SHOWN:02}" not in told
