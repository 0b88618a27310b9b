"""`ebb plan` and `ebb status` of several clusters: one row or one item for each."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from cli.__main__ import main
from cli.answers import ClusterPart
from cli.formats.text.status import table_of_several
from cli.input.live import CLUSTERS_AT_ONCE
from cli.terminal import Table
from tests.platforms.objects import autoscaler_status
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import node_object, pod_object

CONTEXTS = "eu", "us", "gone"
"""Two clusters that answer, and one that does not."""
BUDGETS = {"maxMarked": "100%", "maxNewMarks": "100%"}


@pytest.fixture
async def given(tmp_path: Path) -> AsyncIterator[list[str]]:
    async with FakeApi() as eu, FakeApi() as us:
        for nodes, api in (2, eu), (3, us):
            for number in range(nodes):
                api.put("nodes", node_object(f"n{number}"))
            api.put("pods", pod_object("p", node="n0"))
            api.put("configmaps", autoscaler_status({}))  # else plan and status warn
        urls = dict(zip(CONTEXTS, (eu.url, us.url, "http://127.0.0.1:1"), strict=True))
        yield ["--kubeconfig", written(tmp_path, urls), "--request-timeout", "5s"]


def written(folder: Path, urls: dict[str, str]) -> str:
    """Write a kubeconfig with a context for each URL; return its path."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url}} for name, url in urls.items()],
        "users": [{"name": "me", "user": {"token": "a-token"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in urls],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return str(file)


async def run(
    capsys: pytest.CaptureFixture[str], contexts: tuple[str, ...], *arguments: str
) -> tuple[int, str, str]:
    options = [option for name in contexts for option in ("--context", name)]
    status = await asyncio.to_thread(main, [*arguments, *options])
    return status, *capsys.readouterr()


LONG = "arn:aws:eks:eu-central-1:123456789012:cluster/production-{}"


@pytest.mark.parametrize("width", [60, 80, 200])
def test_rows_of_clusters_fit_terminal(width: int) -> None:
    row = "0.1.0", "enforce", "1,200", "37", "4", "12,345.60", "no replica leads (and 1 more)"
    parts: list[ClusterPart[tuple[str, ...]]] = [
        ClusterPart(LONG.format(1), row),
        ClusterPart(LONG.format(2), None, "API server: cannot connect to host 127.0.0.1:6443"),
    ]
    table, *_ = table_of_several(parts, width)
    assert isinstance(table, Table)
    lines = list(table.lines(width))
    assert max(map(len, lines)) <= width
    for part in parts:
        assert any(part.context in line for line in lines)


class TestSeveral:
    async def test_status_has_row_for_each_cluster(
        self, given: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        status, out, err = await run(capsys, CONTEXTS, "status", *given)
        assert status == 2
        headings, *rows = [line.split() for line in out.splitlines()]
        assert " ".join(headings) == (
            "context version mode nodes removable marked saves a month problem"
        )
        assert [row[:7] for row in rows] == [
            ["eu", "-", "observe", "2", "1", "0", "-"],
            ["us", "-", "observe", "3", "2", "0", "-"],
            ["gone", "-", "-", "-", "-", "-", "-"],
        ]
        assert "API server" in out.splitlines()[3]
        assert err.startswith("gone: ebb: ")

    async def test_plan_has_rows_of_all_clusters(
        self, given: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        status, out, _ = await run(capsys, CONTEXTS, "plan", *given, "-o", "csv")
        assert status == 2
        rows = list(csv.DictReader(io.StringIO(out)))
        assert [(row["context"], row["node"]) for row in rows if row["node"]] == [
            ("eu", "n1"), ("eu", "n0"), ("us", "n2"), ("us", "n1"), ("us", "n0"),
        ]  # fmt: skip
        assert [row["context"] for row in rows if row["error"]] == ["gone"]
        _, out, _ = await run(capsys, CONTEXTS, "plan", *given, "-o", "wide")
        assert out.splitlines()[0].split()[:3] == ["node", "context", "order"]
        assert " gone " in out.splitlines()[-1]
        assert "not read: " in out.splitlines()[-1]
        _, out, _ = await run(capsys, CONTEXTS, "plan", *given, "-o", "name")
        assert out == "eu node/n1\nus node/n2\nus node/n1\n"

    @pytest.mark.parametrize(("command", "kind"), [("plan", "Plan"), ("status", "Status")])
    @pytest.mark.parametrize("form", ["json", "yaml"])
    async def test_documents_are_items_of_list(
        self, given: list[str], capsys: pytest.CaptureFixture[str], command: str, kind: str,
        form: str,
    ) -> None:  # fmt: skip
        status, out, _ = await run(capsys, CONTEXTS, command, *given, "-o", form)
        found = json.loads(out) if form == "json" else yaml.safe_load(out)
        assert (status, found["kind"]) == (2, "ClusterList")
        items = found["items"]
        assert [one["context"] for one in items] == list(CONTEXTS)
        assert [one["answer"] and one["answer"]["kind"] for one in items] == [kind, kind, None]
        assert [bool(one["error"]) for one in items] == [False, False, True]
        assert items[0]["answer"]["cluster"]["context"] == "eu"

    async def test_exit_code_is_0_when_all_clusters_are_read(
        self, given: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        for options, expected in ([], 0), (["--exit-code"], 1):
            arguments = "plan", *given, "-o", "name", *options
            assert (await run(capsys, ("eu", "us", "eu"), *arguments))[0] == expected

    async def test_unknown_context_is_an_error_of_its_row(
        self, given: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        status, out, err = await run(capsys, ("eu", "nowhere"), "status", *given)
        assert status == 2
        assert out.splitlines()[1].startswith("eu ")
        assert err.startswith("nowhere: ebb: ")

    async def test_more_clusters_are_read_than_at_once(
        self, given: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        _, out, _ = await run(capsys, ("eu",), "plan", *given, "-o", "json")
        names = tuple(f"c{number}" for number in range(3 * CLUSTERS_AT_ONCE))
        file = written(tmp_path, dict.fromkeys(names, json.loads(out)["cluster"]["server"]))
        status, out, _ = await run(capsys, names, "plan", "--kubeconfig", file, "-o", "name")
        assert (status, out) == (0, "".join(f"{name} node/n1\n" for name in names))

    async def test_table_of_plan_is_for_one_cluster(
        self, given: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        status, _, err = await run(capsys, ("eu", "us"), "plan", *given)
        assert status == 2
        assert err.splitlines()[-1] == (
            "ebb plan: error: -o table: not allowed with several --context; allowed: wide, json, "
            "yaml, csv, name"
        )

    async def test_one_context_has_the_ordinary_output(
        self, given: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        status, out, _ = await run(capsys, ("us",), "plan", *given)
        assert (status, out.splitlines()[0]) == (
            0,
            "2 of 3 nodes can be removed (67 %): 8.0 cores (67 %), 16Gi memory (67 %).",
        )
