"""One Pod over the wire: read with its version, written on that version only."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from core.edge.kube.stores.pods import PodStore
from core.errors import ConflictError, UnavailableError
from core.marks.keys import COST_ANNOTATION, COST_OURS_ANNOTATION
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import pod_object
from tests.support.following import opened

PATH = "/api/v1/namespaces/default/pods/p"


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


def patch(version: str, **annotations: str | None) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version, "annotations": annotations}}


async def test_a_patch_is_on_the_version_that_was_read(api: FakeApi) -> None:
    api.put_document(PATH, pod_object("p", node="n"))
    async with opened(api) as client:
        store = PodStore(client)
        found = await store.get_pod("default", "p")
        assert found is not None
        pod, version = found
        assert (pod.key, pod.node, version) == ("default/p", "n", str(api.version))
        written: dict[str, str | None] = {COST_ANNOTATION: "-7", COST_OURS_ANNOTATION: "-7"}
        await store.patch_pod("default", "p", patch(version, **written))
        found = await store.get_pod("default", "p")
        assert found is not None
        assert (found[0].deletion_cost, found[0].deletion_cost_ours) == ("-7", "-7")
        with pytest.raises(ConflictError):
            await store.patch_pod("default", "p", patch(version, **{COST_ANNOTATION: None}))
        assert api.documents[PATH]["metadata"]["annotations"] == written


async def test_a_pod_that_is_gone_or_has_finished_is_none(api: FakeApi) -> None:
    api.put_document(PATH, pod_object("p", node="n", phase="Succeeded"))
    async with opened(api) as client:
        store = PodStore(client)
        assert await store.get_pod("default", "p") is None
        assert await store.get_pod("default", "other") is None
        with pytest.raises(ConflictError):
            await store.patch_pod("default", "other", patch("1"))


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_a_refusal_is_no_conflict_and_no_absence(api: FakeApi, status: int) -> None:
    api.put_document(PATH, pod_object("p"))
    async with opened(api) as client:
        store = PodStore(client)
        for verb, call in (
            ("get", store.get_pod("default", "p")),
            ("patch", store.patch_pod("default", "p", patch("1"))),
        ):
            api.fail_next(verb, status)
            with pytest.raises(UnavailableError, match=str(status)) as caught:
                await call
            assert not isinstance(caught.value, ConflictError)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"metadata":{"name":"a b"}}'])
async def test_an_answer_that_is_no_pod_is_named(api: FakeApi, body: bytes) -> None:
    async with opened(api) as client:
        api.answer_next("get", body)
        with pytest.raises(UnavailableError, match="API server: "):
            await PodStore(client).get_pod("default", "p")
