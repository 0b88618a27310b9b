"""Run the checks of `ebb doctor` on the cluster that the command line selects."""

from collections.abc import Mapping
from typing import Any, Final

from cli.doctor.checks import diagnose
from cli.doctor.finding import Diagnosis, Facts
from cli.input.cluster_input import ClusterInput
from core.model.errors import InvalidInputError
from runtime import files
from runtime.clock import Clock
from runtime.yaml_text import parse_yaml

SCHEDULER_KIND: Final = "KubeSchedulerConfiguration"


def diagnose_cluster(
    cluster_input: ClusterInput, clock: Clock, scheduler_config: str | None
) -> Diagnosis:
    """Check the setup around Ebb.

    *scheduler_config*: file with the configuration of kube-scheduler, or None.
    Raises: ConfigError or InvalidInputError for this file.
    """
    facts = Facts(
        cluster_input=cluster_input,
        now_seconds=cluster_input.now_seconds(clock),
        scheduler_file=scheduler_config or "",
        scheduler=_read(scheduler_config) if scheduler_config else None,
    )
    return diagnose(facts)


def _read(path: str) -> Mapping[str, Any]:
    """Return the content of the file. Raises: as `diagnose_cluster`."""
    name = files.named(path)
    raw = files.read_dump(path, files.CONFIG_BYTES_MAX)
    (found,) = parse_yaml(raw, name, single=True)
    kind = found.get("kind") if isinstance(found, dict) else None
    if not isinstance(found, dict) or kind != SCHEDULER_KIND:
        raise InvalidInputError(name, f"kind: {kind!r:.80}; allowed: {SCHEDULER_KIND}")
    return found
