"""`make nightly` ends in time, and reports what has failed or run nothing."""

import sys
from pathlib import Path

import pytest

from tests.nightly import (
    DAYS,
    MUTANTS,
    TESTS,
    Command,
    Part,
    mutated_files,
    outcome,
    parts,
    run_all,
)

WAITS = "import threading; threading.Event().wait()"


def telling(text: str, code: int = 0) -> Part:
    """Return a part whose process prints the text and exits with the code."""
    program = f"print({text!r}); raise SystemExit({code})"
    command = Command(text, [sys.executable, "-c", program])
    return Part(text, 1, lambda *_: [command])


@pytest.mark.parametrize(
    ("counted", "code", "text", "ran", "passed"),
    [
        (TESTS, 0, "=== 12 passed, 3 skipped in 4.00s ===", 12, True),
        (TESTS, 1, "=== 1 failed, 12 passed in 4.00s ===", 13, False),
        (TESTS, 1, "=== 12 passed, 1 error in 4.00s ===", 12, False),
        (TESTS, 5, "=== 900 deselected in 4.00s ===", 0, False),
        (TESTS, None, "!!! KeyboardInterrupt !!!\n=== 12 passed in 4.00s ===", 12, True),
        (TESTS, None, "=== 1 failed, 12 passed in 4.00s ===", 13, False),
        (TESTS, None, "", 0, False),
        (DAYS, 0, "days      1,024\nnode-hours    7", 1024, True),
        (DAYS, 1, "days          2\nviolations    1", 2, False),
        (MUTANTS, 0, "\na.py 2 caught by type check, 40 killed, 7 not checked", 42, True),
        (MUTANTS, 0, "\na.py 7 not checked", 0, False),
    ],
)
def test_outcome_follows_from_exit_code_and_output(
    counted: str, code: int | None, text: str, ran: int, passed: bool
) -> None:
    found = outcome(Command("", [], counted), code, text)  # type: ignore[arg-type]
    assert (found.ran, found.passed, found.late) == (ran, passed, code is None)


def test_every_part_is_run_and_summed_up_when_some_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [telling("1 failed in 1s", 1), telling("4 passed in 1s"), telling("no tests ran")]
    assert run_all(chosen, 5, tmp_path) == 1
    told, summary = capsys.readouterr().out.split("Summary:")
    assert "no tests ran" in told
    assert summary.count("FAILED") == 2
    assert "passed: 4 passed in 1s: 4 run" in summary


def test_result_is_0_when_all_parts_pass(tmp_path: Path) -> None:
    assert run_all([telling("4 passed in 1s"), telling("5 passed in 1s")], 5, tmp_path) == 0


def test_part_ends_when_its_time_ends(tmp_path: Path) -> None:
    command = Command("waits", [sys.executable, "-c", WAITS])
    assert run_all([Part("waits", 1, lambda *_: [command], rounds_max=9)], 0, tmp_path) == 1


def test_seeds_begin_with_given_seed_and_continue_in_next_round() -> None:
    laws = next(one for one in parts(7000) if one.name == "laws")
    first, second = (laws.commands(number, 60)[0] for number in (0, 1))
    assert first.what == "laws on seeds 7000 to 7499"
    assert second.what == "laws on seeds 7500 to 7999"
    assert "7500" in second.arguments


def test_every_file_is_mutated_by_some_first_seed() -> None:
    files = set(mutated_files())
    (days,) = (one for one in parts(0) if one.name == "days")
    assert "core/engine/limits.py" in files
    told = {
        command.what
        for first in range(len(files))
        for part in parts(first)
        if part.name == days.name
        for command in part.commands(0, 600)
    }
    assert {f"mutants of {file}" for file in files} <= told
