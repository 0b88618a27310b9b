"""A mark and what stands beside it on a Node, written and read back."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    GUARD_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    GUARDS,
    KARPENTER_KEEP_ANNOTATION,
    KARPENTER_LABEL,
    KEEP_ANNOTATION,
    MARK_LABEL,
    RESERVE_ANNOTATION,
)
from core.model.node import Effect, Node

SECONDS_DIGITS_MAX: Final = 12
"""Of unix seconds that we read, from annotations and taints: below 10^12, the year 33658."""
_WHOLE_MAX: Final = 10**SECONDS_DIGITS_MAX - 1
DETAILS_CHARACTERS_MAX: Final = 4096
"""Ours have about 200, and an annotation may have 256 kB: what is longer is not looked at."""
RESERVE_CHARACTERS_MAX: Final = 1024
"""The same; ours has about 100."""
GUARD_WHILE_MARKED: Final = "marked"
GUARD_WHILE_HELD: Final = "held"
"""Without a mark: until its node is handed over, or holds pods."""
_SECONDS: Final = re.compile(f"[0-9]{{1,{SECONDS_DIGITS_MAX}}}")
_BACKOFF: Final = re.compile(f"([0-9]{{1,4}}) ({_SECONDS.pattern})(?: ([a-z-]{{1,40}}))?")


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
    """What the back-off annotation says: `{times} {until}`, and `{why}` after a failed drain."""

    times: int
    until: int
    """Unix seconds."""
    why: str = ""
    """The code of the reason for which a drain failed; empty: it did not empty in time."""

    def __str__(self) -> str:
        return f"{self.times} {self.until} {self.why}".rstrip()


def seconds_of(text: str) -> int | None:
    """Read unix seconds as we write them; anything else is None."""
    return int(text) if _SECONDS.fullmatch(text) else None


def backoff_of(annotations: Mapping[str, str]) -> Backoff | None:
    """Read the back-off; a missing or damaged annotation is None."""
    found = _BACKOFF.fullmatch(annotations.get(BACKOFF_ANNOTATION, ""))
    return Backoff(int(found[1]), int(found[2]), found[3] or "") if found else None


def mark_of(labels: Mapping[str, str]) -> Mark | None:
    """Read the mark; a value that is not ours to know is no mark."""
    value = labels.get(MARK_LABEL)
    return Mark(value) if value in (Mark.SOFT, Mark.HARD) else None


def encode_details(details: Details) -> str:
    """Write the details as compact JSON, in the order of the fields."""
    return json.dumps(asdict(details), separators=(",", ":"))


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
    raise ValueError


def _text(value: object) -> str:
    """Return the text that JSON had, in one line of what can be shown. Raises: ValueError."""
    if isinstance(value, str) and value.isprintable():
        return value
    raise ValueError


def marked_since(node: Node, taint_key: str) -> int:
    """Return when the node was marked, unix seconds: from the details, else the taint, else 0."""
    details = decode_details(node.annotations)
    if details is not None:
        return details.since
    for taint in node.taints:
        if taint.key == taint_key and (seconds := seconds_of(taint.value)) is not None:
            return seconds
    return 0


def mark_order(node: Node, taint_key: str) -> tuple[int, int]:
    """Return what marked nodes are judged in the order of: the second, the place in its plan."""
    details = decode_details(node.annotations)
    return marked_since(node, taint_key), details.order if details is not None else 0


class ExistingMark(NamedTuple):
    """A node's mark."""

    mark: Mark
    since: int
    """Unix seconds, as it is written."""
    order: int
    """Place in the plan that marked it."""


def existing_marks(nodes: Iterable[Node], taint_key: str) -> dict[str, ExistingMark]:
    """Return the marks by name of the node, in the order of *nodes*."""
    marked = ((node, mark_of(node.labels)) for node in nodes)
    return {
        node.name: ExistingMark(mark, *mark_order(node, taint_key))
        for node, mark in marked
        if mark
    }


class Guard(NamedTuple):
    """What says that a guard is ours: `{until}`, or `{until} {key}` where it is Karpenter's."""

    until: str
    """GUARD_WHILE_MARKED, GUARD_WHILE_HELD, or until which unix second."""
    key: str = GUARDS[0]

    def __str__(self) -> str:
        return self.until if self.key == GUARDS[0] else f"{self.until} {self.key}"


def guard_of(node: Node) -> Guard | None:
    """Return the guard on the node that is ours; None: there is none, or not any more."""
    until, _, named = node.annotations.get(GUARD_OURS_ANNOTATION, "").partition(" ")
    key = named if named in GUARDS else GUARDS[0]
    stands = GUARD_OURS_ANNOTATION in node.annotations and node.annotations.get(key) == "true"
    return Guard(until, key) if stands else None


def reserved_for(node: Node) -> str | None:
    """Return for which pods the node is kept; None: for none, or the annotation is damaged."""
    told = node.annotations.get(RESERVE_ANNOTATION, "")
    fine = 0 < len(told) <= RESERVE_CHARACTERS_MAX and told.isprintable()
    return told if fine and guard_of(node) else None


def guard_key(node: Node) -> str:
    """Return the annotation that the node's autoscaler reads."""
    return KARPENTER_KEEP_ANNOTATION if KARPENTER_LABEL in node.labels else GUARD_ANNOTATION


def is_released_to_autoscaler(node: Node) -> bool:
    """Say whether it is marked, and nothing keeps the autoscaler from it, ours or not."""
    free = guard_of(node) is None and guard_key(node) not in node.annotations
    return free and mark_of(node.labels) is not None


def opt_out_annotation(node: Node) -> str | None:
    """Return the annotation by which a person or tool keeps the node, or None."""
    if node.annotations.get(KEEP_ANNOTATION) == "true":
        return KEEP_ANNOTATION
    ours = guard_of(node)
    for key in (KARPENTER_KEEP_ANNOTATION, GUARD_ANNOTATION):
        if key not in node.annotations or (ours and ours.key == key):
            continue
        # Any value of somebody else's counts: with "false" in place, Ebb could not guard the node
        # without taking that person's word away. Karpenter's is a word on Karpenter's nodes.
        if key in (GUARD_ANNOTATION, guard_key(node)) or node.annotations[key] == "true":
            return key
    return None
