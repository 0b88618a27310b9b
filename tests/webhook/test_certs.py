"""The webhook's own certificates: one CA for all replicas, and a change that nobody notices."""

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from core.edge import tls
from core.edge.kube.trust import Secret
from core.edge.tls import Pair, Serving
from core.errors import ConflictError, InvalidInputError
from tests.support.clock import FakeClock
from webhook.certs import OLD_SECONDS, ROTATE_ANNOTATION, Certificates, Trust, advance

START = int(time.time()) - 3600
"""Handshakes are checked by the real time; the steps below take less than an hour."""
SOAK = 300
DAY = 24 * 3600


@dataclass
class Cluster:
    """A Secret and a registration of two webhooks in memory, with versions."""

    data: Mapping[str, bytes] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    bundle: list[bytes] | None = field(default_factory=lambda: [b"", b""])
    version: int = 1
    writes: int = 0

    async def read(self) -> Secret:
        return Secret(self.data, self.annotations, {"version": self.version})

    async def write_secret(
        self, read: Secret, data: Mapping[str, bytes], annotations: Mapping[str, str]
    ) -> Secret:
        if read.whole["version"] != self.version:
            raise ConflictError("409")
        self.version += 1
        self.data, self.annotations = dict(data), dict(annotations)
        return await self.read()

    async def bundles(self) -> list[bytes] | None:
        return self.bundle

    async def write(self, bundles: list[bytes], wanted: bytes) -> None:
        assert bundles == self.bundle
        self.writes += 1
        self.bundle = [wanted for _ in bundles]


class _Secrets:
    def __init__(self, cluster: Cluster) -> None:
        self.read, self.write = cluster.read, cluster.write_secret


def replica(cluster: Cluster, clock: FakeClock) -> tuple[Certificates, Serving]:
    serving = Serving()
    made = Certificates(
        _Secrets(cluster), cluster, serving, ["localhost", "127.0.0.1"], clock, soak_seconds=SOAK
    )
    return made, serving


async def trusted(serving: Serving, bundle: bytes) -> None:
    """Shake hands with the server as one who trusts the bundle. Raises: ssl.SSLError."""
    app = web.Application()
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving.context).start()
    port = runner.addresses[0][1]
    try:
        trust = ssl.create_default_context(cadata=bundle.decode())
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trust, server_hostname="localhost"
        )
        writer.close()
    finally:
        await runner.cleanup()


async def test_replicas_that_start_together_share_one_ca() -> None:
    cluster, clock = Cluster(), FakeClock(START)
    replicas = [replica(cluster, clock) for _ in range(3)]
    await asyncio.gather(*(one.round(leading=False) for one, _ in replicas))
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


TRUST = Trust(tls.make_ca(START))
NEXT = Trust(TRUST.ca, tls.make_ca(START), START)


@pytest.mark.parametrize(
    ("trust", "after", "asked", "trusted_by_all", "changes"),
    [
        (TRUST, 0, False, True, False),
        (TRUST, 0, True, True, True),
        (TRUST, 6 * 365 * DAY, False, True, False),
        (TRUST, 7 * 365 * DAY, False, True, True),
        (NEXT, SOAK - 1, False, True, False),
        (NEXT, SOAK, False, True, True),
        (NEXT, SOAK, False, False, False),
        (NEXT, SOAK - 1, True, True, False),
        (Trust(TRUST.ca, old=b"old", old_until=START + 9), 8, False, True, False),
        (Trust(TRUST.ca, old=b"old", old_until=START + 9), 9, False, True, True),
    ],
)
def test_stages(
    trust: Trust, after: int, asked: bool, trusted_by_all: bool, changes: bool
) -> None:
    found = advance(trust, START + after, SOAK, asked=asked, trusted=trusted_by_all)
    assert (found != trust) is changes
    assert Trust.decode(found.encode()) == found


@pytest.mark.parametrize("data", [{"ca.crt": b"x"}, {"ca.key": b""}, {"other": b"1"}])
def test_a_secret_of_another_shape_is_refused_with_what_to_do(data: dict[str, bytes]) -> None:
    with pytest.raises(InvalidInputError, match="empty its data"):
        Trust.decode(data)
