"""Schedulers whose filters are known: pods of others cannot be judged.

What a scheduler prefers does not matter here, only which nodes it refuses: profiles of one
kube-scheduler differ in their scores, as a rule.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from core.model.pod import DEFAULT_SCHEDULER, Pod

KNOWN: Final = (DEFAULT_SCHEDULER, "gke.io/optimize-utilization-scheduler")
"""The default of the setting `schedulers`: the cluster's own scheduler, and the one that GKE sets
in pods under its autoscaling profile optimize-utilization."""
SCHEDULER_FIELD: Final = "spec.schedulerName"
"""In Pod.unsupported: nobody knows which nodes its scheduler refuses."""
Judged = Mapping[int, tuple[Pod, Pod]]
"""By id a pod as it was decoded, and what it is where other schedulers are known than KNOWN."""


def judged_by(
    schedulers: Collection[str], pods: Sequence[Pod], before: Judged
) -> tuple[Sequence[Pod], Judged]:
    """Return the pods, decoded as if KNOWN were known, as they are where *schedulers* are.

    *before*: the second answer of the last time. What was in it is the same object again, as who
    follows pods from look to look goes by that.
    """
    changed = frozenset(schedulers).symmetric_difference(KNOWN)
    if not changed:
        return pods, {}
    found = {
        id(pod): before.get(id(pod)) or (pod, _otherwise(pod))
        for pod in pods
        if pod.scheduler in changed and not pod.unreadable
    }
    return [found[id(pod)][1] if id(pod) in found else pod for pod in pods], found


def _otherwise(pod: Pod) -> Pod:
    fields = tuple(field for field in pod.unsupported if field != SCHEDULER_FIELD)
    if pod.scheduler in KNOWN:
        fields = (*fields, SCHEDULER_FIELD)
    return replace(pod, unsupported=fields)
