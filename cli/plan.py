"""Make the answer of `ebb plan`."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from cli.answers import Planned, RowOptions
from cli.explain.caveats import Caveat, caveats, nothing_selected
from cli.explain.emptying import emptying
from cli.explain.headline import headline
from cli.input.cluster_input import ClusterInput
from cli.input.kept_empty import kept_empty
from cli.input.mark_status import mark_statuses
from cli.nodes import EVERYTHING, SORT_KEYS, Selection, node_rows, shown
from core.config.settings import Config
from core.engine.maintenance_gate import may_begin
from core.engine.plan import Plan
from core.engine.planner import PlanOptions
from core.engine.reconcile import make_plan
from core.engine.snapshot import ClusterSnapshot
from core.model.errors import InvalidInputError
from core.model.now import Now
from core.policies.all import POLICIES
from core.setting_types.value_types import SHARE_ALLOWED, read_share
from runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    from sim.fewest_nodes import NodesNeeded

NAMES: Final = tuple(POLICIES)
"""Names of the policies."""


def share(text: str) -> Fraction:
    """Return the share that a percentage such as 80% means. Raises: BadParameter."""
    try:
        return read_share(text)
    except ValueError as fault:
        raise click.BadParameter(f"{text!r:.80}; allowed: {SHARE_ALLOWED}") from fault


class Limits(NamedTuple):
    """Limits from the command line, which replace those of the configuration; None: not given."""

    removals_max: int | None = None
    cpu: Fraction | None = None
    """Threshold for CPU."""
    memory: Fraction | None = None
    """Threshold for memory."""


def planned(
    cluster_input: ClusterInput,
    limits: Limits,
    view: RowOptions,
    selection: Selection = EVERYTHING,
    *,
    bound: bool = False,
    clock: Clock = SystemClock(),  # noqa: B008 it has no state
) -> Planned:
    """Make the plan for a cluster, and return the answer of `ebb plan`.

    *limits*: thresholds and number of removals from the command line. *view*: how rows are shown.
    *selection*: the nodes to show; the plan is made for all nodes. *bound*: also compute how few
    nodes any placement needs. *clock*: the time for a live cluster. Raises: InvalidInputError for
    an unknown sort key.
    """
    if view.sort_by not in SORT_KEYS:
        allowed = ", ".join(SORT_KEYS)
        raise InvalidInputError("--sort-by", f"{view.sort_by!r:.80}; allowed: {allowed}")
    # The plan shows what is removable in the long run, so no rate limits apply and `unneededTime`
    # counts as passed. The headline says which nodes can be marked now.
    config, cluster = _limited(cluster_input.config, limits), cluster_input.cluster
    now = cluster_input.now_seconds(clock)
    snapshot = ClusterSnapshot(cluster, config, Now(now))
    whole = make_plan(snapshot, PlanOptions(removals_max=limits.removals_max))
    names = selection.names(cluster)
    plan = shown(whole, names)
    surge, namespace = cluster_input.surge_objects, cluster_input.namespace
    facts = cluster_input.facts
    leader = cluster_input.leader_pod
    emptied = emptying(cluster, plan, config, surge, namespace, now, leader)
    rows = node_rows(plan, cluster, config, now)
    shown_names = {row.name for row in rows}
    statuses = [status for status in mark_statuses(cluster, now) if status.node in shown_names]
    return Planned(
        plan=plan,
        whole=whole,
        snapshot=snapshot,
        headline=headline(snapshot, whole, rows, emptied, facts, cluster_input.mode, now),
        cluster_input=cluster_input,
        config=config,
        caveats=(*nothing_selected(names), *_caveats(cluster_input, config)),
        emptying=emptied,
        refused=may_begin(config, Now(now), facts.refused_write() if facts else None).blockers,
        now_seconds=now,
        rows=rows,
        statuses=statuses,
        kept_empty=kept_empty(statuses, cluster, config),
        view=view,
        needed=_needed(snapshot, whole) if bound else None,
    )


def _needed(snapshot: ClusterSnapshot, plan: Plan) -> "NodesNeeded":
    from sim.fewest_nodes import nodes_needed  # noqa: PLC0415 the simulation is slow to import

    return nodes_needed(snapshot, plan)


def _caveats(cluster_input: ClusterInput, config: Config) -> Sequence[Caveat]:
    nowhere = cluster_input.dump_time.running_nowhere
    return caveats(cluster_input.cluster, cluster_input.kinds, config, nowhere)


def _limited(config: Config, limits: Limits) -> Config:
    """Return the configuration with the thresholds of the command line."""
    own = config.thresholds
    thresholds = replace(own, cpu=limits.cpu or own.cpu, memory=limits.memory or own.memory)
    return replace(config, thresholds=thresholds)
