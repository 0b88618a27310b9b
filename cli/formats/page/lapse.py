"""Simulated variants of one load as a time lapse: the page of `ebb demo` and of `ebb replay`."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

import orjson

from cli.answers import Figure, Replayed, VariantResult
from cli.formats.page import LAPSE, page
from cli.formats.page.state import printable_json
from sim.recording import (
    FILLS,
    NO_SCHEDULE,
    NOT_MARKED,
    PREFER_NO_SCHEDULE,
    STARTING,
    NodeRecord,
    Recording,
)
from sim.report import COST, PENDING, SECOND_MS
from sim.scenario import DEMO, MOST_ALLOCATED, SURGE, WHOLE
from sim.simulated_load import HOUR_MS

RIVALS: Final = frozenset(one.name for one in DEMO if one.ebb is None)
"""Variants of the demo without Ebb; the page shows the cheapest beside Ebb."""
COST_PLACES: Final = 4
"""Decimal places of a cost."""
STATES: Final = (
    (STARTING, "not-ready", "!", "starting"),
    (NO_SCHEDULE, "no-schedule", "N", "marked NoSchedule"),
    (PREFER_NO_SCHEDULE, "prefer-no-schedule", "P", "marked PreferNoSchedule"),
    (NOT_MARKED, "kept", "", "not marked"),
)
"""Recorded state, the class of its boxes, the text in a box, and its label."""
OMITTED: Final = (
    "The simulation has no preemption, inter-pod affinity, volumes or failures; the docstring of "
    "the Python package sim lists everything that the simulation omits."
)
NONE: Final = (
    "No recommendation: with every variant of Ebb, pods were evicted or Pending because of a mark."
)
SEED: Final = (
    "The time lapse plays the runs with seed {}; the tables below have means of all seeds."
)

Json = dict[str, Any]


def text(answer: Replayed) -> str:
    """Return the HTML page of `ebb replay`, which opens offline."""
    chosen = answer.recommended
    preferred = chosen.name if chosen else WHOLE.name
    return _page(
        {
            "title": f"Replay of {answer.source}",
            "summary": answer.summary,
            "headline": [f"Recommended: {chosen.name}", f"It is {chosen.why}."]
            if chosen
            else [NONE],
            "file": chosen.file.splitlines() if chosen else [],
            **_time_lapse(answer.variants, MOST_ALLOCATED.name, preferred),
            "notes": [SEED.format(answer.seeds[0])] if len(answer.seeds) > 1 else [],
            "points": [_point(variant) for variant in answer.variants],
            "sections": list(_sections(answer)),
        }
    )


def demo(title: str, variants: Sequence[VariantResult], notes: Sequence[str]) -> str:
    """Return the HTML page of `ebb demo`, which opens offline.

    *title*: description of the simulated load. *notes*: descriptions of the variants.
    """
    rivals = [variant for variant in variants if variant.name in RIVALS]
    best = min(rivals, key=lambda variant: (variant.mean(COST), variant.mean(PENDING)))
    lapse = _time_lapse(variants, best.name, SURGE.name)
    shown = [variants[side].recording for side in lapse["sides"]]
    return _page(
        {
            "title": "Simulation",
            "summary": title,
            "headline": [],
            "file": [],
            **lapse,
            "start": max(_filled_after(recording) for recording in shown if recording),
            "notes": list(notes),
            "points": [],
            "sections": [_comparison("All variants", variants)],
        }
    )


def _filled_after(recording: Recording) -> int:
    """Return the seconds after which the nodes are as full as on average over the run.

    The simulated cluster starts with empty nodes.
    """
    changes = [0] * len(recording.frames)
    for record in recording.nodes.values():
        fill = 0
        for index, value in record.changes:
            changes[index] += value % (FILLS + 1) - fill
            fill = value % (FILLS + 1)
    fills = list(accumulate(changes))
    total = sum(fills)
    filled = (index for index, fill in enumerate(fills) if fill * len(fills) >= total)
    return next(filled, 0) * recording.step_ms // SECOND_MS


def _page(document: Json) -> str:
    return page(orjson.dumps(printable_json(document)), template=LAPSE)


def _time_lapse(variants: Sequence[VariantResult], left: str, preferred: str) -> Json:
    """Return the recorded runs of the variants as JSON.

    *left*, *preferred*: names of the variants that the page shows on the left and on the right at
    first.
    """
    runs = {
        variant.name: variant.recording for variant in variants if variant.recording is not None
    }
    names = list(runs)
    # The recommended variant is not recorded if it belongs to a sweep.
    right = preferred if preferred in runs else WHOLE.name
    return {
        "states": [list(state) for state in STATES],
        "fills": FILLS,
        "start": 0,
        "runs": [_run(name, recording) for name, recording in runs.items()],
        "sides": [names.index(name) if name in runs else 0 for name in (left, right)],
    }


def _run(name: str, recording: Recording) -> Json:
    frames = recording.frames
    return {
        "name": name,
        "step": recording.step_ms // SECOND_MS,
        "cost": [round(float(frame.cost_ms / HOUR_MS), COST_PLACES) for frame in frames],
        "pending": [frame.pending for frame in frames],
        "waited": [frame.pending_ms // SECOND_MS for frame in frames],
        "evicted": [frame.evicted for frame in frames],
        "nodes": [_node(name, record) for name, record in recording.nodes.items()],
    }


def _node(name: str, record: NodeRecord) -> list[Any]:
    return [name, record.group, [number for change in record.changes for number in change]]


def _point(variant: VariantResult) -> Json:
    """Return a variant as a point of the chart of cost and Pending time."""
    return {
        "name": variant.name,
        "cost": float(variant.mean(COST)),
        "waited": float(variant.mean(PENDING)),
        "best": variant.best,
        "sweep": bool(variant.settings),
    }


def _sections(answer: Replayed) -> Iterator[Json]:
    chosen = answer.recommended.name if answer.recommended else ""
    yield _comparison("Variants", answer.modes, chosen, _recorded(answer))
    if answer.points:
        yield _sweep(answer.points, chosen)
    yield {"title": "Limitations", "text": [*answer.notes, OMITTED], "table": None}


def _recorded(answer: Replayed) -> str:
    figures = ", ".join(f"{figure.label} {figure.mean_text}" for figure in answer.recorded)
    return f"Nodes as recorded: {figures}." if figures else ""


def _comparison(
    title: str, variants: Sequence[VariantResult], chosen: str = "", note: str = ""
) -> Json:
    headings = [
        f"{variant.name} (recommended)" if variant.name == chosen else variant.name
        for variant in variants
    ]
    rows = [
        [row[0].label, *map(_mean_and_range, row)]
        for row in zip(*(variant.figures for variant in variants), strict=True)
    ]
    ranges = any(
        cell.range_text != cell.mean_text for variant in variants for cell in variant.figures
    )
    first = "Mean (range over the seeds)" if ranges else "Metric"
    table = {"headings": [first, *headings], "rows": rows}
    return {"title": title, "text": [note] if note else [], "table": table}


def _sweep(points: Sequence[VariantResult], chosen: str) -> Json:
    paths = [path for path, _ in points[0].settings]
    headings = ["Result", *paths, *(figure.label for figure in points[0].figures)]
    rows = [
        [
            "recommended" if variant.name == chosen else "best" if variant.best else "",
            *(value for _, value in variant.settings),
            *map(_mean_and_range, variant.figures),
        ]
        for variant in points
    ]
    note = "best: every variant that is better in cost or Pending time is worse in the other."
    return {"title": "Sweep", "text": [note], "table": {"headings": headings, "rows": rows}}


def _mean_and_range(figure: Figure) -> str:
    mean, spread = figure.mean_text, figure.range_text
    return mean if spread == mean else f"{mean} ({spread})"
