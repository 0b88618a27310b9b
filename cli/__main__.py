"""`ebb`: parse the command line and run one command.

An expected error becomes one line on standard error and exit code 2, never a traceback.
"""

import codecs
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Final

import click
from click.shell_completion import shell_complete

from cli.usage import examples, program_name
from core.model.errors import EbbError
from runtime.messages import tell_lines

COMMANDS: Final[Mapping[str, str]] = {
    "plan": "show which nodes are removable, and why the others are not",
    "explain": "explain why a node is removable or not, or where a pod can run",
    "status": "summarize nodes, marks, Pending pods, reasons and the leader",
    "history": "show what Ebb has done and saved in a day, a week or a month",
    "page": "show the cluster in a browser, and follow it",
    "top": "show the cluster in the terminal, and follow it",
    "doctor": "check the autoscaler, scheduler, admission, rights and workloads around Ebb",
    "reasons": "list all reason codes, or explain some, with their meaning and fix",
    "config": "print the configuration schema, or validate a configuration",
    "prices": "write the setting `prices` (what nodes cost) from a CSV file or from metrics",
    "unmark": "remove what Ebb has written on some nodes and their pods",
    "cleanup": "remove everything that Ebb has written in the cluster",
    "demo": "simulate a day of a cluster with and without Ebb, and compare cost and evictions",
    "replay": "simulate a cluster's history with and without Ebb, and recommend settings",
    "completion": "print a script with which a shell completes commands and options",
    "version": "show the versions of ebb and of the controller",
}
"""One-line help of each command, in the order of the help.

The command NAME is the object `command` in the module cli.commands.NAME.
"""
COMPLETE: Final = "_EBB_COMPLETE"
"""Environment variable by which a shell requests completions; its name follows click's rules."""
FAULT: Final = 2
ESCAPED: Final = "ebb-escaped"
"""Error handler that escapes characters which the encoding of standard output does not have."""
INTERRUPTED: Final = 130
"""Exit code of a command that Ctrl-C has ended, by the convention of shells."""


class _Commands(click.Group):
    """The commands of `ebb`; the module of a command is imported only when the command runs."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, others = super().resolve_command(ctx, args)
        return name, command and import_module(f"cli.commands.{name}").command, others


def _show_version(ctx: click.Context, _: click.Parameter, requested: bool) -> None:  # noqa: FBT001 click's
    if requested:
        click.echo(import_module("cli.commands.version").own_version())
        ctx.exit()


@click.command(
    "ebb",
    cls=_Commands,
    commands={
        name: click.Command(name, short_help=help_text) for name, help_text in COMMANDS.items()
    },
    no_args_is_help=False,
    epilog=examples("plan", "plan --from-file dump.json", "explain node worker-1", "plan --help"),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
    help="Show the version and exit.",
)  # fmt: skip
def ebb() -> None:
    """Shrink a Kubernetes cluster gradually and without evictions."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `ebb` with the arguments *argv*, by default those of the process.

    Returns the exit code: 0; 1 if there are findings and --exit-code is given; 2 after an error,
    such as an invalid option, which is printed as one line on standard error; 130 after Ctrl-C.
    """
    if sys.stderr is None:  # the parent process has closed it
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 open while the command runs
    if sys.stdout is None:
        return _error("standard output is closed")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors=ESCAPED)
    try:
        status = _run(sys.argv[1:] if argv is None else list(argv), os.environ)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as fault:  # errors of other files are reported where they are read
        # Without this, Python would flush the rest at exit, fail again and print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reader_left = isinstance(fault, BrokenPipeError)  # such as `ebb plan | head`
        return 0 if reader_left else _error(f"standard output: {fault.strerror or fault}")
    return status


def _escaped(fault: UnicodeError) -> tuple[str, int]:
    """Return JSON escapes for characters that cannot be encoded, and the position after them.

    With this error handler of codecs, JSON output stays valid on a terminal without UTF-8.
    """
    from json import dumps  # noqa: PLC0415 rarely needed

    if not isinstance(fault, UnicodeEncodeError):
        raise fault
    return dumps(fault.object[fault.start : fault.end])[1:-1], fault.end


codecs.register_error(ESCAPED, _escaped)


def _run(arguments: list[str], environment: Mapping[str, str]) -> int:
    if requested := environment.get(COMPLETE):
        import_module("cli.commands.completion")  # it knows kubectl
        return shell_complete(ebb, {"obj": environment}, "ebb", COMPLETE, requested)
    try:
        with ebb.make_context(program_name(), arguments, obj=environment) as context:
            ebb.invoke(context)
    except click.exceptions.Exit as exited:
        return exited.exit_code
    except click.Abort:  # the end of standard input, or Ctrl-C, at a question
        return _error("not confirmed; nothing was changed")
    except click.UsageError as fault:
        return _usage_error(fault)
    except EbbError as fault:
        return _error(str(fault))
    return 0


def _usage_error(fault: click.UsageError) -> int:
    path = fault.ctx.command_path if fault.ctx else "ebb"
    usage = f"{fault.ctx.get_usage()}\n" if fault.ctx else ""
    tell_lines(f"{usage}{path}: error: {fault.format_message()}")
    return FAULT


def _error(text: str) -> int:
    tell_lines(text, "ebb: ")
    return FAULT


if __name__ == "__main__":
    sys.exit(main())
