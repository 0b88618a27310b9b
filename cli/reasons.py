"""`ebb reasons`: every code by which a node stays; docs/reasons.md is written by it."""

import argparse
import sys
from typing import Any

import orjson

from cli.terminal import table, written
from core.explain.reasons import REASONS, in_general, page
from core.guards.pod_reasons import Reason


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Register the command."""
    parser = commands.add_parser("reasons", help="all codes by which nodes stay, and what helps")
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "markdown"),
        default="table",
        help="table for people (the default), json for programs, markdown for docs/reasons.md",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    match arguments.output:
        case "markdown":
            sys.stdout.write(page())
        case "json":
            listed = [_document(reason) for reason in REASONS.values()]
            sys.stdout.write(orjson.dumps(listed, option=orjson.OPT_INDENT_2).decode() + "\n")
        case _:
            rows = table("code", "means", "cheapest fix", left=(0, 1, 2))
            for reason in REASONS.values():
                told = in_general(reason)
                rows.add_row(reason.code, told.meaning, told.fix)
            sys.stdout.write(written(lambda out: out.print(rows)))
    return 0


def _document(reason: Reason) -> dict[str, str]:
    told = in_general(reason)
    return {
        "code": reason.code,
        "meaning": told.meaning,
        "fix": told.fix,
        "endsWhen": told.lifted,
    }
