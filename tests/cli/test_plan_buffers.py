"""`ebb plan`, `explain` and `status` in a cluster with CapacityBuffers."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from cli.__main__ import main
from cli.formats.text.buffers import BUFFERS_SHOWN
from core.marks.wellknown import BUFFER_OURS_LABEL
from tests.core.engine.test_buffers import TEMPLATE, written
from tests.support.plan_cli import dump, node, plan_of, pod

NODES = [node(f"n{number}") for number in range(3)]
LIKE = {**TEMPLATE, "template": {"spec": pod("x", None, "3")["spec"]}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a dump of a cluster and a dump of its buffers."""
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


def test_plan_reserves_nodes_for_capacitybuffers_of_dump(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = plan_of(capsys, *from_files(folder, "cluster.json"))
    assert alone["buffers"] == []
    assert len(alone["removals"]) == 2
    plan = plan_of(capsys, *from_files(folder, "cluster.json", "buffers.json"))
    assert plan["buffers"] == [
        {"buffer": "shop/large", "requested": 5, "allowed": 1, "reserved": 1, "fault": ""},
        {"buffer": "shop/small", "requested": 1, "allowed": 1, "reserved": 1, "fault": ""},
        {"buffer": "shop/waits", "requested": 1 + 2, "allowed": 0, "reserved": 0,
         "fault": "no autoscaler has accepted the buffer"},
    ]  # fmt: skip
    assert len(plan["removals"]) == 0


def test_plan_and_explain_show_each_buffer_and_why_it_is_not_fully_reserved(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = from_files(folder, "cluster.json", "buffers.json")
    assert main(["plan", *files]) == 0
    told = capsys.readouterr().out
    assert re.search(
        "^CapacityBuffer +pods requested +allowed +reserved +why not all$", told, re.MULTILINE
    )
    assert "Ebb reserves at most half of the capacity for all CapacityBuffers" in told
    assert "no autoscaler has accepted the buffer" in told
    assert "CapacityBuffer shop/" in told
    assert main(["explain", "node", "n1", *files]) == 0
    assert "CapacityBuffer shop/" in capsys.readouterr().out


def test_plan_counts_further_buffers_when_there_are_many(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Any] = [written(name=f"b{n:02}") for n in range(BUFFERS_SHOWN + 3)]
    (folder / "buffers.json").write_bytes(dump(*made, LIKE))
    assert main(["plan", *from_files(folder, "cluster.json", "buffers.json")]) == 0
    told = capsys.readouterr().out
    assert "3 more" in told
    assert f"b{BUFFERS_SHOWN:02}" not in told


def own(namespace: str, name: str, spec: int, **status: Any) -> Any:
    labels = {BUFFER_OURS_LABEL: ""}
    asked = {"podTemplateRef": {"name": "t"}, "replicas": spec}
    return written(status, asked, namespace=namespace, name=name, labels=labels)


@pytest.fixture
def published(folder: Path) -> list[str]:
    """Return the options that read the cluster, its buffers, and buffers with Ebb's label."""
    (folder / "own.json").write_bytes(
        dump(
            own("ebb-system", "ebb-reserve-a", 4, replicas=4),
            own("ebb-system", "ebb-reserve-b", 4, replicas=3),
            own("ebb-system", "ebb-reserve-c", 4, conditions=[]),
            own("shop", "ebb-reserve-d", 9, replicas=9),
        )
    )
    return from_files(folder, "cluster.json", "buffers.json", "own.json")


def test_status_lists_buffers_published_by_ebb_apart_from_other_buffers(
    published: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(capsys, *published)
    assert len(plan["buffers"]) == 3, "for what Ebb itself asks it keeps no room"
    assert main(["status", *published, "-o", "json"]) == 0
    status = orjson.loads(capsys.readouterr().out)
    assert status["buffers"] == plan["buffers"]
    told = [(one["buffer"], one["pods"], one["accepted"]) for one in status["published"]]
    assert told == [
        ("ebb-system/ebb-reserve-a", 4, 4),
        ("ebb-system/ebb-reserve-b", 4, 3),
        ("ebb-system/ebb-reserve-c", 4, 0),
        ("shop/ebb-reserve-d", 9, 0),
    ]
    assert [one["fault"] for one in status["published"]] == [
        "",
        "the autoscaler has no capacity for more pods",
        "no autoscaler has accepted the buffer",
        "the buffer has Ebb's label, but is not in Ebb's namespace ebb-system",
    ]


def test_status_accepts_buffers_only_in_namespace_of_ebb(
    published: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", *published, "-o", "json", "--ebb-namespace", "shop"]) == 0
    status = orjson.loads(capsys.readouterr().out)
    assert [one["accepted"] for one in status["published"]] == [0, 0, 0, 9]


def test_status_table_shows_buffers_and_whether_they_are_accepted(
    published: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", *published]) == 0
    told = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "CapacityBuffer pods requested allowed reserved why not all" in told
    assert "shop/small 1 1 1" in told
    assert "published by Ebb pods accepted pods why not all" in told
    assert "ebb-system/ebb-reserve-b 4 3 the autoscaler has no capacity for more pods" in told
    assert main(["status", *from_files(folder, "cluster.json")]) == 0
    assert "CapacityBuffer" not in capsys.readouterr().out
