"""`ebb explain node` and `ebb explain pod`: everything that decides about one of them."""

import difflib
from collections.abc import Iterable
from typing import Final

import click

from cli import output
from cli.answers import NodeExplained, PodExplained
from cli.explain.explainer import Explainer
from cli.input import source
from cli.input.cluster_input import ClusterInput
from cli.input.node_status import node_statuses
from core.edge.clock import SystemClock
from core.engine.reconcile import make_plan
from core.engine.snapshot import ClusterSnapshot
from core.model.errors import InvalidInputError
from core.model.now import Now

NEAR_MAX: Final = 3


@click.group("explain", no_args_is_help=False)
def command() -> None:
    """Tell why a node stays or goes, why a pod is where; nothing is written."""


@command.command("node")
@click.argument("name")
@source.options
@source.installed
@output.option(NodeExplained)
def node(found: ClusterInput, /, name: str, form: str) -> None:
    """Tell everything that decides about one node."""
    now = found.now_seconds(SystemClock())
    answer = _explainer(found, now).node(name)
    if answer is None:
        raise _unknown("node", name, [node.name for node in found.cluster.nodes])
    every = node_statuses(found.cluster, found.config, now)
    (standing,) = (one for one in every if one.node == name)
    explained = NodeExplained(
        answer=answer,
        standing=standing,
        found=found,
        now_seconds=now,
    )
    output.print_answer(explained, form)


@command.command("pod")
@click.argument("name", metavar="NAMESPACE/NAME")
@source.options
@output.option(PodExplained)
def pod(found: ClusterInput, /, name: str, form: str) -> None:
    """Tell everything that decides about one pod."""
    answer = _explainer(found, found.now_seconds(SystemClock())).pod(name)
    if answer is None and "/" not in name:
        raise _without_namespace(name, found)
    if answer is None:
        raise _unknown("pod", name, [pod.key for pod in found.cluster.pods])
    output.print_answer(PodExplained(answer=answer, found=found), form)


def _explainer(found: ClusterInput, now_seconds: int) -> Explainer:
    survey = ClusterSnapshot(found.cluster, found.config, Now(now_seconds))
    return Explainer(survey, make_plan(survey), now_seconds, found.namespace)


def _without_namespace(name: str, found: ClusterInput) -> InvalidInputError:
    named = sorted(pod.key for pod in found.cluster.pods if pod.name == name)[:NEAR_MAX]
    meant = f"; did you mean {', '.join(named)}?" if named else ""
    return InvalidInputError(f"pod {name}", f"no namespace; allowed: NAMESPACE/NAME{meant}")


def _unknown(what: str, name: str, known: Iterable[str]) -> InvalidInputError:
    """Name what was asked for and what comes near: what contains it, then what is like it."""
    names = list(known)
    near = sorted(one for one in names if name and name in one)[:NEAR_MAX]
    like = difflib.get_close_matches(name, names, n=NEAR_MAX, cutoff=0.6)
    near += [one for one in like if one not in near][: NEAR_MAX - len(near)]
    hint = f"near: {', '.join(near)}" if near else f"none of the {len(names):,} comes near"
    looked = " (finished and gated ones aside)" if what == "pod" else ""
    return InvalidInputError(f"{what} {name}", f"there is none of that name{looked}; {hint}")
