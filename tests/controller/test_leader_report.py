"""The leader's report: what it contains, and how it is served on a real socket."""

import datetime as dt
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import msgspec
import orjson
import pytest

from controller.decisions import REASON_CHARACTERS_MAX, DecisionLog
from controller.figures.day import DayFigures
from controller.figures.figures import Figures
from controller.figures.pending import Cause, PendingFigures
from controller.leader_report import PATH, LeaderFacts, LimitUse, Report, facts_of, with_figures
from controller.report_server import CACHE_SECONDS, HOST, LIMITS, ReportServer
from core.config.document import parse
from core.config.settings import API_VERSION, KIND, Config
from core.engine.leader_state import LeaderState
from core.engine.maintenance_gate import RefusedWrite
from core.engine.reconcile import ReconcileResult, reconcile
from core.history.days import Day, PoolDay
from core.history.today import DECISIONS_MAX, Decision, Today
from core.model.cluster import Cluster
from core.model.now import Now
from core.moves.note import MoveNote
from serving import http
from tests.support.builders import node, pod
from tests.support.clock import FakeClock
from tests.support.surge import make_move

NOW = 1_767_225_600
DOCUMENT = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "unneededTime": "10m",
    "stabilizationWindow": "5m",
    "reserve": {"window": "1m"},
    "budgets": {"period": "1m"},
    "cooldown": {"delayAfterAdd": "3m", "delayAfterPending": "0s"},
}
CONFIG = parse(DOCUMENT, "test")
NODES = [node(name, 4000, 4000) for name in ("a", "b", "c")]
PODS = [pod("p1", "a", 100, 100), pod("p2", "b", 100, 100), pod("big", "c", 3000, 3000)]


def reconciled(
    pods: Any = PODS, nodes: Any = NODES, last: ReconcileResult | None = None
) -> ReconcileResult:
    now = NOW if last is None else last.at + 60
    state = LeaderState() if last is None else last.state
    return reconcile(Cluster.of(nodes, pods), CONFIG, state, now)


def number_of(date: str) -> int:
    return (dt.date.fromisoformat(date) - dt.date(1970, 1, 1)).days


def facts(last: ReconcileResult | None, now: int = NOW, **changed: Any) -> LeaderFacts:
    given = {"moves": [], "decisions": [], "stale_because": None, **changed}
    return facts_of(last, now_seconds=now, **given)


class TestFacts:
    def test_delays_end_after_unneeded_time(self) -> None:
        found = facts(reconciled())
        assert [(one.node, one.since_seconds, one.until_seconds) for one in found.delays] == [
            ("a", NOW, NOW + 601),
            ("b", NOW, NOW + 601),
            ("c", NOW, NOW + 601),
        ]
        assert facts(reconciled(), NOW + 601).delays == []

    def test_delays_omit_empty_nodes(self) -> None:
        assert [one.node for one in facts(reconciled(PODS[1:])).delays] == ["b", "c"]

    def test_delays_are_bounded(self) -> None:
        found = facts(reconciled(), listed_max=2)
        assert [one.node for one in found.delays] == ["a", "b"]
        assert found.delays_omitted == 1

    def test_peak_lasts_until_window_has_passed(self) -> None:
        first = reconciled()
        second = reconciled(PODS[:2], last=first)
        peaks = facts(second, NOW + 60).peaks
        assert {(one.cpu_millis, one.until_seconds) for one in peaks} == {(3000, NOW + 300)}
        assert facts(first).peaks == []

    def test_limits_are_bounded_and_those_of_cluster_come_first(self) -> None:
        added = reconciled(last=reconciled(nodes=NODES[:2], pods=PODS[:2]))
        failed = added.state.with_failed_writes(
            frozenset("ab"), Now(added.at), unneeded_time_seconds=60
        )
        found = facts(replace(added, state=failed), added.at, listed_max=2)
        assert [(one.code, one.scope) for one in found.limits] == [
            ("cooldown", ""),
            ("mark-refused", "a"),
        ]
        assert found.limits_omitted == 1

    def test_cooldown_ends_with_delay_after_add(self) -> None:
        first = reconciled(nodes=NODES[:2], pods=PODS[:2])
        second = reconciled(last=first)
        (cooldown,) = facts(second, NOW + 60).limits
        assert cooldown == LimitUse(code="cooldown", scope="", until_seconds=[NOW + 60 + 180])
        assert facts(second, NOW + 60 + 180).limits == []

    @pytest.mark.parametrize(
        ("after", "settings"),
        [
            (
                0,
                ["unneededTime", "stabilizationWindow", "budget-new-marks", "reserve.window"],
            ),
            (61, ["unneededTime", "stabilizationWindow", "reserve.window"]),
            (301, ["unneededTime", "reserve.window"]),
            (601, ["reserve.window"]),
            (3600, []),
        ],
    )
    def test_new_leader_names_what_it_does_not_know_yet(
        self, after: int, settings: list[str]
    ) -> None:
        found = facts(reconciled(), NOW + after)
        assert [one.needed_for for one in found.not_yet_known] == settings
        assert found.leading_since_seconds == NOW

    def test_facts_are_empty_before_first_reconciliation(self) -> None:
        found = facts(None, stale_because="nodes are unknown")
        assert found == LeaderFacts(stale_because="nodes are unknown")

    def test_refused_writes_are_reported_by_resource(self) -> None:
        write = RefusedWrite("a-policy", "metadata.labels: a", NOW + 60)
        found = facts(None, refused_writes={"pods": write})
        (one,) = found.refused_writes
        assert (one.resource, one.policy, one.change, one.until_seconds) == ("pods", *write)
        assert found.refused_write() is None, "marks are not affected"
        assert facts(None, refused_writes={"nodes": write}).refused_write() == write

    def test_account_of_leader_is_reported(self) -> None:
        first = reconciled()
        second = reconciled(last=first)
        figures = Figures().observe(first).observe(second)
        found = with_figures(facts(second, NOW + 60), figures)
        assert found.savings is not None
        nodes = len(first.plan.removals)
        assert found.savings.expected_node_seconds == 60 * nodes
        assert found.savings.estimated_node_seconds == 0
        assert [one.cause for one in found.pending] == ["mark", "room", "other"]

    @pytest.mark.parametrize(
        ("day", "past", "first", "saved"),
        [
            ("2026-01-31", {}, "2026-01-30", 1 + 10),
            ("2026-01-31", {"2025-12-31": 7, "2026-01-01": 100}, "2026-01-01", 111),
            ("2026-01-31", {"2026-01-29": 100, "2026-01-30": 5}, "2026-01-29", 111),
            ("2026-01-31", {"2026-01-31": 3, "2026-02-01": 3}, "2026-01-30", 11),
            ("2026-03-01", {"2026-02-27": 100, "2026-02-28": 5}, "2026-03-01", 1),
        ],
    )
    def test_month_sums_up_its_past_days_and_today(
        self, day: str, past: dict[str, int], first: str, saved: int
    ) -> None:
        def of(number: int, seconds: int) -> Day:
            return Day(number=number, pools={"a": PoolDay(saved_seconds=seconds)})

        last = number_of(day)
        today = Today(counted_until=NOW, day=of(last, 1), earlier=(of(last - 1, 10),))
        sums = {number_of(date): PoolDay(saved_seconds=s) for date, s in past.items()}
        month = with_figures(LeaderFacts(), Figures(day=DayFigures(today=today)), sums).month
        assert month is not None
        assert (month.first, month.total.saved_node_seconds) == (first, saved)

    def test_month_is_unknown_when_history_was_not_read(self) -> None:
        figures = Figures(day=DayFigures(today=Today(counted_until=NOW, day=Day(number=1))))
        found = with_figures(LeaderFacts(), figures, None)
        assert found.today is not None
        assert found.month is None
        assert with_figures(LeaderFacts(), Figures(), {}).month is None

    def test_pending_pods_are_reported_by_cause(self) -> None:
        figures = Figures(
            pending=PendingFigures(Counter({Cause.ROOM: 2}), Counter({Cause.ROOM: 90}))
        )
        found = with_figures(LeaderFacts(), figures)
        assert [(one.pods, one.pod_seconds) for one in found.pending] == [(0, 0), (2, 90), (0, 0)]

    def test_moves_name_deployment_pod_and_deadline(self) -> None:
        own = make_move(note=MoveNote(NOW - 5, NOW + 600))
        found = replace(own, pod="another", deployment="", others=None)
        moves = facts(reconciled(), moves=[own, found]).moves
        assert [(one.pod, one.deployment, one.node) for one in moves] == [
            ("d/another", "", "m"),
            ("d/old", "d/web", "m"),
        ]
        assert (moves[1].begun_seconds, moves[1].deadline_seconds) == (NOW - 5, NOW + 600)

    def test_refused_moves_are_counted_by_reason(self) -> None:
        found = facts(None, refused_moves={"surge-owner-references": 3})
        assert found.refused_moves == {"surge-owner-references": 3}


class TestDecisions:
    def test_log_keeps_last_decisions_with_bounded_reasons(self) -> None:
        log = DecisionLog(FakeClock(NOW))
        for number in range(DECISIONS_MAX + 5):
            log.record("Node", f"n{number}", "NodeMarked", "r" * 1000)
        assert len(log.entries) == DECISIONS_MAX
        assert log.entries[-1].name == f"n{DECISIONS_MAX + 4}"
        assert len(log.entries[0].reason) == REASON_CHARACTERS_MAX
        assert log.entries[0].at == NOW

    def test_decisions_of_previous_leader_come_first_and_once(self) -> None:
        log = DecisionLog(FakeClock(NOW))
        log.record("Node", "b", "NodeMarked", "removable")
        earlier = [
            Decision(NOW - 9, "Node", "a", "NodeMarked", "removable", written=True),
            *log.entries,
        ]
        log.restore(earlier)
        log.restore(earlier)
        assert [one.name for one in log.entries] == ["a", "b"]
        log.restore(
            earlier[0]._replace(at=NOW - 9 + n, name=f"n{n}") for n in range(2 * DECISIONS_MAX)
        )
        assert len(log.entries) == DECISIONS_MAX

    def test_reported_write_is_added_once_until_it_disappears(self) -> None:
        log = DecisionLog(FakeClock(NOW))
        write = ("n", "NodeMarked", "the cluster can do without it")
        for batch in ([write], [write], [], [write]):
            log.observe(batch)
        assert [one.written for one in log.entries] == [False, False]


class _Replica:
    """A replica of the controller that serves its report."""

    def __init__(self) -> None:
        self.clock, self.config = FakeClock(NOW), CONFIG
        self.facts: LeaderFacts | None = None
        self.built = 0
        reports = ReportServer(
            self.clock,
            identity="me_1",
            leader=lambda: "other_2",
            config=lambda: self.config,
            facts=self._facts,
        )
        self.server = http.Server(reports.app(), f"{HOST}:0", limits=LIMITS)

    def _facts(self) -> LeaderFacts | None:
        self.built += 1
        return self.facts

    async def get(self, path: str = PATH) -> tuple[int, bytes]:
        url = f"http://{HOST}:{self.server.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.read()

    async def report(self) -> Report:
        status, body = await self.get()
        assert status == 200
        return msgspec.json.decode(body, type=Report)


@pytest.fixture
async def replica() -> AsyncIterator[_Replica]:
    made = _Replica()
    await made.server.start()
    yield made
    await made.server.stop()


class TestServer:
    async def test_follower_names_leader(self, replica: _Replica) -> None:
        found = await replica.report()
        assert (found.identity, found.leader, found.leading) == ("me_1", "other_2", False)
        assert found.facts is None

    async def test_leader_reports_facts_and_configuration(self, replica: _Replica) -> None:
        replica.facts = facts(reconciled())
        found = await replica.report()
        assert (found.leading, found.facts) == (True, replica.facts)
        assert found.at_seconds == NOW
        assert parse(found.configuration, "report") == CONFIG

    async def test_report_is_cached_briefly_and_follows_changed_configuration(
        self, replica: _Replica
    ) -> None:
        await replica.report()
        await replica.report()
        assert replica.built == 1
        replica.config = Config()
        replica.clock.seconds += CACHE_SECONDS
        defaults = {"apiVersion": API_VERSION, "kind": KIND, "policy": Config().policy}
        assert (await replica.report()).configuration == defaults
        assert replica.built == 2

    async def test_server_has_no_other_resource(self, replica: _Replica) -> None:
        assert (await replica.get("/"))[0] == 404
        assert (await replica.get("/metrics"))[0] == 404

    def test_report_names_units_and_kind(self) -> None:
        found = orjson.loads(msgspec.json.encode(Report(facts=facts(reconciled()))))
        assert (found["apiVersion"], found["kind"]) == (API_VERSION, "LeaderReport")
        assert set(found["facts"]["delays"][0]) == {"node", "sinceSeconds", "untilSeconds"}
