"""Make the answers of `ebb explain`."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

from cli.answers import Explained, NodeExplained, PodExplained
from cli.explain.explainer import Explainer
from cli.input.cluster_input import ClusterInput
from cli.input.explaining import explainer
from cli.input.mark_status import mark_statuses
from core.engine.reconcile import make_plan
from core.engine.snapshot import ClusterSnapshot
from core.model.errors import InvalidInputError
from core.model.humanize import plural
from core.model.now import Now
from runtime.clock import SystemClock

NEAR_MAX: Final = 3


def nodes(cluster_input: ClusterInput, names: Sequence[str]) -> Explained:
    """Explain nodes. Raises: InvalidInputError for a node that does not exist."""
    now = cluster_input.now_seconds(SystemClock())
    explain = _explainer(cluster_input, now)
    statuses = {status.node: status for status in mark_statuses(cluster_input.cluster, now)}
    explained = []
    for name in names:
        answer = explain.node(name)
        if answer is None:
            raise _unknown("node", name, [node.name for node in cluster_input.cluster.nodes])
        explained.append(
            NodeExplained(
                answer=answer,
                status=statuses[name],
                cluster_input=cluster_input,
                now_seconds=now,
            )
        )
    return Explained(explained)


def pods(
    cluster_input: ClusterInput,
    names: Sequence[str],
    namespace: str | None,
    *,
    all_namespaces: bool,
) -> Explained:
    """Explain pods, each named as [namespace/]name.

    *namespace*: namespace of names without one. *all_namespaces*: find such a name in any
    namespace. Raises: InvalidInputError for a pod that does not exist.
    """
    now = cluster_input.now_seconds(SystemClock())
    explain = _explainer(cluster_input, now)
    explained = []
    for name in names:
        key = name
        if namespace is not None and "/" not in name:
            key = f"{namespace}/{name}"
        elif all_namespaces and "/" not in name:
            key = _only_pod(name, cluster_input) or name
        answer = explain.pod(key)
        if answer is None and "/" not in key:
            raise _without_namespace(key, cluster_input)
        if answer is None:
            raise _unknown("pod", key, [pod.key for pod in cluster_input.cluster.pods])
        explained.append(PodExplained(answer=answer, cluster_input=cluster_input, now_seconds=now))
    return Explained(explained)


def _only_pod(name: str, cluster_input: ClusterInput) -> str | None:
    """Return the namespace/name of the only pod with this name in any namespace.

    Returns None if there is no such pod, or if there are several.
    """
    keys = [pod.key for pod in cluster_input.cluster.pods if pod.name == name]
    return keys[0] if len(keys) == 1 else None


def _explainer(cluster_input: ClusterInput, now_seconds: int) -> Explainer:
    snapshot = ClusterSnapshot(cluster_input.cluster, cluster_input.config, Now(now_seconds))
    return explainer(cluster_input, snapshot, make_plan(snapshot), now_seconds)


def _without_namespace(name: str, cluster_input: ClusterInput) -> InvalidInputError:
    same_name = sorted(pod.key for pod in cluster_input.cluster.pods if pod.name == name)[
        :NEAR_MAX
    ]
    hint = f"; did you mean {', '.join(same_name)}?" if same_name else ""
    return InvalidInputError(
        f"pod {name}", f"the namespace is missing; use NAMESPACE/NAME, or -n{hint}"
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
