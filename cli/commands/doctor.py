"""`ebb doctor`: check the programs and settings of the cluster on which Ebb depends."""

from typing import TYPE_CHECKING

import click

from cli import output
from cli.input import source
from cli.usage import examples

if TYPE_CHECKING:  # help must be fast
    from cli.doctor.finding import Diagnosis
    from cli.input.cluster_input import ClusterInput


@click.command(
    "doctor",
    epilog=examples(
        "doctor",
        "doctor --scheduler-config kube-scheduler-config.yaml",
        "doctor --exit-code -o json",
    ),
)
@source.options_with_setup
@click.option(
    "--scheduler-config",
    type=source.FILE,
    metavar="FILE",
    help="a copy of kube-scheduler's KubeSchedulerConfiguration, which no API serves",
)
@output.exit_code_option("if a check finds a problem")
@output.option(output.DIAGNOSIS)
def command(
    cluster_input: "ClusterInput",
    /,
    *,
    scheduler_config: str | None,
    exit_code: bool,
    form: "output.Format[Diagnosis]",
) -> None:
    """Check the autoscaler, scheduler, admission, rights and workloads around Ebb; read-only.

    Each check is ok, a problem, or unknown. docs/doctor.md lists the checks, and what a dump must
    contain for them.
    """
    from cli.doctor.checks import diagnose_cluster  # noqa: PLC0415 decoders are slow to import
    from cli.doctor.finding import CheckState  # noqa: PLC0415
    from runtime.clock import SystemClock  # noqa: PLC0415

    diagnosis = diagnose_cluster(cluster_input, SystemClock(), scheduler_config)
    output.print_answer(diagnosis, form)
    output.exit_if(exit_code and diagnosis.count(CheckState.PROBLEM) > 0)
