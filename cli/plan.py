"""`ebb plan`: which nodes of a cluster could go together, and why the others stay."""

import argparse
import sys
from dataclasses import replace
from fractions import Fraction
from typing import Any

import orjson

from cli import plan_json, plan_table, source
from core.config.fields import parse_share
from core.edge.clock import SystemClock
from core.engine import step
from core.errors import ConfigError
from core.explain.caveats import caveats


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Register the command."""
    parser = commands.add_parser("plan", help="which nodes could go, and why the others stay")
    source.add_arguments(parser)
    parser.add_argument("--max-removals", type=_count, metavar="N", help="at most N nodes go")
    for resource in ("cpu", "memory"):
        parser.add_argument(
            f"--max-{resource}",
            type=_share,
            metavar="80%",
            help=f"{resource} requests over usable capacity afterwards, at most",
        )
    source.add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, plan, print. The delay counts as elapsed: the engine alone knows it."""
    found = source.read(arguments)
    config = found.config
    thresholds = replace(
        config.thresholds,
        cpu=arguments.max_cpu or config.thresholds.cpu,
        memory=arguments.max_memory or config.thresholds.memory,
    )
    if thresholds != config.thresholds:  # those for leaving follow, as where none are given
        config = replace(config, thresholds=thresholds, leave_thresholds=None)
    now = SystemClock().unix_seconds()
    plan = step.plan(found.cluster, config, removals_max=arguments.max_removals, now_seconds=now)
    minded = caveats(found.cluster, found.kinds)
    if arguments.output == "json":
        document = plan_json.document(plan, config, minded)
        written = orjson.dumps(document, option=orjson.OPT_INDENT_2)
        sys.stdout.write(written.decode() + "\n")
    else:
        sys.stdout.write(plan_table.text(plan, config, minded))
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number from 0 to 999999999")
    return int(text)


def _share(text: str) -> Fraction:
    try:
        return parse_share(text, "")
    except ConfigError as fault:
        raise argparse.ArgumentTypeError(fault.faults[0].removeprefix(": ")) from fault
