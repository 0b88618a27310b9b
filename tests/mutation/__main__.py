"""Test the tests with mutants: `python -m tests.mutation [FILE ...]`.

mutmut changes one expression at a time in these files, and runs the tests with the marker `mutate`
until one of them fails. The report shows the mutants that no test detects. Each shows a
missing test, or a change that does not matter. Without FILE, the files are those that differ from
the merge base with main, if `only_mutate` of `[tool.mutmut]` in pyproject.toml selects them.
"""

import argparse
import fnmatch
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mutmut.configuration import config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code

from tests.support.limited import run_within

MUTANTS: Final = Path("mutants")
STATS: Final = MUTANTS / "mutmut-stats.json"
NICE: Final = 10
SETTLED: Final = ("caught by type check", "killed", "timeout", "not checked")
"""Statuses of mutants that the report does not show."""
NEAR_SEEDS: Final = "--seeds=25"
"""Before the first mutant, mutmut runs all tests three times."""
RUN: Final = """
import sys
from mutmut.__main__ import cli
from mutmut.configuration import config
config().only_mutate = sys.argv[1].split()
config().pytest_add_cli_args_test_selection = sys.argv[3].split()
config().pytest_add_cli_args += sys.argv[4].split()
cli(["run", "--max-children", "1", *sys.argv[2].split()])
"""
"""A process without the package `tests`, so that tests run from the copy in `mutants`."""


def changed() -> list[str]:
    """Return the files to mutate that differ from the merge base with main, or from HEAD."""
    base = _git("merge-base", "main", "HEAD") or "HEAD"
    return [
        file
        for file in _git("diff", "--name-only", "--diff-filter=d", base).splitlines()
        if any(fnmatch.fnmatch(file, pattern) for pattern in config().only_mutate)
    ]


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def run(files: Sequence[str], minutes: float | None, *, near: bool) -> None:
    """Run the mutants of the files, or those that fit in the time.

    *near*: only with the tests in the folders of the files, such as tests/core/engine, and with
    fewer random clusters.
    """
    tests = {f"tests/{Path(file).parent}" for file in files} if near else {"tests"}
    for file in files:
        # Otherwise mutmut would use the unchanged copy that a run with other files has left.
        (MUTANTS / file).unlink(missing_ok=True)
    # mutmut does not look for tests of new functions if it finds its statistics.
    STATS.unlink(missing_ok=True)
    names = [f"{file.removesuffix('.py').replace('/', '.')}.*" for file in files]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    fewer = NEAR_SEEDS if near else ""
    arguments = [" ".join(files), " ".join(names), " ".join(sorted(tests)), fewer]
    command = [sys.executable, "-c", RUN, *arguments]
    seconds = None if minutes is None else 60 * minutes
    if code := run_within(seconds, command, environment=environment):
        raise SystemExit(code)


def report(files: Sequence[str]) -> None:
    """Print the mutants that no test detects, then the statuses of all mutants by file."""
    totals: list[tuple[str, Counter[str]]] = []
    for file in files:
        found = SourceFileMutationData(path=Path(file))
        found.load()
        statuses = {
            name: status_by_exit_code[code] for name, code in found.exit_code_by_key.items()
        }
        for name, status in statuses.items():
            if status not in SETTLED:
                print(f"\n{name}: {status}", *_changed_lines(name), sep="\n")
        totals.append((file, Counter(statuses.values())))
    print()
    for file, counts in totals:
        print(file, ", ".join(f"{count} {status}" for status, count in sorted(counts.items())))


def _changed_lines(name: str) -> Iterator[str]:
    for line in get_diff_for_mutant(name).splitlines()[2:]:
        if line.startswith(("-", "+")):
            yield f"{line[0]} {line[1:].strip()}"


def main() -> None:
    """Run the mutants of the files, and print the report."""
    parser = argparse.ArgumentParser(prog="tests.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="such as core/engine/limits.py")
    parser.add_argument("--minutes", type=float, help="end after this time, with a report")
    parser.add_argument(
        "--near", action="store_true", help="run only the tests in the folder of each file"
    )
    asked = parser.parse_args()
    files = asked.files or changed()
    if missing := [file for file in files if not Path(file).is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    if not files:
        parser.error("no changed file to mutate; name files")
    sources = config().source_paths
    if other := [file for file in files if not any(map(Path(file).is_relative_to, sources))]:
        parser.error(f"not in source_paths of pyproject.toml: {', '.join(other)}")
    os.nice(NICE)
    config().only_mutate = list(files)
    run(files, asked.minutes, near=asked.near)
    report(files)


if __name__ == "__main__":
    main()
