"""Recorded calls of a real kube-scheduler, sent to the HTTP server; see messages/README.md."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from core.config.programs import ExtenderConfig
from core.marks.mark import Mark
from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from extender import wire
from extender.app import make_app
from extender.metrics import Metrics
from extender.view import View
from kube.decode.kinds import NODES
from serving import http
from tests.support.builders import node
from tests.support.clock import FakeClock

MESSAGES = {path.stem.removeprefix("recorded_"): path.read_bytes()
            for path in (Path(__file__).parent / "messages").glob("recorded_*.json")}  # fmt: skip
NAMES = {
    "names": {f"node-{number}" for number in range(10)},
    "nodes": {f"node-{number}" for number in range(3)},
}
MARKED = {
    "node-0": (Mark.PREFER_NO_SCHEDULE, 0),
    "node-1": (Mark.NO_SCHEDULE, 0),
    "node-2": (Mark.PREFER_NO_SCHEDULE, 1),
}
"""Mark and expected score of each marked node."""


@pytest.fixture
async def url() -> AsyncIterator[str]:
    view = View(ExtenderConfig(score="marks"), TAINT_KEY)
    marks = {name: {MARK_LABEL: mark} for name, (mark, _) in MARKED.items()}
    view.replaced(NODES, [node(name, labels=one) for name, one in marks.items()])
    view.freshness.alive(NODES, 0.0)
    app = make_app(view, FakeClock(), Metrics(), http.Health())
    server = http.Server(app, "127.0.0.1:0")
    await server.start()
    yield f"http://127.0.0.1:{server.port}/prioritize"
    await server.stop()


def test_every_recording_is_tested() -> None:
    assert set(MESSAGES) == set(NAMES)


@pytest.mark.parametrize("message", NAMES)
async def test_recorded_call_is_scored(url: str, message: str) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=MESSAGES[message]) as response,
    ):
        assert response.status == 200
        found = wire.scores(await response.read())
    scores = {name: MARKED[name][1] if name in MARKED else 10 for name in NAMES[message]}
    assert found == scores
