"""The manifests on a real API server: they are valid and grant exactly the needed permissions."""

import base64
import json
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from core.config.settings import Mode
from core.marks.wellknown import MARK_LABEL
from kube.target import NAMESPACE
from tests.e2e.api import Api, Json
from tests.e2e.install import (
    CONTROLLER_ACCOUNT,
    EXTENDER_ACCOUNT,
    REGISTRATION,
    SECRET,
    WEBHOOK_ACCOUNT,
    installed,
    overlay,
    remove,
    skip_without_policies,
)
from tests.e2e.objects import NODES, PODS, add_nodes, pod
from tests.e2e.plane import ROOT, Plane, until
from tests.e2e.scheduling import start_extender

SHIPPED = ("manifests", "manifests/examples/self-managed", "manifests/examples/managed")
COMPONENTS = sorted(path.name for path in (ROOT / "manifests" / "components").iterdir())
NEED_CRDS = {"cert-manager": "cert-manager.io", "prometheus-operator": "monitoring.coreos.com"}
"""API group of the objects in components for another program, which installs their CRDs."""
Right = tuple[str, str, str]
"""API group, resource, verb."""


@pytest.fixture(autouse=True)
def namespace(plane: Plane) -> Iterator[None]:
    """Create the namespace, because a dry run creates none."""
    plane.kubectl("apply", "-f", "manifests/base/namespace.yaml")
    yield
    remove(plane)


@pytest.mark.parametrize("folder", SHIPPED)
def test_api_server_accepts_manifests(plane: Plane, folder: str) -> None:
    said = plane.kubectl("apply", "--dry-run=server", "-k", folder)
    assert "deployment.apps/ebb-webhook created" in said
    assert "Warning" not in said


@pytest.mark.parametrize("component", [name for name in COMPONENTS if name not in NEED_CRDS])
def test_api_server_accepts_component(plane: Plane, component: str, tmp_path: Path) -> None:
    if component == "admission-policy":
        skip_without_policies(plane)
    overlay(tmp_path, f"components/{component}")
    said = plane.kubectl("apply", "--dry-run=server", "-k", str(tmp_path))
    assert "Warning" not in said


@pytest.mark.parametrize("component", sorted(NEED_CRDS))
def test_only_objects_of_missing_crds_are_rejected(
    plane: Plane, component: str, tmp_path: Path
) -> None:
    overlay(tmp_path, f"components/{component}")
    command = ("apply", "--dry-run=server", "-k", str(tmp_path))
    said = plane.kubectl(*command, check=False)
    assert "Warning" not in said
    refused = [line for line in said.splitlines() if "resource mapping not found" in line]
    assert refused
    assert all(NEED_CRDS[component] in line for line in refused)
    assert "deployment.apps/ebb-webhook created" in said


def test_pods_of_every_deployment_are_admitted(plane: Plane) -> None:
    plane.kubectl("apply", "-k", "manifests/examples/self-managed")
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    kinds = {"ebb-controller", "ebb-webhook", "ebb-extender"}

    def made(found: dict[str, Json]) -> bool:
        return kinds <= {name.rsplit("-", 2)[0] for name in found}

    plane.api.wait(path, made)  # type: ignore[arg-type]
    plane.kubectl("-n", NAMESPACE, "delete", "deployment,pdb", "--all")
    plane.api.wait(path, lambda found: not found)


def test_second_apply_does_not_overwrite_certificates_of_webhook(plane: Plane, api: Api) -> None:
    plane.kubectl("apply", "-k", "manifests")
    api.merge(SECRET, {"data": {"ca.crt": "eA=="}})
    found = api.get(REGISTRATION)
    found["webhooks"][0]["clientConfig"]["caBundle"] = bundle = base64.b64encode(
        plane.authority.certificate.read_bytes()
    ).decode()
    api.call("PUT", REGISTRATION, found)
    plane.kubectl("apply", "-k", "manifests")
    plane.kubectl("-n", NAMESPACE, "delete", "deployment", "--all")
    assert api.get(SECRET)["data"] == {"ca.crt": "eA=="}
    assert api.get(REGISTRATION)["webhooks"][0]["clientConfig"]["caBundle"] == bundle


def test_policy_refuses_every_deletion_of_a_pod_by_controller_alone(
    plane: Plane, api: Api, tmp_path: Path
) -> None:
    overlay(tmp_path, "components/surge-delete", "components/eviction")
    plane.kubectl("apply", "-k", str(tmp_path))
    plane.kubectl("-n", NAMESPACE, "delete", "deployment", "--all")
    add_nodes(api, "a")
    for name in ("kept", "evicted"):
        api.create(PODS, pod(name, node_name="a"))
    account = ("--as", f"system:serviceaccount:{NAMESPACE}:{CONTROLLER_ACCOUNT}")
    delete = ("delete", "pod", "kept", "--wait=false", "--dry-run=server")

    def refused() -> bool:
        said = plane.kubectl(*delete, *account, check=False)
        return "ebb-controller deletes no pods" in said

    until(refused, "the policy is in force")
    said = plane.kubectl("delete", "pods", "--all", *account, check=False)
    assert "ebb-controller" in said
    assert "deleted" not in said
    assert "deleted" in plane.kubectl(*delete), "others may delete it"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}}
    path = tmp_path / "eviction.json"
    path.write_text(json.dumps(eviction))
    evict = ("create", "--raw", f"{PODS}/evicted/eviction", "-f", str(path))
    assert "Success" in plane.kubectl(*evict, *account)
    for one in ("surge-delete", "eviction"):
        plane.kubectl("delete", "clusterrole,clusterrolebinding", f"ebb-controller-{one}")
    kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding"
    plane.kubectl("delete", kinds, "--all")


IDLE: dict[str, set[Right]] = {
    # Used when a Node has changed and the watch has not reported it yet.
    CONTROLLER_ACCOUNT: {("", "nodes", "get")}
    # Used when the API server serves these kinds; here their lists return 404.
    | {
        ("autoscaling.x-k8s.io", "capacitybuffers", "watch"),
        ("karpenter.sh", "nodepools", "watch"),
        ("karpenter.sh", "nodeclaims", "watch"),
    },
    WEBHOOK_ACCOUNT: set(),
    EXTENDER_ACCOUNT: set(),
}
"""Granted permissions that this test does not use, by account."""
ASKING: dict[str, set[Right]] = {
    # Checks whether pods may be patched, for `podDeletionCost: auto`; every user may call it.
    CONTROLLER_ACCOUNT: {("authorization.k8s.io", "selfsubjectaccessreviews", "create")},
    WEBHOOK_ACCOUNT: set(),
    EXTENDER_ACCOUNT: set(),
}
"""Used permissions that every account has, by account."""
WATCHED = {("", "nodes", "watch"), ("", "pods", "watch")}
"""Watches of the extender, which begin after it is ready."""
EVENT: Right = ("events.k8s.io", "events", "create")


def test_accounts_have_exactly_used_permissions(plane: Plane, api: Api) -> None:
    offset = len(plane.audit.read_bytes())
    folder = "manifests/examples/self-managed"

    def used(account: str) -> set[Right]:
        return rights_of(asked_by(plane, account, offset))

    with installed(plane, folder=folder, mode=Mode.ENFORCE, usableCapacity="all") as programs:
        add_nodes(api, "a", "b")
        api.create(PODS, pod("p", node_name="a"))

        def marked(found: dict[str, Json]) -> bool:
            return any(MARK_LABEL in one["metadata"]["labels"] for one in found.values())

        api.wait(NODES, marked)  # type: ignore[arg-type]
        until(lambda: EVENT in used(CONTROLLER_ACCOUNT), "an Event about a Node")
        api.merge(SECRET, {"data": {"ca.crt": "Z2FyYmFnZQ=="}})
        until(lambda: EVENT in used(WEBHOOK_ACCOUNT), "an Event about a CA that was replaced")
        extender = start_extender(plane, score="pack").wait_ready()
        until(lambda: used(EXTENDER_ACCOUNT) >= WATCHED, "the extender's watches")
        extender.stop(signal.SIGKILL)
        assert [ebb.metric("ebb_event_write_failures_total") for ebb in programs] == [0, 0]
        programs.controller.stop()  # at its end it stores the figures of the day
    for account in (CONTROLLER_ACCOUNT, WEBHOOK_ACCOUNT, EXTENDER_ACCOUNT):
        refused = [
            event
            for event in asked_by(plane, account, offset)
            if event["responseStatus"]["code"] == 403
        ]
        assert not refused, "a right is missing"
        assert used(account) >= ASKING[account]
        assert used(account) - ASKING[account] | IDLE[account] == granted(plane, folder, account)


def asked_by(plane: Plane, account: str, offset: int) -> list[Json]:
    """Return the audit events of an account since *offset*."""
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    return [event for event in plane.audited(offset) if event["user"]["username"] == user]


def rights_of(events: Iterable[Json]) -> set[Right]:
    return {
        (event["objectRef"].get("apiGroup", ""), event["objectRef"]["resource"], event["verb"])
        for event in events
    }


def granted(plane: Plane, folder: str, account: str) -> set[Right]:
    """Return every permission that the manifests grant to an account."""
    objects = list(yaml.safe_load_all(plane.kubectl("kustomize", folder)))
    roles = {
        (one["kind"], one["metadata"]["name"]): one for one in objects if "Role" in one["kind"]
    }
    found: set[Right] = set()
    for one in objects:
        bound = one["kind"].endswith("RoleBinding") and any(
            subject["name"] == account for subject in one["subjects"]
        )
        if bound:
            for rule in roles[one["roleRef"]["kind"], one["roleRef"]["name"]]["rules"]:
                found |= {
                    (group, resource, verb)
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    return found
