"""Settings that decide how objects are understood when a Cluster is built from them.

The setting `schedulers` is applied here: it lists the schedulers whose filters Ebb knows. Pods of
other schedulers cannot be evaluated. Only filters matter, not scores: the profiles of one
kube-scheduler usually differ in their scores alone.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from core.cluster.default_spread import DefaultSpread
from core.model.cluster_pods import ClusterPods
from core.model.node_lifecycle import LEAVING_CONDITIONS, LeavingCondition
from core.model.pod import DEFAULT_SCHEDULER, Pod

KNOWN_SCHEDULERS: Final = (DEFAULT_SCHEDULER, "gke.io/optimize-utilization-scheduler")
"""Default of the setting `schedulers`.

The cluster's own scheduler, and the scheduler that GKE sets in pods under its autoscaling profile
optimize-utilization."""
SCHEDULER_FIELD: Final = "spec.schedulerName"
"""Entry of Pod.unsupported for pods of a scheduler whose filters Ebb does not know."""
Judged = Mapping[int, tuple[Pod, Pod]]
"""Each pod as decoded, and with `unsupported` adapted to the setting `schedulers`.

The key is the `id` of the decoded pod."""


class ReadOptions(NamedTuple):
    """Settings that decide how nodes and pods are understood when a Cluster is built from them."""

    schedulers: Collection[str] = KNOWN_SCHEDULERS
    """Schedulers whose pods are evaluable."""
    leaving_taints: Collection[str] = ()
    """Keys of taints of leaving nodes, besides core.model.node_lifecycle.LEAVING_TAINTS."""
    leaving_conditions: Sequence[LeavingCondition] = LEAVING_CONDITIONS
    """Conditions of leaving nodes."""
    default_spread: Sequence[DefaultSpread] = ()
    """Topology spread constraints of pods that have none of their own."""


READ_DEFAULTS: Final = ReadOptions()


def judged_by(
    schedulers: Collection[str], pods: ClusterPods, before: Judged
) -> tuple[ClusterPods, Judged]:
    """Return the pods for these *schedulers*, and the value to pass as *before* next time.

    Pods were decoded for the schedulers in KNOWN_SCHEDULERS. Here `unsupported` gets or loses the
    entry that says that Ebb does not know the filters of the pod's scheduler.

    *schedulers*: the setting of that name. *before*: the second value of the previous call, so
    that unchanged pods remain the same objects; empty in the first call.
    """
    changed = frozenset(schedulers).symmetric_difference(KNOWN_SCHEDULERS)
    if not changed:
        return pods, {}
    # Return the same objects as before: callers compare pods by identity from one reconciliation
    # to the next.
    converted = {
        id(pod): before.get(id(pod)) or (pod, _converted(pod))
        for pod in (pods.all if DEFAULT_SCHEDULER in changed else pods.special)
        if pod.scheduler in changed and not pod.unreadable
    }
    return pods.replacing({key: pod for key, (_, pod) in converted.items()}), converted


def _converted(pod: Pod) -> Pod:
    fields = tuple(field for field in pod.unsupported if field != SCHEDULER_FIELD)
    if pod.scheduler in KNOWN_SCHEDULERS:
        fields = (*fields, SCHEDULER_FIELD)
    return replace(pod, unsupported=fields)
