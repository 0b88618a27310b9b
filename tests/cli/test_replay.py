"""`ebb replay`, run as a command."""

import os
import re
from fractions import Fraction
from pathlib import Path

import orjson
import pytest

from cli.__main__ import main
from cli.answers import Figure, VariantResult
from cli.formats.text.replay import tables
from cli.replay import sweep_variants
from cli.terminal import Table
from core.model.errors import InvalidInputError
from runtime.files import check_target, read_config
from sim.report import RunMetric
from sim.variants import EMPTY
from tests.support.page import state_of
from tests.support.plan_cli import dump, node, pod
from tests.support.recorder import Json, written
from tests.support.traces import write_trace

HEAD = "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\n"
HOURS = 2
HOUR_MS = 3_600_000


def dated(one: Json, hours: int) -> Json:
    one["metadata"]["creationTimestamp"] = written(hours * HOUR_MS)
    return one


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder with dumps of a cluster of four nodes; its name needs escaping."""
    here = tmp_path_factory.mktemp("dumps <b>$x^2$ \udcff")  # a byte that is not UTF-8
    names = [f"n{number}" for number in range(4)]
    nodes = [node(name, metadata={"name": name, "labels": {"size": "small"}}) for name in names]
    for hours in range(HOURS + 1):
        pods = [dated(pod(f"p{number}", f"n{number}"), -1) for number in range(4)]
        pods += [dated(pod(f"job-{hour}", "n1", "2"), hour) for hour in range(hours, hours + 1)]
        (here / f"{written(hours * HOUR_MS)}.json").write_bytes(dump(*nodes, *pods))
    return str(here)


def test_replay_compares_variants_and_writes_recommended_configuration(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, file, config = tmp_path / "page.html", tmp_path / "ebb.yaml", tmp_path / "in.yaml"
    config.write_text(f"{HEAD}eviction: {{mode: enabled}}\n")
    options = ["--seeds", "1", "--sweep", "thresholds=70%,90%", "--page", str(page)]
    options += ["--config", str(config), "--recommend", str(file)]
    assert main(["replay", "--dumps", folder, *options]) == 0
    told, progress = capsys.readouterr()
    rows = {cells[0]: cells[1:] for cells in (re.split("  +", one) for one in told.splitlines())}
    assert set(rows["pods evicted"][2:]) == {"0"}
    assert "2.0 hours, 4 nodes at the start, 6 pods and 0 ReplicaSets" in told
    assert "3 dumps, up to 3,600 s apart" in told
    assert "nodes as recorded: cost " in told
    assert re.search(r"^. +70% ", told, re.MULTILINE)
    assert "recommended: " in told
    assert "simulated hours" in progress
    comment, _, document = file.read_text().partition("apiVersion")
    assert comment.startswith("# Chosen by `ebb replay` from ")
    for text in (told, comment):
        assert "evictions by Ebb (eviction.mode) are not simulated" in text
    assert "eviction:\n  mode: enabled\n" in document
    assert main(["config", "validate", str(file)]) == 0
    assert read_config(str(file)).extender.score in ("marks", "pack")
    assert_time_lapse(page.read_text())


def priced(tmp_path: Path, label: str) -> str:
    """Write a configuration in which a node with this label costs 0.25 an hour."""
    file = tmp_path / "prices.yaml"
    file.write_text(f'{HEAD}prices: [{{nodeSelector: {{{label}}}, price: "0.25"}}]\n')
    return str(file)


def test_prices_are_rejected_when_they_match_no_simulated_node(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = priced(tmp_path, "size: other")
    for command in (["replay", "--dumps", folder], ["demo", "--days", "1"]):
        assert main([*command, "--config", file]) == 2
        assert f"{file}: prices: every simulated node" in capsys.readouterr().err


def test_trace_of_instances_is_compared_by_prices_of_its_types(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(write_trace(tmp_path))
    assert main(["replay", "--trace", file, "--seeds", "1", "-o", "json"]) == 0
    found = orjson.loads(capsys.readouterr().out)
    nothing = found["variants"][0]
    mean = {one["name"]: one["mean"] for one in nothing["metrics"]}
    assert mean["cost"] == pytest.approx(3.2 * mean["node-hours"])
    assert found["recorded"] == []
    assert main(["replay", "--trace", file, "--at-once", "5"]) == 2
    assert "--at-once: only with a trace in the format of openb" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "count", "thresholds"),
    [
        (["usual"], 12, {"70%", "80%", "90%"}),
        (["headroom=0,2", "usual"], 24, {"70%", "80%", "90%"}),
        (["usual", "thresholds=95%"], 4, {"95%"}),
        (["headroom=0,2"], 2, set()),
    ],
)
def test_sweep_usual_is_combined_with_given_settings(
    asked: list[str], count: int, thresholds: set[str]
) -> None:
    found = sweep_variants(asked, EMPTY, "built in")
    assert len(found) == count
    assert {dict(one.settings).get("thresholds") for one in found} - {None} == thresholds


@pytest.mark.parametrize("there", [True, False])
def test_output_file_is_rejected_before_simulation_when_not_writable(
    there: bool, tmp_path: Path
) -> None:
    file = tmp_path / "page"
    if there:
        file.touch()
    asked: list[Path] = []

    def may(path: Path, mode: int) -> bool:
        asked.append(path)
        return mode != os.W_OK

    with pytest.raises(InvalidInputError, match="page: is not writable"):
        check_target(str(file), may)
    assert asked == [file if there else tmp_path]


def test_replay_writes_other_outputs_when_disk_is_full(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ebb.yaml"
    options = ["--seeds", "1", "--page", "/dev/full", "--recommend", str(file)]
    assert main(["replay", "--dumps", folder, *options]) == 2
    told, problem = capsys.readouterr()
    assert "recommended: " in told
    assert "ebb: /dev/full: No space left on device" in problem
    assert main(["config", "validate", str(file)]) == 0


def assert_time_lapse(page: str) -> None:
    """Check the data of the page; tests/cli/page/test_lapse.py opens such a page."""
    state = state_of(page)
    assert state["title"].startswith("Replay of ")
    assert "dumps <b>$x^2$ " in state["title"]
    assert state["headline"][0].startswith("Recommended: ")
    assert state["file"][0].startswith("# Chosen by `ebb replay` from ")
    runs = {run["name"]: run for run in state["runs"]}
    assert not any("thresholds" in name for name in runs)
    run = runs["nothing"]
    assert run["step"] == 60
    assert (len(run["cost"]), len(run["nodes"])) == (60 * HOURS + 1, 4)
    left, right = (state["runs"][side]["name"] for side in state["sides"])
    assert left == "MostAllocated"
    recommended = state["headline"][0].removeprefix("Recommended: ")
    assert right == (recommended if recommended in runs else "Ebb")
    titles = [section["title"] for section in state["sections"]]
    assert titles == ["Variants", "Sweep", "Limitations"]
    assert len(state["points"]) == len(runs) + 2
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", page)
    assert "dumps <b>" not in page


def test_replay_prints_one_json_document_with_configured_prices(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--seeds", "2", "-o", "json", "--config", priced(tmp_path, "size: small")]
    assert main(["replay", "--dumps", folder, *options]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert (found["kind"], found["seeds"]) == ("Replay", [1, 2])
    first = found["variants"][0]
    assert first["name"] == "nothing"
    figures = {one["name"]: one for one in first["metrics"]}
    assert figures["node-hours"] == {"name": "node-hours", "mean": 8, "minimum": 8, "maximum": 8}
    for way in found["variants"]:
        mean = {one["name"]: one["mean"] for one in way["metrics"]}
        assert mean["cost"] == pytest.approx(mean["node-hours"] / 4)
    assert {one["name"]: one["mean"] for one in found["recorded"]}["node-hours"] == 8
    assert "apiVersion: kube-ebb.io/v1alpha1" in found["recommended"]["configuration"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "give one of --trace, --dumps and --prometheus"),
        (["--trace", "a", "--dumps", "b"], "give one of --trace, --dumps and --prometheus"),
        (["--dumps", "/no/such"], "/no/such: No such file"),
        (["--prometheus", "/no/such"], "/no/such: No such file"),
        (["--trace", "/no/such"], "/no/such/openb_pod_list_default.csv: No such file"),
        (["--dumps", "x", "--at-once", "5"], "--at-once: only with --trace"),
        (["--trace", "x", "--days", "5"], "--days: only with --at-once"),
        (["--trace", "x", "--seeds", "21"], "'21'; allowed: a whole number from 1 to 20"),
        (["--trace", "x", "--sweep", "headroom"], "--sweep 'headroom': allowed: a setting's path"),
        (["--trace", "x", "--config", "/no/such"], "/no/such: No such file"),
        (
            ["--trace", "x", "--page", "/no/such/page"],
            "/no/such/page: the directory /no/such does not exist",
        ),
        (["--trace", "x", "--recommend", "/"], "/: is a directory"),
    ],
)
def test_invalid_options_are_rejected_with_reason(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", *arguments]) == 2
    assert problem in capsys.readouterr().err


LABELS = ("cost", "pods that waited for a mark", "longest wait of a pod, minutes")


def played(name: str) -> VariantResult:
    rows = [RunMetric(label, lambda _: None, 1) for label in LABELS]
    figures = [Figure(row, Fraction(7), Fraction(5), Fraction(9)) for row in rows]
    return VariantResult(name=name, settings=(), figures=figures, best=False)


@pytest.mark.parametrize("spread", [False, True])
def test_variants_are_printed_in_blocks_when_table_is_too_wide(spread: bool) -> None:
    names = [f"Ebb, way-number-{number}" for number in range(10)]
    ways = [played(name) for name in names]
    for width in (1, 40, 80, 120):
        blocks = [one for one in tables(ways, width, spread=spread) if isinstance(one, Table)]
        headings = [re.split("  +", next(one.lines(width)).strip()) for one in blocks]
        assert [name for block in headings for name in block] == names
        for block, told in zip(blocks, headings, strict=True):
            assert block.width <= width or len(told) == 1
            assert len([*block.lines(max(width, block.width))]) == 1 + len(LABELS)
    assert len([*tables(ways, 10_000, spread=spread)]) == 1, "a pipe has all the room"
