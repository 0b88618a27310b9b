"""The page follows a live cluster: a fake API server on a real socket, and its watches."""

import asyncio
import io
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import orjson
import pytest

from cli.input import live
from cli.input.cluster_input import Installation
from cli.page.feed import Feed, Intervals
from cli.page.hub import Hub
from cli.page.worker import Worker
from controller.leader_report import REPORT_PORT_NAME, Decision, LeaderFacts, Report, Savings
from controller.names import LEASE
from core.config.settings import API_VERSION, KIND, Config, Mode
from core.config.surge import SurgeConfig, SurgeMode
from kube.cluster_kinds import CLUSTER_KINDS, SURGE_KINDS
from kube.credentials import RUN_AFTER_SECONDS_MIN
from kube.decode.kinds import BUDGETS, NODES
from kube.target import NAMESPACE, Overrides
from runtime.clock import SystemClock
from tests.e2e.pki import Authority
from tests.support.clock import START, FakeClock
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import node_object, pod_object
from tests.support.forwards import reporting
from tests.support.plan_cli import started
from tests.support.users import Plugin, kubeconfig, tls_for_users

FAST = Intervals(check=0.02, plan=0.0, leader=0.02)
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"
WAIT_SECONDS_MAX = 30


class World:
    """A page that follows the cluster of a fake API server."""

    def __init__(self, api: FakeApi, kubeconfig: str) -> None:
        self.api, self.hub, self.worker = api, Hub(), Worker()
        self.clock = FakeClock(START)
        """Clock by which credentials expire."""
        self._connecting = live.Connecting(kubeconfig, None, Overrides(), self.clock)
        self._task: asyncio.Task[None] | None = None

    @property
    def kubeconfig(self) -> str:
        return self._connecting.kubeconfig or ""

    async def start(self, config: Config | None = None, intervals: Intervals = FAST) -> None:
        installation = Installation(config=config)
        reading = await live.read_lists(self._connecting, installation, io.StringIO())
        feed = Feed(reading, SystemClock(), intervals)
        self._task = asyncio.create_task(feed.run(self.hub, self.worker))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self.worker.stop()

    async def until(self, reached: Callable[[Any], bool]) -> Any:
        """Return the first state that meets the condition."""
        with self.hub.following() as messages:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while (state := orjson.loads(self.hub.state)) is None or not reached(state):
                    await messages.get()
        return state

    async def warned(self, reached: Callable[[list[str]], bool]) -> list[str]:
        """Return the first warnings about the connection that meet the condition."""
        news = await self.connected(lambda news: reached(news["banners"]))
        found: list[str] = news["banners"]
        return found

    async def connected(self, reached: Callable[[Any], bool]) -> Any:
        """Return the first message about the connection that meets the condition."""
        with self.hub.following() as messages:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while not reached(news := orjson.loads(await messages.get() or b"")):
                    pass
        return news

    def leads(self, pod: str) -> None:
        """Let a replica lead, whose report has one decision."""
        holder = f"{pod}_1"
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
        self.api.put_document(LEASE_PATH, {"metadata": {"name": LEASE}, "spec": spec})
        facts = LeaderFacts(
            leading_since_seconds=1,
            reconciled_at_seconds=2,
            decisions=[
                Decision(at_seconds=2, kind="Node", name="n0", action=f"Decided by {pod}",
                         reason="because", written=True)
            ],
            savings=Savings(expected_node_seconds=7200, expected_cost=2,
                            estimated_node_seconds=3600, estimated_cost=1),
        )  # fmt: skip
        configuration = {"apiVersion": API_VERSION, "kind": KIND}
        report = Report(identity=holder, leader=holder, leading=True, facts=facts,
                        configuration=configuration)  # fmt: skip
        answer = reporting(msgspec.json.encode(report))
        self.api.serve(f"{NAMESPACE}/{pod}", REPORT_PORT_NAME, 8082, answer)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with FakeApi() as api:
        fill(api)
        made = World(api, kubeconfig(tmp_path, api, {"token": "a-token"}))
        yield made
        await made.stop()


def fill(api: FakeApi) -> None:
    for number in range(2):
        api.put("nodes", node_object(f"n{number}"))
    api.put("pods", pod_object("p", node="n0"))


def names(state: Any) -> list[str]:
    return [one["name"] for one in state["nodes"]]


def has_decided(pod: str, state: Any) -> bool:
    decisions = (state["leader"] or {}).get("decisions", ())
    return [one["action"] for one in decisions] == [f"Decided by {pod}"]


async def test_new_and_deleted_nodes_appear(world: World) -> None:
    await world.start()
    await world.api.watched(NODES.resource)
    world.api.put("nodes", node_object("n2"))
    assert names(await world.until(lambda state: len(state["nodes"]) == 3))[-1] == "n2"
    world.api.remove("nodes", "n0")
    assert names(await world.until(lambda state: len(state["nodes"]) == 2)) == ["n1", "n2"]


@pytest.mark.parametrize("mode", SurgeMode)
async def test_each_kind_is_listed_once(world: World, mode: SurgeMode) -> None:
    await world.start(Config(surge=SurgeConfig(mode=mode)))
    await world.api.watched(NODES.resource)
    world.api.put("pods", pod_object("q", node="n0"))
    world.api.remove("pods", "default/p")
    await world.until(lambda state: [n["pods"] for n in state["nodes"]] == [1, 0])
    world.api.put("pods", pod_object("p", node="n1"))
    await world.until(lambda state: [n["pods"] for n in state["nodes"]] == [1, 1])
    listed = Counter(call.resource for call in world.api.calls if call.verb == "list")
    kinds = (*CLUSTER_KINDS, *(SURGE_KINDS if mode is SurgeMode.ENABLED else ()))
    served = {kind.resource for kind in kinds if kind.path in world.api.served}
    assert {resource: listed[resource] for resource in served} == dict.fromkeys(served, 1)


async def test_banner_says_that_no_replica_leads_until_one_does(world: World) -> None:
    await world.start()
    state = await world.until(lambda state: bool(state["banners"]))
    assert any("No replica of ebb-controller leads" in one for one in state["banners"])
    world.leads("a")
    state = await world.until(lambda state: bool((state["leader"] or {}).get("decisions")))
    assert not any("No replica" in one for one in state["banners"])
    assert state["leader"]["decisions"][0]["action"] == "Decided by a"
    assert any("1.0 node-hours" in text for _, text in state["leader"]["savings"])


async def test_banner_says_that_leader_is_unknown_when_lease_is_forbidden(world: World) -> None:
    world.api.denied.add(LEASE_PATH)
    await world.start()
    state = await world.until(lambda state: bool(state["banners"]))
    assert any("it is unknown whether a replica" in one for one in state["banners"])
    assert not any("No replica" in one for one in state["banners"])


async def test_page_keeps_report_and_names_last_answer_when_api_server_does_not_answer(
    world: World,
) -> None:
    world.leads("a")
    await world.start(intervals=FAST._replace(unheard=0.5))
    await world.until(partial(has_decided, "a"))
    await world.api.watched(NODES.resource)
    known = await world.connected(lambda news: news["heard"] is not None and not news["stale"])
    world.api.fail_next("get", 500, times=100_000)
    news = await world.connected(lambda news: bool(news["stale"]))
    assert news["heard"] >= known["heard"]
    (warning,) = news["banners"]
    assert warning.startswith(
        "What is shown may be out of date: the API server has not answered since"
    )
    state = orjson.loads(world.hub.state)
    assert has_decided("a", state)
    assert state["mode"] == Mode.OBSERVE
    assert not any("No replica" in one or "unknown whether" in one for one in state["banners"])
    assert sum("cannot read" in one for one in state["banners"]) <= 1
    world.api.heal()
    news = await world.connected(lambda news: not news["stale"])
    assert news["banners"] == []


async def test_page_follows_change_of_leader(world: World) -> None:
    world.leads("a")
    await world.start()
    for pod in ("a", "b"):
        world.leads(pod)
        await world.until(partial(has_decided, pod))


async def test_missing_right_for_one_kind_is_banner_and_others_are_followed(world: World) -> None:
    world.api.denied.add(BUDGETS.resource)
    await world.start()
    await world.api.watched(NODES.resource)
    world.api.put("nodes", node_object("n2"))
    state = await world.until(lambda state: len(state["nodes"]) == 3)
    assert any("cannot read poddisruptionbudgets" in one for one in state["banners"])


async def test_interrupted_watch_is_banner_until_it_resumes(world: World) -> None:
    await world.start()
    await world.api.watched(NODES.resource)
    world.api.fail_next("list", 500, times=40)
    world.api.cut()
    (warning,) = await world.warned(bool)
    assert warning.startswith("What is shown may be out of date: the watch of ")


@pytest.mark.parametrize("how", ["files", "plugin"])
async def test_watches_resume_when_client_certificate_was_renewed(
    tmp_path: Path, how: str
) -> None:
    authority, plugin, api = Authority(tmp_path), Plugin(tmp_path), FakeApi()
    await api.start(tls=tls_for_users(authority))
    fill(api)
    signed = authority.sign("user", "first")
    plugin.answers_certificate(signed)
    files = {"client-certificate": str(signed.certificate), "client-key": str(signed.key)}
    user = {"plugin": plugin.user, "files": files}[how]
    world = World(api, kubeconfig(tmp_path, api, user, authority.certificate))
    try:
        await world.start()
        await api.watched(NODES.resource)
        plugin.answers_certificate(authority.sign("user", "second"))
        world.clock.seconds += RUN_AFTER_SECONDS_MIN
        api.unauthorized.add("first")
        api.cut()
        api.put("nodes", node_object("n2"))
        await world.until(lambda state: len(state["nodes"]) == 3)
        assert await world.warned(lambda banners: not banners) == []
        assert {call.user for call in api.calls} == {"first", "second"}
    finally:
        await world.stop()
        await api.stop()


async def test_plans_continue_when_process_was_killed(world: World) -> None:
    await world.start()
    await world.api.watched(NODES.resource)
    (pid,) = world.worker.pids
    os.kill(pid, signal.SIGKILL)
    world.api.put("nodes", node_object("n2"))
    await world.until(lambda state: len(state["nodes"]) == 3)


async def test_time_in_state_counts_from_change(world: World) -> None:
    await world.start()
    await world.api.watched(NODES.resource)
    world.api.put("nodes", {**node_object("n1"), "spec": {"unschedulable": True}})
    await world.until(
        lambda state: {n["name"]: n["state"] for n in state["nodes"]}["n1"] == "kept"
    )
    detail = orjson.loads(await world.worker.detail("n1"))
    assert detail["since"]["least"]


async def test_command_follows_cluster_and_ends_with_0_at_interrupt(world: World) -> None:
    running = started("page", "--kubeconfig", world.kubeconfig, "--no-browser")
    assert running.stdout
    url = (await asyncio.to_thread(running.stdout.readline)).decode().strip()
    async with (
        aiohttp.ClientSession() as session,
        session.get(url.replace("?", "events?")) as news,
    ):
        await world.api.watched(NODES.resource)
        world.api.put("nodes", node_object("n2"))
        while await nodes_of(session, url) != ["n0", "n1", "n2"]:
            await news.content.readuntil(b"\n\n")
        running.send_signal(signal.SIGINT)
        _, errors = await asyncio.to_thread(running.communicate, timeout=60)
    assert running.returncode == 0
    assert b"Traceback" not in errors


async def nodes_of(session: aiohttp.ClientSession, url: str) -> list[str]:
    async with session.get(url.replace("?", "state?")) as response:
        state = await response.json()
    return names(state) if state else []
