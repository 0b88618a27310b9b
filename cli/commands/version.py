"""`ebb version`: show the version."""

import click

from runtime.version import NOT_INSTALLED, ebb_version

UNKNOWN = "(version unknown: run from a tree that is not installed)"


@click.command("version")
def command() -> None:
    """Show the version."""
    version = ebb_version()
    click.echo(f"ebb {UNKNOWN if version == NOT_INSTALLED else version}")
