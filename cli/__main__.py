"""`ebb`: reads the command line, runs one command, turns faults into one line and exit code 2."""

import codecs
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Final

import click
from click.shell_completion import shell_complete

from core.model.errors import EbbError

COMMANDS: Final[Mapping[str, str]] = {
    "plan": "which nodes could go, and why the others stay",
    "explain": "why a node stays or goes, why a pod is where",
    "status": "nodes, marks, reasons and who leads, in one look",
    "reasons": "all codes by which nodes stay, and what helps",
    "config": "what may stand in a configuration, and what is wrong with one",
    "migrate": "another tool's settings as a configuration",
    "release": "take off what Ebb has written; the only command that writes",
    "demo": "a day of a cluster in virtual time, five ways",
    "replay": "a cluster's own past under every mode and rule, and what to choose",
}
"""In the order in which the help lists them; each is `command` in the module cli.commands.NAME."""
COMPLETE: Final = "_EBB_COMPLETE"
"""The variable by which a shell asks for its completion, by click's rules."""
FAULT: Final = 2
ESCAPED: Final = "ebb-escaped"
"""How standard output writes characters that its encoding does not have."""
INTERRUPTED: Final = 130
"""What a shell reports of a command that Ctrl-C has ended."""


class _Commands(click.Group):
    """The commands, each imported when it is run; until then its name and one line do."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known, others = super().resolve_command(ctx, args)
        return name, known and import_module(f"cli.commands.{name}").command, others


def _tell_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:  # noqa: FBT001 click's
    if asked:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 seldom asked

        try:
            found = version("kube-ebb")
        except PackageNotFoundError:
            found = "(version unknown: run from a tree that is not installed)"
        click.echo(f"ebb {found}")
        ctx.exit()


@click.command(
    "ebb",
    cls=_Commands,
    commands={name: click.Command(name, short_help=told) for name, told in COMMANDS.items()},
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_tell_version,
    help="Show the version and exit.",
)  # fmt: skip
def ebb() -> None:
    """Shrinks a Kubernetes cluster gradually and without disruption."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `ebb`; *argv* is what follows the command's name.

    Returns: 0; 2 with one line a fault on standard error, also for a command line that is refused;
    130 after Ctrl-C.
    """
    if sys.stderr is None:  # closed by whoever started the command
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 as long as the command runs
    if sys.stdout is None:
        return _fault("standard output: it is closed")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors=ESCAPED)
    try:
        status = _run(sys.argv[1:] if argv is None else list(argv), os.environ)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as fault:  # other files' faults have been named where they were read
        # Keep Python from writing at its exit what could not be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        enough = isinstance(fault, BrokenPipeError)  # whoever read it has seen enough
        return 0 if enough else _fault(f"standard output: {fault.strerror or fault}")
    return status


def _escaped(fault: UnicodeError) -> tuple[str, int]:
    """Escape as JSON does, so that what is JSON stays so."""
    from json import dumps  # noqa: PLC0415 seldom needed

    if not isinstance(fault, UnicodeEncodeError):
        raise fault
    return dumps(fault.object[fault.start : fault.end])[1:-1], fault.end


codecs.register_error(ESCAPED, _escaped)


def _run(arguments: list[str], environment: Mapping[str, str]) -> int:
    if asked := environment.get(COMPLETE):
        return shell_complete(ebb, {"obj": environment}, "ebb", COMPLETE, asked)
    try:
        with ebb.make_context("ebb", arguments, obj=environment) as context:
            ebb.invoke(context)
    except click.exceptions.Exit as left:
        return left.exit_code
    except click.UsageError as fault:
        return _refused(fault)
    except EbbError as fault:
        return _fault(str(fault))
    return 0


def _refused(fault: click.UsageError) -> int:
    path = fault.ctx.command_path if fault.ctx else "ebb"
    usage = f"{fault.ctx.get_usage()}\n" if fault.ctx else ""
    print(f"{usage}{path}: error: {fault.format_message()}", file=sys.stderr)
    return FAULT


def _fault(text: str) -> int:
    from cli.terminal import printable  # noqa: PLC0415 help needs no terminal

    for line in text.splitlines():
        print(f"ebb: {printable(line)}", file=sys.stderr)
    return FAULT


if __name__ == "__main__":
    sys.exit(main())
