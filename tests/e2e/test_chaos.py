"""Faults on a real control plane: marks are never orphaned, no pod remains Pending."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.e2e.objects import NODES
from tests.e2e.plane import Plane, until
from tests.e2e.replica import leads
from tests.e2e.town import OURS, Town, marked
from tests.e2e.troubles import TROUBLES, Trouble

SEED = int(os.environ.get("EBB_CHAOS_SEED", "1"))
OUTAGE_SECONDS = 6.0
"""Length of each fault, as long as the lease; `make chaos` uses a minute."""
RELOAD_SECONDS = 30.0


@pytest.fixture(scope="module")
def town(plane: Plane) -> Iterator[Town]:
    made = Town(plane, SEED)
    yield made
    made.end()


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_ebb_recovers_from_fault(
    town: Town, trouble: Trouble, capsys: pytest.CaptureFixture[str]
) -> None:
    trouble(town, OUTAGE_SECONDS)
    took = town.settled(trouble.__name__)
    with capsys.disabled():
        print(f"\n{trouble.__name__}: judging again after {took:.1f} s")


def test_controller_reloads_configuration_when_configmap_changes(town: Town) -> None:
    """An invalid file changes nothing; `observe` removes all metadata; `enforce` marks again."""
    leader = town.leader()
    reload = "ebb_config_last_reload_successful"
    leader.etc.swap({"config.yaml": "mode: ["})
    until(lambda: leader.ebb.metric(reload) == 0, "refused", RELOAD_SECONDS)
    assert leads(leader)
    for one in town.controllers:
        one.configure(mode="observe")
    town.api.wait(NODES, lambda found: not any(map(carries_ours, found.values())), RELOAD_SECONDS)
    for one in town.controllers:
        one.configure()
    town.api.wait(NODES, lambda found: any(map(marked, found.values())), RELOAD_SECONDS)
    town.settled("a swapped configuration")


def carries_ours(found: dict[str, object]) -> bool:
    text = str(found)
    return any(key in text for key in OURS)


def test_other_controller_leads_when_leader_receives_sigterm(town: Town) -> None:
    leader = town.leader()
    with town.crowd.on():
        leader.ebb.stop(signal.SIGTERM)
        until(lambda: leads(town.other(leader)), "the other leads")
        leader.restart()
    town.settled("SIGTERM")
