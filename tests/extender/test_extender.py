"""The extender by its wire, and over a real socket."""

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from core.config.programs import ExtenderConfig
from core.edge import http
from core.edge.decode.kinds import NODES, PODS
from core.edge.limits import Limits
from core.edge.logs import LOG_INTERVAL_SECONDS
from core.marks.wellknown import TAINT_KEY
from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.resources import Resources
from extender import wire
from extender.app import PerPeerLimiter, make_app
from extender.metrics import Metrics
from extender.scores import SCORES
from extender.view import NEUTRAL, View
from tests.hostile.objects import DEEP
from tests.support.builders import marked, node, pod
from tests.support.clock import FakeClock, in_virtual_time, virtual_clock

MESSAGES = Path(__file__).parent / "messages"
NAMES = ["node-a", "node-b", "node-c"]


def view(score: str = "marks") -> View:
    made = View(ExtenderConfig(score=score), TAINT_KEY)
    made.freshness.alive(NODES, 0.0)
    made.freshness.alive(PODS, 0.0)
    return made


def ask(asked: View, names: list[str], now: float = 0.0) -> dict[str, int]:
    return wire.scores(asked.answer(wire.names_body(names), now)[0])


HOSTS = st.text(min_size=1, max_size=8)


@pytest.mark.parametrize("message", ["names", "names_lower", "nodes"])
def test_every_form_of_the_call(message: str) -> None:
    assert wire.call((MESSAGES / f"{message}.json").read_bytes()).names == NAMES


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"NodeNames":null,"Nodes":null}',
        b'{"NodeNames":["a",',
        b'{"NodeNames":"a"}',
        b'{"NodeNames":[1]}',
        b'{"Nodes":["a"]}',
        b'{"Nodes":{"items":[{"metadata":{}}]}}',
        b"\xff",
    ],
)
def test_what_is_no_call_is_refused_with_the_reason(body: bytes) -> None:
    with pytest.raises(InvalidInputError, match=r"ExtenderArgs: ."):
        wire.call(body)


@given(st.dictionaries(HOSTS, st.integers(-10, 10)), st.lists(HOSTS))
def test_joined_fragments_are_the_json_that_json_writes(
    known: dict[str, int], others: list[str]
) -> None:
    fragments = wire.Fragments(7)
    fragments.update((name, wire.fragment(name, score)) for name, score in known.items())
    names = [*known, *others]
    plain = [{"Host": name, "Score": known.get(name, 7)} for name in names]
    for _ in range(2):  # made, and remembered
        assert json.loads(wire.answer(map(fragments.__getitem__, names))) == plain


def test_what_is_remembered_of_names_has_bounds_and_is_of_the_last_ones() -> None:
    """Or names of nodes that have gone, or of strangers, would take the room for good."""
    fragments = wire.Fragments(7)
    fragments.update(marked=wire.fragment("marked", 1), as_others=wire.fragment("as_others", 7))
    for begin in range(3):
        names = [f"{begin} {number}" for number in range(wire.FRAGMENTS_MAX + 1)]
        assert len(json.loads(wire.answer(map(fragments.__getitem__, names)))) == len(names)
        assert len(fragments) <= wire.FRAGMENTS_MAX + 2
        assert names[-1] in fragments
    assert wire.scores(wire.answer(map(fragments.__getitem__, ["marked", "as_others"]))) == {
        "marked": 1,
        "as_others": 7,
    }


@pytest.mark.parametrize("name", ["", "n" * 254])
def test_what_no_node_can_be_called_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="a node name of"):
        view().answer(wire.names_body(["a", name]), 0.0)


def test_a_call_has_no_more_names_than_a_cluster_has_nodes() -> None:
    most = ["n" * 253] * wire.NODES_MAX
    assert len(wire.call(wire.names_body(most)).names) == wire.NODES_MAX
    nodes = b'{"Nodes":{"items":[%b]}}'
    one = b'{"metadata":{"name":"n"}}'
    assert len(wire.call(nodes % b",".join([one] * wire.NODES_MAX)).names) == wire.NODES_MAX
    for body in (
        wire.names_body([*most, "n"]),
        wire.names_body(["n"] * (wire.NODES_MAX + 1)).replace(b"NodeNames", b"nodenames"),
        b'{"NodeNames":[%b]}' % b",".join([b'""'] * 7_000_000),
        nodes % b",".join([one] * (wire.NODES_MAX + 1)),
    ):
        with pytest.raises(InvalidInputError, match=f"more than {wire.NODES_MAX}"):
            wire.call(body)


def test_one_node_that_nests_deep_hides_none_of_five_thousand() -> None:
    """Although kwok's Nodes, of which these are recorded, have more brackets than a kubelet's."""
    recorded = (MESSAGES / "recorded_nodes.json").read_bytes()
    one = orjson.dumps(orjson.loads(recorded)["Nodes"]["items"][0])
    deep = one.replace(b'"metadata":{', b'"metadata":{"managedFields":%b,' % DEEP, 1)
    body = b'{"Nodes":{"items":[%b]}}' % b",".join([deep, *[one] * 4999])
    assert wire.call(body).names == ["node-0"] * 5000


@pytest.mark.parametrize("steps", [100_000, 500_000])
def test_brackets_alone_are_no_call(steps: int) -> None:
    """To cut these the one event loop would be held for as long as kube-scheduler waits."""
    deep = b"[" * 9000 + b",".join([b"[[[]]]"] * (steps // 2)) + b"]" * 9000
    with pytest.raises(InvalidInputError, match="runs of brackets"):
        wire.call(b'{"NodeNames":["n"],"x":%b}' % deep)


def test_a_node_that_is_marked_after_it_was_asked_about_gets_its_score() -> None:
    asked = view()
    asked.replaced(NODES, [])
    assert ask(asked, ["n"]) == {"n": 10}
    asked.changed(NODES, marked(node("n"), since=1))
    assert ask(asked, ["n"]) == {"n": 0}
    asked.deleted(NODES, "n")
    assert ask(asked, ["n"]) == {"n": 10}


def test_marks_score_lowest_the_first_marked_lowest_and_hard_below_soft() -> None:
    asked = view()
    asked.replaced(
        NODES, [marked(node("old"), since=1), marked(node("new"), since=2), node("free")]
    )
    asked.changed(NODES, marked(node("hard"), "hard", since=3))
    scores = ask(asked, ["old", "new", "free", "hard", "unknown"])
    assert scores == {"old": 0, "new": 0, "free": 10, "hard": 0, "unknown": 10}
    asked.deleted(NODES, "hard")
    assert ask(asked, ["old", "new"]) == {"old": 0, "new": 1}
    asked.changed(NODES, node("old"))
    assert ask(asked, ["old", "new"]) == {"old": 10, "new": 0}


def test_marks_of_one_second_are_ranked_as_the_plan_that_set_them_ranked_them() -> None:
    asked = view()
    asked.replaced(
        NODES, [marked(node("a"), since=5, order=2), marked(node("b"), since=5, order=1)]
    )
    assert ask(asked, ["a", "b"]) == {"a": 1, "b": 0}
    asked.changed(NODES, marked(node("b"), since=5, order=3))
    assert ask(asked, ["a", "b"]) == {"a": 0, "b": 1}


UNREAD = Node(name="n", allocatable=Resources(), unreadable="is nested too deeply")
"""What stands for a Node of which nobody knows whether it is marked: anybody who may write its
managedFields can have it so."""


@pytest.mark.parametrize("score", list(SCORES))
@pytest.mark.parametrize("mark", ["soft", "hard"])
def test_a_marked_node_that_cannot_be_read_any_more_keeps_its_score(score: str, mark: str) -> None:
    asked = view(score)
    asked.replaced(PODS, [])
    asked.replaced(NODES, [marked(node("old"), since=1), marked(node("n"), mark, since=2)])
    before = ask(asked, ["old", "n"])
    asked.changed(NODES, UNREAD)
    assert ask(asked, ["old", "n"]) == before
    asked.replaced(NODES, [marked(node("old"), since=1), UNREAD])
    assert ask(asked, ["old", "n"]) == before
    asked.changed(NODES, node("n"))
    assert ask(asked, ["n"])["n"] > 1, "it says that it is unmarked"
    asked.changed(NODES, marked(node("n")))
    asked.deleted(NODES, "n")
    asked.changed(NODES, UNREAD)
    assert (ask(asked, ["n"])["n"] > 1) is (score != "marks"), "there it is watched for its mark"


CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abcde"), st.sampled_from(["soft", "hard", "", None]), st.integers(0, 3)
    ),
    max_size=20,
)
"""A node, what it is marked with (None: it goes), and when."""


@settings(deadline=None)
@given(CHANGES, st.sampled_from(["pack", "marks"]))
def test_after_any_marks_it_is_what_a_new_list_says(
    changes: list[tuple[str, str | None, int]], score: str
) -> None:
    """Of those that were marked before, the few whose score has changed are written anew."""

    def asked_first() -> View:
        made = view(score)
        made.replaced(PODS, [])
        return made

    def told(asked: View) -> list[dict[str, int]]:
        pods = [b"null", *(orjson.dumps(owned(kind)) for kind in ("Job", "ReplicaSet"))]
        return [
            wire.scores(asked.answer(wire.names_body([*"abcdef"], one), 0.0)[0]) for one in pods
        ]

    there, asked = dict[str, Node](), asked_first()
    told(asked)  # the answers of each kind are kept from here on
    for name, mark, since in changes:
        if mark is None:
            there.pop(name, None)
            asked.deleted(NODES, name)
        else:
            there[name] = marked(node(name), mark, since) if mark else node(name)
            asked.changed(NODES, there[name])
    again = asked_first()
    again.replaced(NODES, there.values())
    assert told(asked) == told(again)


def owned(kind: str) -> dict[str, Any]:
    owners = [{"kind": kind, "name": "o", "controller": True}]
    return {"metadata": {"name": "new", "namespace": "d", "ownerReferences": owners}}


@pytest.mark.parametrize("score", [name for name, one in SCORES.items() if not one.names_max])
def test_names_of_no_node_are_kept_only_where_not_all_nodes_are_known(score: str) -> None:
    """Anybody may ask for any, once for each kind of pod: six times 45 MB."""
    asked = view(score)
    asked.replaced(NODES, [node("n")])
    asked.replaced(PODS, [])
    for pod_ in (b"null", orjson.dumps(owned("Job")), orjson.dumps(owned("ReplicaSet"))):
        assert len(wire.scores(asked.answer(wire.names_body(["n", "x"], pod_), 0.0)[0])) == 2
    assert len(asked._fragments) > 1
    for fragments in asked._fragments.values():
        assert list(fragments) == ["n"]


def test_pack_scores_follow_the_pods() -> None:
    asked = view("pack")
    asked.replaced(NODES, [node("a"), node("b"), marked(node("m"))])
    asked.replaced(PODS, [pod("p", "a", 4000, 0), pod("q", "m", 4000, 0)])
    assert ask(asked, ["a", "b", "m"]) == {"a": 10, "b": 2, "m": 0}
    asked.changed(PODS, pod("p", "b", 2000, 0))
    assert ask(asked, ["a", "b"]) == {"a": 2, "b": 6}
    asked.deleted(PODS, "d/p")
    asked.deleted(PODS, "d/p")
    assert ask(asked, ["a", "b"]) == {"a": 2, "b": 2}


@pytest.mark.parametrize("score", list(SCORES))
def test_a_view_that_cannot_be_trusted_answers_equal_scores(score: str) -> None:
    unsynced = View(ExtenderConfig(score=score), TAINT_KEY)
    unsynced.replaced(NODES, [marked(node("m"))])
    assert ask(unsynced, ["m", "n"]) == {"m": NEUTRAL, "n": NEUTRAL}
    stale = view(score)
    stale.replaced(NODES, [marked(node("m"))])
    late = ExtenderConfig().stale_after_seconds + 1.0
    assert ask(stale, ["m", "n"], late) == {"m": NEUTRAL, "n": NEUTRAL}
    assert stale.why_neutral(late) is not None


@pytest.fixture
async def running() -> AsyncIterator[tuple[str, View, FakeClock]]:
    clock = FakeClock()
    shown = View(ExtenderConfig(score="marks"), TAINT_KEY)
    server = http.Server(make_app(shown, clock, Metrics(), http.Health()), "127.0.0.1:0")
    await server.start()
    yield f"http://127.0.0.1:{server.port}", shown, clock
    await server.stop()


async def test_over_a_real_socket(running: tuple[str, View, FakeClock]) -> None:
    url, shown, _ = running
    body = (MESSAGES / "names.json").read_bytes()
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/livez") as response:
            assert response.status == 200
        async with session.get(f"{url}/readyz") as response:
            assert response.status == 503
            assert "[-]view nodes have not been listed yet" in await response.text()
        shown.freshness.alive(NODES, 0.0)
        shown.replaced(NODES, [marked(node("node-b"))])
        async with session.get(f"{url}/readyz?verbose") as response:
            assert response.status == 200
            assert "[+]view ok" in await response.text()
        async with session.post(f"{url}/prioritize", data=body) as response:
            answer = await response.read()
            assert response.status == 200
            assert response.headers["Content-Length"] == str(len(answer))
            assert "Transfer-Encoding" not in response.headers
            assert json.loads(answer) == [
                {"Host": "node-a", "Score": 10},
                {"Host": "node-b", "Score": 0},
                {"Host": "node-c", "Score": 10},
            ]
        async with session.post(f"{url}/prioritize", data=b'{"NodeNames":[') as response:
            assert response.status == 400
            assert "truncated" in (await response.json())["error"]
        async with session.get(f"{url}/metrics") as response:
            series = {
                (sample.name, *sample.labels.values()): sample.value
                for family in text_string_to_metric_families(await response.text())
                for sample in family.samples
            }
    assert series["ebb_extender_prioritize_requests_total", "scored"] == 1
    assert series["ebb_extender_prioritize_requests_total", "refused"] == 1


async def test_every_call_that_gets_no_scores_is_counted(
    running: tuple[str, View, FakeClock],
) -> None:
    """kube-scheduler logs that at a level that nobody runs it at."""
    url, shown, _ = running
    shown.freshness.alive(NODES, 0.0)
    body = (MESSAGES / "names.json").read_bytes()
    packed = {"Content-Encoding": "gzip"}
    async with aiohttp.ClientSession() as session:
        for asked, headers in ((b"x" * (wire.BODY_BYTES_MAX + 1), {}), (body, packed), (b"", {})):
            async with session.post(
                f"{url}/prioritize", data=io.BytesIO(asked), headers=headers
            ) as response:
                assert response.status in (400, 413)
        async with session.get(f"{url}/metrics") as response:
            told = await response.text()
    assert 'ebb_extender_prioritize_requests_total{result="refused"} 3.0' in told


async def test_however_many_calls_are_refused_one_line_a_minute_tells_of_them(
    running: tuple[str, View, FakeClock], caplog: pytest.LogCaptureFixture
) -> None:
    url, _, clock = running
    with caplog.at_level(logging.WARNING, "ebb.http"):
        async with aiohttp.ClientSession() as session:
            for seconds in (0, 0, LOG_INTERVAL_SECONDS - 1, 1):
                clock.seconds += seconds
                async with session.post(f"{url}/prioritize", data=b"[") as response:
                    assert response.status == 400
    told = [record.__dict__["ebb_fields"] for record in caplog.records]
    assert [(one["path"], one["since_last"]) for one in told] == [
        ("/prioritize", 1),
        ("/prioritize", 3),
    ]


async def test_a_body_of_five_thousand_full_nodes_is_taken(
    running: tuple[str, View, FakeClock],
) -> None:
    url, shown, _ = running
    shown.freshness.alive(NODES, 0.0)
    one = '{"metadata":{"name":"node-%05d","labels":{"filler":"%s"}}}'
    items = ",".join(one % (number, "x" * 2000) for number in range(5000))
    body = f'{{"Pod":{{}},"Nodes":{{"items":[{items}]}},"NodeNames":null}}'
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/prioritize", data=io.BytesIO(body.encode())) as response,
    ):
        assert response.status == 200
        assert len(await response.json()) == 5000


@in_virtual_time
async def test_a_peer_that_calls_again_waits_as_long_as_its_call_took() -> None:
    clock, turns = virtual_clock(), PerPeerLimiter(virtual_clock())
    began: dict[str, float] = {}

    async def call(name: str, peer: str) -> None:
        async with turns.turn(peer):
            began[name] = clock.seconds
            clock.seconds += 60

    async with asyncio.TaskGroup() as calls:
        for name in ("first", "second", "third"):
            calls.create_task(call(name, "one peer"))
        calls.create_task(call("another's", "another peer"))
    expected = {"first": 0, "another's": 60, "second": 120, "third": 240}
    assert began == pytest.approx(expected, abs=0.001)


@in_virtual_time
async def test_a_peer_that_gives_up_leaves_its_turn_to_its_others() -> None:
    turns = PerPeerLimiter(virtual_clock())

    async def call() -> None:
        async with turns.turn("one peer"):
            pass

    first = asyncio.ensure_future(call())
    gone = asyncio.ensure_future(call())
    await first
    gone.cancel()
    await call()
    assert gone.cancelled()


class SlowClock(FakeClock):
    """A clock by which all that is timed takes a minute."""

    def monotonic_seconds(self) -> float:
        self.seconds += 60
        return self.seconds


async def test_calls_of_one_peer_keep_nobody_else_waiting() -> None:
    metrics, body = Metrics(), (MESSAGES / "names.json").read_bytes()
    app = make_app(view(), SlowClock(), metrics, http.Health())
    server = http.Server(app, "127.0.0.1:0")
    await server.start()
    url = f"http://127.0.0.1:{server.port}/prioritize"
    one, another = (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(address, 0)))
        for address in ("127.0.0.1", "127.0.0.2")
    )
    async with one, another:
        await answered(one, url, body)
        again = asyncio.ensure_future(answered(one, url, body))
        await answered(another, url, body)
        assert not again.done()
        again.cancel()
    await server.stop()
    counts = (
        metrics.registry.get_sample_value(
            "ebb_extender_prioritize_requests_total", {"result": result}
        )
        for result in ("scored", "neutral", "refused")
    )
    assert sum(filter(None, counts)) == 3, "who has given up is counted"
    timed = metrics.registry.get_sample_value("ebb_extender_prioritize_duration_seconds_count")
    assert timed == 3, "and so is how long it waited"


async def answered(session: aiohttp.ClientSession, url: str, body: bytes) -> None:
    async with session.post(url, data=body) as response:
        assert response.status == 200


def test_connections_outlive_the_schedulers_idle_time() -> None:
    assert Limits().keepalive_seconds > 90
