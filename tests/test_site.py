"""The documentation builds as a site without a warning, and its pages fit on a phone."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e.plane import LOOPBACK
from tests.support.browser import chromium, needs_chromium, tab

site = pytest.importorskip("tests.support.site", reason="mkdocs is not installed: make setup")
WIDE = (1440, 900)
NARROW = (390, 844)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = site.build_site(tmp_path_factory.mktemp("site"))
    return found


@pytest.fixture
def pages(built: Path) -> list[Path]:
    return list(built.rglob("index.html"))


@pytest.fixture
def url(built: Path) -> Iterator[str]:
    with ThreadingHTTPServer((LOOPBACK, 0), partial(_Quiet, directory=str(built))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{LOOPBACK}:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_site_builds_without_warning(built: Path) -> None:
    assert "Tutorial: remove a node" in (built / "docs/tutorial/index.html").read_text("utf-8")


@pytest.mark.long
@needs_chromium
async def test_site_pages_are_no_wider_than_a_phone(built: Path, pages: list[Path]) -> None:
    widths = {}
    async with chromium() as browser, tab(browser, NARROW) as one:
        for page in pages:
            await one.page.goto(page.as_uri(), wait_until="domcontentloaded")
            width = await one.page.evaluate("document.documentElement.scrollWidth")
            widths[str(page.relative_to(built))] = width
    assert [path for path, width in widths.items() if width > NARROW[0]] == []
    assert "docs/settings/index.html" in widths


@pytest.mark.long
@needs_chromium
async def test_site_starts_with_readme_and_groups_of_pages(url: str) -> None:
    readme = (site.ROOT / "README.md").read_text("utf-8")
    async with chromium() as browser, tab(browser, WIDE) as one:
        await one.page.goto(url)
        content = one.page.get_by_role("main")
        first_words = readme.partition("\n\n")[2].partition("\n")[0]
        assert first_words in (await content.inner_text())
        image = content.locator("img").first
        assert await image.evaluate("image => image.naturalWidth") > 0
        headings = await content.locator("h2").all_inner_texts()
        assert [one.rstrip("¶") for one in headings] == list(site.LANDING)
        groups = await one.page.locator("#navbar-collapse .navbar-nav").first.locator(
            "> .dropdown > a"
        ).all_inner_texts()  # fmt: skip
        assert groups == ["Start", "Operate", "Understand", "Reference", "Project"]
        await one.page.wait_for_load_state("networkidle")
        assert [asked for asked in one.requests if not asked.startswith(url)] == []
        assert [fault for fault in one.faults if not fault.startswith("log: ")] == []


@pytest.mark.long
@needs_chromium
async def test_site_is_dark_when_browser_is_dark_or_reader_chooses_it(url: str) -> None:
    shown = "getComputedStyle(document.body).backgroundColor"
    async with chromium() as browser:
        async with tab(browser, WIDE, dark=True) as one:
            await one.page.goto(url)
            dark = await one.page.evaluate(shown)
        async with tab(browser, WIDE) as one:
            await one.page.goto(url)
            assert await one.page.evaluate(shown) == "rgb(255, 255, 255)" != dark
            await one.page.get_by_label("Toggle theme").click()
            await one.page.get_by_role("button", name="Dark").click()
            assert await one.page.evaluate(shown) == dark
