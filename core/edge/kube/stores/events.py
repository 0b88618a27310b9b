"""Events about Nodes, written beside the work: a lost one is counted and holds nobody up.

Source: k8s.io/api/events/v1. Nodes have no namespace: their Events stand in `default`.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from core.edge.clock import Clock
from core.edge.kube.client import Client
from core.edge.kube.stores.lease import micro_time
from core.edge.logs import fields
from core.model.errors import UnavailableError
from core.model.node import Node

PATH: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
CONTROLLER: Final = "kube-ebb.io/webhook"
QUEUE_MAX: Final = 1000
NOTE_BYTES_MAX: Final = 1000
"""The API takes 1 kB, as UTF-8; a configuration that is refused is quoted as it was written."""
INSTANCE_CHARACTERS_MAX: Final = 128

log = logging.getLogger("ebb.events")


class EventType(StrEnum):
    """What kubectl shows beside an Event, and people filter by."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Events:
    """A bounded queue of Events, and the task that sends them."""

    def __init__(
        self, client: Client, clock: Clock, lost: Callable[[], None], instance: str
    ) -> None:
        """*lost*: called for each Event that cannot be written."""
        self._client, self._clock, self._lost = client, clock, lost
        self._instance = instance[:INSTANCE_CHARACTERS_MAX]
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(QUEUE_MAX)
        self._numbers = itertools.count()

    def tell(self, node: Node, reason: str, note: str) -> None:
        """Say in the cluster what was done to a Node; when the queue is full, nothing."""
        regarding = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
        self._put(regarding, reason, note, EventType.NORMAL)

    def tell_of(
        self, namespace: str, reason: str, note: str, type_: EventType = EventType.NORMAL
    ) -> None:
        """Say something about the program itself: its Events are those of its Namespace."""
        regarding = {"apiVersion": "v1", "kind": "Namespace", "name": namespace}
        self._put(regarding, reason, note, type_)

    def _put(self, regarding: dict[str, str], reason: str, note: str, type_: EventType) -> None:
        now = self._clock.unix_seconds()
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{regarding['name']}.{now:x}{next(self._numbers):05x}",
                "namespace": "default",
            },
            "eventTime": micro_time(now),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": reason,
            "reason": reason,
            "type": type_.value,
            "note": note.encode(errors="replace")[:NOTE_BYTES_MAX].decode(errors="ignore"),
            "regarding": regarding,
        }
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self._lost()

    async def run(self) -> None:
        """Send what is in the queue until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._client.ask("POST", PATH, event)
            except UnavailableError as fault:
                self._lost()
                log.warning("an Event was lost", extra=fields(reason=str(fault)))
