"""The configured schedulers apply to a live cluster and to a dump alike."""

import asyncio
from pathlib import Path

import orjson
import pytest

from core.eligibility.unplaceable import POD_UNSUPPORTED
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import KUBECONFIG
from tests.support.plan_cli import Json, dump, ebb, node, pod

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


async def asked(folder: Path, where: str, schedulers: str, *command: str) -> Json:
    config, file = folder / "ebb.yaml", folder / "seen"
    config.write_text(f"{HEAD}schedulers: {schedulers}\n")
    async with FakeApi() as api:
        for one in ITEMS:
            api.put({"Node": "nodes", "Pod": "pods"}[one["kind"]], one)
        live = where == "live"
        file.write_bytes(KUBECONFIG.format(url=api.url).encode() if live else dump(*ITEMS))
        option = "--kubeconfig" if live else "--from-file"
        options = option, str(file), "--config", str(config), "-o", "json"
        done = await asyncio.to_thread(ebb, *command, *options)
    assert (done.returncode, done.stderr) == (0, b"")
    found: Json = orjson.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("schedulers", "holds"),
    [("[default-scheduler]", True), ("[default-scheduler, bin-packing]", False)],
)
async def test_pod_of_configured_scheduler_does_not_block_removal(
    tmp_path: Path, where: str, schedulers: str, holds: bool
) -> None:
    plan = await asked(tmp_path, where, schedulers, "plan")
    assert [one["node"] for one in plan["removals"]] == (["a"] if holds else ["b"])
    status = await asked(tmp_path, where, schedulers, "status")
    assert status["removable"] == [one["node"] for one in plan["removals"]]
    for what in (("node", "b"), ("pod", "shop/q")):
        found = await asked(tmp_path, where, schedulers, "explain", *what)
        assert (POD_UNSUPPORTED.code in str(found)) is holds
