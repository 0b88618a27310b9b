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
from controller.leader_report import Cooldown, Delay, LeaderFacts, PeakDemand, SkippedNode
from core.config.settings import API_VERSION, KIND
from core.marks.mark import Details, encode_details
from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL
from core.model.humanize import HOUR
from kube.target import NAMESPACE
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

    def text(self, command: str = "plan") -> str:
        return run(command, *self._given)


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
                "1 of 3 nodes can be removed: 4.0 cores, 16Gi memory.",
                SAVINGS,
            ]

    def test_savings_are_those_of_selected_nodes(self, tmp_path: Path) -> None:
        given = Dump(tmp_path, *SIZED, **PRICED)
        for size, counts in ("small", (1, 0, 0)), ("large", (2, 1, 2)):
            found = given.json("plan", "-l", f"size={size}")["headline"]
            savings = found["savings"]["perHour"]
            assert (found["nodes"], found["removable"], savings) == counts

    def test_nothing_is_promised_when_no_node_is_removable(self, tmp_path: Path) -> None:
        given = Dump(tmp_path, node("a"), pod("p", "a", "3"))
        assert given.text().startswith("None of 1 node can be removed.\n\n")


class TestMarking:
    @pytest.mark.parametrize(
        ("settings", "now", "waits"),
        [
            ({}, ["a", "b", "c"], []),
            ({"markInterval": "1h"}, ["a"], [("mark-interval", 2, HOUR)]),
            ({"budgets": {"maxMarked": 2}}, ["a", "b"], [("budget-marked", 1, None)]),
            ({"budgets": {"maxInWindow": 2, "window": "2h"}}, ["a", "b"],
             [("budget-window", 1, 2 * HOUR)]),
        ],
    )  # fmt: skip
    def test_headline_says_what_is_marked_now(
        self,
        tmp_path: Path,
        settings: Json,
        now: list[str],
        waits: list[tuple[str, int, int | None]],
    ) -> None:
        budgets = {"maxMarked": "100%", "maxInWindow": "100%", **settings.pop("budgets", {})}
        given = Dump(tmp_path, *FOUR, mode="enforce", budgets=budgets, **settings)
        found = given.json()
        headline = found["headline"]
        assert headline["toMarkNow"] == now
        assert headline["waiting"] == 3 - len(now)
        ends = [(code, nodes, end and found["time"] + end) for code, nodes, end in waits]
        assert [tuple(one.values()) for one in headline["waits"]] == ends
        line = f"Marked: 0. To mark now: {len(now)}. Waiting: {3 - len(now)}.\n"
        assert line in given.text()

    def test_marked_nodes_are_counted_apart(self, tmp_path: Path) -> None:
        marked = {**node("a"), "metadata": {"name": "a", **MARKED}}
        items = marked, *map(node, "bc"), pod("big", "c", "3")
        found = Dump(tmp_path, *items, budgets={"maxMarked": 2}).json()["headline"]
        assert (found["removable"], found["marked"], found["toMarkNow"]) == (2, 1, ["b"])

    def test_observe_only_reports(self, tmp_path: Path) -> None:
        out = Dump(tmp_path, *FOUR).text("status")
        assert "To mark now: 1 (mode observe: only reported)." in out
        assert "Estimate without the controller: " in out


class TestLeader:
    @pytest.mark.parametrize(
        ("facts", "waits"),
        [
            ({}, {}),
            ({"delays": [Delay(node="n1", since_seconds=1, until_seconds=NOW)]},
             {"unneeded-time": ("n1", NOW)}),
            ({"cooldowns": [Cooldown(setting="markInterval", until_seconds=NOW)]},
             {"mark-interval": ("n0 n1 n2", NOW)}),
            ({"skipped_nodes": [SkippedNode(node="n1", until_seconds=NOW)]},
             {"mark-refused": ("n1", NOW)}),
            ({"peaks": [PeakDemand(reach="general", cpu_millis=10**5, memory_bytes=0,
                                   until_seconds=NOW)]}, {"peak-demand": ("n0 n1 n2", NOW)}),
        ],
    )  # fmt: skip
    async def test_headline_follows_leader(
        self, world: World, facts: dict[str, Any], waits: dict[str, tuple[str, int | None]]
    ) -> None:
        budgets = {"maxMarked": "100%", "maxInWindow": "100%"}
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
        warning = "No replica of ebb-controller leads, so no node is marked until one does.\n"
        assert warning in (await world.run("plan")).out
        world.lease(f"{LEADER}_1")
        assert warning in (await world.run("status")).out, "its Lease was never renewed"


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
            "Empty already: 2. Emptied by completion and turnover: 1; by surge moves: 1; late: 1, "
            "because of pod-stateful-set (1 pod, such as shop/s).\n"
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
