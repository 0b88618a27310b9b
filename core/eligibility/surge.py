"""Define which pods must not be replaced by a surge move, whatever their Deployment allows.

A surge move lets a ReplicaSet create a new pod beside a pod on a marked node, which is deleted
only when the new one is available. So rules that protect availability, such as those for
kube-system, do not apply. The other rules are those for evictions (core.eligibility.drainability).
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from core.eligibility import drainability
from core.eligibility.drainability import findings, surely_short_lived
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker, Reason

VOLUME: Final = Reason(
    "surge-volume",
    "The pod uses a volume that only pods of one node can use (ReadWriteOnce), so a second pod "
    "could not start on another node.",
    "use a volume with the access mode ReadWriteMany; otherwise none needed: Ebb waits until the "
    "pod terminates",
    "the pod uses no ReadWriteOnce volume",
)
NEVER: Final = frozenset(
    {
        drainability.MIRROR,
        drainability.DAEMON,
        drainability.KEPT,
        drainability.LONG_TERMINATING,
        drainability.EXPENDABLE,
        drainability.TERMINATING,
        drainability.ON_COMPLETION,
        drainability.NOT_TO_DISRUPT,
        drainability.NOT_TO_REMOVE,
        drainability.PREFERS_NO_EVICTION,
        drainability.FOREIGN_COST,
        drainability.GANG,
        drainability.NOT_SAFE_TO_EVICT,
    }
)
"""Findings that forbid a surge move."""


def why_not_replaced(pod: Pod, now: Now | None, *, keep_local_storage: bool) -> Blocker | None:
    """Return the first reason why a surge move must not replace the pod; None if it may.

    *now*: None means that no deadline has passed. *keep_local_storage*: also refuse a pod that
    stores data on the node itself.
    """
    if volumes := pod.disruption_facts.one_node_volumes:
        message = f"uses volumes that only pods of one node can use: {', '.join(volumes)}"
        return Blocker(VOLUME, message, pod.key)
    if (
        surely_short_lived(pod)
        and (pod.deletion_cost is None or pod.has_our_cost)
        and not pod.terminating
    ):
        return None
    never = NEVER | {drainability.LOCAL_STORAGE} if keep_local_storage else NEVER
    blockers = (blocker for _, blocker in findings(pod, now))
    return next((blocker for blocker in blockers if blocker.reason in never), None)


def count_not_replaceable(
    pods: Iterable[Pod],
    allowed: Collection[tuple[str, str]],
    now: Now | None,
    *,
    crowded: Collection[str] = (),
    keep_local_storage: bool,
) -> Counter[str]:
    """Return the number of pods that no surge move can replace, by node name.

    Only pods that keep their node from being empty count; terminating pods do not.

    *allowed*: namespace and name of the ReplicaSets whose Deployments allow surge moves. *now*:
    None means that no deadline has passed. *crowded*: pods, as namespace/name, for which a second
    pod has no place. *keep_local_storage*: also count pods that store data on the node itself.
    """
    return Counter(
        pod.node
        for pod in pods
        if pod.node is not None
        and pod.occupies
        and not pod.terminating
        and (
            (pod.namespace, pod.owner_name) not in allowed
            or (crowded and pod.key in crowded)
            or why_not_replaced(pod, now, keep_local_storage=keep_local_storage) is not None
        )
    )
