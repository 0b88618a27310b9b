"""Reads and patches of the pods of moves, over a real socket."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from core.model.errors import ConflictError, UnavailableError
from core.moves.patches import Patch, PodMetadata
from kube.client import ApiError, Client
from kube.stores.objects import TRIES_MAX
from kube.stores.pod_moves import PodMoves, refuses_owner_references
from tests.support.fake_api import STRATEGIC, FakeApi
from tests.support.fake_objects import Json, merged, pod_object
from tests.support.following import opened

KEY = "default/web"
RS: Json = {"kind": "ReplicaSet", "name": "web-1", "uid": "u-rs", "controller": True}
OTHER: Json = {"kind": "Thing", "name": "t", "uid": "u-t"}
META: Json = {
    "uid": "u-web",
    "labels": {"app": "web", "pod-template-hash": "1"},
    "annotations": {"note": "keep"},
    "ownerReferences": [OTHER, RS],
}


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as made:
        made.put("pods", merged(pod_object("web"), {"metadata": META}))
        yield made


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[Client]:
    async with opened(api) as made:
        yield made


def patched(version: str) -> Patch:
    return {
        "metadata": {
            "resourceVersion": version,
            "labels": {"pod-template-hash": None, "kube-ebb.io/detached": "1"},
            "ownerReferences": [{"uid": "u-rs", "controller": False}],
        }
    }


@pytest.mark.parametrize(
    ("patch", "found"),
    [
        ({}, {}),
        (
            {"labels": {"pod-template-hash": None, "kube-ebb.io/detached": "1"}},
            {"hash": "", "detached": "1"},
        ),
        ({"labels": None}, {"hash": ""}),
        ({"ownerReferences": [OTHER]}, {"controller": ("", "", "")}),
        ({"ownerReferences": None}, {"controller": ("", "", "")}),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"terminating": True}),
        (
            {
                "annotations": {
                    "controller.kubernetes.io/pod-deletion-cost": "5",
                    "kube-ebb.io/deletion-cost": "6",
                    "kube-ebb.io/move": "{}",
                }
            },
            {"cost": "5", "cost_ours": "6", "move": "{}"},
        ),
    ],
)
async def test_metadata_of_pod_is_read(
    api: FakeApi, client: Client, patch: Json, found: dict[str, Any]
) -> None:
    stored = api.put("pods", merged(api.objects["pods"][KEY], {"metadata": patch}))
    usual = {"hash": "1", "controller": ("ReplicaSet", "web-1", "u-rs")}
    version = stored["metadata"]["resourceVersion"]
    expected = PodMetadata(uid="u-web", version=version, **{**usual, **found})
    assert await PodMoves(client).read(KEY) == expected


async def test_finished_pod_is_read_too(api: FakeApi, client: Client) -> None:
    api.put("pods", merged(api.objects["pods"][KEY], {"status": {"phase": "Failed"}}))
    found = await PodMoves(client).read(KEY)
    assert found is not None
    assert found.uid == "u-web"
    assert await PodMoves(client).read("default/gone") is None


async def test_patch_is_strategic_and_merges_owner_references_by_uid(
    api: FakeApi, client: Client
) -> None:
    assert await PodMoves(client).patch(KEY, lambda pod: patched(pod.version))
    call = api.calls[-1]
    assert (call.verb, call.headers["Content-Type"]) == ("patch", STRATEGIC)
    assert dict(call.query) == {}
    meta = api.objects["pods"][KEY]["metadata"]
    assert meta["ownerReferences"] == [OTHER, {**RS, "controller": False}]
    assert meta["labels"] == {"app": "web", "kube-ebb.io/detached": "1"}
    assert meta["annotations"] == {"note": "keep"}


async def test_pod_is_read_and_decided_again_when_others_have_changed_it(
    api: FakeApi, client: Client
) -> None:
    versions: list[str] = []

    def decide(pod: PodMetadata) -> Patch:
        versions.append(pod.version)
        if len(versions) == 1:
            api.put("pods", api.objects["pods"][KEY])
        return patched(pod.version)

    assert await PodMoves(client).patch(KEY, decide)
    assert len(set(versions)) == 2


async def test_patch_fails_when_others_change_the_pod_all_the_time(
    api: FakeApi, client: Client
) -> None:
    def decide(pod: PodMetadata) -> Patch:
        api.put("pods", api.objects["pods"][KEY])
        return patched(pod.version)

    with pytest.raises(ConflictError, match="another client keeps changing the object"):
        await PodMoves(client).patch(KEY, decide)
    assert api.count("patch") == TRIES_MAX


async def test_nothing_is_patched_when_pod_is_gone_or_nothing_is_decided(
    api: FakeApi, client: Client
) -> None:
    moves = PodMoves(client)
    assert not await moves.patch(KEY, lambda _: None)
    assert not await moves.patch("default/gone", lambda pod: patched(pod.version))
    assert api.count("patch") == 0

    def deleted(pod: PodMetadata) -> Patch:
        api.remove("pods", KEY)
        return patched(pod.version)

    assert not await moves.patch(KEY, deleted)


@pytest.mark.parametrize("status", [403, 422, 429, 500])
async def test_error_is_raised_at_once_when_api_server_refuses_the_patch(
    api: FakeApi, client: Client, status: int
) -> None:
    api.fail_next("patch", status)
    with pytest.raises(ApiError) as fault:
        await PodMoves(client).patch(KEY, lambda pod: patched(pod.version))
    assert fault.value.status == status
    assert api.count("patch") == 1


async def test_patch_is_not_repeated_when_its_answer_is_lost(api: FakeApi, client: Client) -> None:
    api.lose_next("patch")
    with pytest.raises(UnavailableError):
        await PodMoves(client).patch(KEY, lambda pod: patched(pod.version))
    assert api.count("patch") == 1
    assert "pod-template-hash" not in api.objects["pods"][KEY]["metadata"]["labels"]


@pytest.mark.parametrize(
    ("status", "message", "refuses"),
    [
        (403, "cannot set an ownerRef on a resource you can't delete: RBAC: , <nil>", True),
        (403, "cannot set blockOwnerDeletion if an ownerReference refers to a resource", True),
        (403, 'pods "web" is forbidden: User "ebb" cannot patch resource "pods"', False),
        (422, "admission webhook denied the request: ownerRef", False),
    ],
)
def test_refusal_of_owner_references_is_told_from_others(
    status: int, message: str, *, refuses: bool
) -> None:
    assert refuses_owner_references(ApiError(status, message)) is refuses
