"""Run the tests that take long and rarely fail, for a limited time: `make nightly`.

Each part gets a share of the time that is left. Seeds, days and the mutated file begin somewhere
else each time, so what does not fit is likely to be tested another time. The first seed is
printed, and `--first-seed` repeats a run. A part fails if a test fails, or if it ran nothing.
"""

import argparse
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from mutmut.configuration import config

from tests.support.limited import run_within

MINUTES: Final = 80
LOGS: Final = Path("build/nightly")
SEEDS: Final = 500
"""Seeds of one round of laws."""
RUNS_MAX: Final = 100_000
"""More runs of days than fit."""
END_SECONDS: Final = 60
"""Time for the last simulated days, or for the report of mutmut."""
TAIL_LINES: Final = 60
PYTEST: Final = (sys.executable, "-m", "pytest", "--numprocesses", "auto", "--dist")
TESTS: Final = re.compile(r"\b(\d+) (?:passed|failed)")
FAILED: Final = re.compile(r"\b[1-9]\d* (?:failed|error)")
DAYS: Final = re.compile(r"^days +([\d,]+)$", re.MULTILINE)
MUTANTS: Final = re.compile(r"\b(\d+) (?:killed|survived|timeout|suspicious|caught)")


class Command(NamedTuple):
    """A process, and how its output tells what it has done."""

    what: str
    arguments: Sequence[str]
    ran: re.Pattern[str] = TESTS
    """Finds the numbers of tests, days or mutants in the last lines."""


@dataclass(frozen=True)
class Part:
    """Commands that run at the same time, in rounds until the time of the part ends."""

    name: str
    share: int
    commands: Callable[[int, float], Sequence[Command]]
    """Commands of a round, by its number and the seconds that are left."""
    rounds_max: int = 1


class Outcome(NamedTuple):
    """What a command has done."""

    what: str
    ran: int
    passed: bool
    late: bool
    """It was interrupted at the end of its time."""

    def __str__(self) -> str:
        late = ", out of time" if self.late else ""
        return f"{'passed' if self.passed else 'FAILED'}: {self.what}: {self.ran:,} run{late}"


def parts(first: int) -> list[Part]:
    """Return the parts, whose seeds begin with *first*."""
    return [
        Part("tests", 5, lambda *_: [_nightly_tests(first)]),
        Part("coverage", 15, lambda *_: [_coverage()]),
        Part("mutants", 10, lambda *_: [_mutants()]),
        Part("laws", 25, lambda number, _: [_laws(first + number * SEEDS)], rounds_max=100),
        Part("hostile", 10, lambda *_: [_hostile(first)]),
        Part("days", 15, lambda _, seconds: [_days(first, seconds), _mutation(first, seconds)]),
    ]


def _nightly_tests(first: int) -> Command:
    options = ["worksteal", "-m", "nightly and not e2e", *_seeded(first, "default")]
    return Command("tests marked nightly", [*PYTEST, *options])


def _coverage() -> Command:
    # The coverage tracer makes tests twice as slow, and laws three times; laws should not count.
    quick = "not e2e and not law and not long and not mutant and not nightly"
    options = ["worksteal", "-m", quick, "--cov", "--hypothesis-profile", "quick"]
    return Command("quick tests with coverage", [*PYTEST, *options])


def _mutants() -> Command:
    return Command("mutants of the reference plan", [*PYTEST, "worksteal", "-m", "mutant"])


def _laws(first: int) -> Command:
    # The laws of a file share their random clusters, so each file stays in one process.
    options = ["loadfile", "-m", "law and not mutant", "--seeds", str(SEEDS)]
    what = f"laws on seeds {first} to {first + SEEDS - 1}"
    return Command(what, [*PYTEST, *options, *_seeded(first, "nightly")])


def _hostile(first: int) -> Command:
    options = ["worksteal", "-m", "not nightly", "tests/hostile", *_seeded(first, "hostile")]
    return Command("hostile tests with 10,000 examples", [*PYTEST, *options])


def _seeded(first: int, profile: str) -> list[str]:
    seed = str(first)
    return ["--first-seed", seed, "--hypothesis-seed", seed, "--hypothesis-profile", profile]


def _days(first: int, seconds: float) -> Command:
    options = ["--seed", str(first), "--runs", str(RUNS_MAX), "--minutes", _minutes(seconds)]
    what = f"simulated days from seed {first}"
    return Command(what, [sys.executable, "-m", "tests.soak.days", *options], DAYS)


def _mutation(first: int, seconds: float) -> Command:
    files = sorted(mutated_files())
    file = files[first % len(files)]
    # All tests that could notice a mutant would take longer than this part has.
    options = [file, "--near", "--minutes", _minutes(seconds)]
    return Command(
        f"mutants of {file}", [sys.executable, "-m", "tests.mutation", *options], MUTANTS
    )


def _minutes(seconds: float) -> str:
    return f"{max(0.1, (seconds - END_SECONDS) / 60):.1f}"


def mutated_files() -> Iterator[str]:
    """Yield the files that `make mutate` mutates, without those that define nothing."""
    for pattern in config().only_mutate:
        for path in Path().glob(pattern):
            if path.suffix == ".py" and "def " in path.read_text("utf-8"):
                yield path.as_posix()


def run_part(part: Part, seconds: float, logs: Path) -> list[Outcome]:
    """Run rounds of a part; start no round that is unlikely to end in time."""
    until, longest, found = time.monotonic() + seconds, 0.0, list[Outcome]()
    for number in range(part.rounds_max):
        began = time.monotonic()
        if number and began + longest > until:
            break
        found += _run_round(part.commands(number, until - began), until - began, logs)
        longest = max(longest, time.monotonic() - began)
    return found


def _run_round(commands: Sequence[Command], seconds: float, logs: Path) -> list[Outcome]:
    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(lambda one: _run(one, seconds, logs), commands))


def _run(command: Command, seconds: float, logs: Path) -> Outcome:
    """Run a command with a log file; print its outcome, and the end of its log if it failed."""
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{re.sub(r'[^a-z0-9]+', '-', command.what.lower())}.log"
    with log.open("w", encoding="utf-8") as output:
        code = run_within(max(0.0, seconds), command.arguments, output=output)
    text = log.read_text("utf-8", errors="replace")
    found = outcome(command, code, text)
    print(f"{found} ({log})", flush=True)
    if not found.passed:
        print(*text.splitlines()[-TAIL_LINES:], sep="\n", flush=True)
    return found


def outcome(command: Command, code: int | None, text: str) -> Outcome:
    """Return the outcome by exit code and output; the code is None if the time has ended."""
    last = "\n".join(text.splitlines()[-TAIL_LINES:])
    ran = sum(int(number.replace(",", "")) for number in command.ran.findall(last))
    failed = bool(FAILED.search(last)) if code is None else code != 0
    return Outcome(command.what, ran, passed=ran > 0 and not failed, late=code is None)


def run_all(chosen: Sequence[Part], minutes: float, logs: Path = LOGS) -> int:
    """Run the parts one after the other; return 1 if one failed."""
    until, found = time.monotonic() + 60 * minutes, dict[str, list[Outcome]]()
    for number, part in enumerate(chosen):
        left = until - time.monotonic()
        seconds = left * part.share / sum(one.share for one in chosen[number:])
        print(f"{part.name}: {seconds / 60:.1f} minutes", flush=True)
        found[part.name] = run_part(part, seconds, logs)
    failed = [name for name, some in found.items() if not all(one.passed for one in some)]
    print("\nSummary:")
    for name, some in found.items():
        print(*(f"{name}: {one}" for one in some), sep="\n")
    return int(bool(failed))


def main(arguments: Sequence[str]) -> int:
    """Run all parts."""
    parser = argparse.ArgumentParser(prog="tests.nightly", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help=f"for all parts (default: {MINUTES})"
    )
    parser.add_argument(
        "--first-seed", type=int, default=int(time.time()), help="of laws and days; default: now"
    )
    asked = parser.parse_args(arguments)
    print(f"--first-seed {asked.first_seed}")
    return run_all(parts(asked.first_seed), asked.minutes)


if __name__ == "__main__":
    # A background shell starts its children with SIGINT ignored, and they would not end in time.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
