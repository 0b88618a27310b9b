"""What the rules of core.guards.disruption mean for a node: it empties late, so others go first.

Pods that may not be disturbed block nothing, as nothing is evicted, and nobody touches them.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from core.guards.disruption import CRITICAL_PRIORITY, SYSTEM_NAMESPACE, Verdict, findings
from core.model.constraints import UNTIED
from core.model.pod import Pod
from core.reason import Blocker

PLAIN_OWNER: Final = "ReplicaSet"
"""The commonest by far."""


def stickiness(pods: Iterable[Pod], now_seconds: int | None = None) -> list[Blocker]:
    """Return every reason why one of the pods rarely leaves by itself; it blocks nothing."""
    return [
        blocker
        for pod in pods
        for verdict, blocker in findings(pod, now_seconds)
        if verdict is Verdict.STICKY
    ]


def sticky_pods(pods: Iterable[Pod], now_seconds: int | None = None) -> Counter[str]:
    """Count by node the pods that have a stickiness: fewer empty sooner.

    Pods that the rules cannot tell apart are judged once.
    """
    counts: Counter[str] = Counter()
    judged: dict[object, bool] = {}
    for pod in pods:
        if pod.node is None or _ordinary(pod):
            continue
        own = pod.key if pod.terminating else None
        ties, system = pod.ties, pod.namespace == SYSTEM_NAMESPACE
        alike = (pod.owner_kind, ties.notes, ties.local_volumes, ties.started_seconds,
                 pod.priority, pod.stays_with_node, system, own)  # fmt: skip
        sticky = judged.get(alike)
        if sticky is None:
            sticky = judged[alike] = bool(stickiness((pod,), now_seconds))
        if sticky:
            counts[pod.node] += 1
    return counts


def _ordinary(pod: Pod) -> bool:
    """Say whether no rule about sticking applies, without asking them: so are most pods."""
    return (
        pod.owner_kind == PLAIN_OWNER
        and pod.ties is UNTIED
        and pod.priority < CRITICAL_PRIORITY
        and pod.namespace != SYSTEM_NAMESPACE
    )
