"""The charts of the page as inline SVG: no scripts, no external resources."""

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
from sim.report import COST, PENDING, RunMetric

FAR: Final = 2
"""Variants above this multiple of the lowest cost are not drawn: they would compress the
others."""
WIDE: Final = 30
"""Ratio of the longest to the shortest Pending time from which the axis is logarithmic."""
GREY: Final = "#6b7280"
RED: Final = "#c2313f"
BLUE: Final = "#2563a8"
GREEN: Final = "#1f8a4c"
COLOURS: Final = (GREY, RED, "#b7791f", BLUE, GREEN, "#7c3aed", "#0e8f9c", "#9d5b3f", "#444444")


def near_and_far(
    variants: Sequence[VariantResult],
) -> tuple[list[VariantResult], list[VariantResult]]:
    """Split the variants into those that are drawn and those that are too expensive to draw."""
    least = min(variant.mean(COST) for variant in variants)
    near = [variant for variant in variants if variant.mean(COST) <= FAR * least]
    return near, [variant for variant in variants if variant not in near]


def tradeoff(variants: Sequence[VariantResult], chosen: str) -> Markup:
    """Draw cost against Pending time: each variant with its range, and the best tradeoffs."""
    with _style():
        figure = Figure(figsize=(11, 5.5), layout="constrained")
        axes = figure.subplots()
        best = sorted(
            (variant for variant in variants if variant.best),
            key=lambda variant: variant.mean(PENDING),
        )
        axes.plot(
            [float(variant.mean(PENDING)) for variant in best],
            [float(variant.mean(COST)) for variant in best],
            color=GREEN, lw=1.2, ls="--", zorder=1, label="best tradeoffs",
        )  # fmt: skip
        marks = cycle("sD^vP*X<>")
        for variant in variants:
            _point(
                axes,
                variant,
                "o" if variant.settings else next(marks),
                chosen=variant.name == chosen,
            )
        _scale(axes, variants)
        axes.set_xlabel(f"{PENDING.label}, mean and range over the seeds")
        axes.set_ylabel(COST.label)
        _plain(axes)
        figure.legend(loc="outside right upper", frameon=False, fontsize=9)
        return _svg(figure)


def _point(axes: Axes, variant: VariantResult, mark: str, *, chosen: bool) -> None:
    wait, cost = (_values(variant, metric) for metric in (PENDING, COST))
    colour = BLUE if variant.settings else GREY
    axes.errorbar(
        wait[0], cost[0],
        xerr=[[wait[0] - wait[1]], [wait[2] - wait[0]]],
        yerr=[[cost[0] - cost[1]], [cost[2] - cost[0]]],
        fmt=mark, ms=9 if chosen else 6, color=GREEN if chosen else colour,
        elinewidth=0.6, alpha=1 if chosen or not variant.settings else 0.55,
        label=None if variant.settings and not chosen else variant.name, zorder=3 if chosen else 2,
    )  # fmt: skip


def _values(variant: VariantResult, metric: RunMetric) -> tuple[float, float, float]:
    figure = variant.figure_of(metric)
    return float(figure.mean or 0), float(figure.least or 0), float(figure.most or 0)


def _scale(axes: Axes, variants: Sequence[VariantResult]) -> None:
    waits = sorted(float(variant.mean(PENDING)) for variant in variants if variant.mean(PENDING))
    if waits and waits[-1] > WIDE * waits[0]:
        axes.set_xscale("symlog", linthresh=max(waits[0], 1.0))
    most = max(_values(variant, PENDING)[2] for variant in variants)
    axes.set_xlim(-max(most, 1) / 100, max(1.1 * most, 1))


def capacity(variants: Sequence[VariantResult]) -> Markup:
    """Draw the cores of all nodes over time, with the first seed, and the requested cores."""
    with _style():
        figure = Figure(figsize=(11, 4.4), layout="constrained")
        axes = figure.subplots()
        for variant, colour in zip(variants, cycle(COLOURS), strict=False):
            hours = [moment.hours for moment in variant.moments]
            cores = [moment.cores for moment in variant.moments]
            axes.plot(hours, cores, color=colour, lw=1.3, label=variant.name)
        last = variants[-1].moments
        axes.fill_between(
            [moment.hours for moment in last],
            [moment.cores_requested for moment in last],
            color="#f2c14e", alpha=0.45, label=f"requested ({variants[-1].name})",
        )  # fmt: skip
        axes.set_xlabel("hours")
        axes.set_ylabel("cores of capacity")
        axes.set_ylim(bottom=0)
        _plain(axes)
        figure.legend(loc="outside right upper", frameon=False, fontsize=9)
        return _svg(figure)


def _style() -> AbstractContextManager[None]:
    """Return matplotlib settings: selectable text, reproducible files, no math markup in names."""
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
    """Return only the svg element; an XML prolog is not allowed inside HTML."""
    file = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(file, format="svg", metadata=no_metadata)
    svg = file.getvalue()
    return Markup(svg[svg.index("<svg") :])  # noqa: S704 matplotlib has escaped its texts
