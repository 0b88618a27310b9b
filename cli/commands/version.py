"""`ebb version`: show the version."""

import click

from runtime.version import NOT_INSTALLED, ebb_version

UNKNOWN = "(version unknown: run from a tree that is not installed)"


@click.command("version")
def command() -> None:
    """Show the version."""
    found = ebb_version()
    click.echo(f"ebb {UNKNOWN if found == NOT_INSTALLED else found}")
