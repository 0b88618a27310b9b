"""Read and write the mark of a Node, and the annotations that belong to it.

The mark is Ebb's label on a Node that the cluster does not need. The webhook derives a taint from
it. With PreferNoSchedule, kube-scheduler avoids the Node; with NoSchedule, it places no new pods
there.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    KARPENTER_LABEL,
    KEEP_ANNOTATION,
    MARK_LABEL,
    OLD_PROTECTION_ANNOTATION,
    PROTECTION_ANNOTATION,
    PROTECTION_KEYS,
    REMOVAL_DISABLED,
    RESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
)
from core.model.json_values import printable, whole
from core.model.node import Effect, Node
from core.model.now import Now

SECONDS_DIGITS_MAX: Final = 12
"""Maximum digits of Unix seconds in annotations and taints: below 10^12, the year 33658."""
DETAILS_CHARACTERS_MAX: Final = 4096
"""Maximum length of the details annotation that is parsed.

Ebb writes about 200 characters; Kubernetes allows 256 kB."""
RESERVE_CHARACTERS_MAX: Final = 1024
"""Maximum length of the reserve annotation that is read; Ebb writes about 100 characters."""
PROTECTED_WHILE_MARKED: Final = "marked"
PROTECTED_WHILE_UNMARKED: Final = "unmarked"
"""Scale-down protection of an unmarked node.

It ends when Ebb allows scale-down of the node, or when the node is not empty any more."""
_SECONDS: Final = re.compile(f"[0-9]{{1,{SECONDS_DIGITS_MAX}}}")
_BACKOFF: Final = re.compile(f"([0-9]{{1,4}}) ({_SECONDS.pattern})(?: ([a-z-]{{1,40}}))?")


class Mark(StrEnum):
    """The value of Ebb's label on a Node, and the effect of the taint that follows from it."""

    PREFER_NO_SCHEDULE = Effect.PREFER_NO_SCHEDULE.value
    NO_SCHEDULE = Effect.NO_SCHEDULE.value


MARKS: Final = frozenset(mark.value for mark in Mark)


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The content of the details annotation: who marked the Node, when, why, and its deadline."""

    since: int
    """Time of the mark, in Unix seconds."""
    deadline: int
    owner: str
    policy: str
    reason: str
    order: int = 0
    """Position of the node in the plan that marked it; orders nodes that were marked in one
    second."""


BACKOFF_SECONDS: Final = 3600
"""Backoff after the first failure. It doubles with each further failure in a row."""
BACKOFF_SECONDS_MAX: Final = 24 * 3600
TIMES_MAX: Final = 1000
"""Maximum count of failures in the backoff annotation."""
UNMARKED_BY_PERSON: Final = "unmarked"
"""Reason of a backoff that `ebb unmark` begins."""
CLOCKS_APART_SECONDS_MAX: Final = 86_400
"""Maximum clock skew between leaders; a time further in the future was not written by a leader."""


def backoff_seconds(times: int) -> int:
    """Return the backoff in seconds after *times* failures in a row.

    It doubles with each failure, up to BACKOFF_SECONDS_MAX.
    """
    return int(min(BACKOFF_SECONDS * 2 ** min(times - 1, 32), BACKOFF_SECONDS_MAX))


class Backoff(NamedTuple):
    """The content of the backoff annotation: until when Ebb does not mark the Node again.

    Its text is `{times} {until}`, with `{why}` if there is a reason.
    """

    times: int
    """Number of failures in a row; each one doubles the backoff, up to a maximum."""
    until: int
    """Unix second until which the node is not marked again."""
    why: str = ""
    """Reason code of failed evictions, or UNMARKED_BY_PERSON; empty if the node was not empty
    before its deadline."""

    def holds(self, now: Now) -> bool:
        """Return whether the backoff still prevents a new mark.

        An end that is too far in the future is ignored, because no leader can have written it.
        """
        return self.is_possible(now) and now.before(self.until)

    def is_possible(self, now: Now) -> bool:
        """Return whether a leader with a roughly correct clock can have written `until`.

        It cannot be further in the future than the maximum backoff plus the maximum clock skew.
        """
        return now.reached(self.until - BACKOFF_SECONDS_MAX - CLOCKS_APART_SECONDS_MAX)

    def __str__(self) -> str:
        return f"{self.times} {self.until} {self.why}".rstrip()


def seconds_of(text: str) -> int | None:
    """Parse Unix seconds as Ebb writes them; return None for any other text."""
    return int(text) if _SECONDS.fullmatch(text) else None


def backoff_of(annotations: Mapping[str, str]) -> Backoff | None:
    """Return the backoff from the annotations of a Node; None if it is missing or invalid."""
    match = _BACKOFF.fullmatch(annotations.get(BACKOFF_ANNOTATION, ""))
    return Backoff(int(match[1]), int(match[2]), match[3] or "") if match else None


def next_backoff(annotations: Mapping[str, str], now_seconds: int, why: str = "") -> Backoff:
    """Return the backoff that begins now on a Node with these annotations.

    It is longer if the Node has had one before. *why*: see `Backoff`.
    """
    before = backoff_of(annotations)
    times = min(before.times + 1 if before else 1, TIMES_MAX)
    return Backoff(times, now_seconds + backoff_seconds(times), why)


def backoffs(nodes: Iterable[Node]) -> dict[str, Backoff]:
    """Return the backoffs of the nodes from their annotations, by node name.

    Nodes without a valid backoff annotation are left out.
    """
    annotated = (node for node in nodes if BACKOFF_ANNOTATION in node.annotations)
    return {node.name: backoff for node in annotated if (backoff := backoff_of(node.annotations))}


def mark_of(labels: Mapping[str, str]) -> Mark | None:
    """Return the mark of a Node with these labels, or None if it is not marked.

    An unknown value of the label is no mark.
    """
    value = labels.get(MARK_LABEL)
    return Mark(value) if value in MARKS else None


def encode_details(details: Details) -> str:
    """Return the value of the details annotation: compact JSON, in the order of the fields."""
    return json.dumps(asdict(details), separators=(",", ":"))


def decode_details(annotations: Mapping[str, str]) -> Details | None:
    """Return the details annotation of a Node; None if it is missing or invalid, never an error.

    Numbers out of bounds, fractions and unprintable text are invalid: Ebb does not write these.
    """
    # Users who may write Nodes can write anything here, and a kubelet can write to its own Node.
    written = annotations.get(DETAILS_ANNOTATION)
    if written is None or len(written) > DETAILS_CHARACTERS_MAX:
        return None
    try:
        details = json.loads(written)
        return Details(
            since=whole(details["since"]),
            deadline=whole(details["deadline"]),
            owner=printable(details["owner"]),
            policy=printable(details["policy"]),
            reason=printable(details["reason"]),
            order=whole(details.get("order", 0)),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def marked_since(node: Node, taint_key: str) -> int:
    """Return the Unix second at which the marked node was marked.

    It comes from the details annotation, else from the value of Ebb's taint. 0 if neither is
    valid. *taint_key*: key of Ebb's taint.
    """
    details = decode_details(node.annotations)
    if details is not None:
        return details.since
    for taint in node.taints:
        if taint.key == taint_key and (seconds := seconds_of(taint.value)) is not None:
            return seconds
    return 0


def mark_order(node: Node, taint_key: str) -> tuple[int, int]:
    """Return a sort key for marked nodes: Unix second of the mark, then position in its plan.

    The position is 0 if it is unknown. *taint_key*: key of Ebb's taint.
    """
    details = decode_details(node.annotations)
    return marked_since(node, taint_key), details.order if details is not None else 0


class ExistingMark(NamedTuple):
    """A mark that a Node has now, with its time and its position in the plan that set it."""

    mark: Mark
    since: int
    """Time of the mark, in Unix seconds, as the Node states it."""
    order: int
    """Position of the node in the plan that marked it."""


def existing_marks(nodes: Iterable[Node], taint_key: str) -> dict[str, ExistingMark]:
    """Return the marks of the marked nodes by node name, in the order of *nodes*.

    *taint_key*: key of Ebb's taint.
    """
    marked = ((node, mark_of(node.labels)) for node in nodes)
    return {
        node.name: ExistingMark(mark, *mark_order(node, taint_key))
        for node, mark in marked
        if mark
    }


class ProtectionRecord(NamedTuple):
    """The annotation by which Ebb records that it has set the scale-down protection of a Node.

    Its value is `{until}`, or `{until} {key}` if *key* is Karpenter's annotation.
    """

    until: str
    """PROTECTED_WHILE_MARKED, PROTECTED_WHILE_UNMARKED, or the Unix second at which the
    protection ends."""
    key: str = PROTECTION_KEYS[0]

    def __str__(self) -> str:
        return self.until if self.key == PROTECTION_KEYS[0] else f"{self.until} {self.key}"


def protection_of(node: Node) -> ProtectionRecord | None:
    """Return the record of the scale-down protection that Ebb set on the node.

    None if Ebb set none, or if the annotation that protects the node is gone.
    """
    annotations = node.annotations
    record = annotations.get(PROTECTION_ANNOTATION, annotations.get(OLD_PROTECTION_ANNOTATION))
    if record is None:
        return None
    until, _, named = record.partition(" ")
    key = named if named in PROTECTION_KEYS else PROTECTION_KEYS[0]
    protected = annotations.get(key) == "true"
    return ProtectionRecord(until, key) if protected else None


def reserved_for(node: Node) -> str | None:
    """Return the text that says for which expected pods Ebb reserves the node.

    None if the node is not reserved, or if the annotation is invalid.
    """
    pods = node.annotations.get(RESERVE_ANNOTATION, "")
    valid = 0 < len(pods) <= RESERVE_CHARACTERS_MAX and pods.isprintable()
    return pods if valid and protection_of(node) else None


def protection_key(node: Node) -> str:
    """Return the key of the annotation that keeps the node's autoscaler from removing the node.

    Karpenter and Cluster Autoscaler read different annotations.
    """
    return (
        DO_NOT_DISRUPT_ANNOTATION
        if KARPENTER_LABEL in node.labels
        else SCALE_DOWN_DISABLED_ANNOTATION
    )


def is_scale_down_allowed(node: Node) -> bool:
    """Return whether the node is marked and no annotation protects it from scale-down."""
    free = protection_of(node) is None and protection_key(node) not in node.annotations
    return free and mark_of(node.labels) is not None


def opt_out_annotation(node: Node) -> str | None:
    """Return the key of the annotation by which a person or another tool excludes the node.

    None if there is none. Scale-down protection that Ebb set does not count.
    """
    if node.annotations.get(KEEP_ANNOTATION) == "true":
        return KEEP_ANNOTATION
    if node.annotations.get(REMOVAL_DISABLED) == "true":
        return REMOVAL_DISABLED
    ours = protection_of(node)
    for key in (DO_NOT_DISRUPT_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION):
        if key not in node.annotations or (ours and ours.key == key):
            continue
        # Any value of another owner counts: Ebb would have to overwrite "false" to protect the
        # node. Karpenter's annotation counts with any value on Karpenter's nodes only.
        if (
            key in (SCALE_DOWN_DISABLED_ANNOTATION, protection_key(node))
            or node.annotations[key] == "true"
        ):
            return key
    return None
