"""`ebb config schema` and `ebb config validate`: list settings and check configuration files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click
import yaml

from cli import output
from cli.answers import SettingsSchema
from cli.input import source
from cli.usage import examples
from controller.names import CONFIG_KEY
from core.model.errors import ConfigError, EbbError, InvalidInputError
from runtime import files, yaml_text
from runtime.messages import printable

_YAML_LINE: Final = re.compile(r"line (\d+): ")
_END_OF_PATH: Final = re.compile(r"[:.\[]")
"""Character after a field in the path of a fault, such as `pools[0].name: `."""


@click.group(
    "config", no_args_is_help=False, epilog=examples("config schema", "config validate ebb.yaml")
)
def command() -> None:
    """Print the configuration schema, or validate a configuration."""


@command.command(
    "schema",
    short_help="print every setting, as JSON Schema by default",
    epilog=examples("config schema", "config schema -o table"),
)
@output.option(output.SETTINGS, output.JSON)
def schema(form: output.Format[SettingsSchema]) -> None:
    """Print every setting; as JSON Schema by default, for editors and charts."""
    output.print_answer(SettingsSchema(), form)


@command.command(
    "validate",
    short_help="report the errors in configuration files",
    epilog=examples("config validate ebb.yaml", "config validate base.yaml configmap.yaml"),
)
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=source.FILE)
def validate(paths: Sequence[str]) -> None:
    """Report all errors that the programs would find in the files; - is standard input.

    A file is an EbbConfiguration, or a ConfigMap with one in `config.yaml`.
    """
    if faults := list(_faults(paths)):
        raise EbbError("\n".join(faults))


def _faults(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        name = files.named(path)
        try:
            raw = files.read_dump(path, files.CONFIG_BYTES_MAX)
            config = yaml_text.embedded_config(raw, name, CONFIG_KEY)
        except (ConfigError, InvalidInputError) as fault:
            yield str(fault)
            continue
        try:
            files.parse_config(config.raw, name)
        except ConfigError as fault:
            yield from (f"{name}: {problem}" for problem in _with_lines(fault.faults, config))
        else:
            click.echo(printable(f"{name}: ok"))


def _with_lines(faults: Sequence[str], config: yaml_text.Embedded) -> Iterator[str]:
    """Yield the errors in the order of the file, each with its line number if that is known.

    *faults*: errors that begin with the path of a field. *config*: the text that they are about.
    """
    try:
        lines = yaml_text.field_lines(config.raw)
    except yaml.YAMLError:
        lines = {}
    lines_of_faults = [(_line(fault, lines), fault) for fault in faults]
    for line, fault in sorted(lines_of_faults, key=lambda entry: entry[0]):
        if match := _YAML_LINE.match(fault):
            yield f"line {int(match[1]) + config.first_line - 1}: {fault[match.end() :]}"
        else:
            yield f"line {line + config.first_line - 1}: {fault}" if line else fault


def _line(fault: str, lines: Mapping[str, int]) -> int:
    """Return the line of the field that an error names, or of its section; 0 if neither is known.

    *lines*: line of each field, by its path.
    """
    parts = [match.start() for match in _END_OF_PATH.finditer(fault)]
    named = (lines[fault[:end]] for end in reversed(parts) if fault[:end] in lines)
    return next(named, 0)
