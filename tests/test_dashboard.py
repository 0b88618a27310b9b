"""Every query of the dashboard names metrics and labels that exist, and has an answer."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.manifests.kustomize import documents
from tests.support.dashboard import FILE, FOREIGN, METRIC, ROWS, concrete, model, queries, text
from tests.support.metrics_page import rows
from tests.support.scraped import simulated_days, written

PROMTOOL: Final = shutil.which("promtool")
LABELS_OF_SCRAPE: Final = {"cluster", "namespace", "pod", "le"}
LABELS_OF_OTHERS: Final = {"decision", "reason"}
DAY: Final = 24 * 60
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed; `make promtool` installs it"
)
EXPRESSIONS: Final = [expression for _, expression in queries()]


def test_dashboard_is_up_to_date() -> None:
    assert FILE.read_text("utf-8") == text(), "make fix writes it anew"
    (found,) = documents(FILE)
    assert json.loads(found["data"]["ebb.json"]) == model()


def test_rows_are_questions_and_panels_do_not_overlap() -> None:
    assert all(row.question.endswith("?") for row in ROWS)
    taken: set[tuple[int, int]] = set()
    for panel in model()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert all(0 <= x < 24 for x, _ in cells)
        taken |= cells
    numbers = [panel["id"] for panel in model()["panels"]]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_query_names_metrics_and_labels_that_exist(expression: str) -> None:
    known = {name: row for row in rows() for name in row.series}
    named = set(METRIC.findall(expression))
    assert named
    assert named <= known.keys() | {*FOREIGN}
    labels = LABELS_OF_SCRAPE | {
        label for name in named & known.keys() for label in known[name].labels
    }
    if named & {*FOREIGN}:
        labels |= LABELS_OF_OTHERS
    grouped = re.findall(r"by \(([^)]*)\)", expression)
    matched = set(re.findall(r"[{,](\w+)(?:=~|!=|=)", expression))
    assert matched | {one.strip() for part in grouped for one in part.split(",")} <= labels


def test_every_metric_of_others_is_used() -> None:
    assert {name for one in EXPRESSIONS for name in METRIC.findall(one)} >= {*FOREIGN}


@pytest.fixture(scope="module")
def day() -> Mapping[str, str]:
    """Return the series of a simulated day in the notation of promtool, without other programs."""
    named = {name for one in EXPRESSIONS for name in METRIC.findall(one)} - {*FOREIGN}
    scraped = simulated_days(1, "|".join(sorted(named)))
    return {name: written(found) for name, found in scraped.series.items()}


def answered(folder: Path, series: Mapping[str, str], expressions: Iterable[str], at: str) -> str:
    """Return what promtool says if an expression has no answer at a time, else an empty text."""
    tests = [
        {
            "expr": f"group({expression})",
            "eval_time": at,
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for expression in expressions
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": tests}
    document = {"evaluation_interval": "10m", "tests": [test]}
    path = folder / "tests.yaml"
    path.write_text(yaml.safe_dump(document, width=10**9), "utf-8")
    command = [str(PROMTOOL), "test", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.long
@needs_promtool
def test_every_query_has_an_answer_on_a_simulated_day(
    tmp_path: Path, day: Mapping[str, str]
) -> None:
    others = {f'{name}{{reason="empty",decision="delete"}}': f"0+1x{DAY}" for name in FOREIGN}
    asked = [f"last_over_time(({concrete(one, '6h')})[20h:15m])" for one in EXPRESSIONS]
    assert not answered(tmp_path, {**day, **others}, asked, f"{DAY - 1}m")


@pytest.mark.long
@needs_promtool
def test_every_panel_has_an_answer_or_a_text_on_a_new_cluster(
    tmp_path: Path, day: Mapping[str, str]
) -> None:
    panels = [panel for row in ROWS for panel in row.panels if not panel.none]
    asked = [
        " or ".join(f"({concrete(query.expression, '24h')})" for query in panel.queries)
        for panel in panels
    ]
    assert len(asked) > 30
    assert not answered(tmp_path, day, asked, "10m")
