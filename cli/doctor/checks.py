"""The table of all checks; `diagnose` runs them."""

from typing import Final

from cli.doctor import admission, autoscaler, clocks, rights, scheduler, workloads
from cli.doctor.finding import Check, CheckState, Diagnosis, Facts, Finding

CHECKS: Final[tuple[Check, ...]] = (
    *autoscaler.CHECKS,
    *scheduler.CHECKS,
    *admission.CHECKS,
    *rights.CHECKS,
    *workloads.CHECKS,
    *clocks.CHECKS,
)
"""All checks in the order of docs/doctor.md. A new check is one more entry in its module."""


def diagnose(facts: Facts) -> Diagnosis:
    """Run all checks: problems first, then unknown states, each in the order of the table."""
    found = [Finding(check, check.run(facts)) for check in CHECKS]
    order = list(CheckState)
    found.sort(key=lambda one: order.index(one.result.state))  # stable: the table's order remains
    return Diagnosis(
        cluster_input=facts.cluster_input,
        now_seconds=facts.now_seconds,
        findings=tuple(found),
    )
