"""Write docs/page.png, a picture of the page: `python -m tests.support.page_picture`."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from cli.formats.page import text
from tests.support.browser import chromium, tab
from tests.support.page import plan_of, showcase

PICTURE = Path(__file__).parents[2] / "docs" / "page.png"
SIZE = (1200, 900)


def write(picture: Path) -> None:
    """Write the picture of the page."""
    with TemporaryDirectory() as folder:
        html = Path(folder, "page.html")
        html.write_text(text(plan_of(showcase())), "utf-8")
        asyncio.run(_write(html.as_uri(), picture))


async def _write(url: str, picture: Path) -> None:
    async with chromium() as browser, tab(browser, SIZE) as one:
        await one.opened(url)
        await one.page.screenshot(path=picture, full_page=True)


if __name__ == "__main__":
    write(PICTURE)
