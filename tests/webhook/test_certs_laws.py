"""Laws of the certificates under random failures of replicas and of their shared objects."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.errors import UnavailableError
from serving import tls
from tests.support.certificates import SOAK, START, Cluster, KilledError, Way, replica
from tests.support.clock import Apart, FakeClock
from tests.support.examples import examples
from webhook.authority import OLD_MAX
from webhook.certs import GAP_SECONDS, ROTATE_ANNOTATION, UNUSED_SECONDS, Certificates

REPLICAS = 3
AWAY_SECONDS_MAX = 3600
DAY = 24 * 3600
APART = st.sampled_from([0, 0, 50, -50, 3600, -3600, 2 * DAY, -2 * DAY, 300 * DAY, -300 * DAY])
"""Seconds by which the clock of a replica is ahead."""
KINDS = ["look", "look", "wait", "wait", "rotate", "cut", "kill", "restart", "secret", "bundle"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, REPLICAS - 1),
        st.integers(1, 120),
        st.sampled_from([b"", b"garbage"]),
    ),
    min_size=10,
    max_size=40,
)


@dataclass
class Running:
    """A replica and its connection to the API server."""

    certificates: Certificates
    way: Way
    back_at: float = 0.0


@dataclass
class World:
    """Replicas with their own clocks, and the objects that they share."""

    apart: Sequence[int]
    clock: FakeClock = field(default_factory=lambda: FakeClock(START))
    cluster: Cluster = field(default_factory=Cluster)
    replicas: list[Running] = field(default_factory=list)
    changes: int = 0
    """Number of requested rotations and deleted CAs."""
    bundled_at: dict[bytes, float] = field(default_factory=dict)
    """Time by CA when a replica first wrote it into a caBundle."""

    def __post_init__(self) -> None:
        self.cluster.on_write = self.covers
        self.replicas = [self.started(number) for number in range(len(self.apart))]

    def started(self, number: int) -> Running:
        way = Way()
        made, _ = replica(self.cluster, Apart(self.clock, self.apart[number]), way)
        return Running(made, way)

    def covers(self, bundle: bytes) -> None:
        """Check that a written caBundle contains the CA of every served leaf."""
        trusted = tls.split(bundle)
        for one in self.replicas:
            assert one.certificates.signed_by in (b"", *trusted)
        for ca in trusted:
            self.bundled_at.setdefault(ca, self.clock.seconds)

    async def run_round(self, number: int) -> None:
        """Run one round of a replica, then check the certificate that it serves."""
        one = self.replicas[number]
        before = one.certificates.signed_by
        with suppress(UnavailableError):
            await one.certificates.round()
        after = one.certificates.signed_by
        bundles = [tls.split(bundle) for bundle in self.cluster.bundle or ()]
        if before and after != before:
            assert all(after in bundle for bundle in bundles), "a new CA signs that is not trusted"
            assert self.clock.seconds - self.bundled_at[after] >= SOAK
        if one.certificates.why_not_ready() is None and not one.way.down:
            assert all(after in bundle for bundle in bundles)

    async def wait(self, seconds: float) -> None:
        """Advance the clock, with rounds of all replicas."""
        end = self.clock.seconds + seconds
        while self.clock.seconds < end:
            self.clock.seconds = min(end, self.clock.seconds + GAP_SECONDS)
            for number, one in enumerate(self.replicas):
                one.way.down = self.clock.seconds < one.back_at
                await self.run_round(number)

    async def do(self, what: str, number: int, amount: int, garbage: bytes) -> None:
        """Run one step of KINDS."""
        one = self.replicas[number]
        if what in ("rotate", "secret"):
            # With a wrong clock one change creates two or three CAs, and the number of trusted CAs
            # is limited.
            self.changes += 1
            if self.changes > (2 if any(self.apart) else OLD_MAX - 1):
                return
        match what:
            case "look":
                await self.run_round(number)
            case "wait":
                await self.wait(5 * amount)
            case "rotate":
                self.cluster.annotations = {ROTATE_ANNOTATION: "now"}
            case "cut":
                one.back_at = self.clock.seconds + min(AWAY_SECONDS_MAX, 60 * amount)
                one.way.down = True
            case "kill":  # between the Secret and the caBundles, if it writes both
                one.way.dies = True
                with suppress(UnavailableError, KilledError):
                    await one.certificates.round()
                self.replicas[number] = self.started(number)
            case "restart":
                self.replicas[number] = self.started(number)
            case "secret":
                await self.tamper({"ca.crt": garbage} if garbage else {}, None)
            case _:
                await self.tamper(None, garbage)

    async def tamper(self, data: Mapping[str, bytes] | None, bundle: bytes | None) -> None:
        """Overwrite one of the objects, if a replica is connected and can repair it."""
        able = [n for n, one in enumerate(self.replicas) if not one.way.down]
        if not able or not self.cluster.data:
            return
        await self.run_round(able[0])
        if data is not None:
            self.cluster.tamper_secret(data)
        if bundle is not None:
            self.cluster.tamper_bundle(bundle)
        await self.run_round(able[0])


@pytest.mark.law
@settings(max_examples=examples(20))
@given(apart=st.lists(APART, min_size=REPLICAS, max_size=REPLICAS), steps=STEPS)
def test_every_leaf_is_trusted_and_replicas_converge(
    apart: list[int], steps: list[tuple[str, int, int, bytes]]
) -> None:
    async def run() -> None:
        world = World(apart)
        for step in steps:
            await world.do(*step)
        for one in world.replicas:
            one.back_at = 0.0
        await world.wait(3 * SOAK)
        await world.wait(UNUSED_SECONDS + SOAK)  # then a clock that is ahead drops `old`
        writes = world.cluster.version, world.cluster.writes
        await world.wait(2 * SOAK)
        assert (world.cluster.version, world.cluster.writes) == writes, "nobody fights"
        signed = {one.certificates.signed_by for one in world.replicas}
        assert signed == {world.cluster.data["ca.crt"]}
        assert world.cluster.bundle is not None
        for bundle in world.cluster.bundle:
            assert signed <= set(tls.split(bundle))

    asyncio.run(run())
