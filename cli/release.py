"""`ebb release`: takes everything of Ebb's off nodes and pods; the only command that writes."""

import argparse
import asyncio
from typing import Any

from cli import source
from cli.terminal import console
from core.config.settings import Config
from core.edge import files
from core.errors import InvalidInputError


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Register the command."""
    parser = commands.add_parser(
        "release",
        help="take marks, taints, guards and deletion costs away; the only command that writes",
        description="Takes away what Ebb has written, and nothing else. A running engine in mode "
        "enforce marks nodes again: set mode: observe first, or uninstall.",
    )
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="these nodes")
    parser.add_argument("--all", action="store_true", help="all nodes and pods")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be written")
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the cluster (default: $KUBECONFIG, ~/.kube/config, or the pod's own)",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="an EbbConfiguration, if it names another taintKey"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Release, and say what was done."""
    if bool(arguments.nodes) == arguments.all:
        raise InvalidInputError("release", "name nodes, or say --all")
    config = files.read_config(arguments.config) if arguments.config else Config()
    kubeconfig = source.kubeconfig_of(arguments.kubeconfig, arguments.environment)
    from cli import sweep  # noqa: PLC0415 the client's packages take long

    names = None if arguments.all else frozenset(arguments.nodes)
    out = console()
    would = "would be released" if arguments.dry_run else "released"

    def tell(name: str, what: str) -> None:
        out.print(f"{name}  {would}: {what}")

    done = asyncio.run(sweep.release(kubeconfig, names, config, tell, dry_run=arguments.dry_run))
    out.print(f"{done.nodes} nodes and {done.pods} pods {would}")
    return 0
