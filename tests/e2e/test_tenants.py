"""Hostile objects of a tenant and of a kubelet do not disturb Ebb or other users."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from core.config.settings import Mode
from core.marks.mark import mark_of
from core.marks.wellknown import KEEP_ANNOTATION
from tests.e2e.api import MERGE, Api, Json, RefusedError
from tests.e2e.attacks import (
    ATTACKS,
    DEPTH_MAX,
    FIRST_CONSUMER,
    KUBELET,
    ROGUE,
    TENANT,
    THEIR_CLAIMS,
    THEIR_PODS,
    Attack,
)
from tests.e2e.install import Programs, installed
from tests.e2e.objects import NODES, PODS, add_nodes, clear, pod
from tests.e2e.plane import Plane, until

RECONCILIATIONS = "ebb_reconcile_duration_seconds_count"
GOING = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
RSS_MAX_BYTES = 256 * 1024**2
VERDICTS = {"going": "PreferNoSchedule", "kept": None, "opted-out": None}
"""Expected marks of the nodes that are not attacked."""
WRITES: tuple[Json, ...] = (
    {"spec": {"unschedulable": True}},
    {"spec": {"unschedulable": None, "taints": None}},
    {"spec": {"taints": [GOING]}},
    {"metadata": {"annotations": {"theirs": "yes"}}},
)
"""Writes of other clients on Nodes, which must succeed."""


@dataclass(frozen=True)
class Ground:
    """The cluster under attack."""

    plane: Plane
    programs: Programs
    users: dict[str, Api]

    @property
    def api(self) -> Api:
        """Return the API as administrator."""
        return self.plane.api

    def verdicts(self) -> dict[str, str | None]:
        """Return the marks of the nodes that are not attacked."""
        found = {one["metadata"]["name"]: one["metadata"] for one in self.api.get(NODES)["items"]}
        marks = {name: mark_of(found[name].get("labels") or {}) for name in VERDICTS}
        return {name: mark.value if mark else None for name, mark in marks.items()}

    def dry_runs(self) -> None:
        """Write on the marked nodes as another client, in dry runs."""
        for name in (ROGUE, "going"):
            for body in WRITES:
                self.api.call("PATCH", f"{NODES}/{name}?dryRun=All", body, content=MERGE)

    def undo(self, attack: Attack) -> None:
        """Undo the attack, and wait for the initial state."""
        for path in (THEIR_PODS, THEIR_CLAIMS):
            self.api.delete(path, gracePeriodSeconds=0)
            self.api.wait(path, lambda found: not found)
        if words := attack.words():
            forgotten = {"metadata": {"annotations": dict.fromkeys(words)}}
            self.api.merge(f"{NODES}/{ROGUE}", forgotten)
        elif attack.who == KUBELET and not attack.refused:
            self.api.delete(f"{PODS}/on-{ROGUE}", gracePeriodSeconds=0)
            self.api.delete(f"{NODES}/{ROGUE}")
            self.api.wait(NODES, lambda found: ROGUE not in found)
            self.add_rogue()
        self.settle()

    def add_rogue(self) -> None:
        """Create the attacked node."""
        add_nodes(self.api, ROGUE)
        self.api.create(PODS, pod(f"on-{ROGUE}", node_name=ROGUE, cpu="100m"))

    def settle(self) -> None:
        """Wait until the rogue node is marked, and the other nodes have their expected marks."""
        self.api.wait(NODES, lambda found: mark_of(found[ROGUE]["metadata"]["labels"]))
        until(lambda: self.verdicts() == VERDICTS, "the others' verdicts")


@pytest.fixture(scope="module", autouse=True)
def deep() -> Iterator[None]:
    """Raise the recursion limit, since Python's JSON module is recursive."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(4 * DEPTH_MAX)
    yield
    sys.setrecursionlimit(before)


@pytest.fixture(scope="module")
def ground(plane: Plane) -> Iterator[Ground]:
    users = {TENANT: tenant(plane), KUBELET: kubelet(plane)}
    with installed(plane, mode=Mode.ENFORCE, usableCapacity="all") as programs:
        found = Ground(plane, programs, users)
        api = plane.api
        add_nodes(api, "going")
        add_nodes(api, "kept", cpu="8")  # its pod fits on no other node
        add_nodes(api, "opted-out", annotations={KEEP_ANNOTATION: "true"})
        for name, cpu in (("going", "100m"), ("kept", "5"), ("opted-out", "1")):
            api.create(PODS, pod(f"on-{name}", node_name=name, cpu=cpu))
        found.add_rogue()
        found.settle()
        yield found
        for path in (THEIR_PODS, THEIR_CLAIMS):
            plane.api.delete(path, gracePeriodSeconds=0)
        clear(plane.api)


def tenant(plane: Plane) -> Api:
    """Create a namespace with an account that may create pods and claims there."""
    plane.kubectl("create", "namespace", TENANT)
    plane.kubectl("-n", TENANT, "create", "serviceaccount", "t")
    plane.kubectl("-n", TENANT, "create", "role", "t", "--verb=create",
                  "--resource=pods,persistentvolumeclaims")  # fmt: skip
    plane.kubectl("-n", TENANT, "create", "rolebinding", "t", "--role=t",
                  f"--serviceaccount={TENANT}:t")  # fmt: skip
    plane.api.create("/apis/storage.k8s.io/v1/storageclasses", {
        "metadata": {"name": FIRST_CONSUMER}, "provisioner": "e2e.example.org/none",
        "volumeBindingMode": "WaitForFirstConsumer",
    })  # fmt: skip
    accounts = f"/api/v1/namespaces/{TENANT}/serviceaccounts"
    plane.api.wait(accounts, lambda found: "default" in found)
    return plane.api_as(None, plane.token(TENANT, "t"))


def kubelet(plane: Plane) -> Api:
    return plane.api_as(plane.user(f"system:node:{ROGUE}", group="system:nodes"))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_ebb_continues_when_tenant_or_kubelet_writes_hostile_object(
    ground: Ground, attack: Attack
) -> None:
    try:
        assert carry_out(ground, attack) is not attack.refused
        goes_on(ground, attack.name)
    finally:
        ground.undo(attack)


def test_api_server_stores_deeply_nested_object(ground: Ground) -> None:
    """Otherwise the attacks with deeply nested objects would have no effect."""
    (attack,) = [one for one in ATTACKS if one.name == "pod whose managedFields nest 9,000 deep"]
    try:
        carry_out(ground, attack)
        assert ground.api.text(THEIR_PODS).count('{"f:a":') >= 2 * DEPTH_MAX
    finally:
        ground.undo(attack)


def carry_out(ground: Ground, attack: Attack) -> bool:
    """Carry out an attack; return whether the API server has stored any object."""
    stored = False
    for call in attack.calls():
        try:
            ground.users[attack.who].call(call.method, call.path, call.body, content=call.content)
            stored = True
        except RefusedError as fault:
            if fault.status not in (400, 403, 422):
                raise
    return stored


def goes_on(ground: Ground, what: str) -> None:
    """Check that all programs still work. Raises: AssertionError."""
    controller = ground.programs.controller
    seen = controller.metric(RECONCILIATIONS)
    until(
        lambda: controller.metric(RECONCILIATIONS) >= seen + 2,
        f"reconciliations after {what}",
    )
    assert controller.metric("ebb_leader") == 1
    assert ground.verdicts() == VERDICTS
    ground.dry_runs()
    for ebb in ground.programs:
        assert ebb.get("/readyz")[0] == 200
        assert ebb.program.rss_bytes() < RSS_MAX_BYTES
