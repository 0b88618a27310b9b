"""Estimate when a dump (a file with the objects of a cluster) was created, from its objects."""

from collections.abc import Iterable
from typing import Final

import msgspec

from core.model.errors import InvalidInputError
from core.model.pod import Pod
from kube.decode.field_decoding import DECODE_ERRORS, Bytes
from kube.decode.objects import Struct
from kube.decode.pod_times import times

RUNNING: Final = "Running"


class _Status(Struct):
    phase: str = ""


class _PodPhase(Struct):
    status: _Status | None = None


_PHASE: Final = msgspec.json.Decoder(_PodPhase)


class DumpTime:
    """Collect the times of objects in a dump, and count Running pods without a node.

    The raw JSON is read, because a decoded Cluster contains neither heartbeats nor phases.
    """

    def __init__(self) -> None:
        self.running_nowhere = 0
        """Number of pods with phase Running that are bound to no node."""
        self._heartbeats: dict[str, int] = {}
        """Latest time in each Node object, usually a heartbeat, by node; Unix seconds."""
        self._finished = 0
        """Latest creation of a finished pod, in Unix seconds."""

    def add_node(self, name: str, raw: Bytes) -> None:
        """Record the latest time in the JSON of a Node; an invalid object is ignored."""
        try:
            self._heartbeats[name] = times(raw, name).newest
        except InvalidInputError:
            return

    def add_finished(self, raw: Bytes) -> None:
        """Record the creation time in the JSON of a finished pod; an invalid object is ignored."""
        try:
            self._finished = max(self._finished, times(raw, "").created or 0)
        except InvalidInputError:
            return

    def add_without_node(self, raw: Bytes) -> None:
        """Count a pod that is bound to no node if its phase in the JSON is Running."""
        try:
            status = _PHASE.decode(raw).status
        except DECODE_ERRORS:
            return
        self.running_nowhere += status is not None and status.phase == RUNNING

    def estimate(self, pods: Iterable[Pod], clock_seconds: int) -> int:
        """Return the estimated creation time of the dump in Unix seconds.

        It is that of `latest`. *pods*: the decoded pods of the dump. *clock_seconds*: the current
        time in Unix seconds; the result is never later, and equal to it if the dump has no times.
        """
        latest = self.latest(pods)
        return clock_seconds if latest is None else min(latest, clock_seconds)

    def latest(self, pods: Iterable[Pod]) -> int | None:
        """Return the latest credible time in the dump in Unix seconds; None if it has no times.

        It is the latest creation of a pod, or the median of the nodes' heartbeats if that is
        later. *pods*: the decoded pods of the dump.
        """
        created = (pod.created_seconds for pod in pods)
        heartbeats = sorted(seconds for seconds in self._heartbeats.values() if seconds)
        # Kubelets report every few minutes. A few wrong clocks do not change the median.
        middle = heartbeats[(len(heartbeats) - 1) // 2 :][:1]
        times_ = (*created, self._finished or None, *middle)
        known = [seconds for seconds in times_ if seconds is not None]
        return max(known, default=None)
