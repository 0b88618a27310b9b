"""Count the Ready pods that Deployments lack during and after surge moves, from watch events."""

from dataclasses import dataclass, field
from typing import Final

from core.model.pod import DETACHED_LABEL
from tests.e2e.api import Json

WATCHED_SECONDS: Final = 90.0
"""Time after a pod was detached or attached: it ends within half a minute, and one minute follows.
"""
RACE_SECONDS: Final = 1.0
"""Shorter shortages are not counted: events of Pods and Deployments come from two watches."""


@dataclass
class _Deployment:
    replicas: int
    moved_at: float | None = None
    """When a pod was last detached or attached; None: not since somebody set the replicas."""
    short_since: float | None = None


@dataclass
class BelowDesired:
    """Shortages of Deployments of which a pod is moved; times are monotonic seconds."""

    pod_seconds: float = 0.0
    """Seconds in which fewer pods were Ready than desired, for WATCHED_SECONDS after a move."""
    moves: int = 0
    """How often a pod was detached."""
    _detached: set[str] = field(default_factory=set)
    """Names of the detached pods."""
    _deployments: dict[str, _Deployment] = field(default_factory=dict)
    _ready: dict[str, set[str]] = field(default_factory=dict)
    """Names of Ready pods by the label `app`, which is the name of the Deployment."""

    def deployment_seen(self, found: Json, now: float) -> None:
        """Take an event of a Deployment."""
        name, replicas = found["metadata"]["name"], found["spec"]["replicas"]
        one = self._deployments.setdefault(name, _Deployment(replicas))
        if replicas != one.replicas:
            self._close(one, now)
            one.replicas, one.moved_at = replicas, None
        self._update(name, now)

    def pod_seen(self, found: Json, now: float, *, deleted: bool) -> None:
        """Take an event of a pod."""
        metadata = found["metadata"]
        app = metadata.get("labels", {}).get("app")
        if app is None:
            return
        self._note_move(metadata, now, deleted=deleted)
        names = self._ready.setdefault(app, set())
        if deleted or "deletionTimestamp" in metadata or not _is_ready(found):
            names.discard(metadata["name"])
        else:
            names.add(metadata["name"])
        self._update(app, now)

    def _note_move(self, metadata: Json, now: float, *, deleted: bool) -> None:
        name, one = metadata["name"], self._deployments.get(metadata["labels"]["app"])
        is_detached = DETACHED_LABEL in metadata["labels"] and not deleted
        if is_detached == (name in self._detached):
            return
        self._detached ^= {name}
        self.moves += is_detached
        if one is not None:
            one.moved_at = now

    def interrupted(self, app: str, now: float) -> None:
        """Stop counting for a Deployment, because the load deletes one of its pods."""
        if (one := self._deployments.get(app)) is not None:
            self._close(one, now)
            one.moved_at = None

    def end(self, now: float) -> None:
        """Count the shortages that last until now."""
        for one in self._deployments.values():
            self._close(one, now)

    def _update(self, name: str, now: float) -> None:
        one = self._deployments.get(name)
        if one is None or one.moved_at is None:
            return
        if len(self._ready.get(name, ())) >= one.replicas:
            self._close(one, now)
        elif one.short_since is None:
            one.short_since = now

    def _close(self, one: _Deployment, now: float) -> None:
        if one.short_since is not None and one.moved_at is not None:
            seconds = min(now, one.moved_at + WATCHED_SECONDS) - one.short_since
            self.pod_seconds += seconds if seconds > RACE_SECONDS else 0.0
        one.short_since = None


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)
