"""Waiting for the end of the controller, in virtual time."""

import asyncio
from dataclasses import replace

import pytest

from cli.cleanup.stop import FREE_SECONDS, STOP_SECONDS_MAX, wait_until_nobody_leads
from core.model.errors import UnavailableError
from kube.stores.lease import Lease
from tests.support.clock import in_virtual_time, virtual_clock
from tests.support.leases import Door, Store

HELD = Lease(holder="a", duration_seconds=15, version="1")


async def renew(door: Door, times: int, holder: str = "a") -> None:
    """Renew the Lease every two seconds, then give it back."""
    for _ in range(times):
        await asyncio.sleep(2)
        lease = await door.read()
        assert lease
        await door.write(replace(lease, holder=holder))
    lease = await door.read()
    assert lease
    await door.write(replace(lease, holder=""))


async def waited(door: Door) -> float:
    """Return the seconds until nobody leads."""
    clock = virtual_clock()
    started = clock.seconds
    await wait_until_nobody_leads(door, clock)
    return clock.seconds - started


@in_virtual_time
async def test_wait_ends_at_once_when_lease_does_not_exist() -> None:
    assert await waited(Door(Store())) < 1


@in_virtual_time
async def test_wait_ends_when_dead_leader_has_not_renewed_for_duration() -> None:
    assert 15 <= await waited(Door(Store(HELD))) < 17


@in_virtual_time
async def test_wait_ends_when_nobody_takes_free_lease() -> None:
    assert FREE_SECONDS <= await waited(Door(Store(replace(HELD, holder="")))) < FREE_SECONDS + 2


@in_virtual_time
async def test_wait_continues_when_other_replica_takes_lease() -> None:
    door = Door(Store(HELD))
    ended = asyncio.create_task(renew(door, 10, "b"))
    assert 20 + FREE_SECONDS <= await waited(door) < 23 + FREE_SECONDS
    await ended


@in_virtual_time
async def test_wait_fails_when_leader_keeps_renewing() -> None:
    door = Door(Store(HELD))
    endless = asyncio.create_task(renew(door, 1000))
    with pytest.raises(UnavailableError, match="a still holds the Lease"):
        await waited(door)
    assert virtual_clock().seconds > STOP_SECONDS_MAX
    endless.cancel()
