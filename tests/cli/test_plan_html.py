"""`ebb plan -o html`: one page that contains the whole state as JSON, and loads nothing."""

import base64
import hashlib
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from cli.formats.page import text
from cli.formats.page.details import EXPLAINED_MAX
from cli.formats.page.tiles import rounded
from cli.input.cluster_input import Leader, Running
from controller.day_report import PoolFigures
from core.config.prices import Price
from core.config.settings import Config
from core.marks.wellknown import MARK_LABEL
from core.model.resources import Resources
from core.moves.objects import SurgeObjects
from tests.core.moves.test_own import DEPLOYMENT, NODES, OTHER
from tests.core.moves.test_own import LEADER as LEADER_POD
from tests.core.moves.test_planner import CONFIG, OURS
from tests.support import builders
from tests.support.page import (
    HOSTILE,
    POOL_LABEL,
    hostile_input,
    input_of,
    plan_of,
    saved,
    showcase,
    state_of,
    with_day,
)
from tests.support.plan_cli import ITEMS, A, B, D, dump, ebb, node, pod
from tests.support.surge import NOW as SURGE_NOW

GPU = "nvidia.com/gpu"


def html_of(tmp_path: Path, capsys: pytest.CaptureFixture[str], *items: Any) -> str:
    file = tmp_path / "dump.json"
    file.write_bytes(dump(*items))
    assert main(["plan", "--from-file", str(file), "-o", "html"]) == 0
    return capsys.readouterr().out


def test_page_has_headline_of_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = state_of(html_of(tmp_path, capsys, *ITEMS))
    assert main(["plan", "--from-file", str(tmp_path / "dump.json")]) == 0
    table = capsys.readouterr().out
    assert len(state["headline"]) > 3
    for line in state["headline"]:
        assert line in table


NOT_READY = {"conditions": [{"type": "Ready", "status": "False"}]}
STATES: list[Any] = [
    pytest.param(node("n"), "removable", id="removable"),
    pytest.param(node("n", spec={"unschedulable": True}), "kept", id="cordoned"),
    pytest.param(
        node("n", status={**node("n")["status"], **NOT_READY}), "not-ready", id="not ready"
    ),
    pytest.param(
        node("n", metadata={"name": "n", "labels": {MARK_LABEL: "PreferNoSchedule"}}),
        "prefer-no-schedule",
        id="marked PreferNoSchedule",
    ),
    pytest.param(
        node("n", metadata={"name": "n", "labels": {MARK_LABEL: "NoSchedule"}}),
        "no-schedule",
        id="marked NoSchedule",
    ),
    pytest.param(
        node("n", metadata={"name": "n", "labels": {MARK_LABEL: "NoSchedule"}}),
        "scale-down-allowed",
        id="marked, scale-down allowed",
    ),
    pytest.param(
        node(
            "n",
            spec={"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
        ),
        "leaving",
        id="leaving",
    ),
]


@pytest.mark.parametrize(("one", "state"), STATES)
def test_node_has_state(
    one: Any, state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = () if state == "scale-down-allowed" else (pod("n", "n", "1"),)
    others = (node(A), node(B), pod("a", A, "2"), pod("b", B, "2"), *busy)
    found = state_of(html_of(tmp_path, capsys, one, *others))
    assert {n["name"]: n["state"] for n in found["nodes"]}["n"] == state
    assert state in {known["key"] for known in found["states"]}


def test_tiles_show_totals_now_and_after_plan() -> None:
    tiles = {one["label"]: one for one in state_of(text(plan_of(showcase())))["tiles"]}
    assert list(tiles) == [
        "Nodes", "Cost an hour", "CPU requested", "Memory requested", "Pods Pending", "Saved",
    ]  # fmt: skip
    nodes = tiles["Nodes"]
    assert nodes["now"] == "60"
    removable = 60 - int(nodes["after"])
    assert nodes["about"] == f"{removable} removable ({round(removable / 0.6)} %)"
    now, after = tiles["CPU requested"]["bar"]
    assert now < after
    assert tiles["CPU requested"]["after"] == f"{after} %"
    assert tiles["Pods Pending"]["after"] is None
    assert tiles["Saved"]["now"] == "5.40"
    assert tiles["Saved"]["about"] == "14.0 node-h, since the leader started 120m ago"


@pytest.mark.parametrize(
    ("today", "month", "now", "about"),
    [
        (saved(14, 5.4), saved(44, 16.9), "5.40", "14.0 node-h, this month 16.90"),
        (
            saved(14, 0),
            saved(44, 0),
            "14.0 node-h",
            "4 % of node-hours, this month 44.0 node-h (4 %)",
        ),
        (saved(0, 0), saved(9, 2), "0.0 node-h", "0 % of node-hours, this month 2.00"),
        (saved(14, 5.4), None, "5.40", "14.0 node-h, this month unknown"),
    ],
    ids=["priced", "unpriced", "nothing today", "history not read"],
)
def test_tile_shows_what_was_saved_today_and_this_month(
    today: PoolFigures, month: PoolFigures | None, now: str, about: str
) -> None:
    answer = plan_of(with_day(showcase(), today=today, month=month))
    tile = {"label": "Saved today", "now": now, "after": None, "about": about, "bar": None}
    assert state_of(text(answer))["tiles"][-1] == tile


def test_tiles_show_devices_and_no_cost_without_prices() -> None:
    nodes = [builders.node(name, extended=((GPU, 4),)) for name in "ab"]
    pods = [
        replace(
            builders.pod("p", "a", 500, 500), requests=Resources(500, 500, extended=((GPU, 1),))
        )
    ]
    tiles = state_of(text(plan_of(input_of(nodes, pods))))["tiles"]
    assert [one["label"] for one in tiles] == [
        "Nodes", "CPU requested", "Memory requested", "GPU requested",
    ]  # fmt: skip
    assert (tiles[3]["now"], tiles[3]["about"]) == ("13 %", "1 of 8, then 1 of 4")


def test_tile_of_requests_counts_pending_pods_that_plan_places() -> None:
    nodes = [builders.node(name) for name in "abc"]
    pods = [builders.pod("p", "a", 500, 500), builders.pod("late", None, 1500, 500)]
    found = {one["label"]: one for one in state_of(text(plan_of(input_of(nodes, pods))))["tiles"]}
    cpu = found["CPU requested"]
    assert (cpu["now"], cpu["after"]) == ("4 %", "50 %")
    assert cpu["about"] == "0.5 of 12 cores, then 2 of 4"
    assert found["Pods Pending"]["about"] == "kube-scheduler found no node for 0"


def test_cost_counts_one_node_without_price() -> None:
    labels = {POOL_LABEL: "priced"}
    nodes = [builders.node("a", labels=labels), builders.node("b")]
    prices = (Price(node_selector=tuple(labels.items()), price=Fraction(1)),)
    given = replace(input_of(nodes, []), config=Config(prices=prices))
    (cost,) = (one for one in state_of(text(plan_of(given)))["tiles"] if "Cost" in one["label"])
    assert cost["about"].endswith("; 1 node without a price")


def test_reasons_count_nodes_and_money() -> None:
    answer = plan_of(showcase())
    state = state_of(text(answer))
    kept = {node.node: {one.code for one in node.blockers} for node in answer.plan.kept}
    for one in state["reasons"]:
        nodes = [codes for codes in kept.values() if one["code"] in codes]
        assert (one["nodes"], one["alone"]) == (len(nodes), nodes.count({one["code"]}))
        assert one["amount"] == f"{rounded(len(nodes) * Fraction('280.32'))} a month"
    assert {one["code"] for one in state["reasons"]} == {
        code for node in state["nodes"] for code in node["reasons"]
    }


def test_nodes_name_namespaces_of_their_pods() -> None:
    state = state_of(text(plan_of(showcase())))
    assert state["namespaces"] == ["batch", "ops", "shop"]
    on = {
        node["name"]: [state["namespaces"][n] for n in node["namespaces"]]
        for node in state["nodes"]
    }
    assert on["general-b-01"] == ["ops", "shop"]


def test_detail_has_reasons_with_fix_and_pods_with_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    details = state_of(html_of(tmp_path, capsys, *ITEMS))["details"]
    (group, *_) = details[D]["groups"]
    (reason, *_) = group["reasons"]
    assert (group["title"], reason["code"]) == ("not removable because", "cordoned")
    assert len(reason["messages"]) == 1
    assert dict(details[D]["facts"])["verdict"].startswith("not removable: cordoned")
    assert f"kubectl uncordon {D}" in reason["fix"]
    assert reason["endsWhen"]
    moved = [one for detail in details.values() for one in detail["pods"] if one["to"]]
    assert moved


def test_detail_names_pod_of_leader_as_explain_does() -> None:
    given = replace(
        input_of(NODES, [LEADER_POD, OTHER]),
        config=CONFIG,
        surge_objects=SurgeObjects(
            deployments={DEPLOYMENT.key: DEPLOYMENT}, owners={(OURS, "own-1"): DEPLOYMENT.key}
        ),
        running=Running(Leader(lease="ebb-system/ebb-controller", holder="leader_1")),
    )
    groups = state_of(text(plan_of(given, SURGE_NOW)))["details"]["m"]["groups"]
    reasons = next(one["reasons"] for one in groups if one["title"] == "pods not moved because")
    (own,) = (one["messages"] for one in reasons if one["code"] == "surge-own")
    assert "is the leader of ebb-controller" in str(own)


def test_details_of_large_cluster_have_reasons_of_plan() -> None:
    nodes = [builders.node(f"n{number:03}") for number in range(EXPLAINED_MAX + 1)]
    pods = [
        builders.pod(f"p{number:03}", f"n{number:03}", 3000, 3000) for number in range(len(nodes))
    ]
    detail = state_of(text(plan_of(input_of(nodes, pods))))["details"]["n000"]
    assert [group["title"] for group in detail["groups"]] == ["not removable because"]
    assert "verdict" not in dict(detail["facts"])
    assert detail["leader"] == []


def test_plan_is_listed_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = state_of(html_of(tmp_path, capsys, *ITEMS))
    orders = {node["name"]: node["order"] for node in state["nodes"] if node["order"]}
    assert {one["node"]: one["order"] for one in state["plan"]["nodes"]} == orders
    assert [one["order"] for one in state["plan"]["nodes"]] == [*range(1, len(orders) + 1)]
    assert state["plan"]["more"] == 0


def test_pending_pod_is_listed_with_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pending = state_of(html_of(tmp_path, capsys, *ITEMS, pod("late", None)))["pending"]
    assert [one["pod"] for one in pending["pods"]] == ["shop/late"]
    assert "not scheduled yet; the plan has room on" in pending["pods"][0]["why"]


def test_hostile_names_cannot_end_script_element() -> None:
    html = text(plan_of(hostile_input()))
    assert "<img" not in html
    assert html.count("</script>") == 2
    assert HOSTILE in state_of(html)["details"]


def test_control_characters_are_escaped() -> None:
    name = "a\u202eb"
    found = state_of(text(plan_of(input_of([builders.node(name)], []))))
    assert [one["name"] for one in found["nodes"]] == ["a\\u202eb"]
    assert list(found["details"]) == ["a\\u202eb"]


def test_policy_allows_exactly_script_and_style_of_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = html_of(tmp_path, capsys, *ITEMS)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    hashes = [
        base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        for part in (script, style)
    ]
    assert re.findall(r"sha256-([^']*)'", policy) == hashes
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")


def test_page_names_no_external_asset_and_script_writes_no_html(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = html_of(tmp_path, capsys, *ITEMS)
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")  # a namespace
    assert "https://" not in html
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", html)


def test_html_is_refused_for_several_contexts() -> None:
    done = ebb("plan", "--context", "a", "--context", "b", "-o", "html")
    assert done.returncode == 2
    assert b"not allowed with several --context" in done.stderr
