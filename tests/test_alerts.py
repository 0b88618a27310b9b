"""Every alert fires on its case, and none in healthy days, after a restart or a leader change."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from controller.metrics import Metrics
from tests.manifests.kustomize import documents
from tests.support.alerts import ALERTS, PAGE, RULES, Alert, groups, manifest, page
from tests.support.metrics_page import rows
from tests.support.scraped import simulated_days, written

PROMTOOL: Final = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed; `make promtool` installs it"
)
DAYS: Final = 2
NAMES: Final = re.compile(r"\bebb_\w+")
HOUR: Final = 60
"""Minutes."""
AT: Final = 26 * HOUR
"""Time of the check in each case, minutes; long enough for the slowest alert."""
LABELS: Final = 'namespace="ebb-system",pod="ebb-0"'


def series(name: str, **labels: str) -> str:
    found = "".join(f',{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{LABELS}{found}}}"


def steady(value: float) -> str:
    return f"{value}+0x{AT}"


def rising(step: float) -> str:
    """Return a counter that rises in each minute."""
    return f"0+{step}x{AT}"


def until(minutes: int, value: float = 1) -> str:
    """Return a series that ends."""
    return f"{value}+0x{minutes} _x{AT - minutes}"


PODS: Final = series("ebb_pool_pods", pool="")
"""A rising number of pods shows that kube-scheduler places pods."""
CASES: Final[Mapping[str, Mapping[str, str]]] = {
    "EbbDown": {series("ebb_leader"): until(AT - 30)},
    "EbbNotOneLeader": {series("ebb_leader"): steady(0)},
    "EbbReconciliationStuck": {
        series("ebb_reconcile_last_success_timestamp_seconds"): steady((AT - 20) * 60)
    },
    "EbbReconciliationErrors": {series("ebb_reconcile_errors_total"): rising(1)},
    "EbbReconciliationTimeouts": {series("ebb_reconcile_timeouts_total"): rising(1)},
    "EbbViewStale": {series("ebb_watch_age_seconds", resource="pods"): steady(200)},
    "EbbCertificateExpiring": {
        series("ebb_serving_certificate_expiration_timestamp_seconds"): steady(AT * 60 + 3600)
    },
    "EbbCaExpiring": {
        series("ebb_webhook_ca_expiration_timestamp_seconds"): steady(AT * 60 + 86_400)
    },
    "EbbMarkedNodeDoesNotEmpty": {series("ebb_oldest_mark_timestamp_seconds"): steady(60)},
    "EbbDeadlinesMissed": {series("ebb_unmarks_total", reason="deadline-missed"): rising(0.1)},
    "EbbEmptyNodeNotTaken": {
        series("ebb_oldest_scale_down_allowed_timestamp_seconds"): steady((AT - 100) * 60)
    },
    "EbbPodsPendingBecauseOfMarks": {series("ebb_pending_pods", cause="mark"): steady(3)},
    "EbbMarksFlapping": {series("ebb_remarked_nodes_total"): rising(0.5)},
    "EbbWritesFail": {
        series("ebb_node_writes_total", operation="mark", result="error"): rising(1)
    },
    "EbbApiThrottled": {series("ebb_api_requests_total", verb="patch", code="429"): rising(2)},
    "EbbApiErrors": {
        series("ebb_api_requests_total", verb="patch", code="500"): rising(1),
        series("ebb_api_requests_total", verb="patch", code="200"): rising(1),
    },
    "EbbBudgetExhausted": {series("ebb_unremovable_nodes", reason="budget-marked"): steady(9)},
    "EbbExtenderNotCalled": {
        series("ebb_extender_last_prioritize_timestamp_seconds"): steady(0),
        PODS: rising(10),
    },
    "EbbExtenderSlow": {
        series("ebb_extender_prioritize_duration_seconds_bucket", le="0.25"): rising(1),
        series("ebb_extender_prioritize_duration_seconds_bucket", le="1.0"): rising(2),
        series("ebb_extender_prioritize_duration_seconds_bucket", le="+Inf"): rising(2),
    },
    "EbbExtenderNeutral": {
        series("ebb_extender_prioritize_requests_total", result="neutral"): rising(1)
    },
    "EbbWebhookRepairs": {series("ebb_webhook_ca_bundle_repairs_total"): rising(1)},
    "EbbTlsFailures": {
        series("ebb_tls_handshake_failures_total", reason="certificate"): rising(1)
    },
    "EbbForeignDeletionCosts": {series("ebb_foreign_cost_pods"): steady(4)},
    "EbbConfigurationRefused": {series("ebb_config_last_reload_successful"): steady(0)},
    "EbbUnreadableObjects": {series("ebb_unreadable_objects", resource="pods"): steady(1)},
    "EbbClockJumped": {series("ebb_clock_offset_seconds"): steady(-90)},
    "EbbWritesRefused": {series("ebb_writes_refused"): steady(1)},
    "EbbEvictionForbidden": {series("ebb_eviction_forbidden"): steady(1)},
    "EbbSurgeForbidden": {series("ebb_surge_forbidden"): steady(1)},
    "EbbSurgeOverdue": {series("ebb_surge_overdue_pods"): steady(1)},
    "EbbKeepsEmptyNodes": {
        series("ebb_reserved_nodes", cause="expected"): steady(3),
        series("ebb_nodes", state="needed"): steady(20),
    },
    "EbbEventsLost": {series("ebb_event_write_failures_total"): rising(1)},
}
"""Series of the case in which each alert must fire."""


def promtool(folder: Path, tests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """Run unit tests of the rules."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(groups()), "utf-8")
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(document, width=10**9), "utf-8")
    command = [str(PROMTOOL), "test", "rules", str(folder / "tests.yaml")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def inputs(found: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in found.items()]


def test_generated_files_are_up_to_date() -> None:
    assert RULES.read_text("utf-8") == manifest(), "make fix writes it anew"
    assert PAGE.read_text("utf-8") == page(), "make fix writes it anew"
    (rule,) = documents(RULES)
    assert len(rule["spec"]["groups"][0]["rules"]) == len(ALERTS)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_alert_names_metrics_and_labels_that_exist(alert: Alert) -> None:
    known = {name: row for row in rows() for name in row.series}
    named = set(NAMES.findall(alert.expression))
    assert named
    assert named <= known.keys()
    labels = {label for name in named for label in known[name].labels}
    labels |= {"cluster", "namespace", "pod", "le"}
    by = re.findall(r"by \(([^)]*)\)", alert.expression)
    matched = re.findall(r"[{,](\w+)(?:=~|!=|=)", alert.expression)
    assert {*matched, *(one.strip() for part in by for one in part.split(","))} <= labels
    shown = set(re.findall(r"\$labels\.(\w+)", alert.summary))
    assert not by or all(any(label in part for part in by) for label in shown)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_alert_has_severity_summary_and_runbook(alert: Alert) -> None:
    assert alert.severity in ("critical", "warning", "info")
    assert 0 < len(alert.summary) <= 100
    assert alert.meaning
    assert alert.look
    assert alert.act
    assert f"\n## {alert.name}\n" in page()


def test_every_alert_has_a_case() -> None:
    assert CASES.keys() == {alert.name for alert in ALERTS}


@needs_promtool
def test_rules_pass_check_of_promtool(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(groups()), "utf-8")
    command = [str(PROMTOOL), "check", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@pytest.mark.long
@needs_promtool
def test_alert_fires_on_its_case_alone(tmp_path: Path) -> None:
    """Each case has its own namespace, so one run of promtool checks all cases."""
    found = {
        key.replace('"ebb-system"', f'"{name}"'): values
        for name, case in CASES.items()
        for key, values in case.items()
    }
    tests = {
        "interval": "1m",
        "input_series": inputs(found),
        "promql_expr_test": [
            {
                "expr": f'group by (alertname) (ALERTS{{namespace="{name}",alertstate="firing"}})',
                "eval_time": f"{AT}m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}],
            }
            for name in CASES
        ],
    }
    done = promtool(tmp_path, [tests])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly  # two days take a minute
@needs_promtool
def test_no_alert_fires_in_two_healthy_days(tmp_path: Path) -> None:
    """On each day the leader restarts once, and the other replica becomes the leader once."""
    named = {name for alert in ALERTS for name in NAMES.findall(alert.expression)}
    days = simulated_days(DAYS, "|".join(sorted(named)))
    assert days.result.marks > 10
    assert days.result.scale_ups > 0
    assert len(days.series) < 1000
    silent = "count by (alertname) (count_over_time(ALERTS{alertstate='firing'}[3d]))"
    test = {
        "interval": "1m",
        "input_series": inputs({name: written(found) for name, found in days.series.items()}),
        "promql_expr_test": [
            {"expr": silent, "eval_time": f"{days.scrapes - 1}m", "exp_samples": []},
            {
                "expr": "count(count_over_time(ebb_leader[3d]))",
                "eval_time": f"{days.scrapes - 1}m",
                "exp_samples": [{"labels": "{}", "value": 2}],
            },
        ],
    }
    done = promtool(tmp_path, [test])
    assert done.returncode == 0, done.stdout + done.stderr


def test_leader_exports_0_for_every_closed_label() -> None:
    """Otherwise an alert could not tell a quiet Ebb from an absent one."""
    registry = Metrics().registry
    for cause in ("mark", "room", "other"):
        assert registry.get_sample_value("ebb_pending_pods", {"cause": cause}) == 0
        assert registry.get_sample_value("ebb_pending_pod_seconds_total", {"cause": cause}) == 0
