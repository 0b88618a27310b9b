"""`ebb` reads the leader's report through a port-forward of the real API server and kwok."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.__main__ import REPORT_PORT
from controller.leader_report import REPORT_PORT_NAME
from core.config.settings import Mode
from kube.target import NAMESPACE
from tests.e2e.api import Json
from tests.e2e.install import apply, config, ending, remove, start_program
from tests.e2e.objects import NODES, add_nodes, pod
from tests.e2e.plane import FORWARDED, LOOPBACK, Ebb, Plane, until
from tests.support.plan_cli import ebb

HOST = "host"
VIEWER = "viewer"
PORT = {"name": REPORT_PORT_NAME, "containerPort": REPORT_PORT.default}
BINDINGS = "/apis/rbac.authorization.k8s.io/v1"
OWN_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POD_SECURITY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""What the Pod Security Standard of Ebb's namespace asks for."""


@contextmanager
def controllers(plane: Plane) -> Iterator[list[Ebb]]:
    """Run two controllers as the processes of two pods on a node whose kubelet is kwok."""
    apply(plane)
    host(plane)
    started: list[Ebb] = []
    with ExitStack() as at_end:
        at_end.callback(remove, plane)
        at_end.callback(plane.api.delete, OWN_PODS, gracePeriodSeconds=0)
        for name in FORWARDED:
            flags = {"controller": {"--report-port": plane.forwards[name]}}
            settings = config(mode=Mode.ENFORCE, policy="ClusterThreshold", flags=flags)
            started.append(start_program(plane, "controller", settings, name=name))
            at_end.enter_context(ending(plane, started[-1]))
            started[-1].wait_ready()
        yield started


def host(plane: Plane) -> None:
    """Create a Node with the address of kwok's kubelet, and the pods of the controllers."""
    add_nodes(plane.api, HOST, "spare")
    endpoint = {"kubeletEndpoint": {"Port": plane.kubelet_port}}
    address = {"type": "InternalIP", "address": LOOPBACK}
    status = {"addresses": [address], "daemonEndpoints": endpoint}
    plane.api.merge(f"{NODES}/{HOST}/status", {"status": status})
    for name in FORWARDED:
        made = pod(name, node_name=HOST, securityContext=POD_SECURITY)
        made["metadata"]["namespace"] = NAMESPACE
        made["spec"]["containers"][0] |= {"securityContext": SECURITY, "ports": [PORT]}
        plane.api.create(OWN_PODS, made)
    plane.api.wait(
        OWN_PODS,
        lambda found: (
            all(found[n]["status"].get("phase") == "Running" for n in FORWARDED)
            if set(FORWARDED) <= set(found)
            else False
        ),
    )


def viewer(plane: Plane, *, may_read_report: bool) -> Path:
    """Return the kubeconfig of a user who may read the cluster, and maybe Ebb's report."""
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": VIEWER}
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}
    role = {"metadata": {"name": VIEWER}, "rules": [rule]}
    refer = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": VIEWER}
    binding = {"metadata": {"name": VIEWER}, "subjects": [subject], "roleRef": refer}
    plane.api.delete(f"{BINDINGS}/clusterroles/{VIEWER}")
    plane.api.delete(f"{BINDINGS}/clusterrolebindings/{VIEWER}")
    plane.api.create(f"{BINDINGS}/clusterroles", role)
    plane.api.create(f"{BINDINGS}/clusterrolebindings", binding)
    own = f"{BINDINGS}/namespaces/{NAMESPACE}/rolebindings"
    plane.api.delete(f"{own}/{VIEWER}")
    if may_read_report:
        refer = {**refer, "kind": "Role", "name": "ebb-viewer"}
        plane.api.create(own, {**binding, "roleRef": refer})
    return plane.kubeconfig(VIEWER, plane.user(VIEWER))


def status(kubeconfig: Path) -> tuple[Json, str]:
    """Run `ebb status`; return its JSON and its warnings."""
    done = ebb("status", "--kubeconfig", str(kubeconfig), "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr.decode()


def facts(kubeconfig: Path) -> Any:
    """Return the facts of the leader, or None while there are none."""
    report = status(kubeconfig)[0]["leaderReport"]
    return report and report["facts"]


@pytest.mark.usefixtures("api")
def test_status_reads_report_of_leader_with_role_ebb_viewer(plane: Plane) -> None:
    with controllers(plane) as (first, second):
        kubeconfig = viewer(plane, may_read_report=True)
        until(lambda: (facts(kubeconfig) or {}).get("decisions"), "the leader reports decisions")
        found, warnings = status(kubeconfig)
        assert warnings == ""
        holder = found["leader"]["holder"]
        assert found["leaderReport"]["identity"] == holder == found["leaderReport"]["leader"]
        assert found["configuration"] == f"leader {holder}"
        assert found["leaderReport"]["configuration"]["mode"] == "enforce"
        (decision,) = (
            one
            for one in found["leaderReport"]["facts"]["decisions"]
            if (one["action"], one["name"]) == ("NodeMarked", "spare")
        )
        assert decision["written"]

        leader = first if holder.startswith(FORWARDED[0]) else second
        leader.stop(signal.SIGTERM)  # gives the Lease back
        until(
            lambda: (
                status(kubeconfig)[0]["leader"]["holder"] not in ("", None, holder)
                and facts(kubeconfig) is not None
            ),
            "the other replica leads and reports",
        )
        new = facts(kubeconfig)
        assert new["leadingSinceSeconds"] >= found["leaderReport"]["facts"]["leadingSinceSeconds"]

        kubeconfig = viewer(plane, may_read_report=False)
        found, warnings = status(kubeconfig)
        assert found["leaderReport"] is None
        assert "cannot read the Lease ebb-system/ebb-controller: " in warnings
        assert "403" in warnings
