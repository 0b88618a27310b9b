"""Filling a cluster once, without time: where a scheduler would have put the pods."""

from collections.abc import Sequence
from enum import StrEnum

from core.model.resources import Resources

SHARE_SCALE = 2**20


class Placement(StrEnum):
    """Which node a pod is given among those that have room."""

    SPREAD = "spread"
    """The least allocated, as the default scheduler prefers."""
    PACK = "pack"
    """The most allocated."""


def fill(
    nodes: Sequence[tuple[str, Resources]],
    pods: Sequence[tuple[str, Resources]],
    placement: Placement,
) -> dict[str, str | None]:
    """Place the pods one by one; None: it fits nowhere. Ties go by the nodes' order."""
    whole = [shape for _, shape in nodes]
    free = list(whole)
    shares = [0] * len(nodes)
    sign = 1 if placement is Placement.SPREAD else -1
    placed: dict[str, str | None] = {}
    for name, requests in pods:
        ranked = ((sign * shares[n], n) for n in range(len(nodes)) if requests.fits_in(free[n]))
        best = min(ranked, default=None)
        if best is None:
            placed[name] = None
            continue
        chosen = best[1]
        free[chosen] -= requests
        shares[chosen] = _allocated(whole[chosen], free[chosen])
        placed[name] = nodes[chosen][0]
    return placed


def _allocated(whole: Resources, free: Resources) -> int:
    """Return the mean of the CPU and the memory share that is taken."""
    cpu = (whole.cpu_millis - free.cpu_millis) * SHARE_SCALE // max(whole.cpu_millis, 1)
    memory = (whole.memory_bytes - free.memory_bytes) * SHARE_SCALE // max(whole.memory_bytes, 1)
    return (cpu + memory) // 2
