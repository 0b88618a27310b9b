"""The controller's writes: mark, protection, taint, repair without a webhook, unmarking."""

import json
from collections.abc import Iterator

import pytest

from core.config.settings import Mode
from core.marks.wellknown import (
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from kube.target import NAMESPACE
from tests.e2e.api import Api, Json
from tests.e2e.install import CONTROLLER_ACCOUNT, Programs, in_force, installed, point, port_of
from tests.e2e.objects import NODES, PODS, THEIRS, add_nodes, pod, taints
from tests.e2e.plane import Ebb, Plane, free_port, until

OURS = f"system:serviceaccount:{NAMESPACE}:{CONTROLLER_ACCOUNT}"


@pytest.fixture(scope="module", autouse=True)
def programs(plane: Plane) -> Iterator[Programs]:
    with installed(plane, mode=Mode.ENFORCE, usableCapacity="all") as started:
        yield started


def is_marked(found: Json) -> bool:
    return bool(found["metadata"]["labels"].get(MARK_LABEL) == "PreferNoSchedule")


def our_taints(found: Json) -> list[Json]:
    return [taint for taint in taints(found) if taint["key"] == TAINT_KEY]


def one_marked(api: Api) -> Json:
    """Wait until one of two nodes is marked and tainted; return the node."""

    def reached(found: dict[str, Json]) -> bool:
        return any(is_marked(one) and our_taints(one) for one in found.values())

    found = api.wait(NODES, reached)  # type: ignore[arg-type]
    (marked,) = [one for one in found.values() if is_marked(one)]
    return marked


def our_writes(plane: Plane, name: str, since: int = 0) -> list[Json]:
    """Return the controller's patches of an existing Node, from the audit log.

    *since*: the resourceVersion after which they were made. A count could miss an earlier one, as
    the API server logs a write after it has made it.
    """
    uid = plane.api.get(f"{NODES}/{name}")["metadata"]["uid"]
    return [
        event
        for event in plane.audited()
        if event["user"]["username"] == OURS
        and event["verb"] == "patch"
        and event["objectRef"]["resource"] == "nodes"
        and event["responseObject"]["metadata"].get("uid") == uid
        and version(event["responseObject"]) > since
    ]


def version(found: Json) -> int:
    return int(found["metadata"]["resourceVersion"])


def test_controller_writes_mark_taint_and_protection_in_one_revision(
    plane: Plane, api: Api
) -> None:
    # Before the nodes, as an empty node could be marked first, and protected later.
    api.create(PODS, pod("p", node_name="a"))
    api.create(PODS, pod("q", node_name="b", cpu="500m"))
    add_nodes(api, "a", "b")
    marked = one_marked(api)
    assert marked["metadata"]["annotations"][SCALE_DOWN_DISABLED_ANNOTATION] == "true"
    (written,) = until(
        lambda: our_writes(plane, marked["metadata"]["name"]), "the write is in the audit log"
    )
    assert our_taints(written["responseObject"])
    assert is_marked(written["responseObject"])
    assert "taints" not in json.dumps(written["requestObject"])


def test_node_is_unmarked_with_other_taints_unchanged_when_load_rises(api: Api) -> None:
    add_nodes(api, "a", "b")
    api.create(PODS, pod("p", node_name="a"))
    api.create(PODS, pod("q", node_name="b"))
    name = one_marked(api)["metadata"]["name"]
    current = taints(api.get(f"{NODES}/{name}"))
    api.merge(f"{NODES}/{name}", {"spec": {"taints": [*current, THEIRS]}})
    other = "a" if name == "b" else "b"
    api.create(PODS, pod("big", node_name=other, cpu="3"))
    found = api.wait(NODES, lambda found: not is_marked(found[name]))[name]
    assert taints(found) == [THEIRS]
    assert found["metadata"]["annotations"][SCALE_DOWN_DISABLED_ANNOTATION] == "true"
    assert found["metadata"]["annotations"][PROTECTION_ANNOTATION].isdecimal()


def test_controller_adds_and_removes_taint_when_webhook_is_unavailable(
    plane: Plane, api: Api, programs: Programs
) -> None:
    controller = programs.controller
    repairs = 'ebb_node_writes_total{operation="repair_taints",result="success"}'
    point(plane, free_port())
    try:
        in_force(plane, called=False)
        before = controller.metric(repairs)
        add_nodes(api, "a", "b")
        api.create(PODS, pod("p", node_name="a"))
        api.create(PODS, pod("q", node_name="b"))
        name = one_marked(api)["metadata"]["name"]
        until(lambda: controller.metric(repairs) > before, "the repair is counted")
        current = taints(api.get(f"{NODES}/{name}"))
        api.merge(f"{NODES}/{name}", {"spec": {"taints": [THEIRS]}})
        restored = api.wait(NODES, lambda found: our_taints(found[name]))[name]
        assert taints(restored) == [THEIRS, *current]
        other = "a" if name == "b" else "b"
        api.create(PODS, pod("big", node_name=other, cpu="3"))
        api.wait(NODES, lambda found: taints(found[name]) == [THEIRS])
    finally:
        point(plane, port_of(programs.webhook.settings))
        in_force(plane)


def test_protection_is_removed_when_node_is_empty_and_restored_when_pod_arrives(api: Api) -> None:
    add_nodes(api, "a", "b")
    api.create(PODS, pod("p", node_name="a"))
    name = one_marked(api)["metadata"]["name"]

    def protected(found: Json) -> bool:
        return SCALE_DOWN_DISABLED_ANNOTATION in found["metadata"]["annotations"]

    api.wait(NODES, lambda found: not protected(found[name]))
    api.create(PODS, pod("late", node_name=name, cpu="100m"))
    api.wait(NODES, lambda found: protected(found[name]))
    api.delete(f"{PODS}/late", gracePeriodSeconds=0)
    api.wait(NODES, lambda found: not protected(found[name]))


def test_controller_does_not_write_node_that_autoscaler_deletes(plane: Plane, api: Api) -> None:
    add_nodes(api, "a", "b")
    api.create(PODS, pod("p", node_name="a"))
    name = one_marked(api)["metadata"]["name"]
    going = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
    current = taints(api.get(f"{NODES}/{name}"))
    spec = {"taints": [*current, going], "unschedulable": True}
    since = version(api.merge(f"{NODES}/{name}", {"spec": spec}))
    api.create(PODS, pod("late", node_name=name, cpu="1"))
    add_nodes(api, "c")
    rest = ("a" if name == "b" else "b", "c")
    api.wait(NODES, lambda found: any(is_marked(found[one]) for one in rest))
    assert our_writes(plane, name, since) == []


def test_controller_does_not_write_node_with_deletion_timestamp(plane: Plane, api: Api) -> None:
    """For example Karpenter's nodes have a finalizer while Karpenter empties them."""
    add_nodes(api, "a", "b")
    api.create(PODS, pod("p", node_name="a"))
    name = one_marked(api)["metadata"]["name"]
    api.merge(f"{NODES}/{name}", {"metadata": {"finalizers": ["example.com/drains"]}})
    try:
        since = version(api.call("DELETE", f"{NODES}/{name}"))
        api.create(PODS, pod("late", node_name=name, cpu="1"))
        add_nodes(api, "c")
        rest = ("a" if name == "b" else "b", "c")
        api.wait(NODES, lambda found: any(is_marked(found[one]) for one in rest))
        assert api.get(f"{NODES}/{name}")["metadata"]["deletionTimestamp"]
        assert our_writes(plane, name, since) == []
    finally:
        api.merge(f"{NODES}/{name}", {"metadata": {"finalizers": []}})


def test_mark_and_protection_are_removed_when_machine_is_shut_down(api: Api) -> None:
    add_nodes(api, "a", "b")
    api.create(PODS, pod("p", node_name="a"))
    api.create(PODS, pod("q", node_name="b", cpu="500m"))
    name = one_marked(api)["metadata"]["name"]
    stopped = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
    current = taints(api.get(f"{NODES}/{name}"))
    api.merge(f"{NODES}/{name}", {"spec": {"taints": [*current, stopped]}})
    found = api.wait(NODES, lambda found: taints(found[name]) == [stopped])[name]
    assert not is_marked(found)
    assert (
        not {SCALE_DOWN_DISABLED_ANNOTATION, PROTECTION_ANNOTATION}
        & found["metadata"]["annotations"].keys()
    )


def test_webhook_is_not_called_for_unmarked_nodes(api: Api, programs: Programs) -> None:
    add_nodes(api, "n")
    before = reviews(programs.webhook)
    api.merge(f"{NODES}/n", {"metadata": {"annotations": {"a": "b"}}})
    assert reviews(programs.webhook) == before


def reviews(webhook: Ebb) -> float:
    return sum(
        webhook.metric(f'ebb_webhook_reviews_total{{result="{result}"}}')
        for result in ("patched", "unchanged", "refused")
    )
