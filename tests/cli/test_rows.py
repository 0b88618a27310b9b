"""`ebb plan` as rows of nodes: columns, selectors, order, and golden tables at four widths."""

import csv
import io
import re
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest

from cli.__main__ import main
from cli.nodes import selector
from core.eligibility.scalability import GROUPS_SHOWN, OTHER
from core.model.errors import InvalidInputError
from tests.support.plan_cli import LONG, Json, dump, node, on_terminal, pod

GOLDEN = Path(__file__).parent / "golden"
TYPE = "node.kubernetes.io/instance-type"
NODE_GROUP = "eks.amazonaws.com/nodegroup"
ZONE = "topology.kubernetes.io/zone"
CONFIG = """\
apiVersion: kube-ebb.io/v1alpha1
kind: EbbConfiguration
thresholds: {cpu: 80%, memory: 80%}
headroom: 0
usableCapacity: all
reserve: {window: never}
pools:
- {name: spot, selector: {matchLabels: {tier: spot}}}
- {name: rest, selector: {matchExpressions: [{key: tier, operator: Exists}]}}
prices:
- {nodeSelector: {node.kubernetes.io/instance-type: m5.large}, price: 0.096}
"""


def labeled(name: str, **labels: str) -> Json:
    found = node(name)
    found["metadata"] = {"name": name, "labels": labels}
    return found


NAMES = [LONG.format(number) for number in range(1, 5)]
ITEMS = [
    labeled(NAMES[0], **{"tier": "spot", ZONE: "eu-1a", TYPE: "m5.large"}),
    labeled(NAMES[1], **{"tier": "spot", ZONE: "eu-1b", TYPE: "m5.large"}),
    labeled(NAMES[2], **{"tier": "base", ZONE: "eu-1a"}),
    labeled(NAMES[3], **{ZONE: "eu-1c"}),
    pod("a1", NAMES[0], "500m"),
    pod("b1", NAMES[1], "1"),
    pod("c1", NAMES[2], "2"),
    pod("d1", NAMES[3], "100m", volumes=[{"persistentVolumeClaim": {"claimName": "d"}}]),
]


def made(folder: Path, items: Iterable[Json] = ITEMS) -> list[str]:
    """Write the input of the commands; return the options that name it."""
    file, config = folder / "dump.json", folder / "ebb.yaml"
    file.write_bytes(dump(*items))
    config.write_text(CONFIG)
    return ["--from-file", str(file), "--config", str(config)]


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    return made(tmp_path)


def run(*arguments: str) -> tuple[int, str, str]:
    """Run a command in this process; return exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


def lines(*arguments: str) -> list[str]:
    code, out, err = run("plan", *arguments)
    assert code == 0, err
    return out.splitlines()


def rows(*arguments: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("\n".join(lines(*arguments, "-o", "csv")))))


class TestRows:
    def test_csv_has_facts_of_every_node(self, given: list[str]) -> None:
        found = {row["node"]: row for row in rows(*given)}
        assert set(found) == set(NAMES)
        first = found[NAMES[0]]
        assert (first["pool"], first["zone"], first["type"]) == ("spot", "eu-1a", "m5.large")
        assert (first["pods"], first["requested"], first["price"]) == ("1", "0.125", "0.096")
        assert first["ageSeconds"] == "", "the dump has no creationTimestamp"
        assert found[NAMES[2]]["price"] == ""
        assert found[NAMES[3]]["reasons"].split()[0]

    def test_pool_is_node_group_or_else_configured_pool(self, given: list[str]) -> None:
        assert [row["pool"] for row in rows(*given, "--sort-by", "name")] == [
            "spot",
            "spot",
            "rest",
            "",
        ]
        groups = {f"n{number:03}": f"g{number:03}" for number in range(GROUPS_SHOWN + 1)}
        groups["another"] = "g000"
        nodes = [labeled(name, **{NODE_GROUP: group}) for name, group in groups.items()]
        found = rows(*made(Path(given[1]).parent, [*nodes, pod("p", "another", "1")]))
        assert {row["node"]: row["pool"] for row in found} == {**groups, "n100": OTHER}

    def test_name_lists_removable_nodes(self, given: list[str]) -> None:
        removable = [row["node"] for row in rows(*given) if row["order"]]
        assert removable
        assert lines(*given, "-o", "name") == [f"node/{name}" for name in removable]

    def test_label_columns_are_added(self, given: list[str]) -> None:
        found = rows(*given, "-L", "tier,missing")
        assert {row["tier"] for row in found} == {"spot", "base", ""}
        assert {row["missing"] for row in found} == {""}

    @pytest.mark.parametrize("form", ["wide", "csv"])
    def test_label_columns_double_no_column(self, tmp_path: Path, form: str) -> None:
        given = made(tmp_path, [labeled("a", tier="spot", pool="blue"), pod("p", "a")])
        options = "-L", f"tier,pool,tier,{ZONE},{TYPE}", "-L", "pool,", "-o", form
        headings, *found = lines(*given, *options)
        assert re.findall(r"\b(?:tier|label pool|pool|zone|type)\b|topology", headings) == [
            "pool", "zone", "type", "tier", "label pool",
        ]  # fmt: skip
        assert re.findall(r"blue|spot", found[0]) == ["spot", "spot", "blue"]

    def test_no_headers_leaves_out_first_line(self, given: list[str]) -> None:
        for form in ("csv", "wide"):
            whole = lines(*given, "-o", form)
            assert [line.split() for line in lines(*given, "-o", form, "--no-headers")] == [
                line.split() for line in whole[1:]
            ]

    @pytest.mark.parametrize(
        ("column", "order"),
        [("name", [0, 1, 2, 3]), ("requested", [3, 0, 1, 2]), ("zone", [0, 2, 1, 3])],
    )
    def test_rows_are_sorted(self, given: list[str], column: str, order: list[int]) -> None:
        found = [row["node"] for row in rows(*given, "--sort-by", column)]
        assert found == [NAMES[number] for number in order]

    def test_unknown_sort_column_is_rejected(self, given: list[str]) -> None:
        code, _, err = run("plan", *given, "--sort-by", "x")
        told = "ebb: --sort-by: 'x'; allowed: order, name, pods, requested, price, age, pool, "
        assert (code, err.startswith(told)) == (2, True)


class TestSelector:
    @pytest.mark.parametrize(
        ("text", "numbers"),
        [
            ("tier", [0, 1, 2]),
            ("!tier", [3]),
            ("tier=spot", [0, 1]),
            ("tier==spot", [0, 1]),
            ("tier!=spot", [2, 3]),
            (f"tier=spot,{ZONE}=eu-1b", [1]),
            (f"{ZONE} in (eu-1a, eu-1c)", [0, 2, 3]),
            ("tier notin (spot)", [2, 3]),
            ("", [0, 1, 2, 3]),
        ],
    )
    def test_only_selected_nodes_are_shown(
        self, given: list[str], text: str, numbers: list[int]
    ) -> None:
        found = {row["node"] for row in rows(*given, "-l", text)}
        assert found == {NAMES[number] for number in numbers}

    @pytest.mark.parametrize(
        ("options", "numbers"),
        [
            (["-n", "shop"], [0, 1, 2]),
            (["-n", "other"], [3]),
            (["-n", "other", "-A"], [0, 1, 2, 3]),
            (["-n", "shop", "-l", "tier=spot"], [0, 1]),
            (["-n", "none"], []),
        ],
    )
    def test_only_nodes_with_pods_of_namespace_are_shown(
        self, tmp_path: Path, options: list[str], numbers: list[int]
    ) -> None:
        daemon = pod("e1", NAMES[2])
        daemon["metadata"] = {
            "namespace": "other",
            "name": "e1",
            "ownerReferences": [{"kind": "DaemonSet", "name": "e", "controller": True}],
        }
        moved = {**ITEMS[-1], "metadata": {"name": "d1", "namespace": "other"}}
        given = made(tmp_path, [*ITEMS[:-1], moved, daemon])
        names = {NAMES[number] for number in numbers}
        assert {row["node"] for row in rows(*given, *options)} == names
        status = orjson.loads(run("status", *given, *options, "-o", "json")[1])
        assert status["counts"]["nodes"] == status["headline"]["nodes"] == len(numbers)
        assert set(status["removable"]) <= names
        codes = [warning["code"] for warning in status["warnings"]]
        assert ("nothing-selected" in codes) is (not numbers)

    @pytest.mark.parametrize("command", [["status"], ["plan"], ["plan", "-o", "name"]])
    def test_empty_selection_says_so(self, given: list[str], command: list[str]) -> None:
        code, out, err = run(*command, *given, "-l", "tier=none")
        assert (code, err.splitlines()[0]) == (0, "Warning: no node matches the options -l and -n")
        if "-o" not in command:
            assert out.startswith("The cluster has no nodes, or the options select no node.\n")

    @pytest.mark.parametrize("text", ["a b", "=a", "a in b", "a=(b)", "a,,b", "!"])
    def test_invalid_selector_is_rejected(self, text: str) -> None:
        with pytest.raises(InvalidInputError, match=r"^--selector: "):
            selector(text)


STYLE = re.compile("\x1b\\[[0-9;]*m")
"""A color or another style of a terminal."""
COMMANDS = ("plan", "plan -o wide", "status")
WIDTHS = (60, 80, 200)


def on_terminal_of(width: int, command: str, given: list[str]) -> list[str]:
    """Return the lines of a command on a terminal, without colors."""
    shown = on_terminal(*command.split(), *given, COLUMNS=str(width), TERM="xterm")
    return [STYLE.sub("", line).rstrip() for line in shown.replace("\r\n", "\n").splitlines()]


def piped(command: str, given: list[str]) -> list[str]:
    return run(*command.split(), *given)[1].splitlines()


def golden(command: str, width: int | str) -> Path:
    return GOLDEN / f"{command.replace(' ', '')}-{width}.txt"


def masked(lines: list[str], given: list[str]) -> str:
    """Return the lines without those that contain the paths of the input."""
    return "".join(f"{line}\n" for line in lines if not any(one in line for one in given[1::2]))


class TestGolden:
    """Tables at three widths and in a pipe; `python -m tests.cli.test_rows` writes the files."""

    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("command", COMMANDS)
    def test_table_fits_terminal(self, given: list[str], command: str, width: int) -> None:
        found = masked(on_terminal_of(width, command, given), given)
        assert max(map(len, found.splitlines())) <= width
        assert found == golden(command, width).read_text("utf-8")

    @pytest.mark.parametrize("command", COMMANDS)
    def test_table_is_not_wrapped_in_pipe(self, given: list[str], command: str) -> None:
        found = masked(piped(command, given), given)
        assert found == golden(command, "piped").read_text("utf-8")


def write_golden() -> None:
    """Write the golden tables of the present code."""
    with TemporaryDirectory() as folder:
        given = made(Path(folder))
        for command in COMMANDS:
            shown: dict[int | str, list[str]] = {
                width: on_terminal_of(width, command, given) for width in WIDTHS
            }
            shown["piped"] = piped(command, given)
            for width, found in shown.items():
                golden(command, width).write_text(masked(found, given), "utf-8")


if __name__ == "__main__":
    write_golden()
