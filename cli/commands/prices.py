"""`ebb prices import`: write the setting `prices` from a CSV or from metrics."""

from collections.abc import Sequence

import click

from cli.input import source
from cli.usage import examples
from runtime.messages import tell

IMPORT = examples(
    "prices import prices.csv >> ebb.yaml",
    "prices import karpenter-metrics.txt",
    "prices import - < answer-of-prometheus.json",
)


@click.group("prices", no_args_is_help=False, epilog=IMPORT)
def command() -> None:
    """Write the setting `prices` from a CSV or from metrics."""


@command.command("import", short_help="print the setting `prices` from files", epilog=IMPORT)
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=source.FILE)
def import_(paths: Sequence[str]) -> None:
    """Print the setting `prices` with the prices of the files; - is standard input.

    A file is a CSV with a column `price` and columns of labels, such as
    node.kubernetes.io/instance-type or just `type` and `zone`; or a page of metrics or an answer
    of Prometheus with Karpenter's karpenter_cloudprovider_instance_type_offering_price_estimate or
    OpenCost's node_total_hourly_cost.
    """
    from cli import prices  # noqa: PLC0415 slow to import
    from runtime import files  # noqa: PLC0415

    contents = [(files.named(path), files.read_dump(path, prices.BYTES_MAX)) for path in paths]
    text, warnings = prices.section(contents)
    for warning in warnings:
        tell(f"Warning: {warning}")
    click.echo(text, nl=False)
