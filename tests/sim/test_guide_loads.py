"""The loads of the guides: the pages show the figures of their simulation."""

from dataclasses import replace

import pytest

from core.config.settings import Config
from runtime.files import parse_config
from runtime.yaml_text import as_yaml
from sim.history import dumps
from sim.history.load import load_of
from sim.scenario import SURGE, run
from tests.support.configurations import HEAD
from tests.support.guide_loads import FOLDER, LOADS, files

INTERVAL_MS = 60_000
NO_RESERVE = parse_config(as_yaml(HEAD | {"reserve": {"window": "never"}}).encode(), "reserve")
SHOWN = [
    ("jupyterhub", "Ebb, surge", Config()),
    ("runners", "Ebb, surge", Config()),
    ("runners", "Ebb, surge, with `reserve: {window: never}`", NO_RESERVE),
    ("agones", "Ebb, surge", Config()),
]


def column(page: str, head: str) -> dict[str, str]:
    """Return the figures in the column of a guide's table, by the name of their row."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (FOLDER.parent / page).read_text("utf-8").splitlines()
        if line.startswith("|")
    ]
    at = rows[0].index(head)
    return {row[0]: row[at] for row in rows[2:]}


def test_loads_are_those_that_the_generator_writes() -> None:
    stored = {path: path.read_text("utf-8") for path in FOLDER.rglob("*.json")}
    assert stored == dict(files()), "run: python -m tests.support.guide_loads"


@pytest.mark.parametrize(("name", "head", "config"), SHOWN)
def test_guide_shows_figures_of_simulation(name: str, head: str, config: Config) -> None:
    unreadable: list[str] = []
    load = load_of(dumps.read(str(FOLDER / name), unreadable), config).load
    assert not unreadable
    load = replace(load, interval_ms=INTERVAL_MS)
    result = run(SURGE, load, seed=1, wire=False, given=config)
    assert result.pending_by_mark == 0
    assert column(f"{name}.md", head) == {
        "node-hours": f"{result.node_ms / 3_600_000:,.0f}",
        "pods evicted": f"{result.evicted}",
        "Pending pod-seconds": f"{result.pending_ms / 1000:,.0f}",
    }


def test_pods_of_a_history_run_to_completion_as_recorded() -> None:
    loads = {name: load_of(dumps.read(str(FOLDER / name), []), Config()).load for name in LOADS}
    facts = {name: load.arrivals[0].disruption_facts for name, load in loads.items()}
    completes = {name: one is not None and one.completes for name, one in facts.items()}
    assert completes == {"jupyterhub": True, "runners": True, "agones": False}
