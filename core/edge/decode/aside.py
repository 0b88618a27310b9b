"""What a look at a cluster tells beside it: the pods that have finished, and when it was made."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from core.edge.decode.depth import decoded
from core.edge.decode.fields import FAULTS, Bytes
from core.edge.decode.kinds import PODS
from core.edge.decode.lives import ContainerState, as_it_was, last_end, times
from core.edge.decode.objects import PodObject
from core.model.errors import InvalidInputError
from core.model.pod import Pod
from core.survival.look import End
from core.survival.seen import ENDED_MAX

FINISHED_MAX: Final = 4 * ENDED_MAX
"""Pods of a namespace, those that finished last; of one workload no more than ENDED_MAX count in
full. What somebody leaves lying about in one namespace takes no room from another."""
_STATE: Final = msgspec.json.Decoder(ContainerState | None)


class Aside:
    """Takes what a cluster leaves out."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[str, End]] = {}
        self._beats: dict[str, int] = {}

    @property
    def ends(self) -> tuple[End, ...]:
        """Return the pods that have finished, in no order."""
        return tuple(end for ours in self._ends.values() for end in _newest(ours.values()))

    def finished(self, item: PodObject | Bytes) -> None:
        """Take a pod that has finished, if it can be read and says when that was."""
        try:
            whole = item
            if not isinstance(whole, PodObject):
                whole = decoded(PODS.decoder.decode, bytes(whole))
            at_seconds = last_end(_states(whole))
            if at_seconds is not None:
                self._take(End(as_it_was(whole), at_seconds))
        except (*FAULTS, InvalidInputError):
            return

    def _take(self, end: End) -> None:
        ours = self._ends.setdefault(end.pod.namespace, {})
        ours[end.pod.key] = end
        if len(ours) >= 2 * FINISHED_MAX:
            self._ends[end.pod.namespace] = {one.pod.key: one for one in _newest(ours.values())}

    def beats(self, name: str, raw: Bytes) -> None:
        """Take when a Node's kubelet has reported last."""
        try:
            self._beats[name] = times(raw, name).newest
        except InvalidInputError:
            return

    def moment(self, pods: Iterable[Pod], clock_seconds: int) -> int:
        """Return when a dump was made, unix seconds; where nothing says it, now.

        That is what the middle one of the nodes says (kubelets report every few minutes, and one
        whose clock is wrong moves nothing), or the API server when it took in the last pod.
        """
        created = (pod.created_seconds for pod in (*pods, *(end.pod for end in self.ends)))
        beats = sorted(one for one in self._beats.values() if one)
        told = [one for one in created if one is not None] + beats[(len(beats) - 1) // 2 :][:1]
        return min(max(told, default=clock_seconds), clock_seconds)


def _newest(ends: Iterable[End]) -> list[End]:
    return sorted(ends, key=lambda one: (one.at_seconds, one.pod.key))[-FINISHED_MAX:]


def _states(whole: PodObject) -> Iterator[ContainerState | None]:
    statuses: Any = (whole.status and whole.status.container_statuses) or ()
    for one in statuses:
        yield decoded(_STATE.decode, bytes(one.state))
