"""Generate the Grafana dashboard: `python -m tests.support.dashboard`.

The rows of the dashboard are questions. Metrics of Cluster Autoscaler and Karpenter are beside
Ebb's, so that one look shows who has disrupted pods.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from core.history.days import MONTH_DAYS

COMPONENT: Final = Path(__file__).parents[2] / "manifests" / "components" / "dashboard"
FILE: Final = COMPONENT / "configmap.yaml"
HEAD: Final = """# `make fix` generates this file from tests/support/dashboard.py.
apiVersion: v1
kind: ConfigMap
metadata:
  name: ebb-dashboard
  namespace: ebb-system
  labels:
    app.kubernetes.io/name: ebb
    app.kubernetes.io/instance: ebb
    app.kubernetes.io/component: dashboard
    grafana_dashboard: "1"
data:
  ebb.json: |
"""
UID: Final = "ebb"
WIDTH: Final = 24
ROW_HEIGHT: Final = 1
STAT_HEIGHT: Final = 4
GRAPH_HEIGHT: Final = 8
NOT_SCRAPED: Final = "not scraped"
DAY: Final = "Since midnight (UTC), also under previous leaders, as `ebb history day`."
MONTH: Final = (
    f"Today and the {MONTH_DAYS - 1} days before (UTC), of all pools, as `ebb history month`."
)
FOREIGN: Final = (
    "cluster_autoscaler_evicted_pods_total",
    "cluster_autoscaler_scaled_down_nodes_total",
    "cluster_autoscaler_unneeded_nodes_count",
    "karpenter_nodeclaims_disrupted_total",
    "karpenter_voluntary_disruption_decisions_total",
    "karpenter_voluntary_disruption_eligible_nodes",
)
"""Metrics of other programs.

Sources: cluster-autoscaler/metrics/metrics.go; pkg/metrics and pkg/controllers/disruption of
sigs.k8s.io/karpenter v1.15."""


METRIC: Final = re.compile(r"\b(?:ebb|karpenter|cluster_autoscaler)_\w+")
"""Names of metrics in a query."""


class Query(NamedTuple):
    """A query of a panel, with the legend of its series."""

    expression: str
    legend: str = ""


class Panel(NamedTuple):
    """A panel."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    """`timeseries` or `stat`."""
    description: str = ""
    stacked: bool = False
    none: str = ""
    """Text instead of "No data" if it is normal that there is no series."""


class Row(NamedTuple):
    """A question, and the panels that answer it."""

    question: str
    panels: tuple[Panel, ...]


def ebb(name: str, *matchers: str) -> str:
    """Return a selector of a metric of Ebb."""
    found = ",".join(('cluster=~"$cluster"', 'namespace=~"$namespace"', *matchers))
    return f"{name}{{{found}}}"


def pool(name: str, *matchers: str) -> str:
    """Return a selector of a metric with the label `pool`."""
    return ebb(name, 'pool=~"$pool"', *matchers)


def other(name: str) -> str:
    """Return a selector of a metric of another program, which runs in a namespace of its own."""
    return f'{name}{{cluster=~"$cluster"}}'


def increase(selector: str, window: str = "$__range", by: str = "") -> str:
    """Return the sum of the increase of a counter."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (increase({selector}[{window}]))"


def rate(selector: str, by: str = "") -> str:
    """Return the sum of the rate of a counter."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({selector}[$__rate_interval]))"


def p99(name: str) -> str:
    """Return the 99th percentile of a histogram."""
    return f"histogram_quantile(0.99, {rate(ebb(f'{name}_bucket'), by='le')})"


def age(name: str) -> str:
    """Return the age of the latest time in a gauge; nothing while it is 0."""
    return f"time() - max({ebb(name)} > 0)"


def today(name: str, by: str = "") -> str:
    """Return the sum of a figure of the current day."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} ({pool(f'ebb_today_{name}')})"


def month(name: str) -> str:
    """Return a figure of the last days, of all pools. Only the leader exports it."""
    return f"sum({ebb(f'ebb_last_{MONTH_DAYS}_days_{name}')})"


def stat(title: str, expression: str, description: str) -> Panel:
    """Return a panel with one number."""
    return Panel(title, (Query(expression),), "none", "stat", description)


def _resources(matcher: str) -> tuple[Query, ...]:
    names = ("requests", "usable", "allocatable")
    return tuple(Query(f"sum({pool(f'ebb_pool_{name}', matcher)})", name) for name in names)


EXPECTED: Final = "ebb_expected_savings"
ESTIMATED: Final = "ebb_estimated_savings"
SAVED: Final = Row(
    "What has it saved?",
    (
        Panel(
            "Node-hours saved (estimate)",
            (Query(f"{increase(ebb(f'{ESTIMATED}_node_seconds_total'))} / 3600"),),
            "none",
            "stat",
            "Nodes that Ebb marked and the autoscaler removed, until their pool has as many nodes "
            "again, at most 24 hours.",
        ),
        Panel(
            "Node-hours expected",
            (Query(f"{increase(ebb(f'{EXPECTED}_node_seconds_total'))} / 3600"),),
            "none",
            "stat",
            "If every node that the plan can remove were gone at once.",
        ),
        Panel(
            "Money saved (estimate)",
            (Query(increase(ebb(f"{ESTIMATED}_cost_total"))),),
            "none",
            "stat",
            "In the unit of `prices`; 0 without prices.",
        ),
        Panel("Money expected", (Query(increase(ebb(f"{EXPECTED}_cost_total"))),), "none", "stat"),
        stat("Node-hours saved today", f"{today('estimated_savings_node_seconds')} / 3600", DAY),
        stat("Node-hours expected today", f"{today('expected_savings_node_seconds')} / 3600", DAY),
        stat("Money saved today", today("estimated_savings_cost"), DAY),
        stat("Nodes removed today", today("removed_nodes"), DAY),
        stat(
            f"Node-hours saved in {MONTH_DAYS} days",
            f"{month('estimated_savings_node_seconds')} / 3600",
            MONTH,
        ),
        stat(
            f"Node-hours expected in {MONTH_DAYS} days",
            f"{month('expected_savings_node_seconds')} / 3600",
            MONTH,
        ),
        stat(f"Money saved in {MONTH_DAYS} days", month("estimated_savings_cost"), MONTH),
        stat(f"Nodes removed in {MONTH_DAYS} days", month("removed_nodes"), MONTH),
        Panel(
            "Nodes saved",
            (
                Query(rate(ebb(f"{ESTIMATED}_node_seconds_total")), "estimate"),
                Query(rate(ebb(f"{EXPECTED}_node_seconds_total")), "expected"),
            ),
        ),
        Panel(
            "Node-hours today: expected and, by pool, saved",
            (
                Query(f"{today('expected_savings_node_seconds')} / 3600", "expected"),
                Query(f"{today('estimated_savings_node_seconds', 'pool')} / 3600", "{{pool}}"),
            ),
            description="Each day (UTC) begins at 0, so a peak is the figure of a day.",
        ),
        Panel(
            "Nodes removed today, by pool",
            (Query(today("removed_nodes", "pool"), "{{pool}}"),),
            description="Each day (UTC) begins at 0, so a peak is the figure of a day.",
        ),
        Panel(
            "Nodes by state",
            (Query(f"sum by (state) ({pool('ebb_nodes')})", "{{state}}"),),
            stacked=True,
        ),
        Panel(
            "CPU: requested, usable, allocatable",
            _resources('resource="cpu"'),
        ),
        Panel(
            "Memory: requested, usable, allocatable",
            _resources('resource="memory"'),
            "bytes",
        ),
        Panel(
            "Nodes removed by autoscalers, per hour",
            (
                Query(
                    increase(other("cluster_autoscaler_scaled_down_nodes_total"), "1h", "reason"),
                    "Cluster Autoscaler: {{reason}}",
                ),
                Query(
                    increase(other("karpenter_nodeclaims_disrupted_total"), "1h", "reason"),
                    "Karpenter: {{reason}}",
                ),
            ),
            none=NOT_SCRAPED,
        ),
        Panel(
            "Nodes that autoscalers would remove",
            (
                Query(
                    f"sum({other('cluster_autoscaler_unneeded_nodes_count')})",
                    "Cluster Autoscaler: unneeded",
                ),
                Query(
                    f"sum by (reason) ({other('karpenter_voluntary_disruption_eligible_nodes')})",
                    "Karpenter: {{reason}}",
                ),
                Query(
                    "sum(" + pool("ebb_nodes", 'state="scale-down-allowed"') + ")",
                    "Ebb: scale-down allowed",
                ),
            ),
        ),
    ),
)
BLOCKED: Final = Row(
    "What holds it back?",
    (
        Panel(
            "Reasons against removals",
            (
                Query(
                    f"topk(10, max by (reason) ({ebb('ebb_unremovable_nodes')}))",
                    "{{reason}}",
                ),
            ),
            description="Nodes by reason; a node with several reasons counts for each. "
            "docs/reasons.md explains them.",
            none="no reasons",
        ),
        Panel(
            "Removable and marked nodes",
            (
                Query(f"sum({ebb('ebb_removable_nodes')})", "removable"),
                Query(f"sum by (effect) ({ebb('ebb_marked_nodes')})", "marked {{effect}}"),
            ),
        ),
        Panel(
            "Requests relative to the threshold, by reach",
            (
                Query(
                    f"max by (reach, resource) ({ebb('ebb_reach_requests_ratio')}) / "
                    f"max by (reach, resource) ({ebb('ebb_reach_threshold_ratio')})",
                    "{{reach}} {{resource}}",
                ),
            ),
            "percentunit",
            description="At 100%, no further node is marked.",
            none="no reaches",
        ),
        Panel(
            "Marks, and their removals by reason, per hour",
            (
                Query(
                    increase(
                        ebb("ebb_node_writes_total", 'operation="mark"', 'result="success"'), "1h"
                    ),
                    "marks",
                ),
                Query(
                    increase(ebb("ebb_unmarks_total"), "1h", "reason"),
                    "removed: {{reason}}",
                ),
                Query(increase(ebb("ebb_remarked_nodes_total"), "1h"), "marked again"),
            ),
        ),
        Panel(
            "Age of the oldest mark, and how long ago scale-down was allowed",
            (
                Query(age("ebb_oldest_mark_timestamp_seconds"), "mark"),
                Query(
                    age("ebb_oldest_scale_down_allowed_timestamp_seconds"), "scale-down allowed"
                ),
            ),
            "s",
            none="no marks",
        ),
        Panel(
            "Nodes reserved for expected pods",
            (
                Query(f"sum({ebb('ebb_reserved_nodes')})", "reserved"),
                Query(f"sum({ebb('ebb_unmarked_protected_nodes')})", "protected, unmarked"),
            ),
        ),
    ),
)
WAITED: Final = Row(
    "Did anybody wait for it?",
    (
        Panel(
            "Pod-seconds Pending because of marks",
            (Query(increase(ebb("ebb_pending_pod_seconds_total", 'cause="mark"'))),),
            "s",
            "stat",
            "A node with a NoSchedule mark had room for these pods.",
        ),
        Panel(
            "Pods evicted by Ebb",
            (Query(increase(ebb("ebb_evictions_total", 'result="evicted"'))),),
            "none",
            "stat",
        ),
        Panel(
            "Pods moved by Ebb",
            (Query(increase(ebb("ebb_surge_moves_total", 'outcome="moved"'))),),
            "none",
            "stat",
            "A surge move starts the new pod first.",
        ),
        Panel(
            "Pods evicted by Cluster Autoscaler",
            (Query(increase(other("cluster_autoscaler_evicted_pods_total"))),),
            "none",
            "stat",
            none=NOT_SCRAPED,
        ),
        stat("Pods moved and evicted by Ebb today", today("moved_pods"), DAY),
        stat(f"Pods moved and evicted by Ebb in {MONTH_DAYS} days", month("moved_pods"), MONTH),
        Panel(
            "Pods of the nodes removed today: predicted and moved",
            (
                Query(today("removed_nodes_predicted_pods"), "predicted"),
                Query(today("removed_nodes_moved_pods"), "moved"),
            ),
            description="What the plan placed elsewhere when it marked the nodes, and what Ebb "
            "moved. The other pods ended by themselves.",
        ),
        Panel(
            "Pending pods by cause",
            (Query(f"sum by (cause) ({ebb('ebb_pending_pods')})", "{{cause}}"),),
            stacked=True,
        ),
        Panel(
            "Surge moves and evictions, per hour",
            (
                Query(
                    increase(ebb("ebb_surge_moves_total"), "1h", "outcome"), "move: {{outcome}}"
                ),
                Query(
                    increase(ebb("ebb_evictions_total"), "1h", "result"), "eviction: {{result}}"
                ),
            ),
        ),
        Panel(
            "Disruptions by Karpenter, per hour",
            (
                Query(
                    increase(
                        other("karpenter_voluntary_disruption_decisions_total"),
                        "1h",
                        "decision, reason",
                    ),
                    "{{decision}}: {{reason}}",
                ),
            ),
            none=NOT_SCRAPED,
        ),
    ),
)
HEALTHY: Final = Row(
    "Is it healthy?",
    (
        Panel("Leaders", (Query(f"sum({ebb('ebb_leader')})"),), "none", "stat"),
        Panel(
            "Time since the last reconciliation",
            (Query(age("ebb_reconcile_last_success_timestamp_seconds")),),
            "s",
            "stat",
        ),
        Panel(
            "Time since the last prioritize call",
            (Query(age("ebb_extender_last_prioritize_timestamp_seconds")),),
            "s",
            "stat",
            none="no calls",
        ),
        Panel(
            "Certificates expire in",
            (
                Query(
                    f"min({ebb('ebb_serving_certificate_expiration_timestamp_seconds')} > 0)"
                    " - time()"
                ),
            ),
            "s",
            "stat",
            none="no certificates",
        ),
        Panel(
            "Reconciliations: duration (99%)",
            (Query(p99("ebb_reconcile_duration_seconds"), "duration"),),
            "s",
        ),
        Panel(
            "Calls: duration (99%)",
            (
                Query(p99("ebb_extender_prioritize_duration_seconds"), "prioritize"),
                Query(p99("ebb_webhook_review_duration_seconds"), "admission review"),
            ),
            "s",
            none="no calls",
        ),
        Panel(
            "Age of the view, by pod",
            (Query(f"max by (pod) ({ebb('ebb_watch_age_seconds')})", "{{pod}}"),),
            "s",
        ),
        Panel(
            "Requests to the API server, by code",
            (Query(rate(ebb("ebb_api_requests_total"), by="code"), "{{code}}"),),
            "reqps",
        ),
        Panel(
            "Writes to Nodes that did not succeed, per hour",
            (
                Query(
                    increase(ebb("ebb_node_writes_total", 'result!="success"'), "1h", "result"),
                    "{{result}}",
                ),
            ),
        ),
        Panel(
            "Versions",
            (Query(f"count by (version) ({ebb('ebb_build_info')})", "{{version}}"),),
        ),
    ),
)
ROWS: Final = (SAVED, BLOCKED, WAITED, HEALTHY)


def queries() -> Iterator[tuple[str, str]]:
    """Yield the title of the panel and the expression of every query."""
    for row in ROWS:
        for panel in row.panels:
            yield from ((panel.title, query.expression) for query in panel.queries)


def model() -> dict[str, Any]:
    """Return the dashboard as Grafana's JSON model."""
    return {
        "uid": UID,
        "title": "Ebb",
        "description": "What Ebb saves, what holds it back, who waited for it, and its health.",
        "tags": ["kubernetes", "ebb"],
        "editable": True,
        "schemaVersion": 39,
        "version": 1,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    for name, metric in (
        ("cluster", "ebb_leader"),
        ("namespace", "ebb_leader"),
        ("pool", "ebb_nodes"),
    ):
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": _source(),
            "query": f"label_values({metric}, {name})",
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            # Series without the label match too.
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _source() -> dict[str, str]:
    return {"type": "prometheus", "uid": "${datasource}"}


def _panels() -> Iterator[dict[str, Any]]:
    top = number = 0
    for row in ROWS:
        number += 1
        place = {"x": 0, "y": top, "w": WIDTH, "h": ROW_HEIGHT}
        yield {"id": number, "type": "row", "title": row.question, "gridPos": place, "panels": []}
        top += ROW_HEIGHT
        for kind, width, height in (("stat", 6, STAT_HEIGHT), ("timeseries", 12, GRAPH_HEIGHT)):
            left = 0
            for panel in (one for one in row.panels if one.kind == kind):
                number += 1
                place = {"x": left, "y": top, "w": width, "h": height}
                yield _panel(panel, number, place)
                left += width
                if left == WIDTH:
                    left, top = 0, top + height
            top += height if left else 0


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {}
    none = {"noValue": panel.none} if panel.none else {}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _source(),
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": custom, **none},
            "overrides": [],
        },
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _source(),
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
            }
            for place, query in enumerate(panel.queries)
        ],
    }


def concrete(expression: str, span: str) -> str:
    """Return a query without variables, for use outside of Grafana; *span*: the time range."""
    for name in ("cluster", "namespace", "pool"):
        expression = expression.replace(f"${name}", ".*")
    return expression.replace("$__rate_interval", "10m").replace("$__range", span)


def text() -> str:
    """Return the ConfigMap with the dashboard as YAML."""
    lines = json.dumps(model(), indent=1).splitlines()
    return HEAD + "".join(f"    {line}\n" for line in lines)


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
