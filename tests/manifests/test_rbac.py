"""RBAC: a table of all rules, so that a new permission must be added here too."""

import re
from typing import Any

import pytest
import yaml

from controller.names import CONFIG_MAP as CONFIGURATION
from controller.names import HISTORY, LEASE, TODAY
from kube.cluster_kinds import KINDS, NEEDED, ONLY, SURGE_KINDS
from kube.decode.kinds import BUDGETS, NODES, PODS, Kind
from kube.decode.selecting import CONTROLLERS, OBSERVERS
from kube.target import NAMESPACE
from tests.manifests.kustomize import ROOT, Json, find, of_kind, render
from tests.manifests.test_objects import EVERYTHING
from webhook import names

Rule = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""API group, resource, resource names (empty: all), verbs."""

LEASES = "coordination.k8s.io"
REGISTRATIONS = "admissionregistration.k8s.io"


FOLLOW = ("list", "watch")


def followed(kind: Kind[Any, Any], *verbs: str) -> Rule:
    """Return the rule for a kind that a program lists and watches."""
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
WATCHED = {followed(kind)[:2] for kind in KINDS if kind is not BUDGETS}
SELECTING: list[Rule] = [
    (*kind.access, (), ("list",))
    for kind in (*CONTROLLERS, *OBSERVERS)
    if kind.access not in WATCHED
]
"""What may select a pod, listed when a move begins, beside the kinds that are watched."""
CLUSTER: dict[str, list[Rule]] = {
    "ebb-controller": [
        followed(kind, *(("get", "list", "watch", "patch") if kind is NODES else FOLLOW))
        for kind in KINDS
        if kind not in ONLY and kind not in NEEDED
    ],
    "ebb-controller-events": [EVENTS],
    "ebb-controller-scale-in": [("", "pods", (), ("get", "patch"))],
    "ebb-controller-eviction": [
        ("", "pods/eviction", (), ("create",)),
        followed(BUDGETS, *FOLLOW),
    ],
    "ebb-controller-surge": [
        ("", "pods", (), ("get", "patch")),
        *(followed(kind, *FOLLOW) for kind in SURGE_KINDS),
        *SELECTING,
    ],
    "ebb-controller-surge-delete": [("", "pods", (), ("delete",))],
    "ebb-webhook-registration": [REGISTRATION],
    "ebb-extender": [followed(NODES, *FOLLOW)],
    "ebb-extender-pack": [followed(PODS, *FOLLOW)],
}
ROLES: dict[tuple[str, str], list[Rule]] = {
    (NAMESPACE, "ebb-controller-lease"): [
        (LEASES, "leases", (), ("create",)),
        (LEASES, "leases", (LEASE,), ("get", "update")),
    ],
    (NAMESPACE, "ebb-controller-history"): [
        ("", "configmaps", (TODAY, HISTORY), ("get", "patch"))
    ],
    ("kube-system", "ebb-controller-autoscaler"): [
        ("", "configmaps", ("cluster-autoscaler-status",), FOLLOW)
    ],
    (NAMESPACE, "ebb-webhook-certs"): [SECRET, EVENTS],
    (NAMESPACE, "ebb-controller-buffers"): [
        ("", "podtemplates", (), ("create", "delete")),
        ("autoscaling.x-k8s.io", "capacitybuffers", (), ("create", "patch", "delete")),
    ],
    (NAMESPACE, "ebb-viewer"): [
        (LEASES, "leases", (LEASE,), ("get",)),
        ("", "configmaps", (CONFIGURATION, TODAY, HISTORY), ("get",)),
        ("", "pods", (), ("get",)),
        ("", "pods/portforward", (), ("get", "create")),
    ],
}

FOR_PEOPLE = ("Role", "ebb-viewer")
"""The Role that operators bind to the people who run `ebb`."""


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


def test_rules_have_no_wildcard(objects: list[Json]) -> None:
    for role in of_kind(objects, "Role", "ClusterRole"):
        for rule in role["rules"]:
            assert not any("*" in word for words in rule.values() for word in words)


def test_roles_have_exactly_expected_rules(objects: list[Json]) -> None:
    for role in of_kind(objects, "ClusterRole"):
        assert rules(role) == CLUSTER[role["metadata"]["name"]]
    for role in of_kind(objects, "Role"):
        metadata = role["metadata"]
        assert rules(role) == ROLES[metadata["namespace"], metadata["name"]]


def test_every_role_is_bound_to_one_existing_serviceaccount(objects: list[Json]) -> None:
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
    found = {(role["kind"], role["metadata"]["name"]) for role in roles}
    assert found - bound == {FOR_PEOPLE}


def permissions(objects: list[Json], account: str) -> list[Rule]:
    """Return every rule that is bound to a ServiceAccount."""
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


def test_webhook_may_only_write_its_certificates_and_events(
    objects: list[Json], request: pytest.FixtureRequest
) -> None:
    without = {"admission-policy", "cert-manager"} & {request.node.callspec.params["objects"]}
    allowed = [] if without else [SECRET, REGISTRATION, EVENTS]
    assert sorted(permissions(objects, "ebb-webhook")) == sorted(allowed)


def test_controller_may_not_access_certificates_of_webhook(objects: list[Json]) -> None:
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
        ("pod-deletion-cost", INSTALLED | {"ebb-controller-scale-in"}),
        ("eviction", INSTALLED | {"ebb-controller-eviction"}),
        ("surge", INSTALLED | {"ebb-controller-surge"}),
        ("surge-delete", INSTALLED | {"ebb-controller-surge-delete"}),
    ],
)
def test_component_installs_expected_cluster_roles(component: str, expected: set[str]) -> None:
    found = of_kind(render(component), "ClusterRole")
    assert {role["metadata"]["name"] for role in found} == expected


def test_no_role_allows_secrets_when_cert_manager_is_used() -> None:
    found = [rule for role in of_kind(render("cert-manager"), "Role") for rule in rules(role)]
    assert "secrets" not in {resource for _, resource, _, _ in found}


PODS_RIGHTS = {
    "pod-deletion-cost": {("ebb-controller-scale-in", "pods", "patch")},
    "surge": {("ebb-controller-surge", "pods", "patch")},
    "surge-delete": {("ebb-controller-surge-delete", "pods", "delete")},
    "eviction": {("ebb-controller-eviction", "pods/eviction", "create")},
}


@pytest.mark.parametrize("name", EVERYTHING, ids=lambda name: name or "base")
def test_pods_and_workloads_may_be_written_only_with_components_for_it(name: str) -> None:
    roles = of_kind(render(name), "Role", "ClusterRole")
    allowed = {
        (role["metadata"]["name"], resource, verb)
        for role in roles
        for group, resource, _, verbs in rules(role)
        for verb in verbs
        if (group == "apps" or resource.startswith("pods")) and verb not in ("get", *FOLLOW)
        if role["metadata"]["name"] != FOR_PEOPLE[1]
    }
    both = PODS_RIGHTS["pod-deletion-cost"] | PODS_RIGHTS["surge"]
    assert allowed == (both if name == "managed" else PODS_RIGHTS.get(name, set()))


def test_history_remains_when_installation_is_applied_again() -> None:
    for name in (TODAY, HISTORY):
        config_map = find(render(""), "ConfigMap", name)
        assert not {"data", "binaryData", "immutable"} & config_map.keys()


def test_permission_to_delete_pods_comes_with_policy_that_refuses_every_use() -> None:
    objects = render("surge-delete")
    name = "ebb-controller-surge-delete"
    binding = find(objects, "ValidatingAdmissionPolicyBinding", name)
    assert binding["spec"] == {"policyName": name, "validationActions": ["Deny"]}
    spec = find(objects, "ValidatingAdmissionPolicy", name)["spec"]
    assert spec["failurePolicy"] == "Fail"
    (rule,) = spec["matchConstraints"]["resourceRules"]
    (granted,) = rules(find(objects, "ClusterRole", name))
    assert (rule["apiGroups"], rule["resources"]) == ([granted[0]], [granted[1]])
    assert rule["operations"] == ["DELETE"]
    assert [one["expression"] for one in spec["validations"]] == ["false"]
    (condition,) = spec["matchConditions"]
    pattern = re.search(r'username\.matches\("(.*)"\)', condition["expression"])
    assert pattern
    account = "system:serviceaccount:{}:ebb-controller".format
    for namespace in (NAMESPACE, "elsewhere"):
        assert re.search(pattern[1], account(namespace))
    for other in (
        account("a") + "s",
        account("a:b"),
        "system:serviceaccount:a:b",
        "ebb-controller",
    ):
        assert not re.search(pattern[1], other)


def test_documented_clusterrole_allows_all_lists_of_commands() -> None:
    page = (ROOT / "docs" / "install-reference.md").read_text("utf-8")
    (text,) = (
        one
        for one in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
        if "ebb-cluster-viewer" in one
    )
    rules = yaml.safe_load(text)["rules"]
    assert all(rule["verbs"] == ["list"] for rule in rules)
    found = {(rule["apiGroups"][0], one) for rule in rules for one in rule["resources"]}
    assert found == {followed(kind)[:2] for kind in KINDS}
