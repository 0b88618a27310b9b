"""`ebb status`: the cluster, its marks and who leads, in one look."""

import argparse
import sys
from typing import Any

import orjson

from cli import overview, source, status_json, status_text
from core.edge.clock import SystemClock
from webhook import names


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Register the command."""
    parser = commands.add_parser("status", help="nodes, marks, reasons and who leads, in one look")
    source.add_arguments(parser)
    parser.add_argument(
        "--namespace",
        default=names.NAMESPACE,
        metavar="NAME",
        help=f"where the leader's Lease stands (live only); default {names.NAMESPACE}",
    )
    source.add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, judge, print."""
    found = source.read(arguments, lease=(arguments.namespace, names.LEASE))
    status = overview.look(found, SystemClock().unix_seconds())
    if arguments.output == "json":
        document = orjson.dumps(status_json.document(status), option=orjson.OPT_INDENT_2)
        sys.stdout.write(document.decode() + "\n")
    else:
        sys.stdout.write(status_text.text(status))
    return 0
