"""When nodes are expected to be empty, as far as one look at a cluster tells.

A look shows pods that live, and of those that have ended the ones that finished and still stand
there. Owners that make a new pod for each that leaves delete theirs, which leaves nothing behind;
what stands there of them has failed and says nothing of the others. So of these nothing is known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from core.model.pod import Pod
from core.model.workload import KEEPERS, Workload, workload_of
from core.survival.left import Left, left
from core.survival.seen import Seen, counts


class End(NamedTuple):
    """A pod that has finished."""

    pod: Pod
    """As it was while it ran."""
    at_seconds: int
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class Emptying:
    """When a node is expected to be empty, if no pod comes."""

    left: Left | None
    """None: not known."""
    unknown: tuple[Workload, ...] = ()
    """Those of its pods of which too few have ended."""


def emptying(
    names: Iterable[str], pods: Sequence[Pod], ends: Iterable[End], now_seconds: int
) -> Mapping[str, Emptying]:
    """Return for each of the nodes when it is expected to be empty; *pods* are all that live."""
    seen = Seen()
    for end in sorted(ends, key=lambda one: (one.at_seconds, one.pod.key)):
        if end.pod.owner_kind not in KEEPERS:
            seen.ended(end.pod, min(end.at_seconds, now_seconds))
    curves = seen.curves(pods if seen.workloads else (), now_seconds)
    on: dict[str, list[Pod]] = {name: [] for name in names}
    for pod in pods:
        if pod.node in on and counts(pod):
            on[pod.node].append(pod)
    found = {}
    for name, ours in on.items():
        aged = [(pod, curves.aged(pod, now_seconds)) for pod in ours]
        unknown = {workload_of(pod) for pod, one in aged if one is None}
        known = None if unknown else left(one for _, one in aged if one is not None)
        found[name] = Emptying(known, tuple(sorted(unknown)))
    return found
