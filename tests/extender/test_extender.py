"""The extender: its wire format, its view of the cluster, and its HTTP server."""

import asyncio
import io
import json
import logging
import socket
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from core.config.programs import ExtenderConfig
from core.marks.wellknown import TAINT_KEY
from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.resources import Resources
from extender import wire
from extender.app import make_app
from extender.metrics import Metrics
from extender.scores import SCORES
from extender.view import NEUTRAL, STALE_SECONDS, View
from kube.decode.json_depth import PIECE_BYTES
from kube.decode.kinds import NODES, PODS
from runtime.logs import LOG_INTERVAL_SECONDS
from serving import http, tls
from serving.intake import PAUSE_SECONDS_MIN, PerPeerLimiter
from serving.limits import PortLimits
from serving.tls_contexts import ServingCertificate, client_context
from tests.hostile.objects import DEEP
from tests.support.builders import marked, node, pod
from tests.support.certificates import START, signed
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
def test_call_is_decoded_in_every_spelling(message: str) -> None:
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
def test_invalid_call_is_rejected_with_reason(body: bytes) -> None:
    with pytest.raises(InvalidInputError, match=r"ExtenderArgs: ."):
        wire.call(body)


@given(st.dictionaries(HOSTS, st.integers(-10, 10)), st.lists(HOSTS))
def test_joined_fragments_equal_encoded_json(known: dict[str, int], others: list[str]) -> None:
    fragments = wire.Fragments(7)
    fragments.update((name, wire.fragment(name, score)) for name, score in known.items())
    names = [*known, *others]
    plain = [{"Host": name, "Score": known.get(name, 7)} for name in names]
    for _ in range(2):  # encoded, then cached
        assert json.loads(wire.answer(map(fragments.__getitem__, names))) == plain


def test_fragment_cache_is_bounded_and_contains_latest_names() -> None:
    """Otherwise names of deleted nodes, or invented names, would fill the cache for good."""
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
def test_invalid_node_name_is_rejected(name: str) -> None:
    with pytest.raises(InvalidInputError, match="a node name of"):
        view().answer(wire.names_body(["a", name]), 0.0)


def test_call_is_rejected_when_it_has_too_many_nodes() -> None:
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


def test_call_of_5000_nodes_is_decoded_when_one_node_is_deeply_nested() -> None:
    """The recorded Nodes are kwok's, which have more brackets than those of a kubelet."""
    recorded = (MESSAGES / "recorded_nodes.json").read_bytes()
    one = orjson.dumps(orjson.loads(recorded)["Nodes"]["items"][0])
    deep = one.replace(b'"metadata":{', b'"metadata":{"managedFields":%b,' % DEEP, 1)
    body = b'{"Nodes":{"items":[%b]}}' % b",".join([deep, *[one] * 4999])
    assert wire.call(body).names == ["node-0"] * 5000


@pytest.mark.parametrize("steps", [100_000, 500_000])
def test_call_is_rejected_when_it_nests_too_often(steps: int) -> None:
    """Cutting them would block the event loop for longer than kube-scheduler waits."""
    deep = b"[" * 9000 + b",".join([b"[[[]]]"] * (steps // 2)) + b"]" * 9000
    with pytest.raises(InvalidInputError, match="nested too deeply at"):
        wire.call(b'{"NodeNames":["n"],"x":%b}' % deep)


def test_score_changes_when_node_is_marked_after_first_call() -> None:
    asked = view()
    asked.replaced(NODES, [])
    assert ask(asked, ["n"]) == {"n": 10}
    asked.changed(NODES, marked(node("n"), since=1))
    assert ask(asked, ["n"]) == {"n": 0}
    asked.deleted(NODES, "n")
    assert ask(asked, ["n"]) == {"n": 10}


def test_marked_nodes_score_lowest_in_order_of_marking() -> None:
    asked = view()
    asked.replaced(
        NODES, [marked(node("old"), since=1), marked(node("new"), since=2), node("free")]
    )
    asked.changed(NODES, marked(node("closed"), "NoSchedule", since=3))
    scores = ask(asked, ["old", "new", "free", "closed", "unknown"])
    assert scores == {"old": 0, "new": 0, "free": 10, "closed": 0, "unknown": 10}
    asked.deleted(NODES, "closed")
    assert ask(asked, ["old", "new"]) == {"old": 0, "new": 1}
    asked.changed(NODES, node("old"))
    assert ask(asked, ["old", "new"]) == {"old": 10, "new": 0}


def test_nodes_marked_in_same_second_score_in_order_of_plan() -> None:
    asked = view()
    asked.replaced(
        NODES, [marked(node("a"), since=5, order=2), marked(node("b"), since=5, order=1)]
    )
    assert ask(asked, ["a", "b"]) == {"a": 1, "b": 0}
    asked.changed(NODES, marked(node("b"), since=5, order=3))
    assert ask(asked, ["a", "b"]) == {"a": 0, "b": 1}


UNREAD = Node(name="n", allocatable=Resources(), unreadable="is nested too deeply")
"""An unreadable Node, whose mark is unknown. A user who may write managedFields can cause it."""


@pytest.mark.parametrize("score", list(SCORES))
@pytest.mark.parametrize("mark", ["PreferNoSchedule", "NoSchedule"])
def test_marked_node_keeps_its_score_when_it_becomes_unreadable(score: str, mark: str) -> None:
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
        st.sampled_from("abcde"),
        st.sampled_from(["PreferNoSchedule", "NoSchedule", "", None]),
        st.integers(0, 3),
    ),
    max_size=20,
)
"""Changes of nodes: name, mark (None: the node is deleted), and when it was marked."""


@given(CHANGES, st.sampled_from(["pack", "marks"]))
def test_scores_after_mark_changes_equal_scores_of_new_list(
    changes: list[tuple[str, str | None, int]], score: str
) -> None:
    """An update encodes only the scores that have changed."""

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
    told(asked)  # from here on the view caches the answers of each kind
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
def test_unknown_names_are_not_cached_when_all_nodes_are_watched(score: str) -> None:
    """A caller can send any names, once for each kind of pod: six times 45 MB."""
    asked = view(score)
    asked.replaced(NODES, [node("n")])
    asked.replaced(PODS, [])
    for pod_ in (b"null", orjson.dumps(owned("Job")), orjson.dumps(owned("ReplicaSet"))):
        assert len(wire.scores(asked.answer(wire.names_body(["n", "x"], pod_), 0.0)[0])) == 2
    assert len(asked._fragments) > 1
    for fragments in asked._fragments.values():
        assert list(fragments) == ["n"]


def test_pack_scores_change_with_pods() -> None:
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
def test_scores_are_equal_when_view_is_not_synced_or_stale(score: str) -> None:
    unsynced = View(ExtenderConfig(score=score), TAINT_KEY)
    unsynced.replaced(NODES, [marked(node("m"))])
    assert ask(unsynced, ["m", "n"]) == {"m": NEUTRAL, "n": NEUTRAL}
    stale = view(score)
    stale.replaced(NODES, [marked(node("m"))])
    late = STALE_SECONDS + 1.0
    assert ask(stale, ["m", "n"], late) == {"m": NEUTRAL, "n": NEUTRAL}
    assert stale.why_neutral(late) is not None


both_ways = pytest.mark.parametrize(
    "headers", [{}, {"X-Other": "1"}], ids=["fast path", "aiohttp"]
)
"""Tests of limits run over both ways in: the fast path knows no other headers."""


@pytest.fixture
async def running() -> AsyncIterator[tuple[str, View, FakeClock]]:
    clock = FakeClock()
    shown = View(ExtenderConfig(score="marks"), TAINT_KEY)
    server = http.Server(make_app(shown, clock, Metrics(), http.Health()), "127.0.0.1:0")
    await server.start()
    yield f"http://127.0.0.1:{server.port}", shown, clock
    await server.stop()


async def test_extender_serves_health_scores_and_metrics(
    running: tuple[str, View, FakeClock],
) -> None:
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


@both_ways
async def test_rejected_calls_are_counted(
    running: tuple[str, View, FakeClock], headers: dict[str, str]
) -> None:
    """kube-scheduler logs a failed call only at a log level that is not used in production."""
    url, shown, _ = running
    shown.freshness.alive(NODES, 0.0)
    body = (MESSAGES / "names.json").read_bytes()
    packed = {"Content-Encoding": "gzip"}
    async with aiohttp.ClientSession() as session:
        for asked, more in ((b"x" * (wire.BODY_BYTES_MAX + 1), {}), (body, packed), (b"", {})):
            async with session.post(
                f"{url}/prioritize", data=io.BytesIO(asked), headers=headers | more
            ) as response:
                assert response.status in (400, 413)
        async with session.get(f"{url}/metrics") as response:
            told = await response.text()
    assert 'ebb_extender_prioritize_requests_total{result="refused"} 3.0' in told


@both_ways
async def test_rejected_calls_are_logged_at_most_once_per_minute(
    running: tuple[str, View, FakeClock],
    caplog: pytest.LogCaptureFixture,
    headers: dict[str, str],
) -> None:
    url, _, clock = running
    with caplog.at_level(logging.WARNING, "ebb.http"):
        async with aiohttp.ClientSession() as session:
            for seconds in (0, 0, LOG_INTERVAL_SECONDS - 1, 1):
                clock.seconds += seconds
                request = session.post(f"{url}/prioritize", data=b"[", headers=headers)
                async with request as response:
                    assert response.status == 400
    told = [record.__dict__["ebb_fields"] for record in caplog.records]
    assert [(one["path"], one["since_last"]) for one in told] == [
        ("/prioritize", 1),
        ("/prioritize", 3),
    ]


@both_ways
@pytest.mark.parametrize("shown", [True, False])
async def test_call_needs_client_certificate_when_it_is_required(
    tmp_path: Path, headers: dict[str, str], *, shown: bool
) -> None:
    ca = tls.make_ca(START)
    (tmp_path / "ca").write_bytes(ca.certificate)
    serving, trust = ServingCertificate(str(tmp_path / "ca")), client_context(ca.certificate)
    serving.load(tls.make_leaf(ca, ["localhost"], START))
    if shown:
        caller = signed(ca, ec.generate_private_key(ec.SECP256R1()), name="caller", days=3650)
        pem = tmp_path / "caller"
        pem.write_bytes(caller.certificate + caller.key)
        trust.load_cert_chain(pem)
    metrics = Metrics()
    app = make_app(view(), FakeClock(), metrics, http.Health(), certificate_required=True)
    server = http.Server(app, "127.0.0.1:0", serving.context)
    await server.start()
    url = f"https://localhost:{server.port}/prioritize"
    connector = aiohttp.TCPConnector(ssl=trust, family=socket.AF_INET)
    async with aiohttp.ClientSession(connector=connector) as session:
        for _ in range(2):
            body = wire.names_body(["a"])
            async with session.post(url, data=body, headers=headers) as response:
                assert response.status == (200 if shown else 403)
    await server.stop()
    result = {"result": "scored" if shown else "refused"}
    counted = metrics.registry.get_sample_value("ebb_extender_prioritize_requests_total", result)
    assert counted == 2


@both_ways
async def test_call_without_certificate_is_rejected_before_its_body_arrives(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    ca = tls.make_ca(START)
    (tmp_path / "ca").write_bytes(ca.certificate)
    serving = ServingCertificate(str(tmp_path / "ca"))
    serving.load(tls.make_leaf(ca, ["localhost"], START))
    app = make_app(view(), FakeClock(), Metrics(), http.Health(), certificate_required=True)
    server = http.Server(app, "127.0.0.1:0", serving.context)
    await server.start()
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        server.port,
        ssl=client_context(ca.certificate),
        server_hostname="localhost",
    )
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST /prioritize HTTP/1.1\r\nHost: a\r\n{more}Content-Length: 40000000\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(20):
        assert b" 403 " in await reader.readline()
    writer.transport.abort()
    await server.stop()


def nested_call(size: int) -> bytes:
    """Return a call that takes long to decode, because of one deep value among many strings."""
    deep = b"[" * 9000 + b"]" * 9000
    return b'{"NodeNames":["n"],"x":[%b,%b]}' % (deep, b",".join([b'"a"'] * (size // 4)))


def test_nested_call_is_decoded_in_pieces() -> None:
    """One of 60 MB held the event loop for two seconds."""
    body = nested_call(10 * PIECE_BYTES)
    pauses: list[None] = []

    def decoded() -> Generator[None, None, None]:
        call = yield from wire.calling(body)
        assert call.names == ["n"]

    pauses += decoded()
    assert len(pauses) >= 10
    assert not list(wire.calling(wire.names_body(["n"])))


@both_ways
async def test_nested_call_is_answered(
    running: tuple[str, View, FakeClock], headers: dict[str, str]
) -> None:
    url, shown, _ = running
    shown.freshness.alive(NODES, 0.0)
    async with aiohttp.ClientSession(headers=headers) as session:
        for size in (100, 10 * PIECE_BYTES):
            body = io.BytesIO(nested_call(size))
            async with session.post(f"{url}/prioritize", data=body) as response:
                assert await response.json() == [{"Host": "n", "Score": 10}]
        async with session.get(f"{url}/metrics") as response:
            told = await response.text()
    assert 'ebb_extender_prioritize_requests_total{result="scored"} 2.0' in told
    assert "ebb_extender_prioritize_duration_seconds_count 2.0" in told


async def test_large_answer_is_counted_once(running: tuple[str, View, FakeClock]) -> None:
    """It is sent in pieces, by other code than the answers for smaller clusters."""
    url, shown, _ = running
    shown.freshness.alive(NODES, 0.0)
    names = [f"node-{number:05}" for number in range(20_000)]
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}/prioritize", data=wire.names_body(names)) as response:
            assert [one["Host"] for one in await response.json()] == names
        async with session.get(f"{url}/metrics") as response:
            told = await response.text()
    assert 'ebb_extender_prioritize_requests_total{result="scored"} 1.0' in told
    assert "ebb_extender_prioritize_duration_seconds_count 1.0" in told


async def test_body_of_5000_full_nodes_is_accepted(
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
async def test_second_call_of_peer_is_delayed_by_duration_of_its_first() -> None:
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
async def test_short_calls_of_peer_alternate_with_other_events() -> None:
    clock, turns = virtual_clock(), PerPeerLimiter(virtual_clock())
    events: list[str] = []

    async def call(name: str) -> None:
        async with turns.turn("one peer"):
            events.append(name)
            clock.seconds += PAUSE_SECONDS_MIN / 2

    async with asyncio.TaskGroup() as calls:
        for name in ("first", "second"):
            calls.create_task(call(name))
        asyncio.get_running_loop().call_soon(events.append, "another event")
    assert events == ["first", "another event", "second"]
    assert clock.seconds == pytest.approx(PAUSE_SECONDS_MIN, abs=PAUSE_SECONDS_MIN / 10)


@in_virtual_time
async def test_cancelled_call_does_not_block_next_call_of_peer() -> None:
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
    """A clock that advances by a minute each time it is read."""

    def monotonic_seconds(self) -> float:
        self.seconds += 60
        return self.seconds


@both_ways
async def test_slow_calls_of_one_peer_do_not_delay_other_peers(headers: dict[str, str]) -> None:
    metrics, body = Metrics(), (MESSAGES / "names.json").read_bytes()
    app = make_app(view(), SlowClock(), metrics, http.Health())
    server = http.Server(app, "127.0.0.1:0")
    await server.start()
    url = f"http://127.0.0.1:{server.port}/prioritize"
    one, another = (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(local_addr=(address, 0)), headers=headers
        )
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


def test_keepalive_exceeds_idle_timeout_of_scheduler() -> None:
    assert PortLimits().keepalive_seconds > 90
