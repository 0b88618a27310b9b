"""The engine: which nodes can the cluster do without, together, and why must the others stay.

Pure: same cluster, same configuration, same answer. The steps are those of thesis 4.4, 4.5 and
4.7, extended to a joint plan: what one removal moves is committed before the next is judged.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from core.brakes import Pace
from core.config import Config, UsabilityMode
from core.marks import mark_of
from core.model import Cluster
from core.plan import Plan
from core.survey import Survey
from core.work import Work


def always() -> bool:
    """Say that there is time: for those who wait for a whole plan."""
    return True


def plan(
    cluster: Cluster,
    config: Config,
    *,
    due: frozenset[str] | None = None,
    removals_max: int | None = None,
    pace: Pace | None = None,
    in_time: Callable[[], bool] = always,
) -> Plan:
    """Choose which nodes can go together, and say where their pods would go.

    Nodes that already carry a mark are judged first, in the order of their marks, and need not be
    due. *due* names the others whose delay has elapsed; None: all. At most *removals_max* nodes
    go, the marked ones among them; None: no limit. *pace* is what holds back at this moment; None:
    what could go in the long run, under the lasting limits alone. Once *in_time* says no, no
    further node is tried that is not marked: any first part of a plan is a plan.

    A node that is not marked goes if the cluster stays within the thresholds without it; one that
    is marked, if it stays within the leave thresholds: a load that moves a little changes nothing.

    Candidates are tried in order (price, pods to move, utilization, name) until none of those
    that are left can go. Raises: nothing; "no" stands in Plan.kept.
    """
    work = Work(cluster, config, due=due, pace=pace, in_time=in_time)
    before = work.account.totals()
    pending = work.settle()
    work.account.requests = work.account.requests.plus(work.reserve)
    removals = work.remove_all(removals_max)
    gone = {removal.node for removal in removals}
    after = work.account.totals()
    not_on_nodes = work.pending_amount.plus(work.reserve)
    return Plan(
        policy=config.policy,
        usability=work.survey.usability,
        usability_derived=config.usability is UsabilityMode.AUTO,
        before=before,
        after=replace(after, requests=after.requests.minus(not_on_nodes)),
        removals=removals,
        kept=work.kept(gone),
        pending=pending,
        marked_infeasible=tuple(sorted(work.marked - gone)),
    )


def update_candidates(
    cluster: Cluster, config: Config, candidates: Mapping[str, int], now_seconds: int
) -> dict[str, int]:
    """Return since when each node has been a candidate without a break (thesis 4.4).

    Nodes that pass and were listed keep their time, new ones get *now_seconds*, those that fail
    or are gone are left out. Marked nodes are on their way: they are not listed, and the others
    are judged as if they had gone.
    """
    survey = Survey(cluster, config)
    account = survey.account(cluster.nodes)
    marked = {node.name for node in cluster.nodes if mark_of(node.labels) is not None}
    for number, node in enumerate(cluster.nodes):
        if node.name in marked and node.name not in survey.gone:
            account.remove(number, ())
            account.requests = account.requests.plus(survey.movable_amount(node.name))
    return {
        node.name: candidates.get(node.name, now_seconds)
        for number, node in enumerate(cluster.nodes)
        if node.name not in marked
        and node.name not in survey.gone
        and account.nominated(number, survey.thresholds)
    }


def due(candidates: Mapping[str, int], delay_seconds: int, now_seconds: int) -> frozenset[str]:
    """Return the candidates that have been listed longer than the delay (thesis 4.5: `>`)."""
    return frozenset(
        name for name, since in candidates.items() if now_seconds - since > delay_seconds
    )
