"""`ebb explain node` and `ebb explain pod`: everything that decides about one of them."""

import argparse
import difflib
import sys
from collections.abc import Iterable
from typing import Any, Final

import orjson

from cli import explain_json, explain_text, source
from cli.found import Found
from cli.standing import standings
from core.edge.clock import SystemClock
from core.engine import step
from core.errors import InvalidInputError
from core.explain.explainer import Explainer

NEAR_MAX: Final = 3


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Register the command."""
    parser = commands.add_parser("explain", help="why a node stays or goes, why a pod is where")
    things = parser.add_subparsers(title="what", required=True, metavar="WHAT")
    for what, metavar, run in (("node", "NAME", run_node), ("pod", "NAMESPACE/NAME", run_pod)):
        one = things.add_parser(what, help=f"everything that decides about one {what}")
        one.add_argument("name", metavar=metavar)
        source.add_arguments(one)
        source.add_output(one)
        one.set_defaults(run=run)


def run_node(arguments: argparse.Namespace) -> int:
    """Explain a node. Raises: InvalidInputError for a name that is not there."""
    found = source.read(arguments)
    answer = _explainer(found).node(arguments.name)
    if answer is None:
        raise _unknown("node", arguments.name, [node.name for node in found.cluster.nodes])
    now = SystemClock().unix_seconds()
    (standing,) = (
        one
        for one in standings(found.cluster, found.config.taint_key, now)
        if one.node == arguments.name
    )
    if arguments.output == "json":
        _write(explain_json.node(answer, standing))
    else:
        sys.stdout.write(explain_text.node(answer, standing, found, now))
    return 0


def run_pod(arguments: argparse.Namespace) -> int:
    """Explain a pod. Raises: InvalidInputError for a name that is not there."""
    found = source.read(arguments)
    answer = _explainer(found).pod(arguments.name)
    if answer is None:
        raise _unknown("pod", arguments.name, [pod.key for pod in found.cluster.pods])
    if arguments.output == "json":
        _write(explain_json.pod(answer))
    else:
        sys.stdout.write(explain_text.pod(answer, found))
    return 0


def _explainer(found: Found) -> Explainer:
    now = SystemClock().unix_seconds()
    plan = step.plan(found.cluster, found.config, now_seconds=now)
    return Explainer(found.cluster, found.config, plan, now)


def _unknown(what: str, name: str, known: Iterable[str]) -> InvalidInputError:
    """Name what was asked for and what comes near: what contains it, then what is like it."""
    names = list(known)
    near = sorted(one for one in names if name and name in one)[:NEAR_MAX]
    like = difflib.get_close_matches(name, names, n=NEAR_MAX, cutoff=0.6)
    near += [one for one in like if one not in near][: NEAR_MAX - len(near)]
    hint = f"near: {', '.join(near)}" if near else f"none of the {len(names):,} comes near"
    looked = " among the unfinished" if what == "pod" else ""
    return InvalidInputError(f"{what} {name}", f"there is none of that name{looked}; {hint}")


def _write(document: dict[str, Any]) -> None:
    sys.stdout.write(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n")
