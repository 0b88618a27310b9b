"""Write docs/demo.gif, a recording of the demo's page: `python -m tests.support.lapse_picture`."""

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from cli.demo import variants
from cli.formats.page import lapse
from sim import waves
from sim.processes import run_all
from sim.scenario import PACKING, SURGE, description, recorded
from tests.support.browser import chromium, tab

PICTURE = Path(__file__).parents[2] / "docs" / "demo.gif"
SEED = 1
WIDTH = 1000
MOMENTS = 72
MILLIS = 150
"""Duration of a picture."""
LAST_MILLIS = 4000
COLORS = 128
START = "Number(document.getElementById('time').value)"
MOVE = """([start, share]) => {
  const time = document.getElementById("time");
  time.value = Math.round(start + share * (time.max - start));
  time.dispatchEvent(new Event("input"));
}"""


async def moments(url: str) -> AsyncIterator[Image.Image]:
    """Yield pictures of the page, from its headline to the chart of the cost."""
    async with chromium() as browser, tab(browser, (WIDTH, 2000)) as one:
        await one.page.emulate_media(reduced_motion="reduce")
        await one.opened(url)
        chart = await one.page.locator("figure").first.bounding_box()
        assert chart
        area = {"x": 0.0, "y": 0.0, "width": WIDTH, "height": chart["y"] + chart["height"] + 8}
        # The page starts when the nodes are filled.
        start = await one.page.evaluate(START)
        for index in range(MOMENTS + 1):
            await one.page.evaluate(MOVE, [start, index / MOMENTS])
            picture = await one.page.screenshot(clip=area)  # type: ignore[arg-type]
            yield Image.open(io.BytesIO(picture)).convert("RGB")


async def write(url: str) -> None:
    """Write the recording of a page."""
    pictures = [one async for one in moments(url)]
    # With one palette and without dithering, equal parts of pictures stay equal and are left out.
    palette = pictures[MOMENTS // 2].quantize(COLORS, dither=Image.Dither.NONE)
    first, *others = (one.quantize(palette=palette, dither=Image.Dither.NONE) for one in pictures)
    durations = [*(len(others) * [MILLIS]), LAST_MILLIS]
    first.save(PICTURE, save_all=True, append_images=others, duration=durations, loop=0)


def main() -> None:
    load = waves.mixed(SEED, 1)
    shown = PACKING, SURGE
    scenarios = [recorded(one) for one in shown]
    results = run_all(scenarios, load, seed=SEED, wire=False, on_progress=lambda *_: None)
    with TemporaryDirectory() as folder:
        html = Path(folder, "demo.html")
        title = f"a day of a cluster with {len(load.nodes)} nodes at the start, seed {SEED}"
        html.write_text(
            lapse.demo(title, variants(results), list(map(description, shown))), "utf-8"
        )
        asyncio.run(write(html.as_uri()))


if __name__ == "__main__":
    main()
