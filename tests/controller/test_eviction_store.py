"""Evictions over the wire: what is sent, and what each answer means."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp import web

from controller.access_review import PATCH_PODS, REVIEW_PATH, is_allowed
from controller.stores.evictions import Answer, EvictionResult, EvictionStore
from core.edge.kube.client import Client
from core.model.errors import GarbledError, UnavailableError
from core.model.pod import Pod
from tests.support.fake_objects import KUBECONFIG, failure, json

POD = Pod(namespace="shop", name="web-1", uid="u-1")
PATH = "/api/v1/namespaces/shop/pods/web-1/eviction"


class Server:
    """An API server that gives one answer."""

    def __init__(self) -> None:
        self.answer: web.Response = json({"kind": "Status", "status": "Success"})
        self.asked: list[tuple[str, str, Any]] = []

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.asked.append((request.method, request.path, orjson.loads(body)))
        return self.answer


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


async def test_this_very_pod_is_evicted_with_its_own_grace(server: Pair) -> None:
    made, client = server
    assert await EvictionStore(client).evict(POD) == Answer(EvictionResult.EVICTED)
    ((method, path, body),) = made.asked
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
async def test_what_each_answer_means(
    server: Pair, status: int, headers: dict[str, str], result: EvictionResult, after: int
) -> None:
    made, client = server
    made.answer = failure(status, headers)
    answer = await EvictionStore(client).evict(POD)
    assert (answer.result, answer.retry_after_seconds) == (result, after)
    assert str(status) in answer.why
    assert len(made.asked) == 1, "whether to ask again is decided by who knows the pod"


@pytest.mark.parametrize(
    ("body", "allowed"),
    [({"status": {"allowed": True}}, True), ({"status": {"allowed": False}}, False), ({}, False)],
)
async def test_the_right_is_asked_for(server: Pair, body: dict[str, Any], allowed: bool) -> None:
    made, client = server
    made.answer = json(body)
    assert await EvictionStore(client).allowed() is allowed
    ((method, path, asked),) = made.asked
    assert (method, path) == ("POST", REVIEW_PATH)
    assert asked["spec"]["resourceAttributes"] == {
        "verb": "create",
        "resource": "pods",
        "subresource": "eviction",
    }


async def test_the_right_to_patch_pods_is_asked_for_in_every_namespace(server: Pair) -> None:
    made, client = server
    made.answer = json({"status": {"allowed": True}})
    assert await is_allowed(client, PATCH_PODS)
    ((_, _, asked),) = made.asked
    assert asked["spec"] == {"resourceAttributes": {"verb": "patch", "resource": "pods"}}


async def test_an_answer_about_the_right_that_is_none_is_a_fault(server: Pair) -> None:
    made, client = server
    made.answer = json({"status": "yes"})
    with pytest.raises(GarbledError):
        await EvictionStore(client).allowed()


async def test_without_an_answer_the_pod_may_have_gone_or_not(tmp_path: Any) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG.format(url="http://127.0.0.1:1"))
    async with await Client.connect(str(path)) as client:
        assert (await EvictionStore(client).evict(POD)).result is EvictionResult.ERROR
        with pytest.raises(UnavailableError):
            await EvictionStore(client).allowed()
