"""Write Events in the background; an Event that cannot be written is counted and dropped.

Source: k8s.io/api/events/v1. An Event is in the namespace of the object that it regards; Events
about objects without a namespace, such as Nodes, are in `default`.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from core.model.errors import UnavailableError
from core.model.node import Node
from kube.client import Client
from runtime.clock import Clock, micro_time
from runtime.logs import fields

PATH: Final = "/apis/events.k8s.io/v1/namespaces/{namespace}/events"
DEFAULT_NAMESPACE: Final = "default"
QUEUE_MAX: Final = 1000
"""Maximum number of queued Events; further Events are dropped."""
NOTE_BYTES_MAX: Final = 1000
"""Maximum size of a note in UTF-8, a limit of the API; longer notes are cut."""
INSTANCE_CHARACTERS_MAX: Final = 128

log = logging.getLogger("ebb.events")


class EventType(StrEnum):
    """The type of an Event: Normal or Warning."""

    NORMAL = "Normal"
    WARNING = "Warning"


Regarding = Mapping[str, str]
"""The object that an Event is about: an ObjectReference."""


def namespace(name: str) -> Regarding:
    """Return the reference to a Namespace, for an Event about it."""
    return {"apiVersion": "v1", "kind": "Namespace", "name": name}


def secret(namespace: str, name: str) -> Regarding:
    """Return the reference to a Secret, for an Event about it."""
    return {"apiVersion": "v1", "kind": "Secret", "namespace": namespace, "name": name}


class Events:
    """A bounded queue of Events, and the task that sends them."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        lost: Callable[[], None],
        *,
        controller: str,
        instance: str,
    ) -> None:
        """Create an empty queue.

        *lost*: called for each Event that cannot be written. *controller*, *instance*: the program
        and its replica, as each Event reports them.
        """
        self._client, self._clock, self._lost = client, clock, lost
        self._controller = controller
        self._instance = instance[:INSTANCE_CHARACTERS_MAX]
        # A slow API server must not delay reconciliations or fill the memory.
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(QUEUE_MAX)
        self._numbers = itertools.count()

    def record(self, node: Node, reason: str, note: str) -> None:
        """Queue an Event of type Normal about a Node; *note*: its message for people."""
        self.record_about(_reference(node), reason, note)

    def record_about(
        self, regarding: Regarding, reason: str, note: str, type_: EventType = EventType.NORMAL
    ) -> None:
        """Queue an Event about an object; if the queue is full, count the Event as lost.

        *regarding*: reference to the object. *note*: message for people; a long note is cut.
        """
        try:
            self._queue.put_nowait(self._event(regarding, reason, note, type_))
        except asyncio.QueueFull:
            self._lost()

    async def send(self, node: Node, reason: str, note: str) -> None:
        """Write an Event of type Normal about a Node at once. Raises: UnavailableError."""
        await self._send(self._event(_reference(node), reason, note, EventType.NORMAL))

    def _event(
        self, regarding: Regarding, reason: str, note: str, type_: EventType
    ) -> dict[str, Any]:
        now = self._clock.unix_seconds()
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{regarding['name']}.{now:x}{next(self._numbers):05x}",
                "namespace": regarding.get("namespace", DEFAULT_NAMESPACE),
            },
            "eventTime": micro_time(now),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": reason,
            "reason": reason,
            "type": type_.value,
            "note": note.encode(errors="replace")[:NOTE_BYTES_MAX].decode(errors="ignore"),
            "regarding": dict(regarding),
        }

    async def _send(self, event: dict[str, Any]) -> None:
        await self._client.ask(
            "POST", PATH.format(namespace=event["metadata"]["namespace"]), event
        )

    async def run(self) -> None:
        """Send queued Events until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._send(event)
            except UnavailableError as fault:
                self._lost()
                log.warning(
                    "cannot write an Event; it is dropped", extra=fields(reason=str(fault))
                )


def _reference(node: Node) -> Regarding:
    return {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
