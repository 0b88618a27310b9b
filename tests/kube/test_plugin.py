"""Exec plugins of a kubeconfig, when credentials expire while the program runs."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import UnavailableError
from kube.client import Client
from kube.credentials import EARLY_SECONDS, RUN_AFTER_SECONDS_MIN
from kube.decode import kinds
from kube.stores.objects import nodes
from kube.watch import watch_objects
from tests.e2e.pki import Authority
from tests.support.clock import START, FakeClock
from tests.support.fake_api import NODES, FakeApi
from tests.support.fake_objects import node_object
from tests.support.following import Seen
from tests.support.users import Plugin, tls_for_users

ROOT = Path(__file__).parents[2]
ENDS = "2027-01-15T08:10:00Z"
ENDS_SECONDS = START + 600


def certificate(name: str) -> dict[str, str]:
    return {"clientCertificateData": name, "clientKeyData": name}


class TestPlugin:
    """A server with one Node, a plugin and a clock; *token_of_call* returns its token."""

    @pytest.fixture(autouse=True)
    async def made(self, tmp_path: Path) -> Any:
        self.plugin, self.clock = Plugin(tmp_path), FakeClock(START)
        async with FakeApi() as self.api:
            self.api.put(NODES, node_object("n"))
            yield

    async def connected(self) -> Client:
        return await Client.connect(self.plugin.kubeconfig(self.api), None, self.clock)

    async def token_of_call(self, client: Client) -> str:
        await nodes(client).get("n")
        return self.api.calls[-1].headers["Authorization"].removeprefix("Bearer ")

    async def test_plugin_runs_again_before_its_token_expires(self) -> None:
        self.plugin.answers(token="first", expirationTimestamp=ENDS)
        async with await self.connected() as client:
            self.plugin.answers(token="second")
            self.clock.seconds = ENDS_SECONDS - EARLY_SECONDS - 1
            assert await self.token_of_call(client) == "first"
            self.clock.seconds += 1
            assert await self.token_of_call(client) == "second"
            self.clock.seconds += 10**6
            assert await self.token_of_call(client) == "second"
        assert self.plugin.runs == 2

    async def test_plugin_runs_again_after_401(self) -> None:
        self.plugin.answers(token="first")
        async with await self.connected() as client:
            self.plugin.answers(token="second")
            self.clock.seconds += RUN_AFTER_SECONDS_MIN
            self.api.fail_next("get", 401)
            with pytest.raises(UnavailableError, match="401"):
                await nodes(client).get("n")
            assert await self.token_of_call(client) == "second"
            assert await self.token_of_call(client) == "second"
        assert self.plugin.runs == 2

    async def test_plugin_does_not_run_again_when_admission_denies(self) -> None:
        self.plugin.answers(token="first")
        words = "nodes \"n\" is forbidden: ValidatingAdmissionPolicy 'keep' denied request: no"
        async with await self.connected() as client:
            self.clock.seconds += RUN_AFTER_SECONDS_MIN
            self.api.answer_next("get", json.dumps({"message": words}).encode(), status=401)
            with pytest.raises(UnavailableError, match="401"):
                await nodes(client).get("n")
            assert await self.token_of_call(client) == "first"
        assert self.plugin.runs == 1

    async def test_plugin_runs_at_most_once_per_interval(self) -> None:
        past = "2020-01-01T00:00:00Z"
        self.plugin.answers(token="first", expirationTimestamp=past)
        async with await self.connected() as client:
            for runs in (1, 2, 3):
                for _ in range(3):
                    self.api.fail_next("get", 401)
                    with pytest.raises(UnavailableError, match="401"):
                        await nodes(client).get("n")
                assert self.plugin.runs == runs
                self.clock.seconds += RUN_AFTER_SECONDS_MIN

    async def test_previous_token_is_used_while_plugin_fails(self) -> None:
        self.plugin.answers(token="first", expirationTimestamp=ENDS)
        async with await self.connected() as client:
            (self.plugin.folder / "answer").unlink()
            self.clock.seconds = ENDS_SECONDS - EARLY_SECONDS
            with pytest.raises(UnavailableError, match=r"^plugin .*: exit code 3: "):
                await nodes(client).get("n")
            assert await self.token_of_call(client) == "first"
            self.plugin.answers(token="second")
            self.clock.seconds += RUN_AFTER_SECONDS_MIN
            assert await self.token_of_call(client) == "second"

    async def test_concurrent_calls_share_one_plugin_run_when_one_is_cancelled(
        self,
    ) -> None:
        self.plugin.answers(token="first", expirationTimestamp=ENDS)
        async with await self.connected() as client:
            answer = self.plugin.folder / "answer"
            self.plugin.answers(token="second")
            second = answer.read_text()
            answer.unlink()
            os.mkfifo(answer)
            self.clock.seconds = ENDS_SECONDS
            calls = [asyncio.create_task(nodes(client).get("n")) for _ in range(5)]
            # The pipe is open once the plugin reads it, so the plugin runs.
            pipe = await asyncio.to_thread(answer.open, "w")
            calls[0].cancel()
            await asyncio.wait(calls[:1])
            pipe.write(second)
            pipe.close()
            await asyncio.gather(*calls[1:])
            assert await self.token_of_call(client) == "second"
        assert calls[0].cancelled()
        assert {call.headers["Authorization"] for call in self.api.calls} == {"Bearer second"}
        assert self.plugin.runs == 2

    async def test_plugin_with_unusable_certificate_is_reported(self) -> None:
        self.plugin.answers(token="first", expirationTimestamp=ENDS)
        async with await self.connected() as client:
            self.clock.seconds = ENDS_SECONDS
            self.plugin.answers(**certificate("not PEM"))
            with pytest.raises(UnavailableError, match=r"client certificate that cannot be used$"):
                await nodes(client).get("n")


async def test_new_certificate_of_plugin_is_used_for_new_connections(tmp_path: Path) -> None:
    authority, plugin, clock = Authority(tmp_path), Plugin(tmp_path), FakeClock(START)
    api = FakeApi()
    await api.start(tls=tls_for_users(authority))
    api.put(NODES, node_object("n"))
    try:
        plugin.answers_certificate(authority.sign("first", "first"), expirationTimestamp=ENDS)
        file = plugin.kubeconfig(api, authority.certificate)
        async with await Client.connect(file, None, clock) as client:
            seen = Seen(kinds.NODES)
            watching = asyncio.create_task(watch_objects(client, kinds.NODES, seen))
            await api.watched(NODES)
            plugin.answers_certificate(authority.sign("second", "second"))
            clock.seconds = ENDS_SECONDS
            await nodes(client).get("n")
            assert api.calls[-1].user == "second"
            assert api.streams, "the watch with the first certificate stays open"
            watching.cancel()
            await asyncio.wait({watching})
        assert {call.user for call in api.calls[:-1]} == {"first"}
    finally:
        await api.stop()


SEVERAL = """
import asyncio, sys
from runtime import program
from core.model.errors import InvalidInputError

async def meet():
    raise InvalidInputError("plugin p", "it fails")

async def serve(start):
    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(meet())

sys.exit(program.run("ebb-webhook", "", serve, []))
"""


def test_program_exits_with_code_2_and_one_line_when_several_tasks_fail() -> None:
    command = [sys.executable, "-c", SEVERAL]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (2, "ebb-webhook: plugin p: it fails\n")
