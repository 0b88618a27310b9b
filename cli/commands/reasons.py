"""`ebb reasons`: list every reason code; docs/reasons.md is its output."""

import click

from cli import output
from cli.answers import Reasons


@click.command("reasons")
@output.option(Reasons)
def command(form: str) -> None:
    """List all reason codes with their meaning and the cheapest fix."""
    output.print_answer(Reasons(), form)
