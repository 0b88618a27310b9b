"""Whose pod it is: pods of one workload take each other's places and live alike."""

import re
from typing import Final, NamedTuple

from core.model.pod import TEMPLATE_LABEL, Pod

REPLICA_SET: Final = "ReplicaSet"
"""The commonest owner by far."""
STATEFUL_SET: Final = "StatefulSet"
DAEMON_SET: Final = "DaemonSet"
JOB: Final = "Job"
KEEPERS: Final = frozenset((REPLICA_SET, "ReplicationController", STATEFUL_SET))
"""Kinds of owners that make a new pod for each that leaves."""
_OF_ONE_RUN: Final = re.compile(r"-(?:[0-9]+|[bcdfghjklmnpqrstvwxz2456789]{5})$")
"""Behind the name of what is made again and again: a CronJob puts a time there, `generateName`
five characters (k8s.io/apimachinery util/rand)."""


def goes_by_cost(pod: Pod) -> bool:
    """Say whether a scale-in asks for the pod's deletion cost, which no other controller does."""
    return pod.owner_kind == REPLICA_SET and not pod.stays_with_node


class Workload(NamedTuple):
    """What made pods, and makes others like them."""

    namespace: str
    owner_kind: str
    """Empty: they are bare."""
    owner_name: str


def workload_of(pod: Pod) -> Workload:
    """Return the pod's workload: a Deployment's ReplicaSets are one, and so are a CronJob's Jobs.

    Of a bare pod that is its namespace. Whoever may write pods there writes all of that.
    """
    name = pod.owner_name
    if pod.owner_kind not in KEEPERS:
        name = _OF_ONE_RUN.sub("", name)
    elif template := pod.labels.get(TEMPLATE_LABEL):
        name = name.removesuffix(f"-{template}")
    return Workload(pod.namespace, pod.owner_kind, name)
