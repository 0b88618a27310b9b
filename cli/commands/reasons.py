"""`ebb reasons`: every code by which a node stays; docs/reasons.md is written by it."""

import click

from cli import output
from cli.answers import Reasons


@click.command("reasons")
@output.option(Reasons)
def command(form: str) -> None:
    """Tell all codes by which nodes stay, and what helps."""
    output.print_answer(Reasons(), form)
