"""The answer of `ebb doctor` as text: a row for each check, and details of problems."""

from collections.abc import Iterator
from typing import Final

from rich.console import Console

from cli.doctor.finding import CheckState, Diagnosis, Evidence, Finding
from cli.terminal import Table, say
from core.model.humanize import plural

EVIDENCE_SHOWN: Final = 10
"""Values that are shown for a problem; -o json has the others."""


def write(diagnosis: Diagnosis, out: Console) -> None:
    """Write a row for each check, details of problems, and how to see unknown states."""
    say(out, Table("", "", rows=diagnosis.cluster_input.origin, left=(0, 1)))
    say(out, "", _summary(diagnosis))
    rows = (
        (finding.result.state.value, finding.check.code, finding.result.seen)
        for finding in diagnosis.findings
    )
    say(out, "", Table("state", "check", "seen", rows=rows, left=(0, 1, 2)))
    for finding in diagnosis.findings:
        if finding.result.state is CheckState.PROBLEM:
            say(out, "", f"problem: {finding.check.code}")
            say(out, Table("", "", rows=_problem(finding), left=(0, 1)))
    if hidden := _visible_by(diagnosis):
        say(out, "", Table("unknown", "to see it", rows=hidden, left=(0, 1)))


def _visible_by(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Return rows of codes of checks with an unknown state, and of what makes the states known."""
    codes_by: dict[str, list[str]] = {}
    for finding in diagnosis.findings:
        if finding.result.state is CheckState.UNKNOWN:
            codes_by.setdefault(finding.result.visible_by, []).append(finding.check.code)
    return [(", ".join(codes), by) for by, codes in codes_by.items()]


def _summary(diagnosis: Diagnosis) -> str:
    problems = plural(diagnosis.count(CheckState.PROBLEM), "problem")
    unknown, fine = diagnosis.count(CheckState.UNKNOWN), diagnosis.count(CheckState.OK)
    return f"{plural(len(diagnosis.findings), 'check')}: {problems}, {unknown} unknown, {fine} ok"


def _problem(finding: Finding) -> Iterator[tuple[str, str]]:
    evidence = finding.result.evidence
    shown = [line(each) for each in evidence[:EVIDENCE_SHOWN]]
    if len(evidence) > EVIDENCE_SHOWN:
        shown.append(
            f"and {len(evidence) - EVIDENCE_SHOWN:,} more values; -o json lists all of them"
        )
    yield "because", finding.result.seen
    yield from (("" if number else "evidence", text) for number, text in enumerate(shown))
    yield "effect", finding.check.effect
    yield "fix", finding.check.fix


def line(evidence: Evidence) -> str:
    """Return evidence as a line: the object, the field and its value."""
    return (
        f"{evidence.object}, {evidence.field}: {evidence.value}"
        if evidence.field
        else f"{evidence.object} {evidence.value}"
    )
