"""May a pod be disturbed, and will it leave by itself: an ordered tuple of named rules.

Pods that may not be disturbed block nothing, and nobody touches them, not even where others are
evicted (core.drain); but their node empties late, so others go first. Pods that have ended are in
no Cluster, and what a pod's volumes ask stands in core.model.volumes.
Source: Cluster Autoscaler's drainability rules, in their order; Karpenter's do-not-disrupt;
descheduler's DefaultEvictor.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from core.marks.wellknown import KARPENTER_KEEP_ANNOTATION
from core.model.constraints import NO_DISRUPTION_FACTS
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker, Reason, Timed
from core.model.workload import JOB, KEEPERS, REPLICA_SET, STATEFUL_SET

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DO_NOT_DISRUPT: Final = KARPENTER_KEEP_ANNOTATION
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
NOTES: Final = frozenset({SAFE_TO_EVICT, SAFE_VOLUMES, DO_NOT_DISRUPT, PREFER_NO_EVICTION})
"""The annotations that the rules read: Ties.notes."""
SYSTEM_NAMESPACE: Final = "kube-system"
CRITICAL_PRIORITY: Final = 2_000_000_000
"""From here on are the classes system-cluster-critical and system-node-critical."""
KNOWN_OWNERS: Final = KEEPERS | {JOB}
"""Controllers that are known to replace a pod elsewhere."""
DURATION_CHARS_MAX: Final = 64
DURATION_NANOS_MAX: Final = 2**63 - 1
"""Of Go's durations; what is longer is none."""


class Verdict(StrEnum):
    """What follows from a rule that applies."""

    LAST = "last"
    """The pod goes with its node, counts for nothing, or leaves: no later rule is asked."""
    STICKY = "sticky"
    """It rarely leaves by itself."""
    TOLD = "told"
    """Nothing, but where pods are evicted."""


class Rule(NamedTuple):
    """What there is to know about a pod that it applies to."""

    reason: Reason
    says: Callable[[Pod, Now | None], str | Timed | None]
    """Why the rule applies, or None; without a time none has passed."""
    verdict: Verdict


_LEAVE_IT: Final = "nothing to do: Ebb never evicts such a pod, and waits for it"
MIRROR: Final = Reason(
    "pod-mirror",
    "The pod is a static pod's image: it lives and goes with its node.",
    "nothing to do",
    "the static pod's file is gone from the node",
)
DAEMON: Final = Reason(
    "pod-daemon",
    "The pod is a DaemonSet's: it lives and goes with its node.",
    "nothing to do",
    "the DaemonSet does not want it on the node any more",
)
LONG_TERMINATING: Final = Reason(
    "pod-long-terminating",
    "The pod should have ended long ago, so it counts for nothing; on a node of Karpenter's "
    "that of a StatefulSet counts until it is gone.",
    "see what holds it: kubectl -n {namespace} get pod {name} -o yaml (finalizers)",
    "the pod is gone",
)
EXPENDABLE: Final = Reason(
    "pod-expendable",
    "The pod's priority is so low that autoscalers take its node without asking.",
    "nothing to do; or give it a higher priority class",
    "its priority is not below the autoscaler's cutoff",
)
TERMINATING: Final = Reason(
    "pod-terminating",
    "The pod is being deleted already and leaves by itself.",
    "nothing to do: it is waited for",
    "the pod is gone",
)
ON_COMPLETION: Final = Reason(
    "pod-on-completion",
    "The pod's owner asks that its own end be waited for.",
    "nothing to do: it is waited for",
    "the pod has finished, or its annotation is gone",
)
NOT_TO_DISRUPT: Final = Reason(
    "pod-do-not-disrupt",
    "Karpenter's annotation forbids to disturb the pod, for good or for a time.",
    f"{_LEAVE_IT}; or take the annotation {DO_NOT_DISRUPT} from its template",
    "the annotation is gone, or its time is over",
)
PREFERS_NO_EVICTION: Final = Reason(
    "pod-prefer-no-eviction",
    "The descheduler's annotation asks not to evict the pod; it leaves as any other.",
    _LEAVE_IT,
    "the annotation is gone",
)
SAFE: Final = Reason(
    "pod-safe-to-evict",
    "The pod's owner says that it may be evicted, whatever else speaks against it.",
    "nothing to do",
    "the annotation is gone",
)
BARE: Final = Reason(
    "pod-bare",
    "No controller owns the pod: nothing would bring it back, and nothing replaces it.",
    f"{_LEAVE_IT}; or delete it if it is not needed: kubectl -n {{namespace}} delete pod {{name}}",
    "the pod has finished, or is gone",
)
CUSTOM_CONTROLLER: Final = Reason(
    "pod-custom-controller",
    "The pod belongs to a controller of which Ebb does not know whether it replaces pods.",
    _LEAVE_IT,
    "the pod has finished, or its controller has replaced it",
)
OF_STATEFUL_SET: Final = Reason(
    "pod-stateful-set",
    "A StatefulSet keeps its pods: they leave at updates and scale-downs only.",
    "a rolling update moves it: kubectl -n {namespace} rollout restart statefulset {owner}",
    "the pod has been replaced on another node",
)
SYSTEM: Final = Reason(
    "pod-system",
    "The pod is of kube-system, or of a system-critical priority class.",
    f"{_LEAVE_IT}; or restart its owner at a quiet time",
    "the pod has been replaced on another node",
)
NOT_SAFE_TO_EVICT: Final = Reason(
    "pod-not-safe-to-evict",
    "Cluster Autoscaler's annotation says that the pod must not be evicted.",
    f"{_LEAVE_IT}; or take the annotation {SAFE_TO_EVICT} from its template",
    "the pod is gone, or its annotation does not say so any more",
)
LOCAL_STORAGE: Final = Reason(
    "pod-local-storage",
    "The pod has data on the node itself, which an eviction would lose.",
    f"name volumes that may be lost in its template's annotation {SAFE_VOLUMES}",
    "the pod is gone, or all such volumes are named",
)


def _note(pod: Pod, key: str) -> str | None:
    return dict(pod.ties.notes).get(key)


def _long_terminating(pod: Pod, now: Now | None) -> str | None:
    return "should have been gone long ago" if pod.overdue(now) else None


def _expendable(pod: Pod, _: Now | None) -> str | None:
    return f"priority {pod.priority} is expendable" if pod.expendable else None


def do_not_disrupt(pod: Pod, now: Now | None) -> str | Timed | None:
    """Return why Karpenter would not disrupt the pod, or None.

    The annotation's value is "true", or a duration that begins when the pod starts; any other
    value means nothing.
    """
    note = _note(pod, DO_NOT_DISRUPT)
    if note is None:
        return None
    message = f"annotation {DO_NOT_DISRUPT}: {note!r}"
    if note == "true":
        return message
    nanos = _duration_nanos(note)
    if nanos is None or nanos <= 0:
        return None
    started = pod.ties.started_seconds
    if started is None or now is None:
        return message
    until = started + -(-nanos // 10**9)
    return Timed(message, until) if now.before(until) else None


def _prefer_no_eviction(pod: Pod, _: Now | None) -> str | None:
    asked = _note(pod, PREFER_NO_EVICTION) is not None
    return f"annotation {PREFER_NO_EVICTION}" if asked else None


def _bare(pod: Pod, _: Now | None) -> str | None:
    return None if pod.owner_kind else "no controller owns it: nothing would bring it back"


def _custom_controller(pod: Pod, _: Now | None) -> str | None:
    if not pod.owner_kind or pod.owner_kind in KNOWN_OWNERS:
        return None
    return f"who knows what {pod.owner_kind} {pod.owner_name} does"


def _stateful_set(pod: Pod, _: Now | None) -> str | None:
    kept = pod.owner_kind == STATEFUL_SET
    return f"StatefulSet {pod.owner_name} keeps its pods" if kept else None


def _system(pod: Pod, _: Now | None) -> str | None:
    if pod.namespace == SYSTEM_NAMESPACE:
        return f"is in {SYSTEM_NAMESPACE}"
    if pod.priority >= CRITICAL_PRIORITY:
        return f"is critical: priority {pod.priority}"
    return None


def _safe_to_evict(value: str, told: str) -> Callable[[Pod, Now | None], str | None]:
    """Return the rule that SAFE_TO_EVICT makes apply where it has that value."""
    text = f"annotation {SAFE_TO_EVICT}{told}"
    return lambda pod, _: text if _note(pod, SAFE_TO_EVICT) == value else None


def _local_storage(pod: Pod, _: Now | None) -> str | None:
    """Pass over volumes that the pod's owner calls safe: a list with commas and nothing else."""
    if not pod.ties.local_volumes:
        return None
    safe = (_note(pod, SAFE_VOLUMES) or "").split(",")
    lost = [name for name in pod.ties.local_volumes if name not in safe]
    return f"data on the node itself: volumes {', '.join(lost)}" if lost else None


RULES: Final = (
    Rule(MIRROR, lambda pod, _: "a static pod" if pod.mirror else None, Verdict.LAST),
    Rule(DAEMON, lambda pod, _: "a DaemonSet's pod" if pod.daemon else None, Verdict.LAST),
    Rule(LONG_TERMINATING, _long_terminating, Verdict.LAST),
    Rule(EXPENDABLE, _expendable, Verdict.LAST),
    Rule(
        TERMINATING, lambda pod, _: "is being deleted" if pod.terminating else None, Verdict.LAST
    ),
    Rule(
        ON_COMPLETION,
        _safe_to_evict("on-completion", ": its end is waited for"),
        Verdict.LAST,
    ),
    Rule(NOT_TO_DISRUPT, do_not_disrupt, Verdict.STICKY),
    Rule(PREFERS_NO_EVICTION, _prefer_no_eviction, Verdict.TOLD),
    Rule(SAFE, _safe_to_evict("true", ""), Verdict.TOLD),
    Rule(BARE, _bare, Verdict.STICKY),
    Rule(CUSTOM_CONTROLLER, _custom_controller, Verdict.STICKY),
    Rule(OF_STATEFUL_SET, _stateful_set, Verdict.STICKY),
    Rule(SYSTEM, _system, Verdict.STICKY),
    Rule(NOT_SAFE_TO_EVICT, _safe_to_evict("false", ": 'false'"), Verdict.STICKY),
    Rule(LOCAL_STORAGE, _local_storage, Verdict.STICKY),
)
"""In the order in which they are asked."""
REASONS: Final = tuple(rule.reason for rule in RULES)
"""They block no plan."""


def findings(pod: Pod, now: Now | None = None) -> list[tuple[Verdict, Blocker]]:
    """Return what the rules say of the pod, up to one that ends the search."""
    found: list[tuple[Verdict, Blocker]] = []
    for reason, says, verdict in RULES:
        why = says(pod, now)
        if why is not None:
            message, until = why if isinstance(why, Timed) else (why, None)
            blocker = Blocker(reason, message, pod.key, pod.owner_name, until)
            found.append((verdict, blocker))
            if verdict is Verdict.LAST:
                break
    return found


def long_lived_reasons(pods: Iterable[Pod], now: Now | None = None) -> list[Blocker]:
    """Return every reason why one of the pods rarely leaves by itself; it blocks nothing."""
    return [
        blocker
        for pod in pods
        for verdict, blocker in findings(pod, now)
        if verdict is Verdict.STICKY
    ]


def count_long_lived_pods(pods: Iterable[Pod], now: Now | None = None) -> Counter[str]:
    """Count by node the pods that have a stickiness: fewer empty sooner.

    Pods that the rules cannot tell apart are judged once.
    """
    counts: Counter[str] = Counter()
    judged: dict[object, bool] = {}
    for pod in pods:
        if pod.node is None or ordinary(pod):
            continue
        own = pod.key if pod.terminating else None
        ties, system = pod.ties, pod.namespace == SYSTEM_NAMESPACE
        alike = (pod.owner_kind, ties.notes, ties.local_volumes, ties.started_seconds,
                 pod.priority, pod.stays_with_node, system, own)  # fmt: skip
        sticky = judged.get(alike)
        if sticky is None:
            sticky = judged[alike] = bool(long_lived_reasons((pod,), now))
        if sticky:
            counts[pod.node] += 1
    return counts


def ordinary(pod: Pod) -> bool:
    """Say whether no rule about sticking applies, without asking them: so are most pods."""
    return (
        pod.owner_kind == REPLICA_SET
        and pod.ties is NO_DISRUPTION_FACTS
        and pod.priority < CRITICAL_PRIORITY
        and pod.namespace != SYSTEM_NAMESPACE
    )


_UNIT_NANOS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6,
                      "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}  # fmt: skip
_PART: Final = re.compile(r"(?a)(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)")


def _duration_nanos(text: str) -> int | None:
    """Read a duration as Go writes it (1h30m, 1.5h); None when it is none."""
    total, place = 0, 0
    while place < len(text) <= DURATION_CHARS_MAX:
        part = _PART.match(text, place)
        if part is None or not (part[1] or part[2]):
            return None
        unit, fraction = _UNIT_NANOS[part[3]], part[2] or ""
        total += int(part[1] or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        place = part.end()
    return total if place and place == len(text) and total <= DURATION_NANOS_MAX else None
