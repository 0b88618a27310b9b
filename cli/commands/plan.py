"""`ebb plan`: which nodes of a cluster could go together, and why the others stay."""

from dataclasses import replace
from fractions import Fraction

import click

from cli import output
from cli.answers import Money, Planned
from cli.explain.caveats import caveats
from cli.input import source
from cli.input.cluster_input import ClusterInput
from core.config.settings import Config
from core.edge.clock import SystemClock
from core.engine import reconcile
from core.engine.plan import Plan
from core.fields.value_types import SHARE_ALLOWED, read_share
from core.model.cluster import Cluster
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


AT_MOST = "requests over usable capacity afterwards, at most"


@click.command("plan")
@source.options
@click.option(
    "--policy", type=click.Choice([*POLICIES]), help="by another rule than the configuration's"
)
@click.option("--max-removals", type=_count, metavar="N", help="at most N nodes go")
@click.option("--max-cpu", type=_share, metavar="80%", help=f"cpu {AT_MOST}")
@click.option("--max-memory", type=_share, metavar="80%", help=f"memory {AT_MOST}")
@output.option(Planned)
def command(
    found: ClusterInput,
    /,
    max_removals: int | None,
    max_cpu: Fraction | None,
    max_memory: Fraction | None,
    form: str,
) -> None:
    """Tell which nodes could go, and why the others stay; nothing is written."""
    # The delay counts as elapsed: the engine alone knows it.
    config = _limited(found.config, max_cpu, max_memory)
    now = found.now_seconds(SystemClock())
    plan = reconcile.plan(found.cluster, config, removals_max=max_removals, now_seconds=now)
    answer = Planned(
        plan=plan,
        config=config,
        minded=caveats(found.cluster, found.kinds, config),
        money=_money(found.cluster, config, plan),
    )
    output.print_answer(answer, form)


def _limited(config: Config, cpu: Fraction | None, memory: Fraction | None) -> Config:
    """Take the limits of the command line; those for leaving follow, as where none are given."""
    own = config.thresholds
    thresholds = replace(own, cpu=cpu or own.cpu, memory=memory or own.memory)
    if thresholds == own:
        return config
    budgets = config.budgets
    pools = tuple(
        pool if pool.thresholds else replace(pool, leave_thresholds=None) for pool in budgets.pools
    )
    return replace(
        config,
        thresholds=thresholds,
        leave_thresholds=None,
        budgets=replace(budgets, pools=pools),
    )


def _money(cluster: Cluster, config: Config, plan: Plan) -> Money | None:
    if not config.prices:
        return None
    prices = {node.name: config.price_of(node.labels) for node in cluster.nodes}
    removed = (prices[removal.node] for removal in plan.removals)
    return Money(sum(prices.values(), Fraction()), sum(removed, Fraction()))
