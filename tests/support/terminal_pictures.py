"""Write docs/plan.svg and docs/top.svg: `python -m tests.support.terminal_pictures`."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from cli.formats.page.state import PageState
from cli.formats.text import plan
from cli.top.screen import ScreenState, render
from tests.support.clock import START
from tests.support.page import plan_of, showcase

DOCS: Final = Path(__file__).parents[2] / "docs"
WIDTH: Final = 104
TOP_WIDTH: Final = 128
PLAN_LINES: Final = 50
TOP_LINES: Final = 34
# As rich's own template, without fonts from a server: the pages of the site load nothing.
SVG: Final = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px Consolas, Menlo, monospace }}
.{unique_id}-title {{ font: bold 18px sans-serif }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def pictures() -> Mapping[str, str]:
    """Return the content of each file, as SVG."""
    return {"plan.svg": _plan(), "top.svg": _top()}


def _plan() -> str:
    whole = _terminal()
    with whole.capture() as captured:
        plan.write(plan_of(showcase(START), START), whole)
    lines = Text.from_ansi(captured.get()).split()
    shown = _terminal()
    shown.print(*lines[:PLAN_LINES], sep="\n")
    shown.print(f"... {len(lines) - PLAN_LINES} more lines", style="dim")
    return _svg(shown, "ebb plan")


def _top() -> str:
    state = PageState(plan_of(showcase(START), START)).document(details=False)
    shown = _terminal(TOP_WIDTH)
    shown.print(render(state, (), ScreenState(), TOP_WIDTH, TOP_LINES))
    return _svg(shown, "ebb top")


def _terminal(width: int = WIDTH) -> Console:
    return Console(
        record=True,
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
        highlight=False,
        emoji=False,
        markup=False,
    )


def _svg(shown: Console, title: str) -> str:
    drawn = shown.export_svg(title=title, code_format=SVG, unique_id=title.replace(" ", "-"))
    return "".join(f"{line.strip()}\n" for line in drawn.splitlines() if line.strip())


if __name__ == "__main__":
    for name, drawn in pictures().items():
        (DOCS / name).write_text(drawn, "utf-8")
