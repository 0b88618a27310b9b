"""The objects of a namespace that select pods, as the API server lists them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from core.model.constraints import NO_POD, PodSelector, Requirement
from core.model.errors import UnavailableError
from core.moves.selecting import SelectingObject
from kube.client import ApiError, Client
from kube.decode.selecting import CONTROLLERS, OBSERVERS
from kube.stores import selecting
from kube.stores.selecting import selecting_objects
from tests.support.fake_objects import KUBECONFIG, Json, failure, json

PATHS = {
    "ReplicaSet": "/apis/apps/v1/namespaces/shop/replicasets",
    "DaemonSet": "/apis/apps/v1/namespaces/shop/daemonsets",
    "ReplicationController": "/api/v1/namespaces/shop/replicationcontrollers",
    "Service": "/api/v1/namespaces/shop/services",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/shop/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies",
}
WEB = PodSelector(None, (Requirement("app", "In", ("web",)),))
DB = PodSelector(None, (Requirement("app", "In", ("db",)),))
ALL = PodSelector(None, ())
BY_LABELS: Json = {"selector": {"app": "web"}}
BY_SELECTOR: Json = {"selector": {"matchLabels": {"app": "web"}}}
MATCHES_DB: Json = {"podSelector": {"matchLabels": {"app": "db"}}}
OTHERS: Json = {"namespaceSelector": {}}


class Lists:
    """An API server with the six lists of the namespace, each of which has one or more pages."""

    def __init__(self) -> None:
        self.pages: dict[str, list[list[Json]]] = {path: [[]] for path in PATHS.values()}
        self.denied: set[str] = set()
        self.asked: list[str] = []

    def add(self, kind: str, spec: Json | None, name: str = "one", *, page: int = 0) -> None:
        pages = self.pages[PATHS[kind]]
        pages += [[] for _ in range(page + 1 - len(pages))]
        pages[page].append({"metadata": {"name": name}, "spec": spec})

    async def answer(self, request: web.Request) -> web.Response:
        assert request.method == "GET"
        self.asked.append(request.path)
        if request.path in self.denied:
            return failure(403)
        pages, number = self.pages[request.path], int(request.query.get("continue") or 0)
        token = str(number + 1) if number + 1 < len(pages) else ""
        return json({"metadata": {"continue": token}, "items": pages[number]})


@pytest.fixture
def api() -> Lists:
    return Lists()


@pytest.fixture
async def client(api: Lists, tmp_path: Path) -> AsyncIterator[Client]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = tmp_path / "config"
    config.write_text(KUBECONFIG.format(url=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    async with await Client.connect(str(config)) as made:
        yield made
    await runner.cleanup()


@pytest.mark.parametrize(
    ("kind", "spec", "selectors"),
    [
        ("ReplicaSet", BY_SELECTOR, (WEB,)),
        ("ReplicaSet", {"replicas": 0, **BY_SELECTOR}, (WEB,)),
        ("DaemonSet", BY_SELECTOR, (WEB,)),
        ("ReplicationController", BY_LABELS, (WEB,)),
        ("ReplicationController", {"selector": {}}, (NO_POD,)),
        ("Service", BY_LABELS, (WEB,)),
        ("Service", {"selector": None}, (NO_POD,)),
        ("Service", {"type": "ExternalName"}, (NO_POD,)),
        ("PodDisruptionBudget", BY_SELECTOR, (WEB,)),
        ("PodDisruptionBudget", {"selector": {}}, (ALL,)),
        ("PodDisruptionBudget", {}, (NO_POD,)),
        ("NetworkPolicy", {"podSelector": {}}, (ALL,)),
        ("NetworkPolicy", {}, (ALL,)),
        (
            "NetworkPolicy",
            {
                "podSelector": {},
                "ingress": [{"from": [MATCHES_DB, OTHERS]}, {"ports": []}],
                "egress": [{"to": [MATCHES_DB]}, {"to": None}],
            },
            (ALL, DB, NO_POD, DB),
        ),
        ("Service", None, ()),
    ],
)
async def test_selectors_of_object_are_read(
    api: Lists, client: Client, kind: str, spec: Json | None, selectors: tuple[PodSelector, ...]
) -> None:
    api.add(kind, spec)
    found = await selecting_objects(client, "shop")
    expected = (SelectingObject(kind, "one", selectors),)
    is_controller = kind in {one.name for one in CONTROLLERS}
    assert found.controllers == (expected if is_controller else ())
    assert found.observers == (() if is_controller else expected)


async def test_six_kinds_of_the_namespace_are_listed_once(api: Lists, client: Client) -> None:
    await selecting_objects(client, "shop")
    assert sorted(api.asked) == sorted(PATHS.values())
    assert len(CONTROLLERS) + len(OBSERVERS) == len(PATHS)


async def test_all_pages_of_a_list_are_read(api: Lists, client: Client) -> None:
    for number in range(3):
        api.add("ReplicaSet", BY_SELECTOR, f"web-{number}", page=number)
    found = await selecting_objects(client, "shop")
    assert [one.name for one in found.controllers] == ["web-0", "web-1", "web-2"]


@pytest.mark.parametrize("kind", PATHS)
async def test_error_is_raised_when_a_kind_cannot_be_listed(
    api: Lists, client: Client, kind: str
) -> None:
    api.denied.add(PATHS[kind])
    with pytest.raises(ApiError, match="403"):
        await selecting_objects(client, "shop")


async def test_error_is_raised_when_namespace_has_too_many_objects(
    api: Lists, client: Client
) -> None:
    for number in range(selecting.OBJECTS_MAX + 1):
        api.add("Service", None, f"s{number}")
    with pytest.raises(UnavailableError, match="shop has more than 10000 objects of kind Service"):
        await selecting_objects(client, "shop")
