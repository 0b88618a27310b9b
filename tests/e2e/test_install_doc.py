"""Commands of the pages on installation and dumps, run verbatim on a real API server."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from core.marks.wellknown import (
    COST_ANNOTATION,
    COST_OURS_ANNOTATION,
    DETAILS_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    RESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from tests.e2e.api import Api
from tests.e2e.install import POLICY_MINOR_MIN, WRITE_POLICY_KINDS, apply, installed
from tests.e2e.karpenter import defined
from tests.e2e.objects import NODES, PODS, TAINT, THEIRS, add_nodes, mark, pod, taints
from tests.e2e.pki import Signed
from tests.e2e.plane import ROOT, Plane, until
from tests.platforms.objects import autoscaler_status
from tests.support.page_commands import all_pages, programs
from tests.support.pages import Block, console, spans

DOCUMENT = "".join(
    (ROOT / "docs" / name).read_text("utf-8") for name in ("install.md", "install-reference.md")
)
REFERENCE = "docs/install-reference.md"
TRACES = console(REFERENCE, "grep -E ")
BY_HAND = console(REFERENCE, "kubectl label nodes --all")
OWN_CLUSTER = console("README.md", "ebb plan --from-file -")
DUMPS = console("docs/doctor.md", "> setup.json")
REMAINING = console(REFERENCE, "mutatingadmissionpolicybinding -l ")
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
AUTOSCALER_STATUS = "cluster-autoscaler-status"
PLUGINS = {"ebb", "krew"}
KINDS_OF_OTHERS = {"capacitybuffers", "certificate"}
"""Kinds of which the control plane has no CRD."""
UNKNOWN = re.compile(r"unknown (?:command|flag|shorthand).*|have a resource type \"(\w+)\"")
POLICIES = "mutatingadmissionpolic"
"""Start of the kinds that only API servers from POLICY_MINOR_MIN on have."""


def ended(
    plane: Plane, command: str, user: Signed | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a shell command as a user, by default as administrator."""
    kubeconfig = plane.kubeconfig("person" if user is None else "user", user)
    return subprocess.run(
        ["bash", "-c", command],
        env=programs(str(plane.bin), KUBECONFIG=str(kubeconfig)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def said(plane: Plane, command: str) -> str:
    """Run a shell command that succeeds as administrator; return its output."""
    done = ended(plane, command)
    assert done.returncode == 0 or (not done.stderr and "grep " in command), done.stderr
    return done.stdout


def known(plane: Plane, block: Block) -> str:
    """Return the commands of a block without those for kinds that an older API server lacks."""
    lines = block.commands.splitlines()
    if plane.minor() < POLICY_MINOR_MIN:
        lines = [line for line in lines if POLICIES not in line]
    return "\n".join(lines)


def asked(question: str) -> str:
    """Return the command of the table for a question."""
    found = re.search(rf"^\| {re.escape(question)} \| `([^`]+)`", DOCUMENT, re.MULTILINE)
    assert found
    return found[1]


def test_checks_after_installation_succeed(plane: Plane, api: Api) -> None:
    with installed(plane) as programs:
        until(lambda: programs.controller.metric("ebb_leader") == 1, "the controller leads")
        add_nodes(api, "n")
        assert said(plane, asked("who leads?")).startswith("ebb-controller_")
        bundle = asked("does the API server trust the webhook?")
        assert "BEGIN CERTIFICATE" in said(plane, f"{bundle} | base64 -d")
        dry_run = asked("does a mark become a taint?").replace("NODE", "n")
        assert TAINT_KEY in said(plane, dry_run)
        assert said(plane, TRACES.commands) == "", "a dry run stores nothing"


def test_mode_observe_removes_everything_that_ebb_wrote(plane: Plane, api: Api) -> None:
    add_nodes(api, "a", "b")
    mark(api, "a")
    protection = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "marked"}
    api.merge(f"{NODES}/a", {"metadata": {"annotations": protection}, "spec": {"taints": [TAINT]}})
    assert TAINT_KEY in said(plane, TRACES.commands)
    with installed(
        plane, scaleDownProtection={"afterUnmark": "0s"}, controller={"interval": "1s"}
    ):
        until(lambda: said(plane, TRACES.commands) == "", "all is gone")
        assert (
            SCALE_DOWN_DISABLED_ANNOTATION not in api.get(f"{NODES}/a")["metadata"]["annotations"]
        )
        events = re.search(r"^kubectl -n default get events.*$", DOCUMENT, re.MULTILINE)
        assert events
        command = events[0]
        until(lambda: "NodeUnmarked" in said(plane, command), "an Event says so")


@pytest.mark.parametrize("value", ["PreferNoSchedule", "NoSchedule"])
def test_manual_removal_commands_remove_everything_that_ebb_wrote(
    plane: Plane, api: Api, value: str
) -> None:
    add_nodes(api, "marked", "protected", "unmarked", "theirs", "forged")
    annotations = {
        SCALE_DOWN_DISABLED_ANNOTATION: "true",
        PROTECTION_ANNOTATION: "marked",
        DETAILS_ANNOTATION: "{}",
    }
    mark(api, "marked", value)
    api.merge(
        f"{NODES}/marked",
        {"metadata": {"annotations": annotations}, "spec": {"taints": [THEIRS, TAINT]}},
    )
    api.merge(f"{NODES}/protected", {"metadata": {"annotations": annotations}})
    unmarked = {
        DO_NOT_DISRUPT_ANNOTATION: "true",
        PROTECTION_ANNOTATION: f"unmarked {DO_NOT_DISRUPT_ANNOTATION}",
        RESERVE_ANNOTATION: "for one pod",
    }
    api.merge(f"{NODES}/unmarked", {"metadata": {"annotations": unmarked}})
    theirs = {SCALE_DOWN_DISABLED_ANNOTATION: "true", DO_NOT_DISRUPT_ANNOTATION: "true"}
    api.merge(f"{NODES}/theirs", {"metadata": {"annotations": theirs}})
    forged = (
        f"unmarked\ntheirs unmarked {DO_NOT_DISRUPT_ANNOTATION}"  # a kubelet may write this value
    )
    api.merge(f"{NODES}/forged", {"metadata": {"annotations": {PROTECTION_ANNOTATION: forged}}})
    costs = {
        "plain": {},
        "ours": {COST_ANNOTATION: "-5", COST_OURS_ANNOTATION: "-5"},
        "changed": {COST_ANNOTATION: "7", COST_OURS_ANNOTATION: "-5"},
        "own": {COST_ANNOTATION: "7"},
    }
    for name, written in costs.items():
        made = pod(name, node_name="marked")
        api.create(PODS, {**made, "metadata": {**made["metadata"], "annotations": written}})
    traces = said(plane, TRACES.commands)
    assert MARK_LABEL in traces
    assert COST_OURS_ANNOTATION in traces
    said(plane, BY_HAND.commands)
    assert said(plane, TRACES.commands) == ""
    left = {
        one["metadata"]["name"]: one["metadata"].get("annotations", {}).get(COST_ANNOTATION)
        for one in api.get(PODS)["items"]
        if one["metadata"]["name"] in costs
    }
    assert left == {"plain": None, "ours": None, "changed": "7", "own": "7"}
    found = {one["metadata"]["name"]: one for one in api.get(NODES)["items"]}
    assert taints(found["marked"]) == [THEIRS]
    assert SCALE_DOWN_DISABLED_ANNOTATION not in found["marked"]["metadata"]["annotations"]
    assert SCALE_DOWN_DISABLED_ANNOTATION not in found["protected"]["metadata"]["annotations"]
    assert DO_NOT_DISRUPT_ANNOTATION not in found["unmarked"]["metadata"]["annotations"]
    assert theirs.items() <= found["theirs"]["metadata"]["annotations"].items()


def test_uninstall_commands_delete_every_object_outside_of_namespace(plane: Plane) -> None:
    kinds = "clusterrole,clusterrolebinding,role,rolebinding,mutatingwebhookconfiguration"
    left = f"kubectl get {kinds},{WRITE_POLICY_KINDS} -A -l app.kubernetes.io/name=ebb -o name"
    apply(plane)
    assert "clusterrole.rbac.authorization.k8s.io/ebb-controller" in said(plane, left)
    said(plane, f"set -e\n{known(plane, REMAINING)}")
    assert said(plane, left) == ""


def test_documented_dumps_are_those_that_doctor_reads(
    plane: Plane, api: Api, tmp_path: Path
) -> None:
    add_nodes(api, "n")
    api.create(PODS, pod("p", node_name="n"))
    *_, own = OWN_CLUSTER.commands.splitlines()
    first = own.replace("| ebb plan --from-file -", "> cluster.json")
    commands = f"{first}\n{known(plane, DUMPS)}"
    status = {"metadata": {"name": AUTOSCALER_STATUS}, "data": autoscaler_status({})["data"]}
    api.create(CONFIG_MAPS, status)
    try:
        with defined(plane):
            told = said(plane, f"set -e; cd '{tmp_path}'\n{commands}")
    finally:
        api.delete(f"{CONFIG_MAPS}/{AUTOSCALER_STATUS}")
    assert " checks: " in told
    assert json.loads((tmp_path / "karpenter.json").read_text())["kind"] == "List"


def test_kubectl_knows_commands_and_options_in_sentences(plane: Plane) -> None:
    shown = {span for page in all_pages() for span in spans(page) if span.startswith("kubectl ")}
    nobody = plane.user("nobody")  # without permissions, no command has an effect
    with defined(plane):
        for span in sorted(shown):
            if span.split()[1] not in PLUGINS:
                done = ended(plane, re.sub(r"\b[A-Z]{3,}\b", "n", span), nobody)
                refused = UNKNOWN.search(done.stderr)
                assert refused is None or refused[1] in KINDS_OF_OTHERS, f"{span}: {refused[0]}"
