"""`ebb demo`, run as a command."""

import contextlib
import os
import re
import signal
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

from cli.__main__ import main
from cli.answers import Figure, VariantResult
from cli.demo import Options, play
from cli.formats.page import lapse
from cli.terminal import Table
from sim import report
from sim.recording import FILLS, NOT_MARKED, Frame, NodeRecord, Recording
from sim.report import RUN_METRICS
from sim.scenario import DEMO, PACKING, SURGE, description
from sim.simulated_load import HOUR_MS
from sim.simulator import Result
from tests.support.page import state_of
from tests.support.plan_cli import COMMAND, ROOT
from tests.support.traces import write_trace

LESS_OFTEN = """
apiVersion: kube-ebb.io/v1alpha1
kind: EbbConfiguration
controller: {interval: 5m}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """Write a configuration, with a trace of 60 days beside it."""
    file = tmp_path / "ebb.yaml"
    file.write_text(LESS_OFTEN)
    write_trace(tmp_path, last_seconds=60 * 24 * 3600)
    return file


@pytest.mark.nightly
def test_demo_prints_table_and_writes_picture(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, _ = demo_rows(["--days", "1"], rules, capsys)
    assert "Ebb, managed: 24 of 24 simulated hours" in lines


def test_demo_simulates_trace_of_instances_with_prices_of_their_types(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write_trace(rules.parent, last_seconds=3 * 3600)
    lines, rows = demo_rows(["--trace", str(trace)], rules, capsys)
    assert "2 nodes, 0 Jobs, 1 Deployment" in " ".join(lines)
    assert rows["cost"][0] == "19"  # two nodes at 3.2 for the three hours of the trace


def demo_rows(
    options: list[str], rules: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[list[str], dict[str, list[str]]]:
    """Run the demo over HTTP; return its output, and the rows of its table by heading."""
    picture = rules.with_name("demo.png")
    assert main(["demo", *options, "--output", str(picture), "--config", str(rules)]) == 0
    told = capsys.readouterr().out
    assert "Webhook and extender were called over HTTPS and HTTP." in told
    assert all(f"{description(one)}\n" in told for one in DEMO)
    lines = told.splitlines()
    rows = {cells[0]: cells[1:] for cells in (re.split("  +", one) for one in lines)}
    assert rows["pods Pending because of a mark"] == 4 * ["0"]
    assert rows["pods evicted"][-2:] == ["0", "0"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    return lines, rows


def test_demo_writes_and_opens_time_lapse_when_page_is_requested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, opened = tmp_path / "a day.html", list[str]()
    options = Options(
        trace=str(write_trace(tmp_path)),
        config=None,
        days=1,
        seed=1,
        wire=False,
        page=True,
        output=str(page),
    )
    play(options, opened.append)
    assert opened == [page.as_uri()]
    assert f"Time lapse: {page.as_uri()}" in capsys.readouterr().out.replace("\n", "")
    state = state_of(page.read_text())
    assert [run["name"] for run in state["runs"]] == [one.name for one in DEMO]
    assert [state["runs"][side]["name"] for side in state["sides"]] == [
        PACKING.name,
        SURGE.name,
    ]
    minutes = len(state["runs"][0]["cost"]) - 1
    assert state["runs"][0]["cost"][-1] == pytest.approx(2 * 3.2 * minutes / 60, abs=1e-4)


def test_page_starts_with_filled_cluster_beside_cheapest_rival() -> None:
    empty, full = (NOT_MARKED * (FILLS + 1) + fill for fill in (0, FILLS))
    frames = [Frame(Fraction(), 0, 0, 0)] * 4
    recording = Recording(frames=frames, nodes={"n": NodeRecord("g", [(0, empty), (2, full)])})
    variants = [
        VariantResult(
            name=one.name,
            settings=(),
            figures=[Figure(metric, *3 * [Fraction(10 - number)]) for metric in RUN_METRICS],
            best=False,
            recording=recording,
        )
        for number, one in enumerate(DEMO)
    ]
    state = state_of(lapse.demo("load", variants, []))
    assert [state["runs"][side]["name"] for side in state["sides"]] == [PACKING.name, SURGE.name]
    assert state["start"] == 120


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--trace", "/no/such"], "/no/such/openb_node_list_all_node.csv: No such file"),
        (["--config", "/no/such"], "/no/such: No such file"),
        (["--days", "0"], "'0'; allowed: a whole number of days from 1 to 60"),
        (["--output", "demo.pdf"], "demo.pdf: allowed: a name that ends in .png or .svg"),
        (["--output", "/no/such/demo.png"], "the directory /no/such does not exist"),
        (["--page", "--output", "demo.png"], "--page: --output must end in .html"),
        (["--page", "--output", "/no/such/a.html"], "the directory /no/such does not exist"),
    ],
)
def test_demo_rejects_invalid_options_with_one_line(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    "everybody",  # a terminal signals the process group, kill(1) one process
    [True, pytest.param(False, marks=pytest.mark.nightly)],
)
def test_demo_exits_without_output_when_interrupted(rules: Path, *, everybody: bool) -> None:
    before = set(rules.parent.iterdir())
    with demo(rules) as process:
        first_hours(process)
        if everybody:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, b"")
    assert set(rules.parent.iterdir()) == before


@pytest.mark.nightly
def test_demo_reports_one_line_when_simulation_process_is_killed(rules: Path) -> None:
    with demo(rules) as process:
        first_hours(process)
        os.kill(max(processes(process.pid)), signal.SIGKILL)  # the process started last simulates
        _, told = process.communicate(timeout=60)
    assert process.returncode == 2
    assert (
        told
        == b"ebb: a process of the simulation was ended from outside, perhaps for lack of memory\n"
    )


def test_demo_exits_with_0_when_reader_closes_pipe(rules: Path) -> None:
    before = set(rules.parent.iterdir())
    with demo(rules) as process:
        first_hours(process)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0
    assert set(rules.parent.iterdir()) == before


def demo(rules: Path) -> subprocess.Popen[bytes]:
    """Start a demo of sixty days of a few pods, which runs longer than any test here."""
    picture, trace = str(rules.with_name("demo.png")), str(rules.with_name("trace.csv"))
    options = ["--days", "60", "--trace", trace, "--config", str(rules), "--output", picture]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*COMMAND, "demo", *options], stdout=pipe, stderr=pipe, cwd=ROOT, start_new_session=True
    )


def first_hours(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if b" 3 of " in line:
            return
    pytest.fail("the demo ended too early")


def processes(parent: int) -> list[int]:
    """Return the child processes of a process, read from /proc."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(file.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(file.parent.name))
    return found


def test_table_fits_in_terminal_of_80_columns() -> None:
    result = Result(cost_ms=Fraction(999_999 * HOUR_MS))
    headings, *rows = report.table({one.name: result for one in DEMO})
    assert max(map(len, Table(*headings, rows=rows).lines(80))) <= 80
