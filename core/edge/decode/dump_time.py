"""Estimate when a dump of a cluster was created, from the times of its objects."""

from collections.abc import Iterable
from typing import Final

import msgspec

from core.edge.decode.fields import FAULTS, Bytes
from core.edge.decode.objects import Struct
from core.edge.decode.pod_times import times
from core.model.errors import InvalidInputError
from core.model.pod import Pod

RUNNING: Final = "Running"


class _Status(Struct):
    phase: str = ""


class _PodPhase(Struct):
    status: _Status | None = None


_PHASE: Final = msgspec.json.Decoder(_PodPhase)


class DumpTime:
    """Collects times of a dump, and pods at odds with their phase, for its Cluster has neither."""

    def __init__(self) -> None:
        self.running_nowhere = 0
        """Number of pods that run and are on no node."""
        self._heartbeats: dict[str, int] = {}
        """Latest heartbeat by node, in Unix seconds."""
        self._finished = 0
        """Latest creation of a finished pod, in Unix seconds."""

    def add_node(self, name: str, raw: Bytes) -> None:
        """Record the latest heartbeat of a Node; an invalid object is ignored."""
        try:
            self._heartbeats[name] = times(raw, name).newest
        except InvalidInputError:
            return

    def add_finished(self, raw: Bytes) -> None:
        """Record the creation of a finished pod; an invalid object is ignored."""
        try:
            self._finished = max(self._finished, times(raw, "").created or 0)
        except InvalidInputError:
            return

    def add_without_node(self, raw: Bytes) -> None:
        """Count a pod without a node if its phase says that it runs."""
        try:
            status = _PHASE.decode(raw).status
        except FAULTS:
            return
        self.running_nowhere += status is not None and status.phase == RUNNING

    def estimate(self, pods: Iterable[Pod], clock_seconds: int) -> int:
        """Return the estimated creation time in Unix seconds, or *clock_seconds* without times.

        The estimate is the latest creation of a pod, or the median of the nodes' heartbeats if
        later.
        """
        created = (pod.created_seconds for pod in pods)
        heartbeats = sorted(one for one in self._heartbeats.values() if one)
        # Kubelets report every few minutes. A few wrong clocks do not change the median.
        middle = heartbeats[(len(heartbeats) - 1) // 2 :][:1]
        known = [one for one in (*created, self._finished or None, *middle) if one is not None]
        return min(max(known, default=clock_seconds), clock_seconds)
