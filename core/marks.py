"""What Ebb writes on a Node and how it reads it back; the one place that knows the keys.

`desired_taints` serves the webhook and the engine's repair alike; `score_*` serve the extender
and the simulated scheduler alike. All pure. Source: design of the marks, Kubernetes taints.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from core.leaving import being_deleted, why_leaving
from core.model import Effect, Node, Resources, Taint

MARK_LABEL: Final = "kube-ebb.node-restriction.kubernetes.io/drain"
"""The truth. Kubelets may not write labels under this prefix (NodeRestriction)."""
TAINT_KEY: Final = "status-taint.cluster-autoscaler.kubernetes.io/kube-ebb"
"""The prefix keeps Cluster Autoscaler from copying the taint into templates of new nodes."""
DETAILS_ANNOTATION: Final = "kube-ebb.io/drain"
GUARD_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
GUARD_OURS_ANNOTATION: Final = "kube-ebb.io/guard"
COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
"""On a pod: the ReplicaSet controller deletes the pods of the lowest cost first."""
COST_OURS_ANNOTATION: Final = "kube-ebb.io/deletion-cost"
"""On a pod: the cost that Ebb has written; a cost that differs is somebody else's."""
KEEP_ANNOTATION: Final = "kube-ebb.io/keep"
KARPENTER_KEEP_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
BACKOFF_ANNOTATION: Final = "kube-ebb.io/backoff"
"""How often the node did not empty before its deadline, and until when it is left alone."""

SCORE_MAX: Final = 10
SCORE_MARKED_SOFT_MAX: Final = 1
"""Soft marks get 1 down to 0, hard marks 0; every unmarked node gets more."""


SECONDS_DIGITS_MAX: Final = 12
"""Of unix seconds that we read, from annotations and taints: below 10^12, the year 33658."""
_WHOLE_MAX: Final = 10**SECONDS_DIGITS_MAX - 1
DETAILS_CHARACTERS_MAX: Final = 4096
"""Ours have about 200, and an annotation may have 256 kB: what is longer is not looked at."""

_SECONDS: Final = re.compile(f"[0-9]{{1,{SECONDS_DIGITS_MAX}}}")
_BACKOFF: Final = re.compile(f"([0-9]{{1,4}}) ({_SECONDS.pattern})")


class Mark(StrEnum):
    """The value of the mark's label; its order is how far a node has gone."""

    SOFT = "soft"
    HARD = "hard"


EFFECT_OF: Final = {Mark.SOFT: Effect.PREFER_NO_SCHEDULE, Mark.HARD: Effect.NO_SCHEDULE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The details annotation: who marked the node, when, until when, and why."""

    since: int
    """Unix seconds."""
    deadline: int
    owner: str
    policy: str
    reason: str
    order: int = 0
    """Place in the plan that marked it: later plans judge the marks of one second in its order."""


class Backoff(NamedTuple):
    """What the back-off annotation says: `{times} {until}`."""

    times: int
    until: int
    """Unix seconds."""

    def __str__(self) -> str:
        return f"{self.times} {self.until}"


def seconds_of(text: str) -> int | None:
    """Read unix seconds as we write them; anything else is None."""
    return int(text) if _SECONDS.fullmatch(text) else None


def backoff_of(annotations: Mapping[str, str]) -> Backoff | None:
    """Read the back-off; a missing or damaged annotation is None."""
    found = _BACKOFF.fullmatch(annotations.get(BACKOFF_ANNOTATION, ""))
    return Backoff(int(found[1]), int(found[2])) if found else None


def mark_of(labels: Mapping[str, str]) -> Mark | None:
    """Read the mark; a value that is not ours to know is no mark."""
    value = labels.get(MARK_LABEL)
    return Mark(value) if value in (Mark.SOFT, Mark.HARD) else None


def encode_details(details: Details) -> str:
    """Write the details as compact JSON with a fixed key order."""
    return json.dumps(
        {
            "since": details.since,
            "deadline": details.deadline,
            "owner": details.owner,
            "policy": details.policy,
            "reason": details.reason,
            "order": details.order,
        },
        separators=(",", ":"),
    )


def decode_details(annotations: Mapping[str, str]) -> Details | None:
    """Read the details back; a missing or damaged annotation is None, never an error.

    Whoever may write Nodes, a kubelet its own, can write anything here. What we would not have
    written is damaged: numbers that are not whole or out of bounds, text that cannot be printed.
    """
    written = annotations.get(DETAILS_ANNOTATION)
    if written is None or len(written) > DETAILS_CHARACTERS_MAX:
        return None
    try:
        found = json.loads(written)
        return Details(
            since=_whole(found["since"]),
            deadline=_whole(found["deadline"]),
            owner=_text(found["owner"]),
            policy=_text(found["policy"]),
            reason=_text(found["reason"]),
            order=_whole(found.get("order", 0)),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _whole(value: object) -> int:
    """Return the number that JSON had, no float and no truth value. Raises: ValueError."""
    if type(value) is int and 0 <= value <= _WHOLE_MAX:
        return value
    raise ValueError("no whole number within bounds")


def _text(value: object) -> str:
    """Return the text that JSON had, in one line of what can be shown. Raises: ValueError."""
    if isinstance(value, str) and value.isprintable():
        return value
    raise ValueError("no text that can be printed")


def marked_since(node: Node, taint_key: str = TAINT_KEY) -> int:
    """Return when the node was marked, unix seconds: from the details, else the taint, else 0."""
    details = decode_details(node.annotations)
    if details is not None:
        return details.since
    for taint in node.taints:
        if taint.key == taint_key and (seconds := seconds_of(taint.value)) is not None:
            return seconds
    return 0


def mark_order(node: Node, taint_key: str = TAINT_KEY) -> tuple[int, int]:
    """Return what marked nodes are judged in the order of: the second, the place in its plan."""
    details = decode_details(node.annotations)
    return marked_since(node, taint_key), details.order if details is not None else 0


def desired_taints(node: Node, taint_key: str = TAINT_KEY) -> tuple[Taint, ...]:
    """Return the taints that *node* should carry, given the mark that it carries.

    Others' taints stay untouched and in place. Ours, if there is a mark, keeps its place when it
    is already right (or right but for the effect) and else comes last; its value is the unix
    second of the mark. Idempotent: applied to its own answer it changes nothing.
    """
    mark = mark_of(node.labels)
    if mark is None:
        return tuple(taint for taint in node.taints if taint.key != taint_key)
    ours = Taint(taint_key, str(marked_since(node, taint_key)), EFFECT_OF[mark])
    taints = list(node.taints)
    places = [place for place, taint in enumerate(taints) if taint.key == taint_key]
    if not places:
        return (*taints, ours)
    taints[places[0]] = ours
    return tuple(t for place, t in enumerate(taints) if place not in places[1:])


def of_keys_before(node: Node, keys: Collection[str]) -> tuple[Taint, ...]:
    """Return the node's taints that Ebb has written under one of these keys: they say when."""
    return tuple(
        taint
        for taint in node.taints
        if taint.key in keys
        and taint.effect in EFFECT_OF.values()
        and seconds_of(taint.value) is not None
    )


def without_our_taint(node: Node, taint_key: str = TAINT_KEY) -> Node:
    """Return the node as it would be if its mark were taken away now, for the rules of fit."""
    if all(taint.key != taint_key for taint in node.taints):
        return node
    taints = tuple(taint for taint in node.taints if taint.key != taint_key)
    return replace(node, taints=taints)


def guarded_by_us(node: Node) -> bool:
    """Say whether the autoscaler's opt-out on the node was put there by Ebb."""
    return (
        node.annotations.get(GUARD_ANNOTATION) == "true"
        and GUARD_OURS_ANNOTATION in node.annotations
    )


def opted_out(node: Node) -> str | None:
    """Return the annotation by which a person or tool keeps the node, or None."""
    for key in (KEEP_ANNOTATION, KARPENTER_KEEP_ANNOTATION):
        if node.annotations.get(key) == "true":
            return key
    # Any value of somebody else's counts: with "false" in place, Ebb could not guard the node
    # without taking that person's word away.
    if GUARD_ANNOTATION in node.annotations and not guarded_by_us(node):
        return GUARD_ANNOTATION
    return None


def going(node: Node) -> bool:
    """Say whether the node is leaving: it counts as gone."""
    return why_leaving(node) is not None


def traces(node: Node) -> tuple[str | None, ...]:
    """Return everything on the node that a decision about its mark or guard rests on."""
    annotations = node.annotations
    return (
        node.labels.get(MARK_LABEL),
        *(
            annotations.get(key)
            for key in (
                DETAILS_ANNOTATION,
                GUARD_ANNOTATION,
                GUARD_OURS_ANNOTATION,
                KEEP_ANNOTATION,
                KARPENTER_KEEP_ANNOTATION,
                BACKOFF_ANNOTATION,
            )
        ),
        "being deleted" if being_deleted(node) else why_leaving(node),
    )


def score_marked(mark: Mark, rank: int, marked: int) -> int:
    """Score a marked node: hard 0; soft 0 for the older half of the marks and 1 for the younger.

    *rank* counts the marked nodes from the first marked (0) to the last (*marked* - 1). Two steps
    suffice: pods avoid the node first that is nearest to being empty, and no unmarked node can
    come below.
    """
    if mark is Mark.HARD or rank * 2 < marked:
        return 0
    return SCORE_MARKED_SOFT_MAX


def score_pack(requests: Resources, allocatable: Resources) -> int:
    """Score an unmarked node for `extender.score: pack`: 2 when empty to 10 when full.

    The share is that of the scarcer of CPU and memory, by requests; steps are equal in width
    and compared in whole numbers. Overcommitted nodes count as full.
    """
    low, steps = SCORE_MARKED_SOFT_MAX + 1, SCORE_MAX - SCORE_MARKED_SOFT_MAX
    best = 0
    for used, whole in (
        (requests.cpu_millis, allocatable.cpu_millis),
        (requests.memory_bytes, allocatable.memory_bytes),
    ):
        if whole > 0:
            best = max(best, min(used * steps // whole, steps - 1))
    return low + best
