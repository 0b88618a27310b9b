"""Events: what is written to the cluster, and how lost Events are counted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from core.model.node import Node
from core.model.resources import Resources
from kube.stores.events import PATH, QUEUE_MAX, Events, EventType, namespace, secret
from tests.support.clock import FakeClock
from tests.support.fake_api import FakeApi
from tests.support.following import opened

NODE = Node(name="n", uid="u", allocatable=Resources())


class Bench:
    def __init__(self, api: FakeApi, events: Events) -> None:
        self.api, self.events = api, events
        self.losses = 0


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    async with FakeApi() as api, opened(api) as client:

        def lost() -> None:
            made.losses += 1

        made = Bench(
            api, Events(client, FakeClock(), lost, controller="kube-ebb.io/c", instance="me")
        )
        yield made


async def test_event_has_object_reason_note_and_type() -> None:
    async with bench() as made:
        made.events.record(NODE, "Marked", "it can go")
        about = namespace("ebb-system")
        made.events.record_about(about, "ConfigurationRefused", "bad", EventType.WARNING)
        made.events.record_about(secret("ebb-system", "s"), "Replaced", "gone")
        sending = asyncio.create_task(made.events.run())
        await made.api.until(lambda: len(made.api.documents) == 3)
        sending.cancel()
    written = [
        (where, one["regarding"]["name"], one["reason"], one["note"], one["type"])
        for where in ("default", "ebb-system")
        for path, one in made.api.documents.items()
        if path.startswith(PATH.format(namespace=where))
    ]
    assert written == [
        ("default", "n", "Marked", "it can go", "Normal"),
        ("default", "ebb-system", "ConfigurationRefused", "bad", "Warning"),
        ("ebb-system", "s", "Replaced", "gone", "Normal"),
    ]
    for one in made.api.documents.values():
        assert one["reportingController"] == "kube-ebb.io/c"
        assert one["reportingInstance"] == "me"
    assert made.losses == 0


async def test_lost_event_is_counted_when_queue_is_full_or_write_fails() -> None:
    async with bench() as made:
        for _ in range(QUEUE_MAX + 2):
            made.events.record(NODE, "Marked", "")
        assert made.losses == 2
        made.api.fail_next("post", 500)
        sending = asyncio.create_task(made.events.run())
        await made.api.until(lambda: bool(made.api.documents))
        sending.cancel()
    assert made.losses == 3


async def test_note_is_truncated_to_api_limit() -> None:
    async with bench() as made:
        made.events.record_about(namespace("ebb-system"), "ConfigurationRefused", "x" + "ü" * 1000)
        sending = asyncio.create_task(made.events.run())
        await made.api.until(lambda: bool(made.api.documents))
        sending.cancel()
    ((_, event),) = made.api.documents.items()
    assert event["note"] == "x" + "ü" * 499
