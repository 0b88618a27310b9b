"""Draw charts of simulations: cost over time, and cost over moved pods; needs matplotlib."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

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


class MovesPoint(NamedTuple):
    """One simulation as a point in the chart of `draw_moves`: its name, moved pods and cost."""

    name: str
    pods: int
    """Pods that were moved or evicted."""
    cost: float
    line: bool
    """It is a point of the line of Ebb."""


def draw_moves(points: Sequence[MovesPoint], title: str, path: str) -> None:
    """Draw cost over moved or evicted pods, and write the picture to *path*.

    Each point is a simulation. The suffix of the path selects PNG or SVG. Raises:
    InvalidInputError.
    """
    figure = _figure_class(path)(figsize=(8, 4.5), layout="constrained")
    axis = figure.subplots()
    ours = sorted((point for point in points if point.line), key=lambda point: point.pods)
    axis.plot(
        [point.pods for point in ours], [point.cost for point in ours], "o-", color=COLOURS[4],
        label="Ebb with surge moves; numbers: surge.maxPerHour",
    )  # fmt: skip
    others = [point for point in points if not point.line]
    for point, colour in zip(others, COLOURS[2::-1], strict=False):
        axis.plot([point.pods], [point.cost], "s", color=colour)
    for point in points:
        axis.annotate(
            point.name, (point.pods, point.cost), (6, 6), textcoords="offset points", fontsize=9
        )
    axis.set_title(title, loc="left", fontsize=11)
    axis.set_xlabel("pods moved or evicted in the day")
    axis.set_ylabel("cost of the nodes")
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.margins(x=0.2, y=0.12)
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def _save(figure: "Figure", path: str) -> None:
    try:
        figure.savefig(Path(path), dpi=120)
    except (OSError, ValueError) as fault:
        problem = getattr(fault, "strerror", None) or str(fault).splitlines()[0]
        raise InvalidInputError(path, problem) from fault


def _costs(axis: "Axes", runs: Sequence[tuple[tuple[str, Result], str]]) -> None:
    for (name, result), colour in runs:
        label = f"{name}: cost {COST.cell(result)}, {EVICTED.cell(result)} evicted"
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
    axis.legend(loc="upper left", frameon=False, fontsize=9, ncols=2)
    axis.set_ylim(top=axis.get_ylim()[1] * 1.25)  # room for the legend


def _line(
    axis: "Axes", samples: Sequence[Sample], height: Callable[[Sample], float], **style: object
) -> None:
    hours = [sample.at_ms / HOUR_MS for sample in samples]
    axis.plot(hours, [height(sample) for sample in samples], **style)  # type: ignore[arg-type]


def _finish(axis: "Axes") -> None:
    axis.set_xlabel("hours of virtual time")
    axis.set_ylim(bottom=0)
    axis.margins(x=0)
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.locator_params(axis="y", integer=True)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
