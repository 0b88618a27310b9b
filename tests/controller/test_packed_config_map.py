"""One packed value in a ConfigMap at the API server."""

from collections.abc import AsyncIterator

import pytest

from core.model.errors import ConflictError, UnavailableError
from kube.stores.packed_config_map import KEY, PackedConfigMap
from tests.support.fake_api import FakeApi
from tests.support.following import opened

METADATA = {"name": "one", "namespace": "ns", "annotations": {"theirs": "x"}}


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


async def test_content_is_written_only_on_version_that_was_read(api: FakeApi) -> None:
    api.put("configmaps", {"metadata": METADATA})
    async with opened(api) as client:
        store = PackedConfigMap(client, "ns", "one")
        read = await store.read()
        assert read
        assert read.content == b""
        written = await store.write(b"\x00\xff", read.version)
        assert await store.read() == written
        assert written.content == b"\x00\xff"
        with pytest.raises(ConflictError):
            await store.write(b"x", read.version)
        emptied = await store.write(b"", written.version)
        assert emptied.content == b""
    stored = api.objects["configmaps"]["ns/one"]
    assert stored["metadata"]["annotations"] == {"theirs": "x"}
    assert not stored["binaryData"]


async def test_missing_config_map_is_not_created(api: FakeApi) -> None:
    async with opened(api) as client:
        store = PackedConfigMap(client, "ns", "one")
        assert await store.read() is None
        with pytest.raises(ConflictError, match="has been deleted"):
            await store.write(b"x", "1")
    assert not api.objects["configmaps"]


@pytest.mark.parametrize("data", [{}, {"other": "eA=="}, {KEY: "no base64"}, {KEY: "é"}])
async def test_other_content_counts_as_empty(api: FakeApi, data: dict[str, str]) -> None:
    api.put("configmaps", {"metadata": METADATA, "binaryData": data})
    async with opened(api) as client:
        found = await PackedConfigMap(client, "ns", "one").read()
        assert found
        assert found.content == b""


async def test_garbled_answer_is_an_error(api: FakeApi) -> None:
    api.answer_next("get", b"[]")
    async with opened(api) as client:
        with pytest.raises(UnavailableError):
            await PackedConfigMap(client, "ns", "one").read()
