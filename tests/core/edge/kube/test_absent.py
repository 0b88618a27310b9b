"""A kind that a cluster need not have: CapacityBuffers, in whichever version, now or later."""

from collections.abc import AsyncIterator

import pytest

from controller.loop import STALE_SECONDS
from core.edge.decode.kinds import BUFFERS, DAEMON_SETS, KINDS, NODES, TEMPLATES, AnyKind
from core.edge.kube.client import ApiError
from core.edge.kube.listing import Listed
from core.edge.kube.watch import ABSENT_SECONDS, DOUBT_SECONDS, WITHOUT_AFTER_FAILURES
from tests.support.fake_api import FakeApi
from tests.support.following import Bench, following, opened

pytestmark = pytest.mark.mutate

RESOURCE = BUFFERS.resource
NEW, OLD = BUFFERS.paths
ONE = {"metadata": {"name": "b", "namespace": "d"}}


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as found:
        yield found


def paths(api: FakeApi) -> list[str]:
    return [call.path for call in api.calls if call.resource == RESOURCE]


async def test_where_there_is_no_such_kind_there_are_none(api: FakeApi) -> None:
    api.served -= {NEW}
    async with opened(api) as client:
        listed = Listed()
        await listed.read(client, BUFFERS)
    assert listed.objects == []
    assert listed.absent is not None
    assert listed.absent.status == 404
    assert paths(api) == [NEW, OLD]


async def test_where_it_may_not_be_read_there_are_none_either(api: FakeApi) -> None:
    api.denied |= {RESOURCE, TEMPLATES.resource}
    async with opened(api) as client:
        for kind in (BUFFERS, TEMPLATES):
            listed = Listed()
            await listed.read(client, kind)
            assert listed.absent is not None
            assert listed.absent.status == 403


async def test_what_every_cluster_has_must_be_there(api: FakeApi) -> None:
    assert [kind for kind in KINDS if kind.optional] == [
        TEMPLATES,
        BUFFERS,
        DAEMON_SETS,
    ]
    api.denied.add(NODES.resource)
    async with opened(api) as client:
        with pytest.raises(ApiError):
            await Listed().read(client, NODES)


async def test_an_older_version_is_read_where_it_alone_is_served(api: FakeApi) -> None:
    api.served = {OLD}
    api.put(RESOURCE, ONE)
    async with following(api, RESOURCE) as bench:
        await bench.settled()
        assert list(bench.seen.view) == ["d/b"]
        assert paths(api) == [NEW, OLD, OLD], "listed, and watched there"


async def test_the_watch_waits_for_the_kind_and_takes_it_up_when_it_appears(api: FakeApi) -> None:
    api.served -= {NEW}
    async with following(api, RESOURCE) as bench:
        await bench.seen.until(lambda: bench.seen.lives > 1)
        assert bench.seen.count("restarted") == 0, "it is no fault"
        assert set(bench.waits.seconds) == {ABSENT_SECONDS}
        api.put(RESOURCE, ONE)
        api.served.add(NEW)
        await bench.settled()
        assert list(bench.seen.view) == ["d/b"]


def test_what_is_known_of_an_absent_kind_is_new_enough_between_two_looks() -> None:
    assert 2 * ABSENT_SECONDS < STALE_SECONDS


FAULTS = 20


@pytest.mark.parametrize("fault", ["500", "no list"])
@pytest.mark.parametrize("kind", [BUFFERS, NODES])
async def test_nobody_waits_for_what_a_cluster_may_do_without_and_cannot_list(
    api: FakeApi, kind: AnyKind, fault: str
) -> None:
    """As where its conversion webhook is away: the definition is not the cluster's own."""
    for _ in range(FAULTS):
        if fault == "500":
            api.fail_next("list", 500)
        else:
            api.answer_next("list", b"[]")
    async with following(api, kind.resource) as bench:
        await bench.seen.until(lambda: bench.seen.count("restarted") == FAULTS)
        without = FAULTS - WITHOUT_AFTER_FAILURES + 1
        assert bench.seen.lives == (without if kind.optional else 0)
        assert max(bench.waits.seconds) * 2 < STALE_SECONDS
        api.put(kind.resource, {**ONE, "status": {"allocatable": {"cpu": "1"}}})
        await bench.seen.until(lambda: bool(bench.seen.view))


async def denied_once(bench: Bench, status: int) -> None:
    """Let the server deny the kind until it is asked a second time whether it is there."""
    await bench.settled()
    lists = bench.seen.count("replaced")
    bench.api.fail_next("watch", status)
    bench.api.fail_next("list", status, times=len(BUFFERS.paths))
    bench.api.end()
    await bench.seen.until(lambda: bench.seen.count("replaced") > lists)


@pytest.mark.parametrize("status", [403, 404])
async def test_one_answer_that_the_kind_is_not_there_takes_nothing_away(
    api: FakeApi, status: int
) -> None:
    """Nor does another one later."""
    api.put(RESOURCE, ONE)
    async with following(api, RESOURCE) as bench:
        for _ in range(2):
            await denied_once(bench, status)
        assert bench.seen.calls[1:] == [("restarted", "error"), ("replaced", "1")] * 2
        assert bench.waits.seconds.count(DOUBT_SECONDS) == 2


@pytest.mark.parametrize("denied", [False, True])
async def test_where_the_kind_goes_away_what_was_known_of_it_goes_too(
    api: FakeApi, denied: bool
) -> None:
    api.put(RESOURCE, ONE)
    async with following(api, RESOURCE) as bench:
        await bench.settled()
        if denied:
            api.denied.add(RESOURCE)
        else:
            api.served -= {NEW}
        api.end()
        await bench.seen.until(lambda: not bench.seen.view)
        await bench.seen.until(lambda: ABSENT_SECONDS in bench.waits.seconds)
        assert bench.waits.seconds.count(DOUBT_SECONDS) == 1
