"""`ebb migrate`: convert another tool's settings to an EbbConfiguration."""

from typing import Final

import click

from cli.input import source
from cli.migrate.tool import ENFORCE, OBSERVE, Migrated
from cli.migrate.tools import NAMES, migrate
from core.model.errors import ConfigError, InvalidInputError
from runtime import files
from runtime.yaml_text import as_yaml

HOW_TO_ENFORCE: Final = "compare `ebb plan`, disable the other tool, then set mode: enforce"


@click.command("migrate", help=f"Convert settings of {NAMES} to a configuration.")
@click.argument("path", metavar="FILE", type=source.FILE)
def command(path: str) -> None:
    """Convert the settings of another tool in FILE to an Ebb configuration, and print it."""
    name = files.named(path)
    raw = files.read_dump(path, files.CONFIG_BYTES_MAX)
    try:
        tool, migrated = migrate(raw, name)
        text = _text(tool.name, migrated)
        files.parse_config(text.encode(), f"{name}: converted configuration")
    except ConfigError as fault:
        raise InvalidInputError(fault.source, fault.faults[0]) from fault
    click.echo(text, nl=False)


def _text(name: str, migrated: Migrated) -> str:
    """Return the converted configuration as YAML, after comments about the other settings.

    *name*: name of the other tool. The comments list its settings without an exact equivalent. The
    mode is always observe.
    """
    notes = [f"Converted from settings of {name}. Settings without an exact equivalent:"]
    notes += [f"- {note}" for note in migrated.notes]
    if migrated.document["mode"] == ENFORCE:
        # Two tools that drain the same nodes would get in each other's way.
        notes.append(f"- mode: observe, although {name} acts; {HOW_TO_ENFORCE}")
    lines = "".join(f"# {note}\n" for note in notes)
    return lines + as_yaml({**migrated.document, "mode": OBSERVE})
