"""`ebb demo` and `ebb trace fill`, as a person runs them."""

import gzip
import json
from pathlib import Path

import pytest

from cli.__main__ import main

TRACES = Path(__file__).parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="no openb trace beside the tree")


def test_the_demo_tells_draws_and_says_how(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "demo.png"
    assert main(["demo", "--days", "1", "--output", str(picture)]) == 0
    told = capsys.readouterr().out
    assert "Ebb, pack: 24 of 24 h" in told
    assert "Ebb was asked over HTTP and HTTPS." in told
    rows = {line[:30].strip(): line[30:].split() for line in told.splitlines()}
    assert rows["pods made pending by a mark"][-2:] == ["0", "0"]
    assert rows["pods evicted"][-2:] == ["0", "0"]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--trace", "/no/such"], "/no/such/openb_node_list_all_node.csv: No such file"),
        (["--days", "0"], "'0' is not a number of days, 1 to 60"),
    ],
)
def test_what_the_demo_cannot_do_is_one_line(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["demo", *arguments])
    except SystemExit as left:  # argparse's own way out
        status = int(left.code or 0)
    assert status == 2
    assert problem in capsys.readouterr().err


@needs_traces
def test_a_filled_trace_can_be_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = tmp_path / "dump.json.gz"
    fill = ["trace", "fill", "--share", "10%", "--trace", str(TRACES), "-o", str(dump)]
    assert main(fill) == 0
    items = json.loads(gzip.decompress(dump.read_bytes()))["items"]
    assert sum(item["kind"] == "Pod" for item in items) == 815
    assert main(["plan", "--from-file", str(dump), "-o", "json", "--max-removals", "5"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["before"]["nodes"] == 1523
    assert len(plan["removals"]) == 5
