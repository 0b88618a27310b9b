"""Decode which nodes get the pods of a DaemonSet."""

from typing import Any

import orjson
import pytest

from core.model.cluster import DaemonSet
from core.model.constraints import HOST_USERS, OS_LABEL, NodeConstraints, Toleration
from kube.decode.kinds import DAEMON_SETS
from kube.decode.pod_limits import TOLERATIONS_MAX
from kube.decode.selectors import ordered
from kube.decode.workloads import ADDED, ADDED_ON_HOST


def read(metadata: dict[str, Any] | None = None, **spec: Any) -> DaemonSet | None:
    body = {
        "metadata": {"name": "agent", "namespace": "d", **(metadata or {})},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": spec}},
    }
    return DAEMON_SETS.decode(orjson.dumps(body))


def test_daemon_set_has_the_constraints_of_its_pods() -> None:
    own = {"key": "gpu", "operator": "Exists"}
    found = read(nodeSelector={"pool": "a"}, tolerations=[own])
    assert found is not None
    assert found.key == "d/agent"
    assert found.node_constraints == NodeConstraints(
        node_selector=(("pool", "a"),),
        tolerations=ordered((Toleration("gpu", "Exists"), *ADDED)),
    )


def test_daemon_set_has_the_operating_system_and_features_of_its_pods() -> None:
    """Otherwise Ebb would expect a pod on each node, and set no NoSchedule mark without one."""
    found = read(os={"name": "windows"}, hostNetwork=True, hostUsers=False)
    assert found is not None
    assert found.node_constraints.system == ((OS_LABEL, "windows"),)
    assert found.node_constraints.features == (HOST_USERS,)


@pytest.mark.parametrize("host", [False, True])
def test_daemon_set_has_the_tolerations_that_its_controller_adds(*, host: bool) -> None:
    found = read(hostNetwork=host)
    assert found is not None
    assert set(found.node_constraints.tolerations) == {*ADDED, *([ADDED_ON_HOST] if host else [])}


def test_daemon_set_is_ignored_when_it_is_being_deleted() -> None:
    assert read({"deletionTimestamp": "2026-01-01T00:00:00Z"}) is None


def test_daemon_set_selects_all_nodes_when_its_constraints_exceed_a_limit() -> None:
    many = [{"key": f"k{n}", "operator": "Exists"} for n in range(TOLERATIONS_MAX + 1)]
    found = read(nodeSelector={"pool": "a"}, tolerations=many)
    assert found is not None
    assert found.node_constraints == NodeConstraints(tolerations=ordered(ADDED))
