"""The webhook's own certificates: one CA for all replicas, rotated without an outage."""

import asyncio
from dataclasses import replace
from itertools import count

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from core.model.errors import UnavailableError
from serving import tls
from serving.tls import Pair
from tests.support.certificates import (
    SOAK,
    START,
    Cluster,
    KilledError,
    Way,
    connects,
    replica,
    signed,
    trusted,
)
from tests.support.clock import Apart, FakeClock
from webhook.authority import OLD_MAX, OLD_SECONDS, Trust, adopt, advance
from webhook.certs import (
    BUNDLE_MAX,
    GAP_SECONDS,
    REPAIR_WATCH_SECONDS,
    ROTATE_ANNOTATION,
    ROUND_SECONDS,
    SOON_SECONDS,
    UNUSED_SECONDS,
    Certificates,
)

DAY = 24 * 3600


async def test_replicas_share_ca_when_they_start_together() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    replicas = [replica(cluster, clock) for _ in range(3)]
    await asyncio.gather(*(one.round() for one, _ in replicas))
    assert cluster.version == 2, "one was the first"
    assert cluster.bundle is not None
    for one, serving in replicas:
        await one.round()
        assert one.why_not_ready() is None
        await trusted(serving, cluster.bundle[0])
    assert len(tls.split(cluster.bundle[0])) == 1


async def test_bundle_is_written_only_when_it_differs() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    first, second = replica(cluster, clock)[0], replica(cluster, clock)[0]
    for one in (first, second, first, second):
        await one.round()
        assert one.why_not_ready() is None
    assert cluster.writes == 1
    cluster.tamper_bundle(b"")
    await second.round()
    assert second.why_not_ready() is None
    await first.round()
    assert cluster.writes == 2


async def test_bundle_is_read_every_second_after_repair() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    repairs: list[float] = []
    one, _ = replica(cluster, clock, count_repair=lambda: repairs.append(clock.seconds))
    await one.round()
    assert one.pause_seconds() == ROUND_SECONDS
    for _ in range(3):
        cluster.tamper_bundle(b"")
        await one.round()
        assert one.pause_seconds() == SOON_SECONDS
        clock.seconds += 5
        await one.round()
        assert one.pause_seconds() == SOON_SECONDS
    clock.seconds += REPAIR_WATCH_SECONDS
    await one.round()
    assert one.pause_seconds() == ROUND_SECONDS
    assert len(repairs) == 3


async def test_rotation_is_not_counted_as_repair() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    repairs: list[float] = []
    replicas = [
        replica(cluster, clock, count_repair=lambda: repairs.append(clock.seconds))[0]
        for _ in range(2)
    ]
    for one in replicas:
        await one.round()
    cluster.annotations = {ROTATE_ANNOTATION: ""}
    await settle(cluster, clock, 3 * SOAK, *replicas)
    assert cluster.writes > 1
    assert repairs == []


async def test_repair_is_counted_by_one_replica() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    repairs: list[float] = []
    replicas = [
        replica(cluster, clock, count_repair=lambda: repairs.append(clock.seconds))[0]
        for _ in range(2)
    ]
    for _ in range(2):
        await asyncio.gather(*(one.round() for one in replicas))
    cluster.tamper_bundle(b"")
    await asyncio.gather(*(one.round() for one in replicas))
    assert len(repairs) == 1


async def test_replica_reads_bundle_again_when_write_conflicts() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    replicas = [replica(cluster, clock)[0] for _ in range(2)]
    await asyncio.gather(*(one.round() for one in replicas))
    assert cluster.writes == 1
    assert sorted(one.why_not_ready() is None for one in replicas) == [False, True]
    await asyncio.gather(*(one.round() for one in replicas))
    assert cluster.writes == 1
    assert all(one.why_not_ready() is None for one in replicas)


async def test_replica_is_ready_when_webhook_configuration_is_missing() -> None:
    cluster, clock = Cluster(bundle=None), FakeClock(START)
    one, _ = replica(cluster, clock)
    await one.round()
    assert one.why_not_ready() is None


async def test_expired_cas_are_removed_from_bundle_and_other_cas_remain() -> None:
    stranger = _renamed(tls.make_ca(START))
    ended = tls.make_ca(START - 11 * 365 * DAY).certificate
    cluster = Cluster(bundle=[stranger + ended, b""])
    one, _ = replica(cluster, FakeClock(START))
    await one.round()
    assert cluster.bundle is not None
    found = tls.split(cluster.bundle[0])
    assert found[1:] == [stranger]
    assert cluster.bundle[0] == cluster.bundle[1]


async def test_expired_cas_are_dropped_first_when_bundle_is_full() -> None:
    others = [_renamed(tls.make_ca(START)) for _ in range(BUNDLE_MAX - 1)]
    ended = tls.make_ca(START - 11 * 365 * DAY).certificate
    cluster, clock = Cluster(bundle=[ended + b"".join(others), b""]), FakeClock(START)
    one, _ = replica(cluster, clock)
    await one.round()
    assert cluster.bundle == [cluster.data["ca.crt"] + b"".join(others)] * 2


async def test_foreign_ca_of_secret_is_in_bundle_once() -> None:
    made = [tls.make_ca(START) for _ in range(2)]
    cas = [signed(one, _key_of(one), days=365, is_ca=True) for one in made]
    stage = Trust(cas[0], cas[1]).encode()
    others = [_renamed(tls.make_ca(START)) for _ in range(BUNDLE_MAX - 2)]
    cluster = Cluster(data=stage, bundle=[b"".join(others)])
    one, _ = replica(cluster, FakeClock(START))
    for _ in range(2):
        await one.round()
        assert cluster.bundle is not None
        assert tls.split(cluster.bundle[0]) == [*(ca.certificate for ca in cas), *others]


async def test_foreign_ca_with_our_name_remains_in_bundle() -> None:
    """For example cert-manager's CA, whose pods still serve while the component is removed."""
    first = tls.make_ca(START)
    theirs = signed(first, _key_of(first), days=365, is_ca=True)
    cluster = Cluster(bundle=[first.certificate + theirs.certificate])
    one, _ = replica(cluster, FakeClock(START))
    await one.round()
    assert tls.is_ours(first.certificate)
    assert not tls.is_ours(theirs.certificate)
    assert cluster.bundle is not None
    assert tls.split(cluster.bundle[0])[-1] == theirs.certificate


def _key_of(pair: Pair) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pair.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _renamed(pair: Pair) -> bytes:
    """Return a certificate that is not a CA of the webhook: a leaf."""
    return tls.make_leaf(pair, ["elsewhere"], START).certificate


async def settle(
    cluster: Cluster, clock: FakeClock, seconds: float, *replicas: Certificates
) -> None:
    """Advance the clock, with rounds of all replicas."""
    end = clock.seconds + seconds
    while clock.seconds < end:
        clock.seconds = min(end, clock.seconds + GAP_SECONDS)
        for one in replicas:
            await one.round()
            assert cluster.bundle is not None
            assert all(one.signed_by in tls.split(bundle) for bundle in cluster.bundle)


async def test_leaf_is_trusted_at_every_step_of_ca_rotation() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    one, served_by_one = replica(cluster, clock)
    other, served_by_other = replica(cluster, clock)
    await settle(cluster, clock, 1, one, other)
    assert cluster.bundle is not None
    first = cluster.data["ca.crt"]
    cluster.annotations = {ROTATE_ANNOTATION: "now", "theirs": "1"}
    steps: list[int] = []
    for _ in range(8):
        await settle(cluster, clock, SOAK / 3, one, other)
        for serving in (served_by_one, served_by_other):
            await trusted(serving, cluster.bundle[0])
        steps.append(len(tls.split(cluster.bundle[0])))
    assert cluster.annotations == {"theirs": "1"}, "asked once, done once"
    assert cluster.data["ca.crt"] != first
    assert one.signed_by == other.signed_by == cluster.data["ca.crt"]
    assert steps == [2] * 8, "the next CA beside the first, then the first beside it"
    clock.seconds += OLD_SECONDS - SOAK - UNUSED_SECONDS
    await settle(cluster, clock, SOAK + UNUSED_SECONDS + GAP_SECONDS, one, other)
    assert tls.split(cluster.bundle[0]) == [cluster.data["ca.crt"]]


async def test_soak_begins_when_next_ca_is_in_bundle() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    one, serving = replica(cluster, clock)
    await one.round()
    assert cluster.bundle is not None
    first = cluster.bundle[0]
    cluster.annotations, cluster.refused = {ROTATE_ANNOTATION: "now"}, "write"
    for _ in range(2):
        with pytest.raises(UnavailableError, match="403"):
            await one.round()
        clock.seconds += SOAK
    cluster.refused = ""
    await one.round()
    await settle(cluster, clock, SOAK - 1, one)
    assert connects(serving.context, first)
    await settle(cluster, clock, 1, one)
    assert not connects(serving.context, first), "the next one signs"


async def test_replica_waits_for_its_own_soak_after_disconnection() -> None:
    """A disconnected replica does not know since when the next CA is in the bundle."""
    cluster, clock, way = Cluster(), FakeClock(START), Way()
    one = replica(cluster, clock)[0]
    away, serving = replica(cluster, clock, way)
    await settle(cluster, clock, 1, one, away)
    first = away.signed_by
    cluster.annotations = {ROTATE_ANNOTATION: "now"}
    await settle(cluster, clock, SOAK / 2, one, away)
    way.down = True
    with pytest.raises(UnavailableError):
        await away.round()
    await settle(cluster, clock, 3600, one)
    assert cluster.data["ca.crt"] == one.signed_by != first
    assert cluster.bundle is not None
    assert first in tls.split(cluster.bundle[0])
    way.down = False
    await away.round()
    await settle(cluster, clock, SOAK - 1, one, away)
    assert away.signed_by == first
    await trusted(serving, cluster.bundle[0])
    await settle(cluster, clock, 1, one, away)
    assert away.signed_by == one.signed_by


async def test_replica_serves_leaf_until_expiry_when_webhook_configuration_is_unreadable() -> None:
    """After that it signs with the recorded CA, since the expired leaf is useless."""
    cluster, clock, way = Cluster(), FakeClock(START), Way()
    one, (blind, serving) = replica(cluster, clock)[0], replica(cluster, clock, way)
    await settle(cluster, clock, 1, one, blind)
    first, until = blind.signed_by, serving.valid_until
    cluster.annotations = {ROTATE_ANNOTATION: "now"}
    await settle(cluster, clock, SOAK / 2, one, blind)
    way.blind = True
    await settle(cluster, clock, SOAK, one)
    assert one.signed_by == cluster.data["ca.crt"] != first
    for seconds, signed_by in ((until - DAY, first), (until - 1, first), (until, one.signed_by)):
        clock.seconds = seconds
        with pytest.raises(UnavailableError, match="403"):
            await blind.round()
        assert blind.signed_by == signed_by


async def test_soak_restarts_when_bundle_loses_next_ca() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    one, _ = replica(cluster, clock)
    await settle(cluster, clock, 1, one)
    first = cluster.data["ca.crt"]
    cluster.annotations = {ROTATE_ANNOTATION: "now"}
    await settle(cluster, clock, SOAK - 1, one)
    cluster.tamper_bundle(b"")
    await one.round()
    await settle(cluster, clock, SOAK - 1, one)
    assert cluster.data["ca.crt"] == first
    await settle(cluster, clock, SOAK, one)
    assert cluster.data["ca.crt"] != first


async def test_new_replica_signs_leaf_with_recorded_ca_during_rotation() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    one, _ = replica(cluster, clock)
    await one.round()
    cluster.annotations = {ROTATE_ANNOTATION: "now"}
    await settle(cluster, clock, SOAK / 2, one)
    assert "next.crt" in cluster.data
    fresh, serving = replica(cluster, clock)
    await fresh.round()
    assert fresh.why_not_ready() is None
    assert fresh.signed_by == one.signed_by == cluster.data["ca.crt"]
    assert cluster.bundle is not None
    await trusted(serving, cluster.bundle[0])


async def test_replicas_create_one_ca_when_they_rotate_together() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    replicas = [replica(cluster, clock)[0] for _ in range(3)]
    await settle(cluster, clock, 1, *replicas)
    version = cluster.version
    cluster.annotations = {ROTATE_ANNOTATION: "now"}
    await asyncio.gather(*(one.round() for one in replicas))
    assert cluster.version == version + 1
    await settle(cluster, clock, 2 * SOAK, *replicas)
    assert cluster.version == version + 2, "made, and put in force"
    assert {one.signed_by for one in replicas} == {cluster.data["ca.crt"]}


@pytest.mark.parametrize("data", [{}, {"ca.crt": b"garbage"}], ids=["emptied", "garbage"])
async def test_replicas_keep_previous_ca_until_new_ca_has_soaked_when_secret_is_lost(
    data: dict[str, bytes],
) -> None:
    cluster, clock, way = Cluster(), FakeClock(START), Way()
    replicas = [replica(cluster, clock)[0], replica(cluster, clock)[0]]
    away, _ = replica(cluster, clock, way)
    await settle(cluster, clock, 1, *replicas, away)
    first = away.signed_by
    way.down = True
    cluster.tamper_secret(data)
    await settle(cluster, clock, SOAK - 1, *replicas)
    assert {one.signed_by for one in replicas} == {first}
    await settle(cluster, clock, 3600, *replicas)
    assert {one.signed_by for one in replicas} == {cluster.data["ca.crt"]} != {first}
    assert cluster.bundle is not None
    assert first in tls.split(cluster.bundle[0])


async def test_restored_old_secret_is_soaked_like_new_ca() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    replicas = [replica(cluster, clock)[0], replica(cluster, clock)[0]]
    await settle(cluster, clock, 1, *replicas)
    first = cluster.data["ca.crt"]
    cluster.tamper_secret(Trust(tls.make_ca(START - DAY)).encode())
    await settle(cluster, clock, SOAK - 1, *replicas)
    assert {one.signed_by for one in replicas} == {first}
    assert cluster.data["old.crt"] == first
    await settle(cluster, clock, SOAK, *replicas)
    assert {one.signed_by for one in replicas} == {cluster.data["ca.crt"]} != {first}


async def test_current_ca_remains_trusted_when_secret_before_rotation_is_restored() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    replicas = [replica(cluster, clock)[0], replica(cluster, clock)[0]]
    await settle(cluster, clock, 1, *replicas)
    before = cluster.data
    cluster.annotations = {ROTATE_ANNOTATION: "now"}
    await settle(cluster, clock, 3 * SOAK, *replicas)
    second = cluster.data["ca.crt"]
    assert {one.signed_by for one in replicas} == {second} != {before["ca.crt"]}
    cluster.tamper_secret(before)
    await replicas[0].round()
    assert cluster.bundle is not None
    assert tls.split(cluster.bundle[0]) == [before["ca.crt"], second]
    await settle(cluster, clock, 3 * SOAK, *replicas)
    assert {one.signed_by for one in replicas} == {before["ca.crt"]}


async def test_other_replica_writes_bundle_when_replica_is_killed() -> None:
    cluster, clock, way = Cluster(), FakeClock(START), Way()
    one, other = replica(cluster, clock, way)[0], replica(cluster, clock)[0]
    await settle(cluster, clock, 1, one, other)
    cluster.annotations = {ROTATE_ANNOTATION: "now"}
    way.dies = True
    with pytest.raises(KilledError):
        await one.round()
    assert cluster.bundle is not None
    assert cluster.data["next.crt"] not in tls.split(cluster.bundle[0])
    await other.round()
    assert cluster.data["next.crt"] in tls.split(cluster.bundle[0])


@pytest.mark.parametrize("days", [-300, 2])
async def test_rotation_completes_when_clock_of_replica_is_wrong(days: int) -> None:
    cluster, clock = Cluster(), FakeClock(START)
    one, wrong = replica(cluster, clock)[0], replica(cluster, Apart(clock, days * DAY))[0]
    for _ in range(3):
        cluster.annotations = {ROTATE_ANNOTATION: "now"}
        await settle(cluster, clock, 3 * SOAK, wrong, one)
    await settle(cluster, clock, UNUSED_SECONDS + SOAK, wrong, one)
    writes = cluster.version, cluster.writes
    await settle(cluster, clock, 2 * SOAK, one, wrong)
    assert (cluster.version, cluster.writes) == writes
    assert one.signed_by == wrong.signed_by == cluster.data["ca.crt"]


async def test_leaf_is_renewed_long_before_expiry() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    one, serving = replica(cluster, clock)
    await one.round()
    first = serving.valid_until
    clock.seconds += OLD_SECONDS // 2
    await one.round()
    assert serving.valid_until == first
    clock.seconds += OLD_SECONDS // 4
    await one.round()
    assert serving.valid_until > first
    clock.seconds = serving.valid_until
    assert one.why_not_ready() == "no valid certificate"


async def test_leaf_is_replaced_when_clock_that_was_ahead_is_corrected() -> None:
    """A node may boot with its local time; for other nodes the leaf then begins in hours."""
    cluster, clock = Cluster(), FakeClock(START)
    leader, _ = replica(cluster, clock)
    await leader.round()
    clock.seconds += DAY // 3
    one, serving = replica(cluster, clock)
    await one.round()
    clock.seconds = START + 60
    await one.round()
    assert cluster.bundle is not None
    await trusted(serving, cluster.bundle[0])


@pytest.mark.parametrize("refused", ["read", "write"])
async def test_leaf_is_renewed_when_webhook_configuration_is_forbidden(refused: str) -> None:
    """Otherwise the webhook would fail seven days after this permission is revoked."""
    cluster, clock = Cluster(), FakeClock(START)
    one, serving = replica(cluster, clock)
    await one.round()
    cluster.refused = refused
    cluster.bundle = [bundle + tls.make_ca(0).certificate for bundle in cluster.bundle or ()]
    for _ in range(14):
        clock.seconds += DAY
        with pytest.raises(UnavailableError, match="403"):
            await one.round()
        assert serving.valid_until > clock.seconds
    assert cluster.version == 2, "by the same CA"


TRUST = Trust(tls.make_ca(START))
NEXT = Trust(TRUST.ca, tls.make_ca(START))
LATER = Trust(TRUST.ca, tls.make_ca(START + DAY))
OLD = Trust(TRUST.ca, old=(tls.make_ca(START).certificate,), old_until=START + 9)
FULL = replace(OLD, old=tuple(tls.make_ca(START).certificate for _ in range(OLD_MAX)))


@pytest.mark.parametrize(
    ("trust", "after", "requested", "next_trusted", "old_unused", "changes"),
    [
        (TRUST, 0, False, False, True, False),
        (TRUST, 0, True, False, True, True),
        (TRUST, 6 * 365 * DAY, False, False, True, False),
        (TRUST, 7 * 365 * DAY, False, False, True, True),
        (NEXT, 0, False, False, True, False),
        (NEXT, 0, True, False, True, False),
        (NEXT, 0, False, True, True, True),
        (LATER, 0, False, True, True, False),
        (LATER, DAY, False, True, True, True),
        (OLD, 8, False, False, True, False),
        (OLD, 9, False, False, False, False),
        (OLD, 9, False, False, True, True),
        (OLD, 8, True, False, True, True),
        (FULL, 8, True, False, True, False),
        (replace(FULL, next=NEXT.next), 8, False, True, True, False),
    ],
    ids=count(),  # ids must not contain START, which differs between workers
)
def test_trust_advances_when_stage_is_due(
    trust: Trust, after: int, requested: bool, next_trusted: bool, old_unused: bool, changes: bool
) -> None:
    now = START + after
    found = advance(
        trust, now, requested=requested, next_trusted=next_trusted, old_unused=old_unused
    )
    assert (found != trust) is changes
    assert Trust.decode(found.encode(), now) == found
    if found.next == trust.next:
        return
    assert {*trust.bundle()} <= {*found.bundle()}, "no stage but the last takes trust away"


def test_adopt_adds_unknown_ca_once_up_to_limit() -> None:
    cas = [tls.make_ca(START).certificate for _ in range(OLD_MAX + 1)]
    assert adopt(TRUST, [TRUST.ca.certificate], START) is TRUST
    found = adopt(TRUST, [cas[0], TRUST.ca.certificate, cas[0]], START)
    assert (found.old, found.old_until) == ((cas[0],), START + OLD_SECONDS)
    assert adopt(found, cas, START + 1).old == tuple(cas[:OLD_MAX])
    full = adopt(found, cas, START + 1)
    assert adopt(full, cas, START + 2) is full


def test_next_ca_is_decoded_when_it_begins_in_future() -> None:
    assert Trust.decode(LATER.encode(), START) == LATER
    ended = Trust(TRUST.ca, tls.make_ca(START - 11 * 365 * DAY))
    assert Trust.decode(ended.encode(), START) == TRUST
