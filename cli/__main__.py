"""`ebb`: reads the command line, runs one command, turns faults into one line and exit code 2."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from cli import demo, plan, trace
from core.errors import EbbError

FAULT: int = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run `ebb`. Returns: 0, or 2 with one line a fault on standard error."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except EbbError as fault:
        for line in str(fault).splitlines():
            print(f"ebb: {line}", file=sys.stderr)
        return FAULT
    except BrokenPipeError:
        # Whoever read our output has seen enough; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ebb", description="Shrinks a Kubernetes cluster gradually and without disruption."
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (plan, demo, trace):
        command.add_parser(commands)
    return parser


def _version() -> str:
    try:
        return version("kube-ebb")
    except PackageNotFoundError:
        return "unknown: run from a tree that is not installed"


if __name__ == "__main__":
    sys.exit(main())
