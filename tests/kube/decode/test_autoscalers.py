"""What autoscalers publish, as JSON, to the model; and texts that are too large or odd."""

import gc
import tracemalloc
from typing import Any

import orjson
import pytest

from core.model.errors import InvalidInputError
from core.model.node_groups import AutoscalerStatus, NodeClaim, NodeGroup, NodePool
from kube.decode.autoscalers import (
    GROUPS_MAX,
    LIST_BYTES_MAX,
    STATUS_BYTES_MAX,
)
from kube.decode.kinds import NODE_CLAIMS, NODE_POOLS, STATUSES
from tests.platforms.objects import autoscaler_status

Json = dict[str, Any]


def status(text: str | None, name: str = "cluster-autoscaler-status") -> AutoscalerStatus:
    data = {} if text is None else {"data": {"status": text, "other": "x"}}
    metadata = {"name": name, "namespace": "kube-system", "labels": {"a": "b"}}
    return STATUSES.decode(orjson.dumps({"metadata": metadata, **data}))


def listed(*groups: tuple[str, object]) -> str:
    entries = "".join(
        f"- name: {name}\n  health:\n    minSize: {least}\n" for name, least in groups
    )
    return f"autoscalerStatus: Running\nnodeGroups:\n{entries}"


class TestStatus:
    def test_groups_in_the_form_that_the_autoscaler_writes(self) -> None:
        url = "https://www.googleapis.com/compute/v1/projects/p/zones/eu-b/instanceGroups/gke-c-x-1-grp"
        written = autoscaler_status({"aks-user-1-vmss": (4, 6), url: (0, 2)})
        found = STATUSES.decode(orjson.dumps(written))
        assert found.fault == ""
        assert found.groups == (
            NodeGroup("aks-user-1-vmss", 4, "", 6),
            NodeGroup("gke-c-x-1-grp", 0, "eu-b", 2),
        )
        assert found.key == "kube-system/cluster-autoscaler-status"

    def test_fields_that_change_with_every_scan_are_ignored(self) -> None:
        text = autoscaler_status({"a": (1, 2)})["data"]["status"]
        again = text.replace("2026-", "2027-").replace("ready: 2", "ready: 1")
        again = again.replace("total: 0", "total: 1")  # of nodes that are not Ready
        assert again != text
        assert status(again) == status(text)
        assert status(text.replace("minSize: 1", "minSize: 2")) != status(text)
        assert status(text.replace("total: 2", "total: 3")) != status(text)

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            (None, "data.status is missing, or is no status of Cluster Autoscaler"),
            ("a: b", "data.status is missing, or is no status of Cluster Autoscaler"),
            ("Cluster-autoscaler status at 2023-01-01:\nCluster-wide:", "before 1.30"),
            (listed(("a", -1)), "nodeGroups.health.minSize: -1 is not a number of nodes"),
            (listed(("a", "many")), "nodeGroups.health.minSize: 'many' is not a number"),
            (listed(("a", 2**31)), "is not a number of nodes"),
            (listed(("a" * 513, 1)), "nodeGroups.name: "),
            ("nodeGroups: {a: b}", "nodeGroups: is not a list"),
            ("nodeGroups:\n- [x]", "nodeGroups.name: a missing value is not a name"),
            ("nodeGroups:\n- name: a", "nodeGroups.health.minSize: a missing value"),
            ("nodeGroups: *anchor", "aliases are not allowed"),
            ("nodeGroups:\n- name: 'a", "data.status"),
            (
                listed(*((f"g{n}", 1) for n in range(GROUPS_MAX + 1))),
                "nodeGroups: is not a list of",
            ),
            ("nodeGroups:\n" + "# long\n" * STATUS_BYTES_MAX, "data.status is too large"),
            ("nodeGroups: " + "[" * 9000, "data.status"),
            (listed(*((f"{'g' * 400}{n}", 1) for n in range(50))), "has names with more than"),
            (listed(("\u00e9", 1)), "nodeGroups.name: "),
        ],
    )
    def test_groups_that_are_unknown_have_a_reason(self, text: str | None, fault: str) -> None:
        found = status(text)
        assert found.groups == ()
        assert fault in found.fault
        assert found.fault.isprintable()
        assert len(found.fault) < 300

    @pytest.mark.parametrize(
        ("counts", "nodes"),
        [
            ("{registered: {total: 3, unready: {total: 1}}}", 3),
            ("{registered: {total: 0}}", 0),
            ("{registered: {total: -1}}", None),
            ("{registered: {total: many}}", None),
            ("{registered: 3}", None),
            ("3", None),
        ],
    )
    def test_number_of_nodes_is_decoded(self, counts: str, nodes: int | None) -> None:
        text = f"nodeGroups:\n- name: a\n  health: {{minSize: 1, nodeCounts: {counts}}}\n"
        assert status(text).groups == (NodeGroup("a", 1, "", nodes),)

    def test_no_group_is_a_status_too(self) -> None:
        found = status("autoscalerStatus: Initializing\n")
        assert (found.groups, found.fault) == ((), "")

    def test_as_many_groups_as_there_may_be_keep_little_memory(self) -> None:
        names = [f"gke-production-pool-{n:03}-0123456789abcdef-grp" for n in range(GROUPS_MAX)]
        text = listed(*((name, 10**6 + n) for n, name in enumerate(names)))
        status("nodeGroups: []")  # whatever is created once
        tracemalloc.start()
        try:
            found = status(text)
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(found.groups) == GROUPS_MAX
        assert kept < 64 * 1024


def pool(**spec: Any) -> NodePool:
    return NODE_POOLS.decode(orjson.dumps({"metadata": {"name": "p"}, "spec": spec}))


NEVER_EMPTY: Json = {"nodes": "0", "reasons": ["Empty"]}
NEVER = {"nodes": "0"}


class TestNodePool:
    @pytest.mark.parametrize(
        ("spec", "fixed"),
        [
            ({}, ""),
            ({"replicas": None}, ""),
            ({"replicas": 3}, "keeps a fixed number of nodes (spec.replicas: 3)"),
            ({"replicas": 0}, "keeps a fixed number of nodes (spec.replicas: 0)"),
            ({"disruption": {"consolidateAfter": "0s"}}, ""),
            ({"disruption": {"consolidateAfter": "Never"}}, "consolidateAfter: Never"),
            ({"replicas": 1, "disruption": {"consolidateAfter": "Never"}}, "spec.replicas: 1"),
            ({"disruption": {"budgets": [{"nodes": "10%"}]}}, ""),
            ({"disruption": {"budgets": [NEVER]}}, 'nodes "0" at all times'),
            ({"disruption": {"budgets": [{"nodes": "0%"}]}}, 'nodes "0" at all times'),
            ({"disruption": {"budgets": [NEVER | {"schedule": "@daily", "duration": "1h"}]}}, ""),
            ({"disruption": {"budgets": [{"nodes": "0", "reasons": ["Drifted"]}]}}, ""),
            ({"disruption": {"budgets": [NEVER_EMPTY]}}, ""),
            (
                {"disruption": {"budgets": [NEVER_EMPTY], "consolidationPolicy": "WhenEmpty"}},
                'nodes "0" at all times',
            ),
            (
                {
                    "disruption": {
                        "budgets": [{"nodes": "0", "reasons": ["Empty", "Underutilized"]}]
                    }
                },
                'nodes "0" at all times',
            ),
        ],
    )
    def test_why_karpenter_removes_no_empty_node(self, spec: Json, fixed: str) -> None:
        found = pool(**spec).fixed
        assert fixed in found
        assert bool(found) is bool(fixed)

    def test_object_with_only_a_name_is_decoded(self) -> None:
        assert NODE_POOLS.decode(b'{"metadata":{"name":"p"}}') == NodePool(name="p")

    def test_list_above_its_limit_is_rejected(self) -> None:
        many = [{"nodes": "1", "reasons": ["x" * 100]}] * (LIST_BYTES_MAX // 100)
        with pytest.raises(InvalidInputError, match=r"spec\.disruption\.budgets: [0-9,]+ bytes"):
            pool(disruption={"budgets": many})


def claim(*conditions: Json, **more: Any) -> NodeClaim:
    state = {"nodeName": "n", "conditions": conditions, **more}
    return NODE_CLAIMS.decode(orjson.dumps({"metadata": {"name": "c"}, "status": state}))


DRIFTED: Json = {
    "type": "Drifted",
    "status": "True",
    "lastTransitionTime": "1970-01-01T00:01:40Z",
}


class TestNodeClaim:
    def test_when_karpenter_has_said_that_it_drifted(self) -> None:
        ready = DRIFTED | {"type": "Ready"}
        assert claim(ready, DRIFTED) == NodeClaim(name="c", node="n", drifted_seconds=100)
        assert claim(ready).drifted_seconds is None
        assert claim(DRIFTED | {"status": "False"}).drifted_seconds is None
        assert claim(DRIFTED | {"lastTransitionTime": "soon"}).drifted_seconds == 0

    @pytest.mark.parametrize(
        ("metadata", "condition", "leaves"),
        [
            ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, True),
            ({}, {"type": "InstanceTerminating", "status": "True"}, True),
            ({}, {"type": "InstanceTerminating", "status": "Unknown"}, False),
            ({}, {"type": "Drained", "status": "True"}, False),
            ({}, {"type": "Rebooting", "status": "True"}, False),
        ],
    )
    def test_node_is_leaving_when_its_machine_is_about_to_go(
        self, metadata: Json, condition: Json, leaves: bool
    ) -> None:
        status = {"nodeName": "n", "conditions": [condition] if condition else []}
        found = NODE_CLAIMS.decode(
            orjson.dumps({"metadata": {"name": "c", **metadata}, "status": status})
        )
        assert (found.node, bool(found.leaving)) == ("n", leaves)

    def test_object_with_only_a_name_is_decoded(self) -> None:
        assert NODE_CLAIMS.decode(b'{"metadata":{"name":"c"}}') == NodeClaim(name="c")

    def test_list_above_its_limit_is_rejected(self) -> None:
        with pytest.raises(InvalidInputError, match=r"status\.conditions: [0-9,]+ bytes"):
            claim(*[DRIFTED | {"message": "x" * 1000}] * 65)

    @pytest.mark.parametrize("name", ["a b", "x" * 254, "\u00e9"])
    def test_no_name_is_none(self, name: str) -> None:
        with pytest.raises(InvalidInputError, match=r"status\.nodeName"):
            claim(nodeName=name)
