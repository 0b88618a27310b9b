"""List and watch a resource without faults, over real sockets."""

from collections.abc import AsyncIterator

import pytest

from core.marks.wellknown import MARK_LABEL
from core.model.pod import Pod
from kube.client import PAGE_OBJECTS, USER_AGENT, TooLargeError
from kube.decode import kinds
from kube.listing import Listed, Part
from tests.support.fake_api import NODES, PODS, FakeApi
from tests.support.fake_objects import node_object, pod_object
from tests.support.following import following, opened


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


async def test_list_is_followed_by_every_change(api: FakeApi) -> None:
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


async def test_long_list_is_read_in_pages_and_each_object_once(api: FakeApi) -> None:
    for number in range(2 * PAGE_OBJECTS + 1):
        api.put(PODS, pod_object(f"p{number}"))
    async with following(api) as bench:
        await bench.settled()
        assert bench.seen.calls == [("replaced", str(2 * PAGE_OBJECTS + 1))]
        assert [call.query["limit"] for call in api.calls[:3]] == [str(PAGE_OBJECTS)] * 3
        assert api.count("list") == 3


async def test_page_is_reread_with_fewer_objects_when_it_is_too_large(
    api: FakeApi,
) -> None:
    """Any user who can create pods can make them as large as the API server accepts."""
    for number in range(1000):
        padding = "x" * (20_000 if 500 <= number < 600 else 0)
        api.put(PODS, {**pod_object(f"p{number:04}"), "padding": padding})
    async with opened(api, answer_bytes_max=500_000) as client:
        listed = Listed()
        await listed.read(client, kinds.PODS)
    assert [pod.name for pod in listed.objects] == [f"p{number:04}" for number in range(1000)]
    limits = [int(call.query["limit"]) for call in api.calls]
    assert limits[:4] == [500, 500, 125, 31]
    assert min(limits) == 7
    assert limits[-1] > 125, "behind them pages are large again"


async def test_list_fails_when_one_object_exceeds_answer_limit(api: FakeApi) -> None:
    api.put(PODS, {**pod_object("p"), "padding": "x" * 20_000})
    async with opened(api, answer_bytes_max=10_000) as client:
        with pytest.raises(TooLargeError, match="the answer is larger than 10000 bytes"):
            await Listed().read(client, kinds.PODS)


async def test_pod_is_removed_when_it_is_finished(api: FakeApi) -> None:
    api.put(PODS, pod_object("done", phase="Succeeded"))
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.seen.until(lambda: set(bench.seen.view) == {"default/a"})
        await api.watched(PODS)
        api.put(PODS, pod_object("a", phase="Failed"))
        await bench.seen.until(lambda: not bench.seen.view)
        assert bench.seen.calls[-1] == ("deleted", "default/a")


async def test_gated_pod_is_added_when_its_last_gate_is_removed(api: FakeApi) -> None:
    gated = pod_object("gated", phase="Pending")
    gated["spec"]["schedulingGates"] = [{"name": "queue"}]
    api.put(PODS, gated)
    api.put(PODS, pod_object("a"))
    async with following(api) as bench:
        await bench.seen.until(lambda: set(bench.seen.view) == {"default/a"})
        await api.watched(PODS)
        api.put(PODS, pod_object("gated", phase="Pending"))
        await bench.seen.until(lambda: set(bench.seen.view) == {"default/a", "default/gated"})


async def test_node_is_removed_when_it_loses_selected_label(api: FakeApi) -> None:
    api.put(NODES, node_object("plain"))
    api.put(NODES, node_object("marked", labels={MARK_LABEL: "PreferNoSchedule"}))
    async with following(api, NODES, Part(MARK_LABEL)) as bench:
        await bench.seen.until(lambda: set(bench.seen.view) == {"marked"})
        await api.watched(NODES)
        api.put(NODES, node_object("plain", labels={MARK_LABEL: "PreferNoSchedule"}))
        api.put(NODES, node_object("marked"))
        await bench.seen.until(lambda: set(bench.seen.view) == {"plain"})


async def test_bookmark_advances_version_and_shows_watch_is_alive(api: FakeApi) -> None:
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


async def test_every_call_sends_user_agent_and_identity_encoding(api: FakeApi) -> None:
    async with following(api) as bench:
        await bench.settled()
        for call in api.calls:
            assert call.headers["User-Agent"] == USER_AGENT
            assert call.headers["Accept-Encoding"] == "identity"
