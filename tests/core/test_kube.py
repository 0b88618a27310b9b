"""Lists, watches and patches over real sockets, and every way in which they go wrong."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.aio import client as package
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

from core.edge import tls
from core.edge.kube.client import CALL_TRIES_MAX, NODES, PAGE_OBJECTS, PODS, USER_AGENT, Client
from core.edge.kube.lines import lines
from core.edge.kube.watch import (
    BACKOFF_SECONDS_MAX,
    BACKOFF_SECONDS_MIN,
    RELIST_AFTER_FAILURES,
    RETRY_AFTER_SECONDS_MAX,
    follow,
)
from core.errors import ConflictError, InvalidInputError, UnavailableError
from core.marks import MARK_LABEL
from core.model import Node, Pod, Taint
from tests.support.fake_api import KUBECONFIG, FakeApi, node_object, pod_object

SILENCE_SECONDS = 0.05


class Seen:
    """A handler that keeps a view and every call, and can be waited for."""

    def __init__(self) -> None:
        self.view: dict[str, Node | Pod] = {}
        self.calls: list[tuple[str, str]] = []
        self.lives = 0
        self._news = asyncio.Event()

    def replaced(self, objects: list[Any]) -> None:
        self.view = {self._key(found): found for found in objects}
        assert len(self.view) == len(objects), "an object was listed twice"
        self._note("replaced", str(len(objects)))

    def changed(self, obj: Any) -> None:
        self.view[self._key(obj)] = obj
        self._note("changed", self._key(obj))

    def deleted(self, key: str) -> None:
        self.view.pop(key, None)
        self._note("deleted", key)

    def alive(self) -> None:
        self.lives += 1
        self._news.set()

    def refused(self, reason: str) -> None:
        self._note("refused", reason)

    def restarted(self, reason: str) -> None:
        self._note("restarted", reason)

    def count(self, kind: str, what: str | None = None) -> int:
        return sum(k == kind and what in (None, w) for k, w in self.calls)

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not reached():
                self._news.clear()
                await self._news.wait()

    def _key(self, obj: Node | Pod) -> str:
        return obj.name if isinstance(obj, Node) else obj.key

    def _note(self, kind: str, what: str) -> None:
        self.calls.append((kind, what))
        self._news.set()


class Waits:
    """A sleep that notes how long, and returns."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


class Bench:
    """One fake API server, one client, and one follower of one resource."""

    def __init__(self, api: FakeApi, client: Client, resource: str, waits: Waits) -> None:
        self.api, self.client, self.resource, self.waits = api, client, resource, waits
        self.seen = Seen()

    async def settled(self) -> None:
        """Wait until the view is what the server holds, and it is being watched."""
        await self.api.watched(self.resource)
        await self.seen.until(lambda: set(self.seen.view) == set(self.api.objects[self.resource]))

    def put_pods(self, *names: str) -> None:
        for name in names:
            self.api.put(PODS, pod_object(name))


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


def settings_of(api: FakeApi) -> package.Configuration:
    return package.Configuration(host=api.url)


@asynccontextmanager
async def opened(
    api: FakeApi, *, silence_seconds_max: float = 20, waits: Waits | None = None
) -> AsyncIterator[Client]:
    made = Client(
        package.ApiClient(settings_of(api)),
        sleep=waits or Waits(),
        silence_seconds_max=silence_seconds_max,
    )
    async with made as client:
        yield client


@asynccontextmanager
async def following(
    api: FakeApi,
    resource: str = PODS,
    *,
    label_selector: str | None = None,
    silence_seconds_max: float = 20,
) -> AsyncIterator[Bench]:
    waits = Waits()
    async with opened(api, silence_seconds_max=silence_seconds_max) as client:
        bench = Bench(api, client, resource, waits)
        following = follow(
            client,
            resource,
            bench.seen,
            label_selector=label_selector,
            sleep=waits,
            jitter=lambda: 0.0,
        )
        task = asyncio.create_task(following)
        try:
            yield bench
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


# A quiet life.


async def test_lists_then_tells_of_every_change(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.settled()
        api.put(PODS, pod_object("b", node="n"))
        api.put(PODS, pod_object("a", node="n"))
        api.remove(PODS, "default/b")
        await bench.seen.until(lambda: bench.seen.count("deleted") == 1)
        assert bench.seen.calls == [
            ("replaced", "1"),
            ("changed", "default/b"),
            ("changed", "default/a"),
            ("deleted", "default/b"),
        ]
        found = bench.seen.view["default/a"]
        assert isinstance(found, Pod)
        assert found.node == "n"
        assert bench.waits.seconds == []


async def test_a_long_list_comes_in_pages_each_object_once(api: FakeApi) -> None:
    for number in range(2 * PAGE_OBJECTS + 1):
        api.put(PODS, pod_object(f"p{number}"))
    async with following(api) as bench:
        await bench.settled()
        assert bench.seen.calls == [("replaced", str(2 * PAGE_OBJECTS + 1))]
        assert [call.query["limit"] for call in api.calls[:3]] == [str(PAGE_OBJECTS)] * 3
        assert api.count("list") == 3


async def test_a_finished_pod_is_gone(api: FakeApi) -> None:
    api.put(PODS, pod_object("done", phase="Succeeded"))
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.seen.until(lambda: set(bench.seen.view) == {"default/a"})
        await api.watched(PODS)
        api.put(PODS, pod_object("a", phase="Failed"))
        await bench.seen.until(lambda: not bench.seen.view)
        assert bench.seen.calls[-1] == ("deleted", "default/a")


async def test_a_node_that_loses_the_label_is_gone(api: FakeApi) -> None:
    api.put(NODES, node_object("plain"))
    api.put(NODES, node_object("marked", labels={MARK_LABEL: "soft"}))
    async with following(api, NODES, label_selector=MARK_LABEL) as bench:
        await bench.seen.until(lambda: set(bench.seen.view) == {"marked"})
        await api.watched(NODES)
        api.put(NODES, node_object("plain", labels={MARK_LABEL: "soft"}))
        api.put(NODES, node_object("marked"))
        await bench.seen.until(lambda: set(bench.seen.view) == {"plain"})


async def test_bookmarks_move_the_version_and_say_alive(api: FakeApi) -> None:
    async with following(api) as bench:
        await bench.settled()
        api.put(NODES, node_object("other"))
        before = bench.seen.lives
        api.bookmark()
        await bench.seen.until(lambda: bench.seen.lives > before)
        api.end()
        await api.until(lambda: api.count("watch") == 2)
        assert api.calls[-1].query["resourceVersion"] == str(api.version)
        assert api.calls[-1].query["allowWatchBookmarks"].lower() == "true"
        assert bench.waits.seconds == []
        assert bench.seen.count("restarted") == 0


async def test_what_is_sent(api: FakeApi) -> None:
    async with following(api) as bench:
        await bench.settled()
        for call in api.calls:
            assert call.headers["User-Agent"] == USER_AGENT
            assert call.headers["Accept-Encoding"] == "identity"


# Each fault, after which the view is right again and no object is lost or told twice.


async def test_events_during_a_fault_are_not_lost_nor_told_twice(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.settled()
        api.put(PODS, pod_object("b"))
        await bench.settled()
        api.cut()
        bench.put_pods("c")
        await bench.settled()
        assert bench.seen.calls == [
            ("replaced", "1"),
            ("changed", "default/b"),
            ("restarted", "error"),
            ("changed", "default/c"),
        ]
        assert api.count("list") == 1, "a cut connection needs no new list"
        assert bench.waits.seconds == [BACKOFF_SECONDS_MIN]


async def test_gone_in_the_stream_lists_anew_at_once(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.settled()
        api.put(PODS, pod_object("b"))
        await bench.settled()
        api.error(410)
        api.remove(PODS, "default/a")
        await api.until(lambda: api.count("watch") == 2)
        await bench.settled()
        assert bench.seen.calls[-2:] == [("restarted", "expired"), ("replaced", "1")]
        assert bench.waits.seconds == []


async def test_gone_as_an_answer_lists_anew_and_then_waits(api: FakeApi) -> None:
    api.fail_next("watch", 410, times=3)
    async with following(api) as bench:
        await bench.settled()
        assert api.count("list") == 4
        assert bench.waits.seconds == [2 * BACKOFF_SECONDS_MIN, 4 * BACKOFF_SECONDS_MIN]


async def test_a_page_token_that_expired_begins_the_list_anew(api: FakeApi) -> None:
    for number in range(PAGE_OBJECTS + 1):
        api.put(PODS, pod_object(f"p{number}"))
    api.pass_next("list")
    api.fail_next("list", 410)
    async with following(api) as bench:
        await bench.settled()
        assert "continue" not in api.calls[2].query
        assert bench.seen.count("replaced") == 1


@pytest.mark.parametrize(
    ("asked", "waited"),
    [
        ("7", 7.0),
        ("0", BACKOFF_SECONDS_MIN),
        ("86400", RETRY_AFTER_SECONDS_MAX),
        ("soon", BACKOFF_SECONDS_MIN),
        (None, BACKOFF_SECONDS_MIN),
    ],
)
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_throttling_is_obeyed_within_bounds(
    api: FakeApi, verb: str, asked: str | None, waited: float
) -> None:
    api.put(PODS, pod_object("a"))
    api.fail_next(verb, 429, headers={"Retry-After": asked} if asked else None)
    async with following(api) as bench:
        await bench.settled()
        assert bench.waits.seconds == [waited]
        assert bench.seen.count("restarted", "throttled") == 1


async def test_server_faults_back_off_to_a_bound_and_start_low_again(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    api.fail_next("list", 500, times=7)
    async with following(api) as bench:
        await bench.settled()
        assert bench.waits.seconds == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, BACKOFF_SECONDS_MAX]
        bench.put_pods("b")
        await bench.settled()
        bench.waits.seconds.clear()
        api.fail_next("watch", 503)
        api.cut()
        await api.until(lambda: api.count("watch") == 3)
        assert bench.waits.seconds == [0.8, 1.6]


async def test_a_watch_that_keeps_failing_gives_its_version_up(api: FakeApi) -> None:
    api.fail_next("watch", 504, times=RELIST_AFTER_FAILURES)
    async with following(api) as bench:
        await bench.settled()
        assert api.count("list") == 2
        assert bench.seen.count("replaced") == 2


async def test_a_server_that_ends_watches_at_once_is_not_asked_without_pause(
    api: FakeApi,
) -> None:
    async with following(api) as bench:
        for turn in range(1, 4):
            await api.until(functools.partial(api.has_come, "watch", turn))
            await api.watched(PODS)
            api.end()
        await api.until(lambda: api.count("watch") == 4)
        assert bench.waits.seconds == [BACKOFF_SECONDS_MIN] * 3
        assert bench.seen.count("restarted") == 0


async def test_half_open_silence_is_noticed(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    async with following(api, silence_seconds_max=SILENCE_SECONDS) as bench:
        await api.watched(PODS)
        api.hang()
        bench.put_pods("b")
        await bench.settled()
        assert bench.seen.count("restarted", "timeout") >= 1
        assert bench.seen.count("changed", "default/b") == 1
        assert api.count("list") == 1


@pytest.mark.parametrize("end", ["end", "cut"])
async def test_a_line_cut_short_is_read_again_whole(api: FakeApi, end: str) -> None:
    async with following(api) as bench:
        await bench.settled()
        api.raw(b'{"type":"ADDED","object":{"metadata":{"name":"ha')
        getattr(api, end)()
        bench.put_pods("half")
        await bench.settled()
        assert bench.seen.calls == [
            ("replaced", "0"),
            ("restarted", "error"),
            ("changed", "default/half"),
        ]


@pytest.mark.parametrize(
    "line",
    [b"<html>\n", b"{}\n", b'{"type":1,"object":{}}\n', b"\xff\xfe\n", b"[]\n"],
)
async def test_a_line_that_is_no_event_begins_the_watch_anew(api: FakeApi, line: bytes) -> None:
    async with following(api) as bench:
        await bench.settled()
        api.raw(line)
        api.hang()  # the follower leaves this one by itself
        await api.watched(PODS)
        bench.put_pods("a")
        await bench.settled()
        assert bench.seen.count("restarted", "error") == 1


async def test_an_error_event_that_is_not_gone_keeps_the_version(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.settled()
        api.error(500)
        bench.put_pods("b")
        await bench.settled()
        assert api.count("list") == 1
        assert bench.waits.seconds == [BACKOFF_SECONDS_MIN]


async def test_a_server_that_restarts_is_found_again(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.settled()
        await api.stop()
        bench.put_pods("b")
        await bench.seen.until(lambda: bench.seen.count("restarted", "error") >= 2)
        await api.start(api.port)
        await bench.settled()
        assert bench.seen.count("changed", "default/b") == 1


BAD = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "abc"}}}]}}


async def test_an_object_that_cannot_be_read_does_not_stop_the_stream(api: FakeApi) -> None:
    api.put(PODS, {**pod_object("listed"), **BAD})
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.seen.until(lambda: bench.seen.count("refused") == 1)
        await api.watched(PODS)
        bench.put_pods("b")
        api.put(PODS, {**pod_object("b"), **BAD})
        bench.put_pods("c")
        await bench.seen.until(lambda: "default/c" in bench.seen.view)
        assert set(bench.seen.view) == {"default/a", "default/c"}
        refused = [what for kind, what in bench.seen.calls if kind == "refused"]
        assert len(refused) == 2
        assert "default/listed" in refused[0]
        assert "default/b" in refused[1]
        kinds = [kind for kind, _ in bench.seen.calls]
        assert kinds[:2] == ["replaced", "refused"], "told after the list, or it would be lost"


async def test_an_object_of_megabytes_is_read(api: FakeApi) -> None:
    async with following(api) as bench:
        await bench.settled()
        large = pod_object("large")
        large["metadata"]["annotations"] = {"blob": "x" * 4 * 1024**2}
        api.put(PODS, large)
        bench.put_pods("after")
        await bench.settled()
        assert bench.seen.count("restarted") == 0


# Lines, from any chunks.


class Chunks:
    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks: Iterator[bytes] = iter([chunk for chunk in chunks if chunk])

    async def readany(self) -> bytes:
        return next(self._chunks, b"")


async def read_lines(chunks: list[bytes], bytes_max: int = 100) -> list[bytes]:
    found = lines(Chunks(chunks), silence_seconds_max=20, bytes_max=bytes_max)
    return [line async for line in found]


@given(st.lists(st.text("ab\r\n", max_size=8).map(str.encode), max_size=12))
def test_any_cutting_into_chunks_gives_the_same_lines(chunks: list[bytes]) -> None:
    whole = b"".join(chunks) + b"\n"
    expected = [line for line in whole.split(b"\n") if line.strip()]
    assert asyncio.run(read_lines([*chunks, b"\n"])) == expected


async def test_a_line_over_the_bound_is_refused() -> None:
    assert await read_lines([b"x" * 60, b"x" * 40, b"\n"]) == [b"x" * 100]
    with pytest.raises(UnavailableError, match="over 100 bytes"):
        await read_lines([b"x" * 60, b"x" * 41])


# Calls.


async def test_patch_returns_the_node_as_stored(api: FakeApi) -> None:
    api.put(NODES, node_object("n", labels={"old": "1"}))
    async with opened(api) as client:
        patch = {"metadata": {"labels": {MARK_LABEL: "soft", "old": None}}}
        node, version = await client.patch_node("n", patch)
        assert node.labels == {MARK_LABEL: "soft"}
        assert await client.get_node("n") == (node, version)
        assert version == str(api.version)


async def test_taints_are_replaced_on_the_version_that_was_read_only(api: FakeApi) -> None:
    stored = node_object("n")
    stored["spec"]["taints"] = [
        {"key": "theirs", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    ]
    api.put(NODES, stored)
    async with opened(api) as client:
        node, version = await client.get_node("n")
        wanted = (*node.taints, Taint("ours", "1", "PreferNoSchedule"))
        changed, _ = await client.replace_taints("n", wanted, version)
        assert changed.taints == wanted
        theirs = api.objects[NODES]["n"]["spec"]["taints"][0]
        assert theirs["timeAdded"] == "2026-01-01T00:00:00Z"
        with pytest.raises(ConflictError):
            await client.replace_taints("n", (), version)


async def test_a_throttled_call_is_made_again_within_bounds(api: FakeApi) -> None:
    api.put(NODES, node_object("n"))
    waits = Waits()
    async with opened(api, waits=waits) as client:
        api.fail_next("patch", 429, headers={"Retry-After": "3"})
        api.fail_next("patch", 429, headers={"Retry-After": "3600"})
        await client.patch_node("n", {"metadata": {"labels": {"a": "b"}}})
        assert waits.seconds == [3, 10]
        api.fail_next("get", 429, times=CALL_TRIES_MAX)
        with pytest.raises(UnavailableError, match="answered 429"):
            await client.get_node("n")
        assert api.count("get") == CALL_TRIES_MAX


@pytest.mark.parametrize("status", [401, 403, 404, 409, 500, 503])
async def test_a_refusal_is_one_line_with_status_and_reason(api: FakeApi, status: int) -> None:
    async with opened(api) as client:
        api.fail_next("patch", status)
        with pytest.raises(UnavailableError) as caught:
            await client.patch_node("n", {})
        assert str(caught.value) == f"API server answered {status}: the fake API says {status}"
        assert isinstance(caught.value, ConflictError) == (status == 409)


async def test_a_proxys_page_is_cut_to_one_line(api: FakeApi) -> None:
    async with opened(api) as client:
        api.answer_next("get", b"<html>\n<h1>Bad\n gateway</h1>" + b"x" * 5000, status=502)
        with pytest.raises(UnavailableError) as caught:
            await client.get_node("n")
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b'{"metadata":{"name":"n"}}'])
async def test_an_answer_that_is_no_node_is_a_fault_with_a_name(api: FakeApi, body: bytes) -> None:
    async with opened(api) as client:
        api.answer_next("get", body)
        with pytest.raises(UnavailableError, match="not a Node"):
            await client.get_node("n")


async def test_nobody_listening_is_a_fault_with_a_name(api: FakeApi) -> None:
    async with opened(api) as client:
        await api.stop()
        with pytest.raises(UnavailableError, match=r"API server: ClientConnector"):
            await client.get_node("n")
        await api.start(api.port)


# Configuration and authentication, which the official package does.


async def test_a_kubeconfig_is_read_and_its_token_sent(api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG.format(url=api.url))
    api.put(NODES, node_object("n"))
    async with await Client.connect(str(file)) as client:
        await client.get_node("n")
    assert api.calls[-1].headers["Authorization"].lower() == "bearer a-token"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "words",
        "a: [",
        "\ufeff\x00",
        "apiVersion: v1\nkind: Config\n",
        KUBECONFIG.replace("current-context: it", "current-context: other"),
        KUBECONFIG.replace("server:", 'certificate-authority-data: "aGVsbG8=", server:').replace(
            "{url}", "https://127.0.0.1:1"
        ),
    ],
)
async def test_a_bad_kubeconfig_is_one_line_with_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text.replace("{{", "{").replace("}}", "}"))
    with pytest.raises(InvalidInputError) as caught:
        await Client.connect(str(file))
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


async def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="absent: no such file"):
        await Client.connect(str(tmp_path / "absent"))


async def test_a_token_that_is_renewed_is_read_again(tmp_path: Path) -> None:
    """The package re-reads the projected token; TLS, because in a pod it insists on it."""
    pair = tls.make_pair(["127.0.0.1"], int(time.time()))
    (tmp_path / "ca").write_bytes(pair.ca)
    (tmp_path / "token").write_text("first")
    api = FakeApi()
    await api.start(tls=tls.serving(pair))
    api.put(NODES, node_object("n"))
    loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        token_filename=str(tmp_path / "token"),
        cert_filename=str(tmp_path / "ca"),
        environ={"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)},
    )
    loader._token_refresh_period *= 0
    settings = package.Configuration()
    loader.load_and_set(settings)  # type: ignore[no-untyped-call]
    async with Client(package.ApiClient(settings)) as client:
        await client.get_node("n")
        (tmp_path / "token").write_text("second")
        await client.get_node("n")
    await api.stop()
    sent = [call.headers["Authorization"].lower() for call in api.calls]
    assert sent == ["bearer first", "bearer second"]
