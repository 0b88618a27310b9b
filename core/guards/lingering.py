"""What the rules of core.guards.disruption mean for a node.

Where Ebb does not evict, which is the default, pods that may not be disturbed block nothing and
nobody touches them: they are a sign that their node empties late, so that others are tried first
(`stickiness`, `sticky_pods`). Where it evicts, they are never evicted (`eviction_blockers`).
Source: as core.guards.disruption; the eviction API for what several budgets say about one pod.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from core.fit.rules import Finder
from core.guards.disruption import (
    BUDGET,
    CRITICAL_PRIORITY,
    LAST,
    NO_FACTS,
    SYSTEM_NAMESPACE,
    Facts,
    Finding,
    Verdict,
    findings,
)
from core.model.cluster import DisruptionBudget
from core.model.constraints import UNTIED
from core.model.pod import Pod
from core.reason import Blocker, Reason

PLAIN_OWNER: Final = "ReplicaSet"
"""The commonest by far."""
NOT_EVICTED: Final = (Verdict.LEAVING, Verdict.STICKY, Verdict.GUARDED)


def stickiness(pods: Iterable[Pod], facts: Facts = NO_FACTS) -> list[Blocker]:
    """Return every reason why one of the pods rarely leaves by itself; it blocks nothing."""
    return [
        Blocker(reason, found.message, pod.key, found.about)
        for pod in pods
        for reason, found in findings(pod, facts)
        if found.verdict is Verdict.STICKY
    ]


def sticky_pods(pods: Iterable[Pod], facts: Facts = NO_FACTS) -> Counter[str]:
    """Count by node the pods that have a stickiness: fewer empty sooner.

    Pods that the rules cannot tell apart are judged once.
    """
    counts: Counter[str] = Counter()
    judged: dict[object, bool] = {}
    for pod in pods:
        if pod.node is None or _ordinary(pod):
            continue
        own = pod.key if facts.owners is not None or pod.terminating else None
        ties, system = pod.ties, pod.namespace == SYSTEM_NAMESPACE
        alike = (pod.owner_kind, ties.notes, ties.local_volumes, ties.started_seconds,
                 pod.priority, pod.stays_with_node, system, own)  # fmt: skip
        sticky = judged.get(alike)
        if sticky is None:
            sticky = judged[alike] = bool(stickiness((pod,), facts))
        if sticky:
            counts[pod.node] += 1
    return counts


def eviction_blockers(
    pods: Sequence[Pod], budgets: Iterable[DisruptionBudget], facts: Facts = NO_FACTS
) -> list[Blocker]:
    """Return every reason why one of the pods, all of one node, must not be evicted now.

    Budgets are shared: as many pods as one allows pass, by name; the eviction API has the last
    word. The pods and what else is known stand for one moment.
    """
    facts = replace(facts, denied=_denied(pods, budgets, facts))
    blockers: list[Blocker] = []
    for pod in pods:
        blockers += (
            Blocker(reason, one.message, pod.key, one.about)
            for reason, one in _in_force(findings(pod, facts))
            if one.verdict in NOT_EVICTED
        )
    return blockers


def _in_force(found: list[tuple[Reason, Finding]]) -> list[tuple[Reason, Finding]]:
    """Leave out what the owner's word for evictions overrules: all after it but budgets."""
    overruled = False
    kept = []
    for reason, one in found:
        overruled = overruled or one.verdict is Verdict.EVICTABLE
        if not overruled or reason is BUDGET:
            kept.append((reason, one))
    return kept


def _denied(
    pods: Iterable[Pod], budgets: Iterable[DisruptionBudget], facts: Facts
) -> dict[str, str]:
    """Say of which pods the budgets do not allow the eviction, once those before them are out."""
    finder: Finder[DisruptionBudget] = Finder()
    for budget in budgets:
        finder.add((budget.selector,), budget)
    taken: Counter[str] = Counter()
    denied: dict[str, str] = {}
    for pod in sorted(pods, key=lambda pod: pod.key):
        if any(one.verdict in LAST for _, one in findings(pod, facts)):
            continue
        found = finder.matching(pod)
        names = sorted(f"{one.namespace}/{one.name}" for one in found)
        if len(found) > 1:
            denied[pod.key] = f"several budgets are about it: {', '.join(names)}"
        elif found and taken[names[0]] >= found[0].disruptions_allowed:
            allowed = found[0].disruptions_allowed
            denied[pod.key] = f"budget {names[0]} allows {allowed} disruptions now"
        elif found:
            taken[names[0]] += 1
    return denied


def _ordinary(pod: Pod) -> bool:
    """Say whether no rule about sticking applies, without asking them: so are most pods."""
    return (
        pod.owner_kind == PLAIN_OWNER
        and pod.ties is UNTIED
        and pod.priority < CRITICAL_PRIORITY
        and pod.namespace != SYSTEM_NAMESPACE
    )
