"""The commands of docs/install.md and install-reference.md, run verbatim on a real API server."""

import os
import re
import subprocess

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
from tests.e2e.install import installed
from tests.e2e.objects import NODES, PODS, TAINT, THEIRS, add_nodes, mark, pod, taints
from tests.e2e.plane import ROOT, Plane, until

DOCUMENT = "".join(
    (ROOT / "docs" / name).read_text("utf-8") for name in ("install.md", "install-reference.md")
)
TRACES = "grep -E "
BY_HAND = "kubectl label nodes --all"


def said(plane: Plane, command: str) -> str:
    """Run a shell command as administrator; return its output."""
    path = f"{plane.bin}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PATH": path, "KUBECONFIG": str(plane.kubeconfig("person"))},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0 or (not done.stderr and TRACES in command), done.stderr
    return done.stdout


def block(start: str) -> str:
    """Return the block of commands that contains this text."""
    blocks = re.findall(r"^ *```console\n(.*?)^ *```", DOCUMENT, re.DOTALL | re.MULTILINE)
    (found,) = (one for one in blocks if start in one)
    return str(found)


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
        assert said(plane, block(TRACES)) == "", "a dry run stores nothing"


def test_mode_observe_removes_everything_that_ebb_wrote(plane: Plane, api: Api) -> None:
    add_nodes(api, "a", "b")
    mark(api, "a")
    protection = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "marked"}
    api.merge(f"{NODES}/a", {"metadata": {"annotations": protection}, "spec": {"taints": [TAINT]}})
    assert TAINT_KEY in said(plane, block(TRACES))
    with installed(
        plane, scaleDownProtection={"afterUnmark": "0s"}, controller={"interval": "1s"}
    ):
        until(lambda: said(plane, block(TRACES)) == "", "all is gone")
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
    traces = said(plane, block(TRACES))
    assert MARK_LABEL in traces
    assert COST_OURS_ANNOTATION in traces
    said(plane, block(BY_HAND))
    assert said(plane, block(TRACES)) == ""
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
