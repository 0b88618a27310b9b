"""`ebb plan`: compute which nodes are removable together, and why the others are not."""

from dataclasses import replace
from fractions import Fraction

import click

from cli import output
from cli.answers import Money, Planned
from cli.explain.caveats import caveats
from cli.explain.emptying import emptying
from cli.input import source
from cli.input.cluster_input import ClusterInput
from core.config.settings import Config
from core.edge.clock import SystemClock
from core.engine import reconcile
from core.engine.beginning import may_begin
from core.engine.plan import Plan
from core.fields.value_types import SHARE_ALLOWED, read_share
from core.model.cluster import Cluster
from core.model.now import Now
from core.policies.all import POLICIES


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise click.BadParameter(f"{text!r}; allowed: a whole number from 0 to 999999999")
    return int(text)


def _share(text: str) -> Fraction:
    try:
        return read_share(text)
    except ValueError as fault:
        raise click.BadParameter(f"{text!r:.80}; allowed: {SHARE_ALLOWED}") from fault


THRESHOLD_HELP = "threshold: maximum ratio of requests to usable capacity after the removals"


@click.command("plan")
@source.options
@click.option(
    "--policy",
    type=click.Choice([*POLICIES]),
    help="use this policy instead of the configured one",
)
@click.option("--max-removals", type=_count, metavar="N", help="plan at most N removals")
@click.option("--max-cpu", type=_share, metavar="80%", help=f"CPU {THRESHOLD_HELP}")
@click.option("--max-memory", type=_share, metavar="80%", help=f"memory {THRESHOLD_HELP}")
@output.option(Planned)
def command(
    cluster_input: ClusterInput,
    /,
    max_removals: int | None,
    max_cpu: Fraction | None,
    max_memory: Fraction | None,
    form: str,
) -> None:
    """Show which nodes are removable together, and why the others are not; read-only."""
    # Only the controller's leader knows how long nodes have been candidates. This command assumes
    # that `unneededTime` has passed for all of them.
    config = _limited(cluster_input.config, max_cpu, max_memory)
    now = cluster_input.now_seconds(SystemClock())
    plan = reconcile.plan(
        cluster_input.cluster, config, removals_max=max_removals, now_seconds=now
    )
    answer = Planned(
        plan=plan,
        cluster_input=cluster_input,
        config=config,
        caveats=caveats(
            cluster_input.cluster,
            cluster_input.kinds,
            config,
            cluster_input.dump_time.running_nowhere,
        ),
        emptying=emptying(
            cluster_input.cluster,
            plan,
            config,
            cluster_input.surge_objects,
            cluster_input.namespace,
            now,
        ),
        money=_money(cluster_input.cluster, config, plan),
        refused=may_begin(config, Now(now)).blockers,
    )
    output.print_answer(answer, form)


def _limited(config: Config, cpu: Fraction | None, memory: Fraction | None) -> Config:
    """Return the configuration with the thresholds of the command line.

    `releaseThresholds` are derived from them, as if the file did not set `releaseThresholds`.
    """
    own = config.thresholds
    thresholds = replace(own, cpu=cpu or own.cpu, memory=memory or own.memory)
    if thresholds == own:
        return config
    budgets = config.budgets
    pools = tuple(
        pool if pool.thresholds else replace(pool, release_thresholds=None)
        for pool in budgets.pools
    )
    return replace(
        config,
        thresholds=thresholds,
        release_thresholds=None,
        budgets=replace(budgets, pools=pools),
    )


def _money(cluster: Cluster, config: Config, plan: Plan) -> Money | None:
    if not config.prices:
        return None
    prices = {node.name: config.price_of(node.labels) for node in cluster.nodes}
    removed = (prices[removal.node] for removal in plan.removals)
    return Money(sum(prices.values(), Fraction()), sum(removed, Fraction()))
