"""The page's pictures, as SVG that stands in HTML: no scripts, nothing from elsewhere."""

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import cycle
from typing import Final

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cli.answers import VariantResult
from sim.report import COST, PENDING, Row

FAR: Final = 2
"""What costs more than so many times the cheapest would press all others together."""
WIDE: Final = 30
"""From so many times the least on, waits are drawn on a logarithmic scale."""
GREY: Final = "#6b7280"
RED: Final = "#c2313f"
BLUE: Final = "#2563a8"
GREEN: Final = "#1f8a4c"
COLOURS: Final = (GREY, RED, "#b7791f", BLUE, GREEN, "#7c3aed", "#0e8f9c", "#9d5b3f", "#444444")


def near_and_far(ways: Sequence[VariantResult]) -> tuple[list[VariantResult], list[VariantResult]]:
    """Return the ways that are drawn beside each other, and those that cost too much for that."""
    least = min(way.mean(COST) for way in ways)
    near = [way for way in ways if way.mean(COST) <= FAR * least]
    return near, [way for way in ways if way not in near]


def tradeoff(ways: Sequence[VariantResult], chosen: str) -> Markup:
    """Draw cost against waits: each way with its range, and what nothing is better than."""
    with _style():
        figure = Figure(figsize=(11, 5.5), layout="constrained")
        axes = figure.subplots()
        best = sorted((way for way in ways if way.best), key=lambda way: way.mean(PENDING))
        axes.plot(
            [float(way.mean(PENDING)) for way in best],
            [float(way.mean(COST)) for way in best],
            color=GREEN, lw=1.2, ls="--", zorder=1, label="nothing is better in both",
        )  # fmt: skip
        marks = cycle("sD^vP*X<>")
        for way in ways:
            _point(axes, way, "o" if way.settings else next(marks), chosen=way.name == chosen)
        _scale(axes, ways)
        axes.set_xlabel(f"pods wait: {PENDING.label}, mean and range over the seeds")
        axes.set_ylabel(COST.label)
        _plain(axes)
        figure.legend(loc="outside right upper", frameon=False, fontsize=9)
        return _svg(figure)


def _point(axes: Axes, way: VariantResult, mark: str, *, chosen: bool) -> None:
    wait, cost = (_of(way, row) for row in (PENDING, COST))
    colour = BLUE if way.settings else GREY
    axes.errorbar(
        wait[0], cost[0],
        xerr=[[wait[0] - wait[1]], [wait[2] - wait[0]]],
        yerr=[[cost[0] - cost[1]], [cost[2] - cost[0]]],
        fmt=mark, ms=9 if chosen else 6, color=GREEN if chosen else colour,
        elinewidth=0.6, alpha=1 if chosen or not way.settings else 0.55,
        label=None if way.settings and not chosen else way.name, zorder=3 if chosen else 2,
    )  # fmt: skip


def _of(way: VariantResult, row: Row) -> tuple[float, float, float]:
    found = way.figure(row)
    return float(found.mean or 0), float(found.least or 0), float(found.most or 0)


def _scale(axes: Axes, ways: Sequence[VariantResult]) -> None:
    waits = sorted(float(way.mean(PENDING)) for way in ways if way.mean(PENDING))
    if waits and waits[-1] > WIDE * waits[0]:
        axes.set_xscale("symlog", linthresh=max(waits[0], 1.0))
    most = max(_of(way, PENDING)[2] for way in ways)
    axes.set_xlim(-max(most, 1) / 100, max(1.1 * most, 1))


def capacity(ways: Sequence[VariantResult]) -> Markup:
    """Draw how many cores stood there over time, with the first seed, and what was asked for."""
    with _style():
        figure = Figure(figsize=(11, 4.4), layout="constrained")
        axes = figure.subplots()
        for way, colour in zip(ways, cycle(COLOURS), strict=False):
            hours = [moment.hours for moment in way.moments]
            cores = [moment.cores for moment in way.moments]
            axes.plot(hours, cores, color=colour, lw=1.3, label=way.name)
        asked = ways[-1].moments
        axes.fill_between(
            [moment.hours for moment in asked],
            [moment.cores_requested for moment in asked],
            color="#f2c14e", alpha=0.45, label=f"requested ({ways[-1].name})",
        )  # fmt: skip
        axes.set_xlabel("hours")
        axes.set_ylabel("cores of capacity")
        axes.set_ylim(bottom=0)
        _plain(axes)
        figure.legend(loc="outside right upper", frameon=False, fontsize=9)
        return _svg(figure)


def _style() -> AbstractContextManager[None]:
    """Let text stay text, equal pictures be equal bytes, and names be no formulas."""
    return rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "ebb",
            "text.parse_math": False,
            "font.size": 10,
        }
    )


def _plain(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _svg(figure: Figure) -> Markup:
    """Return the picture's element alone: a page has one prolog, its own."""
    whole = io.StringIO()
    nobody = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(whole, format="svg", metadata=nobody)
    drawn = whole.getvalue()
    return Markup(drawn[drawn.index("<svg") :])  # noqa: S704 matplotlib has escaped its texts
