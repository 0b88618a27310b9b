"""Recorded reviews of a real API server, sent to the HTTP server; see messages/README.md."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from core.marks.wellknown import TAINT_KEY
from serving import http
from tests.support.admission import apply_json_patch, patch_of
from tests.support.clock import FakeClock
from webhook.app import MUTATE_PATH, make_app
from webhook.metrics import Metrics

pytestmark = pytest.mark.mutate

MESSAGES = {path.stem.removeprefix("recorded_"): path.read_bytes()
            for path in (Path(__file__).parent / "messages").glob("recorded_*.json")}  # fmt: skip
PREFER_NO_SCHEDULE = {"key": TAINT_KEY, "value": "1700000000", "effect": "PreferNoSchedule"}
BARE = {**PREFER_NO_SCHEDULE, "value": "0"}
"""The taint of a mark without details."""
NO_SCHEDULE = {**PREFER_NO_SCHEDULE, "effect": "NoSchedule"}
THEIRS = {"key": "example.org/theirs", "value": "1", "effect": "NoSchedule"}
LOST = {"key": "example.org/lost", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
NEW = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
TAINTS: dict[str, list[dict[str, Any]] | None] = {
    "create": [NEW, BARE],
    "full_update_without_taints": [PREFER_NO_SCHEDULE],
    "kubelet_status": None,
    "kubelet_update": None,
    "mark_added_foreign_taints": [THEIRS, LOST, PREFER_NO_SCHEDULE],
    "mark_dry_run": [BARE],
    "mark_becomes_no_schedule": [NO_SCHEDULE, THEIRS],
    "mark_removed": [THEIRS],
    "server_side_apply_of_taints": [LOST, PREFER_NO_SCHEDULE],
    "strategic_patch_of_taints": [THEIRS, PREFER_NO_SCHEDULE],
}
"""Taints of the Node after the patch, by recording. None: the answer has no patch."""


@pytest.fixture
async def url() -> AsyncIterator[str]:
    app = make_app(Metrics(), http.Health(), FakeClock(), TAINT_KEY)
    server = http.Server(app, "127.0.0.1:0")
    await server.start()
    yield f"http://127.0.0.1:{server.port}{MUTATE_PATH}"
    await server.stop()


async def asked(url: str, body: bytes) -> bytes:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}?timeout=2s", data=body) as response,
    ):
        assert response.status == 200
        return await response.read()


def test_every_recording_is_tested() -> None:
    assert set(MESSAGES) == set(TAINTS)


@pytest.mark.parametrize("name", TAINTS)
async def test_recorded_review_changes_only_taints(url: str, name: str) -> None:
    review = orjson.loads(MESSAGES[name])
    answer = await asked(url, MESSAGES[name])
    assert orjson.loads(answer)["response"]["uid"] == review["request"]["uid"]
    patch = patch_of(answer)
    if patch is None:
        assert TAINTS[name] is None
        return
    after = apply_json_patch(review["request"]["object"], patch)
    assert after["spec"].pop("taints") == TAINTS[name]
    review["request"]["object"]["spec"].pop("taints", None)
    assert after == review["request"]["object"], "nothing but taints has changed"


@pytest.mark.parametrize("name", TAINTS)
async def test_patched_node_is_not_patched_again(url: str, name: str) -> None:
    review = orjson.loads(MESSAGES[name])
    patch = patch_of(await asked(url, MESSAGES[name])) or []
    review["request"]["object"] = apply_json_patch(review["request"]["object"], patch)
    assert patch_of(await asked(url, orjson.dumps(review))) is None
