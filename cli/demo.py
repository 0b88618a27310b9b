"""`ebb demo`: simulate the same load in a few variants, as a table and a picture or a page."""

import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cli.answers import Figure, VariantResult
from cli.formats.page import lapse
from cli.terminal import Table, console, say
from core.config.settings import Config
from core.model.humanize import plural
from runtime import files
from sim import bound, picture, report, trace, waves
from sim.costs import check_prices
from sim.history import instances
from sim.processes import OnProgress, run_all
from sim.report import RUN_METRICS
from sim.scenario import DEMO, OWN, description, interval_ms, recorded
from sim.simulated_load import HOUR_MS, SimulatedLoad
from sim.simulator import Result

PLAIN_LINE_HOURS: Final = 3
PICTURE: Final = "ebb-demo.png"
PAGE: Final = "ebb-demo.html"
PAGE_SUFFIX: Final = ".html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of `ebb demo`."""

    trace: str | None
    """File or folder of a trace; None: the built-in load."""
    config: str | None
    """Configuration file; None: the demo's own settings."""
    days: int
    seed: int
    wire: bool
    """Call the programs over HTTP and HTTPS, not in process."""
    page: bool
    """Write the time lapse instead of the picture, and open it."""
    output: str | None
    """File of the picture or of the time lapse; None: the file of that kind by default."""


def play(options: Options, open_url: Callable[[str], object] = webbrowser.open) -> None:
    """Simulate all variants, print the table of results, and write the picture or the page.

    *open_url*: opens the written page with the time lapse in a browser.
    """
    out, config, seed, wire = console(), options.config, options.seed, options.wire
    output = options.output or (PAGE if options.page else PICTURE)
    _check_output(output, page=options.page)
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
        scenarios = [recorded(one) for one in DEMO] if options.page else DEMO
        results = run_all(
            scenarios, load, seed=seed, wire=wire, on_progress=on_progress, given=given
        )
    headings, *rows = report.table(results)
    say(out, Table(*headings, rows=rows))
    notes = [description(one) for one in DEMO]
    say(out, *notes)
    how = "over HTTPS and HTTP" if wire else "as functions"
    every = interval_ms(load, given)
    took = time.perf_counter() - began
    say(
        out,
        f"Ebb reconciles every {every // 1000} s. Webhook and extender were called {how}. The "
        f"simulation took {took:.0f} s.",
    )
    if not options.page:
        picture.draw(results, title, output)
        say(out, f"Picture: {output}")
        return
    files.write_text(output, lapse.demo(title, variants(results), notes))
    url = Path(output).absolute().as_uri()
    say(out, f"Time lapse: {url}")
    open_url(url)


def _check_output(output: str, *, page: bool) -> None:
    """Check that the file *output* can be written, before the simulation starts.

    *page*: the file is a page, not a picture. Raises: InvalidInputError, UsageError.
    """
    if not page:
        picture.check(output)
    elif Path(output).suffix.lower() != PAGE_SUFFIX:
        raise click.UsageError(f"--page: --output must end in {PAGE_SUFFIX}")
    else:
        files.check_target(output)


def variants(results: Mapping[str, Result]) -> list[VariantResult]:
    """Return the results as the page of the demo shows them; *results*: by name of the variant."""
    return [
        VariantResult(
            name=name,
            settings=(),
            figures=[Figure(metric, *3 * [metric.value(result)]) for metric in RUN_METRICS],
            best=False,
            recording=result.recording,
        )
        for name, result in results.items()
    ]


def _load(folder: str | None, days: int, seed: int, config: Config) -> SimulatedLoad:
    if folder is None:
        return waves.mixed(seed, days)
    if instances.is_trace(folder):
        return instances.load_of_days(folder, days, config)
    return trace.drawn(Path(folder), seed=seed, days=days)


@contextmanager
def _bars(out: Console, total: int) -> Iterator[OnProgress]:
    width = max(len(scenario.name) for scenario in DEMO)
    with Progress(
        TextColumn(f"{{task.description:>{width}}}"), BarColumn(),
        TextColumn("{task.completed:>3} h"), TimeElapsedColumn(), console=out,
    ) as progress:  # fmt: skip
        tasks = {scenario.name: progress.add_task(scenario.name, total=total) for scenario in DEMO}
        yield lambda name, hour: progress.update(tasks[name], completed=hour)


@contextmanager
def _lines(out: Console, total: int) -> Iterator[OnProgress]:
    def on_progress(name: str, hour: int) -> None:
        if hour % PLAIN_LINE_HOURS == 0:
            say(out, f"{name}: {hour} of {total} simulated hours")

    yield on_progress
