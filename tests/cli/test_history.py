"""`ebb history`: what the two ConfigMaps say of a day, a week and a month."""

import asyncio
import base64
import csv
import io
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cli.__main__ import main
from cli.formats.text import leader
from cli.history import number_of
from controller.day_report import day_report, month_report, today_report
from controller.figures.day import UNKNOWN
from controller.leader_report import LeaderFacts
from controller.names import HISTORY, TODAY
from core.history.days import DAY_SECONDS, Day, PoolDay
from core.history.packing import pack_history, pack_today
from core.history.today import RemovedNode, Sample, Today
from kube.stores.packed_config_map import KEY
from kube.target import NAMESPACE
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import KUBECONFIG
from tests.support.json_documents import schema

LAST = number_of(datetime(2026, 1, 31, tzinfo=UTC).date())
T = LAST * DAY_SECONDS + 12 * 3600
WORKERS = PoolDay(
    node_seconds=36_000,
    expected_seconds=7200,
    expected_cost=Fraction(4),
    saved_seconds=3600,
    saved_cost=Fraction(2),
    marks=3,
    unmarks=1,
    removed=2,
    moved=5,
)


def day(number: int, **pools: PoolDay) -> Day:
    return Day(number=number, pools=pools, unmarks={"crowded": 1}, waited_seconds=90)


REMOVED = RemovedNode(
    node="w-3",
    pool="workers",
    marked_at=T - 7200,
    deadline=T - 7200 + 86_400,
    price=Fraction(2),
    pods=4,
    allowed_at=T - 4000,
    removed_at=T - 3600,
    moved=1,
    saved_seconds=3600,
    saved_cost=Fraction(2),
)
STORED = Today(
    counted_until=T,
    writer="one",
    day=day(LAST, workers=WORKERS, spot=PoolDay(node_seconds=3600)),
    earlier=(day(LAST - 1, workers=WORKERS),),
    removed=(REMOVED._replace(node="old", removed_at=T - 40 * DAY_SECONDS), REMOVED),
    samples=(Sample(T, 12, 3, 2, 0),),
)
PAST = {n: day(n, workers=WORKERS) for n in (LAST - 40, LAST - 8, LAST - 3, LAST - 1)}


class World:
    """A cluster with the history of Ebb."""

    def __init__(
        self, api: FakeApi, folder: Path, capsys: pytest.CaptureFixture[str], namespace: str
    ) -> None:
        self.api, self._capsys, self._namespace = api, capsys, namespace
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_text(KUBECONFIG.format(url=api.url))

    def store(self, name: str, content: bytes) -> None:
        metadata = {"name": name, "namespace": self._namespace}
        value = base64.b64encode(content).decode()
        self.api.put("configmaps", {"metadata": metadata, "binaryData": {KEY: value}})

    async def run(self, *arguments: str, code: int = 0) -> str:
        given = ["history", *arguments, "--kubeconfig", str(self._kubeconfig)]
        found = await asyncio.to_thread(main, given)
        out, err = self._capsys.readouterr()
        assert found == code, err
        return out if code == 0 else err

    async def until(self, *arguments: str) -> str:
        return await self.run(*arguments, "--until", "2026-01-31")


@pytest.fixture
async def world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[World]:
    async with FakeApi() as api:
        found = World(api, tmp_path, capsys, NAMESPACE)
        found.store(TODAY, pack_today(STORED))
        found.store(HISTORY, pack_history(PAST))
        yield found


def table(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the rows below a heading, up to an empty line."""
    lines = iter(text.splitlines())
    next(line for line in lines if line.startswith(heading))
    rows = []
    for line in lines:
        if not line.strip():
            break
        rows.append(line.split())
    return rows


async def test_week_has_row_for_each_day_with_figures(world: World) -> None:
    text = await world.until()
    assert "2026-01-25 to 2026-01-31 (UTC), counted until" in text
    rows = table(text, "day ")
    assert [row[0] for row in rows] == ["2026-01-31", "2026-01-30", "2026-01-28", "all"]
    assert rows[0][1:] == ["11.0", "2.0", "1.0", "2.00", "3", "1", "2", "5"]
    assert rows[-1][1:] == ["31.0", "6.0", "3.0", "6.00", "9", "3", "6", "15"]
    assert table(text, "unmarked because") == [["crowded", "3"]]
    assert "for 4 min 30 s, the sum over all pods" in text


async def test_unmark_by_others_is_named_in_words(world: World) -> None:
    by_others = replace(STORED.day, unmarks={UNKNOWN: 2})
    world.store(TODAY, pack_today(replace(STORED, day=by_others)))
    rows = table(await world.until("day"), "unmarked because")
    assert [" ".join(row) for row in rows] == ["by hand, or by another leader 2"]


async def test_day_has_row_for_each_pool_and_removed_nodes(world: World) -> None:
    text = await world.until("day")
    assert [row[0] for row in table(text, "pool ")] == ["spot", "workers", "all"]
    (row,) = table(text, "removed node")
    assert " ".join(row) == (
        "w-3 workers 2026-01-31 10:00:00 UTC 4 pods to move within 24h, price 2 an hour 60m "
        "1 pod moved, saved 1.0 node-hours (cost 2.00)"
    )


async def test_month_has_30_days(world: World) -> None:
    rows = table(await world.until("month"), "day ")
    assert [row[0] for row in rows] == [
        "2026-01-31", "2026-01-30", "2026-01-28", "2026-01-23", "all",
    ]  # fmt: skip


async def test_csv_has_row_for_each_day_and_pool(world: World) -> None:
    rows = list(csv.DictReader(io.StringIO(await world.until("-o", "csv"))))
    assert [(row["date"], row["pool"]) for row in rows] == [
        ("2026-01-31", "spot"),
        ("2026-01-31", "workers"),
        ("2026-01-30", "workers"),
        ("2026-01-28", "workers"),
    ]
    assert rows[1] == {
        "date": "2026-01-31",
        "pool": "workers",
        "nodeSeconds": "36000",
        "expectedNodeSeconds": "7200",
        "expectedCost": "4.0",
        "savedNodeSeconds": "3600",
        "savedCost": "2.0",
        "marks": "3",
        "unmarks": "1",
        "removedNodes": "2",
        "movedPods": "5",
    }


async def test_json_has_all_figures(world: World) -> None:
    found = json.loads(await world.until("-o", "json"))
    Draft202012Validator(schema("history")).validate(found)
    assert (found["period"], found["first"], found["last"]) == ("week", "2026-01-25", "2026-01-31")
    assert found["countedUntil"] == T
    assert found["total"]["total"]["savedNodeSeconds"] == 3 * 3600
    today, yesterday, _ = found["days"]
    assert today["removed"][0]["predictedPods"] == 4
    assert today["samples"][0]["nodes"] == 12
    assert (yesterday["date"], yesterday["countedUntilSeconds"]) == ("2026-01-30", None)


@pytest.mark.parametrize("broken", [TODAY, HISTORY])
async def test_one_config_map_is_enough(world: World, broken: str) -> None:
    world.store(broken, b"garbage")
    days = [row[0] for row in table(await world.until(), "day ")]
    assert (
        days
        == {
            TODAY: ["2026-01-30", "2026-01-28", "all"],
            HISTORY: ["2026-01-31", "2026-01-30", "all"],
        }[broken]
    )


async def test_forged_times_are_shown_or_left_out(world: World) -> None:
    forged = REMOVED._replace(marked_at=10**12 - 1, deadline=10**12 - 1)
    far = replace(STORED, removed=(forged,), earlier=(day(10**9),))
    world.store(TODAY, pack_today(far))
    assert "w-3" in await world.until()
    world.store(TODAY, pack_today(replace(far, counted_until=10**12 - 1)))
    assert "2026-01-30" in await world.until("month")


async def test_time_without_figures_is_said(world: World) -> None:
    assert "1970-01-01 (UTC)" in await world.run("--until", "0001-01-01")
    text = await world.run("--until", "2020-01-01")
    assert "2019-12-26 to 2020-01-01" in text
    assert "Ebb has no figures of this period." in text
    assert len((await world.run("-o", "csv", "--until", "2020-01-01")).splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ebb-namespace", "elsewhere"], "ConfigMap elsewhere/ebb-today: not found"),
        (["--until", "yesterday"], "--until"),
        (["--config", "pyproject.toml"], "does not depend on the configuration"),
        (["year"], "'year' is not one of"),
    ],
)
async def test_unusable_arguments_are_named(world: World, arguments: list[str], said: str) -> None:
    assert said in await world.run(*arguments, code=2)


async def test_missing_permission_is_named(world: World) -> None:
    world.api.denied.add("configmaps")
    assert "403" in await world.run(code=2)


def test_status_shows_today_and_yesterday_of_the_report() -> None:
    facts = LeaderFacts(today=today_report(STORED), yesterday=day_report(PAST[LAST - 1]))
    rows: dict[str, Any] = dict(leader.fact_rows(facts, T))
    assert rows["yesterday"] == (
        "saved 1.0 node-hours, 2.00 in the currency of `prices`, of 2.0 expected; nodes: 3 "
        "marked, 1 unmarked, 2 removed; 5 pods moved"
    )
    assert rows["today (UTC)"].startswith("saved 1.0 node-hours, 2.00 in the currency")
    assert "savings expected" not in rows


NOT_READ = "unknown until the leader can read and write the ConfigMap ebb-history"
SINCE_LAST = (
    "saved 1.0 node-hours, 2.00 in the currency of `prices`, of 2.0 expected; nodes: 3 marked, "
    "1 unmarked, 2 removed; 5 pods moved, counted since 2026-01-31"
)
THREE_DAYS = (
    "saved 3.0 node-hours, 6.00 in the currency of `prices`, of 6.0 expected; nodes: 9 marked, "
    "3 unmarked, 6 removed; 15 pods moved"
)


@pytest.mark.parametrize(
    ("past", "said"),
    [
        (None, NOT_READ),
        ({}, SINCE_LAST),
        ({LAST - 1: WORKERS, LAST - 30: WORKERS, LAST - 31: WORKERS}, THREE_DAYS),
    ],
)
def test_status_shows_this_month_of_the_report(
    past: Mapping[int, PoolDay] | None, said: str
) -> None:
    today = replace(STORED, earlier=())
    month = None if past is None else month_report(today, past)
    rows = dict(leader.savings_rows(LeaderFacts(today=today_report(today), month=month)))
    assert rows["this month (UTC)"] == said
