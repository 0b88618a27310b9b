"""How commands find the running Ebb: Lease, report of the leader, ConfigMap."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from cli.__main__ import main
from controller.leader_report import (
    REPORT_PORT_NAME,
    Decision,
    Delay,
    LeaderFacts,
    LimitUse,
    MoveInProgress,
    PeakDemand,
    PendingPods,
    Report,
    Savings,
    Unknown,
)
from controller.names import CONFIG_MAP, LEASE
from core.config.settings import API_VERSION, KIND
from kube.target import NAMESPACE
from runtime.version import ebb_version
from tests.platforms.objects import autoscaler_status
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import KUBECONFIG, node_object, pod_object
from tests.support.forwards import reporting

HEAD = {"apiVersion": API_VERSION, "kind": KIND}
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"
LEADER, OTHER = "ebb-controller-a", "ebb-controller-b"
NOW = 4_000_000_000
"""A time in the future, so that times of the report are positive whenever the test runs."""
FACTS = LeaderFacts(
    leading_since_seconds=1_700_000_000,
    reconciled_at_seconds=1_700_000_100,
    delays=[Delay(node="n0", since_seconds=1_700_000_000, until_seconds=NOW)],
    peaks=[PeakDemand(reach="all", cpu_millis=1500, memory_bytes=2**30, until_seconds=NOW)],
    limits=[
        LimitUse(code="cooldown", scope="", until_seconds=[NOW]),
        LimitUse(code="budget-new-marks", scope="", until_seconds=[NOW, NOW + 60]),
        LimitUse(code="mark-refused", scope="n1", until_seconds=[NOW]),
    ],
    moves=[
        MoveInProgress(deployment="shop/web", pod="shop/web-1", node="n1", begun_seconds=1,
                       deadline_seconds=NOW)
    ],
    decisions=[
        Decision(at_seconds=1_700_000_000, kind="Node", name=name, action="NodeMarked",
                 reason="the cluster can do without it", written=written)
        for name, written in (("n0", True), ("n1", False))
    ],
    not_yet_known=[Unknown(needed_for="unneededTime", until_seconds=NOW)],
    savings=Savings(expected_node_seconds=9000, expected_cost=5, estimated_node_seconds=3600,
                    estimated_cost=0),
    pending=[PendingPods(cause="mark", pods=2, pod_seconds=1200),
             PendingPods(cause="other", pods=0, pod_seconds=0)],
)  # fmt: skip


class Run(NamedTuple):
    status: int
    out: str
    err: str


class World:
    """A cluster with an installation of Ebb, behind a fake API server."""

    def __init__(self, api: FakeApi, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.api, self._capsys, self.report_port = api, capsys, 8082
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_text(KUBECONFIG.format(url=api.url))

    def lease(self, holder: str) -> None:
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
        self.api.put_document(LEASE_PATH, {"metadata": {"name": LEASE}, "spec": spec})

    def config_map(self, content: str) -> None:
        metadata = {"namespace": NAMESPACE, "name": CONFIG_MAP}
        data = {"config.yaml": content}
        self.api.put("configmaps", {"metadata": metadata, "data": data})

    def configure(self, **settings: Any) -> None:
        self.config_map(yaml.safe_dump({**HEAD, **settings}))

    def report(self, pod: str, **fields: Any) -> None:
        fields = {"version": ebb_version(), **fields}
        report = Report(identity=f"{pod}_1", **fields)
        answer = reporting(msgspec.json.encode(report))
        self.api.serve(f"{NAMESPACE}/{pod}", REPORT_PORT_NAME, self.report_port, answer)

    def leads(self, pod: str = LEADER, **settings: Any) -> None:
        self.lease(f"{pod}_1")
        configuration = {**HEAD, **settings}
        self.report(pod, leading=True, leader=f"{pod}_1", configuration=configuration, facts=FACTS)

    async def run(self, *arguments: str) -> Run:
        given = [*arguments, "--kubeconfig", str(self._kubeconfig)]
        return Run(await asyncio.to_thread(main, given), *self._capsys.readouterr())

    async def json(self, *arguments: str) -> Any:
        done = await self.run(*arguments, "-o", "json")
        assert (done.status, done.err) == (0, "")
        return json.loads(done.out)


@pytest.fixture
async def world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[World]:
    async with FakeApi() as api:
        for number in range(3):
            api.put("nodes", node_object(f"n{number}"))
        api.put("pods", pod_object("p", node="n0"))
        api.put("configmaps", autoscaler_status({}))  # else plan and status warn
        yield World(api, tmp_path, capsys)


class TestConfiguration:
    async def test_leader_is_asked_for_configuration_in_force(self, world: World) -> None:
        world.configure(policy="NodeUtilization")
        world.leads(policy="ExcessNodes")
        plan = await world.json("plan")
        assert plan["policy"] == "ExcessNodes"
        assert plan["configuration"] == f"leader {LEADER}_1"
        assert plan["cluster"] == {"server": world.api.url, "context": "it", "cluster": "it"}

    async def test_configmap_is_used_without_leader(self, world: World) -> None:
        world.configure(policy="ExcessNodes")
        plan = await world.json("plan")
        assert plan["policy"] == "ExcessNodes"
        assert plan["configuration"] == f"ConfigMap {NAMESPACE}/{CONFIG_MAP}"

    async def test_defaults_are_used_without_installation(self, world: World) -> None:
        plan = await world.json("plan")
        assert (plan["policy"], plan["configuration"]) == ("ClusterThreshold", None)

    async def test_options_replace_configuration_in_force(
        self, world: World, tmp_path: Path
    ) -> None:
        world.leads(policy="ExcessNodes")
        plan = await world.json("plan", "--policy", "NodeUtilization")
        assert plan["policy"] == "NodeUtilization"
        file = tmp_path / "own.yaml"
        file.write_text(yaml.safe_dump({**HEAD, "policy": "UnderutilizedCount"}))
        plan = await world.json("plan", "--config", str(file))
        assert (plan["policy"], plan["configuration"]) == ("UnderutilizedCount", str(file))

    async def test_newer_configuration_of_leader_is_reported(self, world: World) -> None:
        world.configure(policy="ExcessNodes")
        world.leads(newSetting=1)
        done = await world.run("plan", "-o", "json")
        assert json.loads(done.out)["policy"] == "ExcessNodes"
        assert done.err.startswith(
            "Warning: cannot read the configuration of the leader (version 0.1.0): "
            f"leader {LEADER}_1: newSetting: unknown field; "
        )
        assert done.err.count("\n") == 1

    async def test_mode_is_unknown_when_only_a_newer_configuration_of_leader_exists(
        self, world: World
    ) -> None:
        world.leads(newSetting=1)
        done = await world.run("plan", "-o", "json")
        assert json.loads(done.out)["headline"]["mode"] is None
        world.configure(mode="enforce")
        done = await world.run("plan", "-o", "json")
        assert json.loads(done.out)["headline"]["mode"] == "enforce"

    async def test_invalid_configmap_is_reported(self, world: World) -> None:
        world.configure(mode="no")
        done = await world.run("plan")
        problem = "mode: 'no'; allowed: observe | enforce"
        name = f"ConfigMap {NAMESPACE}/{CONFIG_MAP}"
        assert done.err == (f"Warning: cannot read the {name}: {name}, config.yaml: {problem}\n")


class TestReport:
    async def test_port_of_leader_is_used(self, world: World) -> None:
        world.report_port = 9000
        world.leads()
        await world.json("status")
        assert world.api.forwards[f"{NAMESPACE}/{LEADER}"].ports == ["9000"]

    async def test_leader_without_port_is_reported(self, world: World) -> None:
        world.leads()
        pod = pod_object(LEADER)
        world.api.put_document(f"/api/v1/namespaces/{NAMESPACE}/pods/{LEADER}", pod)
        done = await world.run("status")
        assert done.err == (
            f"Warning: cannot read the report of the leader {LEADER}, so delays, peak "
            "demand, cooldowns, surge moves and decisions are unknown: "
            "no container has a port with the name report\n"
        )

    async def test_follower_names_leader(self, world: World) -> None:
        world.leads()
        world.lease(f"{OTHER}_1")
        world.report(OTHER, leader=f"{LEADER}_1")
        assert (await world.json("status"))["leaderReport"]["identity"] == f"{LEADER}_1"

    @pytest.mark.parametrize("leader", ["", f"{LEADER}_1", f"{OTHER}_1"])
    async def test_status_reports_that_no_replica_leads(self, world: World, leader: str) -> None:
        world.lease(f"{LEADER}_1")
        world.report(LEADER, leader=leader)
        world.report(OTHER, leader=f"{LEADER}_1")
        done = await world.run("status")
        assert done.status == 0
        assert done.err.startswith(
            "Warning: no replica of ebb-controller leads at the moment, so delays, "
        )

    async def test_what_cannot_be_read_is_reported(self, world: World) -> None:
        world.lease(f"{LEADER}_1")
        world.leads()
        world.api.denied.add("pods/portforward")
        done = await world.run("status", "-o", "json")
        (problem,) = json.loads(done.out)["notRead"]
        assert done.err == f"Warning: {problem}\n"
        assert problem.startswith(f"cannot read the report of the leader {LEADER}, so delays")
        assert "API server answered 403" in problem

    async def test_status_shows_what_leader_knows(self, world: World) -> None:
        world.leads()
        assert (await world.json("status"))["leaderReport"]["facts"] == msgspec.to_builtins(FACTS)
        done = await world.run("status")
        assert done.err == ""
        for row in (
            r"cluster        it",
            f"configuration  leader {LEADER}_1",
            "`unneededTime` of 1 node ends in ",
            "1500m CPU, 1Gi memory above current requests in the reach all, for ",
            "all nodes: ends in ",
            "all nodes: 2 marks count against the limit, the first for ",
            "n1: ends in ",
            "for how long nodes have been candidates (unneededTime): complete in ",
            "2.5 node-hours, 5.00 in the currency of `prices`, if removable nodes were gone",
            "1.0 node-hours, of nodes that autoscalers have removed",
            "because of marks 1,200 pod-seconds (now 2 pods), other 0 pod-seconds (now 0 pods)",
            "shop/web",
            "NodeMarked (only reported)",
        ):
            assert row in done.out

    async def test_explain_node_shows_what_leader_knows_about_node(self, world: World) -> None:
        world.leads()
        found = (await world.json("explain", "node", "n0"))["knownToLeader"]
        assert [one["node"] for one in found["delays"]] == ["n0"]
        assert [one["name"] for one in found["decisions"]] == ["n0"]
        assert [one["code"] for one in found["limits"]] == ["cooldown", "budget-new-marks"]
        done = await world.run("explain", "node", "n1")
        assert "n1: ends in " in done.out
        assert "Not considered" not in done.out
        assert "NodeMarked (only reported): the cluster can do without it" in done.out

    async def test_explain_node_names_what_it_does_not_know_without_leader(
        self, world: World
    ) -> None:
        done = await world.run("explain", "node", "n0")
        assert "Only a running controller knows how long nodes have been candidates" in done.out


async def test_version_of_leading_controller_is_shown(world: World) -> None:
    world.leads()
    done = await world.run("version")
    own, controller = done.out.splitlines()
    assert (done.status, done.err, own[:4]) == (0, "", "ebb ")
    assert controller == f"controller 0.1.0 ({LEADER}_1)"


async def test_version_of_controller_is_unknown_when_there_is_none(world: World) -> None:
    done = await world.run("version")
    assert done.status == 0
    assert f"controller unknown: Lease {NAMESPACE}/ebb-controller: not found" in done.out
