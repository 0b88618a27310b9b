"""Rules for pods: which may be disrupted, and which will rarely terminate by themselves.

A pod that must not be disrupted does not keep its node from being marked, and Ebb never evicts it
(core.eviction). Its node empties late, so Ebb prefers to mark other nodes. Finished pods are not
part of a Cluster; core.cluster.volumes has the rules for volumes.

Source: Cluster Autoscaler's drainability rules, in their order; Karpenter's do-not-disrupt;
descheduler's DefaultEvictor.
"""

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from core.marks.wellknown import DO_NOT_DISRUPT_ANNOTATION, KEEP_ANNOTATION, REMOVAL_DISABLED
from core.model.constraints import NO_DISRUPTION_FACTS
from core.model.now import Now
from core.model.pod import JOB, KEEPERS, REPLICA_SET, STATEFUL_SET, Pod, goes_by_cost
from core.model.reason import Blocker, Reason, Timed

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DO_NOT_DISRUPT: Final = DO_NOT_DISRUPT_ANNOTATION
DO_NOT_DISRUPT_KEYS: Final = (
    DO_NOT_DISRUPT,
    "node-autoscaling.kubernetes.io/do-not-disrupt",  # kubernetes/autoscaler#10071
)
"""Annotations that forbid disruption of a pod. Only that of Karpenter keeps an autoscaler from
removing the node of a DaemonSet pod; no autoscaler reads the other one yet."""
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
DISRUPTION_COST: Final = "karpenter.sh/disruption-cost"
"""Annotation with the cost of evicting the pod, a 32-bit number (Karpenter, from 1.15)."""
DISRUPTION_COST_KEYS: Final = (
    "node-autoscaling.kubernetes.io/disruption-cost",  # kubernetes/autoscaler#9850
    DISRUPTION_COST,
)
"""Annotations with the cost of evicting the pod; the first with a valid number counts."""
NOTES: Final = frozenset(
    {
        SAFE_TO_EVICT,
        SAFE_VOLUMES,
        PREFER_NO_EVICTION,
        REMOVAL_DISABLED,
        KEEP_ANNOTATION,
        *DO_NOT_DISRUPT_KEYS,
        *DISRUPTION_COST_KEYS,
    }
)
"""Annotations that the rules read; they are in DisruptionFacts.notes."""
_COST: Final = re.compile(r"-?[0-9]{1,10}")
OF_NAMESPACE: Final = "true, of the Namespace"
"""Value of KEEP_ANNOTATION in DisruptionFacts.notes if the pod's Namespace has the annotation."""
SYSTEM_NAMESPACE: Final = "kube-system"
CRITICAL_PRIORITY: Final = 2_000_000_000
"""Lowest priority of the classes system-cluster-critical and system-node-critical."""
KNOWN_OWNERS: Final = KEEPERS | {JOB}
"""Controllers that replace a lost pod on another node."""
DURATION_CHARS_MAX: Final = 64
DURATION_NANOS_MAX: Final = 2**63 - 1
"""Maximum of Go's durations in nanoseconds; longer durations are invalid."""


class Consequence(StrEnum):
    """The consequence of a rule that applies to a pod, such as that the pod is long-lived."""

    LAST = "last"
    """The pod ends with its node, is ignored, or is terminating; later rules are skipped."""
    LONG_LIVED = "long-lived"
    """The pod rarely terminates by itself."""
    INFO = "info"
    """No consequence for plans; the finding matters for evictions."""


class DrainabilityRule(NamedTuple):
    """A rule that may apply to a pod, with its reason and its consequence."""

    reason: Reason
    check: Callable[[Pod, Now | None], str | Timed | None]
    """Return why the rule applies to the pod, or None. Without a time no deadline has passed."""
    verdict: Consequence


_LEAVE_IT: Final = "none needed: Ebb waits until the pod terminates, and never evicts it"
MIRROR: Final = Reason(
    "pod-mirror",
    "The pod is the mirror pod of a static pod; it ends with its node.",
    "none needed",
    "the manifest of the static pod is removed from the node",
)
DAEMON: Final = Reason(
    "pod-daemon",
    "The pod belongs to a DaemonSet; it ends with its node.",
    "none needed",
    "the DaemonSet does not select the node any more",
)
KEPT: Final = Reason(
    "pod-kept",
    f"The annotation {KEEP_ANNOTATION} of the Pod, or of its Namespace, excludes the Pod: Ebb "
    "neither moves nor evicts it, and does not mark its node. Pods of DaemonSets, static Pods and "
    "Pods that are being deleted do not count.",
    f"none needed; to let Ebb mark the node, remove the annotation {KEEP_ANNOTATION} from the Pod "
    "and its template, or from the Namespace",
    "the Pod runs on another node or has finished, or the annotation is removed",
)
LONG_TERMINATING: Final = Reason(
    "pod-long-terminating",
    "The pod has been terminating for much longer than its grace period, so Ebb ignores it. "
    "On Karpenter's nodes a pod of a StatefulSet counts until it is deleted.",
    "find out what blocks the deletion, such as a finalizer: "
    "kubectl -n {namespace} get pod {name} -o yaml",
    "the pod is deleted",
)
EXPENDABLE: Final = Reason(
    "pod-expendable",
    "The priority of the pod is below Cluster Autoscaler's cutoff for expendable pods: the "
    "autoscaler removes the node without regard to the pod.",
    "none needed; to protect the pod, give it a higher priority class",
    "the priority of the pod is not below Cluster Autoscaler's cutoff",
)
TERMINATING: Final = Reason(
    "pod-terminating",
    "The pod is being deleted.",
    "none needed: Ebb waits until the pod is gone",
    "the pod is deleted",
)
ON_COMPLETION: Final = Reason(
    "pod-on-completion",
    f"The annotation {SAFE_TO_EVICT}: on-completion asks to wait until the pod has completed.",
    "none needed: Ebb waits until the pod has completed",
    "the pod has completed, or the annotation is removed",
)
NOT_TO_DISRUPT: Final = Reason(
    "pod-do-not-disrupt",
    "An annotation forbids disruption of the pod, permanently or for some time: Karpenter's, or "
    f"{DO_NOT_DISRUPT_KEYS[-1]}.",
    f"{_LEAVE_IT}; to allow evictions, remove the annotation from the pod template",
    "the annotation is removed, or its duration is over",
)
NOT_TO_REMOVE: Final = Reason(
    "pod-removal-disabled",
    "An annotation or label asks CAST AI not to remove the node of the Pod.",
    f"{_LEAVE_IT}; to allow evictions, remove {REMOVAL_DISABLED} from the pod template",
    "the Pod is gone, or the annotation or label is removed",
)
PREFERS_NO_EVICTION: Final = Reason(
    "pod-prefer-no-eviction",
    "The descheduler's annotation asks not to evict the pod. The pod may still terminate by "
    "itself.",
    _LEAVE_IT,
    "the annotation is removed",
)
GANG: Final = Reason(
    "pod-gang",
    "The Pod is scheduled together with a group of Pods (spec.schedulingGroup, "
    "spec.workloadRef, or a label or annotation of coscheduling, Koordinator, Volcano, YuniKorn, "
    "Grove or LeaderWorkerSet). Without the Pod, the others may be of no use, so Ebb neither "
    "evicts the Pod nor gives it a pod deletion cost.",
    f"{_LEAVE_IT}; to move the group, delete or restart its workload",
    "the Pod is gone",
)
RESIZE_DEFERRED: Final = Reason(
    "pod-resize-deferred",
    "The kubelet has deferred a resize of the Pod because its node lacks room. Ebb counts the "
    "requests after the resize, as kube-scheduler does, and plans no other Pods in that room.",
    "none needed: the kubelet tries again when other Pods have left the node; to get room sooner, "
    "delete a Pod that can move, or let the Pod be recreated on another node",
    "the kubelet has resized the Pod, or the resize is withdrawn",
)
FOREIGN_COST: Final = Reason(
    "pod-foreign-cost",
    "The Pod has a pod deletion cost that Ebb did not write. Ebb does not change such a cost, so "
    "scale-ins may delete Pods on unmarked nodes before Pods on marked nodes.",
    "let one tool write the costs: disable Karpenter's feature gate PodDeletionCostManagement or "
    "Koordinator's ScaleDownBinPack, or remove the annotation from the pod template; or set "
    "`podDeletionCost: disabled` in Ebb's configuration",
    "the Pod has no pod deletion cost, or Ebb has written the cost",
)
SAFE: Final = Reason(
    "pod-safe-to-evict",
    f'The annotation {SAFE_TO_EVICT}: "true" allows the eviction of the pod, even if other rules '
    "advise against it.",
    "none needed",
    "the annotation is removed",
)
BARE: Final = Reason(
    "pod-bare",
    "The pod has no controller, so nothing would recreate it after an eviction. A pod that runs "
    "to completion (restartPolicy Never or OnFailure) still leaves its node by itself.",
    f"{_LEAVE_IT}; if the pod is not needed, delete it: "
    "kubectl -n {namespace} delete pod {name}",
    "the pod has finished or is deleted",
)
CUSTOM_CONTROLLER: Final = Reason(
    "pod-custom-controller",
    "The pod belongs to a controller that Ebb does not know, so Ebb cannot tell whether the pod "
    "would be recreated. A pod that runs to completion still leaves its node by itself.",
    _LEAVE_IT,
    "the pod has finished, or its controller has replaced it",
)
OF_STATEFUL_SET: Final = Reason(
    "pod-stateful-set",
    "The pod belongs to a StatefulSet; its pods usually terminate only in updates and scale-ins.",
    "start a rolling update: kubectl -n {namespace} rollout restart statefulset {owner}",
    "the pod is recreated on another node",
)
SYSTEM: Final = Reason(
    "pod-system",
    "The pod runs in the namespace kube-system or has a system-critical priority class.",
    f"{_LEAVE_IT}; to move the pod, delete it or restart its workload when that is harmless",
    "the pod is recreated on another node",
)
NOT_SAFE_TO_EVICT: Final = Reason(
    "pod-not-safe-to-evict",
    "Cluster Autoscaler's annotation forbids the eviction of the pod.",
    f"{_LEAVE_IT}; to allow evictions, remove the annotation {SAFE_TO_EVICT} from the pod "
    "template",
    "the pod is gone, or the annotation no longer forbids the eviction",
)
LOCAL_STORAGE: Final = Reason(
    "pod-local-storage",
    "The pod stores data on the node itself; an eviction would lose it.",
    f"in the annotation {SAFE_VOLUMES} of the pod template, list the volumes that may be lost",
    "the pod is gone, or the annotation lists all its local volumes",
)


def _note(pod: Pod, key: str) -> str | None:
    return dict(pod.disruption_facts.notes).get(key)


def why_kept(pod: Pod) -> str | None:
    """Return a message why the pod's node must not be marked, or None if it may be."""
    if pod.disruption_facts is NO_DISRUPTION_FACTS or pod.stays_with_node or pod.terminating:
        return None
    note = _note(pod, KEEP_ANNOTATION)
    if note == OF_NAMESPACE:
        return f"is in the Namespace {pod.namespace}, which has the annotation {KEEP_ANNOTATION}"
    return f"has the annotation {KEEP_ANNOTATION}: 'true'" if note == "true" else None


def _long_terminating(pod: Pod, now: Now | None) -> str | None:
    return (
        "has been terminating for much longer than its grace period" if pod.overdue(now) else None
    )


def _expendable(pod: Pod, _: Now | None) -> str | None:
    return (
        f"has the priority {pod.priority}, which Cluster Autoscaler treats as expendable"
        if pod.expendable
        else None
    )


def do_not_disrupt(pod: Pod, now: Now | None, key: str = DO_NOT_DISRUPT) -> str | Timed | None:
    """Return a message why the annotation *key* forbids disruption of the pod, or None.

    The message is Timed if the annotation forbids disruption for some time only. The value of the
    annotation is "true", or a duration that starts with the pod. Karpenter ignores other values.
    Without *now*, no duration is over.
    """
    note = _note(pod, key)
    if note is None:
        return None
    message = f"has the annotation {key}: {note!r}"
    if note == "true":
        return message
    nanos = _duration_nanos(note)
    if nanos is None or nanos <= 0:
        return None
    started = pod.disruption_facts.started_seconds
    if started is None or now is None:
        return message
    until = started + -(-nanos // 10**9)
    return Timed(message, until) if now.before(until) else None


def _not_to_disrupt(pod: Pod, now: Now | None) -> str | Timed | None:
    answers = (do_not_disrupt(pod, now, key) for key in DO_NOT_DISRUPT_KEYS)
    return next((answer for answer in answers if answer is not None), None)


def _removal_disabled(pod: Pod, _: Now | None) -> str | None:
    disabled = _note(pod, REMOVAL_DISABLED) == "true"
    return f"has the annotation or label {REMOVAL_DISABLED}: 'true'" if disabled else None


def disruption_cost(pod: Pod) -> int:
    """Return the cost of evicting the pod, from an annotation of DISRUPTION_COST_KEYS.

    The cost has no unit. 0 if no annotation is a valid number.
    """
    notes = dict(pod.disruption_facts.notes)
    written = (notes.get(key, "") for key in DISRUPTION_COST_KEYS)
    return next((int(cost) for cost in written if _COST.fullmatch(cost)), 0)


def _prefer_no_eviction(pod: Pod, _: Now | None) -> str | None:
    annotated = _note(pod, PREFER_NO_EVICTION) is not None
    return f"has the annotation {PREFER_NO_EVICTION}" if annotated else None


def _foreign_cost(pod: Pod, _: Now | None) -> str | None:
    if pod.deletion_cost is None or pod.has_our_cost or not goes_by_cost(pod):
        return None
    over = pod.deletion_cost_ours
    replaced = f" (Ebb had written {over!r})" if over is not None else ""
    return f"has the pod deletion cost {pod.deletion_cost!r}, which Ebb did not write{replaced}"


def _gang(pod: Pod, _: Now | None) -> str | None:
    gang = pod.disruption_facts.gang
    return f"belongs to the group {gang}, whose pods are scheduled together" if gang else None


def _resize_deferred(pod: Pod, _: Now | None) -> str | None:
    # No other node can help: a resize happens in place. So Ebb removes no mark because of the pod,
    # and starts no cooldown. The pod does not keep its node from being removed either: it moves
    # with the requests that it is to have, and a mark keeps new pods from the room that it waits
    # for.
    waits = f"waits for room on node {pod.node}, to be resized in place"
    return waits if pod.disruption_facts.resize_deferred else None


def _bare(pod: Pod, _: Now | None) -> str | None:
    return None if pod.owner_kind else "has no controller that would recreate it"


def _custom_controller(pod: Pod, _: Now | None) -> str | None:
    if not pod.owner_kind or pod.owner_kind in KNOWN_OWNERS:
        return None
    return f"belongs to {pod.owner_kind} {pod.owner_name}, a controller that Ebb does not know"


def _stateful_set(pod: Pod, _: Now | None) -> str | None:
    owned = pod.owner_kind == STATEFUL_SET
    return f"belongs to StatefulSet {pod.owner_name}" if owned else None


def _system(pod: Pod, _: Now | None) -> str | None:
    if pod.namespace == SYSTEM_NAMESPACE:
        return f"runs in the namespace {SYSTEM_NAMESPACE}"
    if pod.priority >= CRITICAL_PRIORITY:
        return f"has the system-critical priority {pod.priority}"
    return None


def _safe_to_evict(value: str) -> Callable[[Pod, Now | None], str | None]:
    """Return a rule that applies if the annotation SAFE_TO_EVICT has this value."""
    text = f"has the annotation {SAFE_TO_EVICT}: {value!r}"
    return lambda pod, _: text if _note(pod, SAFE_TO_EVICT) == value else None


def _local_storage(pod: Pod, _: Now | None) -> str | None:
    if not pod.disruption_facts.local_volumes:
        return None
    safe = (_note(pod, SAFE_VOLUMES) or "").split(",")
    lost = [name for name in pod.disruption_facts.local_volumes if name not in safe]
    return f"stores data on the node itself, in the volumes {', '.join(lost)}" if lost else None


UNKNOWN_OWNER: Final = frozenset({BARE, CUSTOM_CONTROLLER})
"""Reasons of pods that nothing may recreate."""
RULES: Final = (
    DrainabilityRule(
        MIRROR,
        lambda pod, _: "is the mirror pod of a static pod" if pod.mirror else None,
        Consequence.LAST,
    ),
    DrainabilityRule(
        DAEMON, lambda pod, _: "belongs to a DaemonSet" if pod.daemon else None, Consequence.LAST
    ),
    DrainabilityRule(KEPT, lambda pod, _: why_kept(pod), Consequence.INFO),
    DrainabilityRule(LONG_TERMINATING, _long_terminating, Consequence.LAST),
    DrainabilityRule(EXPENDABLE, _expendable, Consequence.LAST),
    DrainabilityRule(
        TERMINATING,
        lambda pod, _: "is being deleted" if pod.terminating else None,
        Consequence.LAST,
    ),
    DrainabilityRule(
        ON_COMPLETION,
        _safe_to_evict("on-completion"),
        Consequence.LAST,
    ),
    DrainabilityRule(NOT_TO_DISRUPT, _not_to_disrupt, Consequence.LONG_LIVED),
    DrainabilityRule(NOT_TO_REMOVE, _removal_disabled, Consequence.LONG_LIVED),
    DrainabilityRule(PREFERS_NO_EVICTION, _prefer_no_eviction, Consequence.INFO),
    DrainabilityRule(FOREIGN_COST, _foreign_cost, Consequence.INFO),
    DrainabilityRule(GANG, _gang, Consequence.INFO),
    DrainabilityRule(RESIZE_DEFERRED, _resize_deferred, Consequence.INFO),
    DrainabilityRule(SAFE, _safe_to_evict("true"), Consequence.INFO),
    DrainabilityRule(BARE, _bare, Consequence.LONG_LIVED),
    DrainabilityRule(CUSTOM_CONTROLLER, _custom_controller, Consequence.LONG_LIVED),
    DrainabilityRule(OF_STATEFUL_SET, _stateful_set, Consequence.LONG_LIVED),
    DrainabilityRule(SYSTEM, _system, Consequence.LONG_LIVED),
    DrainabilityRule(NOT_SAFE_TO_EVICT, _safe_to_evict("false"), Consequence.LONG_LIVED),
    DrainabilityRule(LOCAL_STORAGE, _local_storage, Consequence.LONG_LIVED),
)
"""The rules in the order of evaluation."""
REASONS: Final = tuple(rule.reason for rule in RULES)
"""Reasons of all rules. Most say why a node empties late; none keeps a node from being marked."""


def findings(pod: Pod, now: Now | None = None) -> list[tuple[Consequence, Blocker]]:
    """Return a consequence and a reason for each rule that applies to the pod, in rule order.

    A rule with the consequence LAST ends the list. *now*: None means that no deadline has passed.
    """
    blockers: list[tuple[Consequence, Blocker]] = []
    for reason, check, verdict in RULES:
        why = check(pod, now)
        if why is not None:
            message, until = why if isinstance(why, Timed) else (why, None)
            blocker = Blocker(reason, message, pod.key, pod.owner_name, until)
            # The kubelet does not restart the containers of a pod that runs to completion. So the
            # pod leaves its node like a pod of a Job, whoever created it. Whether a controller
            # recreates it matters for evictions only.
            by_itself = reason in UNKNOWN_OWNER and pod.disruption_facts.completes
            blockers.append((Consequence.INFO if by_itself else verdict, blocker))
            if verdict is Consequence.LAST:
                break
    return blockers


def long_lived_reasons(pods: Iterable[Pod], now: Now | None = None) -> list[Blocker]:
    """Return the reasons why some of the pods rarely terminate by themselves.

    Empty if all pods are short-lived. These reasons do not keep a node from being marked. *now*:
    None means that no deadline has passed.
    """
    return [
        blocker
        for pod in pods
        for verdict, blocker in findings(pod, now)
        if verdict is Consequence.LONG_LIVED
    ]


def surely_short_lived(pod: Pod) -> bool:
    """Return True if surely no rule for long-lived pods applies; False means unknown.

    A quick check, True for most pods.
    """
    return (
        pod.owner_kind == REPLICA_SET
        and pod.disruption_facts is NO_DISRUPTION_FACTS
        and pod.priority < CRITICAL_PRIORITY
        and pod.namespace != SYSTEM_NAMESPACE
    )


_UNIT_NANOS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6,
                      "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}  # fmt: skip
_PART: Final = re.compile(r"(?a)(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)")


def _duration_nanos(text: str) -> int | None:
    """Return a duration in Go's format (1h30m, 1.5h) in nanoseconds.

    None if the text is not a duration, or too long.
    """
    total, place = 0, 0
    while place < len(text) <= DURATION_CHARS_MAX:
        part = _PART.match(text, place)
        if part is None or not (part[1] or part[2]):
            return None
        unit, fraction = _UNIT_NANOS[part[3]], part[2] or ""
        total += int(part[1] or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        place = part.end()
    return total if place and place == len(text) and total <= DURATION_NANOS_MAX else None
