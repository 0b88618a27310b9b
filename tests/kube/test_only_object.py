"""The one ConfigMap that is listed and watched by its name, as a Role may permit it."""

from collections.abc import AsyncIterator

import pytest

from core.config.document import parse
from core.config.settings import Config
from kube.cluster_kinds import KINDS
from kube.decode.kinds import NODES, STATUSES
from kube.listing import WHOLE, Listed, Part
from kube.watch import ABSENT_SECONDS
from tests.platforms.objects import autoscaler_status
from tests.support.configurations import HEAD
from tests.support.fake_api import FakeApi
from tests.support.following import following, opened

RESOURCE = STATUSES.resource
KEY = "kube-system/cluster-autoscaler-status"
OURS = Part.of(STATUSES, Config())
PATH = "/api/v1/namespaces/kube-system/configmaps"


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as found:
        for namespace, name in (("kube-system", "coredns"), ("d", "cluster-autoscaler-status")):
            found.put(RESOURCE, {"metadata": {"name": name, "namespace": namespace}})
        found.put(RESOURCE, autoscaler_status({"a": (1, 2)}))
        yield found


def test_all_objects_of_other_kinds_are_read() -> None:
    assert [kind for kind in KINDS if Part.of(kind, Config()) is not WHOLE] == [STATUSES]
    assert (WHOLE.path(NODES.path), WHOLE.field_selector) == (NODES.path, None)


def test_configuration_names_the_object() -> None:
    config = parse({**HEAD, "clusterAutoscaler": {"status": "ca/mine"}}, "x")
    part = Part.of(STATUSES, config)
    assert part.path(STATUSES.path) == "/api/v1/namespaces/ca/configmaps"
    assert part.field_selector == "metadata.name=mine"


async def test_list_returns_only_the_named_object(api: FakeApi) -> None:
    async with opened(api) as client:
        listed = Listed()
        await listed.read(client, STATUSES, OURS)
    assert [one.key for one in listed.objects] == [KEY]
    (call,) = api.calls
    assert call.path == PATH
    assert call.query["fieldSelector"] == "metadata.name=cluster-autoscaler-status"


async def test_watch_follows_only_the_named_object(api: FakeApi) -> None:
    async with following(api, RESOURCE, OURS) as bench:
        await bench.api.watched(RESOURCE)
        await bench.seen.until(lambda: KEY in bench.seen.view)
        api.put(RESOURCE, {"metadata": {"name": "coredns", "namespace": "kube-system"}})
        api.put(RESOURCE, autoscaler_status({"a": (2, 2)}))
        await bench.seen.until(lambda: bench.seen.view[KEY].groups[0].min_size == 2)
        assert list(bench.seen.view) == [KEY]
        api.remove(RESOURCE, KEY)
        await bench.seen.until(lambda: not bench.seen.view)
    assert {call.path for call in api.calls} == {PATH}
    assert {call.query["fieldSelector"] for call in api.calls} == {
        "metadata.name=cluster-autoscaler-status"
    }


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.optional], ids=lambda k: k.resource
)
async def test_without_the_permission_no_view_goes_stale(api: FakeApi, kind: object) -> None:
    (found,) = (one for one in KINDS if one is kind)
    api.denied.add(found.resource)
    async with following(api, found.resource, Part.of(found, Config())) as bench:
        await bench.seen.until(lambda: bench.seen.lives > 1)
        assert bench.seen.count("restarted") == 0, "it is no fault"
        assert set(bench.waits.seconds) == {ABSENT_SECONDS}
        assert not bench.seen.view
