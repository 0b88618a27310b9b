"""`ebb plan`, run as a command: it reads files, prints a table, and reports errors in one line."""

import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from cli.__main__ import main
from core.marks.wellknown import MARK_LABEL
from tests.support.plan_cli import (
    ITEMS,
    ROOT,
    A,
    B,
    C,
    D,
    dump,
    ebb,
    node,
    on_terminal,
    plan_of,
    pod,
    started,
    without_source,
    without_warnings,
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "dump.json"
    file.write_bytes(dump(*ITEMS))
    return str(file)


class TestFiles:
    def test_plan_is_same_for_gzip_and_several_files(
        self, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        whole = without_source(plan_of(capsys, "--from-file", path))
        packed, nodes, rest = (tmp_path / name for name in ("all.gz", "nodes", "rest"))
        packed.write_bytes(gzip.compress(dump(*ITEMS)))
        assert without_source(plan_of(capsys, "--from-file", str(packed))) == whole
        nodes.write_bytes(orjson.dumps({"kind": "NodeList", "items": ITEMS[:4]}))
        rest.write_bytes(dump(*ITEMS[4:]))
        parts = plan_of(capsys, "--from-file", str(nodes), "--from-file", str(rest))
        assert parts["source"] == f"{nodes}, {rest}"
        assert without_source(parts) == whole

    def test_plan_reads_standard_input(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        whole = without_source(plan_of(capsys, "--from-file", path))
        for raw in (dump(*ITEMS), gzip.compress(dump(*ITEMS))):
            done = ebb("plan", "--from-file", "-", "-o", "json", stdin=raw)
            assert (done.returncode, done.stderr) == (0, b"")
            assert without_source(orjson.loads(done.stdout)) == whole


FAULTS = [
    pytest.param(b"", "{file}: is empty", id="empty file"),
    pytest.param(
        dump(), "{file}: contains no nodes; create it with: kubectl get", id="empty list"
    ),
    pytest.param(
        dump(ITEMS[0]), "{file}: contains no pods; create it with: kubectl", id="no pods"
    ),
    pytest.param(
        dump(*ITEMS)[:-7],
        "{file}: is not complete, valid JSON: Input data was trun",
        id="truncated file",
    ),
    pytest.param(
        gzip.compress(dump(*ITEMS))[:-20], "{file}: gzip ends too early", id="truncated gzip"
    ),
    pytest.param(b"\x1f\x8bjunk", "{file}: damaged gzip", id="damaged gzip"),
    pytest.param(
        dump(node(A), node(A), ITEMS[4]),
        f"{{file}}: node {A}: occurs more than once in",
        id="duplicate Node",
    ),
]
UNREADABLE = [
    pytest.param(
        dump(node(A, status={}), ITEMS[4]),
        f"{{file}}: Node {A}: status.allocatable: missing",
        "the Node cannot be read",
        id="no allocatable",
    ),
    pytest.param(
        dump(node(A), pod("p", A, cpu="-1")),
        "{file}: Pod shop/p: spec.containers[0].resources.requests.cpu: '-1' is negative",
        "pod-unreadable",
        id="negative request",
    ),
]


class TestFaults:
    @pytest.mark.parametrize(("raw", "told"), FAULTS)
    def test_invalid_dump_is_reported_in_one_line_with_exit_code_2(
        self, raw: bytes, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "dump"
        file.write_bytes(raw)
        assert main(["plan", "--from-file", str(file)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("ebb: " + told.format(file=file))
        assert err.count("\n") == 1

    @pytest.mark.parametrize(("raw", "told", "code"), UNREADABLE)
    def test_unreadable_object_is_warning_and_its_node_is_unremovable(
        self,
        raw: bytes,
        told: str,
        code: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        file = tmp_path / "dump"
        file.write_bytes(raw)
        assert main(["plan", "--from-file", str(file)]) == 0
        out, err = capsys.readouterr()
        assert code in out
        first, *others = err.splitlines()
        assert first.startswith("ebb: cannot read: " + told.format(file=file))
        assert all(line.startswith("Warning: ") for line in others)

    def test_missing_file_is_reported_in_one_line(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["plan", "--from-file", "/does/not/exist"]) == 2
        assert capsys.readouterr().err == "ebb: /does/not/exist: No such file or directory\n"

    def test_every_error_of_configuration_is_reported(
        self, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = tmp_path / "ebb.yaml"
        config.write_text("apiVersion: x\nkind: EbbConfiguration\nunneededTime: soon\n")
        assert main(["plan", "--from-file", path, "--config", str(config)]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2
        assert all(line.startswith(f"ebb: {config}: ") for line in lines)

    def test_control_characters_of_node_name_are_escaped(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "dump"
        file.write_bytes(dump(node("\x1b]0;x\x07"), ITEMS[4]))
        assert main(["plan", "--from-file", str(file)]) == 0
        lines = capsys.readouterr().err.splitlines()
        assert lines
        assert all(line.isprintable() for line in lines)

    def test_error_names_standard_input(self) -> None:
        done = ebb("plan", "--from-file", "-", stdin=b"{}")
        assert done.returncode == 2
        assert done.stderr.startswith(b"ebb: standard input: contains no nodes")

    @pytest.mark.parametrize(
        "arguments",
        [
            [],
            ["plan", "--from-file", "f", "--kubeconfig", "k"],
            ["plan", "--from-file", "f", "--max-cpu", "0%"],
            ["plan", "--from-file", "f", "--max-cpu", "0.8"],
            ["plan", "--from-file", "f", "--max-removals", "-1"],
            ["plan", "--from-file", "f", "-o", "xml"],
        ],
    )
    def test_invalid_command_line_is_rejected_with_usage(
        self, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(arguments) == 2
        usage, problem = capsys.readouterr().err.splitlines()
        assert usage.startswith("Usage: ebb")
        assert ": error: " in problem

    def test_version_is_printed(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--version"]) == 0
        assert capsys.readouterr().out.startswith("ebb ")


class TestTable:
    def test_table_shows_totals_removals_and_reasons(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["plan", "--from-file", path]) == 0
        text = capsys.readouterr().out
        lines = [line.split() for line in text.splitlines()]
        assert ["nodes", "3", "2"] in lines
        assert ["cpu", "requests,", "cores", "4.0", "4.0"] in lines
        assert "derived from the pods" in text
        assert ["1", C, "1", "nothing:", "pod-bare", "(1)", A, "(1)"] in lines
        assert "nothing: some pods rarely terminate; `ebb explain node NAME` says why." in text
        assert any(line[:2] == ["cordoned", "1"] for line in lines)
        assert f"{D}: the node is cordoned" in text

    def test_table_reports_no_removable_node_when_threshold_is_too_low(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["plan", "--from-file", path, "--max-cpu", "1%"]) == 0
        assert "No node is removable." in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("limits", "stays_marked"),
        [
            ("", True),
            ("  thresholds: {cpu: 80%, memory: 80%}\n", False),  # the pool has its own thresholds
        ],
    )
    def test_hysteresis_is_added_to_thresholds_of_command_line(
        self, limits: str, stays_marked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        marked = node(A)
        marked["metadata"]["labels"] = {MARK_LABEL: "PreferNoSchedule", "size": "small"}
        dumped, config = tmp_path / "dump.json", tmp_path / "ebb.yaml"
        dumped.write_bytes(dump(marked, node(B), pod("a", A, "80m"), pod("b", B, "3800m")))
        config.write_text(
            "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\n"
            "usableCapacity: all\nheadroom: 0\nthresholds: {cpu: 80%, memory: 80%}\npools:\n"
            "- name: small\n  selector: {matchLabels: {size: small}}\n"
            f"{limits}"
        )
        told = ("--from-file", str(dumped), "--config", str(config), "--max-cpu", "95%")
        assert plan_of(capsys, *told)["markedInfeasible"] == ([] if stays_marked else [A])

    def test_table_reports_infeasible_marks_and_pending_pods(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        marked = node("marked", spec={"unschedulable": True})
        marked["metadata"]["labels"] = {MARK_LABEL: "PreferNoSchedule"}
        dumped, config = tmp_path / "dump.json", tmp_path / "ebb.yaml"
        dumped.write_bytes(dump(*ITEMS, marked, pod("waits", None)))
        config.write_text(
            "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\nusableCapacity: all\n"
        )
        assert main(["plan", "--from-file", str(dumped), "--config", str(config)]) == 0
        text = capsys.readouterr().out
        assert "Marked, but no longer removable: marked\n" in text
        assert "Placed first (Pending, or on a leaving node): 1 pod.\n" in text
        assert "All allocatable capacity counts as usable." in text
        assert main(["plan", "-o", "json", "--from-file", str(dumped)]) == 0
        assert orjson.loads(capsys.readouterr().out)["markedInfeasible"] == ["marked"]

    def test_pipe_receives_plain_lines_without_wrapping(self, path: str) -> None:
        done = ebb("plan", "--from-file", path, COLUMNS="40", FORCE_COLOR="1")
        text = done.stdout.decode()
        assert done.returncode == 0
        assert "\x1b" not in text
        assert all(line == line.rstrip() for line in text.splitlines())
        assert all(name in text for name in (A, C, D))

    def test_terminal_receives_styled_lines_of_its_width(self, path: str) -> None:
        text = on_terminal("plan", "--from-file", path, COLUMNS="80", TERM="xterm")
        assert "\x1b[1m" in text
        assert max(len(line) for line in text.split("\r\n") if "\x1b" not in line) <= 80


class TestInterruption:
    def test_plan_exits_with_0_when_reader_closes_pipe(self, path: str) -> None:
        for output in ("table", "json"):
            with started("plan", "--from-file", path, "-o", output) as process:
                assert process.stdout is not None
                assert process.stderr is not None
                process.stdout.close()
                assert without_warnings(process.stderr.read()) == b""
            assert process.returncode == 0

    def test_plan_exits_with_130_when_interrupted(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        with started("plan", "--from-file", str(pipe)) as process:
            assert process.stderr is not None
            with pipe.open("wb"):  # returns when the command has opened it too
                process.send_signal(signal.SIGINT)
                assert process.stderr.read() == b""
        assert process.returncode == 130


PRICES = """\
apiVersion: kube-ebb.io/v1alpha1
kind: EbbConfiguration
prices:
- {nodeSelector: {size: small}, price: "0.0961"}
- {nodeSelector: {size: large}, price: "1200.50"}
"""


class TestPrices:
    """Four nodes: B has no price, C is removable."""

    @pytest.fixture
    def priced(self, tmp_path: Path) -> list[str]:
        file, config = tmp_path / "priced.json", tmp_path / "prices.yaml"
        sizes = {A: "small", B: "huge", C: "small", D: "large"}
        items = [
            {**one, "metadata": {**one["metadata"], "labels": {"size": sizes[name]}}}
            if (name := one["metadata"]["name"]) in sizes
            else one
            for one in ITEMS
        ]
        file.write_bytes(dump(*items))
        config.write_text(PRICES)
        return ["--from-file", str(file), "--config", str(config)]

    def test_table_shows_cost_of_nodes(
        self, priced: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["plan", *priced]) == 0
        assert (
            "Savings: 70.15 of 876,505.31 a month (730 h), in the currency of `prices`. Without a "
            f"price: 1 node, {B}.\n"
        ) in capsys.readouterr().out

    def test_json_has_cost_of_nodes(
        self, priced: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        money = {"before": 1200.6922, "after": 1200.5961, "removed": 0.0961}
        assert plan_of(capsys, *priced)["prices"] == money
        assert plan_of(capsys, *priced, "--max-removals", "0")["prices"]["removed"] == 0

    def test_plan_shows_no_cost_when_no_prices_are_configured(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert plan_of(capsys, "--from-file", path)["prices"] is None
        assert main(["plan", "--from-file", path]) == 0
        out = capsys.readouterr().out
        assert "Savings in money: unknown, because the configuration has no `prices`.\n" in out


WITHOUT_SOLVER = """
import sys
sys.modules["highspy"] = None
from cli.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


class TestBound:
    def test_table_compares_plan_with_fewest_nodes(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["plan", "--from-file", path, "--bound"]) == 0
        out = capsys.readouterr().out
        assert (
            "Bound: the plan keeps 3 of 4 nodes. Any placement needs at least 2 nodes; the best "
            "placement found needs 2 (the fewest). Both figures ignore pod affinity and "
            "anti-affinity, "
        ) in out

    def test_json_has_bound_only_on_request(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert plan_of(capsys, "--from-file", path)["bound"] is None
        found = plan_of(capsys, "--from-file", path, "--bound")["bound"]
        assert found == {"nodes": 4, "planned": 3, "found": 2, "atLeast": 2}

    def test_missing_solver_is_reported_in_one_line(self, path: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_SOLVER, "plan", "--from-file", path, "--bound"],
            capture_output=True,
            cwd=ROOT,
            check=False,
            timeout=60,
        )
        told = b"ebb: --bound: needs the Python package highspy: pip install 'kube-ebb[demo]'\n"
        assert (done.returncode, without_warnings(done.stderr)) == (2, told)


WHEN = """\
apiVersion: kube-ebb.io/v1alpha1
kind: EbbConfiguration
eviction: {mode: enabled}
noScheduleAfter: 1h
schedule:
- {start: "0 0 29 2 *", duration: 1m}
pauseUntil: "9999-12-31T23:59:59Z"
"""


@pytest.fixture
def refusing(path: str, tmp_path: Path) -> list[str]:
    config = tmp_path / "when.yaml"
    config.write_text(WHEN)
    return ["--from-file", path, "--config", str(config)]


END = "`pauseUntil` is 9999-12-31 23:59:59 UTC"


def test_plan_and_status_say_until_when_nothing_begins(
    refusing: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *refusing]) == 0
    table = capsys.readouterr().out
    assert f"No mark, surge move or eviction begins now (paused): {END}.\n" in table
    assert "begins now (schedule): the next window of `schedule` opens at 20" in table
    assert main(["status", *refusing]) == 0
    assert END in capsys.readouterr().out
    for command in ("plan", "status"):
        assert main([command, *refusing, "-o", "json"]) == 0
        found = orjson.loads(capsys.readouterr().out)["nothingBegins"]
        assert [one["code"] for one in found] == ["paused", "schedule"]
        assert found[0] == {"code": "paused", "message": END, "until": 253_402_300_799}
        assert main([command, *refusing[:2], "-o", "json"]) == 0
        assert orjson.loads(capsys.readouterr().out)["nothingBegins"] == []


def test_explanation_says_until_when_nothing_begins(
    refusing: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "node", C, *refusing, "-o", "json"]) == 0
    found = orjson.loads(capsys.readouterr().out)
    for section in ("rateLimits", "notEvicted"):
        assert [one["code"] for one in found[section][:2]] == ["paused", "schedule"]
        assert found[section][0]["message"] == END
        assert "pauseUntil" in found[section][0]["fix"]
    assert main(["explain", "node", C, *refusing]) == 0
    assert END in capsys.readouterr().out
