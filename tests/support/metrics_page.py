"""Writes docs/metrics.md from what the programs tell: `python -m tests.support.metrics_page`."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client.metrics import MetricWrapperBase

import controller.metrics
import core.edge.metrics
import extender.metrics
import webhook.metrics
from controller import config_reload, evictor
from controller.loop import STALE_SECONDS
from controller.writers import EVENT_REASONS
from core.edge.metrics import MetricCollector
from core.engine.plan import REACHES_SHOWN
from core.fields.structure import CONTROLLER, EXTENDER, WEBHOOK
from core.writes.write import WriteKind
from webhook import certs

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
HEAD: Final = f"""# Metrics and Events

Written by `make fix` from the programs themselves.

## Scraping

Every program serves `/metrics`:

| program | port | setting | over |
|---|---|---|---|
| `{CONTROLLER}` | `metrics`, 8081 | `controller.metricsListen` | plain HTTP |
| `{WEBHOOK}` | `metrics`, 8080 | `webhook.metricsListen` | plain HTTP |
| `{EXTENDER}` | `prioritize`, 8888 | `extender.listen` | TLS with `extender.certFile` |

A scrape needs no client certificate, also where `extender.clientCAFile` is set.
Scrape every pod, not a Service: each replica reports on itself, and only the controller replica
that leads reports the results of a pass. What a scrape returns is at most a quarter of a second
old. The NetworkPolicies of the manifests let pods reach these ports. For Prometheus without an
operator:

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

## What to alert on

| when | for | what it means |
|---|---|---|
"""
ALERTS: Final = (
    (
        "(sum(ebb_leader) or vector(0)) != 1",
        "5m",
        "no replica runs the engine: marks stay and none is added",
    ),
    (
        f"max by (resource) (ebb_view_age_seconds) > {STALE_SECONDS}",
        "5m",
        "the API server is not heard: nothing is judged until it is",
    ),
    (
        "increase(ebb_engine_pass_failures_total[15m]) > 0",
        "",
        "a pass ended with an exception: the log has it",
    ),
    (
        "increase(ebb_engine_pass_timeouts_total[1h]) > 0",
        "1h",
        "passes take too long: nodes with the code `time-box` wait for later ones",
    ),
    (
        'increase(ebb_engine_writes_total{kind="failed"}[15m]) > 0',
        "15m",
        "Nodes cannot be written: rights, or another webhook that refuses",
    ),
    (
        "ebb_config_last_reload_successful == 0",
        "5m",
        "the configuration file has a fault; the one before is in use",
    ),
    (
        "0 < ebb_serving_certificate_expiration_timestamp_seconds < time() + 86400",
        "",
        "a certificate is not renewed: then marks become no taints, or calls fail",
    ),
    (
        "increase(ebb_webhook_ca_bundle_repairs_total[15m]) > 2",
        "",
        "another writer removes Ebb's CA from the `caBundle`: see [install](install.md#gitops)",
    ),
    (
        'increase(ebb_tls_handshake_failures_total{reason="certificate"}[15m]) > 0',
        "15m",
        "a caller and Ebb do not take each other's certificate: no taints, or no scores",
    ),
    (
        "ebb_unreadable_objects > 0",
        "1h",
        "Nodes stay that cannot be read, or hold such pods; of others docs/how-it-works.md",
    ),
    ("abs(ebb_clock_off_seconds) > 60", "15m", "a wall clock has jumped"),
    (
        "ebb_engine_eviction_forbidden == 1",
        "5m",
        "`eviction: enabled` without `components/eviction`",
    ),
    (
        'rate(ebb_extender_prioritize_requests_total{outcome!="scored"}[10m]) > 0',
        "10m",
        "calls get no scores: the view is old (`neutral`), or they cannot be read (`refused`)",
    ),
    ("increase(ebb_lost_events_total[1h]) > 0", "", "Events were not written"),
)
"""An expression of Prometheus, how long it holds, what it means."""
LABELS: Final[Mapping[str, str]] = {
    "kind": f"what a write is for, of Nodes {', '.join(WriteKind)}; `outdated`: the object had "
    "changed, `dropped`: it can wait for the next pass, `failed`",
    "outcome": "what became of it, as the metric names them",
    "pool": "a pool of `underutilizedCount.pools`",
    "reach": f"the name of a reach, as `ebb plan` tells it; at most {REACHES_SHOWN}",
    "reason": "a code of [all reasons](reasons.md); of watches what ended it: `expired`, "
    "`restored` (etcd was restored from a backup), `throttled`, `error`, `timeout`; of handshakes "
    "`certificate` (one side does not take the other's), `protocol` (no TLS, or no version of it "
    "that both know), `connection` (the caller went, or took too long)",
    "resource": "`cpu`, `memory`; of views, watches and objects their kind, as in the API's paths",
    "result": "`judged` or `skipped`",
    "state": "of buffers `asked`, `allowed`, `kept`; of what Ebb publishes `asked`, `accepted`",
}
"""What their values are."""
EVENTS: Final[Mapping[StrEnum, str]] = {
    WriteKind.MARK: "it is marked, and why",
    WriteKind.HARDEN: "the mark has become hard",
    WriteKind.SOFTEN: "the mark is soft again",
    WriteKind.RELEASE: "the mark is gone, and why: of a failed drain the pod and the reason",
    WriteKind.GUARD: "the autoscaler is kept from it while it is marked",
    WriteKind.HOLD: "the autoscaler is kept from it without a mark: Ebb has not handed it over",
    WriteKind.UNGUARD: "the autoscaler may take it",
    WriteKind.REPAIR: "its taints were not those of its mark, and are",
    WriteKind.TELL: "for which pods it is kept has changed",
    WriteKind.FORGET: "its back-off ended long ago: the record of it has gone",
}
OTHER_EVENTS: Final = (
    (evictor.EVICTED, "Node", "Normal", "a pod of it was evicted"),
    (evictor.REFUSED, "Node", "Normal", "a pod of it was not let go, once for each pod"),
    (evictor.FORBIDDEN, "Namespace", "Warning", evictor.FORBIDDEN_NOTE),
    (config_reload.ACCEPTED, "Namespace", "Normal", "another configuration is in use"),
    (
        config_reload.REFUSED,
        "Namespace",
        "Warning",
        "the file's faults; the one before stays in use",
    ),
    (certs.REPLACED, "Secret", "Normal", "the CA could not be used: there is a new one, and why"),
)
"""The reason, on what, the type, what it says."""


class Row(NamedTuple):
    """One metric."""

    name: str
    type: str
    labels: tuple[str, ...]
    what: str
    values: tuple[str, ...] = ()
    """Of its label, as far as they are told from the start on."""
    programs: tuple[str, ...] = ()
    """The programs that serve it."""


def rows() -> list[Row]:
    """Return every metric of all programs by name, each with the programs that serve it."""
    found: dict[str, Row] = {}
    for program, metrics in (
        (CONTROLLER, controller.metrics.Metrics()),
        (WEBHOOK, webhook.metrics.Metrics()),
        (EXTENDER, extender.metrics.Metrics()),
    ):
        for one in _rows(metrics):
            served_by = found[one.name].programs if one.name in found else ()
            found[one.name] = one._replace(programs=(*served_by, program))
    return sorted(found.values())


def _rows(made: core.edge.metrics.Metrics) -> Iterator[Row]:
    for one in vars(made).values():
        if isinstance(one, MetricCollector):
            yield from (Row(told.name, "gauge", told.labels, told.what) for told in one._gauges)
        elif isinstance(one, MetricWrapperBase):
            yield _row(one)


def _row(one: Any) -> Row:
    (family,) = one.describe()
    total = "_total" if family.type == "counter" else ""
    values = tuple(value for (value,) in one._metrics) if one._labelnames else ()
    name = f"{family.name}{total}"
    return Row(name, family.type, one._labelnames, family.documentation, values)


def page() -> str:
    """Return the page as Markdown."""
    parts = (
        (f"| `{_cell(when)}` | {span} | {what} |" for when, span, what in ALERTS),
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
        "Each program serves the metrics that name it under *served by*. Every program serves",
        "`process_*` and `python_gc_*` too.",
        "",
        "| metric | served by | type | labels | meaning |",
        "|---|---|---|---|---|",
    )
    for one in rows():
        programs = ", ".join(f"`{program}`" for program in one.programs)
        labels = ", ".join(f"`{label}`" for label in one.labels)
        labels += f": {', '.join(one.values)}" if one.values else ""
        yield f"| `{one.name}` | {programs} | {one.type} | {labels} | {_cell(one.what)} |"


def _labels() -> Iterable[str]:
    told = (f"| `{name}` | {what} |" for name, what in LABELS.items())
    return ("", "## Labels", "", "| label | values |", "|---|---|", *told)


def _events() -> Iterator[str]:
    yield from ("", "## Events", "")
    yield f"`{CONTROLLER}` writes Events about Nodes and about Ebb's Namespace into the namespace"
    yield "`default` (`kubectl -n default get events`), because these objects are in no namespace."
    yield f"`{WEBHOOK}` writes Events about its Secret into the Secret's namespace, `ebb-system`."
    yield from ("", "| reason | on | type | what it says |", "|---|---|---|---|")
    for kind, reason in EVENT_REASONS.items():
        yield f"| `{reason}` | Node | Normal | {EVENTS[kind]} |"
    for reason, on, type_, what in OTHER_EVENTS:
        yield f"| `{reason}` | {on} | {type_} | {what} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
