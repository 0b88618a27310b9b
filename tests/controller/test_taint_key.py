"""The taint key that the Lease records, and what a controller with another key does."""

import asyncio
from dataclasses import replace

import pytest

from controller.taint_key import CHECK_SECONDS, KEY_ANNOTATION, TaintKey
from core.model.errors import InvalidInputError, UnavailableError
from kube.stores.lease import Lease
from kube.target import NAMESPACE
from tests.support.clock import in_virtual_time
from tests.support.leases import Door, Store

OLD, NEW = "example.com/old", "example.com/new"


def store(recorded: str | None) -> Store:
    """Return a Lease with this recorded key, or without a key."""
    annotations = {"theirs": "1"} | ({} if recorded is None else {KEY_ANNOTATION: recorded})
    return Store(Lease(holder="one", version="1", transitions=3, annotations=annotations))


def recorded(leases: Store) -> str | None:
    assert leases.lease is not None
    return leases.lease.annotations.get(KEY_ANNOTATION)


async def unavailable() -> None:
    raise UnavailableError("no answer")


@pytest.mark.parametrize("before", [None, "", NEW])
async def test_key_is_recorded_once_and_nothing_else_is_changed(before: str | None) -> None:
    leases = store(before)
    key = TaintKey(Door(leases), NEW, NAMESPACE)
    await key.check()
    assert leases.writes == []
    for _ in range(2):
        await key.record()
    assert len(leases.writes) == (before != NEW)
    assert recorded(leases) == NEW
    lease = leases.lease
    assert lease is not None
    assert (lease.holder, lease.transitions, lease.annotations["theirs"]) == ("one", 3, "1")


@pytest.mark.parametrize("namespace", [NAMESPACE, "elsewhere"])
async def test_another_recorded_key_is_rejected_with_ordered_steps(
    namespace: str,
) -> None:
    leases = store(OLD)
    key = TaintKey(Door(leases), NEW, namespace)
    for ask in (key.check, key.record):
        with pytest.raises(InvalidInputError) as fault:
            await ask()
        message = str(fault.value)
        assert message.startswith(f"taintKey: is {NEW!r}, ")
        assert "\n" not in message
        where = "" if namespace == NAMESPACE else " --ebb-namespace elsewhere"
        steps = "scale", f"`ebb cleanup --all --taint-key {OLD}{where}`", "start all programs"
        places = [message.index(step) for step in steps]
        assert places == sorted(places)
    assert leases.writes == []


async def test_check_passes_when_lease_is_missing_or_unreadable() -> None:
    await TaintKey(Door(Store()), NEW, NAMESPACE).check()
    await TaintKey(Door(store(OLD), before=unavailable), NEW, NAMESPACE).check()


@in_virtual_time
async def test_recording_waits_until_key_is_written() -> None:
    leases = store(None)
    lease, leases.lease = leases.lease, None
    door = Door(leases)
    recording = asyncio.create_task(TaintKey(door, NEW, NAMESPACE).record())
    await asyncio.sleep(60)
    assert not recording.done(), "the Lease was deleted; the elector creates it again"
    leases.lease, door.before = lease, unavailable
    await asyncio.sleep(60)
    assert not recording.done()

    async def faster() -> None:
        """Renew the Lease between a read and a write, as the elector does."""
        assert leases.lease is not None
        leases.lease = replace(leases.lease, version=f"{leases.lease.version}0")

    async def fine() -> None:
        pass

    door.before, door.after = fine, faster
    await asyncio.sleep(60)
    assert not recording.done()
    door.after = fine
    await recording
    assert recorded(leases) == NEW


@in_virtual_time
async def test_leader_records_key_again_when_it_was_removed() -> None:
    """`ebb cleanup --taint-key` removes it, maybe while a controller runs with that key."""
    leases = store(NEW)
    keeping = asyncio.create_task(TaintKey(Door(leases), NEW, NAMESPACE).run())
    assert leases.lease is not None
    leases.lease = replace(leases.lease, annotations={})
    await asyncio.sleep(2 * CHECK_SECONDS)
    assert recorded(leases) == NEW
    leases.lease = replace(leases.lease, annotations={KEY_ANNOTATION: OLD})
    with pytest.raises(InvalidInputError):
        await keeping
