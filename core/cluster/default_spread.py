"""The cluster's default topology spread constraints, for pods that have none of their own.

Source: PodTopologySpread of kube-scheduler (`defaultConstraints` of PodTopologySpreadArgs). It
selects the pods that the Services and the controller of a pod select. Ebb reads neither Services
nor controllers: the selector of a controller is taken from the pod's labels, and a pod without
such a controller gets no constraint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from core.model.cluster_pods import ClusterPods
from core.model.constraints import PodConstraints, PodSelector, Requirement, SpreadConstraint
from core.model.pod import KEEPERS, TEMPLATE_LABEL, Pod

OWN_LABELS: Final = frozenset(
    {
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "controller-revision-hash",
    }
)
"""Labels that differ between the pods of a controller."""


class DefaultSpread(NamedTuple):
    """A default topology spread constraint of the cluster (whenUnsatisfiable: DoNotSchedule)."""

    topology_key: str
    max_skew: int


Spread = Mapping[int, tuple[Pod, Pod]]
"""Pods as decoded and as converted, by the `id` of the decoded pod."""


def with_default_spread(
    constraints: Sequence[DefaultSpread], pods: ClusterPods, before: Spread
) -> tuple[ClusterPods, Spread]:
    """Return the pods with default *constraints*, and the value to pass as *before* next time.

    The constraints apply to pods of ReplicaSets, ReplicationControllers and StatefulSets without
    spread constraints of their own.

    *before*: the second value of the previous call, so that unchanged pods remain the same
    objects; empty in the first call.
    """
    if not constraints:
        return pods, {}
    shared: dict[tuple[PodConstraints, PodSelector], PodConstraints] = {}
    # Return the same objects as before: callers compare pods by identity from one reconciliation
    # to the next.
    converted = {
        id(pod): before.get(id(pod)) or (pod, _spread(constraints, pod, shared))
        for pod in pods.all
        if _applies(pod)
    }
    return pods.replacing({key: pod for key, (_, pod) in converted.items()}), converted


def _applies(pod: Pod) -> bool:
    own = pod.own_spread or pod.pod_constraints.spread
    evaluated = not (pod.too_much or pod.unreadable or pod.stays_with_node)
    return pod.owner_kind in KEEPERS and not own and evaluated


def _spread(
    constraints: Sequence[DefaultSpread],
    pod: Pod,
    shared: dict[tuple[PodConstraints, PodSelector], PodConstraints],
) -> Pod:
    template = pod.labels.get(TEMPLATE_LABEL)
    # The hash alone identifies the pods of a Deployment's ReplicaSet in their namespace.
    labels = (
        {TEMPLATE_LABEL: template}
        if template
        else {key: value for key, value in pod.labels.items() if key not in OWN_LABELS}
    )
    if not labels:
        return pod
    requirements = (Requirement(key, "In", (value,)) for key, value in labels.items())
    selector = PodSelector((pod.namespace,), tuple(sorted(requirements, key=repr)))
    pod_constraints = pod.pod_constraints, selector
    if pod_constraints not in shared:
        spread = {
            SpreadConstraint(selector, constraint.topology_key, constraint.max_skew)
            for constraint in constraints
        }
        shared[pod_constraints] = replace(
            pod.pod_constraints, spread=tuple(sorted(spread, key=repr))
        )
    return replace(pod, pod_constraints=shared[pod_constraints])
