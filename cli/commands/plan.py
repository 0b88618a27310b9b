"""`ebb plan`: compute which nodes are removable together, and why the others are not."""

from typing import TYPE_CHECKING

import click

from cli import clusters, output
from cli.input import source
from cli.usage import examples, program_name

if TYPE_CHECKING:  # help must be fast
    from fractions import Fraction

    from cli.answers import Planned
    from cli.input.cluster_input import ClusterInput
    from cli.nodes import Selection


def _policy(text: str) -> str:
    from cli.plan import NAMES  # noqa: PLC0415 policies are slow to import

    name: str = click.Choice(NAMES).convert(text, None, None)
    return name


def _policies(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the policies whose names begin with the incomplete word, for shell completion."""
    from cli.plan import NAMES  # noqa: PLC0415

    return [name for name in NAMES if name.startswith(incomplete)]


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise click.BadParameter(f"{text!r}; allowed: a whole number from 0 to 999999999")
    return int(text)


def _share(text: str) -> "Fraction":
    from cli.plan import share  # noqa: PLC0415 settings are slow to import

    return share(text)


THRESHOLD_HELP = "threshold: maximum ratio of requests to usable capacity after the removals"


@click.command(
    "plan",
    epilog=examples(
        "plan",
        "plan -o wide -l pool=spot --sort-by price",
        "plan --max-cpu 80% --max-removals 5",
        "plan --from-file dump.json -o csv",
        f"plan -o name | xargs {program_name()} explain",
    ),
)
@source.selection_options
@clusters.options(output.PLAN, "if a node is removable")
@click.option(
    "--policy",
    type=_policy,
    shell_complete=_policies,
    metavar="NAME",
    help="use this policy instead of the configured one",
)
@click.option("--max-removals", type=_count, metavar="N", help="plan at most N removals")
@click.option("--max-cpu", type=_share, metavar="80%", help=f"CPU {THRESHOLD_HELP}")
@click.option("--max-memory", type=_share, metavar="80%", help=f"memory {THRESHOLD_HELP}")
@click.option(
    "--bound",
    is_flag=True,
    help="also compute, for up to 60 s, how few nodes any placement needs; only for up to 500 "
    "nodes and -o table, json and yaml",
)
@click.option(
    "-L",
    "--label-columns",
    multiple=True,
    metavar="KEY",
    help="labels of nodes as columns, with commas or repeated; for -o wide and csv",
)
@click.option(
    "--sort-by",
    default="order",
    metavar="COLUMN",
    show_default=True,
    help="order of the rows of -o wide, csv and name",
)
@click.option("--no-headers", is_flag=True, help="for -o wide and csv: print no headings")
def command(
    cluster_input: "ClusterInput",
    /,
    *,
    max_removals: int | None,
    max_cpu: "Fraction | None",
    max_memory: "Fraction | None",
    bound: bool,
    selection: "Selection",
    label_columns: tuple[str, ...],
    sort_by: str,
    no_headers: bool,
) -> "clusters.Answered[Planned]":
    """Show which nodes are removable together, and why the others are not; read-only."""
    from cli.answers import RowOptions  # noqa: PLC0415 the engine is slow to import
    from cli.nodes import TYPE_LABELS  # noqa: PLC0415
    from cli.plan import Limits, planned  # noqa: PLC0415
    from core.engine.zones import ZONE_LABEL  # noqa: PLC0415

    keys = [key for keys in label_columns for key in keys.split(",")]
    # Zone and instance type are columns already.
    columns = tuple(
        key for key in dict.fromkeys(keys) if key not in ("", ZONE_LABEL, *TYPE_LABELS)
    )
    limits = Limits(max_removals, max_cpu, max_memory)
    view = RowOptions(columns, sort_by, no_headers)
    answer = planned(cluster_input, limits, view, selection, bound=bound)
    return clusters.Answered(answer, bool(answer.plan.removals))
