"""`ebb explain node` names the pods that surge moves would not move, over a real socket."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from core.marks.mark import Details, encode_details
from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL
from tests.cli.test_source import run
from tests.support.fake_api import FakeApi
from tests.support.fake_deployments import FakeDeployments
from tests.support.fake_objects import KUBECONFIG, node_object

DETAILS = Details(since=1, deadline=2**40, owner="me", policy="p", reason="r")
SETTINGS = """\
apiVersion: kube-ebb.io/v1alpha1
kind: EbbConfiguration
surge: {{mode: {mode}}}
"""


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as made:
        node = node_object("n1", labels={MARK_LABEL: "PreferNoSchedule"})
        node["metadata"]["annotations"] = {DETAILS_ANNOTATION: encode_details(DETAILS)}
        made.put("nodes", node)
        made.put("nodes", node_object("n2"))
        deployments = FakeDeployments(made)
        deployments.create("web", "n1")
        deployments.create("db", "n1", strategy={"type": "Recreate"})
        yield made


async def explained(
    api: FakeApi, folder: Path, capsys: pytest.CaptureFixture[str], *more: str, mode: str
) -> tuple[str, str]:
    kubeconfig, config = folder / "kubeconfig", folder / "config.yaml"
    kubeconfig.write_text(KUBECONFIG.format(url=api.url))
    config.write_text(SETTINGS.format(mode=mode))
    options = ("--kubeconfig", str(kubeconfig), "--config", str(config), *more)
    status, out, err = await run(capsys, "explain", "node", "n1", *options)
    assert status == 0
    return out, err


async def test_explain_names_pods_that_surge_moves_do_not_move(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = await explained(api, tmp_path, capsys, "-o", "json", mode="enabled")
    found: Any = orjson.loads(out)
    assert found["surgeMoves"] == 1
    assert [(one["code"], one["pod"]) for one in found["notMoved"]] == [
        ("surge-strategy", "shop/db-1-2")
    ]
    out, _ = await explained(api, tmp_path, capsys, mode="enabled")
    assert "would move 1 pod of this node" in out
    assert "pods not moved because" in out


async def test_explain_tells_no_surge_moves_of_empty_node(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.objects["pods"].clear()
    out, _ = await explained(api, tmp_path, capsys, mode="enabled")
    assert "none: the node is empty" in out
    assert "surge moves" not in out


async def test_explain_reads_no_deployments_when_surge_is_disabled(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = await explained(api, tmp_path, capsys, mode="disabled")
    assert "surge" not in out
    assert "deployments" not in {call.resource for call in api.calls}


async def test_explain_continues_when_deployments_may_not_be_read(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.denied.add("deployments")
    out, err = await explained(api, tmp_path, capsys, mode="enabled")
    assert "surge" not in out
    assert "cannot read deployments, so surge moves are unknown" in err
