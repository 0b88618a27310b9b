"""With -w, an answer about a live cluster is printed again whenever it changes."""

import asyncio
import io
import signal
from pathlib import Path

import pytest

from cli.input import live
from cli.input.cluster_input import ClusterInput, Installation
from cli.page.feed import Feed
from cli.page.printing import print_each
from core.model.errors import UnavailableError
from kube.decode.kinds import NODES
from kube.target import Overrides
from runtime.clock import SystemClock
from tests.cli.page.test_feed import FAST, WAIT_SECONDS_MAX
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import KUBECONFIG, node_object, pod_object
from tests.support.plan_cli import started


class Pipe(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)

    async def until(self, text: str) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while self.getvalue() != text:
                self.written.clear()
                await self.written.wait()


def names(cluster_input: ClusterInput) -> str:
    return "".join(f"{node.name}\n" for node in cluster_input.cluster.nodes)


async def feed_of(api: FakeApi, folder: Path) -> Feed:
    api.put("nodes", node_object("n0"))
    api.put("pods", pod_object("p", node="n0"))
    file = folder / "kubeconfig"
    file.write_text(KUBECONFIG.format(url=api.url))
    connecting = live.Connecting(str(file), None, Overrides())
    return Feed(
        await live.read_lists(connecting, Installation(), io.StringIO()), SystemClock(), FAST
    )


@pytest.mark.parametrize(("form", "between"), [("name", "\n"), ("json", ""), ("yaml", "---\n")])
async def test_changed_answer_is_printed_again(tmp_path: Path, form: str, between: str) -> None:
    async with FakeApi() as api:
        feed, pipe = await feed_of(api, tmp_path), Pipe()
        printing = asyncio.create_task(print_each(feed, names, form, pipe))
        await pipe.until("n0\n")
        await api.watched(NODES.resource)
        api.put("pods", pod_object("other", node="n0"))  # it changes no name
        api.put("nodes", node_object("n1"))
        await pipe.until(f"n0\n{between}n0\nn1\n")
        printing.cancel()
        await asyncio.wait({printing})


async def test_error_of_output_ends_printing(tmp_path: Path) -> None:
    def failing(_: ClusterInput) -> str:
        raise UnavailableError("no answer")

    class Full(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    async with FakeApi() as api:
        feed = await feed_of(api, tmp_path)
        with pytest.raises(UnavailableError):
            await print_each(feed, failing, "table", Pipe())
        with pytest.raises(BrokenPipeError):
            await print_each(feed, names, "table", Full())


async def test_command_prints_again_until_interrupt(tmp_path: Path) -> None:
    async with FakeApi() as api:
        await feed_of(api, tmp_path)
        api.put("nodes", node_object("n1"))
        given = "plan", "-w", "-o", "name", "--kubeconfig", str(tmp_path / "kubeconfig")
        running = started(*given)
        assert running.stdout
        read = running.stdout.readline
        assert await asyncio.to_thread(read) == b"node/n1\n"
        await api.watched(NODES.resource)
        api.put("nodes", node_object("n2"))
        assert [await asyncio.to_thread(read) for _ in range(2)] == [b"\n", b"node/n2\n"]
        running.send_signal(signal.SIGINT)
        _, errors = await asyncio.to_thread(running.communicate, timeout=60)
    assert running.returncode == 130
    assert b"Traceback" not in errors
