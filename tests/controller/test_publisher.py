"""The leader tells autoscalers what is to be expected, and takes it away again."""

import asyncio
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from threading import get_ident
from typing import Any

import orjson
import pytest

from controller.publisher import NO_KIND, ROUND_SECONDS, Publisher
from controller.stores.capacity_buffers import PublishedStore
from core.config.budgets import Budget, CapacityBuffers, Pool, Reserve
from core.config.settings import Config, Mode, ScaleDownProtection, Scope
from core.edge.decode.kinds import BUFFERS, TEMPLATES, AnyKind
from core.engine.arrivals import Counts
from core.engine.leader_state import LeaderState
from core.engine.reconcile import PassResult, reconcile
from core.marks.wellknown import BUFFER_OURS_LABEL
from core.model.buffers import Buffer
from core.model.cluster import Cluster
from core.model.constraints import NO_NODE_CONSTRAINTS, NodeConstraints
from core.model.errors import UnavailableError
from core.model.now import Now
from core.model.pod import Pod
from core.model.resources import Resources
from core.writes.capacity_buffers import PUBLISHED_MAX, Change, Found
from tests.support.builders import GREEN, UNLIMITED, node, pod
from tests.support.fake_api import FakeApi
from tests.support.following import opened

pytestmark = pytest.mark.mutate

START = 1_000_000 * 300
RESERVE = Reserve(
    window_seconds=300,
    lookback_seconds=3600,
    max_buffers=Fraction(1),
    capacity_buffers=CapacityBuffers.ENABLED,
)
CONFIG = Config(mode=Mode.ENFORCE, budgets=replace(UNLIMITED, reserve=RESERVE))
SPACE = "ebb-system"


def job(number: int, **changes: Any) -> Pod:
    made = replace(pod(f"j{number}", f"n{number}", 500, 100), **changes)
    return replace(made, owner_kind="Job", owner_name=made.name, uid=made.name)


@dataclass
class Engine:
    """What has been seen so far."""

    config: Config = CONFIG
    last: PassResult | None = None
    evaluated: asyncio.Event = field(default_factory=asyncio.Event)

    def look(
        self, seconds: int, pods: int, *, free: int = 0, green: int = 0, cpu: int = 500
    ) -> None:
        """Look at so many pods, each on a node that it fills, and at so many more empty nodes.

        *green*: so many of the pods, and as many of the empty nodes, are green.
        """
        labels = [{"green": "true"}] * green + [{}] * (max(pods, 1) + free)
        nodes = [node(f"n{n}", cpu=cpu, labels=labels[n]) for n in range(max(pods, 1))]
        nodes += [node(f"free-{n}", cpu=cpu, labels=labels[n]) for n in range(free)]
        placings = [GREEN] * green + [NO_NODE_CONSTRAINTS] * pods
        size = pod("", None, cpu, 100).requests
        pods_there = [job(n, placing=placings[n], requests=size) for n in range(pods)]
        cluster = Cluster.of(nodes, pods_there)
        memory = self.last.state if self.last else LeaderState()
        self.last = reconcile(cluster, self.config, memory, START + seconds, last=self.last)

    def say(
        self, publish: CapacityBuffers = CapacityBuffers.ENABLED, mode: Mode = Mode.ENFORCE
    ) -> None:
        reserve = replace(RESERVE, capacity_buffers=publish)
        budgets = replace(UNLIMITED, reserve=reserve)
        self.config = replace(CONFIG, mode=mode, budgets=budgets)


def told(api: FakeApi) -> list[int]:
    """Return how many pods the buffers that are there ask for; each has its template."""
    buffers = api.objects[BUFFERS.resource]
    assert buffers.keys() <= api.objects[TEMPLATES.resource].keys()
    return [one["spec"]["replicas"] for one in buffers.values()]


def nothing_left(api: FakeApi) -> bool:
    return not (api.objects[BUFFERS.resource] or api.objects[TEMPLATES.resource])


async def test_what_came_is_told_and_grows_with_it_and_is_written_once() -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = Publisher(PublishedStore(client, SPACE), engine)
        await publisher.turn()
        assert nothing_left(api), "there was no pass yet"
        engine.look(0, 0)
        engine.look(10, 3)
        await publisher.turn()
        assert told(api) == [3]
        writes = api.count("post"), api.count("patch")
        await publisher.turn()
        assert (api.count("post"), api.count("patch")) == writes == (2, 0)
        engine.look(20, 9)
        await publisher.turn()
        assert told(api) == [9]


@pytest.mark.parametrize(("free", "asked"), [(0, [8]), (5, [8]), (6, []), (7, [])])
async def test_all_is_told_when_more_than_a_quarter_finds_no_room(
    free: int, asked: list[int]
) -> None:
    """Or an autoscaler would add a small node for each pod that takes some of the room."""
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        engine.look(0, 0)
        engine.look(10, 8, free=free)
        await Publisher(PublishedStore(client, SPACE), engine).turn()
        assert told(api) == asked


async def test_the_share_is_of_all_machines_also_once_no_pod_reaches_theirs() -> None:
    """What came has gone, as it mostly has; ten nodes of 500m, of which eight are green."""
    budgets = replace(UNLIMITED, reserve=replace(RESERVE, max_buffers=Fraction(1, 2)))
    config = replace(CONFIG, budgets=budgets)
    red = NodeConstraints(node_selector=(("red", "true"),))
    nodes = [node(f"n{n}", cpu=500, labels={"green": "true"}) for n in range(8)]
    nodes += [node(f"n{n}", cpu=500, labels={"red": "true"}) for n in (8, 9)]
    stays = [job(n, placing=red) for n in (8, 9)]
    came = [job(n, placing=GREEN) for n in range(8)]
    engine = Engine(config)
    memory = LeaderState()
    async with FakeApi() as api, opened(api) as client:
        publisher = Publisher(PublishedStore(client, SPACE), engine)
        for seconds, pods in ((0, stays), (10, [*came, *stays]), (20, stays)):
            engine.last = reconcile(Cluster.of(nodes, pods), config, memory, START + seconds)
            memory = engine.last.state
        assert engine.last is not None
        engine.last = replace(engine.last, short_reaches=frozenset({"green=true"}))
        await publisher.turn()
        assert told(api) == [5]


@pytest.mark.parametrize(
    ("scope", "pool", "asked"),
    [
        (Scope.MARKED, (), [8]),
        (Scope.EMPTY, (), []),
        (Scope.ALL, (), []),
        (Scope.ALL, (("some", "where"),), [8]),
    ],
)
async def test_where_ebb_holds_no_empty_nodes_there_is_room_only_as_long_as_it_is_told(
    scope: Scope, pool: tuple[tuple[str, str], ...], asked: list[int]
) -> None:
    """Or an autoscaler would take what it has added, and add it anew, without end."""
    pools = (Pool(name="a", node_selector=pool, budget=Budget()),) if pool else ()
    budgets = replace(CONFIG.budgets, pools=pools)
    engine = Engine(
        replace(CONFIG, budgets=budgets, scale_down_protection=ScaleDownProtection(scope=scope))
    )
    async with FakeApi() as api, opened(api) as client:
        engine.look(0, 0)
        engine.look(10, 8, free=8)
        await Publisher(PublishedStore(client, SPACE), engine).turn()
        assert told(api) == asked


async def test_what_one_reach_has_too_little_of_is_told_and_not_what_another_has() -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        engine.look(0, 0)
        engine.look(10, 6, free=2, green=2)
        await Publisher(PublishedStore(client, SPACE), engine).turn()
        assert told(api) == [4], "the green ones find room"


async def test_when_there_is_room_again_it_goes() -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = Publisher(PublishedStore(client, SPACE), engine)
        engine.look(0, 0)
        engine.look(10, 3)
        await publisher.turn()
        engine.look(10 + 3600, 3, free=3)
        engine.look(20 + 3600, 4, free=3)
        await publisher.turn()
        assert nothing_left(api)


async def test_a_new_leader_lowers_nothing_until_it_has_looked_on_as_long() -> None:
    first, second = Engine(), Engine()
    async with FakeApi() as api, opened(api) as client:
        store = PublishedStore(client, SPACE)
        first.look(0, 0)
        first.look(10, 3)
        await Publisher(store, first).turn()
        second.look(20, 3)
        await Publisher(store, second).turn()
        assert told(api) == [3]
        second.look(20 + 3600, 3)
        await Publisher(store, second).turn()
        assert nothing_left(api)


async def test_a_new_leader_takes_back_at_once_what_it_has_told_itself() -> None:
    first, second = Engine(), Engine()
    async with FakeApi() as api, opened(api) as client:
        store = PublishedStore(client, SPACE)
        first.look(0, 0)
        first.look(10, 3)
        await Publisher(store, first).turn()
        publisher = Publisher(store, second)
        for seconds, pods, free, asked in ((20, 0, 2, [3]), (30, 5, 0, [5]), (40, 5, 5, [3])):
            second.look(seconds, pods, free=free)
            await publisher.turn()
            assert told(api) == asked


async def test_what_is_taken_away_meanwhile_is_inherited_no_more() -> None:
    first, second = Engine(), Engine()
    async with FakeApi() as api, opened(api) as client:
        store = PublishedStore(client, SPACE)
        first.look(0, 0)
        first.look(10, 3)
        await Publisher(store, first).turn()
        publisher = Publisher(store, second)
        second.look(20, 3)
        await publisher.turn()
        assert told(api) == [3]
        second.say(publish=CapacityBuffers.DISABLED)
        await publisher.turn()
        second.say()
        await publisher.turn()
        assert nothing_left(api)


async def test_leaders_that_follow_each_other_ask_for_no_more_than_one_may() -> None:
    """None of them looks on for as long as arrivals count, and no two pods ask for the same."""
    budgets = replace(UNLIMITED, reserve=replace(RESERVE, max_buffers=Fraction(1, 2)))
    config = replace(CONFIG, budgets=budgets)
    nodes = [node(f"n{number}") for number in range(8)]
    web = [pod(f"w{number}", f"n{number}", 3000, 100) for number in range(8)]
    async with FakeApi() as api, opened(api) as client:
        for begins in range(0, 3 * 3000, 3000):
            engine = Engine(config)
            publisher = Publisher(PublishedStore(client, SPACE), engine)
            for number in range(10):
                cpu = 900 + begins // 30 + number
                size = Resources(cpu, 0, 0, 1)
                came = [job(n, name=f"j{cpu}-{n}", requests=size) for n in range(8)]
                memory = engine.last.state if engine.last else LeaderState()
                cluster = Cluster.of(nodes, [*web, *came])
                engine.last = reconcile(cluster, config, memory, START + begins + 300 * number)
                await publisher.turn()
                assert len(told(api)) <= PUBLISHED_MAX
                assert cpu_asked(api) <= 8 * 4000 / 2
            assert told(api)


def cpu_asked(api: FakeApi) -> int:
    """Return millis of all buffers together."""
    asked = 0
    for key, one in api.objects[BUFFERS.resource].items():
        raw = orjson.dumps(api.objects[TEMPLATES.resource][key])
        asked += one["spec"]["replicas"] * TEMPLATES.read(raw).pod.requests.cpu_millis
    return asked


async def test_who_counts_anew_by_another_length_lowers_nothing_until_it_has_counted_as_long() -> (
    None
):
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = Publisher(PublishedStore(client, SPACE), engine)
        engine.look(0, 0)
        engine.look(3700, 3)
        await publisher.turn()
        reserve = replace(RESERVE, window_seconds=600)
        engine.config = replace(CONFIG, budgets=replace(UNLIMITED, reserve=reserve))
        for seconds, asked in ((3710, [3]), (3709 + 3600, [3]), (3710 + 3600, [])):
            engine.look(seconds, 3)
            await publisher.turn()
            assert told(api) == asked


async def test_what_one_is_refused_the_others_are_not_and_it_is_told_once() -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = Publisher(PublishedStore(client, SPACE), engine)
        engine.look(0, 0)
        engine.look(10, 2)
        await publisher.turn()
        (old,) = api.objects[BUFFERS.resource]
        engine.look(100 + 3600, 2)
        engine.look(110 + 3600, 8, green=4, cpu=400)
        api.fail_next("post", 422)
        with pytest.raises(UnavailableError, match=r"add template ebb-reserve-.*422"):
            await publisher.turn()
        assert len(told(api)) == 1, "of what was refused its template there is no buffer"
        assert old not in api.objects[BUFFERS.resource]
        assert old not in api.objects[TEMPLATES.resource]
        await publisher.turn()
        assert sorted(told(api)) == [2, 4]


@dataclass(frozen=True, kw_only=True)
class Asked(LeaderState):
    """Remembers which threads have asked what is expected."""

    threads: list[int] = field(default_factory=list)

    def expected_pods(self, whole: Resources, now: Now) -> Counts:
        self.threads.append(get_ident())
        return super().expected_pods(whole, now)


async def test_what_is_asked_for_is_worked_out_beside_the_event_loop() -> None:
    """After a day of many kinds of pods it takes most of a second, in which reviews would wait."""
    engine = Engine()
    engine.look(0, 0)
    engine.look(10, 3)
    assert engine.last is not None
    known = {one.name: getattr(engine.last.state, one.name) for one in fields(LeaderState)}
    asked = Asked(**known)
    engine.last = replace(engine.last, state=asked)
    async with FakeApi() as api, opened(api) as client:
        await Publisher(PublishedStore(client, SPACE), engine).turn()
        assert told(api) == [3]
    assert len(asked.threads) == 1
    assert get_ident() not in asked.threads


async def test_a_server_that_does_not_answer_ends_the_turn() -> None:
    tried: list[Change] = []

    class Silent:
        async def found(self) -> Found:
            return Found()

        async def carry_out(self, change: Change) -> None:
            tried.append(change)
            raise UnavailableError("API server: no answer in time")

    engine = Engine()
    engine.look(0, 0)
    engine.look(10, 5, green=2)
    with pytest.raises(UnavailableError):
        await Publisher(Silent(), engine).turn()
    assert len(tried) == 1


async def test_a_pass_is_followed_by_a_turn_and_not_waited_out() -> None:
    """What comes in the morning is told before it waits."""
    engine = Engine()
    asked = asyncio.Queue[Change]()

    class There:
        async def found(self) -> Found:
            return Found()

        async def carry_out(self, change: Change) -> None:
            await asked.put(change)

    keeping = asyncio.create_task(Publisher(There(), engine).keep(lambda: None))
    try:
        await asyncio.sleep(0)  # the first turn finds no pass
        engine.look(0, 0)
        engine.look(10, 3)
        engine.evaluated.set()
        async with asyncio.timeout(ROUND_SECONDS / 2):
            assert (await asked.get()).name.startswith("ebb-reserve-")
    finally:
        keeping.cancel()


async def test_where_it_is_not_asked_for_any_more_all_of_it_goes() -> None:
    for say in ({"publish": CapacityBuffers.DISABLED}, {"mode": Mode.OBSERVE}):
        engine = Engine()
        async with FakeApi() as api, opened(api) as client:
            publisher = Publisher(PublishedStore(client, SPACE), engine)
            engine.look(0, 0)
            engine.look(10, 3)
            await publisher.turn()
            theirs = {"metadata": {"name": "theirs", "namespace": SPACE}}
            api.put(BUFFERS.resource, theirs)
            engine.say(**say)
            await publisher.turn()
            assert list(api.objects[BUFFERS.resource]) == [f"{SPACE}/theirs"]
            assert not api.objects[TEMPLATES.resource]
            await publisher.turn()
            calls = len(api.calls)
            await publisher.turn()
            assert len(api.calls) == calls, "nothing is left to ask for"


async def test_what_comes_late_goes_too() -> None:
    """From a leader that was asleep between its template and its buffer, or from a backup."""
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = Publisher(PublishedStore(client, SPACE), engine)
        engine.look(0, 0)
        engine.say(publish=CapacityBuffers.DISABLED)
        await publisher.turn()
        meta = {"name": "ebb-reserve-1", "namespace": SPACE, "labels": {BUFFER_OURS_LABEL: ""}}
        api.put(BUFFERS.resource, {"metadata": meta, "spec": {"replicas": 3}})
        seen = Buffer(namespace=SPACE, name="ebb-reserve-1", published=3)
        cluster = replace(Cluster.of([node("n")], []), buffers=(seen,))
        engine.last = reconcile(cluster, engine.config, LeaderState(), START + 10)
        await publisher.turn()
        assert nothing_left(api)


async def test_on_a_view_that_is_not_trusted_nothing_is_told() -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        engine.look(0, 0)
        engine.look(10, 3)
        await Publisher(PublishedStore(client, SPACE), engine).turn(lambda: "old")
        assert api.calls == []


async def test_where_there_is_no_such_kind_nothing_is_written_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")  # a program that another test has started may have set another
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        api.served -= set(BUFFERS.paths)
        engine.look(0, 0)
        engine.look(10, 3)
        publisher = Publisher(PublishedStore(client, SPACE), engine)
        for _ in range(3):
            await publisher.turn()
        assert api.count("post") == 0
        assert [one.message for one in caplog.records if one.name == "ebb.publisher"] == [NO_KIND]
        api.served |= set(BUFFERS.paths)
        await publisher.turn()
        assert told(api) == [3], "once it has come"


async def test_where_the_kind_has_gone_its_templates_go_once_nothing_is_to_be_told() -> None:
    """As where the autoscaler was uninstalled with its definitions; they may come back."""
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = Publisher(PublishedStore(client, SPACE), engine)
        engine.look(0, 0)
        engine.look(10, 3)
        await publisher.turn()
        api.served -= set(BUFFERS.paths)
        api.objects[BUFFERS.resource].clear()
        await publisher.turn()
        assert len(api.objects[TEMPLATES.resource]) == 1, "they are asked for"
        engine.say(publish=CapacityBuffers.DISABLED)
        for _ in range(2):
            await publisher.turn()
        assert nothing_left(api)
        calls = len(api.calls)
        await publisher.turn()
        assert len(api.calls) == calls, "nothing is left to ask for"


@pytest.mark.parametrize("denied", [BUFFERS, TEMPLATES])
async def test_what_may_not_be_read_keeps_nothing_else_from_going(denied: AnyKind) -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        publisher = Publisher(PublishedStore(client, SPACE), engine)
        engine.look(0, 0)
        engine.look(10, 3)
        await publisher.turn()
        api.denied.add(denied.resource)
        engine.say(publish=CapacityBuffers.DISABLED)
        await publisher.turn()
        left = {kind for kind in (BUFFERS, TEMPLATES) if api.objects[kind.resource]}
        assert left == {denied}


async def test_the_older_version_is_written_where_it_alone_is_served() -> None:
    engine = Engine()
    async with FakeApi() as api, opened(api) as client:
        api.served = {TEMPLATES.path, *BUFFERS.older}
        engine.look(0, 0)
        engine.look(10, 3)
        await Publisher(PublishedStore(client, SPACE), engine).turn()
        (one,) = api.objects[BUFFERS.resource].values()
        assert one["apiVersion"] == "autoscaling.x-k8s.io/v1alpha1"
