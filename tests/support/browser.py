"""Run pages in headless Chromium; tests are skipped if it is not installed."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed; `make chromium` installs it"
)
AXE = resources.files("axe_playwright_python") / "axe.min.js"
PHONE = (360, 740)
DESKTOP = (1280, 900)
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    # Chromium refuses to run as root with its sandbox, as in containers of CI.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        await browser.close()


class Tab:
    """A page with the faults and requests that it has caused."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda fault: self.faults.append(str(fault)))
        page.on("console", lambda line: self.faults.append(f"{line.type}: {line.text}"))
        page.on("request", lambda request: self.requests.append(request.url))

    async def opened(self, url: str) -> "Tab":
        """Open a URL, and wait until the page shows a state."""
        await self.page.goto(url)
        await self.page.wait_for_selector("body[data-nodes]")
        return self

    async def focused(self) -> str:
        """Return the label, text or id of the focused element."""
        script = "e => e.getAttribute('aria-label') || e.textContent || e.id"
        found: str = await self.page.evaluate(f"({script})(document.activeElement)")
        return found

    async def violations(self) -> list[Any]:
        """Return the findings of axe-core."""
        # The policy of the page allows no other script. DevTools are not subject to it.
        await self.page.evaluate(AXE.read_text("utf-8"))
        found = await self.page.evaluate(
            "rules => axe.run(document, {runOnly: rules}).then(found => found.violations)", RULES
        )
        return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]


@asynccontextmanager
async def tab(
    browser: Browser, size: tuple[int, int] = DESKTOP, dark: bool = False
) -> AsyncIterator[Tab]:
    width, height = size
    page = await browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        timezone_id="UTC",
        locale="en-US",
    )
    yield Tab(page)
    await page.close()
