"""Draw diagrams as SVG for the pages: texts, boxes, arrows and numbers, on a white card.

The card is white in a dark browser too, because an image does not see the colors of its page.
"""

from collections.abc import Iterable
from html import escape
from math import hypot
from typing import Final, NamedTuple

INK: Final = "#1f2937"
GRAY: Final = "#6b7280"
PALE: Final = "#e5e7eb"
WHITE: Final = "#ffffff"
GREEN: Final = "#a7f3d0"
YELLOW: Final = "#fde68a"
ORANGE: Final = "#fdba74"
RED: Final = "#dc2626"
ROSE: Final = "#fee2e2"
STYLE: Final = (
    f"text{{font-family:Helvetica,Arial,sans-serif;font-size:14px;fill:{INK}}}"
    f".small{{font-size:12px;fill:{GRAY}}}.bold{{font-weight:bold}}"
)
HEAD: Final = (
    '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
    f'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{GRAY}"/></marker>'
)
BADGE_RADIUS: Final = 9
NUMBER_AT: Final = 0.35
"""Place of its number on an arrow, so that numbers of crossing arrows do not overlap."""


class Box(NamedTuple):
    """A rectangle; *left* and *top* are its corner."""

    left: float
    top: float
    width: float
    height: float

    @property
    def middle(self) -> tuple[float, float]:
        """Return the center."""
        return self.left + self.width / 2, self.top + self.height / 2


def svg(width: int, height: int, parts: Iterable[str], label: str) -> str:
    """Return a drawing; *label* describes it to readers who do not see it."""
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    card = rect(Box(0.5, 0.5, width - 1, height - 1), WHITE, PALE, radius=8)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">'
    )
    return "\n".join([head, f"<style>{STYLE}</style>", HEAD, card, *parts, "</svg>", ""])


def rect(
    box: Box, fill: str = "none", stroke: str = INK, *, radius: int = 3, dashed: bool = False
) -> str:
    """Return a rectangle."""
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    place = f'x="{box.left:g}" y="{box.top:g}" width="{box.width:g}" height="{box.height:g}"'
    return f'<rect {place} rx="{radius}" fill="{fill}" stroke="{stroke}"{dashes}/>'


def text(x: float, y: float, shown: str, how: str = "", anchor: str = "start") -> str:
    """Return a line of text; *how*: classes of STYLE."""
    kind = f' class="{how}"' if how else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{kind}>{escape(shown)}</text>'


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return a straight arrow."""
    (x, y), (to_x, to_y) = start, end
    line = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {line} stroke="{GRAY}" stroke-width="1.5" marker-end="url(#head)"/>'


def numbered(before: Box, after: Box, number: int, aside: float) -> list[str]:
    """Return an arrow from box to box with a number; *aside*: its distance from the centers."""
    (x, y), (to_x, to_y) = before.middle, after.middle
    length = hypot(to_x - x, to_y - y)
    shift = aside * (to_y - y) / length, -aside * (to_x - x) / length
    start, end = _border(before, after.middle, shift), _border(after, before.middle, shift)
    at = tuple(a + NUMBER_AT * (b - a) for a, b in zip(start, end, strict=True))
    circle = f'cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{BADGE_RADIUS}"'
    return [
        arrow(start, end),
        f'<circle {circle} fill="{WHITE}" stroke="{GRAY}"/>',
        text(round(at[0], 1), round(at[1] + 4, 1), str(number), "small", "middle"),
    ]


def _border(
    box: Box, towards: tuple[float, float], shift: tuple[float, float]
) -> tuple[float, float]:
    """Return where a line from the center to a point leaves the box, if it is shifted."""
    x, y = box.middle[0] + shift[0], box.middle[1] + shift[1]
    dx, dy = towards[0] - box.middle[0], towards[1] - box.middle[1]
    sides = [
        (edge - at) / step
        for at, step, edges in (
            (x, dx, (box.left, box.left + box.width)),
            (y, dy, (box.top, box.top + box.height)),
        )
        for edge in edges
        if step
    ]
    share = min(one for one in sides if one > 0)
    return x + share * dx, y + share * dy
