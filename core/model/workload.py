"""Identify the workload of a pod; pods of one workload replace each other."""

from typing import Final, NamedTuple

from core.model.pod import TEMPLATE_LABEL, Pod

REPLICA_SET: Final = "ReplicaSet"
"""Kind of the most common owner of pods."""
STATEFUL_SET: Final = "StatefulSet"
DAEMON_SET: Final = "DaemonSet"
JOB: Final = "Job"
KEEPERS: Final = frozenset((REPLICA_SET, "ReplicationController", STATEFUL_SET))
"""Kinds of controllers that replace each of their pods that is deleted."""


def goes_by_cost(pod: Pod) -> bool:
    """Return whether a scale-in reads the pod's deletion cost; only ReplicaSets do.

    False for a pod of a gang: a scale-in would delete one member because of its node, although the
    other members run elsewhere.
    """
    return (
        pod.owner_kind == REPLICA_SET and not pod.stays_with_node and not pod.disruption_facts.gang
    )


def runs_to_completion(pod: Pod) -> bool:
    """Return whether the pod ends by itself when its work is done, as pods of Jobs do."""
    return pod.owner_kind == JOB or pod.disruption_facts.completes


class Workload(NamedTuple):
    """The controller of pods; all ReplicaSets of a Deployment are one workload."""

    namespace: str
    owner_kind: str
    owner_name: str


def workload_of(pod: Pod) -> Workload:
    """Return the workload of a pod; all ReplicaSets of a Deployment are one workload.

    Users who may write pods in the namespace control every field that this function reads.
    """
    name = pod.owner_name
    if template := pod.labels.get(TEMPLATE_LABEL):
        name = name.removesuffix(f"-{template}")
    return Workload(pod.namespace, pod.owner_kind, name)
