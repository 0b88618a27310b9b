"""What a look at a cluster cannot tell, in words."""

from collections.abc import Callable, Mapping
from typing import Final

from cli.terminal import printable
from core.explain.caveats import Caveat
from core.model.quantity import format_bytes, format_millis

NODES_SHOWN: Final = 3


def message(one: Caveat) -> str:
    """Write it as a sentence."""
    return printable(_SENTENCES[one.code](one))


def _nodes(one: Caveat, *, counted: bool = False) -> str:
    """Write the first names, and how many more there are."""
    shown = [f"{node} ({pods})" if counted else node for node, pods in one.nodes[:NODES_SHOWN]]
    more = len(one.nodes) - len(shown)
    return ", ".join(shown) + (f" and {_several(more, 'more node')}" if more else "")


def _several(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def _room(one: Caveat) -> str:
    cores, memory = format_millis(one.amount.cpu_millis), format_bytes(one.amount.memory_bytes)
    return f"cpu {cores} and memory {memory}"


def _no_requests(one: Caveat) -> str:
    where = f": {_nodes(one, counted=True)}" if one.nodes else ""
    told = f"{one.count:,} of {one.of:,} pods do not request both CPU and memory"
    return f"{told}; what they do not request counts as 0{where}"


_SENTENCES: Final[Mapping[str, Callable[[Caveat], str]]] = {
    "one-namespace": lambda one: (
        f"all {one.count:,} pods are of namespace {one.names[0]}; a dump needs those of all (-A), "
        "or nodes look emptier than they are"
    ),
    "no-daemonsets": lambda _: (
        "no pod of a DaemonSet is in the dump; if the cluster runs any, it is not whole (-A)"
    ),
    "no-budgets": lambda _: (
        "no PodDisruptionBudget is in the dump (pdb): whether one protects a pod is not known"
    ),
    "no-volumes": lambda one: (
        f"{one.count:,} of {one.of:,} pods use claims, and the dump lacks what stands "
        "behind them (pv,pvc,csinodes): such pods count as not movable"
    ),
    "no-requests": _no_requests,
    "virtual": lambda one: f"{_several(one.count, 'virtual node')} aside, no room: {_nodes(one)}",
    "leaving": lambda one: (
        f"{_several(one.count, 'node')} leaving, no room: {_nodes(one)}; their pods come first"
    ),
    "cordoned": lambda one: (
        f"{_several(one.count, 'cordoned node')}, no room though {_room(one)} stand there: "
        f"{_nodes(one)}"
    ),
    "not-ready": lambda one: (
        f"{_several(one.count, 'node')} not Ready, no room though {_room(one)} stand there: "
        f"{_nodes(one)}"
    ),
    "overcommitted": lambda one: (
        f"{_several(one.count, 'overcommitted node')}, asked for more than there is: {_nodes(one)}"
    ),
}
