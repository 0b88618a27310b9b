"""`ebb explain node` and `ebb explain pod`: why a node is removable, where a pod can run."""

import difflib
from collections.abc import Iterable
from typing import Final

import click

from cli import output
from cli.answers import NodeExplained, PodExplained
from cli.explain.explainer import Explainer
from cli.input import source
from cli.input.cluster_input import ClusterInput
from cli.input.mark_status import mark_statuses
from core.engine.reconcile import make_plan
from core.engine.snapshot import ClusterSnapshot
from core.model.errors import InvalidInputError
from core.model.humanize import plural
from core.model.now import Now
from runtime.clock import SystemClock

NEAR_MAX: Final = 3


@click.group("explain", no_args_is_help=False)
def command() -> None:
    """Explain why a node is removable or not, or where a pod can run; read-only."""


@command.command("node")
@click.argument("name")
@source.options
@output.option(output.NODE)
def node(cluster_input: ClusterInput, /, name: str, form: output.Format[NodeExplained]) -> None:
    """Show everything that decides whether one node is removable."""
    now = cluster_input.now_seconds(SystemClock())
    answer = _explainer(cluster_input, now).node(name)
    if answer is None:
        raise _unknown("node", name, [node.name for node in cluster_input.cluster.nodes])
    statuses = mark_statuses(cluster_input.cluster, cluster_input.config, now)
    (status,) = (status for status in statuses if status.node == name)
    explained = NodeExplained(
        answer=answer,
        status=status,
        cluster_input=cluster_input,
        now_seconds=now,
    )
    output.print_answer(explained, form)


@command.command("pod")
@click.argument("name", metavar="[NAMESPACE/]NAME")
@source.options
@click.option("-n", "--namespace", metavar="NAME", help="namespace of the pod")
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="find the pod by its name in all namespaces"
)
@output.option(output.POD)
def pod(
    cluster_input: ClusterInput,
    /,
    *,
    name: str,
    namespace: str | None,
    all_namespaces: bool,
    form: output.Format[PodExplained],
) -> None:
    """Show whether one pod is movable, and which nodes it could run on."""
    now = cluster_input.now_seconds(SystemClock())
    if namespace is not None and "/" not in name:
        name = f"{namespace}/{name}"
    elif all_namespaces and "/" not in name:
        name = _only_pod(name, cluster_input) or name
    answer = _explainer(cluster_input, now).pod(name)
    if answer is None and "/" not in name:
        raise _without_namespace(name, cluster_input)
    if answer is None:
        raise _unknown("pod", name, [pod.key for pod in cluster_input.cluster.pods])
    output.print_answer(
        PodExplained(answer=answer, cluster_input=cluster_input, now_seconds=now), form
    )


def _only_pod(name: str, cluster_input: ClusterInput) -> str | None:
    """Return the namespace/name of the only pod with this name in any namespace.

    Returns None if there is no such pod, or if there are several.
    """
    keys = [pod.key for pod in cluster_input.cluster.pods if pod.name == name]
    return keys[0] if len(keys) == 1 else None


def _explainer(cluster_input: ClusterInput, now_seconds: int) -> Explainer:
    snapshot = ClusterSnapshot(cluster_input.cluster, cluster_input.config, Now(now_seconds))
    return Explainer(
        snapshot,
        make_plan(snapshot),
        now_seconds,
        cluster_input.namespace,
        cluster_input.surge_objects,
    )


def _without_namespace(name: str, cluster_input: ClusterInput) -> InvalidInputError:
    same_name = sorted(pod.key for pod in cluster_input.cluster.pods if pod.name == name)[
        :NEAR_MAX
    ]
    hint = f"; did you mean {', '.join(same_name)}?" if same_name else ""
    return InvalidInputError(
        f"pod {name}", f"the namespace is missing; allowed: NAMESPACE/NAME, or -n{hint}"
    )


def _unknown(kind: str, name: str, known: Iterable[str]) -> InvalidInputError:
    """Return the error for a node or pod *name* that does not exist, with similar names.

    *known*: existing names. Names that contain the given name come first, then names that are
    spelled similarly.
    """
    names = list(known)
    near = sorted(other for other in names if name and name in other)[:NEAR_MAX]
    similar = difflib.get_close_matches(name, names, n=NEAR_MAX, cutoff=0.6)
    near += [other for other in similar if other not in near][: NEAR_MAX - len(near)]
    similar_names = f"similar names: {', '.join(near)}"
    hint = similar_names if near else f"none of the {plural(len(names), kind)} has a similar name"
    scope = " (completed and scheduling-gated pods are not considered)" if kind == "pod" else ""
    return InvalidInputError(f"{kind} {name}", f"not found{scope}; {hint}")
