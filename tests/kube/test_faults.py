"""Faults of lists and watches: afterward the view is complete and no event comes twice."""

import functools
from collections.abc import AsyncIterator

import orjson
import pytest

from core.model.pod import Pod
from kube.client import PAGE_OBJECTS
from kube.watch import (
    BACKOFF_SECONDS_MAX,
    BACKOFF_SECONDS_MIN,
    LINE_BYTES_MAX,
    RELIST_AFTER_FAILURES,
    RETRY_AFTER_SECONDS_MAX,
    is_older,
)
from tests.support.fake_api import PODS, FakeApi
from tests.support.fake_objects import Json, pod_object
from tests.support.following import following

SILENCE_SECONDS = 0.05


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


async def test_watch_loses_and_repeats_no_event_when_connection_is_cut(api: FakeApi) -> None:
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


async def test_watch_relists_at_once_when_stream_sends_410(api: FakeApi) -> None:
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


async def test_watch_relists_at_once_when_etcd_was_restored_from_a_backup(
    api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    """A watch from the newer version would get no event until the server has reached it."""
    api.put(PODS, pod_object("a"))
    restore = api.backup()
    async with following(api) as bench:
        await bench.settled()
        bench.put_pods("b", "c")
        await bench.settled()
        before = api.version
        restore()
        await api.until(lambda: api.count("watch") == 2)
        await bench.settled()
        assert set(bench.seen.view) == {"default/a"}
        assert bench.seen.calls[-2:] == [("restarted", "restored"), ("replaced", "1")]
        (warning,) = (one for one in caplog.records if "went back" in str(vars(one)))
        assert f"went back from {before} to {before - 2}" in str(vars(warning))
        bench.put_pods("d")
        await bench.settled()
        assert set(bench.seen.view) == {"default/a", "default/d"}
        assert bench.waits.seconds == []


async def test_watch_relists_when_a_bookmark_goes_back(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.settled()
        api.version -= 1
        api.bookmark()
        await api.until(lambda: api.count("list") == 2)
        assert bench.seen.count("restarted", "restored") == 1


async def test_restore_is_logged_when_the_watch_relists_for_another_reason(
    api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    restore = api.backup()
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.settled()
        api.error(410)
        restore()
        await api.until(lambda: api.count("watch") == 2)
        await bench.settled()
        assert "went back from 101 to 100" in caplog.text


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("10", "10", False),
        ("", "10", False),
        ("10", "", False),
        ("abc", "abd", False),
    ],
)
def test_versions_are_compared_as_numbers(version: str, than: str, *, older: bool) -> None:
    assert is_older(version, than) is older


async def test_newest_version_is_requested_again_when_the_server_fails(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.settled()
        api.fail_next("probe", 503, times=2)
        api.cut()
        bench.put_pods("b")
        await bench.settled()
        assert bench.seen.count("restarted", "error") == 3
        assert api.count("list") == 1


async def test_watch_relists_with_backoff_when_answer_is_410(api: FakeApi) -> None:
    api.fail_next("watch", 410, times=3)
    async with following(api) as bench:
        await bench.settled()
        assert api.count("list") == 4
        assert bench.waits.seconds == [2 * BACKOFF_SECONDS_MIN, 4 * BACKOFF_SECONDS_MIN]


async def test_list_restarts_when_page_token_expires(api: FakeApi) -> None:
    for number in range(PAGE_OBJECTS + 1):
        api.put(PODS, pod_object(f"p{number}"))
    api.pass_next("list")
    api.fail_next("list", 410)
    async with following(api) as bench:
        await bench.settled()
        assert "continue" not in api.calls[2].query
        assert bench.seen.count("replaced") == 1


async def test_list_retries_page_when_it_is_throttled(api: FakeApi) -> None:
    for number in range(2 * PAGE_OBJECTS + 1):
        api.put(PODS, pod_object(f"p{number}"))
    api.pass_next("list")
    api.fail_next("list", 429, times=2, headers={"Retry-After": "3"})
    async with following(api) as bench:
        await bench.settled()
        assert api.count("list") == 3 + 2
        assert bench.seen.count("restarted") == 0
        assert bench.waits.seconds == [3.0, 3.0]


@pytest.mark.parametrize(
    ("retry_after", "waited"),
    [
        ("7", 7.0),
        ("0", BACKOFF_SECONDS_MIN),
        ("86400", RETRY_AFTER_SECONDS_MAX),
        ("soon", BACKOFF_SECONDS_MIN),
        (None, BACKOFF_SECONDS_MIN),
    ],
)
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_retry_after_is_obeyed_within_bounds(
    api: FakeApi, verb: str, retry_after: str | None, waited: float
) -> None:
    api.put(PODS, pod_object("a"))
    api.fail_next(verb, 429, headers={"Retry-After": retry_after} if retry_after else None)
    async with following(api) as bench:
        await bench.settled()
        assert bench.waits.seconds == [waited]
        assert bench.seen.count("restarted", "throttled") == 1


async def test_backoff_is_bounded_and_resets_after_success(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    api.fail_next("list", 500, times=7)
    async with following(api) as bench:
        await bench.settled()
        assert bench.waits.seconds[:5] == [0.8, 1.6, 3.2, 6.4, 12.8]
        assert bench.waits.seconds[5:] == [BACKOFF_SECONDS_MAX] * 2
        bench.put_pods("b")
        await bench.settled()
        bench.waits.seconds.clear()
        api.fail_next("watch", 503)
        api.cut()
        await api.until(lambda: api.count("watch") == 3)
        assert bench.waits.seconds == [0.8, 1.6]


async def test_backoff_resets_when_watch_is_established_without_events(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    api.fail_next("watch", 500, times=3)
    async with following(api) as bench:
        await bench.seen.until(lambda: bench.seen.lives == 2)  # the list, and the quiet watch
        api.cut()
        await api.until(lambda: api.count("watch") == 5)
        assert bench.waits.seconds == [0.8, 1.6, 3.2, BACKOFF_SECONDS_MIN]


async def test_watch_relists_when_it_keeps_failing(api: FakeApi) -> None:
    api.fail_next("watch", 504, times=RELIST_AFTER_FAILURES)
    async with following(api) as bench:
        await bench.settled()
        assert api.count("list") == 2
        assert bench.seen.count("replaced") == 2


async def test_watch_backs_off_when_server_ends_it_at_once(
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


async def test_watch_restarts_when_connection_is_half_open(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    async with following(api, silence_seconds_max=SILENCE_SECONDS) as bench:
        await api.watched(PODS)
        api.hang()
        bench.put_pods("b")
        await bench.settled()
        assert bench.seen.count("restarted", "timeout") >= 1
        assert bench.seen.count("changed", "default/b") == 1
        assert api.count("list") == 1


async def test_watch_restarts_when_request_is_not_answered(api: FakeApi) -> None:
    api.swallow_next("watch")
    async with following(api, silence_seconds_max=SILENCE_SECONDS) as bench:
        bench.put_pods("a")
        await bench.settled()
        assert bench.seen.count("restarted", "timeout") >= 1


@pytest.mark.parametrize("end", ["end", "cut"])
async def test_truncated_line_is_read_again_in_full(api: FakeApi, end: str) -> None:
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
async def test_watch_restarts_when_line_is_not_event(api: FakeApi, line: bytes) -> None:
    async with following(api) as bench:
        await bench.settled()
        api.raw(line)
        api.hang()  # the watch ends this connection by itself
        await api.watched(PODS)
        bench.put_pods("a")
        await bench.settled()
        assert bench.seen.count("restarted", "error") == 1


async def test_watch_keeps_resource_version_when_error_is_not_410(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.settled()
        api.error(500)
        bench.put_pods("b")
        await bench.settled()
        assert api.count("list") == 1
        assert bench.waits.seconds == [BACKOFF_SECONDS_MIN]


async def test_watch_recovers_when_server_restarts(api: FakeApi) -> None:
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.settled()
        await api.stop()
        bench.put_pods("b")
        await bench.seen.until(lambda: bench.seen.count("restarted", "error") >= 2)
        await api.start(api.port)
        await bench.settled()
        assert bench.seen.count("changed", "default/b") == 1


BAD_VALUE = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "abc"}}}]}}
BAD_SHAPE = {"spec": {"containers": "many"}}


@pytest.mark.parametrize("bad", [BAD_VALUE, BAD_SHAPE])
async def test_watch_continues_when_object_is_undecodable(api: FakeApi, bad: Json) -> None:
    bad = {"spec": {**bad["spec"], "nodeName": "n"}}
    api.put(PODS, {**pod_object("listed"), **bad})
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await api.watched(PODS)
        bench.put_pods("b")
        api.put(PODS, {**pod_object("b"), **bad})
        bench.put_pods("c")
        await bench.seen.until(lambda: bench.seen.count("changed", "default/c") == 1)
        odd = {key: pod for key, pod in bench.seen.view.items() if pod.unreadable}
        assert set(odd) == {"default/listed", "default/b"}
        assert {pod.node for pod in odd.values() if isinstance(pod, Pod)} == {"n"}
        assert "default/b: spec.containers" in odd["default/b"].unreadable
        api.remove(PODS, "default/b")
        await bench.seen.until(lambda: bench.seen.count("deleted", "default/b") == 1)
        assert set(bench.seen.view) == {"default/a", "default/c", "default/listed"}
        assert bench.seen.count("restarted") == 0


@pytest.mark.parametrize("bad", [BAD_VALUE, BAD_SHAPE])
async def test_undecodable_pod_is_removed_when_it_is_finished(api: FakeApi, bad: Json) -> None:
    async with following(api) as bench:
        await api.watched(PODS)
        bench.put_pods("a", "b")
        api.put(PODS, {**pod_object("b"), **bad, "status": {"phase": "Failed"}})
        await bench.seen.until(lambda: set(bench.seen.view) == {"default/a"})


def deep(name: str) -> bytes:
    """Return a deeply nested pod: any tenant can write it, and the API server stores it."""
    fields = b'{"f:a":' * 9000 + b"{}" + b"}" * 9000
    found = pod_object(name)
    found["metadata"] |= {"resourceVersion": "7", "managedFields": [{"fieldsV1": "@"}]}
    return orjson.dumps(found).replace(b'"@"', fields)


async def test_pod_is_decoded_when_only_managed_fields_are_deep(api: FakeApi) -> None:
    page = b'{"metadata":{"resourceVersion":"1"},"items":[%b,%b]}'
    api.answer_next("list", page % (deep("listed"), orjson.dumps(pod_object("a"))))
    async with following(api) as bench:
        await api.watched(PODS)
        api.raw(b'{"type":"ADDED","object":%b}\n' % deep("b"))
        bench.put_pods("c")
        await bench.seen.until(lambda: bench.seen.count("changed", "default/c") == 1)
        assert set(bench.seen.view) == {f"default/{name}" for name in ("listed", "a", "b", "c")}
        assert not any(pod.unreadable for pod in bench.seen.view.values())
        assert bench.seen.count("restarted") == 0


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"type":"ADDED"}', b'{"object":{}}', b"\xff"])
async def test_watch_relists_when_event_is_undecodable(api: FakeApi, line: bytes) -> None:
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await api.watched(PODS)
        api.raw(line + b"\n")
        await bench.seen.until(lambda: bench.seen.count("replaced") == 2)
        assert api.count("list") == 2
        assert bench.waits.seconds == [BACKOFF_SECONDS_MIN]
        assert bench.seen.count("restarted", "error") == 1


async def test_watch_relists_when_line_is_too_long(api: FakeApi) -> None:
    async with following(api) as bench:
        await api.watched(PODS)
        api.raw(b"[" * (LINE_BYTES_MAX + 1))
        await bench.seen.until(lambda: bench.seen.count("replaced") == 2)


async def test_object_of_megabytes_is_read(api: FakeApi) -> None:
    async with following(api) as bench:
        await bench.settled()
        large = pod_object("large")
        large["metadata"]["annotations"] = {"blob": "x" * 4 * 1024**2}
        api.put(PODS, large)
        bench.put_pods("after")
        await bench.settled()
        assert bench.seen.count("restarted") == 0
