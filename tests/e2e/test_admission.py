"""Marks, taints and writes of other clients, as a real API server stores them."""

import json
from collections.abc import Iterator

import pytest

from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL, TAINT_KEY
from tests.e2e.api import APPLY, MERGE, STRATEGIC, Api, Json, RefusedError
from tests.e2e.install import admitting, policy
from tests.e2e.objects import DETAILS, NODES, TAINT, THEIRS, add_nodes, mark, node, taints
from tests.e2e.plane import Plane, until

NODE = f"{NODES}/n"


@pytest.fixture(scope="module", autouse=True, params=["webhook", "policy"])
def tainted_by(plane: Plane, request: pytest.FixtureRequest) -> Iterator[str]:
    """Run each test with the webhook and with the admission policy; both must behave the same."""
    with admitting(plane) if request.param == "webhook" else policy(plane):
        yield request.param


@pytest.fixture
def marked(api: Api) -> Api:
    """Return the API of a cluster with one marked Node, n."""
    add_nodes(api, "n")
    mark(api, "n")
    return api


def test_mark_and_taint_are_stored_in_one_revision(
    plane: Plane, api: Api, tainted_by: str
) -> None:
    add_nodes(api, "n")
    answer = mark(api, "n")
    assert taints(answer) == [TAINT]
    assert api.get(NODE)["metadata"]["resourceVersion"] == answer["metadata"]["resourceVersion"]

    def logged() -> list[Json]:
        return [
            event for event in audited(plane, "n")
            if event["verb"] == "patch"
            and MARK_LABEL in json.dumps(event.get("requestObject", {}))
            and event["responseObject"]["metadata"].get("resourceVersion")
            == answer["metadata"]["resourceVersion"]
        ]  # fmt: skip

    (written,) = until(logged, "the write is in the audit log")
    called = any("patch.webhook" in key for key in written["annotations"])
    assert called is (tainted_by == "webhook")


def audited(plane: Plane, name: str) -> list[Json]:
    """Return the audit events of a Node."""
    return [event for event in plane.audited() if event["objectRef"].get("name") == name]


def test_taints_remain_when_full_update_omits_taint_of_ebb(marked: Api) -> None:
    found = marked.get(NODE)
    found["spec"]["taints"] = [THEIRS]
    assert taints(marked.call("PUT", NODE, found)) == [THEIRS, TAINT]
    found = marked.get(NODE)
    found["spec"]["taints"] = []
    assert taints(marked.call("PUT", NODE, found)) == [TAINT]


def test_taints_remain_when_strategic_merge_patch_adds_taint(marked: Api) -> None:
    answer = marked.call("PATCH", NODE, {"spec": {"taints": [THEIRS]}}, content=STRATEGIC)
    assert taints(answer) == [THEIRS, TAINT]


def test_taints_remain_when_server_side_apply_adds_taint(marked: Api) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "spec": {"taints": [THEIRS]},
    }
    path = f"{NODE}?fieldManager=somebody&force=true"
    answer = marked.call("PATCH", path, body, content=APPLY)
    assert taints(answer) == [THEIRS, TAINT]


def test_kubectl_cannot_remove_taint_of_marked_node_and_can_add_others(
    plane: Plane, marked: Api
) -> None:
    plane.kubectl("taint", "node", "n", f"{TAINT_KEY}-")
    assert taints(marked.get(NODE)) == [TAINT]
    plane.kubectl("taint", "node", "n", "example.org/theirs=1:NoSchedule")
    assert THEIRS in taints(marked.get(NODE))
    assert TAINT in taints(marked.get(NODE))


def test_removing_mark_removes_only_taint_of_ebb(marked: Api) -> None:
    marked.merge(NODE, {"spec": {"taints": [TAINT, THEIRS]}})
    assert taints(mark(marked, "n", None)) == [THEIRS]


def test_changing_mark_changes_effect_of_taint(marked: Api) -> None:
    marked.merge(NODE, {"spec": {"taints": [TAINT, THEIRS]}})
    assert taints(mark(marked, "n", "NoSchedule")) == [{**TAINT, "effect": "NoSchedule"}, THEIRS]


def test_node_is_tainted_when_created_with_mark(api: Api) -> None:
    body = node("n", labels={MARK_LABEL: "PreferNoSchedule"})
    assert TAINT_KEY in [taint["key"] for taint in taints(api.create(NODES, body))]


def test_dry_run_is_answered_and_not_stored(api: Api) -> None:
    add_nodes(api, "n")
    metadata = {"labels": {MARK_LABEL: "PreferNoSchedule"}}
    answer = api.merge(f"{NODE}?dryRun=All", {"metadata": metadata})
    assert TAINT_KEY in [taint["key"] for taint in taints(answer)]
    assert taints(api.get(NODE)) == []


class TestKubelet:
    """A kubelet may update its own Node, but not the mark."""

    @pytest.fixture
    def kubelet(self, plane: Plane, marked: Api) -> Api:
        assert marked.get(NODE)
        return plane.api_as(plane.user("system:node:n", group="system:nodes"))

    @pytest.mark.parametrize("path", [NODE, f"{NODE}/status"])
    @pytest.mark.parametrize("value", ["NoSchedule", None])
    def test_kubelet_cannot_change_mark(self, kubelet: Api, path: str, value: str | None) -> None:
        with pytest.raises(RefusedError, match="not allowed to modify labels") as refused:
            kubelet.merge(path, {"metadata": {"labels": {MARK_LABEL: value}}})
        assert refused.value.status == 403

    @pytest.mark.parametrize("path", [NODE, f"{NODE}/status"])
    def test_kubelet_cannot_set_mark(self, kubelet: Api, api: Api, path: str) -> None:
        mark(api, "n", None)
        with pytest.raises(RefusedError, match="not allowed to modify labels"):
            kubelet.merge(path, {"metadata": {"labels": {MARK_LABEL: "PreferNoSchedule"}}})

    def test_kubelet_can_update_marked_node(self, kubelet: Api) -> None:
        answer = kubelet.merge(NODE, {"metadata": {"annotations": {"kubelet": "1"}}})
        assert answer["metadata"]["annotations"]["kubelet"] == "1"
        status = {"status": {"nodeInfo": {"kubeletVersion": "v1"}}}
        assert taints(kubelet.merge(f"{NODE}/status", status)) == [TAINT]

    def test_kubelet_can_update_marked_node_when_taint_is_missing(
        self, plane: Plane, kubelet: Api, api: Api
    ) -> None:
        mark(api, "n", None)
        untainted = mark_without_webhook(plane)
        assert taints(untainted) == []
        answer = kubelet.merge(NODE, {"metadata": {"annotations": {"kubelet": "2"}}})
        assert answer["metadata"]["annotations"]["kubelet"] == "2"
        assert taints(answer) == []
        again = api.merge(NODE, {"metadata": {"annotations": {"anybody": "1"}}})
        assert taints(again) == [TAINT]


def mark_without_webhook(plane: Plane) -> Json:
    """Mark the Node as an administrator in the group of kubelets, which the webhook ignores."""
    headers = [
        ("Impersonate-User", "somebody"),
        ("Impersonate-Group", "system:nodes"),
        ("Impersonate-Group", "system:masters"),
    ]
    metadata = {
        "labels": {MARK_LABEL: "PreferNoSchedule"},
        "annotations": {DETAILS_ANNOTATION: DETAILS},
    }
    body = {"metadata": metadata}
    return plane.api.call("PATCH", NODE, body, content=MERGE, headers=headers)
