"""The leader hands its Lease over at most once a day, under whatever leader."""

from dataclasses import replace

import pytest

from controller.handovers import Handovers
from controller.lease_annotation import TRIES_MAX
from core.marks.mark import CLOCKS_APART_SECONDS_MAX
from core.model.errors import ConflictError
from core.model.now import Now
from core.moves.own import HANDOVER_ANNOTATION, HANDOVER_SECONDS_MIN
from kube.stores.lease import Lease
from tests.support.leases import Door, Store

NOW = 1_767_225_600
LEASE = Lease(holder="me", version="1", annotations={"theirs": "1"})


def annotated(text: str) -> Store:
    return Store(replace(LEASE, annotations={HANDOVER_ANNOTATION: text}))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", True),
        ("x", True),
        (str(NOW - HANDOVER_SECONDS_MIN), True),
        (str(NOW - HANDOVER_SECONDS_MIN + 1), False),
        (str(NOW + CLOCKS_APART_SECONDS_MAX), False),
        (str(NOW + CLOCKS_APART_SECONDS_MAX + 1), True),
    ],
)
async def test_handover_is_allowed_once_a_day(text: str, allowed: bool) -> None:
    store = annotated(text)
    assert await Handovers(Door(store)).record(Now(NOW)) is allowed
    assert len(store.writes) == allowed


async def test_handover_is_recorded_beside_other_annotations() -> None:
    store = Store(LEASE)
    assert await Handovers(Door(store)).record(Now(NOW))
    assert not await Handovers(Door(store)).record(Now(NOW + 1)), "by another leader"
    assert store.lease is not None
    assert store.lease.annotations == {"theirs": "1", HANDOVER_ANNOTATION: str(NOW)}
    assert store.lease.holder == "me"


async def test_handover_fails_when_lease_is_written_at_each_attempt() -> None:
    store, reads = Store(LEASE), 0

    async def renew() -> None:
        nonlocal reads
        reads += 1
        assert store.lease is not None
        store.lease = replace(store.lease, version=str(reads + 1))

    with pytest.raises(ConflictError, match="could not be written"):
        await Handovers(Door(store, after=renew)).record(Now(NOW))
    assert (reads, store.writes) == (TRIES_MAX, [])


async def test_handover_fails_without_lease() -> None:
    with pytest.raises(ConflictError, match="could not be written"):
        await Handovers(Door(Store())).record(Now(NOW))
