"""`ebb config schema` and `ebb config validate`: list settings and check configuration files."""

from collections.abc import Iterator, Sequence
from typing import Final

import click

from cli import output
from cli.answers import SettingsSchema
from cli.input import source
from core.edge import files
from core.model.errors import ConfigError, EbbError, InvalidInputError

STDIN: Final = "-"


@click.group("config", no_args_is_help=False)
def command() -> None:
    """Print the configuration schema, or validate a configuration."""


@command.command("schema")
@output.option(SettingsSchema, "json")
def schema(form: str) -> None:
    """Print every setting; as JSON Schema by default, for editors and charts."""
    output.print_answer(SettingsSchema(), form)


@command.command("validate")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=source.FILE)
def validate(paths: Sequence[str]) -> None:
    """Report all errors that the programs would find in the files; - is standard input."""
    if faults := list(_faults(paths)):
        raise EbbError("\n".join(faults))


def _faults(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        try:
            if path == STDIN:
                raw = files.read_dump(path, files.CONFIG_BYTES_MAX)
                files.parse_config(raw, files.named(path))
            else:
                files.read_config(path)
        except (ConfigError, InvalidInputError) as fault:
            yield str(fault)
        else:
            click.echo(f"{files.named(path)}: ok")
