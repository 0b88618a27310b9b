"""The replay: a past is read, played under every mode and rule, compared, and told of."""

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
from cli.answers import Figure, Moment, Recommended, Replayed, VariantResult
from cli.input.cluster_input import tell_refused
from cli.terminal import printable
from core.config.document import parse
from core.config.drain import Eviction
from core.config.settings import Config
from core.edge import files
from core.model.humanize import plural
from sim import bound, replay, trace, variants
from sim.costs import check_prices
from sim.history import dumps, load, prometheus, rows
from sim.history.cluster_history import ClusterHistory
from sim.processes import Tell
from sim.replay import Choice, Outcome
from sim.report import CORE_HOURS, COST, NODE_HOURS, PENDING, ROWS
from sim.simulator import Sample
from sim.variants import EMPTY, Document, Variant
from sim.workload import DAY_MS, HOUR_MS, Workload

PAGE: Final = "html"
"""The form of the page."""
USUAL: Final = "usual"
BUILT_IN: Final = "built in"
MOMENTS_MAX: Final = 400
"""Of a way, that are kept for pictures."""
COMMENT_CHARS: Final = 96
MINUTE_MS: Final = HOUR_MS // 60
NO_EVICTIONS: Final = (
    "pods that Ebb would evict (eviction: enabled) stay: evictions of Ebb are not played"
)
UNITS: Final = ((DAY_MS, "days"), (HOUR_MS, "hours"), (MINUTE_MS, "minutes"))
DAYS: Final = 2
"""Without a word about it, of a trace that is drawn from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of the command."""

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
    """What is played, and what is known of it."""

    source: str
    load: replay.Load
    notes: Sequence[str]
    really: Sequence[Figure] = ()


def play(asked: Asked) -> Replayed:
    """Do all of it but `save`. Raises: EbbError in one of its forms."""
    for path in (asked.page, asked.recommend):
        if path is not None:
            files.check_target(path)
    if asked.page is not None:
        output.ready(PAGE)
    bound.check()
    document, source = _document(asked.config)
    config = parse(document, source)
    played = [*variants.columns(document, source), *swept(asked.sweep, document, source)]
    loaded = _loaded(asked, config)
    loaded = replace(loaded, notes=(*loaded.notes, *_not_played(config)))
    first = loaded.load(1)
    check_prices(config, source, first.templates)
    runs = len(played) * asked.seeds
    with _progress(runs, runs * (first.duration_ms // HOUR_MS)) as tell:
        outcomes = replay.play(played, loaded.load, range(1, asked.seeds + 1), tell)
    return _answer(loaded, outcomes, asked, _told(first, len(played), asked))


def save(answer: Replayed, asked: Asked) -> None:
    """Write the files that are asked for, the small one first. Raises: InvalidInputError."""
    if asked.recommend is not None and answer.recommended is not None:
        files.write_text(asked.recommend, answer.recommended.file)
    if asked.page is not None:
        output.write_answer(answer, PAGE, asked.page)


# What is played


def _document(path: str | None) -> tuple[Document, str]:
    """Read Ebb's rules as they are written. Raises: ConfigError, InvalidInputError."""
    if path is None:
        return EMPTY, BUILT_IN
    (document,) = files.parse_yaml(
        files.read_dump(path, files.CONFIG_BYTES_MAX), path, single=True
    )
    return document, path


def swept(texts: Sequence[str], document: Document, source: str) -> Sequence[Variant]:
    """Return the points of all sweeps; `usual` stands for settings that none of them names.

    Raises: ConfigError, InvalidInputError.
    """
    if not texts:
        return ()
    usual = variants.USUAL if USUAL in texts else {}
    own = variants.asked_for(text for text in texts if text != USUAL)
    return variants.points({**usual, **own}, document, source)


def _loaded(asked: Asked, config: Config) -> _Loaded:
    """Read the one past that is given. Raises: InvalidInputError, UsageError."""
    given = [path for path in (asked.trace, asked.dumps, asked.prometheus) if path is not None]
    if len(given) != 1:
        raise click.UsageError("give one of --trace, --dumps and --prometheus")
    if asked.at_once is not None and asked.trace is None:
        raise click.UsageError("--at-once: only with --trace")
    if asked.days is not None and asked.at_once is None:
        raise click.UsageError("--days: only with --at-once; a past is as long as it is")
    if asked.at_once is not None:
        return _drawn(given[0], asked)
    refused: list[str] = []
    past = _read(asked, config, refused)
    tell_refused(refused, sys.stderr)
    return _as_it_was(past, asked, config)


def _drawn(folder: str, asked: Asked) -> _Loaded:
    """Draw pods from a trace's rows, as the demo does."""
    rows_there = len(trace.rows(Path(folder)))

    def draw(seed: int) -> Workload:
        at_once, days = asked.at_once or 1, asked.days or DAYS
        whole = trace.drawn(Path(folder), seed=seed, days=days, at_once=at_once)
        return _cut(whole, asked, seed)

    note = f"pods are drawn from the trace's {rows_there:,} rows: {asked.at_once:,} at once"
    return _Loaded(folder, draw, (note, "their hours of the day are those of the openb trace"))


def _read(asked: Asked, config: Config, refused: list[str]) -> ClusterHistory:
    with _reading() as tell:
        if asked.dumps is not None:
            return dumps.read(asked.dumps, refused, tell)
        if asked.prometheus is not None:
            return prometheus.read(asked.prometheus, refused, config.node_labels(), tell)
    return rows.read(asked.trace or "")


def _as_it_was(past: ClusterHistory, asked: Asked, config: Config) -> _Loaded:
    whole, notes, stood = load.workload_of(past, config)
    really = tuple(Figure(row, *3 * [row.value(stood)]) for row in (COST, CORE_HOURS, NODE_HOURS))
    return _Loaded(
        past.source,
        lambda seed: _cut(whole, asked, seed),
        notes,
        really if asked.part == 1 else (),
    )


def _cut(whole: Workload, asked: Asked, seed: int) -> Workload:
    cut = replay.part(whole, every=asked.part, seed=seed)
    return replace(cut, tick_ms=1000 * asked.interval)


# What is told


def _answer(loaded: _Loaded, outcomes: Sequence[Outcome], asked: Asked, told: str) -> Replayed:
    best = {one.way.name for one in replay.front(outcomes)}
    choice = replay.choose(outcomes)
    return Replayed(
        source=printable(loaded.source),
        told=told,
        notes=loaded.notes,
        ways=[_played(one, best=one.way.name in best) for one in outcomes],
        seeds=range(1, asked.seeds + 1),
        really=loaded.really,
        recommended=_recommended(choice, outcomes, f"{loaded.source}: {told}") if choice else None,
    )


def _told(first: Workload, count: int, asked: Asked) -> str:
    came = len(first.arrivals) + sum(one.replicas[0][1] for one in first.deployments)
    return (
        f"{_long(first.duration_ms)}, {plural(len(first.nodes), 'node')} at the beginning, "
        f"{plural(came, 'pod')} and {plural(len(first.deployments), 'ReplicaSet')}; "
        f"{plural(count, 'way')}, {plural(asked.seeds, 'seed')} each, "
        f"the engine every {asked.interval} s"
    )


def _long(ms: int) -> str:
    """Write how long it is, in the largest unit of which it is one."""
    return next(
        f"{ms / unit:.1f} {name}" for unit, name in UNITS if ms >= unit or unit == MINUTE_MS
    )


def _played(one: Outcome, *, best: bool) -> VariantResult:
    step = -(-len(one.samples) // MOMENTS_MAX) or 1
    return VariantResult(
        name=one.way.name,
        settings=one.way.settings,
        figures=[Figure(row, *(one.figures[row] or 3 * [None])) for row in ROWS],
        best=best,
        moments=[_moment(sample) for sample in one.samples[::step]],
    )


def _moment(sample: Sample) -> Moment:
    return Moment(
        sample.at_ms / HOUR_MS,
        sample.nodes,
        sample.capacity_cpu_millis / 1000,
        sample.requested_cpu_millis / 1000,
    )


def _recommended(choice: Choice, outcomes: Sequence[Outcome], where: str) -> Recommended:
    """Write the configuration, and above it from what it was chosen."""
    chosen = choice.outcome
    rivals = [one for one in outcomes if one.way.name == replay.COMPARED_TO]
    lines = [
        f"Chosen by `ebb replay` from {where}.",
        f"It is {choice.why}.",
        *(_line(one) for one in (chosen, *rivals)),
        "Played were mode enforce, and an autoscaler that takes empty nodes.",
        *(f"{note}." for note in _not_played(chosen.way.config)),
    ]
    folded = (wrapped for line in lines for wrapped in wrap(printable(line), COMMENT_CHARS))
    comment = "".join(f"# {line}\n" for line in folded)
    document = files.as_yaml(chosen.way.document or EMPTY)
    return Recommended(name=chosen.way.name, why=choice.why, file=comment + document)


def _not_played(config: Config) -> Sequence[str]:
    return (NO_EVICTIONS,) if config.eviction is Eviction.ENABLED else ()


def _line(one: Outcome) -> str:
    return f"{one.way.name}: " + ", ".join(
        f"{row.label} {row.shown(one.mean(row))}" for row in (COST, PENDING)
    )


# Progress, on standard error: what is answered may be read by a program


@contextmanager
def _reading() -> Iterator[dumps.Tell]:
    out = Console(stderr=True)
    if not out.is_terminal:
        yield lambda *_: None
        return
    with Progress(TextColumn("reading"), BarColumn(), TimeElapsedColumn(), console=out) as bar:
        task = bar.add_task("reading")
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _progress(runs: int, hours: int) -> Iterator[Tell]:
    """Tell how many of all runs' hours have been played."""
    out = Console(stderr=True)
    played: dict[str, int] = {}
    if not out.is_terminal:
        yield _lines(played, hours)
        return
    with Progress(
        TextColumn(f"{runs} runs"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=out,
    ) as bar:  # fmt: skip
        task = bar.add_task("playing", total=hours)

        def tell(name: str, hour: int) -> None:
            played[name] = hour
            bar.update(task, completed=sum(played.values()))

        yield tell


def _lines(played: dict[str, int], hours: int) -> Tell:
    """Tell of every tenth part, a line each."""

    def tell(name: str, hour: int) -> None:
        before = sum(played.values())
        played[name] = hour
        after = sum(played.values())
        if hours and 10 * before // hours != 10 * after // hours:
            sys.stderr.write(f"ebb: {after:,} of {hours:,} simulated hours\n")
            sys.stderr.flush()

    return tell
