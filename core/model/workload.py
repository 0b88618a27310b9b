"""Whose pod it is: pods of one workload take each other's places."""

from typing import Final, NamedTuple

from core.model.pod import TEMPLATE_LABEL, Pod

REPLICA_SET: Final = "ReplicaSet"
"""The commonest owner by far."""
STATEFUL_SET: Final = "StatefulSet"
DAEMON_SET: Final = "DaemonSet"
JOB: Final = "Job"
KEEPERS: Final = frozenset((REPLICA_SET, "ReplicationController", STATEFUL_SET))
"""Kinds of owners that make a new pod for each that leaves."""


def goes_by_cost(pod: Pod) -> bool:
    """Say whether a scale-in asks for the pod's deletion cost, which no other controller does."""
    return pod.owner_kind == REPLICA_SET and not pod.stays_with_node


class Workload(NamedTuple):
    """What made pods, and makes others like them."""

    namespace: str
    owner_kind: str
    owner_name: str


def workload_of(pod: Pod) -> Workload:
    """Return the workload of a pod; all ReplicaSets of a Deployment are one workload.

    Whoever may write pods in the namespace writes all fields that this reads.
    """
    name = pod.owner_name
    if template := pod.labels.get(TEMPLATE_LABEL):
        name = name.removesuffix(f"-{template}")
    return Workload(pod.namespace, pod.owner_kind, name)
