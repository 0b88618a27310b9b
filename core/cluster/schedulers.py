"""Schedulers whose filters Ebb knows; pods of other schedulers cannot be evaluated.

Only filters matter here, not scores: the profiles of one kube-scheduler usually differ in their
scores alone.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from core.model.cluster_pods import ClusterPods
from core.model.pod import DEFAULT_SCHEDULER, Pod

KNOWN: Final = (DEFAULT_SCHEDULER, "gke.io/optimize-utilization-scheduler")
"""Default of the setting `schedulers`.

The cluster's own scheduler, and the scheduler that GKE sets in pods under its autoscaling profile
optimize-utilization."""
SCHEDULER_FIELD: Final = "spec.schedulerName"
"""Entry of Pod.unsupported for pods of a scheduler whose filters Ebb does not know."""
Judged = Mapping[int, tuple[Pod, Pod]]
"""Each pod as decoded, and with `unsupported` adapted to the setting `schedulers`.

The key is the `id` of the decoded pod."""


def judged_by(
    schedulers: Collection[str], pods: ClusterPods, before: Judged
) -> tuple[ClusterPods, Judged]:
    """Adapt `unsupported` of pods, decoded for the default schedulers, to *schedulers*.

    *before*: the second value of the previous call.
    """
    changed = frozenset(schedulers).symmetric_difference(KNOWN)
    if not changed:
        return pods, {}
    # Return the same objects as before: callers compare pods by identity from one reconciliation
    # to the next.
    found = {
        id(pod): before.get(id(pod)) or (pod, _converted(pod))
        for pod in (pods.all if DEFAULT_SCHEDULER in changed else pods.special)
        if pod.scheduler in changed and not pod.unreadable
    }
    return pods.replacing({key: pod for key, (_, pod) in found.items()}), found


def _converted(pod: Pod) -> Pod:
    fields = tuple(field for field in pod.unsupported if field != SCHEDULER_FIELD)
    if pod.scheduler in KNOWN:
        fields = (*fields, SCHEDULER_FIELD)
    return replace(pod, unsupported=fields)
