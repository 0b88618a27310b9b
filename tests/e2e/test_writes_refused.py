"""A policy of a user changes the Nodes that Ebb writes, so Ebb's own policies refuse that."""

from collections.abc import Iterator, Mapping

import pytest

from controller.refusals import REFUSED, RETRY_SECONDS
from core.config.settings import Mode
from core.marks.wellknown import MARK_LABEL
from core.writes.write import WriteKind
from kube.target import NAMESPACE
from tests.e2e.api import Api, Json
from tests.e2e.install import ADDED, Programs, adding_label, installed
from tests.e2e.objects import NODES, PODS, add_nodes, pod
from tests.e2e.plane import START_SECONDS, Plane, until

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
ERRORS = 'ebb_node_writes_total{{operation="{}",result="error"}}'
LINE = "a ValidatingAdmissionPolicy for Ebb's own accounts refuses writes"


@pytest.fixture
def programs(plane: Plane) -> Iterator[Programs]:
    with installed(plane, mode=Mode.ENFORCE, usableCapacity="all") as started:
        yield started


def marked(found: Mapping[str, Json]) -> set[str]:
    return {name for name, one in found.items() if MARK_LABEL in one["metadata"]["labels"]}


def test_nothing_begins_while_policy_refuses_writes_and_ebb_reports_it_once(
    plane: Plane, api: Api, programs: Programs
) -> None:
    controller = programs.controller

    def told() -> list[Json]:
        return [one for one in api.get(EVENTS)["items"] if one["reason"] == REFUSED]

    add_nodes(api, "a", "b")
    for name in ("a", "b"):
        api.create(PODS, pod(f"on-{name}", node_name=name))
    (first,) = marked(api.wait(NODES, lambda found: len(marked(found)) == 1))
    other = "a" if first == "b" else "b"
    with adding_label(plane):
        # The load rises, so the mark must be removed. Ebb tries that in each reconciliation.
        api.create(PODS, pod("big", node_name=other, cpu="3"))
        tries = ERRORS.format(WriteKind.UNMARK)
        until(lambda: controller.metric(tries) >= 3, "the removal of the mark is refused again")
        # An empty node, which would be marked at once. The pod of the other one has no room there.
        add_nodes(api, "spare", cpu="500m")
        before = controller.metric(tries)
        until(lambda: controller.metric(tries) >= before + 3, "Ebb has evaluated the new node")
        assert marked({one["metadata"]["name"]: one for one in api.get(NODES)["items"]}) == {first}
        assert controller.metric(ERRORS.format(WriteKind.MARK)) == 0, "it was not even tried"
        assert controller.metric("ebb_writes_refused") == 1
        assert controller.metric("ebb_schedule_open") == 0
        (event,) = told()
        assert event["regarding"]["kind"] == "Namespace"
        assert event["regarding"]["name"] == NAMESPACE
        assert event["type"] == "Warning"
        assert "ValidatingAdmissionPolicy ebb-controller-nodes" in event["note"]
        assert f"refuses Ebb's writes to nodes (metadata.labels: {ADDED})" in event["note"]
    api.wait(NODES, lambda found: first not in marked(found))
    later = START_SECONDS + RETRY_SECONDS
    until(lambda: controller.metric("ebb_writes_refused") == 0, "the refusal is over", later)
    api.wait(NODES, lambda found: "spare" in marked(found))
    assert len(told()) == 1
    lines = controller.program.log.read_text().splitlines()
    assert sum(LINE in line for line in lines) == 1
    assert not [line for line in lines if "cannot write a Node" in line]
