"""A wall clock that jumps by an hour lifts no guard and ends no deadline at once."""

from dataclasses import replace

import pytest

from core.config.settings import Mode
from core.edge.clock import SteadyClock
from tests.controller.test_reconciler import DELAY, GUARD_SECONDS, World
from tests.support.clock import Machine

pytestmark = pytest.mark.mutate

HOUR = 3600


class Jumping(World):
    """The loop's world, judged by a steady clock on a machine whose wall clock is set."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()
        self.clock = SteadyClock(self.machine)

    async def goes_on(self, seconds: int) -> list[tuple[str, str]]:
        """Judge every ten seconds for a while; return what was written."""
        found = []
        for _ in range(seconds // 10):
            self.machine.goes_on(10)
            self.now = self.clock.unix_seconds()
            found += self.kinds(await self.tick())
        return found


@pytest.mark.parametrize("jump", [-HOUR, HOUR, 24 * HOUR, -24 * HOUR])
async def test_a_deadline_ends_at_its_time(jump: int) -> None:
    world = Jumping()
    world.controller.config = replace(world.config, deadline_seconds=HOUR)
    assert await world.goes_on(DELAY + 20) == [("mark", "n1")]
    world.machine.wall += jump
    off = HOUR // 10  # what the clock makes up for meanwhile
    assert await world.goes_on(HOUR - off) == []
    assert ("release_mark", "n1") in await world.goes_on(2 * off)


@pytest.mark.parametrize("jump", [-HOUR, HOUR, 24 * HOUR, -24 * HOUR])
async def test_a_guard_is_lifted_at_its_time(jump: int) -> None:
    world = Jumping()
    await world.goes_on(DELAY + 20)
    world.controller.config = replace(world.config, mode=Mode.OBSERVE)
    assert await world.goes_on(10) == [("release_mark", "n1")]
    world.machine.wall += jump
    off = GUARD_SECONDS // 10 + 10
    assert ("remove_protection", "n1") not in await world.goes_on(GUARD_SECONDS - off)
    assert ("remove_protection", "n1") in await world.goes_on(2 * off)
