"""Tables: words are not broken at any width."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.terminal import TEXT_CHARS_MIN, Table, render, say
from core.marks.wellknown import MARK_LABEL
from tests.support.plan_cli import dump, node, on_terminal, pod

LABEL = "n" * 63
NAME = ".".join(("a" * 63, "b" * 63, "c" * 63, "d" * 61))
TEXT = "one of the many words that make a sentence which is longer than its column"


def made(*rows: tuple[str, ...], left: tuple[int, ...] = (0, 2)) -> Table:
    return Table("name", "number", "text", rows=rows, left=left)


def test_text_is_wrapped_when_table_is_narrow() -> None:
    assert list(made(("node-a", "7", TEXT)).lines(45)) == [
        "name    number  text",
        "node-a       7  one of the many words that",
        "                make a sentence which is",
        "                longer than its column",
    ]


def test_name_is_not_broken_and_text_keeps_minimum_width() -> None:
    lines = list(made((NAME, "7", TEXT), ("short", "8", TEXT)).lines(80))
    assert sum(line.startswith(f"{NAME}       7  ") for line in lines) == 1
    assert max(map(len, lines)) == len(NAME) + len("  number  ") + TEXT_CHARS_MIN


def test_long_name_in_text_exceeds_width_only_on_its_line() -> None:
    lines = list(made(("a", "7", f"node {NAME} is full"), ("b", "8", TEXT)).lines(60))
    assert [line.strip() for line in lines if len(line) > 60] == [NAME]


def test_row_is_one_line_when_table_is_wide() -> None:
    rows = [(LABEL, "7", TEXT), (NAME, "8", TEXT)]
    assert len(list(made(*rows).lines(10_000))) == 3


def test_name_is_printed_above_row_when_table_is_narrow() -> None:
    rows = [("a name of several words", "12")]
    table = Table("reach", "nodes", rows=rows, names_above=True)
    assert list(table.lines(20)) == ["reach  nodes", "a name of several words", "          12"]
    assert len(list(table.lines(40))) == 2


@pytest.mark.parametrize("names_above", [False, True])
def test_table_is_printed_at_any_width(names_above: bool) -> None:
    """The name and its longest word are wider than their heading."""
    rows = [("a-name-of-one-word", "7", TEXT), ("one of several words", "8", "short")]
    table = Table("name", "number", "text", rows=rows, left=(0, 2), names_above=names_above)
    for width in range(1, 81):
        said = " ".join(" ".join(table.lines(width)).split())
        assert "a-name-of-one-word" in said, width


WORDS = st.lists(st.text("abc-./:", min_size=1, max_size=90), min_size=1, max_size=6)
ROWS = st.lists(st.tuples(WORDS, st.integers(0, 10**6), WORDS), min_size=1, max_size=5)


@given(ROWS, st.integers(20, 250))
def test_table_contains_every_word_once_and_unbroken(
    rows: list[tuple[list[str], int, list[str]]], width: int
) -> None:
    table = made(*((" ".join(a), str(n), " ".join(b)) for a, n, b in rows))
    words = " ".join(table.lines(width)).split()
    shown = sorted(word for word in words if word not in {"name", "number", "text"})
    assert shown == sorted(word for a, n, b in rows for word in (*a, str(n), *b))


PREFER_NO_SCHEDULE = {MARK_LABEL: "PreferNoSchedule"}
LONG = [
    node(NAME, metadata={"name": NAME, "labels": PREFER_NO_SCHEDULE}),
    node(
        LABEL, metadata={"name": LABEL, "labels": PREFER_NO_SCHEDULE}, spec={"unschedulable": True}
    ),
    node("third"),
    pod("p" * 200, NAME, "1500m"),
    pod("q" * 63, LABEL),
    pod("r" * 63, "third", nodeSelector={"kubernetes.io/hostname": NAME}),
]
"""Nodes with names of 253 characters, the most that the API allows, and of 63."""


@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.parametrize(
    "command",
    [
        ["plan"],
        ["status"],
        ["explain", "node", NAME],
        ["explain", "node", LABEL],
        ["explain", "pod", f"shop/{'r' * 63}"],
    ],
    ids=lambda command: " ".join(command)[:20],
)
def test_commands_do_not_break_names(command: list[str], columns: str, tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_bytes(dump(*LONG))
    text = on_terminal(*command, "--from-file", str(file), COLUMNS=columns, TERM="xterm")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    runs = re.findall(r"(([a-dn-r])\2{19,})", plain)
    assert runs
    assert {len(run) for run, letter in runs if letter not in "dp"} <= {63}
    assert {len(run) for run, letter in runs if letter in "dp"} <= {61, 200}


@pytest.mark.parametrize("columns", ["1", "20", "50", "53"])
@pytest.mark.parametrize("command", ["plan", "status"])
def test_commands_print_in_narrow_terminal(command: str, columns: str, tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_bytes(dump(*LONG))
    assert on_terminal(command, "--from-file", str(file), COLUMNS=columns, TERM="xterm")


def test_control_characters_are_escaped() -> None:
    """Messages contain text of objects that other users write."""
    evil = "x\x1b]0;title\x07\x9b2J"
    assert list(made((evil, "7", evil)).lines(80))[1].isprintable()
    assert render(lambda out: say(out, evil)) == "x\\x1b]0;title\\x07\\x9b2J\n"
