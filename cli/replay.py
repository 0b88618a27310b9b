"""`ebb replay`: simulate variants of a recorded history, compare them, and recommend one."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cli import output
from cli.answers import Figure, Recommended, Replayed, VariantResult
from cli.input.cluster_input import report_unreadable
from core.config.document import parse
from core.config.eviction import EvictionMode
from core.config.settings import Config
from core.model.humanize import plural
from runtime import files
from runtime.messages import printable, tell
from runtime.yaml_text import as_yaml, parse_yaml
from sim import bound, replay, trace, variants
from sim.costs import check_prices
from sim.history import dumps, instances, load, prometheus, rows
from sim.history.cluster_history import ClusterHistory
from sim.processes import OnProgress
from sim.replay import Choice, Outcome
from sim.report import CORE_HOURS, COST, NODE_HOURS, PENDING, RUN_METRICS
from sim.simulated_load import DAY_MS, HOUR_MS, SimulatedLoad
from sim.variants import EMPTY, Document, Variant

USUAL: Final = "usual"
BUILT_IN: Final = "built in"
COMMENT_CHARS: Final = 96
MINUTE_MS: Final = HOUR_MS // 60
NO_EVICTIONS: Final = (
    "evictions by Ebb (eviction.mode) are not simulated: pods that Ebb would evict keep running"
)
UNITS: Final = ((DAY_MS, "days"), (HOUR_MS, "hours"), (MINUTE_MS, "minutes"))
DAYS: Final = 2
"""Default length of a drawn load, in days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of `ebb replay`."""

    trace: str | None
    dumps: str | None
    prometheus: str | None
    config: str | None
    at_once: int | None
    days: int | None
    part: int
    seeds: int
    interval: int
    sweep: Sequence[str]
    page: str | None
    recommend: str | None


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The load to simulate, its source, notes about it, and the metrics of the recorded nodes."""

    source: str
    load: replay.LoadOfSeed
    notes: Sequence[str]
    recorded: Sequence[Figure] = ()


def run(options: Options, *, record: bool = False) -> Replayed:
    """Simulate all variants with the selected history, and return their comparison.

    *record*: also record the frames of a time lapse. Raises: EbbError (any subclass).
    """
    for path in (options.page, options.recommend):
        if path is not None:
            files.check_target(path)
    bound.check()
    document, source = _document(options.config)
    if options.trace is not None and instances.is_trace(options.trace):
        document = {"prices": instances.prices(options.trace), **document}
    config = parse(document, source)
    simulated = [
        *variants.columns(document, source),
        *sweep_variants(options.sweep, document, source),
    ]
    loaded = _loaded(options, config)
    loaded = replace(loaded, notes=(*loaded.notes, *_not_simulated(config)))
    first = loaded.load(1)
    check_prices(config, source, first.templates)
    runs = len(simulated) * options.seeds
    with _progress(runs, runs * (first.duration_ms // HOUR_MS)) as report:
        outcomes = replay.run_variants(
            simulated, loaded.load, range(1, options.seeds + 1), report, record=record
        )
    return _answer(loaded, outcomes, options, _summary(first, len(simulated), options))


def save(answer: Replayed, options: Options) -> None:
    """Write the recommended configuration and the page to the files that the options name.

    Writes nothing without these options. Raises: InvalidInputError.
    """
    if options.recommend is not None and answer.recommended is not None:
        files.write_text(options.recommend, answer.recommended.file)
    if options.page is not None:
        output.write_answer(answer, output.REPLAY_PAGE, options.page)


# Load and variants


def _document(path: str | None) -> tuple[Document, str]:
    if path is None:
        return EMPTY, BUILT_IN
    (document,) = parse_yaml(files.read_dump(path, files.CONFIG_BYTES_MAX), path, single=True)
    return document, path


def sweep_variants(texts: Sequence[str], document: Document, source: str) -> Sequence[Variant]:
    """Return a variant for each combination of the values in *texts*, the arguments of --sweep.

    A text is `setting=value,value`, or `usual` for a predefined sweep, whose values the other
    texts override. *document*: configuration that the variants change; *source*: its name in
    errors. Returns an empty sequence without texts. Raises: ConfigError, InvalidInputError.
    """
    if not texts:
        return ()
    usual = variants.USUAL if USUAL in texts else {}
    own = variants.parse_sweep(text for text in texts if text != USUAL)
    return variants.points({**usual, **own}, document, source)


def _loaded(options: Options, config: Config) -> _Loaded:
    """Return the load of the history that the options select.

    Raises: InvalidInputError, UsageError.
    """
    given = [
        path for path in (options.trace, options.dumps, options.prometheus) if path is not None
    ]
    if len(given) != 1:
        raise click.UsageError("give one of --trace, --dumps and --prometheus")
    if options.at_once is not None and options.trace is None:
        raise click.UsageError("--at-once: only with --trace")
    if options.days is not None and options.at_once is None:
        raise click.UsageError(
            "--days: only with --at-once; a recorded history has its own length"
        )
    if options.at_once is not None:
        if instances.is_trace(given[0]):
            raise click.UsageError("--at-once: only with a trace in the format of openb")
        return _drawn(given[0], options)
    unreadable: list[str] = []
    history = _read(options, config, unreadable)
    report_unreadable(unreadable, sys.stderr)
    return _recorded(history, options, config)


def _drawn(folder: str, options: Options) -> _Loaded:
    """Return a load whose pods are drawn at random from the rows of the trace in *folder*."""
    rows_in_trace = len(trace.pods(Path(folder)))

    def draw(seed: int) -> SimulatedLoad:
        at_once, days = options.at_once or 1, options.days or DAYS
        whole = trace.drawn(Path(folder), seed=seed, days=days, at_once=at_once)
        return _cut(whole, options, seed)

    note = (
        f"pods are drawn from the {rows_in_trace:,} rows of the trace, so that "
        f"{options.at_once:,} run concurrently on average"
    )
    return _Loaded(folder, draw, (note, "pods arrive over the day as in the openb trace"))


def _read(options: Options, config: Config, unreadable: list[str]) -> ClusterHistory:
    with _reading() as report:
        if options.dumps is not None:
            return dumps.read(options.dumps, unreadable, report)
        if options.prometheus is not None:
            return prometheus.read(options.prometheus, unreadable, config.node_labels(), report)
    path = options.trace or ""
    return instances.read(path) if instances.is_trace(path) else rows.read(path)


def _recorded(history: ClusterHistory, options: Options, config: Config) -> _Loaded:
    whole, notes, recorded_outcome = load.load_of(history, config)
    recorded = tuple(
        Figure(metric, *3 * [metric.value(recorded_outcome)])
        for metric in (COST, CORE_HOURS, NODE_HOURS)
    )
    return _Loaded(
        history.source,
        lambda seed: _cut(whole, options, seed),
        notes,
        recorded if options.part == 1 and history.nodes_recorded else (),
    )


def _cut(whole: SimulatedLoad, options: Options, seed: int) -> SimulatedLoad:
    cut = replay.part(whole, every=options.part, seed=seed)
    return replace(cut, interval_ms=1000 * options.interval)


# Answer


def _answer(
    loaded: _Loaded, outcomes: Sequence[Outcome], options: Options, summary: str
) -> Replayed:
    best = {outcome.variant.name for outcome in replay.pareto_front(outcomes)}
    choice = replay.choose(outcomes)
    return Replayed(
        source=printable(loaded.source),
        summary=summary,
        notes=loaded.notes,
        variants=[_result(outcome, best=outcome.variant.name in best) for outcome in outcomes],
        seeds=range(1, options.seeds + 1),
        recorded=loaded.recorded,
        recommended=_recommended(choice, outcomes, f"{loaded.source}: {summary}")
        if choice
        else None,
    )


def _summary(first: SimulatedLoad, count: int, options: Options) -> str:
    pods = len(first.arrivals) + sum(deployment.replicas[0][1] for deployment in first.deployments)
    return (
        f"{_length(first.duration_ms)}, {plural(len(first.nodes), 'node')} at the start, "
        f"{plural(pods, 'pod')} and {plural(len(first.deployments), 'ReplicaSet')}; "
        f"{plural(count, 'variant')}, {plural(options.seeds, 'seed')} each, "
        f"a reconciliation every {options.interval} s"
    )


def _length(ms: int) -> str:
    """Return a length of time as text, such as `1.5 days`, in the largest unit that it reaches."""
    return next(
        f"{ms / unit:.1f} {name}" for unit, name in UNITS if ms >= unit or unit == MINUTE_MS
    )


def _result(outcome: Outcome, *, best: bool) -> VariantResult:
    return VariantResult(
        name=outcome.variant.name,
        settings=outcome.variant.settings,
        figures=[
            Figure(metric, *(outcome.figures[metric] or 3 * [None])) for metric in RUN_METRICS
        ],
        best=best,
        recording=outcome.recording,
    )


def _recommended(choice: Choice, outcomes: Sequence[Outcome], where: str) -> Recommended:
    """Return the chosen variant, with its configuration file as text.

    The file starts with a comment that compares the variant with COMPARED_TO, a variant without
    Ebb. *where*: the source and the summary of the simulation.
    """
    chosen = choice.outcome
    compared = [outcome for outcome in outcomes if outcome.variant.name == replay.COMPARED_TO]
    lines = [
        f"Chosen by `ebb replay` from {where}.",
        f"It is {choice.why}.",
        *(_line(outcome) for outcome in (chosen, *compared)),
        "Simulated with mode enforce and an autoscaler that removes only empty nodes.",
        *(f"{note}." for note in _not_simulated(chosen.variant.config)),
    ]
    folded = (wrapped for line in lines for wrapped in wrap(printable(line), COMMENT_CHARS))
    comment = "".join(f"# {line}\n" for line in folded)
    document = as_yaml(chosen.variant.document or EMPTY)
    return Recommended(name=chosen.variant.name, why=choice.why, file=comment + document)


def _not_simulated(config: Config) -> Sequence[str]:
    return (NO_EVICTIONS,) if config.eviction.mode is EvictionMode.ENABLED else ()


def _line(outcome: Outcome) -> str:
    return f"{outcome.variant.name}: " + ", ".join(
        f"{metric.label} {metric.shown(outcome.mean(metric))}" for metric in (COST, PENDING)
    )


# Progress goes to standard error, because a program may read standard output


@contextmanager
def _reading() -> Iterator[dumps.OnProgress]:
    out = Console(stderr=True)
    if not out.is_terminal:
        yield lambda *_: None
        return
    with Progress(TextColumn("reading"), BarColumn(), TimeElapsedColumn(), console=out) as bar:
        task = bar.add_task("reading")
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _progress(runs: int, hours: int) -> Iterator[OnProgress]:
    """Yield a function that shows on standard error how many simulated hours are done.

    *runs*: number of runs. *hours*: simulated hours of all runs together.
    """
    out = Console(stderr=True)
    simulated: dict[str, int] = {}
    if not out.is_terminal:
        yield _lines(simulated, hours)
        return
    with Progress(
        TextColumn(f"{runs} runs"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=out,
    ) as bar:  # fmt: skip
        task = bar.add_task("simulating", total=hours)

        def report(name: str, hour: int) -> None:
            simulated[name] = hour
            bar.update(task, completed=sum(simulated.values()))

        yield report


def _lines(simulated: dict[str, int], hours: int) -> OnProgress:
    """Return a function that prints a line after every tenth of the hours of all runs.

    *simulated*: hours done so far, by name of the run; the function updates it.
    """

    def report(name: str, hour: int) -> None:
        before = sum(simulated.values())
        simulated[name] = hour
        after = sum(simulated.values())
        if hours and 10 * before // hours != 10 * after // hours:
            tell(f"ebb: {after:,} of {hours:,} simulated hours")

    return report
