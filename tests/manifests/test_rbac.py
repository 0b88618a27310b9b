"""Who may do what: the whole table, so that a right that is added is added here too."""

from typing import Any

import pytest

from controller.names import LEASE
from core.edge.decode.kinds import BUDGETS, KINDS, NODES, PODS, Kind
from core.edge.kube.names import NAMESPACE
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


EVENTS: Rule = ("events.k8s.io", "events", (), ("create",))
SECRET: Rule = ("", "secrets", (names.SECRET,), ("get", "update"))
REGISTRATION: Rule = (
    REGISTRATIONS,
    "mutatingwebhookconfigurations",
    (names.REGISTRATION,),
    ("get", "patch"),
)
CLUSTER: dict[str, list[Rule]] = {
    "ebb-controller": [
        followed(kind, *(("get", "list", "watch", "patch") if kind is NODES else FOLLOW))
        for kind in KINDS
        if kind is not BUDGETS
    ],
    "ebb-controller-events": [EVENTS],
    "ebb-controller-scale-in": [("", "pods", (), ("get", "patch"))],
    "ebb-controller-eviction": [
        ("", "pods/eviction", (), ("create",)),
        followed(BUDGETS, *FOLLOW),
    ],
    "ebb-webhook-registration": [REGISTRATION],
    "ebb-extender": [followed(NODES, *FOLLOW)],
    "ebb-extender-pack": [followed(PODS, *FOLLOW)],
}
ROLES: dict[tuple[str, str], list[Rule]] = {
    (NAMESPACE, "ebb-controller-lease"): [
        (LEASES, "leases", (), ("create",)),
        (LEASES, "leases", (LEASE,), ("get", "update")),
    ],
    (NAMESPACE, "ebb-webhook-certs"): [SECRET, EVENTS],
    (NAMESPACE, "ebb-controller-buffers"): [
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


def permissions(objects: list[Json], account: str) -> list[Rule]:
    """Return every rule that a binding gives to this ServiceAccount."""
    return [
        rule
        for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding")
        if account in {subject["name"] for subject in binding["subjects"]}
        for rule in rules(
            find(
                objects,
                binding["roleRef"]["kind"],
                binding["roleRef"]["name"],
                binding["metadata"].get("namespace"),
            )
        )
    ]


def test_the_webhook_keeps_its_certificates_and_reports_events_and_no_more(
    objects: list[Json], request: pytest.FixtureRequest
) -> None:
    without = {"admission-policy", "cert-manager"} & {request.node.callspec.params["objects"]}
    allowed = [] if without else [SECRET, REGISTRATION, EVENTS]
    assert sorted(permissions(objects, "ebb-webhook")) == sorted(allowed)


def test_the_controller_has_nothing_of_the_webhooks_certificates(objects: list[Json]) -> None:
    found = permissions(objects, "ebb-controller")
    assert EVENTS in found
    resources = {(group, resource) for group, resource, _, _ in found}
    assert resources.isdisjoint({SECRET[:2], REGISTRATION[:2]})


CONTROLLER = {"ebb-controller", "ebb-controller-events"}
INSTALLED = CONTROLLER | {"ebb-webhook-registration"}


@pytest.mark.parametrize(
    ("component", "expected"),
    [
        ("", INSTALLED),
        ("extender", INSTALLED | {"ebb-extender", "ebb-extender-pack"}),
        ("capacity-buffers", INSTALLED),
        ("cert-manager", INSTALLED - {"ebb-webhook-registration"}),
        ("admission-policy", CONTROLLER),
        ("scale-in-order", INSTALLED | {"ebb-controller-scale-in"}),
        ("eviction", INSTALLED | {"ebb-controller-eviction"}),
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
    assert held == ({"ebb-controller-eviction"} if name == "eviction" else set())
