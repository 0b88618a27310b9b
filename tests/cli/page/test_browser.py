"""The page in headless Chromium: from a file and from the server, by keyboard, on a phone."""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser

from cli.formats.page import text
from cli.input.cluster_input import ClusterInput
from cli.page.hub import Hub
from cli.page.server import PageServer
from cli.page.worker import Worker
from controller.day_report import StateSample
from core.engine.zones import ZONE_LABEL
from tests.support import builders
from tests.support.browser import DESKTOP, PHONE, Tab, chromium, needs_chromium, tab
from tests.support.page import (
    HOSTILE,
    NOW,
    hostile_input,
    input_of,
    plan_of,
    saved,
    showcase,
    with_day,
)

pytestmark = [needs_chromium, pytest.mark.long]
LONG = "ip-10-0-0-1.a-very-long-name-of-a-node.eu-central-1.compute.internal"

TABS_MAX = 10


def zoned(name: str, zone: str) -> Any:
    return builders.node(name, labels={ZONE_LABEL: zone})


NODES = [*(zoned(f"a{n:02}", "a") for n in range(1, 31)), zoned("b1", "b"), zoned(LONG, "b")]
PODS = [
    builders.pod("web", "a01", 3000, 6000),
    builders.pod("bare", LONG, 500, 1000),
    builders.pod("late", None, 900_000, 10),
]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.stop()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as made:
        yield made


def written(folder: Path, cluster_input: ClusterInput) -> str:
    """Write the page to a file, and return its URL."""
    path = folder / "page.html"
    path.write_text(text(plan_of(cluster_input)), "utf-8")
    return path.as_uri()


async def tab_to(one: Tab, label: str) -> None:
    """Press Tab, from the search field on, until an element with this label has the focus."""
    await one.page.focus("#filter")
    for _ in range(TABS_MAX):
        await one.page.keyboard.press("Tab")
        if (await one.focused()).startswith(label):
            return
    raise AssertionError(await one.focused())


async def check_keyboard(one: Tab) -> None:
    """Open and close nodes without a pointer."""
    press = one.page.keyboard.press
    await tab_to(one, "a01: ")
    await press("ArrowRight")
    assert (await one.focused()).startswith("a02: ")
    await press("ArrowDown")
    assert not (await one.focused()).startswith(("a01: ", "a02: ", "a03: "))
    await press("ArrowUp")
    assert (await one.focused()).startswith("a02: ")
    await press("Home")
    await press("End")
    assert (await one.focused()).startswith(f"{LONG}: ")
    await press("Enter")
    await one.page.wait_for_selector("#detail-body dl")
    assert await one.page.inner_text("#detail-title") == LONG
    assert "d/bare" in await one.page.inner_text("#detail-body")
    await press("Escape")
    assert not await one.page.is_visible("#detail")
    assert (await one.focused()).startswith(f"{LONG}: ")
    await press("Enter")
    await one.page.wait_for_selector("#detail-body dl")
    assert await one.focused() == "Close"
    await press("Enter")
    assert not await one.page.is_visible("#detail")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_file_works_by_keyboard_and_loads_nothing(
    browser: Browser, tmp_path: Path, size: tuple[int, int]
) -> None:
    async with tab(browser, size) as one:
        url = written(tmp_path, input_of(NODES, PODS))
        await one.opened(url)
        assert "nodes can be removed" in await one.page.inner_text("#headline")
        assert "d/late" in await one.page.inner_text("#pending")
        await check_keyboard(one)
        assert await one.page.is_hidden("#what-if")
        assert (one.faults, one.requests) == ([], [url])


async def test_server_page_works_by_keyboard_and_answers_what_if(
    browser: Browser, worker: Worker
) -> None:
    hub = Hub()
    async with PageServer(hub, worker) as server, tab(browser) as one:
        await hub.publish(await worker.state(input_of(NODES, PODS)))
        await one.opened(server.url)
        await check_keyboard(one)
        await one.page.get_by_role("button", name="a01: ").click()
        await one.page.get_by_role("button", name="What if this node were gone?").click()
        await one.page.wait_for_selector("#what-if-answer p:nth-child(2)")
        answer = await one.page.inner_text("#what-if-answer")
        assert "Other nodes have room for 1 of 1 pod of the node." in answer
        await one.page.click("#what-if summary")
        await one.page.fill("#cpu", "3%")
        await one.page.keyboard.press("Enter")
        await one.page.wait_for_selector("#what-if-answer p:has-text('CPU threshold 3%')")
        assert await one.page.locator("#nodes .changed").count()
        await one.page.get_by_role("button", name="Back to the plan of now").click()
        assert not await one.page.locator("#nodes .changed").count()
        await one.page.fill("#headroom", "many")
        await one.page.keyboard.press("Enter")
        await one.page.wait_for_selector("#what-if-answer p:has-text('No answer: headroom')")
        ours = server.url.partition("?")[0]
        assert all(url.startswith(ours) for url in one.requests)
        # Chromium logs the status 400 of the second what-if.
        assert [fault for fault in one.faults if "400" not in fault] == []


async def test_page_follows_states_warnings_and_end_of_server(
    browser: Browser, worker: Worker
) -> None:
    hub = Hub()
    async with tab(browser) as one:
        async with PageServer(hub, worker) as server:
            await hub.publish(await worker.state(input_of(NODES[:2], PODS)))
            await one.opened(server.url)
            await one.page.focus("#nodes button")
            await hub.publish(await worker.state(input_of(NODES, PODS)))
            await one.page.wait_for_selector("body[data-nodes='32']")
            assert (await one.focused()).startswith("a01: ")
            hub.warn(["What is shown may be out of date: the watch of pods was interrupted."])
            await one.page.wait_for_selector("#banners p:has-text('out of date')")
            assert await one.page.query_selector(".stale") is None
            hub.warn([], 1_700_000_000, stale=True)
            await one.page.wait_for_selector(".stale #nodes")
            await one.page.wait_for_selector("#updated:has-text(' ago')")
            assert await one.violations() == []
            hub.warn([], 1_700_000_000)
            await one.page.wait_for_selector("body:not(.stale)")
        await one.page.wait_for_selector("#banners p:has-text('is lost')")
        await one.page.wait_for_selector(".stale #nodes")


async def test_page_waits_for_first_state(browser: Browser, worker: Worker) -> None:
    hub = Hub()
    async with PageServer(hub, worker) as server, tab(browser) as one:
        await one.page.goto(server.url)
        assert "Reading the cluster" in await one.page.inner_text("#headline")
        await hub.publish(await worker.state(input_of(NODES, PODS)))
        await one.page.wait_for_selector("body[data-nodes='32']")


async def test_wrong_token_shows_only_how_to_open_page(browser: Browser, worker: Worker) -> None:
    hub = Hub()
    async with PageServer(hub, worker) as server, tab(browser) as one:
        await hub.publish(await worker.state(input_of(NODES, PODS)))
        response = await one.page.goto(f"{server.url}x")
        assert response
        assert response.status == 403
        assert "use the URL that `ebb page` prints" in await one.page.inner_text("body")


@pytest.mark.parametrize("served", [True, False], ids=["server", "file"])
async def test_hostile_names_are_shown_as_text(
    browser: Browser, worker: Worker, tmp_path: Path, served: bool
) -> None:
    hub = Hub()
    async with PageServer(hub, worker) as server, tab(browser) as one:
        await hub.publish(await worker.state(hostile_input()))
        await one.opened(server.url if served else written(tmp_path, hostile_input()))
        await one.page.locator("#nodes button", has_text="").last.click()
        await one.page.get_by_role("button", name=HOSTILE).first.click(force=True)
        await one.page.wait_for_selector("#detail-body dl")
        assert await one.page.inner_text("#detail-title") == HOSTILE
        assert f"{HOSTILE}={HOSTILE}" in (await one.page.text_content("#detail-body") or "")
        assert await one.page.title() == "Ebb"
        assert await one.page.locator("img").count() == 0
        assert one.faults == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_axe_finds_nothing(
    browser: Browser, tmp_path: Path, size: tuple[int, int], dark: bool
) -> None:
    async with tab(browser, size, dark) as one:
        await one.opened(written(tmp_path, showcase()))
        assert await one.violations() == []
        for number in range(await one.page.locator("#nodes button").count()):
            await one.page.locator("#nodes button").nth(number).click()
            await one.page.wait_for_selector("#detail-body dl")
            if number < 3:
                assert await one.violations() == []
            await one.page.keyboard.press("Escape")


@pytest.mark.parametrize("given", ["showcase", "hostile"])
async def test_page_fits_into_360_pixels(browser: Browser, tmp_path: Path, given: str) -> None:
    cluster_input = showcase() if given == "showcase" else hostile_input()
    async with tab(browser, PHONE) as one:
        await one.opened(written(tmp_path, replace(cluster_input, where="w" * 200)))
        assert await one.page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
        await one.page.locator("#nodes button").first.click()
        await one.page.wait_for_selector("#detail-body dl")
        script = "e => e.scrollWidth - e.clientWidth"
        assert await one.page.evaluate(f"({script})(document.getElementById('detail'))") == 0


async def test_filter_hides_other_nodes_and_keeps_keyboard(
    browser: Browser, tmp_path: Path
) -> None:
    async with tab(browser) as one:
        await one.opened(written(tmp_path, input_of(NODES, PODS)))
        await one.page.fill("#filter", "B1")
        assert await one.page.locator("#nodes button:visible").count() == 1
        await tab_to(one, "b1: ")


async def test_reasons_and_states_select_nodes(browser: Browser, tmp_path: Path) -> None:
    async with tab(browser) as one:
        await one.opened(written(tmp_path, showcase()))
        shown = one.page.locator("#nodes button:visible")
        reason = one.page.locator("#reasons button", has_text="cordoned")
        await reason.click()
        assert await shown.count() == 1
        assert await one.page.inner_text("#count") == "1 of 60 nodes"
        assert "kubectl uncordon" in await one.page.inner_text("#reason")
        await one.page.locator("#legend button", has_text="leaving").click()
        assert await one.page.inner_text("#count") == "No node matches."
        await reason.click()
        assert (await shown.get_attribute("aria-label") or "").startswith("general-a-33: leaving")
        await one.page.click("#all")
        assert await shown.count() == 60
        await one.page.select_option("#namespace", label="ops")
        await one.page.select_option("#pool", label="general")
        assert (await shown.get_attribute("aria-label") or "").startswith("general-b-01: ")


async def test_headings_of_pools_count_marked_nodes_that_are_removable(
    browser: Browser, tmp_path: Path
) -> None:
    answer = plan_of(showcase())
    assert any(row.order is not None and row.mark for row in answer.rows)
    async with tab(browser) as one:
        await one.opened(written(tmp_path, showcase()))
        headings = " ".join(await one.page.locator("#nodes h3").all_inner_texts())
        counts = [int(count) for count in re.findall(r"(\d+) removable", headings)]
        assert sum(counts) == answer.headline.removable


async def test_names_in_boxes_are_shortened_where_they_do_not_fit(
    browser: Browser, tmp_path: Path
) -> None:
    nodes = [builders.node(f"general-a-{number:02}") for number in range(30)]
    async with tab(browser, PHONE) as one:
        await one.opened(written(tmp_path, input_of(nodes, [])))
        names = one.page.locator("#nodes .name")
        assert await names.evaluate_all("all => all.every(e => e.scrollWidth <= e.clientWidth)")
        assert await names.first.is_visible()
        assert await names.first.inner_text() == "00"


async def test_node_has_link(browser: Browser, tmp_path: Path) -> None:
    url = written(tmp_path, input_of(NODES, PODS))
    async with tab(browser) as one:
        await one.opened(f"{url}#node=constructor")
        assert "does not exist any more" in await one.page.inner_text("#detail-body")
        await one.page.evaluate("location.hash = '#node=b1'")
        await one.page.wait_for_selector("#detail-body dl")
        assert await one.page.inner_text("#detail-title") == "b1"
        await one.page.keyboard.press("Escape")
        await one.page.wait_for_url(url)
        link = one.page.locator("#plan a").first
        name = await link.inner_text()
        await link.click()
        await one.page.wait_for_selector(f"#detail-title:text-is('{name}')")
        assert one.page.url == f"{url}#node={name}"
        assert await one.page.inner_text("#detail-body .verdict") == (
            "Removable, number 1 of the plan. It is empty."
        )


async def test_chart_shows_samples_of_leader(browser: Browser, tmp_path: Path) -> None:
    samples = [StateSample(NOW - 600 * n, 60 + n, n, 9 - n, 2) for n in reversed(range(10))]
    async with tab(browser) as one:
        for shown in (samples[-1:], samples):
            await one.opened(
                written(tmp_path, with_day(showcase(), shown, today=saved(14, 5), month=None))
            )
            assert await one.page.is_visible("#day-section") is (shown is samples)
        captions = await one.page.locator("#day figcaption").all_inner_texts()
        assert [caption.replace("\n", " ") for caption in captions] == [
            "Nodes 60 60 to 69",
            "Marked 0 0 to 9",
            "Removed 9 0 to 9",
            "Pods Pending 2 0 to 2",
        ]


async def test_area_of_box_is_size_of_node(browser: Browser, tmp_path: Path) -> None:
    nodes = [builders.node(f"n{size}", size * 1000, size * 4000) for size in (4, 16)]
    async with tab(browser) as one:
        await one.opened(written(tmp_path, input_of(nodes, [])))
        areas = []
        for node in nodes:
            box = await one.page.get_by_role("button", name=f"{node.name}: ").bounding_box()
            assert box
            areas.append(box["width"] * box["height"])
            assert await one.page.locator(".name", has_text=node.name).is_visible()
        assert 3.8 < areas[1] / areas[0] < 4.2
