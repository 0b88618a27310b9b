"""The webhook's own certificates: one CA for all replicas, and a change that nobody notices."""

import asyncio
from itertools import count

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from core.edge import tls
from core.edge.tls import Pair
from core.model.errors import UnavailableError
from tests.support.certificates import SOAK, START, Cluster, connects, replica, signed, trusted
from tests.support.clock import FakeClock
from webhook.authority import OLD_SECONDS, Trust, advance
from webhook.certs import BUNDLE_MAX, ROTATE_ANNOTATION, UNTRUSTED_SECONDS

DAY = 24 * 3600


async def test_replicas_that_start_together_share_one_ca() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    replicas = [replica(cluster, clock) for _ in range(3)]
    await asyncio.gather(*(one.round(leading=False) for one, _ in replicas))
    assert cluster.version == 2, "one was the first"
    await replicas[0][0].round(leading=True)
    assert cluster.bundle is not None
    for _, serving in replicas:
        await trusted(serving, cluster.bundle[0])
    assert len(tls.split(cluster.bundle[0])) == 1


async def test_only_the_leader_writes_the_bundle_and_only_when_it_differs() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    leader, follower = replica(cluster, clock)[0], replica(cluster, clock)[0]
    await follower.round(leading=False)
    assert follower.why_not_ready() == "its CA is not in the registration's caBundle yet"
    assert cluster.writes == 0
    for _ in range(3):
        await leader.round(leading=True)
    assert cluster.writes == 1
    await follower.round(leading=False)
    assert follower.why_not_ready() is leader.why_not_ready() is None


async def test_where_no_leader_writes_the_bundle_whoever_has_waited_adds_to_it() -> None:
    """As the first pod without cert-manager does, whose leader serves cert-manager's files."""
    ended = tls.make_ca(START - 11 * 365 * DAY).certificate
    theirs = tls.make_ca(START).certificate + b"no certificate\n" + ended
    cluster, clock = Cluster(bundle=[theirs, b""]), FakeClock(START)
    follower, serving = replica(cluster, clock)
    await follower.round(leading=False)
    clock.seconds += UNTRUSTED_SECONDS - 1
    await follower.round(leading=False)
    assert (cluster.writes, follower.why_not_ready() is None) == (0, False)
    clock.seconds += 1
    await follower.round(leading=False)
    assert follower.why_not_ready() is None
    assert cluster.bundle is not None
    for bundle in cluster.bundle:
        assert set(tls.split(theirs)) < set(tls.split(bundle)), "nothing is taken away"
        await trusted(serving, bundle)
    clock.seconds += 10 * UNTRUSTED_SECONDS
    await follower.round(leading=False)
    assert cluster.writes == 1


async def test_whoever_waits_for_an_api_server_writes_no_bundle_that_holds_its_ca() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    await replica(cluster, clock)[0].round(leading=True)
    follower, _ = replica(cluster, clock)
    clock.seconds += UNTRUSTED_SECONDS
    await follower.round(leading=False)
    assert follower.why_not_ready() is None
    assert cluster.writes == 1, "the leader's"


async def test_without_a_registration_the_replica_is_ready() -> None:
    cluster, clock = Cluster(bundle=None), FakeClock(START)
    one, _ = replica(cluster, clock)
    await one.round(leading=True)
    assert one.why_not_ready() is None


async def test_others_cas_stay_in_the_bundle_and_ended_ones_go() -> None:
    stranger = _renamed(tls.make_ca(START))
    ended = tls.make_ca(START - 11 * 365 * DAY).certificate
    cluster = Cluster(bundle=[stranger + ended, b""])
    one, _ = replica(cluster, FakeClock(START))
    await one.round(leading=True)
    assert cluster.bundle is not None
    found = tls.split(cluster.bundle[0])
    assert found[1:] == [stranger]
    assert cluster.bundle[0] == cluster.bundle[1]


@pytest.mark.parametrize("leading", [True, False])
async def test_a_bundle_that_is_full_gets_our_cas_and_loses_what_trusts_nobody_first(
    leading: bool,
) -> None:
    others = [_renamed(tls.make_ca(START)) for _ in range(BUNDLE_MAX - 1)]
    ended = tls.make_ca(START - 11 * 365 * DAY).certificate
    cluster, clock = Cluster(bundle=[ended + b"".join(others), b""]), FakeClock(START)
    one, _ = replica(cluster, clock)
    await one.round(leading=False)
    clock.seconds += UNTRUSTED_SECONDS
    await one.round(leading=leading)
    assert cluster.bundle == [cluster.data["ca.crt"] + b"".join(others)] * 2


async def test_a_ca_of_others_in_the_secret_takes_one_place_in_the_bundle() -> None:
    made = [tls.make_ca(START) for _ in range(2)]
    cas = [signed(one, _key_of(one), days=365, is_ca=True) for one in made]
    stage = Trust(cas[0], cas[1], START).encode()
    others = [_renamed(tls.make_ca(START)) for _ in range(BUNDLE_MAX - 2)]
    cluster = Cluster(data=stage, bundle=[b"".join(others)])
    one, _ = replica(cluster, FakeClock(START))
    for _ in range(2):
        await one.round(leading=True)
        assert cluster.bundle is not None
        assert tls.split(cluster.bundle[0]) == [*(ca.certificate for ca in cas), *others]


async def test_a_ca_of_others_that_has_our_name_stays_in_the_bundle() -> None:
    """As cert-manager's, whose pods serve on while the component is taken out."""
    first = tls.make_ca(START)
    theirs = signed(first, _key_of(first), days=365, is_ca=True)
    cluster = Cluster(bundle=[first.certificate + theirs.certificate])
    one, _ = replica(cluster, FakeClock(START))
    await one.round(leading=True)
    assert tls.is_ours(first.certificate)
    assert not tls.is_ours(theirs.certificate)
    assert cluster.bundle is not None
    assert tls.split(cluster.bundle[0])[-1] == theirs.certificate


def _key_of(pair: Pair) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pair.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _renamed(pair: Pair) -> bytes:
    """Return a certificate that is not a CA of ours: a leaf."""
    return tls.make_leaf(pair, ["elsewhere"], START).certificate


async def test_a_change_of_ca_is_trusted_at_every_step() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    leader, served_by_leader = replica(cluster, clock)
    other, served_by_other = replica(cluster, clock)
    await leader.round(leading=True)
    first = cluster.data["ca.crt"]
    cluster.annotations = {ROTATE_ANNOTATION: "now", "theirs": "1"}
    steps: list[int] = []
    for _ in range(8):
        clock.seconds += SOAK / 3
        for one, leading in ((other, False), (leader, True)):
            await one.round(leading=leading)
            assert cluster.bundle is not None
            for serving in (served_by_leader, served_by_other):
                if serving.valid_until:
                    await trusted(serving, cluster.bundle[0])
        assert cluster.bundle is not None
        steps.append(len(tls.split(cluster.bundle[0])))
    assert cluster.annotations == {"theirs": "1"}, "asked once, done once"
    assert cluster.data["ca.crt"] != first
    assert steps[:3] == [2, 2, 2], "the next CA is trusted for the soak"
    assert steps[-1] == 2, "the one before stays as long as its leaves may live"
    clock.seconds += OLD_SECONDS
    await leader.round(leading=True)
    await leader.round(leading=True)
    assert cluster.bundle is not None
    assert tls.split(cluster.bundle[0]) == [cluster.data["ca.crt"]]


async def test_the_soak_begins_when_the_next_ca_is_in_the_bundle() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    leader, serving = replica(cluster, clock)
    await leader.round(leading=True)
    assert cluster.bundle is not None
    first = cluster.bundle[0]
    cluster.annotations, cluster.refused = {ROTATE_ANNOTATION: "now"}, "write"
    for _ in range(2):
        with pytest.raises(UnavailableError, match="403"):
            await leader.round(leading=True)
        clock.seconds += SOAK
    cluster.refused = ""
    for seconds in (1, SOAK - 1, 1):
        await leader.round(leading=True)
        assert connects(serving.context, first)
        clock.seconds += seconds
    await leader.round(leading=True)
    assert not connects(serving.context, first), "the next one signs"


async def test_a_leaf_is_renewed_long_before_it_ends() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    one, serving = replica(cluster, clock)
    await one.round(leading=True)
    first = serving.valid_until
    clock.seconds += OLD_SECONDS // 2
    await one.round(leading=True)
    assert serving.valid_until == first
    clock.seconds += OLD_SECONDS // 4
    await one.round(leading=True)
    assert serving.valid_until > first
    clock.seconds = serving.valid_until
    assert one.why_not_ready() == "no valid certificate"


async def test_a_leaf_of_a_clock_that_was_ahead_is_replaced_when_it_is_set() -> None:
    """As on a node that boots with its local time: to others the leaf begins in hours."""
    cluster, clock = Cluster(), FakeClock(START)
    leader, _ = replica(cluster, clock)
    await leader.round(leading=True)
    clock.seconds += DAY // 3
    one, serving = replica(cluster, clock)
    await one.round(leading=False)
    clock.seconds = START + 60
    await one.round(leading=False)
    assert cluster.bundle is not None
    await trusted(serving, cluster.bundle[0])


@pytest.mark.parametrize("refused", ["read", "write"])
async def test_a_leaf_is_renewed_whatever_becomes_of_the_registration(refused: str) -> None:
    """Whoever takes that right away has seven days else, and then no webhook."""
    cluster, clock = Cluster(), FakeClock(START)
    one, serving = replica(cluster, clock)
    await one.round(leading=True)
    cluster.refused = refused
    cluster.bundle = [bundle + tls.make_ca(0).certificate for bundle in cluster.bundle or ()]
    for _ in range(14):
        clock.seconds += DAY
        with pytest.raises(UnavailableError, match="403"):
            await one.round(leading=True)
        assert serving.valid_until > clock.seconds
    assert cluster.version == 2, "by the same CA"


TRUST = Trust(tls.make_ca(START))
NEXT = Trust(TRUST.ca, tls.make_ca(START), START)
OLD = Trust(TRUST.ca, old=tls.make_ca(START).certificate, old_until=START + 9)


@pytest.mark.parametrize(
    ("trust", "after", "asked", "trusted_since", "changes"),
    [
        (TRUST, 0, False, START, False),
        (TRUST, 0, True, START, True),
        (TRUST, 6 * 365 * DAY, False, START, False),
        (TRUST, 7 * 365 * DAY, False, START, True),
        (NEXT, SOAK - 1, False, 0, False),
        (NEXT, SOAK, False, 0, True),
        (NEXT, SOAK, False, None, False),
        (NEXT, SOAK - 1, True, 0, False),
        (NEXT, SOAK + 6, False, START + 7, False),
        (NEXT, SOAK + 7, False, START + 7, True),
        (OLD, 8, False, START, False),
        (OLD, 9, False, START, True),
    ],
    ids=count(),  # not by START, which is another one in each worker
)
def test_stages(
    trust: Trust, after: int, asked: bool, trusted_since: int | None, changes: bool
) -> None:
    found = advance(trust, START + after, SOAK, asked=asked, trusted_since=trusted_since)
    assert (found != trust) is changes
    assert Trust.decode(found.encode(), START + after) == found
