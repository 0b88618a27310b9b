"""Read and write one Node or Pod: writes apply only to the version that was read."""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION, MARK_LABEL
from core.model.errors import ConflictError, UnavailableError
from core.model.node import Node, Taint
from core.model.pod import Pod
from core.model.resources import Resources
from core.writes.write import URGENT, CostKind, Write, WriteKind
from kube.stores.objects import TRIES_MAX, nodes, pods, write_as_decided
from tests.support.fake_api import NODES, FakeApi
from tests.support.fake_objects import node_object, pod_object
from tests.support.following import Waits, opened

PATH = "/api/v1/namespaces/default/pods/p"


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


def cost(value: str | None, name: str = "p") -> Write[Pod]:
    costs = {COST_ANNOTATION: value, COST_OURS_ANNOTATION: value}
    return Write.of(CostKind.SET, Pod(namespace="default", name=name), {}, costs, "")


def marking(found: Node) -> Write[Node]:
    return Write.of(WriteKind.MARK, found, {MARK_LABEL: "PreferNoSchedule", "old": None}, {}, "")


async def test_write_returns_stored_node(api: FakeApi) -> None:
    api.put(NODES, node_object("n", labels={"old": "1"}))
    async with opened(api) as client:
        found = await nodes(client).get("n")
        assert found is not None
        node, version = await nodes(client).write(marking(found[0]), found[1])
        assert node.labels == {MARK_LABEL: "PreferNoSchedule"}
        assert await nodes(client).get("n") == (node, version)
        assert version == str(api.version)


async def waits_of_throttled_write(api: FakeApi, kind: WriteKind | CostKind) -> list[float]:
    """Write while the API server throttles; return the seconds of each wait."""
    api.fail_next("patch", 429, times=2, headers={"Retry-After": "10"})
    waits = Waits()
    async with opened(api, waits=waits) as client:
        with suppress(UnavailableError):
            if isinstance(kind, CostKind):
                await pods(client).write(replace(cost("-7"), kind=kind), str(api.version))
            else:
                write = replace(marking(Node(name="n", allocatable=Resources())), kind=kind)
                await nodes(client).write(write, str(api.version))
    return waits.seconds


@pytest.mark.parametrize("kind", [*WriteKind, *CostKind])
async def test_throttled_write_is_retried_only_when_it_is_urgent(
    api: FakeApi, kind: WriteKind | CostKind
) -> None:
    """A removal of a mark remains right ten seconds later, and pods may be waiting for it."""
    api.put_document(PATH, pod_object("p", node="n"))
    api.put(NODES, node_object("n"))
    waits = kind in URGENT or kind is CostKind.REMOVE
    assert await waits_of_throttled_write(api, kind) == ([10, 10] if waits else [])
    assert api.count("patch") == (3 if waits else 1)


async def test_taints_are_replaced_only_on_version_that_was_read(api: FakeApi) -> None:
    stored = node_object("n")
    stored["spec"]["taints"] = [
        {"key": "theirs", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    ]
    api.put(NODES, stored)
    async with opened(api) as client:
        found = await nodes(client).get("n")
        assert found is not None
        node, version = found
        wanted = (*node.taints, Taint("ours", "1", "PreferNoSchedule"))
        write = Write(WriteKind.REPAIR_TAINTS, node, {}, "", wanted)
        changed, _ = await nodes(client).write(write, version)
        assert changed.taints == wanted
        theirs = api.objects[NODES]["n"]["spec"]["taints"][0]
        assert theirs["timeAdded"] == "2026-01-01T00:00:00Z"
        with pytest.raises(ConflictError):
            await nodes(client).write(write, version)


async def test_pod_is_patched_only_on_version_that_was_read(api: FakeApi) -> None:
    api.put_document(PATH, pod_object("p", node="n"))
    async with opened(api) as client:
        store = pods(client)
        found = await store.get("default/p")
        assert found is not None
        pod, version = found
        assert (pod.key, pod.node, version) == ("default/p", "n", str(api.version))
        stored, _ = await store.write(cost("-7"), version)
        assert (stored.deletion_cost, stored.deletion_cost_ours) == ("-7", "-7")
        with pytest.raises(ConflictError):
            await store.write(cost(None), version)
        written = {COST_ANNOTATION: "-7", COST_OURS_ANNOTATION: "-7"}
        assert api.documents[PATH]["metadata"]["annotations"] == written


async def test_get_returns_none_when_object_is_missing_or_finished(api: FakeApi) -> None:
    api.put_document(PATH, pod_object("p", node="n", phase="Succeeded"))
    async with opened(api) as client:
        assert await pods(client).get("default/p") is None
        assert await pods(client).get("default/other") is None
        assert await nodes(client).get("other") is None
        for version in ("1", str(api.version)):
            with pytest.raises(ConflictError):
                await pods(client).write(cost("1"), version)
        with pytest.raises(ConflictError):
            await pods(client).write(cost("1", "other"), "1")


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_error_answer_is_neither_conflict_nor_absence(api: FakeApi, status: int) -> None:
    api.put_document(PATH, pod_object("p"))
    async with opened(api) as client:
        for verb, call in (
            ("get", pods(client).get("default/p")),
            ("patch", pods(client).write(cost("1"), "1")),
        ):
            api.fail_next(verb, status)
            with pytest.raises(UnavailableError, match=str(status)) as caught:
                await call
            assert not isinstance(caught.value, ConflictError)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"metadata":{"name":"a b"}}'])
async def test_call_fails_when_answer_is_not_pod(api: FakeApi, body: bytes) -> None:
    async with opened(api) as client:
        api.answer_next("get", body)
        with pytest.raises(UnavailableError, match="API server: "):
            await pods(client).get("default/p")


async def test_write_is_decided_again_on_stored_node_when_it_conflicts(api: FakeApi) -> None:
    api.put(NODES, node_object("n", labels={"old": "1"}))
    decided: list[str] = []

    def decide(found: Node) -> Write[Node] | None:
        decided.append(found.labels.get("old", ""))
        return marking(found) if len(decided) < TRIES_MAX else None

    async with opened(api) as client:
        api.fail_next("patch", 409, times=2)
        done = await write_as_decided(nodes(client), "n", decide)
        assert done is not None
        assert done.stored[0].labels == {MARK_LABEL: "PreferNoSchedule"}
        assert decided == ["1"] * 3
        decided.clear()
        api.fail_next("patch", 409, times=TRIES_MAX)
        assert await write_as_decided(nodes(client), "n", decide) is None
        assert len(decided) == TRIES_MAX
        api.fail_next("patch", 409, times=TRIES_MAX)
        with pytest.raises(ConflictError, match="another client keeps changing the object"):
            await write_as_decided(nodes(client), "n", marking)


async def test_write_is_skipped_when_node_is_missing(api: FakeApi) -> None:
    async with opened(api) as client:
        assert await write_as_decided(nodes(client), "n", marking) is None
        assert api.count("patch") == 0


async def test_known_version_saves_read_until_it_conflicts(api: FakeApi) -> None:
    api.put(NODES, node_object("n"))
    async with opened(api) as client:
        found = await nodes(client).get("n")
        assert found is not None
        for version, reads in ((found[1], 0), ("0", 1), ("", 1)):
            before, known = api.count("get"), (found[0], version)
            await write_as_decided(nodes(client), "n", marking, partial(same_version, known))
            assert api.count("get") - before == reads


def same_version(known: tuple[Node, str]) -> tuple[Node, str]:
    return known
