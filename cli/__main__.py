"""`ebb`: reads the command line, runs one command, turns faults into one line and exit code 2."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from cli import demo, explain, plan, reasons, release, status, trace
from cli.terminal import printable
from core.errors import EbbError

COMMANDS: Final = (plan, explain, status, reasons, release, demo, trace)
"""In the order in which the help lists them; each module has `add_parser`."""
FAULT: Final = 2
INTERRUPTED: Final = 130
"""What a shell reports of a command that Ctrl-C has ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `ebb`; *argv* is what follows the command's name.

    Returns: 0; 2 with one line a fault on standard error; 130 after Ctrl-C.
    Raises: SystemExit, by argparse, for help (0) and for a command line it refuses (2).
    """
    arguments = _parser().parse_args(argv, argparse.Namespace(environment=os.environ))
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except EbbError as fault:
        for line in str(fault).splitlines():
            print(f"ebb: {printable(line)}", file=sys.stderr)
        return FAULT
    except BrokenPipeError:
        # Whoever read our output has seen enough; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ebb", description="Shrinks a Kubernetes cluster gradually and without disruption."
    )
    parser.add_argument("--version", action="version", version=f"ebb {_version()}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def _version() -> str:
    try:
        return version("kube-ebb")
    except PackageNotFoundError:
        return "(version unknown: run from a tree that is not installed)"


if __name__ == "__main__":
    sys.exit(main())
