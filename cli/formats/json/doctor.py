"""The answer of `ebb doctor` as JSON."""

from typing import Any

from cli.doctor.finding import CheckState, Diagnosis, Finding
from cli.formats.json import leader
from core.config.settings import API_VERSION
from runtime.messages import printable


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the findings of all checks as a JSON document."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Diagnosis",
        **leader.origin(diagnosis.cluster_input, diagnosis.now_seconds),
        "counts": {state.value: diagnosis.count(state) for state in CheckState},
        "findings": [_finding(finding) for finding in diagnosis.findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    check, result = finding.check, finding.result
    problem = result.state is CheckState.PROBLEM
    return {
        "code": check.code,
        "state": result.state.value,
        "question": check.question,
        "seen": printable(result.seen),
        "evidence": [
            {name: printable(value) for name, value in evidence._asdict().items()}
            for evidence in result.evidence
        ],
        "effect": check.effect if problem else None,
        "fix": check.fix if problem else None,
        "visibleBy": result.visible_by or None,
    }
