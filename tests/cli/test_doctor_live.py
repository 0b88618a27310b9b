"""How `ebb doctor` reads a live cluster, over a real socket."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from cli.input.setup import EXTENDER_PORT_NAME, SETUP_KINDS, SetupKind
from controller.leader_report import LeaderFacts
from extender.metrics import Metrics
from kube.client import PAGE_OBJECTS
from kube.cluster_kinds import BY_NAME
from kube.target import NAMESPACE
from runtime.clock import micro_time
from tests.cli.test_running import HEAD, LEASE_PATH, World
from tests.manifests.kustomize import MANIFESTS
from tests.support.fake_api import FakeApi
from tests.support.forwards import reporting
from tests.support.setup_cluster import (
    FILE,
    REGISTRATION,
    SETTINGS,
    SetupCluster,
    bundle,
    deployment,
)

EXTENDER = f"{NAMESPACE}/ebb-extender-1"
DENIED = "API server answered 403: the fake API says 403"
RBAC = {"capacity-buffers", "program-rights"}
AFFECTED: dict[str, set[str]] = {
    "Deployment": {"autoscaler-evicts", "autoscaler-delays"},
    "NodePool": {"nodepools"},
    "MutatingWebhookConfiguration": {"admission", "certificates", "mutating-admission"},
    "MutatingAdmissionPolicy": {"mutating-admission"},
    "MutatingAdmissionPolicyBinding": {"mutating-admission"},
    "ValidatingAdmissionPolicy": {"write-policies"},
    "ValidatingAdmissionPolicyBinding": {"write-policies", "mutating-admission"},
    "EndpointSlice": {"admission"},
    "ClusterRole": RBAC,
    "ClusterRoleBinding": RBAC,
    "Role": RBAC,
    "RoleBinding": RBAC,
}
"""Checks that are unknown without a kind; without the others every check of this cluster is ok."""


def metrics(scored: int) -> bytes:
    found = Metrics()
    for _ in range(scored):
        found.prioritize.labels(result="scored").inc()
    return found.text()


class Installed(World):
    """A cluster with a right setup, of which nothing is unknown."""

    def fill(self) -> None:
        now = int(time.time())
        self.cluster = SetupCluster()
        webhook = self.cluster.objects[REGISTRATION]["webhooks"][0]
        webhook["clientConfig"]["caBundle"] = bundle(now)
        for one in self.cluster.objects.values():
            if one["kind"] in BY_NAME:
                self.api.put(BY_NAME[one["kind"]].resource, one)
        for kind in SETUP_KINDS:
            if kind.name not in BY_NAME:
                items = [one for one in self.cluster.objects.values() if one["kind"] == kind.name]
                self.api.put_document(path_of(kind), {"items": items})
        self.configure(**SETTINGS)
        spec = {"holderIdentity": "a_1", "leaseDurationSeconds": 15, "renewTime": micro_time(now)}
        self.api.put_document(LEASE_PATH, {"metadata": {"name": "ebb-controller"}, "spec": spec})
        self.scored(3)

    def configure(self, **settings: Any) -> None:
        """Set the configuration, which the leader uses."""
        super().configure(**settings)
        used = {**HEAD, **settings}
        self.report("a", leading=True, leader="a_1", configuration=used, facts=LeaderFacts())

    def scored(self, calls: int) -> None:
        self.api.serve(EXTENDER, EXTENDER_PORT_NAME, 8888, reporting(metrics(calls)))

    async def findings(self, *arguments: str) -> dict[str, Any]:
        file = str(MANIFESTS / "scheduler" / FILE)
        given = ("doctor", "--scheduler-config", file, "-o", "json", *arguments)
        done = await self.run(*given)
        assert done.status == 0, done.err
        return {one["code"]: one for one in json.loads(done.out)["findings"]}

    async def states(self, state: str) -> set[str]:
        return {code for code, one in (await self.findings()).items() if one["state"] == state}


def path_of(kind: SetupKind) -> str:
    return kind.live_path(NAMESPACE)


@pytest.fixture
async def installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Installed]:
    async with FakeApi() as api:
        made = Installed(api, tmp_path, capsys)
        made.fill()
        yield made


async def test_healthy_cluster_has_no_finding(installed: Installed) -> None:
    found = await installed.findings("--exit-code")
    assert {code: one["seen"] for code, one in found.items() if one["state"] != "ok"} == {}
    assert (
        found["extender"]["seen"]
        == "3 calls of kube-scheduler, counted by 1 replica of the extender"
    )


async def test_exit_code_is_1_when_check_finds_problem(installed: Installed) -> None:
    installed.api.remove("deployments", "kube-system/cluster-autoscaler")
    installed.cluster.flags("--v=4")
    for one in installed.cluster.objects.values():
        if one["kind"] == "Deployment":
            installed.api.put("deployments", one)
    done = await installed.run("doctor", "--exit-code")
    assert done.status == 1
    assert "problem  autoscaler-evicts  " in done.out


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("kind", SETUP_KINDS, ids=lambda kind: kind.name)
async def test_kind_that_cannot_be_listed_is_unknown(
    kind: SetupKind, status: int, installed: Installed
) -> None:
    path, api = path_of(kind), installed.api
    if status == 403:
        # A resource of a plan is denied as a whole; `ebb` cannot read a cluster without pods.
        api.denied.add(kind.resource if kind.name in BY_NAME and kind.name != "Pod" else path)
    else:
        api.documents.pop(path, None)
        api.served.discard(kind.path if kind.name != "Pod" else "")
    unknown = await installed.states("unknown")
    absent = kind.optional and status == 404
    assert unknown == (set() if absent else AFFECTED.get(kind.name, set()))


async def test_all_pages_of_kind_are_read(installed: Installed) -> None:
    api = installed.api
    api.remove("deployments", "kube-system/cluster-autoscaler")
    for number in range(PAGE_OBJECTS):
        api.put("deployments", deployment(f"web-{number}", "shop", "web"))
    api.put("deployments", deployment("cluster-autoscaler", "kube-system", "ca", "--v=4"))
    assert (await installed.findings())["autoscaler-evicts"]["state"] == "problem"


async def test_answer_that_is_no_list_is_unknown(installed: Installed) -> None:
    path = path_of(SETUP_KINDS[-1])
    installed.api.put_document(path, {"items": [{"metadata": {"name": 7}}]})
    found = (await installed.findings())["program-rights"]
    assert found["seen"].startswith("cannot read rolebindings: API server: unexpected answer: ")


async def test_unknown_names_answer_and_what_makes_it_visible(installed: Installed) -> None:
    installed.api.denied.add(path_of(SETUP_KINDS[-1]))
    found = (await installed.findings())["program-rights"]
    assert found["seen"] == f"cannot read rolebindings: {DENIED}"
    assert found["visibleBy"].endswith(" see docs/doctor.md#permissions")


@pytest.mark.parametrize("resource", ["daemonsets", "poddisruptionbudgets"])
async def test_kind_of_plan_that_cannot_be_listed_is_unknown_and_problem_of_rights(
    resource: str, installed: Installed
) -> None:
    installed.api.denied.add(resource)
    found = await installed.findings()
    (unknown,) = [one for one in found.values() if one["state"] == "unknown"]
    assert unknown["seen"] == f"cannot read {resource}: {DENIED}"
    assert found["viewer-rights"]["state"] == "problem"
    (evidence,) = found["viewer-rights"]["evidence"]
    assert evidence["field"].startswith(f"kubectl auth can-i list {resource}.")


NO_METRICS = f"cannot read the metrics of pod {EXTENDER}"


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda one: one.api.denied.add("pods/portforward"),
         f"{NO_METRICS}: API server answered 403: Invalid response status"),
        (lambda one: one.api.forwards.update({EXTENDER: reporting(b"up 1\n")}),
         f"{NO_METRICS}: no metric ebb_extender_prioritize_requests_total"),
        (lambda one: one.api.forwards.update({EXTENDER: reporting(b"<html>")}),
         f"{NO_METRICS}: no Prometheus metrics: invalid metric name:<html>"),
        (lambda one: one.configure(**SETTINGS, extender={"certDir": "/c"}),
         "the extender serves TLS, and a port-forward reads plain HTTP only"),
    ],
)  # fmt: skip
async def test_extender_is_unknown_when_metrics_cannot_be_read(
    change: Callable[[Installed], object], seen: str, installed: Installed
) -> None:
    change(installed)
    found = (await installed.findings())["extender"]
    assert (found["state"], found["seen"]) == ("unknown", seen)


async def test_extender_that_is_not_called_is_problem(installed: Installed) -> None:
    installed.scored(0)
    assert (await installed.findings())["extender"]["state"] == "problem"


async def test_access_is_unknown_when_reviews_fail(installed: Installed) -> None:
    installed.api.fail_next("post", 500, times=100)
    assert await installed.states("unknown") == {"viewer-rights", "clocks"}


async def test_reading_writes_nothing(installed: Installed) -> None:
    await installed.findings()
    calls = installed.api.calls
    assert {one.verb for one in calls} <= {"list", "get", "post", "portforward"}
    assert {one.resource for one in calls if one.verb == "post"} == {"selfsubjectaccessreviews"}


async def test_other_commands_do_not_read_setup(installed: Installed) -> None:
    await installed.run("status")
    paths = {one.path for one in installed.api.calls}
    assert not paths & {path_of(kind) for kind in SETUP_KINDS if kind.name not in BY_NAME}


async def test_namespace_of_ebb_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeApi() as api:
        made = Installed(api, tmp_path, capsys)
        made.fill()
        await asyncio.to_thread(
            main,
            ["doctor", "--ebb-namespace", "other", "--kubeconfig", str(tmp_path / "kubeconfig")],
        )
        capsys.readouterr()
        paths = [one.path for one in api.calls if "endpointslices" in one.path]
    assert paths == ["/apis/discovery.k8s.io/v1/namespaces/other/endpointslices"]
