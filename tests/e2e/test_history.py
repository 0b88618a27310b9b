"""The figures of the day outlive the controller that has counted them."""

import signal
from collections.abc import Mapping
from typing import Final

from core.config.settings import Mode
from core.marks.wellknown import KEEP_ANNOTATION, MARK_LABEL
from tests.e2e.api import Api, Json
from tests.e2e.counted import printed_days
from tests.e2e.install import installed, start_program
from tests.e2e.moves import outlast_reconciliations
from tests.e2e.objects import NODES, PODS, add_nodes, pod
from tests.e2e.plane import Ebb, Plane, until

NAMES: Final = ("counted-a", "counted-b")
"""Of no other test, because a node that was marked before and is there again without its mark has
been unmarked."""


def counted(plane: Plane) -> tuple[int, int]:
    """Return the numbers of marks and unmarks that `ebb history` prints."""
    days = printed_days(plane)
    return sum(one["marks"] for one in days), sum(one["unmarks"] for one in days)


def is_marked(found: Mapping[str, Json]) -> bool:
    return any(MARK_LABEL in one["metadata"]["labels"] for one in found.values())


def leading(plane: Plane, settings: Json) -> Ebb:
    """Start a controller, and wait until it leads and has reconciled."""
    started = start_program(plane, "controller", settings).wait_ready()
    until(lambda: started.metric("ebb_leader") == 1, "it leads")
    outlast_reconciliations(started)
    return started


def test_marks_are_counted_once_when_controller_is_replaced(plane: Plane, api: Api) -> None:
    """The first one ends as in a rollout, the second one is killed, the third one goes on."""
    with installed(plane, mode=Mode.ENFORCE, usableCapacity="all") as programs:
        marks, unmarks = counted(plane)  # of other tests
        add_nodes(api, *NAMES)
        api.create(PODS, pod("p", node_name=NAMES[0]))
        api.wait(NODES, is_marked)
        outlast_reconciliations(programs.controller)
        programs.controller.stop()
        assert counted(plane) == (marks + 1, unmarks)
        leading(plane, programs.controller.settings).stop(signal.SIGKILL)
        third = leading(plane, programs.controller.settings)
        for name in NAMES:
            api.merge(f"{NODES}/{name}", {"metadata": {"annotations": {KEEP_ANNOTATION: "true"}}})
        api.wait(NODES, lambda found: not is_marked(found))
        outlast_reconciliations(third)
        third.stop()
        assert counted(plane) == (marks + 1, unmarks + 1)
