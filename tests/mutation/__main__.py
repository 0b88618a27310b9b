"""Mutants of the engine, the marks and the writes: `python -m tests.mutation [--again]`.

mutmut changes one thing at a time (`[tool.mutmut]` in pyproject.toml says where) and runs the
tables and laws that reach it, the quickest first, until one fails; what mypy refuses is no mutant.
A run that is broken off goes on where it was, and one after a change tries what has changed;
with --again what has survived, or timed out, is tried once more, for tests that are new.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import yaml
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import mangled_name_from_mutant_name

REACHED: Final = Path("mutants/mutmut-stats.json")
"""Which tests reach what: mutmut does not look again at functions that are new."""
KNOWN: Final = Path(__file__).with_name("survivors.yaml")
NICE: Final = 10
SHARE_MAX: Final = 0.05
REFUSED, KILLED, LATE, UNTRIED = "caught by type check", "killed", "timeout", "not checked"
SETTLED: Final = (REFUSED, KILLED, LATE, UNTRIED)
NAMED, UNNAMED = "live and named", "live and unnamed"


class Change(NamedTuple):
    """What a mutant is, whatever its number."""

    function: str
    before: str
    after: str


def files() -> Iterator[SourceFileMutationData]:
    """Yield what is known of the mutants of each file."""
    for path in walk_mutatable_files():
        found = SourceFileMutationData(path=path)
        found.load()
        if found.exit_code_by_key:
            yield found


def forget() -> None:
    """Let what no test has failed for be tried once more."""
    for found in files():
        for name, code in found.exit_code_by_key.items():
            if status_by_exit_code[code] not in (KILLED, REFUSED):
                found.exit_code_by_key[name] = None
        found.save()


def change_of(name: str) -> Change:
    """Return the one line that a mutant changes; of several, all."""
    lines = get_diff_for_mutant(name).splitlines()[2:]
    before, after = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return Change(mangled_name_from_mutant_name(name), before, after)


def known() -> Mapping[Change, str]:
    """Return why each mutant that is known to survive is none."""
    return {
        Change(function, one["before"], one["after"]): why
        for function, groups in (yaml.safe_load(KNOWN.read_text()) or {}).items()
        for why, changes in groups.items()
        for one in changes
    }


def live() -> Iterator[tuple[str, str]]:
    """Yield the mutants that no test has failed for, each with its file."""
    for found in files():
        for name, code in found.exit_code_by_key.items():
            if status_by_exit_code[code] not in SETTLED:
                yield str(found.path), name


def report() -> int:
    """Print what became of them all.

    Returns: 1 if some are untried, too many live, one lives that is not named, or the other way.
    """
    counts = {
        str(found.path): Counter(
            map(status_by_exit_code.__getitem__, found.exit_code_by_key.values())
        )
        for found in files()
    }
    explained, seen = known(), set()
    for path, name in live():
        change = change_of(name)
        seen.add(change)
        why = explained.get(change)
        counts[path][UNNAMED if why is None else NAMED] += 1
        print(f"\n{name}\n- {change.before}\n+ {change.after}\n  {why or 'NOBODY KNOWS WHY'}")
    total = sum(counts.values(), Counter[str]())
    stale = [] if total[UNTRIED] else [change for change in explained if change not in seen]
    for change in stale:
        print(f"\nnamed, and does not live: {change.function}\n+ {change.after}")
    print()
    for path, count in (*sorted(counts.items()), ("all", total)):
        print(f"{path:26}", _told(count))
    return int(total[UNTRIED] + total[UNNAMED] + len(stale) > 0 or _share(total) > SHARE_MAX)


def _share(count: Mapping[str, int]) -> float:
    """Return how many live of those that mypy lets pass and that have been tried."""
    lived = count[NAMED] + count[UNNAMED]
    return lived / max(1, lived + count[KILLED] + count[LATE])


def _told(count: Mapping[str, int]) -> str:
    words = (
        f"{count[one]:5} {word}"
        for word, one in (
            ("refused by types", REFUSED),
            ("killed", KILLED),
            ("timed out", LATE),
            ("live and are named", NAMED),
            ("live unnamed", UNNAMED),
            ("untried", UNTRIED),
        )
    )
    made = sum(count[one] for one in (*SETTLED, NAMED, UNNAMED))
    return f"{made:5} mutants: {', '.join(words)}; {_share(count):.1%} live"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.mutation", description=__doc__)
    parser.add_argument(
        "--again", action="store_true", help="try once more what no test failed for"
    )
    parser.add_argument("--report", action="store_true", help="print what is known, run nothing")
    options = parser.parse_args()
    if not options.report:
        os.nice(NICE)
        if options.again:
            forget()
        REACHED.unlink(missing_ok=True)
        programs = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        subprocess.run(["mutmut", "run", "--max-children", "1"], env=programs, check=True)
    return report()


if __name__ == "__main__":
    sys.exit(main())
