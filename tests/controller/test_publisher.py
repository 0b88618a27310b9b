"""The leader publishes CapacityBuffers for expected pods, and deletes them again."""

import asyncio
from dataclasses import dataclass, field, replace
from fractions import Fraction
from threading import get_ident
from typing import Any, ClassVar

import orjson
import pytest

from controller.publisher import (
    ALLOWED,
    FORBIDDEN,
    NO_KIND,
    ROUND_SECONDS,
    PublishedObjects,
    Publisher,
)
from controller.publishing import Publishing
from core.config.budgets import Budget, LabelSelector, Pool, Reserve
from core.config.settings import Config, Mode, ScaleDownProtection, Scope
from core.engine.buffers import SHARE_MAX
from core.engine.leader_state import LeaderState
from core.engine.reconcile import ReconcileResult, reconcile
from core.marks.wellknown import BUFFER_OURS_LABEL
from core.model.buffers import Buffer
from core.model.cluster import Cluster
from core.model.constraints import NO_NODE_CONSTRAINTS, NodeConstraints
from core.model.errors import UnavailableError
from core.model.pod import Pod
from core.model.resources import Resources
from core.writes.capacity_buffers import PUBLISHED_MAX, BufferChange, Found
from kube.decode.kinds import BUFFERS, TEMPLATES, AnyKind
from kube.stores.access_review import AccessReview
from kube.stores.capacity_buffers import PublishedStore
from tests.support.builders import GREEN, UNLIMITED, node, pod
from tests.support.clock import FakeClock
from tests.support.fake_api import FakeApi
from tests.support.following import opened

pytestmark = pytest.mark.mutate

START = 1_000_000 * 300
RESERVE = Reserve(
    window_seconds=300,
    percentile=Fraction(1),
)
CONFIG = Config(mode=Mode.ENFORCE, budgets=replace(UNLIMITED, reserve=RESERVE))
SPACE = "ebb-system"
PUBLISHING = LeaderState(may_publish=True)


def job(number: int, **changes: Any) -> Pod:
    made = replace(pod(f"j{number}", f"n{number}", 500, 100), **changes)
    return replace(made, owner_kind="Job", owner_name=made.name, uid=made.name)


@dataclass
class Engine:
    """An engine, with the result of its last reconciliation."""

    config: Config = CONFIG
    last: ReconcileResult | None = None
    evaluated: asyncio.Event = field(default_factory=asyncio.Event)

    def look(
        self, seconds: int, pods: int, *, free: int = 0, green: int = 0, cpu: int = 500
    ) -> None:
        """Run a reconciliation over *pods* pods, each filling a node, and *free* more empty nodes.

        *green*: that many of the pods, and that many of the empty nodes, are green.
        """
        labels = [{"green": "true"}] * green + [{}] * (max(pods, 1) + free)
        nodes = [node(f"n{n}", cpu=cpu, labels=labels[n]) for n in range(max(pods, 1))]
        nodes += [node(f"free-{n}", cpu=cpu, labels=labels[n]) for n in range(free)]
        all_constraints = [GREEN] * green + [NO_NODE_CONSTRAINTS] * pods
        size = pod("", None, cpu, 100).requests
        pods_there = [
            job(n, node_constraints=all_constraints[n], requests=size) for n in range(pods)
        ]
        cluster = Cluster.of(nodes, pods_there)
        memory = self.last.state if self.last else PUBLISHING
        self.last = reconcile(cluster, self.config, memory, START + seconds, last=self.last)

    def configure(self, mode: Mode = Mode.ENFORCE) -> None:
        self.config = replace(CONFIG, mode=mode)


def publisher_of(
    store: PublishedObjects,
    source: Engine,
    *,
    allowed: bool = True,
    share: Fraction = Fraction(1),
) -> Publisher:
    """Return a publisher; *allowed*: the answer about RBAC."""

    async def may() -> bool:
        return allowed

    access = AccessReview(may, FakeClock(), "create CapacityBuffers")
    return Publisher(store, source, access, share=share)


def replicas(api: FakeApi) -> list[int]:
    """Return the replicas of the existing buffers; each buffer has its template."""
    buffers = api.objects[BUFFERS.resource]
    assert buffers.keys() <= api.objects[TEMPLATES.resource].keys()
    return [one["spec"]["replicas"] for one in buffers.values()]


def is_empty(api: FakeApi) -> bool:
    return not (api.objects[BUFFERS.resource] or api.objects[TEMPLATES.resource])


async def test_buffer_is_published_for_arrivals_and_grows_with_them() -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = publisher_of(PublishedStore(client, SPACE), engine)
        await publisher.turn()
        assert is_empty(api), "no reconciliation was made yet"
        engine.look(0, 0)
        engine.look(10, 3)
        await publisher.turn()
        assert replicas(api) == [3]
        writes = api.count("post"), api.count("patch")
        await publisher.turn()
        assert (api.count("post"), api.count("patch")) == writes == (2, 0)
        engine.look(20, 9)
        await publisher.turn()
        assert replicas(api) == [9]


@pytest.mark.parametrize(("free", "published"), [(0, [8]), (5, [8]), (6, []), (7, [])])
async def test_all_expected_pods_are_published_when_one_quarter_finds_no_room(
    free: int, published: list[int]
) -> None:
    """Otherwise an autoscaler would add a small node for every pod that uses some room."""
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        engine.look(0, 0)
        engine.look(10, 8, free=free)
        await publisher_of(PublishedStore(client, SPACE), engine).turn()
        assert replicas(api) == published


async def test_share_counts_all_nodes_when_no_pod_reaches_some() -> None:
    """The arrived pods have ended; there are ten nodes of 500m, eight of them green."""
    red = NodeConstraints(node_selector=(("red", "true"),))
    nodes = [node(f"n{n}", cpu=500, labels={"green": "true"}) for n in range(8)]
    nodes += [node(f"n{n}", cpu=500, labels={"red": "true"}) for n in (8, 9)]
    stays = [job(n, node_constraints=red) for n in (8, 9)]
    arriving = [job(n, node_constraints=GREEN) for n in range(8)]
    engine = Engine()
    memory = PUBLISHING
    async with FakeApi() as api, opened(api) as client:
        publisher = publisher_of(PublishedStore(client, SPACE), engine, share=SHARE_MAX)
        for seconds, pods in ((0, stays), (10, [*arriving, *stays]), (20, stays)):
            engine.last = reconcile(Cluster.of(nodes, pods), CONFIG, memory, START + seconds)
            memory = engine.last.state
        assert engine.last is not None
        engine.last = replace(engine.last, short_reaches=frozenset({"green=true"}))
        await publisher.turn()
        assert replicas(api) == [5]


@pytest.mark.parametrize(
    ("scope", "pool", "published"),
    [
        (Scope.MARKED, (), [8]),
        (Scope.EMPTY, (), []),
        (Scope.ALL, (), []),
        (Scope.ALL, (("some", "where"),), [8]),
    ],
)
async def test_expected_pods_remain_published_when_empty_nodes_are_unprotected(
    scope: Scope, pool: tuple[tuple[str, str], ...], published: list[int]
) -> None:
    """Otherwise an autoscaler would remove and add the same nodes forever."""
    pools = (
        (Pool(name="a", selector=LabelSelector(match_labels=pool), budget=Budget()),)
        if pool
        else ()
    )
    budgets = replace(CONFIG.budgets, pools=pools)
    engine = Engine(
        replace(CONFIG, budgets=budgets, scale_down_protection=ScaleDownProtection(scope=scope))
    )
    async with FakeApi() as api, opened(api) as client:
        engine.look(0, 0)
        engine.look(10, 8, free=8)
        await publisher_of(PublishedStore(client, SPACE), engine).turn()
        assert replicas(api) == published


async def test_only_pods_of_short_reaches_are_published() -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        engine.look(0, 0)
        engine.look(10, 6, free=2, green=2)
        await publisher_of(PublishedStore(client, SPACE), engine).turn()
        assert replicas(api) == [4], "the green pods find room"


async def test_buffer_is_deleted_when_there_is_room_again() -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = publisher_of(PublishedStore(client, SPACE), engine)
        engine.look(0, 0)
        engine.look(10, 3)
        await publisher.turn()
        engine.look(10 + 3600, 3, free=3)
        engine.look(20 + 3600, 4, free=3)
        await publisher.turn()
        assert is_empty(api)


async def test_new_leader_does_not_lower_buffers_before_lookback() -> None:
    first, second = Engine(), Engine()
    async with FakeApi() as api, opened(api) as client:
        store = PublishedStore(client, SPACE)
        first.look(0, 0)
        first.look(10, 3)
        await publisher_of(store, first).turn()
        second.look(20, 3)
        await publisher_of(store, second).turn()
        assert replicas(api) == [3]
        second.look(20 + 3600, 3)
        await publisher_of(store, second).turn()
        assert is_empty(api)


async def test_new_leader_lowers_its_own_buffers_at_once() -> None:
    first, second = Engine(), Engine()
    async with FakeApi() as api, opened(api) as client:
        store = PublishedStore(client, SPACE)
        first.look(0, 0)
        first.look(10, 3)
        await publisher_of(store, first).turn()
        publisher = publisher_of(store, second)
        for seconds, pods, free, published in ((20, 0, 2, [3]), (30, 5, 0, [5]), (40, 5, 5, [3])):
            second.look(seconds, pods, free=free)
            await publisher.turn()
            assert replicas(api) == published


async def test_deleted_buffers_are_not_inherited() -> None:
    first, second = Engine(), Engine()
    async with FakeApi() as api, opened(api) as client:
        store = PublishedStore(client, SPACE)
        first.look(0, 0)
        first.look(10, 3)
        await publisher_of(store, first).turn()
        publisher = publisher_of(store, second)
        second.look(20, 3)
        await publisher.turn()
        assert replicas(api) == [3]
        second.configure(mode=Mode.OBSERVE)
        await publisher.turn()
        second.configure()
        await publisher.turn()
        assert is_empty(api)


async def test_successive_leaders_publish_no_more_than_one_leader() -> None:
    """No leader observes for the whole lookback, and all pods have different requests."""
    nodes = [node(f"n{number}") for number in range(8)]
    web = [pod(f"w{number}", f"n{number}", 3000, 100) for number in range(8)]
    async with FakeApi() as api, opened(api) as client:
        for begins in range(0, 3 * 3000, 3000):
            engine = Engine()
            publisher = publisher_of(PublishedStore(client, SPACE), engine, share=SHARE_MAX)
            for number in range(10):
                cpu = 900 + begins // 30 + number
                size = Resources(cpu, 0, 0, 1)
                arriving = [job(n, name=f"j{cpu}-{n}", requests=size) for n in range(8)]
                memory = engine.last.state if engine.last else PUBLISHING
                cluster = Cluster.of(nodes, [*web, *arriving])
                engine.last = reconcile(cluster, CONFIG, memory, START + begins + 300 * number)
                await publisher.turn()
                assert len(replicas(api)) <= PUBLISHED_MAX
                assert published_cpu_millis(api) <= 8 * 4000 / 2
            assert replicas(api)


def published_cpu_millis(api: FakeApi) -> int:
    """Return the CPU of all buffers in millicores."""
    total = 0
    for key, one in api.objects[BUFFERS.resource].items():
        raw = orjson.dumps(api.objects[TEMPLATES.resource][key])
        total += one["spec"]["replicas"] * TEMPLATES.decode(raw).pod.requests.cpu_millis
    return total


async def test_changed_window_does_not_lower_buffers_before_lookback() -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = publisher_of(PublishedStore(client, SPACE), engine)
        engine.look(0, 0)
        engine.look(3700, 3)
        await publisher.turn()
        reserve = replace(RESERVE, window_seconds=600)
        engine.config = replace(CONFIG, budgets=replace(UNLIMITED, reserve=reserve))
        for seconds, published in ((3710, [3]), (3709 + 3600, [3]), (3710 + 3600, [])):
            engine.look(seconds, 3)
            await publisher.turn()
            assert replicas(api) == published


async def test_rejected_template_does_not_block_other_buffers() -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = publisher_of(PublishedStore(client, SPACE), engine)
        engine.look(0, 0)
        engine.look(10, 2)
        await publisher.turn()
        (old,) = api.objects[BUFFERS.resource]
        engine.look(100 + 3600, 2)
        engine.look(110 + 3600, 8, green=4, cpu=400)
        api.fail_next("post", 422)
        with pytest.raises(UnavailableError, match=r"add template ebb-reserve-.*422"):
            await publisher.turn()
        assert len(replicas(api)) == 1, "a shape whose template was rejected has no buffer"
        assert old not in api.objects[BUFFERS.resource]
        assert old not in api.objects[TEMPLATES.resource]
        await publisher.turn()
        assert sorted(replicas(api)) == [2, 4]


class ThreadRecordingShare(Fraction):
    """Records the threads that compute the buffers, which multiply by the share."""

    threads: ClassVar[list[int]] = []

    def __mul__(self, other: Any) -> Any:
        self.threads.append(get_ident())
        return super().__mul__(other)


async def test_buffers_are_computed_outside_event_loop() -> None:
    """Thousands of expected pods take a while, which would delay reviews."""
    engine = Engine()
    engine.look(0, 0)
    engine.look(10, 3)
    share = ThreadRecordingShare(1)
    async with FakeApi() as api, opened(api) as client:
        await publisher_of(PublishedStore(client, SPACE), engine, share=share).turn()
        assert replicas(api) == [3]
    assert len(share.threads) == 1
    assert get_ident() not in share.threads


async def test_turn_ends_when_server_does_not_answer() -> None:
    tried: list[BufferChange] = []

    class Silent:
        async def found(self) -> Found:
            return Found()

        async def carry_out(self, change: BufferChange) -> None:
            tried.append(change)
            raise UnavailableError("API server: no answer in time")

    engine = Engine()
    engine.look(0, 0)
    engine.look(10, 5, green=2)
    with pytest.raises(UnavailableError):
        await publisher_of(Silent(), engine).turn()
    assert len(tried) == 1


async def test_turn_follows_reconciliation_at_once() -> None:
    """Buffers for the morning peak are published before its pods are Pending."""
    engine = Engine()
    changes = asyncio.Queue[BufferChange]()

    class RecordingStore:
        async def found(self) -> Found:
            return Found()

        async def carry_out(self, change: BufferChange) -> None:
            await changes.put(change)

    keeping = asyncio.create_task(publisher_of(RecordingStore(), engine).run(lambda: None))
    try:
        await asyncio.sleep(0)  # the first turn finds no reconciliation
        engine.look(0, 0)
        engine.look(10, 3)
        engine.evaluated.set()
        async with asyncio.timeout(ROUND_SECONDS / 2):
            assert (await changes.get()).name.startswith("ebb-reserve-")
    finally:
        keeping.cancel()


async def test_all_own_buffers_are_deleted_when_observing_or_expecting_no_pods() -> None:
    never = replace(CONFIG, budgets=replace(UNLIMITED, reserve=Reserve(window_seconds=None)))
    for config in (never, replace(CONFIG, mode=Mode.OBSERVE)):
        engine = Engine()
        async with FakeApi() as api, opened(api) as client:
            publisher = publisher_of(PublishedStore(client, SPACE), engine)
            engine.look(0, 0)
            engine.look(10, 3)
            await publisher.turn()
            theirs = {"metadata": {"name": "theirs", "namespace": SPACE}}
            api.put(BUFFERS.resource, theirs)
            engine.config = config
            engine.look(20, 3)
            await publisher.turn()
            assert list(api.objects[BUFFERS.resource]) == [f"{SPACE}/theirs"]
            assert not api.objects[TEMPLATES.resource]
            await publisher.turn()
            writes = api.count("delete")
            await publisher.turn()
            assert api.count("delete") == writes, "nothing is left to delete"


async def test_buffer_that_appears_later_is_deleted() -> None:
    """From a leader that paused between template and buffer, or from a backup."""
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = publisher_of(PublishedStore(client, SPACE), engine)
        engine.look(0, 0)
        engine.configure(mode=Mode.OBSERVE)
        await publisher.turn()
        meta = {"name": "ebb-reserve-1", "namespace": SPACE, "labels": {BUFFER_OURS_LABEL: ""}}
        api.put(BUFFERS.resource, {"metadata": meta, "spec": {"replicas": 3}})
        seen = Buffer(namespace=SPACE, name="ebb-reserve-1", published=3)
        cluster = replace(Cluster.of([node("n")], []), buffers=(seen,))
        engine.last = reconcile(cluster, engine.config, PUBLISHING, START + 10)
        await publisher.turn()
        assert is_empty(api)


async def test_nothing_is_published_when_view_is_stale() -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        engine.look(0, 0)
        engine.look(10, 3)
        await publisher_of(PublishedStore(client, SPACE), engine).turn(lambda: "old")
        assert api.calls == []


async def test_nothing_is_written_and_logged_once_when_kind_is_absent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")  # a program started by another test may have changed the level
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        api.served -= set(BUFFERS.paths)
        engine.look(0, 0)
        engine.look(10, 3)
        publisher = publisher_of(PublishedStore(client, SPACE), engine)
        for _ in range(3):
            await publisher.turn()
        assert api.count("post") == 0
        logged = [one.message for one in caplog.records if one.name == "ebb.publisher"]
        assert logged == [ALLOWED, NO_KIND]
        assert publisher.state is Publishing.ABSENT
        api.served |= set(BUFFERS.paths)
        await publisher.turn()
        assert replicas(api) == [3], "after the kind was installed"


async def test_templates_are_deleted_when_kind_is_removed_and_publishing_off() -> None:
    """For example the autoscaler was uninstalled with its CRDs; they may be installed again."""
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = publisher_of(PublishedStore(client, SPACE), engine)
        engine.look(0, 0)
        engine.look(10, 3)
        await publisher.turn()
        api.served -= set(BUFFERS.paths)
        api.objects[BUFFERS.resource].clear()
        await publisher.turn()
        assert len(api.objects[TEMPLATES.resource]) == 1, "the template is still wanted"
        engine.configure(mode=Mode.OBSERVE)
        for _ in range(2):
            await publisher.turn()
        assert is_empty(api)
        calls = len(api.calls)
        await publisher.turn()
        assert len(api.calls) == calls, "nothing is left to delete"


@pytest.mark.parametrize("denied", [BUFFERS, TEMPLATES])
async def test_other_kind_is_deleted_when_one_kind_is_forbidden(denied: AnyKind) -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = publisher_of(PublishedStore(client, SPACE), engine)
        engine.look(0, 0)
        engine.look(10, 3)
        await publisher.turn()
        api.denied.add(denied.resource)
        engine.configure(mode=Mode.OBSERVE)
        await publisher.turn()
        left = {kind for kind in (BUFFERS, TEMPLATES) if api.objects[kind.resource]}
        assert left == {denied}


async def test_older_version_is_written_when_only_it_is_served() -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        api.served = {TEMPLATES.path, *BUFFERS.older}
        engine.look(0, 0)
        engine.look(10, 3)
        await publisher_of(PublishedStore(client, SPACE), engine).turn()
        (one,) = api.objects[BUFFERS.resource].values()
        assert one["apiVersion"] == "autoscaling.x-k8s.io/v1alpha1"


async def test_nothing_is_read_or_written_when_rbac_forbids_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        engine.look(0, 0)
        engine.look(10, 3)
        publisher = publisher_of(PublishedStore(client, SPACE), engine, allowed=False)
        for _ in range(2):
            await publisher.turn()
        assert api.calls == []
        assert publisher.state is Publishing.FORBIDDEN
        logged = [one.message for one in caplog.records if one.name == "ebb.publisher"]
        assert logged == [FORBIDDEN]


async def test_buffers_stay_until_a_reconciliation_knows_that_they_may_be_written() -> None:
    first, second = Engine(), Engine()
    async with FakeApi() as api, opened(api) as client:
        store = PublishedStore(client, SPACE)
        first.look(0, 0)
        first.look(10, 3)
        publisher = publisher_of(store, first)
        await publisher.turn()
        assert publisher.state is Publishing.PUBLISHED
        cluster = Cluster.of([node("n")], [])
        second.last = reconcile(cluster, CONFIG, LeaderState(), START + 20)
        publisher = publisher_of(store, second)
        await publisher.turn()
        assert (replicas(api), publisher.state) == ([3], Publishing.UNKNOWN)
