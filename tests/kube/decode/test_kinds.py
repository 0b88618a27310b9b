"""The table of kinds, and the inventory that dumps, lists and watches fill."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from cli.explain.caveats import STORAGE_KINDS
from core.cluster.devices import DeviceClass
from core.cluster.namespaces import Namespace
from core.cluster.read_options import READ_DEFAULTS
from core.cluster.volumes import Attachment, Claim, CsiNode, StorageClass, Volume
from core.model.buffers import Buffer, PodTemplate
from core.model.cluster import DaemonSet, DisruptionBudget
from core.model.constraints import NodeConstraints
from core.model.node import Node
from core.model.node_groups import AutoscalerStatus, NodeClaim, NodePool
from core.model.pod import Pod
from core.model.resources import Resources
from core.moves.listed import ListedDeployment, ListedReplicaSet
from core.moves.objects import HorizontalAutoscaler, ObservedDeployment
from core.moves.quotas import ResourceQuota
from kube.cluster_kinds import KINDS
from kube.decode import kinds
from kube.decode.kinds import (
    ATTACHMENTS,
    BUDGETS,
    BUFFERS,
    CLAIMS,
    CSI_NODES,
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    HORIZONTAL_AUTOSCALERS,
    NAMESPACES,
    NODE_CLAIMS,
    NODE_POOLS,
    NODES,
    PODS,
    QUOTAS,
    REPLICA_SETS,
    STATUSES,
    STORAGE_CLASSES,
    TEMPLATES,
    VOLUMES,
    Kind,
)
from kube.decode.pod_times import FINISHED_TOO
from kube.decode.selectors import ordered
from kube.decode.workloads import ADDED
from kube.inventory import Inventory
from kube.listing import Listed
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import merged
from tests.support.following import opened
from tests.support.kube_json import POD, changed

EXAMPLES: dict[Kind[Any, Any], tuple[Any, str]] = {
    NODES: (Node(name="a", allocatable=Resources()), "a"),
    PODS: (Pod(namespace="d", name="a"), "d/a"),
    BUDGETS: (DisruptionBudget(namespace="d", name="a", disruptions_allowed=0), "d/a"),
    CLAIMS: (Claim(namespace="d", name="a"), "d/a"),
    VOLUMES: (Volume(name="a"), "a"),
    CSI_NODES: (CsiNode(name="a"), "a"),
    NAMESPACES: (Namespace(name="a"), "a"),
    ATTACHMENTS: (Attachment(name="a"), "a"),
    NODE_POOLS: (NodePool(name="a"), "a"),
    NODE_CLAIMS: (NodeClaim(name="a"), "a"),
    STORAGE_CLASSES: (StorageClass(name="a"), "a"),
    DEVICE_CLASSES: (DeviceClass(name="a"), "a"),
    STATUSES: (AutoscalerStatus(namespace="d", name="a"), "d/a"),
    TEMPLATES: (PodTemplate(namespace="d", name="a", pod=Pod(namespace="d", name="a")), "d/a"),
    BUFFERS: (Buffer(namespace="d", name="a"), "d/a"),
    DAEMON_SETS: (
        DaemonSet(
            namespace="d", name="a", node_constraints=NodeConstraints(tolerations=ordered(ADDED))
        ),
        "d/a",
    ),
    DEPLOYMENTS: (
        ListedDeployment(
            observed=ObservedDeployment(
                namespace="d",
                name="a",
                uid="",
                replicas=1,
                generation=0,
                observed_generation=0,
                pods=0,
                updated=0,
                available=0,
                replica_set="",
            )
        ),
        "d/a",
    ),
    REPLICA_SETS: (
        ListedReplicaSet(namespace="d", name="a", deployment="app", deployment_uid=""),
        "d/a",
    ),
    HORIZONTAL_AUTOSCALERS: (
        HorizontalAutoscaler(namespace="d", name="a", target="app"),
        "d/a",
    ),
    QUOTAS: (ResourceQuota(namespace="d", name="a", hard={}, used={}), "d/a"),
}
REQUIRED: dict[Kind[Any, Any], dict[str, Any]] = {
    REPLICA_SETS: {
        "metadata": {
            "ownerReferences": [{"kind": "Deployment", "name": "app", "controller": True}]
        }
    },
    HORIZONTAL_AUTOSCALERS: {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "app"}}},
}
"""Fields without which an object does not count."""
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource)


def test_kinds_have_unique_names() -> None:
    for names in zip(*((k.name, k.path, k.resource, k.short) for k in KINDS), strict=True):
        assert len(set(names)) == len(KINDS)


def test_objects_of_every_kind_are_used() -> None:
    entries = {kind for kind in vars(kinds).values() if isinstance(kind, Kind)}
    assert entries == {*KINDS, kinds.NODES_WITH_ALL_KEYS}


def test_storage_kinds_of_caveats_exist() -> None:
    assert {kind.name for kind in (CLAIMS, VOLUMES, CSI_NODES)} == set(STORAGE_KINDS)


@every_kind
def test_kind_matches_any_version_of_its_own_api_group(kind: Kind[Any, Any]) -> None:
    for path in kind.paths:
        version = path.removesuffix(f"/{kind.resource}").removeprefix("/apis/")
        assert kind.is_of(version.removeprefix("/api/"))
    assert kind.is_of(f"{kind.group}/v9".removeprefix("/"))
    assert not kind.is_of("longhorn.io/v1")
    assert not kind.is_of(f"x{kind.group}/v1")


@every_kind
async def test_kind_is_listed_decoded_and_stored(kind: Kind[Any, Any]) -> None:
    one, key = EXAMPLES[kind]
    async with FakeApi() as api, opened(api) as client:
        metadata = {"name": "a", "namespace": "d"} if kind.namespaced else {"name": "a"}
        api.put(kind.resource, merged({"metadata": metadata}, REQUIRED.get(kind, {})))
        listed = Listed()
        await listed.read(client, kind)
        assert [call.resource for call in api.calls] == [kind.resource]
    assert [kind.key(found) for found in listed.objects] == [key] == [kind.key(one)]
    inventory = Inventory()
    inventory.replaced(kind, listed.objects, listed.refused)
    assert list(inventory.of(kind)) == [key]
    inventory.snapshot(READ_DEFAULTS)()


BAD = changed(POD, metadata__name="bad", spec__containers=7)
"""An undecodable pod: its page is decoded item by item."""


@pytest.mark.parametrize("beside", [(), (BAD,)])
def test_list_passes_on_finished_pods(beside: tuple[bytes, ...]) -> None:
    done = changed(POD, metadata__name="done", status__phase="Succeeded")
    found = []
    listed = Listed(finished=lambda item: found.append(FINISHED_TOO.model_or_placeholder(item)))
    page = b'{"metadata":{},"items":[%b]}' % b",".join((orjson.dumps(POD), *beside, done))
    listed.take(PODS, page)
    assert [one.name for one in found] == ["done"]
    assert "done" not in {one.name for one in listed.objects}


@every_kind
def test_version_changes_only_when_known_objects_change(kind: Kind[Any, Any]) -> None:
    one, key = EXAMPLES[kind]
    inventory = Inventory()
    seen = [dict(inventory.versions)]

    def changed() -> bool:
        seen.append(dict(inventory.versions))
        assert {of: v for of, v in seen[-1].items() if of is not kind} == {
            of: v for of, v in seen[-2].items() if of is not kind
        }
        return seen[-1] != seen[-2]

    inventory.replaced(kind, [])
    assert changed()
    inventory.deleted(kind, key)
    assert not changed()
    inventory.changed(kind, one)
    assert changed()
    inventory.changed(kind, replace(one))
    assert changed() is (kind is NODES), "an equal Node may be of another version"
    inventory.snapshot(READ_DEFAULTS)
    assert not changed()
    inventory.refused(kind, key, "odd")
    assert changed()
    inventory.refused(kind, key, "odder")
    assert not changed(), "there was nothing to forget"
    inventory.changed(kind, one)
    assert changed()
    inventory.deleted(kind, key)
    assert changed()
    assert len({one[kind] for one in seen}) == 6 + (kind is NODES)


def test_decoding_fault_is_reported_once() -> None:
    inventory, pod = Inventory(), Pod(namespace="d", name="a")
    odd = replace(pod, unreadable="bad")
    assert list(inventory.replaced(PODS, [odd], [("d/b", "worse")])) == [
        ("d/a", "bad"),
        ("d/b", "worse"),
    ]
    assert inventory.unreadable[PODS] == {"d/a": "bad", "d/b": "worse"}
    assert list(inventory.replaced(PODS, [odd], [("d/b", "worst")])) == [("d/b", "worst")]
    assert list(inventory.changed(PODS, odd)) == []
    assert list(inventory.refused(PODS, "d/b", "worst")) == []
    assert list(inventory.refused(PODS, "d/a", "worst")) == [("d/a", "worst")]
    inventory.changed(PODS, pod)
    inventory.deleted(PODS, "d/b")
    assert inventory.unreadable[PODS] == {}
    assert list(inventory.changed(PODS, odd)) == [("d/a", "bad")], "it was well meanwhile"


def test_readiness_changes_version_but_not_cluster_equality() -> None:
    """Plans do not depend on readiness, so a pod that becomes Ready must not cost a new plan."""
    inventory, pod = Inventory(), Pod(namespace="d", name="a", node="n")
    inventory.changed(PODS, pod)
    before, version = inventory.snapshot(READ_DEFAULTS)(), inventory.versions[PODS]
    inventory.changed(PODS, replace(pod, ready=True))
    after = inventory.snapshot(READ_DEFAULTS)()
    assert inventory.versions[PODS] == version + 1
    assert after == before
    assert [pod.ready for pod in after.pods] == [True]
