"""`ebb migrate`: another tool's settings as an EbbConfiguration."""

import click

from cli.input import source
from cli.migrate.tool import Migrated
from cli.migrate.tools import NAMES, migrate
from core.edge import files
from core.model.errors import ConfigError, InvalidInputError


@click.command("migrate", help=f"Make a configuration of the settings of {NAMES}.")
@click.argument("path", metavar="FILE", type=source.FILE)
def command(path: str) -> None:
    """Print a configuration, which `ebb plan --config` takes; nothing if FILE cannot be read."""
    name = files.named(path)
    raw = files.read_dump(path, files.CONFIG_BYTES_MAX)
    try:
        tool, made = migrate(raw, name)
        text = _text(tool.name, made)
        files.parse_config(text.encode(), f"{name}: as a configuration")
    except ConfigError as fault:
        raise InvalidInputError(fault.source, fault.faults[0]) from fault
    click.echo(text, nl=False)


def _text(name: str, made: Migrated) -> str:
    """Write it: what Ebb has no word for as comments, then the fields."""
    notes = [f"Made of the settings of {name}. What is not, or not quite, the same:"]
    notes += [f"- {note}" for note in made.notes]
    lines = "".join(f"# {note}\n" for note in notes)
    return lines + files.as_yaml(made.document)
