"""All checks of `ebb doctor`, and their run on the cluster that the command line selects."""

from collections.abc import Mapping
from typing import Any, Final

from cli.doctor import (
    admission,
    autoscaler,
    clocks,
    moves,
    mutation,
    rights,
    scheduler,
    workloads,
)
from cli.doctor.finding import Check, CheckState, Diagnosis, Facts, Finding
from cli.input.cluster_input import ClusterInput
from core.model.errors import InvalidInputError
from runtime import files
from runtime.clock import Clock
from runtime.yaml_text import parse_yaml

CHECKS: Final[tuple[Check, ...]] = (
    *autoscaler.CHECKS,
    *scheduler.CHECKS,
    *admission.CHECKS,
    *mutation.CHECKS,
    *rights.CHECKS,
    *workloads.CHECKS,
    *moves.CHECKS,
    *clocks.CHECKS,
)
"""All checks in the order of docs/doctor.md. A new check is one more entry in its module."""
SCHEDULER_KIND: Final = "KubeSchedulerConfiguration"


def diagnose_cluster(
    cluster_input: ClusterInput, clock: Clock, scheduler_config: str | None
) -> Diagnosis:
    """Run all checks of `ebb doctor` on a cluster, and return their findings.

    *scheduler_config*: file with the configuration of kube-scheduler; None if it is not available.
    Raises: ConfigError or InvalidInputError for this file.
    """
    facts = Facts(
        cluster_input=cluster_input,
        now_seconds=cluster_input.now_seconds(clock),
        scheduler_file=scheduler_config or "",
        scheduler=_read(scheduler_config) if scheduler_config else None,
    )
    return diagnose(facts)


def diagnose(facts: Facts) -> Diagnosis:
    """Run all checks; the findings have problems first, then unknown states, then the others."""
    findings = [Finding(check, check.run(facts)) for check in CHECKS]
    states = list(CheckState)
    # The sort is stable: findings of one state stay in the order of the table.
    findings.sort(key=lambda finding: states.index(finding.result.state))
    return Diagnosis(
        cluster_input=facts.cluster_input,
        now_seconds=facts.now_seconds,
        findings=tuple(findings),
    )


def _read(path: str) -> Mapping[str, Any]:
    name = files.named(path)
    raw = files.read_dump(path, files.CONFIG_BYTES_MAX)
    (document,) = parse_yaml(raw, name, single=True)
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(document, dict) or kind != SCHEDULER_KIND:
        raise InvalidInputError(name, f"kind: {kind!r:.80}; allowed: {SCHEDULER_KIND}")
    return document
