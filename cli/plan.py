"""`ebb plan`: which nodes of a dumped cluster could go together, and why the others stay."""

import argparse
import sys
from dataclasses import replace
from fractions import Fraction
from typing import Any

import orjson

from cli import plan_json, plan_table
from core import engine
from core.config import Config
from core.edge import decode, files
from core.errors import ConfigError
from core.fields import parse_share


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Register the command."""
    parser = commands.add_parser("plan", help="which nodes could go, and why the others stay")
    parser.add_argument(
        "--from-file",
        action="append",
        required=True,
        metavar="FILE",
        help="what `kubectl get nodes,pods,pdb -A -o json` prints: plain, gzipped, or - ; "
        "repeat it for several",
    )
    parser.add_argument("--config", metavar="FILE", help="an EbbConfiguration, as YAML")
    parser.add_argument("--max-removals", type=_count, metavar="N", help="at most N nodes go")
    for resource in ("cpu", "memory"):
        parser.add_argument(
            f"--max-{resource}",
            type=_share,
            metavar="80%",
            help=f"{resource} requests over usable capacity afterwards, at most",
        )
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="table for people (the default), json for programs",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, plan, print. Offline the delay counts as elapsed and no budget cuts."""
    config = files.read_config(arguments.config) if arguments.config else Config()
    thresholds = replace(
        config.thresholds,
        cpu=arguments.max_cpu or config.thresholds.cpu,
        memory=arguments.max_memory or config.thresholds.memory,
    )
    config = replace(config, thresholds=thresholds)
    dumps = [(_source(path), files.read_dump(path)) for path in arguments.from_file]
    cluster = decode.cluster_from_dumps(dumps)
    plan = engine.plan(cluster, config, removals_max=arguments.max_removals)
    if arguments.output == "json":
        written = orjson.dumps(plan_json.document(plan, config), option=orjson.OPT_INDENT_2)
        sys.stdout.write(written.decode() + "\n")
    else:
        sys.stdout.write(plan_table.text(plan, config))
    return 0


def _source(path: str) -> str:
    return "standard input" if path == "-" else path


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number from 0 to 999999999")
    return int(text)


def _share(text: str) -> Fraction:
    try:
        return parse_share(text, "")
    except ConfigError as fault:
        raise argparse.ArgumentTypeError(fault.faults[0].removeprefix(": ")) from fault
