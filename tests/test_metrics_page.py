"""docs/metrics.md agrees with the code, and its references exist."""

import re
from pathlib import Path

import yaml

from controller.writers import EVENT_REASONS
from runtime.metrics import BETA
from tests.manifests.kustomize import MANIFESTS, containers, documents, render
from tests.support.metrics_page import EVENTS, LABELS, OTHER_EVENTS, PAGE, page, rows

ROOT = Path(__file__).parents[1]
EVENT = re.compile(r'^[A-Z_]+: Final = "((?:[A-Z][a-z]+){2,})"$', re.MULTILINE)


def test_metrics_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == page(), "make fix writes it anew"


def test_every_label_and_event_is_documented() -> None:
    assert {label for one in rows() for label in one.labels} == {*LABELS}
    assert EVENTS.keys() == EVENT_REASONS.keys()
    sources = [path for room in ("controller", "webhook") for path in (ROOT / room).rglob("*.py")]
    code = {name for path in sources for name in EVENT.findall(path.read_text("utf-8"))}
    assert code - {"AdmissionReview", "LeaderReport"} == {reason for reason, *_ in OTHER_EVENTS}


def test_metrics_with_the_level_beta_exist() -> None:
    assert {one.name for one in rows()} >= BETA


def test_scraped_ports_match_ports_of_pods() -> None:
    blocks = [
        yaml.safe_load(one)
        for one in re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    ]
    plain, monitor = blocks
    (installed,) = documents(MANIFESTS / "components" / "prometheus-operator" / "podmonitor.yaml")
    assert installed["spec"] == monitor["spec"]
    ports = {one["port"] for one in monitor["spec"]["podMetricsEndpoints"]}
    kept = plain["scrape_configs"][0]["relabel_configs"][1]["regex"]
    assert ports == set(kept.split("|"))
    ours = [*containers(render("extender"))]
    assert ports <= {port["name"] for one in ours for port in one["ports"]}
