"""The headline of `ebb plan` and `ebb status`: what Ebb will do with the removable nodes."""

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from cli.__main__ import main
from controller.leader_report import (
    Delay,
    LeaderFacts,
    LimitUse,
    PeakDemand,
    RefusedWrites,
)
from core.config.settings import API_VERSION, KIND
from core.engine.zones import ZONE_LABEL
from core.marks.mark import Details, encode_details
from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL
from core.model.humanize import HOUR
from kube.target import NAMESPACE
from runtime.version import ebb_version
from tests.cli.test_plan_emptying import deployment, owned
from tests.cli.test_running import HEAD, LEADER, NOW, World, world
from tests.support.plan_cli import Json, dump, node, pod

__all__ = ["world"]

GPU = "nvidia.com/gpu"
PRICED = {"prices": [{"nodeSelector": {"size": "large"}, "price": 2}]}
DETAILS = Details(since=1, deadline=2**40, owner="me", policy="p", reason="r")
MARKED = {
    "labels": {MARK_LABEL: "PreferNoSchedule"},
    "annotations": {DETAILS_ANNOTATION: encode_details(DETAILS)},
}


def run(*arguments: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert main(arguments) == 0, err.getvalue()
    return out.getvalue()


class Dump:
    """A dump with its configuration."""

    def __init__(self, folder: Path, *items: Json, **settings: Any) -> None:
        file, config = folder / "dump.json", folder / "ebb.yaml"
        file.write_bytes(dump(*items))
        lenient = {"headroom": 0, "thresholds": {"cpu": "100%", "memory": "100%"}}
        document = {"apiVersion": API_VERSION, "kind": KIND, **lenient, **settings}
        config.write_text(yaml.safe_dump(document))
        self._given = ["--from-file", str(file), "--config", str(config)]

    def json(self, command: str = "plan", *arguments: str) -> Json:
        found: Json = orjson.loads(run(command, *self._given, "-o", "json", *arguments))
        return found

    def text(self, command: str = "plan", *arguments: str) -> str:
        return run(command, *self._given, *arguments)


def with_gpus(name: str, units: int) -> Json:
    found = node(name)
    found["status"]["allocatable"][GPU] = str(units)
    return found


def sized(name: str, size: str) -> Json:
    return {**node(name), "metadata": {"name": name, "labels": {"size": size}}}


SAVINGS = (
    "Savings: 1,460.00 of 2,920.00 a month (730 h), in the currency of `prices`. "
    "Without a price: 1 node, b."
)
SIZED = [
    sized("a", "large"),
    sized("b", "small"),
    sized("c", "large"),
    pod("p", "b", "3"),
    pod("q", "c", "3"),
]
"""Three nodes, of which a is empty."""
FOUR = [*map(node, "abcd"), pod("big", "d", "3")]
"""Four nodes, of which a, b and c are empty."""


class TestSavings:
    def test_savings_are_for_month_and_name_nodes_without_price(self, tmp_path: Path) -> None:
        given = Dump(tmp_path, *SIZED, **PRICED)
        savings = {"perHour": 2.0, "perMonth": 1460.0, "unpriced": ["b"]}
        for command in ("plan", "status"):
            assert given.json(command)["headline"]["savings"] == savings
            assert given.text(command).splitlines()[:2] == [
                "1 of 3 nodes can be removed (33 %): 4.0 cores (33 %), 16Gi memory (33 %).",
                SAVINGS,
            ]

    def test_savings_are_those_of_selected_nodes(self, tmp_path: Path) -> None:
        given = Dump(tmp_path, *SIZED, **PRICED)
        for size, counts in ("small", (1, 0, 0)), ("large", (2, 1, 2)):
            found = given.json("plan", "-l", f"size={size}")["headline"]
            savings = found["savings"]["perHour"]
            assert (found["nodes"], found["removable"], savings) == counts

    def test_savings_of_zone_are_unknown_when_its_nodes_have_no_price(
        self, tmp_path: Path
    ) -> None:
        nodes = [
            node(name, metadata={"name": name, "labels": {ZONE_LABEL: zone, "size": size}})
            for name, zone, size in (("a", "x", "large"), ("b", "y", "small"), ("c", "z", "small"))
        ]
        out = Dump(tmp_path, *nodes, pod("p", "c", "3"), balanceZones=False, **PRICED).text()
        rows = [line.split() for line in out.splitlines() if line[:2] in ("x ", "y ")]
        assert rows == [["x", "1", "1", "1,460.00"], ["y", "1", "1", "-"]]

    def test_nothing_is_promised_when_no_node_is_removable(self, tmp_path: Path) -> None:
        given = Dump(tmp_path, node("a"), pod("p", "a", "1"))
        requested = "Requested: 25 % of CPU, 6 % of memory."
        assert given.text().startswith(f"None of 1 node can be removed. {requested}\n\n")
        assert given.text("plan", "-l", "none=here").startswith("The cluster has no nodes")

    def test_cluster_is_compact_when_its_nodes_are_full(self, tmp_path: Path) -> None:
        items = *map(node, "ab"), pod("p", "a", "3"), pod("q", "b", "3")
        assert (
            Dump(tmp_path, *items)
            .text()
            .startswith(
                "The cluster is compact: none of 2 nodes can be removed. "
                "Requested: 75 % of CPU, 6 % of memory.\n"
            )
        )

    def test_full_cluster_is_compact_although_zones_are_balanced_too(self, tmp_path: Path) -> None:
        nodes = [
            node(f"n{at}", metadata={"name": f"n{at}", "labels": {ZONE_LABEL: zone}})
            for at, zone in enumerate("aabc")
        ]
        pods = [pod(f"p{at}", f"n{at}", "3") for at in range(len(nodes))]
        given = Dump(tmp_path, *nodes, *pods)
        assert str(given.json()["unremovable"]).count("'zone-balance'") == 2
        assert given.text().startswith("The cluster is compact: none of 4 nodes can be removed.")


class TestMarking:
    @pytest.mark.parametrize(
        ("settings", "now", "waits"),
        [
            ({}, ["c", "b", "a"], []),
            ({"markInterval": "1h"}, ["c"], [("mark-interval", 2, HOUR)]),
            ({"budgets": {"maxMarked": 2}}, ["c", "b"], [("budget-marked", 1, None)]),
            ({"budgets": {"maxNewMarks": 2, "period": "2h"}}, ["c", "b"],
             [("budget-new-marks", 1, 2 * HOUR)]),
        ],
    )  # fmt: skip
    def test_headline_says_what_is_marked_now(
        self,
        tmp_path: Path,
        settings: Json,
        now: list[str],
        waits: list[tuple[str, int, int | None]],
    ) -> None:
        budgets = {"maxMarked": "100%", "maxNewMarks": "100%", **settings.pop("budgets", {})}
        given = Dump(tmp_path, *FOUR, mode="enforce", budgets=budgets, **settings)
        found = given.json()
        headline = found["headline"]
        assert headline["toMarkNow"] == now
        assert headline["waiting"] == 3 - len(now)
        ends = [(code, nodes, end and found["time"] + end) for code, nodes, end in waits]
        assert [tuple(one.values()) for one in headline["waits"]] == ends
        line = f"Marked nodes: 0. To mark now: {len(now)}. Waiting: {3 - len(now)}.\n"
        assert line in given.text()

    def test_marked_nodes_are_counted_apart(self, tmp_path: Path) -> None:
        marked = {**node("a"), "metadata": {"name": "a", **MARKED}}
        items = marked, *map(node, "bc"), pod("big", "c", "3")
        found = Dump(tmp_path, *items, budgets={"maxMarked": 2}).json()["headline"]
        assert (found["removable"], found["marked"], found["toMarkNow"]) == (2, 1, ["b"])

    def test_observe_only_reports(self, tmp_path: Path) -> None:
        out = Dump(tmp_path, *FOUR).text("status")
        assert "To mark now: 1 (mode observe: only reported)." in out
        assert "Limits unknown: this is an estimate without the controller." in out


def refused(resource: str) -> RefusedWrites:
    policy = f"ebb-controller-{resource}"
    return RefusedWrites(
        resource=resource, policy=policy, change="metadata.labels: a", until_seconds=NOW
    )


class TestLeader:
    @pytest.mark.parametrize(
        ("facts", "waits"),
        [
            ({}, {}),
            ({"delays": [Delay(node="n1", since_seconds=1, until_seconds=NOW)]},
             {"unneeded-time": ("n1", NOW)}),
            *(
                ({"limits": [LimitUse(code=code, scope=scope, until_seconds=[NOW])]},
                 {code: (scope or "n0 n1 n2", NOW)})
                for code, scope in (
                    ("cooldown", ""), ("pods-pending", ""), ("mark-interval", ""),
                    ("mark-refused", "n1"),
                )
            ),
            ({"refused_writes": [refused("nodes")]}, {"writes-refused": ("n0 n1 n2", NOW)}),
            ({"refused_writes": [refused("pods")]}, {}),
            ({"peaks": [PeakDemand(reach="general", cpu_millis=10**5, memory_bytes=0,
                                   until_seconds=NOW)]}, {"peak-demand": ("n0 n1 n2", NOW)}),
        ],
    )  # fmt: skip
    async def test_headline_follows_leader(
        self, world: World, facts: dict[str, Any], waits: dict[str, tuple[str, int | None]]
    ) -> None:
        budgets = {"maxMarked": "100%", "maxNewMarks": "100%"}
        settings = {**HEAD, "budgets": budgets, "headroom": 0}
        world.lease(f"{LEADER}_1")
        world.report(
            LEADER,
            leading=True,
            leader=f"{LEADER}_1",
            configuration=settings,
            facts=LeaderFacts(reconciled_at_seconds=1, **facts),
        )
        found = (await world.json("plan"))["headline"]
        assert found["leaderAsked"] is True
        ends = {one["code"]: (one["nodes"], one["until"]) for one in found["waits"]}
        removable = found["removable"]
        expected = {
            code: (min(len(nodes.split()), removable), until)
            for code, (nodes, until) in waits.items()
        }
        assert ends == expected

    async def test_explain_node_has_limits_and_delays_of_leader(self, world: World) -> None:
        world.lease(f"{LEADER}_1")
        settings = {**HEAD, "budgets": {"maxMarked": "100%", "maxNewMarks": "100%"}, "headroom": 0}
        names = {"leading": True, "leader": f"{LEADER}_1", "configuration": settings}
        facts = LeaderFacts(
            reconciled_at_seconds=1,
            delays=[Delay(node="n1", since_seconds=1, until_seconds=NOW)],
            limits=[LimitUse(code="mark-refused", scope="n2", until_seconds=[NOW])],
        )
        world.report(LEADER, facts=facts, **names)
        found = [await world.json("explain", "node", name) for name in ("n2", "n1")]
        assert [[one["code"] for one in answer["rateLimits"]] for answer in found] == [
            ["mark-refused"],
            ["unneeded-time"],
        ]

    async def test_limits_are_unknown_before_first_reconciliation(self, world: World) -> None:
        world.lease(f"{LEADER}_1")
        names = {"leading": True, "leader": f"{LEADER}_1", "configuration": HEAD}
        world.report(LEADER, facts=LeaderFacts(), **names)
        assert "Limits unknown: " in (await world.run("status")).out
        found = (await world.run("explain", "node", "n0")).out
        assert "unknown: the leader has not reconciled yet" in found
        assert "none: no cooldown" not in found

    async def test_other_version_of_leader_is_reported(self, world: World) -> None:
        world.lease(f"{LEADER}_1")
        names = {"leading": True, "leader": f"{LEADER}_1", "configuration": HEAD}
        world.report(LEADER, facts=LeaderFacts(), version="0.0.1", **names)
        problem = (
            f"the leader has version 0.0.1, this `ebb` has {ebb_version()}, so their plans "
            "may differ"
        )
        done = await world.run("plan", "-o", "json")
        assert orjson.loads(done.out)["notRead"] == [problem]
        assert done.err == f"Warning: {problem}\n"

    async def test_status_has_problem_while_policy_refuses_writes(self, world: World) -> None:
        world.lease(f"{LEADER}_1")
        facts = LeaderFacts(reconciled_at_seconds=1, refused_writes=[refused("nodes")])
        names = {"leading": True, "leader": f"{LEADER}_1"}
        world.report(LEADER, configuration=HEAD, facts=facts, **names)
        done = await world.run("status", "--exit-code")
        assert done.status == 1
        why = "ebb-controller-nodes refuses Ebb's writes to nodes (metadata.labels: a)"
        assert why in " ".join(done.out.split())
        assert why in " ".join((await world.run("explain", "node", "n0")).out.split())

    async def test_new_leader_without_reconciliation_knows_nothing(self, world: World) -> None:
        world.lease(f"{LEADER}_1")
        facts = LeaderFacts(stale_because="nodes are unknown")
        names = {"leading": True, "leader": f"{LEADER}_1"}
        world.report(LEADER, configuration=HEAD, facts=facts, **names)
        assert (await world.json("plan"))["headline"]["leaderAsked"] is False
        line = "The leader marks no node, because it cannot reconcile: nodes are unknown.\n"
        assert line in (await world.run("plan")).out

    async def test_headline_assumes_least_without_leader(self, world: World) -> None:
        assert (await world.json("status"))["headline"]["leaderAsked"] is False
        assert world.api.forwards.get(f"{NAMESPACE}/{LEADER}") is None
        warning = "No replica of ebb-controller leads, so no node is marked now.\n"
        assert warning in (await world.run("plan")).out
        world.lease(f"{LEADER}_1")
        assert warning in (await world.run("status")).out, "its Lease was never renewed"

    @pytest.mark.parametrize("status", [403, 500])
    async def test_headline_does_not_say_that_no_replica_leads_when_lease_is_unreadable(
        self, world: World, status: int
    ) -> None:
        unknown = (
            "it is unknown whether a replica of ebb-controller leads and marks nodes.",
            f"Lease {NAMESPACE}/ebb-controller: API server answered {status}",
        )
        for command in ("plan", "status"):
            world.leads(LEADER)
            world.api.fail_next("get", status)
            done = await world.run(command, "--exit-code")
            assert "eplica of ebb-controller leads, so no node" not in done.out
            for text in unknown:
                assert text in " ".join((done.out + done.err).split()), command
            if command == "status":
                assert done.status == 0, "nothing was found"
                assert "leader unknown (Lease" in " ".join(done.out.split())


class TestEmptying:
    def test_nodes_are_counted_by_what_empties_them(self, tmp_path: Path) -> None:
        items = [
            *map(node, "abcdef"),
            owned("w", "a", "ReplicaSet", "web-1"),
            owned("j", "b", "Job", "job", restartPolicy="Never"),
            owned("s", "c", "StatefulSet", "db"),
            pod("bare", "f", "3"),
            *deployment(),
        ]
        given = Dump(tmp_path, *items, surge={"mode": "enabled"})
        found = given.json()["headline"]
        names = "empty", "emptiedByThemselves", "emptiedByMoves", "emptiedLate"
        assert [found[name] for name in names] == [2, 1, 1, 1]
        assert [one["example"] for one in found["lateBecause"]] == ["shop/s"]
        assert (
            "Removable nodes empty already: 2. Emptied by completion and turnover: 1; by surge "
            "moves: 1; late: 1, because of pod-stateful-set (1 pod, such as shop/s).\n"
        ) in given.text()


class TestDevices:
    def test_gpus_are_in_the_sums(self, tmp_path: Path) -> None:
        asked = {"requests": {"cpu": "1", "memory": "1Gi", GPU: "2"}, "limits": {GPU: "2"}}
        train = pod("train", "b", containers=[{"name": "main", "resources": asked}])
        given = Dump(tmp_path, with_gpus("a", 4), with_gpus("b", 4), node("c"), train)
        found = given.json()
        assert found["devices"] == [
            {
                "name": GPU,
                "before": {"requested": 2, "capacity": 8},
                "after": {"requested": 2, "capacity": 4},
            }
        ]
        assert found["headline"]["capacity"]["devices"] == {GPU: 4}
        text = given.text()
        assert f", 4 {GPU}.\n" in text
        assert re.search(rf"^{GPU} capacity +8 +4$", text, re.MULTILINE)


class TestPods:
    def test_pods_are_those_of_the_node(self, tmp_path: Path) -> None:
        """Pods of the first removed node are placed on the second, and move again from there."""
        items = [*map(node, "abc"), pod("p", "a", "100m"), pod("q", "b", "200m"),
                 pod("r", "c", "3")]  # fmt: skip
        found = Dump(tmp_path, *items).json()
        assert [one["pods"] for one in found["removals"]] == [1, 1]
