"""The moves of the last hour in the Lease, which the elector renews at the same time."""

import asyncio
from dataclasses import replace

import pytest

from controller.election import Elector, Timing
from controller.hourly_moves import HourlyMoves
from controller.lease_annotation import TRIES_MAX
from core.model.errors import ConflictError, UnavailableError
from core.model.now import Now
from core.moves.hourly import MOVES_BEGUN_ANNOTATION
from kube.stores.lease import Lease
from tests.support.clock import in_virtual_time, virtual_clock
from tests.support.leases import Door, Store

NOW = 1_767_225_600
LEASE = Lease(
    holder="first", duration_seconds=15, version="1", annotations={"other": "x"}, renewed="then"
)


async def test_moves_are_added_to_the_lease_as_it_is() -> None:
    store = Store(LEASE)
    moves = HourlyMoves(Door(store))
    await moves.add(2, Now(NOW))
    await moves.add(1, Now(NOW + 60))
    begun = f'{{"{NOW}":2,"{NOW + 60}":1}}'
    assert store.lease == replace(
        LEASE, version="3", annotations={"other": "x", MOVES_BEGUN_ANNOTATION: begun}
    )
    assert await moves.count(Now(NOW + 60)) == 3
    assert await HourlyMoves(Door(store)).count(Now(NOW + 3700)) == 1, "by another leader"


@pytest.mark.parametrize("text", [None, "", "{", '{"x": 1}'])
async def test_count_starts_at_zero_when_lease_has_none(text: str | None) -> None:
    annotations = {} if text is None else {MOVES_BEGUN_ANNOTATION: text}
    moves = HourlyMoves(Door(Store(replace(LEASE, annotations=annotations))))
    assert await moves.count(Now(NOW)) == 0
    await moves.add(1, Now(NOW))
    assert await moves.count(Now(NOW)) == 1


@pytest.mark.parametrize("renewals", [1, TRIES_MAX - 1, TRIES_MAX])
async def test_moves_are_added_again_when_lease_is_renewed_meanwhile(renewals: int) -> None:
    store, left = Store(LEASE), [None] * renewals

    async def renew() -> None:
        if left and store.lease is not None:
            left.pop()
            store.lease = replace(store.lease, version=f"{store.lease.version}0")

    moves = HourlyMoves(Door(store, after=renew))
    if renewals == TRIES_MAX:
        with pytest.raises(ConflictError, match="could not be written"):
            await moves.add(1, Now(NOW))
    else:
        await moves.add(1, Now(NOW))
        assert await moves.count(Now(NOW)) == 1


async def test_moves_cannot_begin_when_lease_is_missing_or_cannot_be_read() -> None:
    moves = HourlyMoves(Door(Store()))
    assert await moves.count(Now(NOW)) == 0
    with pytest.raises(ConflictError):
        await moves.add(1, Now(NOW))

    async def fail() -> None:
        raise UnavailableError("no answer")

    with pytest.raises(UnavailableError):
        await HourlyMoves(Door(Store(LEASE), before=fail)).count(Now(NOW))


@in_virtual_time
async def test_elector_goes_on_leading_and_keeps_the_count() -> None:
    """Each count changes the Lease that the elector knows."""
    store, started = Store(), asyncio.Event()

    async def lead() -> None:
        started.set()
        await asyncio.Event().wait()

    timing = Timing.of(15)
    elector = Elector(Door(store), "first", virtual_clock(), timing, jitter=lambda: 0.0)
    running = asyncio.create_task(elector.run(lead))
    await started.wait()
    moves = HourlyMoves(Door(store))
    for _ in range(3):
        await moves.add(1, Now(NOW))
        await asyncio.sleep(timing.duration)
        assert elector.leading
    assert await moves.count(Now(NOW)) == 3
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await moves.count(Now(NOW)) == 3, "also when the Lease is given up"
