"""`ebb plan -o html`: one page that contains the whole state as JSON, and loads nothing."""

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from cli.formats.page import text
from core.marks.wellknown import MARK_LABEL
from tests.support import builders
from tests.support.page import HOSTILE, hostile_input, input_of, plan_of, state_of
from tests.support.plan_cli import ITEMS, A, B, D, dump, ebb, node, pod


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
    others = (node(A), node(B), pod("a", A, "2"), pod("b", B, "2"))
    found = state_of(html_of(tmp_path, capsys, one, *others))
    assert {n["name"]: n["state"] for n in found["nodes"]}["n"] == state
    assert state in {known["key"] for known in found["states"]}


def test_detail_has_reasons_with_fix_and_pods_with_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    details = state_of(html_of(tmp_path, capsys, *ITEMS))["details"]
    (reason, *_) = details[D]["reasons"]
    assert reason["code"] == "cordoned"
    assert f"kubectl uncordon {D}" in reason["fix"]
    assert reason["endsWhen"]
    moved = [one for detail in details.values() for one in detail["pods"] if one["to"]]
    assert moved


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
    assert "http://" not in html
    assert "https://" not in html
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", html)


def test_html_is_refused_for_several_contexts() -> None:
    done = ebb("plan", "--context", "a", "--context", "b", "-o", "html")
    assert done.returncode == 2
    assert b"not allowed with several --context" in done.stderr
