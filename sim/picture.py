"""Draw charts of simulations over time; needs matplotlib."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from core.model.errors import InvalidInputError
from runtime import files
from sim.report import COST, EVICTED, PENDING
from sim.simulated_load import HOUR_MS
from sim.simulator import Result, Sample

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS: Final = (
    "#6b6b6b", "#d1495b", "#e09f3e", "#5fa8d3", "#1f6f4a", "#8e6bbf", "#123b73"
)  # fmt: skip
SUFFIXES: Final = (".png", ".svg")
HOUR_STEPS: Final = (1, 1.2, 2.4, 3, 6, 10)
"""Distances of the hours on an axis, times a power of ten: 6, 12 and 24 divide days."""
BELOW: Final[tuple[tuple[str, Callable[[Sample], float]], ...]] = (
    (f"{EVICTED.label} so far", lambda sample: sample.evicted),
    (f"{PENDING.label} so far", lambda sample: sample.pending_ms / 1000),
    ("marked nodes", lambda sample: sample.marked),
)
"""Title of each small chart, and the value that it shows over time."""


def check(path: str) -> None:
    """Fail before a simulation if *path* or the lack of matplotlib prevents a picture.

    Raises: InvalidInputError.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise InvalidInputError(path, f"allowed: a name that ends in {' or '.join(SUFFIXES)}")
    files.check_target(path)
    _figure_class(path)


def _figure_class(path: str) -> "type[Figure]":
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 an optional dependency
    except ImportError as fault:
        problem = "the picture needs matplotlib: pip install 'kube-ebb[demo]'"
        raise InvalidInputError(path, problem) from fault
    return Figure


def draw(results: Mapping[str, Result], title: str, path: str) -> None:
    """Draw runs over time, and write the picture to *path*. Raises: InvalidInputError.

    *results*: result of each run by its name. The suffix of the path selects PNG or SVG.
    """
    figure = _figure_class(path)(figsize=(10, 8), layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=(2, 1))[:, 0]
    runs = list(zip(results.items(), COLOURS, strict=False))
    _costs(top.subplots(), runs)
    top.suptitle(title, x=0.01, ha="left", fontweight="bold")
    for axis, (what, height) in zip(bottom.subplots(1, len(BELOW)), BELOW, strict=True):
        for (_, result), colour in runs:
            _line(axis, result.samples, height, color=colour)
        axis.set_title(what, loc="left", fontsize=10)
        _finish(axis)
    _save(figure, path)


def _save(figure: "Figure", path: str) -> None:
    try:
        figure.savefig(Path(path), dpi=120)
    except (OSError, ValueError) as fault:
        problem = getattr(fault, "strerror", None) or str(fault).splitlines()[0]
        raise InvalidInputError(path, problem) from fault


def _costs(axis: "Axes", runs: Sequence[tuple[tuple[str, Result], str]]) -> None:
    for (name, result), colour in runs:
        label = (
            f"{name}: cost {COST.cell(result)}, {PENDING.label} {PENDING.cell(result)}, "
            f"{EVICTED.cell(result)} evicted"
        )
        _line(
            axis,
            result.samples,
            lambda sample: float(sample.cost),
            color=colour,
            label=label,
            lw=1.8,
        )
    least = [sample for sample in runs[-1][0][1].samples if sample.least is not None]
    heights = [float(sample.least or 0) for sample in least]
    hours = [sample.at_ms / HOUR_MS for sample in least]
    bound = f"lower bound for the running pods ({runs[-1][0][0]}; LP)"
    axis.fill_between(hours, heights, color="#e4e4e4", lw=0, label=bound)
    axis.set_ylabel("hourly cost of the nodes")
    _finish(axis)
    axis.legend(loc="upper left", frameon=False, fontsize=9)
    axis.set_ylim(top=axis.get_ylim()[1] * (1 + 0.07 * len(runs)))  # room for the legend


def _line(
    axis: "Axes", samples: Sequence[Sample], height: Callable[[Sample], float], **style: object
) -> None:
    hours = [sample.at_ms / HOUR_MS for sample in samples]
    axis.plot(hours, [height(sample) for sample in samples], **style)  # type: ignore[arg-type]


def _finish(axis: "Axes") -> None:
    axis.set_xlabel("hours of virtual time")
    axis.set_ylim(bottom=0)
    axis.margins(x=0)
    axis.set_xlim(left=0)
    axis.locator_params(axis="x", steps=HOUR_STEPS)
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.locator_params(axis="y", integer=True)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
