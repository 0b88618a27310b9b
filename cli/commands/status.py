"""`ebb status`: the cluster, its marks and who leads, in one look."""

from typing import Any

import click

from cli import output
from cli.look import overview, source
from core.edge.clock import SystemClock
from webhook import names


@click.command("status")
@source.options
@click.option(
    "--namespace",
    default=names.NAMESPACE,
    metavar="NAME",
    help=f"where the leader's Lease stands (live only); default {names.NAMESPACE}",
)
@output.option(overview.Status)
@click.pass_obj
def command(environment: source.Environment, /, namespace: str, form: str, **where: Any) -> None:  # noqa: ANN401 as `read` takes them
    """Tell nodes, marks, reasons and who leads, in one look; nothing is written."""
    found = source.read(environment, lease=(namespace, names.LEASE), **where)
    output.put(overview.look(found, SystemClock().unix_seconds()), form)
