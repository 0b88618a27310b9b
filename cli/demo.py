"""The demo: simulate the same load in five variants, as a table and a picture."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cli.terminal import Table, console, say
from core.config.settings import Config
from core.edge import files
from core.model.humanize import plural
from sim import bound, picture, report, trace, waves
from sim.costs import check_prices
from sim.history import instances
from sim.processes import OnProgress, run_all
from sim.scenario import DEMO, OWN, with_timers
from sim.simulated_load import HOUR_MS, SimulatedLoad

PLAIN_LINE_HOURS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the command."""

    trace: str | None
    """A trace; None: the built-in load."""
    config: str | None
    """Configuration file; None: the demo's own settings."""
    days: int
    seed: int
    scale_down_timers: int
    """Timers of the autoscaler's scale-down in seconds."""
    wire: bool
    """Call the programs over HTTP and HTTPS, not in process."""
    output: str
    """File of the picture."""


def play(options: Options) -> None:
    """Run all variants, print the table, and draw the picture."""
    out, config, seed, wire = console(), options.config, options.seed, options.wire
    picture.check(options.output)
    bound.check()
    given = files.read_config(config) if config else None
    if options.trace is not None and instances.is_trace(options.trace):
        given = instances.with_prices(given or OWN, options.trace)
    load = _load(options.trace, options.days, seed, given or OWN)
    if given is not None:
        check_prices(given, str(config), load.templates)
    title = (
        f"{load.name} load, days: {options.days}, seed: {seed}; "
        f"{plural(len(load.nodes), 'node')}, {plural(len(load.arrivals), 'Job')}, "
        f"{plural(len(load.deployments), 'Deployment')}"
    )
    say(out, title)
    began = time.perf_counter()
    total = load.duration_ms // HOUR_MS
    with _bars(out, total) if out.is_terminal else _lines(out, total) as on_progress:
        scenarios = [with_timers(one, options.scale_down_timers) for one in DEMO]
        results = run_all(
            scenarios, load, seed=seed, wire=wire, on_progress=on_progress, given=given
        )
    headings, *rows = report.table(results)
    say(out, Table(*headings, rows=rows))
    picture.draw(results, title, options.output)
    how = "over HTTP and HTTPS" if wire else "in process"
    say(
        out,
        f"Ebb was called {how}. {time.perf_counter() - began:.0f} s. Picture: {options.output}",
    )


def _load(folder: str | None, days: int, seed: int, config: Config) -> SimulatedLoad:
    if folder is None:
        return waves.mixed(seed, days)
    if instances.is_trace(folder):
        return instances.load_of_days(folder, days, config)
    return trace.drawn(Path(folder), seed=seed, days=days)


@contextmanager
def _bars(out: Console, total: int) -> Iterator[OnProgress]:
    with Progress(
        TextColumn("{task.description:>16}"), BarColumn(), TextColumn("{task.completed:>3} h"),
        TimeElapsedColumn(), console=out,
    ) as progress:  # fmt: skip
        tasks = {one.name: progress.add_task(one.name, total=total) for one in DEMO}
        yield lambda name, hour: progress.update(tasks[name], completed=hour)


@contextmanager
def _lines(out: Console, total: int) -> Iterator[OnProgress]:
    def on_progress(name: str, hour: int) -> None:
        if hour % PLAIN_LINE_HOURS == 0:
            say(out, f"{name}: {hour} of {total} h")

    yield on_progress
