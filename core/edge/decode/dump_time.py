"""When a dump of a cluster was made, as far as its objects say."""

from collections.abc import Iterable

from core.edge.decode.fields import Bytes
from core.edge.decode.pod_times import times
from core.model.errors import InvalidInputError
from core.model.pod import Pod


class DumpTime:
    """Collects times of a dump that are not in its Cluster."""

    def __init__(self) -> None:
        self._heartbeats: dict[str, int] = {}
        """Newest heartbeat by node, unix seconds."""
        self._finished = 0
        """Newest creation of a finished pod, unix seconds."""

    def add_node(self, name: str, raw: Bytes) -> None:
        """Note the newest heartbeat of a Node; one that cannot be read is ignored."""
        try:
            self._heartbeats[name] = times(raw, name).newest
        except InvalidInputError:
            return

    def add_finished(self, raw: Bytes) -> None:
        """Note when a finished pod was created; one that cannot be read is ignored."""
        try:
            self._finished = max(self._finished, times(raw, "").created or 0)
        except InvalidInputError:
            return

    def estimate(self, pods: Iterable[Pod], clock_seconds: int) -> int:
        """Return when the dump was made, unix seconds; where no object says it, *clock_seconds*.

        That is the newest creation of a pod, or the heartbeat of the node in the middle if that
        is newer.
        """
        created = (pod.created_seconds for pod in pods)
        heartbeats = sorted(one for one in self._heartbeats.values() if one)
        # Kubelets report every few minutes; of the middle one a few wrong clocks move nothing.
        middle = heartbeats[(len(heartbeats) - 1) // 2 :][:1]
        known = [one for one in (*created, self._finished or None, *middle) if one is not None]
        return min(max(known, default=clock_seconds), clock_seconds)
