"""Mutants of the engine, the marks and the writes: `python -m tests.mutation [--again]`.

mutmut changes one thing at a time (`[tool.mutmut]` in pyproject.toml says where) and runs the
tables that reach it; what mypy refuses is no mutant. What they let pass must pass the laws too.
A run that is broken off goes on where it was, and one after a change tries what has changed;
with --again what has survived is tried once more, for tests that are new.
"""

import argparse
import json
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

TREE: Final = Path("mutants")
RECORD: Final = TREE / "laws.json"
REACHED: Final = TREE / "mutmut-stats.json"
"""Which tests reach what: mutmut does not look again at functions that are new."""
KNOWN: Final = Path(__file__).with_name("survivors.yaml")
LAWS: Final = (
    *("tests/core/test_engine_laws.py", "tests/core/test_mixed_laws.py", "--seeds=150"),
    "tests/webhook/test_hard_laws.py",
    *("tests/webhook/test_jumps.py", "tests/webhook/test_loop.py"),
    *("tests/core/test_time_box.py", "tests/cli/test_release.py", "tests/cli/test_explain.py"),
    *("-k", "not would_notice"),  # that is about the plain plan, not the engine
)
"""What notices most comes first."""
LAW_SECONDS_MAX: Final = 600
NICE: Final = 10
SHARE_MAX: Final = 0.05
KILLED, REFUSED = 1, "caught by type check"
LIVE: Final = (0, 33)
"""Exit codes of mutants that the tables let pass, or that none of them reaches."""


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


def survivors() -> Iterator[tuple[SourceFileMutationData, str]]:
    """Yield the mutants that nothing has noticed until now."""
    for found in files():
        for name, code in found.exit_code_by_key.items():
            if code in LIVE:
                yield found, name


def forget() -> None:
    """Let what has survived be tried once more."""
    for found, name in list(survivors()):
        found.exit_code_by_key[name] = None
        found.save()
    RECORD.unlink(missing_ok=True)


def by_laws() -> None:
    """Judge by the laws what the tables let pass; what they have let pass too is written down."""
    passed: dict[str, str] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for found, name in list(survivors()):
        function = mangled_name_from_mutant_name(name).rpartition(".")[2]
        version = found.hash_by_function_name.get(function, "")
        if passed.get(name) == version:
            continue
        if _passes(name):
            passed[name] = version
            RECORD.write_text(json.dumps(passed))
        else:
            found.load()
            found.exit_code_by_key[name] = KILLED
            found.save()
        print(name, "passes the laws" if name in passed else "breaks a law", flush=True)


def _passes(name: str) -> bool:
    """Say whether the laws hold with this mutant; what never ends breaks them."""
    options = ("-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutation")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *LAWS],
            cwd=TREE,
            env=os.environ | {"MUTANT_UNDER_TEST": name, "PYTHONPATH": "."},
            stdout=subprocess.DEVNULL,
            timeout=LAW_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


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


def report() -> int:
    """Print what became of them all. Returns: 1 if too many survive or one is not explained."""
    counts = Counter(
        status_by_exit_code[code] for found in files() for code in found.exit_code_by_key.values()
    )
    explained, unknown = known(), 0
    for _, name in survivors():
        change = change_of(name)
        why = explained.get(change)
        unknown += why is None
        print(f"\n{name}\n- {change.before}\n+ {change.after}\n  {why or 'NOBODY KNOWS WHY'}")
    real = counts.total() - counts[REFUSED]
    lived = counts["survived"] + counts["no tests"]
    print(f"\n{counts.total()} mutants:", ", ".join(f"{n} {what}" for what, n in counts.items()))
    print(f"of {real} that mypy lets pass {lived} survive, {lived / real:.1%}; {unknown} unknown")
    return int(unknown > 0 or lived > SHARE_MAX * real or counts["not checked"] > 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.mutation", description=__doc__)
    parser.add_argument("--again", action="store_true", help="try what has survived once more")
    parser.add_argument("--report", action="store_true", help="print what is known, run nothing")
    options = parser.parse_args()
    if not options.report:
        os.nice(NICE)
        if options.again:
            forget()
        REACHED.unlink(missing_ok=True)
        programs = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        subprocess.run(["mutmut", "run", "--max-children", "1"], env=programs, check=True)
        by_laws()
    return report()


if __name__ == "__main__":
    sys.exit(main())
