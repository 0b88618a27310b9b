"""A diagnosis as text: a row for each check, and details of problems and unknown states."""

from collections.abc import Iterator
from typing import Final

from rich.console import Console

from cli.doctor.finding import Diagnosis, Evidence, Finding, State
from cli.terminal import Table, say
from core.model.humanize import plural

EVIDENCE_SHOWN: Final = 10
"""Values that are shown for a problem; -o json has the others."""


def write(diagnosis: Diagnosis, out: Console) -> None:
    """Write a diagnosis."""
    say(out, Table("", "", rows=diagnosis.cluster_input.origin, left=(0, 1)))
    say(out, "", _summary(diagnosis))
    rows = (
        (one.result.state.value, one.check.code, one.result.seen) for one in diagnosis.findings
    )
    say(out, "", Table("state", "check", "seen", rows=rows, left=(0, 1, 2)))
    problems = [one for one in diagnosis.findings if one.result.state is State.PROBLEM]
    if problems:
        parts = [row for one in problems for row in _problem(one)]
        say(out, "", Table("problem", "", "", rows=parts, left=(0, 1, 2)))
    if hidden := _visible_by(diagnosis):
        say(out, "", Table("to see more", "checks", rows=hidden.items(), left=(0, 1)))


def _visible_by(diagnosis: Diagnosis) -> dict[str, str]:
    """Return what makes unknown states known, each with the codes of its checks."""
    found: dict[str, list[str]] = {}
    for one in diagnosis.findings:
        if one.result.state is State.UNKNOWN:
            found.setdefault(one.result.visible_by, []).append(one.check.code)
    return {by: ", ".join(codes) for by, codes in found.items()}


def _summary(diagnosis: Diagnosis) -> str:
    problems = plural(diagnosis.count(State.PROBLEM), "problem")
    unknown, fine = diagnosis.count(State.UNKNOWN), diagnosis.count(State.OK)
    return f"{plural(len(diagnosis.findings), 'check')}: {problems}, {unknown} unknown, {fine} ok"


def _problem(finding: Finding) -> Iterator[tuple[str, str, str]]:
    evidence = finding.result.evidence
    shown = [_line(one) for one in evidence[:EVIDENCE_SHOWN]]
    if len(evidence) > EVIDENCE_SHOWN:
        shown.append(f"and {len(evidence) - EVIDENCE_SHOWN:,} more; -o json lists all of them")
    yield finding.check.code, "because", finding.result.seen
    yield from (("", "" if number else "evidence", line) for number, line in enumerate(shown))
    yield "", "follows", finding.check.follows
    yield "", "fix", finding.check.fix


def _line(one: Evidence) -> str:
    return f"{one.object}: {one.field} {one.value}" if one.field else f"{one.object} {one.value}"
