"""A pause of evictions or moves is logged once."""

import logging

import pytest

from controller.pause_log import PauseLog
from core.eviction.reasons import NODE_SHARE, TURN
from core.model.reason import Blocker

SHARE, OTHER = Blocker(NODE_SHARE, "node b is full", "d/web"), Blocker(TURN, "not yet")


def test_pause_is_logged_when_it_begins_and_when_it_begins_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pauses = PauseLog(logging.getLogger("ebb.test"), "further evictions wait", NODE_SHARE)
    logged = []
    with caplog.at_level(logging.INFO):
        for waits in ([OTHER], [OTHER, SHARE], [SHARE], [], [SHARE]):
            pauses.decided(waits)
            logged.append(len(caplog.records))
    assert logged == [0, 1, 1, 1, 2]
    assert {record.message for record in caplog.records} == {"further evictions wait"}
