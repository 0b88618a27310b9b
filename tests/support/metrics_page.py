"""Generate docs/metrics.md from the programs' metrics: `python -m tests.support.metrics_page`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client.metrics import MetricWrapperBase

import controller.metrics
import extender.metrics
import runtime.metrics
import webhook.metrics
from controller import config_reload, evictor, mover, refusals
from controller.writers import EVENT_REASONS
from core.eligibility.scalability import GROUPS_SHOWN, OTHER
from core.engine.plan import REACHES_SHOWN
from core.moves.outcomes import MEANINGS
from core.setting_types.structure import CONTROLLER, EXTENDER, WEBHOOK
from core.writes.transitions import Transition
from core.writes.write import WriteKind
from runtime.metrics import MetricCollector, stability_of
from webhook import certs

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
HEAD: Final = f"""# Metrics and Events

`make fix` generates this page from the metrics of the programs.

## Scraping

Every program serves `/metrics`:

| program | port | flag | protocol |
|---|---|---|---|
| `{CONTROLLER}` | `metrics`, 8081 | `--metrics-listen` | HTTP |
| `{WEBHOOK}` | `metrics`, 8080 | `--metrics-listen` | HTTP |
| `{EXTENDER}` | `prioritize`, 8888 | `--listen` | TLS with `extender.certDir` |

A scrape needs no client certificate, even if `extender.clientCAFile` is set. Scrape every pod, not
a Service: each replica exports its own metrics, and only the leader of the controller exports the
results of a reconciliation. Each program caches its answer for 0.25 s. The NetworkPolicies
of the manifests allow pods to reach these ports. For Prometheus without the Prometheus Operator:

```yaml
scrape_configs:
- job_name: ebb
  kubernetes_sd_configs:
  - role: pod
    namespaces:
      names: [ebb-system]
  relabel_configs:
  - source_labels: [__meta_kubernetes_pod_label_app_kubernetes_io_name]
    regex: ebb
    action: keep
  - source_labels: [__meta_kubernetes_pod_container_port_name]
    regex: metrics|prioritize
    action: keep
  - source_labels: [__meta_kubernetes_pod_name]
    target_label: pod
```

With the Prometheus Operator, a PodMonitor in `ebb-system`:

```yaml
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: ebb
  namespace: ebb-system
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: ebb
  podMetricsEndpoints:
  - port: metrics
  - port: prioritize
```

The component `manifests/components/prometheus-operator` has this PodMonitor, and the alerts of
[alerts.md](alerts.md). The component `manifests/components/dashboard` has a Grafana dashboard.

![The panels that show what Ebb saves, and what prevents removals](dashboard.png)

This picture is drawn from the queries of the dashboard and a simulated day with example prices. Of
Cluster Autoscaler, the simulation has only the number of removed nodes. In Grafana the panels look
different.
"""
LABELS: Final[Mapping[str, str]] = {
    "cause": "why a pod is Pending: `mark`: a node with a NoSchedule mark has room for it; "
    "`room`: no node has room; `other`: no node could hold the pod even if it were empty, Ebb "
    "cannot evaluate its constraints, or kube-scheduler has not retried it since there is room",
    "code": "HTTP status of the answer; `error`: no answer",
    "effect": "effect of the taint of a mark",
    "operation": "what a write does, as in [the life cycle of a mark](design/life-cycle.md). "
    f"`mark` includes *{Transition.RESTORE_DETAILS.title}* and "
    f"*{Transition.EXTEND_DEADLINE.title}*; `unmark` includes every removal of a mark; "
    f"`remove_protection` includes *{Transition.ALLOW_SCALE_DOWN.title}*",
    "outcome": "how a surge move ended: "
    + "; ".join(f"`{one}`: {meaning}" for one, meaning in MEANINGS.items()),
    "pool": "group of nodes, as in `ebb plan`: what a label of the provider names, such as "
    "the NodePool, node group, agent pool or instance group, or else the pool of the setting "
    f"`pools`. It is empty for nodes in neither. The {GROUPS_SHOWN} largest groups have their "
    f"name, all others are `{OTHER}`, and a group without nodes has no series. For "
    "`ebb_underutilized_count_*`, name of a pool in `underutilizedCount.pools`",
    "reach": f"name of a reach, as in `ebb plan`; at most {REACHES_SHOWN} reaches",
    "reason": "code of a [reason](reasons.md). For watches, why the watch ended: "
    "`expired` (410), `restored` (etcd was restored from a backup), `throttled` (429), `timeout`, "
    "`error`. For TLS handshakes: `certificate` (one side rejects the certificate of the other), "
    "`protocol` (no TLS, or no common version), "
    "`connection` (the client closed the connection, or was too slow)",
    "resource": "`cpu` or `memory`; for watches and objects, the API resource, such as `pods`",
    "result": "For writes: `success`; `conflict`: the object has changed since Ebb decided on the "
    "write; `dropped`: Ebb did not send the write, because its plan might be outdated; `error`: "
    "the API server rejected the write or did not answer. The next reconciliation decides again "
    "about all writes that did not succeed. For evictions: `evicted`; `gone`: the pod no longer "
    "exists; `refused`: the API server refused the eviction, for example because of a "
    "PodDisruptionBudget; `error`: no answer",
    "state": "state of a node in the latest plan: `leaving`: another program is deleting or "
    "draining it; `scale-down-allowed`: marked, and its scale-down is allowed; `reserved`: "
    "empty, and kept for expected pods; `marked`: any other marked node; `unschedulable`: not "
    "marked, and cordoned or not Ready; `removable`: not marked, and the plan can remove it; "
    "`needed`: any other node",
    "unit": "`core` or `byte`",
    "verb": "verb of the Kubernetes API, such as `list`",
    "version": "version of the program",
}
"""Values of each label, with their meanings."""
EVENTS: Final[Mapping[StrEnum, str]] = {
    WriteKind.MARK: "The node was marked; the note has the reason.",
    WriteKind.SET_NO_SCHEDULE: "The taint of the mark is NoSchedule now.",
    WriteKind.SET_PREFER_NO_SCHEDULE: "The taint of the mark is PreferNoSchedule again.",
    WriteKind.UNMARK: "The mark was removed; the note has the reason. After a failed eviction, "
    "the note also names the pod that could not be evicted, if there is one.",
    WriteKind.PROTECT: "The autoscaler must not remove the node until Ebb allows its scale-down, "
    "or until some time after the mark was removed.",
    WriteKind.PROTECT_UNMARKED: "The autoscaler must not remove the unmarked node until Ebb "
    "allows its scale-down.",
    WriteKind.REMOVE_PROTECTION: "The autoscaler may remove the node.",
    WriteKind.ALLOW_DRIFT: "Karpenter may replace the marked node, because it has reported the "
    "node as drifted for an hour.",
    WriteKind.REPAIR_TAINTS: "The taints did not match the mark; Ebb corrected them.",
    WriteKind.UPDATE_RESERVE: "The node is now reserved for expected pods, or no longer reserved.",
    WriteKind.REMOVE_BACKOFF: "The backoff of the node ended some time ago, so Ebb removed the "
    "annotation of the backoff.",
}
OTHER_EVENTS: Final = (
    (evictor.EVICTED, "Node", "Normal", "A pod on the node was evicted."),
    (
        evictor.REFUSED,
        "Node",
        "Normal",
        "The API server refused to evict a pod on the node; one Event for each pod.",
    ),
    (evictor.FORBIDDEN, "Namespace", "Warning", evictor.FORBIDDEN_NOTE),
    (
        refusals.REFUSED,
        "Namespace",
        "Warning",
        (
            "A ValidatingAdmissionPolicy for Ebb's own accounts refuses Ebb's writes; the note "
            "names it and the change. One Event until the refusal is over."
        ),
    ),
    (mover.BEGAN, "Deployment", "Normal", "A surge move of a pod of the Deployment began."),
    (mover.MOVED, "Deployment", "Normal", "A surge move replaced a pod of the Deployment."),
    (
        mover.ENDED,
        "Deployment",
        "Normal",
        "A surge move ended otherwise; the note has the outcome.",
    ),
    (
        mover.HANDED_OVER,
        "Pod",
        "Normal",
        "The leader gave its Lease to another replica, which then moves the pod.",
    ),
    (
        mover.FORBIDDEN,
        "Namespace",
        "Warning",
        (
            "`surge` is enabled, but a permission is missing, so "
            "no pod is moved; the note says which."
        ),
    ),
    (config_reload.ACCEPTED, "Namespace", "Normal", "Ebb uses the changed configuration."),
    (
        config_reload.REFUSED,
        "Namespace",
        "Warning",
        (
            "The changed configuration file is invalid; the previous configuration remains in "
            "use. The note lists the errors."
        ),
    ),
    (
        certs.REPLACED,
        "Secret",
        "Normal",
        (
            "Ebb created a new CA, because the previous one could not be used; the note has the "
            "reason."
        ),
    ),
)
"""Reason, object, type and meaning of each Event."""


class Row(NamedTuple):
    """One metric."""

    name: str
    type: str
    labels: Mapping[str, tuple[str, ...]]
    """Values of each label for which series exist from the start; others have no values here."""
    meaning: str
    programs: tuple[str, ...] = ()
    """The programs that serve the metric."""

    @property
    def series(self) -> frozenset[str]:
        """Return the names of its series: a histogram has three."""
        ends = ("_bucket", "_count", "_sum") if self.type == "histogram" else ("",)
        return frozenset(f"{self.name}{end}" for end in ends)


def rows() -> list[Row]:
    """Return the metrics of all programs, sorted by name, with the programs that serve each."""
    found: dict[str, Row] = {}
    for program, metrics in (
        (CONTROLLER, controller.metrics.Metrics()),
        (WEBHOOK, webhook.metrics.Metrics()),
        (EXTENDER, extender.metrics.Metrics()),
    ):
        for row in _rows(metrics):
            served_by = found[row.name].programs if row.name in found else ()
            found[row.name] = row._replace(programs=(*served_by, program))
    return sorted(found.values(), key=lambda row: row.name)


def _rows(metrics: runtime.metrics.Metrics) -> Iterator[Row]:
    for attribute in vars(metrics).values():
        if isinstance(attribute, MetricCollector):
            for gauge in attribute.gauges:
                values = _values(gauge.labels, gauge.before_report)
                yield Row(gauge.name, "gauge", values, gauge.meaning)
        elif isinstance(attribute, MetricWrapperBase):
            yield _row(attribute)


def _row(metric: Any) -> Row:
    (family,) = metric.describe()
    total = "_total" if family.type == "counter" else ""
    labels = metric._labelnames
    values = _values(labels, metric._metrics if labels else ())
    meaning = family.documentation.partition("] ")[2]
    return Row(f"{family.name}{total}", family.type, values, meaning)


def _values(
    labels: Sequence[str], series: Iterable[tuple[str, ...]]
) -> Mapping[str, tuple[str, ...]]:
    """Return the values of each label in the order in which they first appear in the series."""
    columns = [dict.fromkeys(column) for column in zip(*series, strict=True)]
    return {
        label: tuple(columns[number]) if columns else () for number, label in enumerate(labels)
    }


def page() -> str:
    """Return the page as Markdown."""
    parts = (
        _metrics(),
        _labels(),
        _events(),
    )
    return HEAD + "".join(f"{line}\n" for part in parts for line in part)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _metrics() -> Iterator[str]:
    yield from (
        "",
        "## Metrics",
        "",
        "The column *served by* names the programs that serve a metric. Every program also",
        "serves `process_*` and `python_gc_*`. There are no `_created` series. The column",
        "*level* has the [stability level](support-policy.md#metrics-and-events).",
        "",
        "Series exist from the start for the label values in the table. For other labels, a",
        "series appears when its value is first seen. A controller of 5,000 nodes and three",
        "pools has fewer than 700 series, and at most 25 more for each further pool.",
        "",
        "| metric | level | served by | type | labels | meaning |",
        "|---|---|---|---|---|---|",
    )
    for row in rows():
        programs = ", ".join(f"`{program}`" for program in row.programs)
        labels = "; ".join(
            f"`{label}`: {', '.join(values)}" if values else f"`{label}`"
            for label, values in row.labels.items()
        )
        head = f"| `{row.name}` | {stability_of(row.name)} | {programs} | {row.type}"
        yield f"{head} | {labels} | {_cell(row.meaning)} |"


def _labels() -> Iterable[str]:
    explained = (f"| `{name}` | {meaning} |" for name, meaning in LABELS.items())
    return ("", "## Labels", "", "| label | values |", "|---|---|", *explained)


def _events() -> Iterator[str]:
    yield from ("", "## Events", "")
    yield f"`{CONTROLLER}` writes Events about Nodes and about Ebb's Namespace into the namespace"
    yield "`default` (`kubectl -n default get events`), because these objects are in no namespace."
    yield f"`{WEBHOOK}` writes Events about its Secret into the Secret's namespace, `ebb-system`."
    yield from ("", "| reason | on | type | meaning |", "|---|---|---|---|")
    for kind, reason in EVENT_REASONS.items():
        yield f"| `{reason}` | Node | Normal | {EVENTS[kind]} |"
    for reason, on, type_, meaning in OTHER_EVENTS:
        yield f"| `{reason}` | {on} | {type_} | {meaning} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
