"""The keys in the ValidatingAdmissionPolicies compared with the keys that the programs write.

The e2e tests check their answers on a real API server.
"""

import re

import pytest

from core.marks.mark import Mark
from core.marks.wellknown import (
    COST_ANNOTATION,
    COST_OURS_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
    MOVE_ANNOTATION,
    OLD_PROTECTION_ANNOTATION,
    OUR_ANNOTATIONS,
    OUR_PREFIXES,
    PROTECTION_ANNOTATION,
    PROTECTION_KEYS,
    REMOVAL_DISABLED,
    TAINT_KEY,
)
from core.model.pod import DETACHED_LABEL, TEMPLATE_LABEL
from kube.target import NAMESPACE
from tests.manifests.kustomize import Json, find, of_kind, render
from tests.manifests.test_objects import EVERYTHING

NODES, PODS, REGISTRATION = (
    "ebb-controller-nodes",
    "ebb-controller-pods",
    "ebb-webhook-registration",
)
ACCOUNTS = {
    NODES: {"ebb-controller", "ebb-cleanup"},
    PODS: {"ebb-controller", "ebb-cleanup"},
    REGISTRATION: {"ebb-webhook"},
}


def spec(name: str) -> Json:
    found: Json = find(render(""), "ValidatingAdmissionPolicy", name)["spec"]
    return found


def variables(name: str) -> dict[str, str]:
    return {one["name"]: one["expression"] for one in spec(name)["variables"]}


def texts(expression: str) -> set[str]:
    """Return the texts in an expression."""
    return set(re.findall(r'"([^"]*)"', expression))


def test_keys_of_nodes_match_code() -> None:
    found = variables(NODES)
    assert texts(found["key"]) == {TAINT_KEY}
    assert texts(found["label"]) == {MARK_LABEL}
    assert texts(found["record"]) == {PROTECTION_ANNOTATION}
    assert found["written"].startswith("[variables.record, ")
    written = {PROTECTION_ANNOTATION, *texts(found["written"])}
    assert written == {*OUR_ANNOTATIONS} - {OLD_PROTECTION_ANNOTATION}
    assert texts(found["oldRecord"]) == {OLD_PROTECTION_ANNOTATION}
    assert re.findall('"([^"]*)"', found["protections"]) == [*PROTECTION_KEYS]
    assert PROTECTION_KEYS[1] == DO_NOT_DISRUPT_ANNOTATION
    for name in ("recorded", "oldRecorded"):
        assert texts(found[name]) == {f" {DO_NOT_DISRUPT_ANNOTATION}", ""}
    assert texts(found["prefixes"]) == {*OUR_PREFIXES}
    assert texts(found["optOuts"]) == {KEEP_ANNOTATION, REMOVAL_DISABLED}
    assert KEEP_ANNOTATION in texts(found["changedAnnotations"])
    effects = [texts(one["expression"]) for one in spec(NODES)["validations"]]
    assert [one & {*Mark} for one in effects if one & {*Mark}] == [{*Mark}, {*Mark}]
    assert not any("NoExecute" in one for one in effects)


def test_keys_of_pods_match_code() -> None:
    found = variables(PODS)
    expected = {
        "hashKey": TEMPLATE_LABEL,
        "detachedKey": DETACHED_LABEL,
        "costKey": COST_ANNOTATION,
        "oursKey": COST_OURS_ANNOTATION,
        "moveKey": MOVE_ANNOTATION,
    }
    assert {name: found[name] for name in expected} == {
        name: f'"{key}"' for name, key in expected.items()
    }
    keys = [name for name in found if name.endswith("Key")]
    assert keys == [*expected]


@pytest.mark.parametrize("name", ACCOUNTS)
def test_policy_guards_accounts_in_any_namespace_and_refuses(name: str) -> None:
    found = spec(name)
    assert found["failurePolicy"] == "Fail"
    (condition,) = found["matchConditions"]
    pattern = re.fullmatch(
        r'request\.userInfo\.username\.matches\("(.*)"\)', condition["expression"]
    )
    assert pattern
    account = "system:serviceaccount:{}:{}".format
    programs = {"ebb-controller", "ebb-webhook", "ebb-extender", "ebb-cleanup"}
    for namespace in (NAMESPACE, "elsewhere"):
        guarded = {one for one in programs if re.search(pattern[1], account(namespace, one))}
        assert guarded == ACCOUNTS[name]
    for other in (
        account("a", "ebb-controllers"),
        account("a:b", "ebb-controller"),
        "ebb-webhook",
    ):
        assert not re.search(pattern[1], other)
    (binding,) = (
        one["spec"]
        for one in of_kind(render(""), "ValidatingAdmissionPolicyBinding")
        if one["metadata"]["name"] == name
    )
    assert binding == {"policyName": name, "validationActions": ["Deny"]}


def test_variables_use_only_earlier_variables() -> None:
    for name in (NODES, PODS, REGISTRATION):
        known: set[str] = set()
        for variable, expression in variables(name).items():
            assert set(re.findall(r"variables\.(\w+)", expression)) <= known
            known.add(variable)
        for validation in spec(name)["validations"]:
            text = validation["expression"] + validation.get("messageExpression", "")
            assert set(re.findall(r"variables\.(\w+)", text)) <= known


@pytest.mark.parametrize("name", EVERYTHING, ids=lambda name: name or "base")
def test_every_account_that_may_patch_is_guarded(name: str) -> None:
    objects = render(name)
    guarded = {one["metadata"]["name"] for one in of_kind(objects, "ValidatingAdmissionPolicy")}
    resources = {"nodes": NODES, "pods": PODS, "mutatingwebhookconfigurations": REGISTRATION}
    needed = {
        resources[resource]
        for role in of_kind(objects, "ClusterRole", "Role")
        for rule in role["rules"]
        if {"patch", "update"} & {*rule["verbs"]}
        for resource in rule["resources"]
        if resource in resources
    }
    assert NODES in needed
    assert needed <= guarded
