"""What `kubectl get nodes,pods,pdb -A -o json` prints, to a Cluster."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from core.edge import decode
from core.edge.objects import BUDGET_DECODER, HEAD_DECODER
from core.errors import InvalidInputError
from core.model import Cluster, DisruptionBudget, Node, Pod

HOW_TO: Final = "make it with: kubectl get nodes,pods,pdb -A -o json"
LIST_KINDS: Final = {"NodeList": "Node", "PodList": "Pod", "PodDisruptionBudgetList": ""}


def cluster_of(dumps: Sequence[tuple[str, bytes]]) -> Cluster:
    """Merge dumps, each (source, bytes), into one Cluster.

    Objects of other kinds are passed over. Raises: InvalidInputError with source, object, field.
    """
    nodes: list[Node] = []
    pods: list[Pod] = []
    budgets: list[DisruptionBudget] = []
    any_pod = False
    for source, raw in dumps:
        for kind, item in _objects(raw, source):
            if kind == "Node":
                nodes.append(decode.node(item, source))
            elif kind == "Pod":
                any_pod = True
                pod = decode.pod(item, source)
                pods += [pod] if pod is not None else []
            elif kind == "PodDisruptionBudget":
                budgets.append(_budget(item, source))
    sources = ", ".join(source for source, _ in dumps)
    if not nodes:
        raise InvalidInputError(sources, f"holds no nodes; {HOW_TO}")
    if not any_pod:
        # Without them every node would look as if it could go.
        raise InvalidInputError(sources, f"holds no pods; {HOW_TO}")
    try:
        return Cluster.of(nodes, pods, budgets)
    except InvalidInputError as fault:
        raise InvalidInputError(f"{sources}: {fault.where}", fault.problem) from fault


def _objects(raw: bytes, source: str) -> Iterable[tuple[str, bytes | msgspec.Raw]]:
    """Yield (kind, bytes) of a list's items, or of the one object that was given."""
    if not raw.strip():
        raise InvalidInputError(source, f"is empty; {HOW_TO}")
    try:
        head = HEAD_DECODER.decode(raw)
        if head.items is None:
            yield head.kind, raw
            return
        of_list = LIST_KINDS.get(head.kind, "")
        for item in head.items:
            yield of_list or HEAD_DECODER.decode(item).kind, item
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        problem = f"not the JSON of a Kubernetes list: {fault}; {HOW_TO}"
        raise InvalidInputError(source, problem) from fault


def _budget(raw: bytes | msgspec.Raw, source: str) -> DisruptionBudget:
    try:
        found = BUDGET_DECODER.decode(raw)
    except msgspec.DecodeError as fault:
        raise InvalidInputError(f"{source}: PodDisruptionBudget", str(fault)) from fault
    return DisruptionBudget(
        namespace=found.metadata.namespace or "default",
        name=found.metadata.name,
        disruptions_allowed=found.status.disruptions_allowed if found.status else 0,
    )
