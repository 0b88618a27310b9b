"""The alerts, each with its runbook, as a PrometheusRule and as docs/alerts.md.

`python -m tests.support.alerts` writes both. One definition for both, so that every alert has a
runbook, and a runbook never explains another expression.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from controller.figures.marks import AGAIN_SECONDS
from controller.loop import STALE_SECONDS
from tests.release.krew import HOME

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "manifests" / "components" / "prometheus-operator" / "prometheusrule.yaml"
PAGE: Final = ROOT / "docs" / "alerts.md"
RUNBOOKS: Final = f"{HOME}/blob/main/docs/alerts.md"
DASHBOARD: Final = "/d/ebb"
"""Path of the dashboard in Grafana."""
BY: Final = "cluster, namespace"
CONTROLLERS: Final = "app.kubernetes.io/name=ebb,app.kubernetes.io/component=controller"
RESTART: Final = "kubectl -n ebb-system rollout restart deployment/ebb-controller"
EDIT: Final = "kubectl -n ebb-system edit configmap ebb-config"
STORED_CONFIG: Final = (
    "kubectl -n ebb-system get configmap ebb-config -o jsonpath='{.data.config\\.yaml}'"
)
REPORT: Final = f"[report it]({HOME}/issues)"
STOP: Final = "[Stop Ebb now](troubleshooting.md#stop-ebb-now)"
COMPONENTS: Final = "[Add or remove components](install-reference.md#add-or-remove-components)"
STATUS: Final = "ebb status"
AS_CONTROLLER: Final = "--as system:serviceaccount:ebb-system:ebb-controller"
REGISTRATION: Final = "kubectl get mutatingwebhookconfiguration ebb-webhook -o yaml"


def _logs(component: str) -> str:
    """Return the command for the logs of all replicas: by Deployment, kubectl picks one pod."""
    return (
        f"kubectl -n ebb-system logs -l app.kubernetes.io/component={component} --prefix --tail=-1"
    )


def _limits(program: str) -> tuple[str, str]:
    """Return the command that shows the CPU limit of a program."""
    path = "{.spec.template.spec.containers[0].resources}"
    return (
        f"kubectl -n ebb-system get deployment {program} -o jsonpath='{path}'",
        "the CPU limit; Ebb's manifests set none",
    )


def _expiry(secret: str, key: str = "tls") -> str:
    """Return the command for the end of the certificate in a Secret."""
    return (
        f"kubectl -n ebb-system get secret {secret} -o jsonpath='{{.data.{key}\\.crt}}' "
        "| base64 -d | openssl x509 -noout -enddate"
    )


TOP: Final = "kubectl -n ebb-system top pods"
LOGS: Final = _logs("controller")


class Alert(NamedTuple):
    """An alert with its runbook."""

    name: str
    expression: str
    for_: str
    """How long the expression must hold."""
    severity: str
    """`critical`, `warning` or `info`."""
    summary: str
    meaning: str
    """What it means, and what happens meanwhile."""
    look: tuple[tuple[str, str], ...]
    """Commands, each with what to look for."""
    act: str


def _sum(expression: str, *labels: str) -> str:
    return f"sum by ({', '.join((BY, *labels))}) ({expression})"


def _max(expression: str, *labels: str) -> str:
    return f"max by ({', '.join((BY, *labels))}) ({expression})"


ALERTS: Final = (
    Alert(
        "EbbDown",
        f"group by ({BY}) (last_over_time(ebb_leader[1d])) unless group by ({BY}) (ebb_leader)",
        "10m",
        "warning",
        "no controller of Ebb is scraped any more",
        "Prometheus has scraped no controller for ten minutes, but did within the last day. If "
        "none runs, no node is marked and no mark is removed. Scheduling goes on as before.",
        (
            ("kubectl -n ebb-system get pods -o wide", "whether the controller runs"),
            ("kubectl -n ebb-system describe deployment ebb-controller", "why it does not"),
        ),
        "If the pods run, check the PodMonitor or scrape configuration and the NetworkPolicy. If "
        "you have uninstalled Ebb, the alert ends within a day.",
    ),
    Alert(
        "EbbNotOneLeader",
        f"{_sum('ebb_leader')} != 1",
        "5m",
        "critical",
        "{{ $value }} replicas of the controller lead, instead of one",
        "Without a leader, nobody removes marks for Pending pods. With two leaders, which means "
        "two installations or a stopped clock, their writes may contradict each other.",
        (
            ("kubectl -n ebb-system get pods -o wide", "whether the controllers run"),
            ("kubectl -n ebb-system get lease ebb-controller -o yaml", "holder, and last renewal"),
            (LOGS, "`lost the Lease`, or errors of the API server"),
            (f"kubectl get pods -A -l {CONTROLLERS}", "a second installation"),
        ),
        "1. No leader, and the pods do not run: `kubectl -n ebb-system describe pods` says why.\n"
        "2. No leader, and the API server is overloaded or rejects the Lease: repair that. Run "
        "no command that writes until then. A replica leads as soon as it can write the Lease.\n"
        "3. Two leaders: remove the second installation "
        "([uninstall](install-reference.md#uninstalling-without-a-trace)). If there is only one, "
        f"run `{RESTART}`.\n"
        f"4. If pods are Pending because of marks, and the API server answers: {STOP}.",
    ),
    Alert(
        "EbbReconciliationStuck",
        f"time() - {_max('ebb_reconcile_last_success_timestamp_seconds')} > 300",
        "5m",
        "critical",
        "no reconciliation has succeeded for {{ $value | humanizeDuration }}",
        "The controller runs but makes no plans: its view is outdated, or each reconciliation "
        "fails. No node is marked, and no mark is removed. NoSchedule marks become "
        "PreferNoSchedule: at the second failure in a row, or after three minutes with an "
        "outdated view, if the Nodes in it are up to date.",
        ((LOGS, "`cannot reconcile`, or a stack trace"),),
        "If the log names a resource, see [EbbViewStale](#ebbviewstale). If it has a stack trace, "
        f"{REPORT}, and restart the controller: `{RESTART}`. With `controller.interval` above 1m, "
        "raise the threshold.",
    ),
    Alert(
        "EbbReconciliationErrors",
        f"{_sum('increase(ebb_reconcile_errors_total[15m])')} > 0",
        "5m",
        "warning",
        "reconciliations end with an exception",
        "An exception ended a reconciliation, or its writes. The next one follows after a pause "
        "of up to 30 s.",
        ((LOGS, "the stack trace"),),
        f"This is a defect of Ebb: {REPORT}, with the stack trace.",
    ),
    Alert(
        "EbbReconciliationTimeouts",
        f"{_sum('increase(ebb_reconcile_timeouts_total[1h])')} > 0",
        "1h",
        "info",
        "reconciliations reach their time limit",
        "Reconciliations take longer than ten seconds. Nodes that they have not evaluated have "
        "the reason `time-box`, and later reconciliations try them.",
        ((TOP, "CPU in use; needs metrics-server"), _limits("ebb-controller")),
        "Give the controller a faster CPU, or remove its CPU limit.",
    ),
    Alert(
        "EbbViewStale",
        f"{_max('ebb_watch_age_seconds', 'pod', 'resource')} > {STALE_SECONDS}",
        "5m",
        "warning",
        "{{ $labels.pod }} has heard nothing about {{ $labels.resource }} for "
        "{{ $value | humanizeDuration }}",
        "The API server has sent neither events nor bookmarks about the resource. The controller "
        "makes no plans without it. The extender gives all nodes the same score.",
        (
            ("kubectl -n ebb-system logs POD", "why the watch or the list fails"),
            (f"kubectl auth can-i list RESOURCE {AS_CONTROLLER}", "a missing permission"),
        ),
        "Add the missing permission or the missing kind (an aggregated API server may be down). "
        "Otherwise check the load of the API server.",
    ),
    Alert(
        "EbbCertificateExpiring",
        "0 < ebb_serving_certificate_expiration_timestamp_seconds < time() + 86400",
        "15m",
        "critical",
        "the serving certificate of {{ $labels.pod }} expires within a day",
        "The certificate should have been renewed long ago. After it has expired, calls of the "
        "API server or of kube-scheduler fail: taints are written a little later, and scores are "
        "missing.",
        (
            ("kubectl -n ebb-system logs POD", "why no new certificate is served"),
            (_expiry("ebb-webhook-tls"), "the webhook with cert-manager"),
            (_expiry("ebb-extender-tls"), "the extender"),
        ),
        "The webhook without cert-manager keeps its certificate in memory: run "
        "`kubectl -n ebb-system rollout restart deployment/ebb-webhook`. With cert-manager, run "
        "`kubectl -n ebb-system describe certificate ebb-webhook`. For the extender, put a new "
        "certificate into the Secret "
        "([TLS and client certificates](install-reference.md#tls-and-client-certificates)).",
    ),
    Alert(
        "EbbCaExpiring",
        "0 < ebb_webhook_ca_expiration_timestamp_seconds < time() + 30 * 86400",
        "1h",
        "warning",
        "the CA of Ebb's webhook expires within 30 days",
        "Ebb replaces its CA when a third of its ten years is left, so the rotation is stuck.",
        (
            (_logs("webhook"), "errors about the Secret"),
            (_expiry("ebb-webhook-certs", "ca"), "the end of the present CA"),
            (REGISTRATION, "the caBundle"),
        ),
        "Give the webhook its permission to write the Secret and the caBundle again: apply the "
        "manifests. This requests a new CA: "
        "`kubectl -n ebb-system annotate secret ebb-webhook-certs kube-ebb.io/rotate=now`.",
    ),
    Alert(
        "EbbMarkedNodeDoesNotEmpty",
        f"time() - {_max('ebb_oldest_mark_timestamp_seconds > 0')} > 72000",
        "30m",
        "info",
        "a node has been marked for {{ $value | humanizeDuration }} and is not empty",
        "Pods on the node live longer than expected. After `deadline` (24h by default), Ebb "
        "removes the mark, and does not mark the node again for some time.",
        (
            (STATUS, "the oldest mark"),
            ("ebb explain node NODE", "the pods on it, and what could move them"),
        ),
        "Wait, or let surge moves or eviction empty nodes ([surge.md](surge.md), "
        "[eviction.md](eviction.md)). The threshold is 72000 s (20 h): with another `deadline`, "
        "change it.",
    ),
    Alert(
        "EbbDeadlinesMissed",
        "sum by (cluster, namespace) "
        '(increase(ebb_unmarks_total{reason="deadline-missed"}[1d])) > 5',
        "",
        "info",
        "{{ $value | humanize }} marked nodes did not empty before their deadline within a day",
        "Marks have no effect on these nodes: their pods do not terminate by themselves.",
        ((STATUS, "nodes in backoff"), ("ebb explain node NODE", "their pods")),
        "Enable surge moves, or exclude these nodes: list the other ones in `pools`.",
    ),
    Alert(
        "EbbEmptyNodeNotTaken",
        f"time() - {_max('ebb_oldest_scale_down_allowed_timestamp_seconds > 0')} > 3600",
        "15m",
        "warning",
        "an empty node waits for the autoscaler for {{ $value | humanizeDuration }}",
        "Ebb allows the scale-down of an empty node, and the autoscaler has not removed it. The "
        "node costs money.",
        (
            (STATUS, "nodes whose scale-down is allowed"),
            ("kubectl describe node NODE", "Events of the autoscaler"),
            (
                "kubectl -n kube-system get configmap cluster-autoscaler-status -o yaml",
                "scale-down, and minimum sizes",
            ),
        ),
        "Check that the autoscaler runs and may remove the node: minimum size of its group, "
        "`--scale-down-enabled`, NodePool budgets, and its own delay if it is above an hour.",
    ),
    Alert(
        "EbbPodsPendingBecauseOfMarks",
        _max('ebb_pending_pods{cause="mark"}') + " > 0",
        "2m",
        "critical",
        "{{ $value }} pods are Pending although a marked node has room for them",
        "Nodes with a NoSchedule mark have room for these pods. Ebb normally removes such marks "
        "within seconds.",
        (
            ("kubectl get pods -A --field-selector=status.phase=Pending", "the pods"),
            ("ebb explain pod NAMESPACE/NAME", "what Ebb knows about the pod"),
            (LOGS, "failed writes"),
        ),
        "1. Set `noScheduleAfter: never`, and `eviction: {mode: disabled}` if it is enabled: "
        f"`{EDIT}`. The controller reads the change within about a minute, and changes all marks "
        "to PreferNoSchedule. Change your overlay or Helm values too, or the next deployment "
        "restores the old setting.\n"
        "2. If pods are still Pending: `ebb cleanup --all --stop-controller`. No node is marked "
        "until you start the controller again: "
        "`kubectl -n ebb-system scale deployment/ebb-controller --replicas=2`. Without "
        f"`--stop-controller`, the controller marks nodes again. See {STOP}.\n"
        f"3. This is a defect of Ebb: {REPORT}, with the constraints of the pod.",
    ),
    Alert(
        "EbbMarksFlapping",
        f"{_sum('increase(ebb_remarked_nodes_total[6h])')} > 20",
        "",
        "warning",
        "{{ $value | humanize }} nodes were marked again soon after their mark was removed",
        f"Nodes lose their mark and get it again within {AGAIN_SECONDS // 60} minutes, so Ebb "
        "follows the load too closely. Each change is a write, and pods move for nothing. "
        "`ebb_unmarks_total` counts the removals by reason. Events may be gone: the API "
        "server keeps them for an hour by default.",
        (
            (LOGS, "`writing a Node` with the operation `unmark`, and its reason"),
            ("kubectl -n ebb-system get configmap ebb-config -o yaml", "thresholds and delays"),
        ),
        "Raise `hysteresis`, `unneededTime` or `stabilizationWindow`.",
    ),
    Alert(
        "EbbWritesFail",
        'sum by (cluster, namespace, operation) (increase(ebb_node_writes_total{result="error"}'
        "[15m])) > 0",
        "15m",
        "warning",
        "writes to Nodes fail ({{ $labels.operation }})",
        "The API server refuses writes, or does not answer. Marks cannot be set or removed.",
        (
            (LOGS, "`cannot write a Node`, with the answer"),
            (f"kubectl auth can-i patch nodes {AS_CONTROLLER}", "a missing permission"),
        ),
        "Repair RBAC, or the admission webhook or policy that refuses the write. If it is "
        "`ebb-controller-nodes`, the answer names the field that something else changes in Ebb's "
        "writes: [What Ebb's accounts may "
        "write](install-reference.md#what-ebbs-accounts-may-write).",
    ),
    Alert(
        "EbbApiThrottled",
        _sum('increase(ebb_api_requests_total{code="429"}[10m])', "pod") + " > 5",
        "10m",
        "warning",
        "the API server throttles {{ $labels.pod }}",
        "The API server answers 429. Ebb retries, so it reacts later to Pending pods.",
        (
            (
                "kubectl get --raw /metrics | grep apiserver_flowcontrol_rejected_requests_total",
                "the priority level that rejects requests",
            ),
        ),
        "Relieve the API server, or give Ebb's service accounts a FlowSchema of their own.",
    ),
    Alert(
        "EbbApiErrors",
        _sum('increase(ebb_api_requests_total{code=~"error|5.."}[10m])', "pod")
        + " > 0.2 * "
        + _sum("increase(ebb_api_requests_total[10m])", "pod"),
        "10m",
        "warning",
        "a fifth of the requests of {{ $labels.pod }} to the API server fail",
        "The API server does not answer, or answers with an error.",
        (("kubectl get --raw '/readyz?verbose'", "the health of the API server"),),
        "Check the API server and the network between it and Ebb.",
    ),
    Alert(
        "EbbBudgetExhausted",
        _max('ebb_unremovable_nodes{reason=~"budget-marked|budget-new-marks"}', "reason") + " > 0",
        "12h",
        "info",
        "no node could be marked for twelve hours because of a budget ({{ $labels.reason }})",
        "A limit on the number of marked nodes, or of marks in a window, has been reached all the "
        "time. If marked nodes do not empty, they use up the budget.",
        ((STATUS, "marked nodes, and their age"), ("ebb plan", "what the plan could remove")),
        "If marked nodes empty slowly, see "
        "[EbbMarkedNodeDoesNotEmpty](#ebbmarkednodedoesnotempty). Otherwise raise `budgets`.",
    ),
    Alert(
        "EbbExtenderNotCalled",
        f"(time() - {_max('ebb_extender_last_prioritize_timestamp_seconds')} > 1800) and "
        f"({_sum('ebb_pool_pods')} - {_sum('ebb_pool_pods offset 30m')} > 50)",
        "10m",
        "warning",
        "kube-scheduler does not call the extender",
        "The number of pods has grown by more than 50 within 30 minutes, but no prioritize call "
        "has arrived. kube-scheduler ignores errors of the extender. Pods are scheduled without "
        "scores, so marked nodes fill up again.",
        (
            (
                "kubectl -n kube-system logs -l component=kube-scheduler --tail=-1 --prefix",
                "errors of the extender (only if kube-scheduler runs with `-v=5`)",
            ),
            ("kubectl -n ebb-system get service ebb-extender -o yaml", "the address"),
        ),
        "Compare the scheduler's configuration with [install.md](install.md): address, CA file, "
        "client certificate, and that it has been restarted with this configuration.",
    ),
    Alert(
        "EbbExtenderSlow",
        "histogram_quantile(0.99, sum by (cluster, namespace, le) "
        "(rate(ebb_extender_prioritize_duration_seconds_bucket[10m]))) > 0.25",
        "10m",
        "warning",
        "the slowest 1% of prioritize calls take more than 250 ms",
        "Slow answers delay the scheduling of pods. kube-scheduler waits for each call.",
        ((TOP, "CPU of the extender; needs metrics-server"), _limits("ebb-extender")),
        "Give the extender a faster CPU or more replicas, or remove its CPU limit.",
    ),
    Alert(
        "EbbExtenderNeutral",
        _sum('increase(ebb_extender_prioritize_requests_total{result!="scored"}[10m])') + " > 5",
        "10m",
        "warning",
        "prioritize calls get no scores",
        "All nodes get the same score because the extender's view is too old (`neutral`), or "
        "calls are invalid (`refused`).",
        ((_logs("extender"), "rejected requests, or watches"),),
        "For `neutral` see [EbbViewStale](#ebbviewstale). For `refused` check the scheduler's "
        "configuration.",
    ),
    Alert(
        "EbbWebhookRepairs",
        f"{_sum('increase(ebb_webhook_ca_bundle_repairs_total[15m])')} > 2",
        "",
        "warning",
        "another writer removes Ebb's CA from the caBundle",
        "Ebb restores its CA each time. In between, the API server cannot call the webhook, and "
        "the controller writes the taints itself.",
        ((f"{REGISTRATION} --show-managed-fields", "who writes the caBundle"),),
        "Exclude the field from the GitOps tool: see [GitOps](install-reference.md#gitops).",
    ),
    Alert(
        "EbbTlsFailures",
        'increase(ebb_tls_handshake_failures_total{reason="certificate"}[15m]) > 0',
        "15m",
        "warning",
        "TLS connections to {{ $labels.pod }} fail because of a certificate",
        "Ebb or its client (the API server or kube-scheduler) rejects the certificate of the "
        "other.",
        (("kubectl -n ebb-system logs POD", "failed handshakes"),),
        "Update the CA file that the client uses. A new CA needs a restart of kube-scheduler.",
    ),
    Alert(
        "EbbForeignDeletionCosts",
        f"{_max('ebb_foreign_cost_pods')} > 0",
        "1h",
        "info",
        "another controller writes the deletion costs of {{ $value }} pods",
        "Ebb leaves these costs alone, so scale-ins may delete pods on other nodes first.",
        (("ebb explain pod NAMESPACE/NAME", "`pod-foreign-cost`"),),
        "Decide which of the two writes the costs, and disable the other (`podDeletionCost` in "
        "Ebb's configuration).",
    ),
    Alert(
        "EbbConfigurationRefused",
        "ebb_config_last_reload_successful == 0",
        "5m",
        "warning",
        "{{ $labels.pod }} has refused the changed configuration",
        "The file is invalid. The previous configuration remains in use until a restart, which "
        "would fail.",
        (
            ("kubectl -n ebb-system logs POD", "the errors"),
            (
                f"{STORED_CONFIG} | ebb config validate -",
                "all errors",
            ),
        ),
        "Correct the configuration, and apply it "
        f"([how](install-reference.md#changes-of-the-configuration)), or `{EDIT}`.",
    ),
    Alert(
        "EbbUnreadableObjects",
        f"{_max('ebb_unreadable_objects', 'resource')} > 0",
        "1h",
        "info",
        "Ebb cannot decode {{ $value }} objects ({{ $labels.resource }})",
        "Nodes with such objects are not removed; [Unreadable "
        "objects](design/planning.md#unreadable-objects) lists the consequences for each kind.",
        ((LOGS, "`cannot decode an object`, with its name"),),
        f"Correct the object. If it is valid, {REPORT}.",
    ),
    Alert(
        "EbbClockJumped",
        "abs(ebb_clock_offset_seconds) > 60",
        "15m",
        "warning",
        "the wall clock of {{ $labels.pod }} has jumped by {{ $value | humanizeDuration }}",
        "Ebb continues with its own time, so deadlines do not end early.",
        (
            ("kubectl -n ebb-system get pod POD -o wide", "the node of the pod"),
            ("chronyc tracking", "on this node: the state of its time synchronization"),
        ),
        f"Check NTP on the node, then restart the controller to use the new time: `{RESTART}`.",
    ),
    Alert(
        "EbbWritesRefused",
        f"{_max('ebb_writes_refused')} == 1",
        "5m",
        "warning",
        "a policy for Ebb's own accounts refuses Ebb's writes",
        "A mutating webhook or policy of somebody else changes the objects of Ebb's writes, so "
        "the [policies for Ebb's own "
        "accounts](install-reference.md#what-ebbs-accounts-may-write) refuse them. "
        "No mark, surge move or eviction begins, and marks cannot be removed. After a minute Ebb "
        "tries again. If only writes to pods are refused, only surge moves and pod deletion costs "
        "are affected.",
        (
            ("ebb status", "the policy, and the field that was changed"),
            ("ebb doctor", "check `mutating-admission`: the webhooks and policies that may do it"),
        ),
        "1. Let the webhook or policy leave out the requests of Ebb: a match condition with "
        """`!request.userInfo.username.endsWith(":ebb-controller")`.\n"""
        "2. If that takes time, let the policy of Ebb only audit: `kubectl patch "
        "validatingadmissionpolicybinding ebb-controller-nodes --type=merge -p "
        """'{"spec":{"validationActions":["Audit"]}}'`, with the name of the policy.\n"""
        f"3. If pods are Pending because of marks: {STOP}.",
    ),
    Alert(
        "EbbEvictionForbidden",
        f"{_max('ebb_eviction_forbidden')} == 1",
        "5m",
        "warning",
        "eviction is enabled, but RBAC does not allow it",
        "No pod is evicted.",
        (("kubectl get clusterrole ebb-controller-eviction", "whether the component exists"),),
        "Add `manifests/components/eviction` to the overlay and apply it, or set "
        f"`eviction: {{mode: disabled}}`. See {COMPONENTS}.",
    ),
    Alert(
        "EbbSurgeForbidden",
        f"{_max('ebb_surge_forbidden')} == 1",
        "5m",
        "warning",
        "surge moves are enabled, but RBAC does not allow them",
        "No pod is moved.",
        (("kubectl get clusterrole ebb-controller-surge", "whether the component exists"),),
        "Add `manifests/components/surge` to the overlay and apply it, or set "
        f"`surge: {{mode: disabled}}`. See {COMPONENTS}.",
    ),
    Alert(
        "EbbSurgeOverdue",
        f"{_max('ebb_surge_overdue_pods')} > 0",
        "5m",
        "warning",
        "{{ $value | humanize }} pods are detached beyond the deadline of their surge move",
        "Such a pod keeps running without its ReplicaSet, also after a rollout or a scale to 0: "
        "with an old version behind its Service.",
        (
            (
                "kubectl get pods -A -l kube-ebb.io/detached -L kube-ebb.io/detached",
                "the pods, each with its hash",
            ),
            (_logs("controller"), "why the controller cannot attach them"),
        ),
        "Give the controller its permission to patch pods, or repair the admission webhook or "
        "policy that refuses the write. To mend a pod by hand: `kubectl label pod NAME -n "
        "NAMESPACE pod-template-hash=HASH kube-ebb.io/detached-` ([surge.md](surge.md)). "
        "`ebb cleanup --all` does it for all pods, and removes everything else of Ebb.",
    ),
    Alert(
        "EbbKeepsEmptyNodes",
        f"{_sum('min_over_time(ebb_reserved_nodes[6h])')} > 0.1 * {_sum('ebb_nodes')}",
        "1h",
        "info",
        "Ebb has kept {{ $value | humanize }} empty nodes from scale-down for hours",
        "More than a tenth of the nodes are empty and cost money. The autoscaler alone would "
        "remove them.",
        (
            ("ebb status", "which empty nodes Ebb keeps, why, for how long and at what price"),
            ("ebb_reserved_nodes", "the number of nodes by cause, in Prometheus"),
        ),
        "For the cause `expected`, shorten `reserve.window`; for `buffer`, "
        "reduce the CapacityBuffer; for `scope`, set "
        "`scaleDownProtection: {scope: reserved}`.",
    ),
    Alert(
        "EbbEventsLost",
        f"{_sum('increase(ebb_event_write_failures_total[1h])', 'pod')} > 0",
        "",
        "info",
        "Events of {{ $labels.pod }} were lost",
        "Decisions are carried out, but people do not see them on the Node.",
        (("kubectl -n ebb-system logs POD", "the answer of the API server"),),
        "Repair RBAC for Events.",
    ),
)
"""All alerts. A healthy cluster, a restart and a change of the leader fire none of them."""


def rule(alert: Alert) -> dict[str, Any]:
    """Return the alert as a rule of Prometheus."""
    found: dict[str, Any] = {"alert": alert.name, "expr": alert.expression}
    if alert.for_:
        found["for"] = alert.for_
    return found | {
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": f"Ebb: {alert.summary}",
            "description": alert.meaning,
            "runbook_url": f"{RUNBOOKS}#{alert.name.lower()}",
            "dashboard_url": DASHBOARD,
        },
    }


def groups() -> dict[str, Any]:
    """Return the rule groups, as in a rule file of Prometheus."""
    return {"groups": [{"name": "ebb", "rules": [rule(alert) for alert in ALERTS]}]}


def manifest() -> str:
    """Return the PrometheusRule as YAML."""
    found = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "ebb",
            "namespace": "ebb-system",
            "labels": {
                "app.kubernetes.io/name": "ebb",
                "app.kubernetes.io/instance": "ebb",
                "app.kubernetes.io/component": "alerts",
            },
        },
        "spec": groups(),
    }
    note = "# `make fix` generates this file from tests/support/alerts.py.\n"
    return note + yaml.safe_dump(found, sort_keys=False, width=99)


def page() -> str:
    """Return the runbooks as Markdown."""
    return "\n".join((*_head(), *(line for alert in ALERTS for line in _runbook(alert)), ""))


def _head() -> Iterator[str]:
    yield from (
        "# Alerts",
        "",
        "`make fix` generates this page and the PrometheusRule from one list.",
        "",
        "`manifests/components/prometheus-operator` has the alerts and a PodMonitor. Without",
        "the Prometheus Operator, copy `spec` of its `prometheusrule.yaml` into a rule",
        "file of Prometheus.",
        "",
        "Alerts are grouped by the labels `namespace` and `cluster`, if Prometheus adds them.",
        "Some need the label `pod`, as in the scrape configurations of [metrics.md](metrics.md).",
        "The annotation `runbook_url` links to the section of this page.",
        "",
        "The severity `critical` means that workloads may be harmed soon. `warning` needs",
        "somebody within days. `info` means that Ebb saves less than it could.",
        "",
        f"If Ebb does harm now, see {STOP}.",
        "",
        "| alert | severity | for | summary |",
        "|---|---|---|---|",
    )
    for alert in ALERTS:
        summary = alert.summary.replace("|", "\\|")
        link = f"[{alert.name}](#{alert.name.lower()})"
        yield f"| {link} | {alert.severity} | {alert.for_} | {summary} |"


def _runbook(alert: Alert) -> Iterator[str]:
    yield from ("", f"## {alert.name}", "", "```promql", alert.expression, "```", "")
    yield from (alert.meaning, "")
    yield from (f"- `{command}`{f': {what}' if what else ''}" for command, what in alert.look)
    yield from ("", alert.act)


if __name__ == "__main__":
    RULES.write_text(manifest(), "utf-8")
    PAGE.write_text(page(), "utf-8")
