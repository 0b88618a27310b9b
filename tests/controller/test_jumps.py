"""A jump of the wall clock ends no protection and no deadline at once."""

from dataclasses import replace

import pytest

from core.config.settings import Mode
from runtime.clock import SteadyClock
from tests.controller.test_reconciler import DELAY, PROTECTION_SECONDS, World
from tests.support.clock import Machine

pytestmark = pytest.mark.mutate

HOUR = 3600


class Jumping(World):
    """The world of the reconciler with a steady clock, while the wall clock is set."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()
        self.clock = SteadyClock(self.machine)

    async def run_for(self, seconds: int) -> list[tuple[str, str]]:
        """Run a reconciliation every ten seconds; return the writes."""
        found = []
        for _ in range(seconds // 10):
            self.machine.goes_on(10)
            self.now = self.clock.unix_seconds()
            found += self.kinds(await self.reconcile())
        return found


@pytest.mark.parametrize("jump", [-HOUR, HOUR, 24 * HOUR, -24 * HOUR])
async def test_node_is_unmarked_at_its_deadline_when_clock_jumps(jump: int) -> None:
    world = Jumping()
    world.controller.config = replace(world.config, deadline_seconds=HOUR)
    assert await world.run_for(DELAY + 20) == [("mark", "n1")]
    world.machine.wall += jump
    off = HOUR // 10  # the steady clock makes up for this meanwhile
    assert await world.run_for(HOUR - off) == []
    assert ("unmark", "n1") in await world.run_for(2 * off)


@pytest.mark.parametrize("jump", [-HOUR, HOUR, 24 * HOUR, -24 * HOUR])
async def test_protection_ends_at_its_time_when_clock_jumps(jump: int) -> None:
    world = Jumping()
    await world.run_for(DELAY + 20)
    world.controller.config = replace(world.config, mode=Mode.OBSERVE)
    assert await world.run_for(10) == [("unmark", "n1")]
    world.machine.wall += jump
    off = PROTECTION_SECONDS // 10 + 10
    assert ("remove_protection", "n1") not in await world.run_for(PROTECTION_SECONDS - off)
    assert ("remove_protection", "n1") in await world.run_for(2 * off)
