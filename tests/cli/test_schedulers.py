"""The configured schedulers apply to a live cluster and to a dump alike."""

import asyncio
from pathlib import Path

import orjson
import pytest

from cli.__main__ import main
from core.eligibility.unplaceable import POD_UNSUPPORTED
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import KUBECONFIG
from tests.support.plan_cli import Json, dump, node, pod

ITEMS = [
    node("a"),
    node("b"),
    pod("p", "a", "1"),
    pod("q", "b", schedulerName="bin-packing"),
]
HEAD = "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\nheadroom: 0\n"


@pytest.fixture(params=["dump", "live"])
def where(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


COMMANDS = (["plan"], ["status"], ["explain", "node", "b"], ["explain", "pod", "shop/q"])


async def asked(
    folder: Path, where: str, schedulers: str, capsys: pytest.CaptureFixture[str]
) -> list[Json]:
    """Return the answers of the commands, in order."""
    config, file = folder / "ebb.yaml", folder / "seen"
    config.write_text(f"{HEAD}schedulers: {schedulers}\n")
    found: list[Json] = []
    async with FakeApi() as api:
        for one in ITEMS:
            api.put({"Node": "nodes", "Pod": "pods"}[one["kind"]], one)
        live = where == "live"
        file.write_bytes(KUBECONFIG.format(url=api.url).encode() if live else dump(*ITEMS))
        option = "--kubeconfig" if live else "--from-file"
        options = option, str(file), "--config", str(config), "-o", "json"
        for command in COMMANDS:
            assert await asyncio.to_thread(main, [*command, *options]) == 0
            told, problems = capsys.readouterr()
            assert problems == ""
            found.append(orjson.loads(told))
    return found


@pytest.mark.parametrize(
    ("schedulers", "holds"),
    [("[default-scheduler]", True), ("[default-scheduler, bin-packing]", False)],
)
async def test_pod_of_configured_scheduler_does_not_block_removal(
    tmp_path: Path, where: str, schedulers: str, holds: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, status, *explained = await asked(tmp_path, where, schedulers, capsys)
    assert [one["node"] for one in plan["removals"]] == (["a"] if holds else ["b"])
    assert status["removable"] == [one["node"] for one in plan["removals"]]
    for found in explained:
        assert (POD_UNSUPPORTED.code in str(found)) is holds
