"""`ebb status`: the cluster, its marks and who leads, in one look."""

import click

from cli import output
from cli.look import overview, source
from cli.look.found import Found
from core.edge.clock import SystemClock
from webhook import names


@click.command("status")
@source.options
@click.option(
    "--namespace",
    default=names.NAMESPACE,
    metavar="NAME",
    help=f"where Ebb is installed; default {names.NAMESPACE}",
)
@output.option(overview.Status)
def command(found: Found, /, form: str) -> None:
    """Tell nodes, marks, reasons and who leads, in one look; nothing is written."""
    output.put(overview.look(found, SystemClock().unix_seconds()), form)
