"""Read and write the Lease at the API server."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from core.model.errors import ConflictError, UnavailableError
from kube.stores.lease import Lease, LeaseStore
from tests.support.fake_api import FakeApi
from tests.support.following import Waits, opened

PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/ebb"


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


async def test_lease_is_written_only_on_version_that_was_read(api: FakeApi) -> None:
    async with opened(api) as client:
        store = LeaseStore(client, "ns", "ebb", 5)
        assert await store.read() is None
        written = await store.write(Lease(holder="one", duration_seconds=15))
        assert await store.read() == written
        await store.write(written)
        with pytest.raises(ConflictError):
            await store.write(written)
        with pytest.raises(ConflictError):
            await store.write(Lease(holder="two"))


async def test_write_conflicts_when_lease_was_deleted(api: FakeApi) -> None:
    async with opened(api) as client:
        store = LeaseStore(client, "ns", "ebb", 5)
        written = await store.write(Lease(holder="one", duration_seconds=15))
        del api.documents[PATH]
        with pytest.raises(ConflictError, match="has been deleted"):
            await store.write(written)
        assert (await store.write(replace(written, version=""))).holder == "one"


async def test_foreign_labels_and_annotations_are_retained(api: FakeApi) -> None:
    metadata = {"name": "ebb", "labels": {"a": "1"}, "annotations": {"b": "2"}}
    api.put_document(PATH, {"metadata": metadata, "spec": {}})
    async with opened(api) as client:
        store = LeaseStore(client, "ns", "ebb", 5)
        found = await store.read()
        assert found is not None
        await store.write(found)
    stored = api.documents[PATH]["metadata"]
    assert (stored["labels"], stored["annotations"]) == ({"a": "1"}, {"b": "2"})


async def test_lease_is_written_valid_when_fields_were_missing_or_too_large(
    api: FakeApi,
) -> None:
    """The API server answers 400 to empty times and to numbers above 32 bits."""
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 2**31 - 1}
    api.put_document(PATH, {"metadata": {"name": "ebb"}, "spec": spec})
    async with opened(api) as client:
        store = LeaseStore(client, "ns", "ebb", 5)
        found = await store.read()
        assert found is not None
        await store.write(replace(found, transitions=found.transitions + 1))
    assert api.documents[PATH]["spec"] == {**spec, "acquireTime": None, "renewTime": None}


@pytest.mark.parametrize("verb", ["get", "put"])
async def test_throttled_call_fails_at_once(api: FakeApi, verb: str) -> None:
    api.put_document(PATH, {"metadata": {"name": "ebb"}, "spec": {}})
    waits = Waits()
    async with opened(api, waits=waits) as client:
        store = LeaseStore(client, "ns", "ebb", 5)
        found = await store.read()
        assert found is not None
        api.fail_next(verb, 429, headers={"Retry-After": "60"})
        with pytest.raises(UnavailableError, match="answered 429"):
            await (store.read() if verb == "get" else store.write(found))
    assert waits.seconds == []


async def test_call_fails_at_its_timeout(api: FakeApi) -> None:
    api.swallow_next("get")
    async with opened(api) as client:
        with pytest.raises(UnavailableError, match="no answer in time"):
            await LeaseStore(client, "ns", "ebb", 0.05).read()


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"holderIdentity": None, "leaseDurationSeconds": None, "leaseTransitions": None},
        {"leaseDurationSeconds": -5},
    ],
)
async def test_lease_without_valid_fields_has_no_holder(
    api: FakeApi, spec: dict[str, object]
) -> None:
    api.put_document(PATH, {"metadata": {"name": "ebb"}, "spec": spec})
    async with opened(api) as client:
        found = await LeaseStore(client, "ns", "ebb", 5).read()
    assert found is not None
    assert (found.holder, found.duration_seconds, found.transitions) == ("", 1, 0)
