"""The server of `ebb page`, over a real socket, with plans from the other process."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson
import pytest

from cli.formats.page.state import PageState
from cli.page.hub import CLIENTS_MAX, Hub
from cli.page.server import BODY_BYTES_MAX, HEADERS, PageServer
from cli.page.worker import Worker
from tests.support import builders
from tests.support.page import input_of, plan_of, showcase
from tests.support.plan_cli import ITEMS, dump, started

FULL, EMPTY = "full", "empty"
NODES = [builders.node(FULL), builders.node("half"), builders.node(EMPTY)]
PODS = [builders.pod("a", FULL, 3000, 6000), builders.pod("b", "half", 1000, 2000)]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.stop()


class Client(NamedTuple):
    """A client of a server with a plan."""

    session: aiohttp.ClientSession
    server: PageServer
    hub: Hub

    @property
    def origin(self) -> str:
        return self.server.url.partition("/?")[0]

    def url(self, path: str) -> str:
        return self.server.url.replace("/?", f"/{path}{'&' if '?' in path else '?'}")

    async def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        async with self.session.get(self.url(path), headers=headers) as response:
            return response.status, await response.read()

    async def post(self, body: Any, **headers: str) -> tuple[int, bytes]:
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        headers = {"Origin": self.origin, **headers}
        async with self.session.post(self.url("what-if"), data=raw, headers=headers) as response:
            return response.status, await response.read()

    async def lines(self, **body: str) -> list[str]:
        status, raw = await self.post(body)
        assert status == 200, raw
        found: list[str] = orjson.loads(raw)["lines"]
        return found


@pytest.fixture
async def client(worker: Worker) -> AsyncIterator[Client]:
    hub = Hub()
    async with PageServer(hub, worker) as server, aiohttp.ClientSession() as session:
        await hub.publish(await worker.state(input_of(NODES, PODS)))
        yield Client(session, server, hub)


class TestAccess:
    async def test_page_has_state_and_strict_headers(self, client: Client) -> None:
        async with client.session.get(client.server.url) as response:
            assert response.status == 200
            assert {name: response.headers[name] for name in HEADERS} == HEADERS
            assert "can be removed" in await response.text()
        assert "default-src 'none'" in HEADERS["Content-Security-Policy"]
        assert "unsafe" not in HEADERS["Content-Security-Policy"]

    @pytest.mark.parametrize("path", ["", "state", "events", "node?name=full", "what-if"])
    @pytest.mark.parametrize("token", ["", "wrong", "\u00e9", "\ud800"])
    async def test_wrong_token_is_refused(self, client: Client, path: str, token: str) -> None:
        url = f"{client.origin}/{path.partition('?')[0]}"
        given = {"token": token.encode("utf-8", "replace").decode()} if token else {}
        method = "POST" if path == "what-if" else "GET"
        headers = {"Origin": client.origin}
        async with client.session.request(method, url, params=given, headers=headers) as response:
            assert response.status == 403
            assert {name: response.headers[name] for name in HEADERS} == HEADERS
            assert "can be removed" not in await response.text()

    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "evil.example:{port}"])
    async def test_foreign_host_is_refused(self, client: Client, host: str) -> None:
        port = client.origin.rpartition(":")[2]
        status, body = await client.get("state", Host=host.format(port=port))
        assert (status, body) == (403, b"the header Host does not name this server")

    @pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1"])
    async def test_foreign_origin_is_refused(self, client: Client, origin: str) -> None:
        assert (await client.get("state", Origin=origin))[0] == 403
        assert (await client.post({}, Origin=origin))[0] == 403

    async def test_post_without_origin_is_refused(self, client: Client) -> None:
        async with client.session.post(client.url("what-if"), data=b"{}") as response:
            assert response.status == 403

    async def test_unknown_path_is_refused_with_strict_headers(self, client: Client) -> None:
        async with client.session.get(client.url("etc")) as response:
            assert response.status == 404
            assert response.headers["Content-Security-Policy"]


class TestState:
    async def test_state_and_details_agree(self, client: Client) -> None:
        state = orjson.loads((await client.get("state"))[1])
        assert [one["name"] for one in state["nodes"]] == [EMPTY, FULL, "half"]
        assert state["details"] is None
        detail = orjson.loads((await client.get(f"node?name={FULL}"))[1])
        assert [one["pod"] for one in detail["pods"]] == ["d/a"]

    async def test_plan_of_other_process_is_same(self, worker: Worker) -> None:
        given = showcase()
        found = orjson.loads(await worker.state(given))
        here = PageState(plan_of(given)).document(details=False)
        assert found["nodes"] == here["nodes"]
        assert found["headline"][:2] == here["headline"][:2]

    async def test_detail_is_null_when_node_does_not_exist(self, client: Client) -> None:
        assert await client.get("node?name=none") == (200, b"null")

    async def test_events_announce_each_version(self, client: Client) -> None:
        async with client.session.get(client.url("events")) as response:
            assert response.content_type == "text/event-stream"
            known = {"version": 1, "banners": [], "heard": None, "stale": False}
            assert await _event(response) == known
            client.hub.warn(["lost"], 1000, stale=True)
            known |= {"banners": ["lost"], "heard": 1000, "stale": True}
            assert await _event(response) == known
            await client.hub.publish(b"{}")
            assert await _event(response) == {**known, "version": 2}

    async def test_slow_browser_skips_to_newest_message(self) -> None:
        hub = Hub()
        with hub.following() as messages:
            for number in range(5):
                hub.warn([str(number)])
            assert orjson.loads(messages.get_nowait() or b"")["banners"] == ["4"]
            assert messages.empty()

    async def test_too_many_browsers_are_refused(self, client: Client) -> None:
        url = client.url("events")
        responses = [await client.session.get(url) for _ in range(CLIENTS_MAX)]
        status, body = await client.get("events")
        assert (status, body) == (503, b"16 browsers, the maximum, follow this page already")
        for response in responses:
            response.close()


async def _event(response: aiohttp.ClientResponse) -> Any:
    async with asyncio.timeout(20):
        while not (line := await response.content.readline()).startswith(b"data: "):
            pass
    return orjson.loads(line.removeprefix(b"data: "))


BAD: list[Any] = [
    ({"cpu": "x"}, b"CPU threshold: 'x'; allowed: "),
    ({"memory": "0"}, b"memory threshold: '0'; allowed: "),
    ({"headroom": "-1"}, b"headroom: '-1'; allowed: a whole number from 0 to "),
    ({"headroom": "\u0661"}, b"headroom: "),
    ({"without": "none"}, b"without this node: the cluster has no node 'none'"),
    ({"other": "1"}, b"what-if: Object contains unknown field `other`"),
    (b"[" * 1000, b"what-if: "),
    (b"\xff", b"what-if: "),
]


class TestWhatIf:
    async def test_lower_threshold_keeps_more_nodes(self, client: Client) -> None:
        lines = await client.lines(cpu="20%", memory="20%", headroom="0")
        assert lines[0].startswith("None of 3 nodes can be removed.")

    async def test_pods_of_removed_node_need_room(self, client: Client) -> None:
        lines = await client.lines(without=FULL)
        assert "Other nodes have room for 1 of 1 pod of the node." in lines
        assert "of 2 nodes" in lines[0]

    async def test_plan_remains_as_it_was(self, client: Client) -> None:
        before = await client.get("state")
        await client.lines(without=EMPTY)
        assert await client.get("state") == before
        assert (await client.get(f"node?name={EMPTY}"))[1] != b"null"

    @pytest.mark.parametrize(("body", "problem"), BAD)
    async def test_bad_input_is_named(self, client: Client, body: Any, problem: bytes) -> None:
        status, answer = await client.post(body)
        assert status == 400
        assert answer.startswith(problem)

    async def test_large_body_is_refused(self, client: Client) -> None:
        assert (await client.post(b" " * (BODY_BYTES_MAX + 1)))[0] == 413

    async def test_second_what_if_at_same_time_is_refused(
        self, client: Client, worker: Worker
    ) -> None:
        (pid,) = worker.pids
        os.kill(pid, signal.SIGSTOP)  # so that the first one lasts
        try:
            asked = [asyncio.create_task(client.post({})) for _ in range(3)]
            *refused, last = asyncio.as_completed(asked, timeout=20)
            statuses = [(await one)[0] for one in refused]
        finally:
            os.kill(pid, signal.SIGCONT)
        assert statuses == [429, 429]
        assert (await last)[0] == 200


def test_command_ends_with_0_at_interrupt(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_bytes(dump(*ITEMS))
    running = started("page", "--from-file", str(file), "--no-browser")
    assert running.stdout
    assert running.stderr
    url = running.stdout.readline().decode()
    assert url.startswith("http://127.0.0.1:")
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 0
    assert b"Traceback" not in errors


def test_command_names_port_in_use(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_bytes(dump(*ITEMS))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        running = started("page", "--from-file", str(file), "--no-browser", "--port", str(port))
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 2
    assert f"ebb: --port: '127.0.0.1:{port}': address already in use".encode() in errors
