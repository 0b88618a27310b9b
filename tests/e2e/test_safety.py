"""A live controller: unmarked nodes, actions of an autoscaler, reload, and `ebb cleanup`."""

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from core.config.settings import Mode
from core.marks.wellknown import (
    DETAILS_ANNOTATION,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from runtime.file_changes import FILES_SECONDS
from tests.e2e.api import WAIT_SECONDS, Api, Json
from tests.e2e.install import Programs, installed
from tests.e2e.objects import NODES, PODS, THEIRS, add_nodes, pod, taints
from tests.e2e.plane import Plane
from tests.e2e.scheduling import scheduling
from tests.support.plan_cli import ebb

EVENTS = "/apis/events.k8s.io/v1/events"
GOING = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
NO_SCHEDULE = (TAINT_KEY, "NoSchedule")
RELOAD_SECONDS = WAIT_SECONDS + FILES_SECONDS


@pytest.fixture(scope="module", autouse=True)
def programs(plane: Plane) -> Iterator[Programs]:
    with installed(plane, mode=Mode.ENFORCE, usableCapacity="all", noScheduleAfter="1s") as found:
        yield found


def mark(found: Json) -> str | None:
    value: str | None = found["metadata"]["labels"].get(MARK_LABEL)
    return value


def annotations(found: Json) -> Json:
    return found["metadata"].get("annotations") or {}


def ours(found: Json) -> list[str]:
    """Return all keys of Ebb on the Node."""
    keys = (DETAILS_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION, PROTECTION_ANNOTATION)
    return [
        *([MARK_LABEL] if mark(found) else []),
        *(key for key in keys if key in annotations(found)),
        *(taint["key"] for taint in taints(found) if taint["key"] == TAINT_KEY),
    ]


def bound(found: Json) -> str:
    name: str = found["spec"].get("nodeName", "")
    return name


def two_no_schedule(api: Api) -> list[str]:
    """Return the two of three nodes that have the NoSchedule taint."""
    add_nodes(api, "a", "b", "c")
    for name, cpu in (("a", "1"), ("b", "500m"), ("c", "500m")):
        api.create(PODS, pod(f"on-{name}", node_name=name, cpu=cpu))

    def reached(found: Any) -> bool:
        marked = [
            one
            for one in found.values()
            if mark(one) == "NoSchedule" and NO_SCHEDULE in effects(one)
        ]
        return len(marked) == 2

    found = api.wait(NODES, reached)
    return sorted(name for name, one in found.items() if mark(one))


def effects(found: Json) -> list[tuple[str, str]]:
    return [(taint["key"], taint["effect"]) for taint in taints(found)]


def test_one_noschedule_node_is_unmarked_when_pod_fits_only_there(
    plane: Plane, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    marked = two_no_schedule(api)
    with scheduling(plane):
        created = time.monotonic()
        api.create(PODS, pod("burst", cpu="3200m"))
        found = api.wait(NODES, lambda found: any(not mark(found[name]) for name in marked))
        seconds = time.monotonic() - created
        pods = api.wait(PODS, lambda found: bound(found["burst"]))
    with capsys.disabled():
        print(f"\npod created to node unmarked: {seconds:.2f} s")
    (unmarked,) = [name for name in marked if not mark(found[name])]
    assert bound(pods["burst"]) == unmarked
    (stays,) = [name for name in marked if name != unmarked]
    assert mark(api.get(f"{NODES}/{stays}")) == "NoSchedule"


def test_protection_is_restored_when_autoscaler_cancels_deletion(api: Api) -> None:
    add_nodes(api, "a", "b")
    api.create(PODS, pod("p", node_name="a"))
    found = api.wait(NODES, lambda found: any(
        mark(one) and SCALE_DOWN_DISABLED_ANNOTATION not in annotations(one)
        for one in found.values()
    ))  # fmt: skip
    (name,) = [name for name, one in found.items() if mark(one)]
    added = [*taints(found[name]), GOING]
    api.merge(f"{NODES}/{name}", {"spec": {"taints": added, "unschedulable": True}})
    api.create(PODS, pod("late", node_name=name, cpu="100m"))
    left = [one for one in added if one != GOING]
    api.merge(f"{NODES}/{name}", {"spec": {"taints": left, "unschedulable": None}})
    found = api.wait(
        NODES, lambda found: SCALE_DOWN_DISABLED_ANNOTATION in annotations(found[name])
    )
    assert mark(found[name])


def test_other_nodes_remain_marked_when_autoscaler_deletes_node(api: Api) -> None:
    """The mark of the remaining node does not change."""
    add_nodes(api, "a", "b", "c")
    api.create(PODS, pod("p", node_name="a"))
    found = api.wait(NODES, lambda found: sum(
        bool(mark(one)) and SCALE_DOWN_DISABLED_ANNOTATION not in annotations(one)
        for one in found.values()
    ) == 2)  # fmt: skip
    first, second = sorted(name for name, one in found.items() if mark(one))
    api.delete(f"{NODES}/{first}")
    api.wait(NODES, lambda found: first not in found and mark(found[second]))


def test_controller_reloads_changed_configuration_and_rejects_invalid(
    api: Api, programs: Programs
) -> None:
    """In mode observe the controller removes all its metadata and marks no more nodes."""
    controller = programs.controller
    add_nodes(api, "a", "b")
    api.create(PODS, pod("p", node_name="a"))
    api.create(PODS, pod("q", node_name="b", cpu="500m"))
    found = api.wait(NODES, lambda found: any(mark(one) for one in found.values()))
    (name,) = [name for name, one in found.items() if mark(one)]
    api.merge(f"{NODES}/{name}", {"spec": {"taints": [*taints(found[name]), THEIRS]}})
    try:
        controller.configure(mode="observe", scaleDownProtection={"afterUnmark": "1s"})
        found = api.wait(NODES, lambda found: not ours(found[name]), RELOAD_SECONDS)
        assert taints(found[name]) == [THEIRS]
        controller.configure(mode="enforced")
        api.wait(EVENTS, lambda found: any(
            event["reason"] == "ConfigurationRefused" and "enforced" in event["note"]
            for event in found.values()
        ), RELOAD_SECONDS)  # fmt: skip
        assert controller.metric("ebb_config_last_reload_successful") == 0
        assert not any(mark(one) for one in api.get(NODES)["items"])
    finally:
        controller.configure()
    api.wait(NODES, lambda found: any(mark(one) for one in found.values()), RELOAD_SECONDS)
    assert controller.metric("ebb_config_last_reload_successful") == 1


def test_cleanup_removes_everything_when_programs_are_paused(
    plane: Plane, api: Api, programs: Programs
) -> None:
    two_no_schedule(api)
    api.merge(f"{NODES}/a", {"metadata": {"annotations": {"theirs": "x"}}})
    for stopped in programs:  # the controller would mark the nodes again
        stopped.program.send(signal.SIGSTOP)
    try:
        done = ebb(
            "cleanup", "--all", "--yes", "--kubeconfig", str(plane.kubeconfig("admin-cleanup"))
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.splitlines()[-1] == b"2 nodes and 0 pods cleaned up"
        nodes = api.get(NODES)["items"]
        assert [ours(found) for found in nodes] == [[], [], []]
        assert annotations(nodes[0])["theirs"] == "x"
    finally:
        for stopped in programs:
            stopped.program.send(signal.SIGCONT)
