"""Who may do what: the whole table, so that a right that is added is added here too."""

from typing import Any

import pytest

from core.edge.decode.kinds import KINDS, NODES, PODS, Kind
from tests.manifests.kustomize import Json, find, of_kind, render
from tests.manifests.test_objects import EVERYTHING
from webhook import names

Rule = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""API group, resource, names (none: all), verbs."""

LEASES = "coordination.k8s.io"
REGISTRATIONS = "admissionregistration.k8s.io"


FOLLOW = ("list", "watch")


def followed(kind: Kind[Any, Any], *verbs: str) -> Rule:
    """Return the right to what the program lists and watches, by the table of kinds."""
    _, root, group, *_ = kind.path.split("/")
    return ("" if root == "api" else group, kind.resource, (), verbs)


CLUSTER: dict[str, list[Rule]] = {
    "ebb-webhook": [
        followed(kind, *(("get", "list", "watch", "patch") if kind is NODES else FOLLOW))
        for kind in KINDS
    ],
    "ebb-webhook-events": [("events.k8s.io", "events", (), ("create",))],
    "ebb-webhook-registration": [
        (
            REGISTRATIONS,
            "mutatingwebhookconfigurations",
            (names.REGISTRATION,),
            ("get", "patch"),
        ),
    ],
    "ebb-webhook-scale-in": [("", "pods", (), ("get", "patch"))],
    "ebb-webhook-eviction": [("", "pods/eviction", (), ("create",))],
    "ebb-extender": [followed(NODES, *FOLLOW)],
    "ebb-extender-pack": [followed(PODS, *FOLLOW)],
}
ROLES: dict[tuple[str, str], list[Rule]] = {
    (names.NAMESPACE, "ebb-webhook-lease"): [
        (LEASES, "leases", (), ("create",)),
        (LEASES, "leases", (names.LEASE,), ("get", "update")),
    ],
    (names.NAMESPACE, "ebb-webhook-certs"): [("", "secrets", (names.SECRET,), ("get", "update"))],
    (names.NAMESPACE, "ebb-webhook-buffers"): [
        ("", "podtemplates", (), ("create", "delete")),
        ("autoscaling.x-k8s.io", "capacitybuffers", (), ("create", "patch", "delete")),
    ],
}


@pytest.fixture(params=EVERYTHING, ids=lambda name: name or "base")
def objects(request: pytest.FixtureRequest) -> list[Json]:
    return render(request.param)


def rules(role: Json) -> list[Rule]:
    found = []
    for rule in role["rules"]:
        assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}
        (group,), (resource,) = rule["apiGroups"], rule["resources"]
        listed = tuple(rule.get("resourceNames", ())), tuple(rule["verbs"])
        found.append((group, resource, *listed))
    return found


def test_no_right_is_a_wildcard(objects: list[Json]) -> None:
    for role in of_kind(objects, "Role", "ClusterRole"):
        for rule in role["rules"]:
            assert not any("*" in word for words in rule.values() for word in words)


def test_every_right_is_in_the_table(objects: list[Json]) -> None:
    for role in of_kind(objects, "ClusterRole"):
        assert rules(role) == CLUSTER[role["metadata"]["name"]]
    for role in of_kind(objects, "Role"):
        metadata = role["metadata"]
        assert rules(role) == ROLES[metadata["namespace"], metadata["name"]]


def test_every_role_is_bound_to_one_account_that_is_there(objects: list[Json]) -> None:
    for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        metadata, reference = binding["metadata"], binding["roleRef"]
        (subject,) = binding["subjects"]
        assert subject["kind"] == "ServiceAccount"
        find(objects, "ServiceAccount", subject["name"], subject["namespace"])
        assert metadata["name"].startswith(subject["name"])
        assert reference["name"] == metadata["name"]
        role = find(objects, reference["kind"], reference["name"], metadata.get("namespace"))
        assert binding["kind"] == f"{role['kind']}Binding"
    roles, bindings = of_kind(objects, "Role", "ClusterRole"), of_kind(objects, "RoleBinding")
    bindings += of_kind(objects, "ClusterRoleBinding")
    bound = {(item["roleRef"]["kind"], item["roleRef"]["name"]) for item in bindings}
    assert {(role["kind"], role["metadata"]["name"]) for role in roles} <= bound


INSTALLED = {"ebb-webhook", "ebb-webhook-events", "ebb-webhook-registration"}


@pytest.mark.parametrize(
    ("component", "expected"),
    [
        ("", INSTALLED),
        ("extender", INSTALLED | {"ebb-extender", "ebb-extender-pack"}),
        ("capacity-buffers", INSTALLED),
        ("cert-manager", INSTALLED - {"ebb-webhook-registration"}),
        ("admission-policy", INSTALLED),
        ("scale-in-order", INSTALLED | {"ebb-webhook-scale-in"}),
        ("eviction", INSTALLED | {"ebb-webhook-eviction"}),
    ],
)
def test_which_cluster_roles_are_there(component: str, expected: set[str]) -> None:
    found = of_kind(render(component), "ClusterRole")
    assert {role["metadata"]["name"] for role in found} == expected


def test_with_cert_manager_no_right_on_secrets_is_left() -> None:
    found = [rule for role in of_kind(render("cert-manager"), "Role") for rule in rules(role)]
    assert "secrets" not in {resource for _, resource, _, _ in found}


@pytest.mark.parametrize("name", EVERYTHING, ids=lambda name: name or "base")
def test_no_program_may_evict_but_with_the_component_that_says_so(name: str) -> None:
    roles = of_kind(render(name), "Role", "ClusterRole")
    held = {
        role["metadata"]["name"]
        for role in roles
        for _, resource, _, verbs in rules(role)
        if resource == "pods/eviction" or (resource == "pods" and "delete" in verbs)
    }
    assert held == ({"ebb-webhook-eviction"} if name == "eviction" else set())
