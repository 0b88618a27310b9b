"""Checks of workloads: DaemonSets, PodDisruptionBudgets, pod deletion costs, requests."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from cli.doctor.finding import Check, CheckResult, Evidence, Facts, ok, problem, unread
from cli.explain.caveats import pods_without_requests
from core.config.settings import PodDeletionCost
from core.marks.wellknown import TAINT_KEY
from core.model.humanize import plural
from core.model.node import Taint
from core.model.pod import Pod
from core.placement.matching import tolerates
from core.writes.costs import pods_of_other_writers
from kube.decode.kinds import BUDGETS, DAEMON_SETS

WITHOUT_REQUESTS_PERCENT_MAX: Final = 5
"""Share of movable pods without requests up to which plans are hardly wrong."""


def _daemon_sets(facts: Facts) -> CheckResult:
    if not facts.config.sets_no_schedule:
        return ok("Ebb sets no NoSchedule taint, as `noScheduleAfter` and `eviction` are disabled")
    if why := facts.cluster_input.why_absent(DAEMON_SETS.name):
        return unread(DAEMON_SETS.resource, why)
    taint = Taint(key=TAINT_KEY, value="", effect="NoSchedule")
    intolerant = sorted(
        daemon_set.key
        for daemon_set in facts.cluster.daemon_sets
        if not any(
            tolerates(toleration, taint) for toleration in daemon_set.node_constraints.tolerations
        )
    )
    if intolerant:
        seen = (
            f"no toleration for the taint {taint.key}:NoSchedule in "
            f"{plural(len(intolerant), 'DaemonSet')}"
        )
        return problem(
            seen,
            [
                Evidence(f"DaemonSet {name}", "tolerations", f"none for {taint.key}")
                for name in intolerant
            ],
        )
    count = len(facts.cluster.daemon_sets)
    return ok(f"all DaemonSets ({count:,}) tolerate the taint {taint.key}:NoSchedule")


def _budgets(facts: Facts) -> CheckResult:
    if why := facts.cluster_input.why_absent(BUDGETS.name):
        return unread(BUDGETS.resource, why)
    # A budget whose pods are all needed never allows an eviction; others do so later.
    never = sorted(
        (budget for budget in facts.cluster.budgets if budget.healthy_min >= budget.expected > 0),
        key=lambda budget: budget.key,
    )
    if never and facts.config.evicts:
        evidence = [
            Evidence(
                f"PodDisruptionBudget {budget.key}",
                "status.disruptionsAllowed",
                f"{budget.disruptions_allowed} ({budget.healthy_min} of {budget.expected} pods "
                "must be Ready)",
            )
            for budget in never
        ]
        return problem(
            f"no eviction is possible under {plural(len(never), 'PodDisruptionBudget')}", evidence
        )
    if never:
        count = plural(len(never), "PodDisruptionBudget")
        return ok(f"no eviction is possible under {count}, but Ebb evicts no pods")
    return ok("every PodDisruptionBudget sometimes allows an eviction")


def _costs(facts: Facts) -> CheckResult:
    if facts.config.pod_deletion_cost is PodDeletionCost.DISABLED:
        return ok("Ebb writes no pod deletion costs (podDeletionCost: disabled)")
    pods = pods_of_other_writers(facts.cluster.pods)
    if pods:
        seen = f"another controller writes the deletion cost of {plural(len(pods), 'pod')}"
        return problem(seen, _by_owner(pods, "pods with a deletion cost of another controller"))
    return ok("no other controller writes pod deletion costs")


def _requests(facts: Facts) -> CheckResult:
    movable, without = pods_without_requests(facts.cluster)
    share = 100 * len(without) // max(1, len(movable))
    seen = (
        f"without a request for CPU or memory: {len(without):,} of "
        f"{plural(len(movable), 'pod')} ({share}%)"
    )
    if 100 * len(without) > WITHOUT_REQUESTS_PERCENT_MAX * len(movable):
        return problem(seen, _by_owner(without, "pods without requests"))
    return ok(seen)


def _by_owner(pods: Iterable[Pod], field: str) -> list[Evidence]:
    """Return evidence with the number of pods of each owner, most pods first.

    *field*: what the number counts, such as "pods without requests".
    """
    counts = Counter(
        f"{pod.owner_kind} {pod.namespace}/{pod.owner_name}"
        if pod.owner_kind
        else f"Pod {pod.key}"
        for pod in pods
    )
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [Evidence(owner, field, str(count)) for owner, count in ordered]


CHECKS: Final = (
    Check(
        code="daemonsets",
        question="Do DaemonSets tolerate Ebb's NoSchedule taint?",
        effect="a DaemonSet without the toleration gets no pods on nodes with the taint, so Ebb "
        "keeps the mark of such a node at PreferNoSchedule",
        fix=f"add a toleration with `key: {TAINT_KEY}` and `operator: Exists` to each DaemonSet "
        "in the evidence",
        run=_daemon_sets,
    ),
    Check(
        code="budgets",
        question="Do PodDisruptionBudgets allow evictions, if Ebb evicts pods?",
        effect="the API server never allows an eviction of the protected pods, so the nodes of "
        "these pods do not become empty",
        fix="allow at least one disruption (maxUnavailable of at least 1, or fewer pods in "
        "minAvailable), or exclude the nodes of these pods (docs/eviction.md)",
        run=_budgets,
    ),
    Check(
        code="cost-writers",
        question="Is Ebb the only writer of pod deletion costs?",
        effect="Ebb keeps deletion costs that another controller writes, so scale-ins of these "
        "pods do not empty marked nodes",
        fix="disable the feature of the other controller (Karpenter's PodDeletionCostManagement "
        "or Koordinator's ScaleDownBinPack, for example), or set `podDeletionCost: disabled`",
        run=_costs,
    ),
    Check(
        code="requests",
        question="Do nearly all pods request CPU and memory?",
        effect="a missing request counts as 0, so nodes look emptier than they are",
        fix="set requests in the pod templates, or a LimitRange with defaults in the namespaces",
        run=_requests,
    ),
)
