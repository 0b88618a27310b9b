"""The policies of manifests/base/write-policies on a real API server, with tokens of the accounts.

All other e2e tests run with the policies too, and so check that they let every write of Ebb pass.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    COST_OURS_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
    MOVE_ANNOTATION,
    OLD_PROTECTION_ANNOTATION,
    OUR_PREFIXES,
    PROTECTION_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
)
from kube.target import NAMESPACE
from tests.e2e import forbidden
from tests.e2e.api import STRATEGIC, Api, Json, RefusedError
from tests.e2e.forbidden import (
    AWAY,
    BACK,
    COST,
    DETACHED,
    DETACHED_OWNER,
    MARKED,
    NOTE,
    OF_SET,
    OPTED_OUT,
    PLAIN,
    PROTECTED,
    Refused,
)
from tests.e2e.install import (
    ADDED,
    CONTROLLER_ACCOUNT,
    REGISTRATION,
    WEBHOOK_ACCOUNT,
    adding_label,
    answer,
    apply,
    as_account,
    overlay,
    remove,
)
from tests.e2e.objects import NODES, PODS, TAINT, THEIRS, clear
from tests.e2e.plane import Plane, until
from tests.e2e.test_install_doc import said
from tests.support.pages import console

AUDIT = console("docs/install-reference.md", '"Audit"')
CLEANUP_ACCOUNT = "ebb-cleanup"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
REGISTRATIONS = REGISTRATION.rpartition("/")[0]
OLD_MARK = f"{OUR_PREFIXES[1]}drain"
ACCOUNTS = (CONTROLLER_ACCOUNT, CLEANUP_ACCOUNT)


@pytest.fixture(scope="module")
def guarded(plane: Plane) -> Iterator[Plane]:
    """Install the manifests with the component surge and the account of the clean-up."""
    folder = plane.folder / "write-policies"
    overlay(folder, "components/surge", "components/pod-deletion-cost")
    apply(plane, str(folder))
    as_cleanup = f"--serviceaccount={NAMESPACE}:{CLEANUP_ACCOUNT}"
    plane.kubectl("-n", NAMESPACE, "create", "serviceaccount", CLEANUP_ACCOUNT)
    may = ("--verb=get,list,patch", "--resource=nodes,pods")
    plane.kubectl("create", "clusterrole", CLEANUP_ACCOUNT, *may)
    bound = f"--clusterrole={CLEANUP_ACCOUNT}"
    plane.kubectl("create", "clusterrolebinding", CLEANUP_ACCOUNT, bound, as_cleanup)
    try:
        yield plane
    finally:
        clear(plane.api)
        plane.kubectl("delete", "clusterrole,clusterrolebinding", CLEANUP_ACCOUNT)
        plane.kubectl("-n", NAMESPACE, "delete", "serviceaccount", CLEANUP_ACCOUNT)
        remove(plane)


@pytest.fixture(scope="module")
def created(guarded: Plane) -> None:
    """Create Nodes and pods, and wait until the policies are in force."""
    api = guarded.api
    for one in forbidden.nodes():
        api.create(NODES, one)
    for one in forbidden.pods():
        api.create(PODS, one)
    for account, path in (
        (CONTROLLER_ACCOUNT, f"{NODES}/{PLAIN}"),
        (CONTROLLER_ACCOUNT, f"{PODS}/{OF_SET}"),
        (WEBHOOK_ACCOUNT, REGISTRATION),
    ):
        ours, wrong = as_account(guarded, account), {"metadata": {"labels": {"a": "b"}}}
        until(partial(answer, ours, path, wrong), f"a policy guards {path}")


def passed(api: Api, root: str, policy: str, writes: Iterable[Refused]) -> dict[str, str]:
    """Return the writes that the policy does not refuse, with the answer to each."""
    answers = {title: answer(api, f"{root}/{name}", patch) for title, name, patch in writes}
    assert len(answers) >= 20
    refusal = f"ValidatingAdmissionPolicy '{policy}'"
    return {title: text for title, text in answers.items() if refusal not in text}


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.usefixtures("created")
def test_forbidden_writes_to_nodes_are_refused(guarded: Plane, account: str) -> None:
    ours = as_account(guarded, account)
    assert passed(ours, NODES, "ebb-controller-nodes", forbidden.ON_NODES) == {}


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.usefixtures("created")
def test_forbidden_writes_to_pods_are_refused(guarded: Plane, account: str) -> None:
    ours = as_account(guarded, account)
    writes = forbidden.on_pods(guarded.api.get(f"{PODS}/{OF_SET}"))
    assert passed(ours, PODS, "ebb-controller-pods", writes) == {}


@pytest.mark.usefixtures("created")
def test_forbidden_writes_to_registration_are_refused(guarded: Plane) -> None:
    ours, writes = (
        as_account(guarded, WEBHOOK_ACCOUNT),
        forbidden.on_registration(guarded.api.get(REGISTRATION)),
    )
    assert passed(ours, REGISTRATIONS, "ebb-webhook-registration", writes) == {}


SPEC_FIELDS: dict[str, object] = {
    "configSource": {"configMap": {"name": "x"}},
    "externalID": "other",
    "podCIDR": "10.9.0.0/24",
    "podCIDRs": ["10.9.0.0/24"],
    "podPreemptionPolicy": {},
    "providerID": "other://machine",
    "unschedulable": True,
}


@pytest.mark.usefixtures("created")
def test_no_field_of_spec_but_taints_can_be_changed(guarded: Plane) -> None:
    schemas = guarded.api.get("/openapi/v3/api/v1")["components"]["schemas"]
    fields = schemas["io.k8s.api.core.v1.NodeSpec"]["properties"].keys()
    assert fields - SPEC_FIELDS.keys() == {"taints"}, "give the new field a value"
    ours, path = as_account(guarded, CONTROLLER_ACCOUNT), f"{NODES}/{PLAIN}"
    before = guarded.api.get(path)["spec"]
    for name in fields - {"taints"}:
        with suppress(RefusedError):  # alpha fields are dropped
            patched = ours.merge(f"{path}?dryRun=All", {"spec": {name: SPEC_FIELDS[name]}})
            assert patched["spec"] == before


ALLOWED_ON_NODES: list[tuple[str, Json]] = [
    (PLAIN, {"metadata": forbidden.MARK}),
    (PLAIN, {"metadata": {"labels": {MARK_LABEL: "NoSchedule"}}}),
    (PLAIN, {"metadata": forbidden.MARK, "spec": {"taints": [THEIRS, TAINT]}}),
    (MARKED, {"metadata": {"labels": {MARK_LABEL: None}}}),
    (MARKED, {"spec": {"taints": [THEIRS]}}),
    (MARKED, {"metadata": {"labels": {MARK_LABEL: "NoSchedule"}}}),
    (OPTED_OUT, {"metadata": {"labels": {MARK_LABEL: None}}, "spec": {"taints": None}}),
    (
        PLAIN,
        {
            "metadata": {
                "annotations": {
                    PROTECTION_ANNOTATION: "marked",
                    SCALE_DOWN_DISABLED_ANNOTATION: "true",
                    BACKOFF_ANNOTATION: "1 1700000000",
                }
            }
        },
    ),
    (
        PROTECTED,
        {
            "metadata": {
                "annotations": {
                    PROTECTION_ANNOTATION: f"marked {DO_NOT_DISRUPT_ANNOTATION}",
                    DO_NOT_DISRUPT_ANNOTATION: "true",
                }
            }
        },
    ),
]


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.usefixtures("created")
def test_writes_of_ebb_to_nodes_pass(guarded: Plane, account: str) -> None:
    ours = as_account(guarded, account)
    refused = [
        (name, patch, why)
        for name, patch in ALLOWED_ON_NODES
        if (why := answer(ours, f"{NODES}/{name}", patch))
    ]
    assert refused == []


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.usefixtures("created")
def test_everything_that_any_version_has_written_is_removed(guarded: Plane, account: str) -> None:
    path = f"{NODES}/{MARKED}"
    annotations = {
        f"{OUR_PREFIXES[0]}old": "1",
        OLD_PROTECTION_ANNOTATION: f"marked {DO_NOT_DISRUPT_ANNOTATION}",
        DO_NOT_DISRUPT_ANNOTATION: "true",
        PROTECTION_ANNOTATION: None,
    }
    guarded.api.merge(
        path, {"metadata": {"labels": {OLD_MARK: "hard"}, "annotations": annotations}}
    )
    removal = {
        "labels": {OLD_MARK: None, MARK_LABEL: None},
        "annotations": dict.fromkeys(annotations),
    }
    ours = as_account(guarded, account)
    assert answer(ours, path, {"metadata": removal}) == ""
    assert answer(ours, path, {"metadata": removal, "spec": {"taints": [THEIRS]}}) == ""
    guarded.api.merge(
        path, {"metadata": {"labels": {OLD_MARK: None}, "annotations": dict.fromkeys(annotations)}}
    )


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.usefixtures("created")
def test_steps_of_moves_and_costs_pass(guarded: Plane, account: str) -> None:
    ours = as_account(guarded, account)
    detach = {
        "labels": DETACHED,
        "annotations": {**COST, MOVE_ANNOTATION: NOTE},
        "ownerReferences": [DETACHED_OWNER],
    }
    for name, metadata in (
        (OF_SET, {"annotations": COST}),
        (OF_SET, detach),
        (AWAY, {"labels": BACK, "annotations": {MOVE_ANNOTATION: None, **dict.fromkeys(COST)}}),
        (AWAY, {"labels": BACK, "annotations": {MOVE_ANNOTATION: NOTE}}),
        (AWAY, {"annotations": dict.fromkeys(COST)}),
        (AWAY, {"annotations": {COST_OURS_ANNOTATION: None}}),
    ):
        assert answer(ours, f"{PODS}/{name}", {"metadata": metadata}, STRATEGIC) == "", name


@pytest.mark.usefixtures("created")
def test_other_accounts_are_not_limited(guarded: Plane) -> None:
    for name, patch in (
        (PLAIN, {"metadata": {"labels": {"example.org/new": "1"}}}),
        (OPTED_OUT, {"metadata": {"annotations": {KEEP_ANNOTATION: None}}}),
    ):
        assert answer(guarded.api, f"{NODES}/{name}", patch) == ""


BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@pytest.fixture
def adding(guarded: Plane) -> Iterator[None]:
    """Let a policy of a user add a label to each Node that Ebb updates."""
    with adding_label(guarded):
        yield


@pytest.mark.usefixtures("created", "adding")
def test_refusal_names_label_that_another_policy_adds_until_binding_only_audits(
    guarded: Plane,
) -> None:
    ours, path = as_account(guarded, CONTROLLER_ACCOUNT), f"{NODES}/{PLAIN}"
    mark = {"metadata": forbidden.MARK}
    told = f"'ebb-controller-nodes' denied request: metadata.labels: {ADDED}"
    until(lambda: told in answer(ours, path, mark), "the answer names the label")
    said(guarded, AUDIT.commands)
    until(lambda: not answer(ours, path, mark), "the policy only audits")
    binding = f"{BINDING}/ebb-controller-nodes"
    guarded.api.merge(binding, {"spec": {"validationActions": ["Deny"]}})
    until(lambda: told in answer(ours, path, mark), "the policy refuses again")


@pytest.mark.usefixtures("created")
def test_policies_have_no_type_errors(guarded: Plane) -> None:
    def checked() -> bool:
        found = guarded.api.get(POLICIES)["items"]
        ours = [one for one in found if one["metadata"]["name"].startswith("ebb-")]
        assert len(ours) == 3
        return all("typeChecking" in one.get("status", {}) for one in ours)

    until(checked, "the API server has checked the types")
    for one in guarded.api.get(POLICIES)["items"]:
        assert one["status"]["typeChecking"] == {}
