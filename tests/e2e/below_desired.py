"""Count the Ready pods that Deployments lack after a surge move, from watch events."""

from dataclasses import dataclass, field
from typing import Final

from core.moves.objects import MANAGER
from tests.e2e.api import Json

WATCHED_SECONDS: Final = 90.0
"""Time after Ebb lowered `scale`: the pod ends within half a minute, and one minute follows."""
RACE_SECONDS: Final = 1.0
"""Shorter shortages are not counted: events of Pods and Deployments come from two watches."""


@dataclass
class _Deployment:
    replicas: int
    lowered_at: float | None = None
    """When Ebb lowered `scale`; None: somebody else wrote it last, or Ebb raised it."""
    short_since: float | None = None


@dataclass
class BelowDesired:
    """Shortages of Deployments whose `scale` Ebb lowered last; times are monotonic seconds."""

    pod_seconds: float = 0.0
    """Seconds in which fewer pods were Ready than desired, for WATCHED_SECONDS after a move."""
    moves: int = 0
    """How often Ebb lowered `scale`."""
    _deployments: dict[str, _Deployment] = field(default_factory=dict)
    _ready: dict[str, set[str]] = field(default_factory=dict)
    """Names of Ready pods by the label `app`, which is the name of the Deployment."""

    def deployment_seen(self, found: Json, now: float) -> None:
        """Take an event of a Deployment."""
        name, replicas = found["metadata"]["name"], found["spec"]["replicas"]
        one = self._deployments.setdefault(name, _Deployment(replicas))
        if replicas != one.replicas:
            self._close(one, now)
            lowered = replicas < one.replicas and _writer(found) == MANAGER
            one.replicas, one.lowered_at = replicas, now if lowered else None
            self.moves += lowered
        self._update(name, now)

    def pod_seen(self, found: Json, now: float, *, deleted: bool) -> None:
        """Take an event of a pod."""
        metadata = found["metadata"]
        app = metadata.get("labels", {}).get("app")
        if app is None:
            return
        names = self._ready.setdefault(app, set())
        if deleted or "deletionTimestamp" in metadata or not _is_ready(found):
            names.discard(metadata["name"])
        else:
            names.add(metadata["name"])
        self._update(app, now)

    def interrupted(self, app: str, now: float) -> None:
        """Stop counting for a Deployment, because the load deletes one of its pods."""
        if (one := self._deployments.get(app)) is not None:
            self._close(one, now)
            one.lowered_at = None

    def end(self, now: float) -> None:
        """Count the shortages that last until now."""
        for one in self._deployments.values():
            self._close(one, now)

    def _update(self, name: str, now: float) -> None:
        one = self._deployments.get(name)
        if one is None or one.lowered_at is None:
            return
        if len(self._ready.get(name, ())) >= one.replicas:
            self._close(one, now)
        elif one.short_since is None:
            one.short_since = now

    def _close(self, one: _Deployment, now: float) -> None:
        if one.short_since is not None and one.lowered_at is not None:
            seconds = min(now, one.lowered_at + WATCHED_SECONDS) - one.short_since
            self.pod_seconds += seconds if seconds > RACE_SECONDS else 0.0
        one.short_since = None


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def _writer(deployment: Json) -> str:
    """Return the field manager that wrote the replicas last."""
    for entry in deployment["metadata"].get("managedFields") or ():
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {}):
            return str(entry["manager"])
    return ""
