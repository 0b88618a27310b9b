"""The schemas in docs/schema/ describe exactly what `-o json` prints.

Each field of a schema is required, and no other field is allowed, so output and schema cannot
differ in either direction.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator

from cli.__main__ import main
from controller.leader_report import Report
from core.config.settings import API_VERSION, KIND
from core.policies.all import POLICIES
from tests.cli.test_clusters import given
from tests.cli.test_plan_emptying import deployment, owned
from tests.cli.test_running import World, world
from tests.cli.test_status import mark
from tests.platforms import PLATFORMS
from tests.platforms import dump as platform_dump
from tests.support.json_documents import DOCUMENTS, FOLDER, text
from tests.support.plan_cli import dump, node, pod

__all__ = ["given", "world"]

SETTINGS: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "headroom": 0,
    "thresholds": {"cpu": "100%", "memory": "100%"},
    "surge": {"mode": "enabled"},
    "pauseUntil": "9999-12-31T23:59:59Z",
    "pools": [
        {
            "name": "all",
            "selector": {"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]},
        }
    ],
    "prices": [{"nodeSelector": {"size": "large"}, "price": 2}],
}
GPU = "nvidia.com/gpu"


def with_gpu(name: str) -> dict[str, Any]:
    found = node(name, metadata={"name": name, "labels": {"size": "large"}})
    found["status"]["allocatable"][GPU] = "2"
    return found


ITEMS = [
    *map(node, "abc"),
    with_gpu("d"),
    mark("m", 1, 2),
    mark("h", 1, 2**40, no_schedule=True),
    owned("w", "a", "ReplicaSet", "web-1"),
    owned("s", "b", "StatefulSet", "db"),
    pod("claimed", "c", volumes=[{"persistentVolumeClaim": {"claimName": "d"}}]),
    pod("big", "c", "3"),
    pod("waits", None),
    *deployment(),
]


def test_schemas_are_up_to_date() -> None:
    assert sorted(file.stem for file in FOLDER.iterdir()) == sorted(DOCUMENTS)
    for name in DOCUMENTS:
        assert (FOLDER / f"{name}.json").read_text("utf-8") == text(name), "make fix"


def check(name: str, document: Any) -> None:
    schema = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(document)


def test_schema_rejects_unknown_and_missing_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = printed(capsys, "plan", "--from-file", written(tmp_path, dump(*ITEMS)))
    schema = json.loads((FOLDER / "plan.json").read_text("utf-8"))
    validator = Draft202012Validator(schema)
    assert validator.is_valid(document)
    assert not validator.is_valid({**document, "more": 1})
    document["headline"].pop("mode")
    assert not validator.is_valid(document)


def written(folder: Path, raw: bytes) -> str:
    file = folder / "dump.json"
    file.write_bytes(raw)
    return str(file)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


class TestDumps:
    @pytest.mark.parametrize("policy", POLICIES)
    def test_plan_and_status_follow_schema(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str
    ) -> None:
        config = tmp_path / "ebb.yaml"
        config.write_text(yaml.safe_dump({**SETTINGS, "policy": policy}))
        given = "--from-file", written(tmp_path, dump(*ITEMS)), "--config", str(config)
        check("plan", printed(capsys, "plan", *given))
        check("status", printed(capsys, "status", *given))
        for name in "am":
            check("explain-node", printed(capsys, "explain", "node", name, *given))
        for name in "shop/w", "shop/waits", "shop/claimed":
            check("explain-pod", printed(capsys, "explain", "pod", name, *given))
        check("explain-node-list", printed(capsys, "explain", "node/a", "node/m", *given))
        check("explain-pod-list", printed(capsys, "explain", "pod", "shop/w", "shop/s", *given))

    @pytest.mark.parametrize("platform", PLATFORMS)
    def test_platforms_follow_schema(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], platform: str
    ) -> None:
        given = "--from-file", written(tmp_path, platform_dump(platform))
        check("plan", printed(capsys, "plan", *given, "--bound"))
        check("status", printed(capsys, "status", *given))


class TestLive:
    async def test_answers_with_leader_follow_schema(self, world: World) -> None:
        world.leads()
        status = await world.json("status")
        assert status["leaderReport"] == msgspec.to_builtins(msgspec.convert(
            status["leaderReport"], Report
        ))  # fmt: skip
        check("status", status)
        check("plan", await world.json("plan"))
        check("explain-node", await world.json("explain", "node", "n0"))
        check("explain-pod", await world.json("explain", "pod", "default/p"))

    @pytest.mark.parametrize("command", ["plan", "status"])
    async def test_several_clusters_follow_schema(
        self, given: list[str], capsys: pytest.CaptureFixture[str], command: str
    ) -> None:
        contexts = "--context", "eu", "--context", "gone"
        arguments = command, *given, *contexts, "-o", "json"
        assert await asyncio.to_thread(main, arguments) == 2
        check(f"{command}-list", json.loads(capsys.readouterr().out))
