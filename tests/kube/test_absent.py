"""Optional kinds: CapacityBuffers may be absent, in an older version, or installed later."""

from collections.abc import AsyncIterator

import pytest

from controller.loop import STALE_SECONDS
from kube.client import ApiError
from kube.cluster_kinds import KINDS, SURGE_KINDS
from kube.decode.kinds import (
    BUDGETS,
    BUFFERS,
    CLAIMS,
    CSI_NODES,
    NODES,
    PODS,
    TEMPLATES,
    VOLUMES,
    AnyKind,
)
from kube.listing import Listed
from kube.watch import ABSENT_SECONDS, DOUBT_SECONDS, WITHOUT_AFTER_FAILURES
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


async def test_list_is_empty_when_kind_is_absent(api: FakeApi) -> None:
    api.served -= {NEW}
    async with opened(api) as client:
        listed = Listed()
        await listed.read(client, BUFFERS)
    assert listed.objects == []
    assert listed.absent is not None
    assert listed.absent.status == 404
    assert paths(api) == [NEW, OLD]


async def test_list_is_empty_when_optional_kind_is_forbidden(api: FakeApi) -> None:
    api.denied |= {RESOURCE, TEMPLATES.resource}
    async with opened(api) as client:
        for kind in (BUFFERS, TEMPLATES):
            listed = Listed()
            await listed.read(client, kind)
            assert listed.absent is not None
            assert listed.absent.status == 403


async def test_list_fails_when_required_kind_is_forbidden(api: FakeApi) -> None:
    assert [kind for kind in KINDS if not kind.optional] == [
        NODES, PODS, BUDGETS, CLAIMS, VOLUMES, CSI_NODES, *SURGE_KINDS
    ]  # fmt: skip
    api.denied.add(NODES.resource)
    async with opened(api) as client:
        with pytest.raises(ApiError):
            await Listed().read(client, NODES)


async def test_older_version_is_read_when_only_it_is_served(api: FakeApi) -> None:
    api.served = {OLD}
    api.put(RESOURCE, ONE)
    async with following(api, RESOURCE) as bench:
        await bench.settled()
        assert list(bench.seen.view) == ["d/b"]
        assert paths(api) == [NEW, OLD, OLD], "listed, and watched there"


async def test_watch_starts_when_kind_appears(api: FakeApi) -> None:
    api.served -= {NEW}
    async with following(api, RESOURCE) as bench:
        await bench.seen.until(lambda: bench.seen.lives > 1)
        assert bench.seen.count("restarted") == 0, "it is no fault"
        assert set(bench.waits.seconds) == {ABSENT_SECONDS}
        api.put(RESOURCE, ONE)
        api.served.add(NEW)
        await bench.settled()
        assert list(bench.seen.view) == ["d/b"]


def test_absent_kind_is_checked_before_view_is_stale() -> None:
    assert 2 * ABSENT_SECONDS < STALE_SECONDS


FAULTS = 20


@pytest.mark.parametrize("fault", ["500", "no list"])
@pytest.mark.parametrize("kind", [BUFFERS, NODES])
async def test_optional_kind_counts_as_empty_when_its_list_keeps_failing(
    api: FakeApi, kind: AnyKind, fault: str
) -> None:
    """For example its conversion webhook is down, as the kind is defined by a CRD."""
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


async def deny_once(bench: Bench, status: int) -> None:
    """Deny the kind until its absence is checked a second time."""
    await bench.settled()
    lists = bench.seen.count("replaced")
    bench.api.fail_next("watch", status)
    bench.api.fail_next("list", status, times=len(BUFFERS.paths))
    bench.api.end()
    await bench.seen.until(lambda: bench.seen.count("replaced") > lists)


@pytest.mark.parametrize("status", [403, 404])
async def test_objects_are_retained_when_kind_is_denied_once(api: FakeApi, status: int) -> None:
    """A second denial later removes nothing either."""
    api.put(RESOURCE, ONE)
    async with following(api, RESOURCE) as bench:
        for _ in range(2):
            await deny_once(bench, status)
        assert bench.seen.calls[1:] == [("restarted", "error"), ("replaced", "1")] * 2
        assert bench.waits.seconds.count(DOUBT_SECONDS) == 2


@pytest.mark.parametrize("denied", [False, True])
async def test_objects_are_removed_when_kind_is_removed_or_denied(
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
