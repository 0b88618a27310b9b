"""Write docs/dashboard.png: `python -m tests.support.dashboard_picture`.

It is no screenshot of Grafana. Prometheus answers the queries of the dashboard about a simulated
day, and matplotlib draws the answers at the places of the panels.
"""

import json
import math
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from matplotlib.figure import Figure

from sim.picture import COLOURS
from tests.e2e.plane import LOOPBACK, free_port, until
from tests.support.dashboard import METRIC, WIDTH, concrete, model
from tests.support.scraped import SCRAPE_MS, Series, simulated_days

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROMETHEUS: Final = shutil.which("prometheus")
PICTURE: Final = Path(__file__).parents[2] / "docs" / "dashboard.png"
ROWS_SHOWN: Final = 2
"""Rows of the dashboard in the picture: questions about savings, and about what prevents them."""
TITLE: Final = "Panels of the dashboard, with a simulated day and example prices"
INCHES: Final = 12
DPI: Final = 100
UNIT_INCHES: Final = 0.26
"""Height of one unit of the grid."""
LEGEND_UNITS: Final = 2.8
LEGEND_ROWS_MAX: Final = 3
STEPS: Final = range(0, 86_400, 300)
"""Seconds of the day for which the queries are answered."""
END_SECONDS: Final = STEPS[-1]


class Line(NamedTuple):
    """An answer to a query."""

    legend: str
    values: Sequence[float]
    """Values at the steps of the range; NaN for none."""


def write(picture: Path) -> int:
    """Write the picture; return the number of lines in it. It takes half a minute."""
    panels = [*_panels()]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    named = {name for expression in queries for name in METRIC.findall(expression)}
    day = simulated_days(1, "|".join(sorted(named)), priced=True)
    with TemporaryDirectory() as folder, _serving(Path(folder), day.series) as url:
        answers = [_answers(url, panel) for panel in panels]
    pairs = zip(panels, answers, strict=True)
    empty = [panel["title"] for panel, lines in pairs if panel["targets"] and not _has_data(lines)]
    assert not empty, f"panels without data: {empty}"
    _draw(panels, answers, picture)
    return sum(map(len, answers))


def _has_data(lines: Sequence[Line]) -> bool:
    """Return whether a panel shows anything but zeros."""
    return any(value > 0 for line in lines for value in line.values)


def _panels() -> Iterator[dict[str, Any]]:
    rows = 0
    for panel in model()["panels"]:
        rows += panel["type"] == "row"
        if rows > ROWS_SHOWN:
            return
        yield {"targets": [], **panel}


@contextmanager
def _serving(folder: Path, series: Series) -> Iterator[str]:
    """Run Prometheus with these series; yield its URL."""
    (folder / "series").write_text("".join(_openmetrics(series)), "utf-8")
    (folder / "config").touch()
    make = ("promtool", "tsdb", "create-blocks-from", "openmetrics", "series", "data")
    subprocess.run(make, cwd=folder, check=True, capture_output=True)
    address = f"{LOOPBACK}:{free_port()}"
    command = [str(PROMETHEUS), "--config.file=config", "--storage.tsdb.path=data",
               f"--web.listen-address={address}", "--storage.tsdb.retention.time=100y",
               "--query.lookback-delta=1m"]  # fmt: skip
    # The lookback is that of Prometheus for targets that are gone: their series end at once.
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as program:
        try:
            url = f"http://{address}"
            until(partial(_is_ready, url), "Prometheus is ready")
            yield url
        finally:
            program.terminate()


def _openmetrics(series: Series) -> Iterator[str]:
    """Yield the lines of a file with the series; metrics have no types there."""
    for _, group in groupby(sorted(series), lambda name: name.partition("{")[0]):
        for name in group:
            for number, value in enumerate(series[name]):
                if value is not None:
                    yield f"{name} {value!r} {number * SCRAPE_MS // 1000}\n"
    yield "# EOF\n"


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready") as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def _answers(url: str, panel: Mapping[str, Any]) -> list[Line]:
    """Return the lines of a panel; those of a stat have one point."""
    found = []
    steps = [END_SECONDS] if panel["type"] == "stat" else STEPS
    for target in panel["targets"]:
        query = {"query": concrete(target["expr"], "1d"), "start": steps[0], "end": steps[-1],
                 "step": STEPS.step}  # fmt: skip
        with urllib.request.urlopen(
            f"{url}/api/v1/query_range?{urllib.parse.urlencode(query)}"
        ) as answer:
            results = json.load(answer)["data"]["result"]
        for one in results:
            values = {int(at): float(value) for at, value in one["values"]}
            legend = _legend(target["legendFormat"], one["metric"])
            found.append(Line(legend, [values.get(at, math.nan) for at in steps]))
    return found


def _legend(form: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), form)


def _draw(
    panels: Sequence[Mapping[str, Any]], answers: Sequence[Sequence[Line]], picture: Path
) -> None:
    places = [panel["gridPos"] for panel in panels]
    units = max(place["y"] + place["h"] for place in places) + 2  # with the title
    figure = Figure(figsize=(INCHES, units * UNIT_INCHES))
    figure.text(0.01, 1 - 1 / units, TITLE, fontsize=14, fontweight="bold", va="center")
    for panel, place, lines in zip(panels, places, answers, strict=True):
        left, top = place["x"] / WIDTH, 1 - (place["y"] + 2) / units
        if panel["type"] == "row":
            figure.text(left + 0.01, top - 0.5 / units, panel["title"], fontweight="bold")
            continue
        below = LEGEND_UNITS if panel["type"] == "timeseries" else 0
        size = place["w"] / WIDTH - 0.06, (place["h"] - 1.6 - below) / units
        axis = figure.add_axes((left + 0.045, top - (place["h"] - below) / units, *size))
        axis.set_title(panel["title"], loc="left", fontsize=9)
        (_draw_stat if panel["type"] == "stat" else _draw_lines)(axis, panel, lines)
    figure.savefig(picture, dpi=DPI)


def _draw_stat(axis: "Axes", _: Mapping[str, Any], lines: Sequence[Line]) -> None:
    axis.text(0.5, 0.5, f"{lines[0].values[-1]:,.1f}", ha="center", va="center", fontsize=20)
    axis.set_axis_off()


def _draw_lines(axis: "Axes", panel: Mapping[str, Any], lines: Sequence[Line]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    scale = {"bytes": 2**30, "s": 3600, "percentunit": 0.01}.get(defaults["unit"], 1)
    unit = {"bytes": "GiB", "s": "hours", "percentunit": "%"}.get(defaults["unit"], "")
    hours = [at / 3600 for at in STEPS]
    below = [0.0] * len(STEPS)
    for line, (style, colour) in zip(lines, product(("-", "--"), COLOURS), strict=False):
        values = [one / scale for one in line.values]
        if defaults["custom"]:
            values = [0.0 if math.isnan(one) else one for one in values]
            top = [sum(pair) for pair in zip(below, values, strict=True)]
            axis.fill_between(hours, below, top, color=colour, label=line.legend, lw=0)
            below = top
        else:
            axis.plot(hours, values, style, color=colour, label=line.legend, lw=1.2)
    axis.set_xlim(0, 24)
    axis.set_xlabel("hours", fontsize=7, labelpad=0)
    axis.set_ylim(bottom=0)
    axis.set_ylabel(unit, fontsize=8)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    if lines[0].legend != "__auto":
        columns = max(3, math.ceil(len(lines) / LEGEND_ROWS_MAX))
        axis.legend(
            fontsize=7,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.26),
            ncols=columns,
            frameon=False,
        )


if __name__ == "__main__":
    write(PICTURE)
