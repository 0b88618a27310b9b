"""The four runs as a picture; needs the extra `demo` (matplotlib)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from core.errors import InvalidInputError
from sim.workload import HOUR_MS
from sim.world import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS: Final = ("#8c8c8c", "#d1495b", "#2e6f95", "#2a9d5c")
SUFFIXES: Final = (".png", ".svg")


def check(path: str) -> None:
    """Refuse at once what `draw` could not do after minutes. Raises: InvalidInputError."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise InvalidInputError(path, f"allowed: a name that ends in {' or '.join(SUFFIXES)}")
    if target.is_dir() or not target.parent.is_dir():
        raise InvalidInputError(path, "is a directory, or stands in one that is not there")
    _figure_class(path)


def _figure_class(path: str) -> "type[Figure]":
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 an extra: only the demo needs it
    except ImportError as fault:
        problem = "the picture needs matplotlib: pip install 'kube-ebb[demo]'"
        raise InvalidInputError(path, problem) from fault
    return Figure


def draw(results: Mapping[str, Result], title: str, path: str) -> None:
    """Write a PNG or SVG, by the name's end. Raises: InvalidInputError."""
    figure_class = _figure_class(path)
    figure = figure_class(figsize=(10, 9), layout="constrained")
    nodes, marked, load = figure.subplots(3, 1, sharex=True, height_ratios=(3, 1.3, 2))
    for (name, result), colour in zip(results.items(), COLOURS, strict=False):
        hours = [sample.at_ms / HOUR_MS for sample in result.samples]
        total = f"{name}: {result.node_ms / HOUR_MS:,.0f} node-hours, {result.evicted:,} evicted"
        nodes.plot(hours, [s.nodes for s in result.samples], color=colour, label=total, lw=1.8)
        if result.marks:
            marked.plot(hours, [s.marked for s in result.samples], color=colour, label=name)
        capacity = [s.capacity_cpu_millis / 1000 for s in result.samples]
        load.plot(hours, capacity, color=colour, lw=1.2)
    last = list(results.values())[-1].samples
    hours = [sample.at_ms / HOUR_MS for sample in last]
    requested = [sample.requested_cpu_millis / 1000 for sample in last]
    load.fill_between(hours, requested, color="#f2c14e", alpha=0.6, label="requested (last run)")
    nodes.set_title(title, loc="left", fontweight="bold")
    for axis, label in ((nodes, "nodes"), (marked, "marked nodes"), (load, "cores: capacity")):
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(loc="upper left", frameon=False, fontsize=8.5, ncols=2)
        axis.set_ylim(top=axis.get_ylim()[1] * 1.25)  # room for the legend
    load.set_xlabel("hours of virtual time")
    try:
        figure.savefig(Path(path), dpi=120)
    except (OSError, ValueError) as fault:
        problem = getattr(fault, "strerror", None) or str(fault).splitlines()[0]
        raise InvalidInputError(path, problem) from fault
