"""The time lapse in headless Chromium: it plays, pauses and moves, by keyboard and on a phone."""

from collections.abc import AsyncIterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from playwright.async_api import Browser

from cli.answers import Figure, Recommended, Replayed, VariantResult
from cli.formats.page import lapse
from core.marks.wellknown import MARK_LABEL
from core.model.node import Node
from core.model.resources import Resources
from sim.cluster import ClusterState
from sim.recording import Frame, Recorder, Recording
from sim.report import RUN_METRICS
from sim.simulated_load import HOUR_MS, TYPE_LABEL
from tests.support.browser import DESKTOP, PHONE, Tab, chromium, needs_chromium, tab
from tests.support.page import HOSTILE

pytestmark = [needs_chromium, pytest.mark.long]
NODES = 4
FRAMES = 61
TIME = "Number(document.getElementById('time').value)"


def recording(removed: int, label: str = "large") -> Recording:
    """Record an hour in which the last nodes are marked and then removed, one every ten frames."""
    recorder, state = Recorder(), ClusterState()
    for number in range(NODES):
        node = Node(
            name=f"{label}-{number}",
            allocatable=Resources(8000, 8 * 1024**3, 0, 110),
            labels={TYPE_LABEL: label},
        )
        state.add_node(node, 0)
    cost_ms = Fraction()
    for index in range(FRAMES):
        number, step = divmod(index, 10)
        name = f"{label}-{NODES - 1 - number}"
        if number < removed and step == 5:
            node = state.places[name].node
            state.replace_node(
                replace(node, labels={**node.labels, MARK_LABEL: "PreferNoSchedule"})
            )
        if number < removed and step == 9:
            state.remove_node(name)
        recorder.add(Frame(cost_ms, index % 3, index * 1000, removed), state)
        cost_ms += len(state.places) * HOUR_MS / Fraction(60)
    return recorder.recording


def result(name: str, found: Recording | None, *settings: tuple[str, str]) -> VariantResult:
    figures = [Figure(metric, Fraction(5), Fraction(4), Fraction(6)) for metric in RUN_METRICS]
    return VariantResult(name=name, settings=settings, figures=figures, best=True, recording=found)


def replayed(name: str = "x", label: str = "large") -> Replayed:
    other = result(f"{name} other", recording(1, label))
    chosen = result(name, recording(2, label))
    point = result(f"{name} point", None, (name, name))
    return Replayed(
        source=name,
        summary=name,
        notes=[name],
        variants=[result("MostAllocated", recording(0, label)), chosen, other, point],
        seeds=[1, 2],
        recorded=(),
        recommended=Recommended(name=name, why=name, file=f"# {name}\nkind: x\n"),
    )


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as made:
        yield made


@pytest.fixture
def url(tmp_path: Path) -> str:
    return written(tmp_path, replayed())


def written(folder: Path, answer: Replayed) -> str:
    path = folder / "lapse.html"
    path.write_text(lapse.text(answer), "utf-8")
    return path.as_uri()


async def calm(one: Tab, url: str) -> None:
    """Open the page for a user who has asked for reduced motion."""
    await one.page.emulate_media(reduced_motion="reduce")
    await one.opened(url)


async def boxes(one: Tab, side: int) -> list[str]:
    """Return the texts of the boxes of one side; a dash for a node that does not exist."""
    script = "all => all.map(e => e.className === 'gone' ? '-' : e.textContent)"
    found: list[str] = await one.page.eval_on_selector_all(
        f".run:nth-child({side}) .boxes span", script
    )
    return found


async def test_lapse_plays_to_its_end_and_again(browser: Browser, url: str) -> None:
    async with tab(browser) as one:
        await one.page.clock.install(time=0)
        await one.page.clock.pause_at(1)  # real time does not count
        await one.opened(url)
        assert "Pause" in await one.page.inner_text("#play")
        await one.page.clock.run_for(30_000)
        assert 20 < await one.page.evaluate(TIME) < 40
        await one.page.click("#play")
        paused = await one.page.evaluate(TIME)
        await one.page.clock.run_for(10_000)
        assert await one.page.evaluate(TIME) == paused
        await one.page.select_option("#speed", label="4 min per second")
        await one.page.click("#play")
        await one.page.clock.run_for(20_000)
        assert await one.page.evaluate(TIME) == FRAMES - 1
        assert "Play" in await one.page.inner_text("#play")
        await one.page.click("#play")
        await one.page.clock.run_for(1_000)
        assert await one.page.evaluate(TIME) < 10
        assert (one.faults, one.requests) == ([], [url])


async def test_lapse_starts_paused_when_motion_is_reduced(browser: Browser, url: str) -> None:
    async with tab(browser) as one:
        await one.page.clock.install(time=0)
        await one.page.clock.pause_at(1)  # real time does not count
        await calm(one, url)
        assert "Play" in await one.page.inner_text("#play")
        await one.page.clock.run_for(10_000)
        assert await one.page.evaluate(TIME) == 0


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_lapse_works_by_keyboard(browser: Browser, url: str, size: tuple[int, int]) -> None:
    async with tab(browser, size) as one:
        await calm(one, url)
        press = one.page.keyboard.press
        await one.page.focus("#play")
        await press("Tab")
        for _ in range(5):
            await press("ArrowRight")
        assert await one.page.inner_text("#clock") == "5 min of 1 h"
        assert await one.page.get_attribute("#time", "aria-valuetext") == "5 min"
        assert await boxes(one, 1) == ["", "", "", ""]
        assert await boxes(one, 2) == ["", "", "", "P"]
        await press("End")
        assert await boxes(one, 2) == ["", "", "-", "-"]
        assert "Nodes\n2" in await one.page.inner_text(".run:nth-child(2) .numbers")
        assert "x costs 38.3 % less than MostAllocated." in await one.page.inner_text("#outcome")
        await one.page.focus(".run:nth-child(2) select")
        await press("ArrowDown")
        assert await boxes(one, 2) == ["", "", "", "-"]
        assert "x other costs" in await one.page.inner_text("#outcome")
        assert await one.focused() == "Variant on the right"


@pytest.mark.parametrize(
    ("size", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["desktop light", "phone dark"]
)
async def test_lapse_is_accessible_and_fits_width(
    browser: Browser, url: str, size: tuple[int, int], dark: bool
) -> None:
    async with tab(browser, size, dark) as one:
        await calm(one, url)
        await one.page.evaluate("document.getElementById('time').value = 15")
        await one.page.dispatch_event("#time", "input")
        assert await one.violations() == []
        assert await one.page.evaluate("document.documentElement.scrollWidth") <= size[0]


async def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    url = written(tmp_path, replayed(HOSTILE, HOSTILE))
    async with tab(browser) as one:
        await calm(one, url)
        assert await one.page.title() == "Ebb: time lapse"
        assert await one.page.query_selector("img") is None
        assert HOSTILE in await one.page.inner_text("#headline")
        assert HOSTILE in await one.page.inner_text(".run h4")
        assert await one.page.get_attribute(".run span", "title") == (
            f"{HOSTILE}-0: not marked, empty"
        )
        assert (one.faults, one.requests) == ([], [url])
