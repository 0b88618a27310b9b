"""The eviction API: requests that are sent, and the outcome of each answer."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp import web

from core.model.errors import GarbledError, UnavailableError
from core.model.pod import Pod
from kube.client import Client
from kube.stores.access_review import PATCH_PODS, REVIEW_PATH, is_allowed
from kube.stores.evictions import EvictionAnswer, EvictionResult, EvictionStore
from tests.support.fake_objects import KUBECONFIG, failure, json

POD = Pod(namespace="shop", name="web-1", uid="u-1")
PATH = "/api/v1/namespaces/shop/pods/web-1/eviction"


class Server:
    """An API server that gives one answer."""

    def __init__(self) -> None:
        self.answer: web.Response = json({"kind": "Status", "status": "Success"})
        self.requests: list[tuple[str, str, Any]] = []

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.requests.append((request.method, request.path, orjson.loads(body)))
        # A Response can be sent only once.
        one = self.answer
        return web.Response(body=one.body, status=one.status, headers=one.headers)


@pytest.fixture
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Server, Client]]:
    made, app = Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    path = tmp_path_factory.mktemp("kube") / "config"
    path.write_text(KUBECONFIG.format(url=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    async with await Client.connect(str(path)) as client:
        yield made, client
    await runner.cleanup()


Pair = tuple[Server, Client]


async def test_eviction_names_pod_uid_and_keeps_grace_period(server: Pair) -> None:
    made, client = server
    assert await EvictionStore(client).evict(POD) == EvictionAnswer(EvictionResult.EVICTED)
    ((method, path, body),) = made.requests
    assert (method, path) == ("POST", PATH)
    assert body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "shop", "name": "web-1"},
        "deleteOptions": {"preconditions": {"uid": "u-1"}},
    }


@pytest.mark.parametrize(
    ("status", "headers", "result", "after"),
    [
        (404, {}, EvictionResult.GONE, 0),
        (409, {}, EvictionResult.GONE, 0),
        (429, {"Retry-After": "10"}, EvictionResult.REFUSED, 10),
        (429, {"Retry-After": "soon"}, EvictionResult.REFUSED, 0),
        (403, {}, EvictionResult.REFUSED, 0),
        (500, {}, EvictionResult.REFUSED, 0),
        (504, {}, EvictionResult.REFUSED, 0),
    ],
)
async def test_answer_has_outcome_and_retry_time(
    server: Pair, status: int, headers: dict[str, str], result: EvictionResult, after: int
) -> None:
    made, client = server
    made.answer = failure(status, headers)
    answer = await EvictionStore(client).evict(POD)
    assert (answer.result, answer.retry_after_seconds) == (result, after)
    assert str(status) in answer.why
    assert len(made.requests) == 1, "the caller decides whether to retry"


@pytest.mark.parametrize(
    ("body", "allowed"),
    [({"status": {"allowed": True}}, True), ({"status": {"allowed": False}}, False), ({}, False)],
)
async def test_eviction_permission_is_reviewed(
    server: Pair, body: dict[str, Any], allowed: bool
) -> None:
    made, client = server
    made.answer = json(body)
    assert await EvictionStore(client).allowed() is allowed
    assert {(method, path) for method, path, _ in made.requests} == {("POST", REVIEW_PATH)}
    reviewed = [review["spec"]["resourceAttributes"] for _, _, review in made.requests]
    evict = {"verb": "create", "resource": "pods", "subresource": "eviction"}
    budgets = {"verb": "list", "group": "policy", "resource": "poddisruptionbudgets"}
    assert reviewed == ([evict, budgets] if allowed else [evict])


async def test_patch_permission_is_reviewed_for_all_namespaces(server: Pair) -> None:
    made, client = server
    made.answer = json({"status": {"allowed": True}})
    assert await is_allowed(client, PATCH_PODS)
    ((_, _, body),) = made.requests
    assert body["spec"] == {"resourceAttributes": {"verb": "patch", "resource": "pods"}}


async def test_invalid_review_raises_error(server: Pair) -> None:
    made, client = server
    made.answer = json({"status": "yes"})
    with pytest.raises(GarbledError):
        await EvictionStore(client).allowed()


async def test_eviction_fails_when_there_is_no_answer(tmp_path: Any) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG.format(url="http://127.0.0.1:1"))
    async with await Client.connect(str(path)) as client:
        assert (await EvictionStore(client).evict(POD)).result is EvictionResult.ERROR
        with pytest.raises(UnavailableError):
            await EvictionStore(client).allowed()
