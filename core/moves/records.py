"""Read and write the records of surge moves that are stored in the ConfigMap `ebb-moves`.

A surge move adds a pod to a Deployment, and then deletes another pod of it on a marked node. A
record is written before the first step of a move, and removed after the last one, so any later
leader can finish or undo the move. A pause says until when Ebb begins no move of a Deployment. One
entry counts the moves that have begun within the last hour.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from core.config.surge import HOURLY_MAX, MOVES_MAX
from core.model.json_values import printable, whole
from core.model.now import Now

CONFIG_MAP: Final = "ebb-moves"
"""Name of the ConfigMap, in Ebb's namespace."""
PAUSES_MAX: Final = 1000
"""Maximum number of pauses; those that end first are dropped."""
ENTRY_CHARACTERS_MAX: Final = 2048
"""Maximum length of an entry that is read; names in Kubernetes have up to 253 characters."""
DATA_CHARACTERS_MAX: Final = 900_000
"""Maximum length of all entries; the API server accepts ConfigMaps of up to 1 MiB."""
NAME_CHARACTERS_MAX: Final = 253
HOUR_SECONDS: Final = 3600
MINUTE_SECONDS: Final = 60
CLOCKS_APART_SECONDS_MAX: Final = 300
"""Maximum clock skew between leaders. No leader wrote a time that is further in the future."""
MINUTES_MAX: Final = 1 + (HOUR_SECONDS + CLOCKS_APART_SECONDS_MAX) // MINUTE_SECONDS
"""Maximum number of minutes whose moves are counted."""
BEGUN: Final = "begun"
"""Key of the entry that counts moves."""
REPLICAS_MAX: Final = 2**31 - 1
_UID: Final = r"[A-Za-z0-9._-]{1,128}"
_KEY: Final = re.compile(rf"(move|pause)\.({_UID})")
Entry = TypeVar("Entry", "MoveRecord", "Pause")


class MoveStep(StrEnum):
    """The last step of a surge move that is known to be done, or decided."""

    RECORDED = "recorded"
    """The record was written; the replicas may have been raised since."""
    RAISED = "raised"
    """The replicas were raised; Ebb waits for the new pod."""
    LOWERING = "lowering"
    """Ebb has decided to lower the replicas again."""


class MoveOutcome(StrEnum):
    """How a surge move ends; a value of a metric label."""

    NONE = ""
    """The move has not ended."""
    MOVED = "moved"
    """The new pod is available on an unmarked node, and the old one was deleted."""
    OTHER_POD = "other_pod"
    """The ReplicaSet controller deleted another pod than the one to move."""
    ABANDONED = "abandoned"
    """The replicas were not raised, because the conditions of the move did not hold any more."""
    NOT_RAISED = "not_raised"
    """The replicas could not be raised in time."""
    TIMED_OUT = "timed_out"
    """The new pod was not available before the deadline."""
    UNSCHEDULABLE = "unschedulable"
    """The new pod was unschedulable."""
    REFUSED = "refused"
    """The API server rejected the new pod, for example because of a quota."""
    MISPLACED = "misplaced"
    """The new pod was scheduled to a marked node."""
    POD_GONE = "pod_gone"
    """The pod to move terminated by itself."""
    NODE_UNMARKED = "node_released"
    """The node was unmarked."""
    PENDING_PODS = "pending_pods"
    """Other pods were unschedulable and need the room of the new pod."""
    ROLLOUT = "rollout"
    """A rollout began."""
    STOPPED = "stopped"
    """Surge moves were disabled, or `ebb cleanup --all` ran."""
    SCALED = "scaled"
    """The HorizontalPodAutoscaler changed the replicas."""
    INTERFERED = "interfered"
    """Something else changed the replicas."""
    GONE = "gone"
    """The Deployment was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecord:
    """A surge move in progress: its Deployment, the pod that it replaces, and its last step."""

    namespace: str
    deployment: str
    uid: str
    """UID of the Deployment; a Deployment has at most one move."""
    original: int
    """Replicas before the move."""
    raised: int
    """Replicas that Ebb sets during the move."""
    pod: str
    pod_uid: str
    node: str
    """Node of the pod, which is marked."""
    leader: str
    """The replica of ebb-controller that began the move."""
    begun: int
    """Unix second of the record."""
    deadline: int
    """Unix second by which the new pod must be available."""
    step: MoveStep = MoveStep.RECORDED
    outcome: MoveOutcome = MoveOutcome.NONE
    """How the move ends, once its replicas are to be lowered."""

    @property
    def deployment_key(self) -> str:
        """Return namespace/name of the Deployment."""
        return f"{self.namespace}/{self.deployment}"


class Pause(NamedTuple):
    """The time until which Ebb begins no surge move of a Deployment, and why it is so long."""

    namespace: str
    deployment: str
    uid: str
    until: int
    """Unix second at which it ends."""
    times: int = 0
    """Number of failed moves in a row, which double the time."""
    manager: str = ""
    """Field manager that set the replicas back last; empty if none did."""
    reverted_at: int = 0
    """Unix second at which it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecords:
    """All surge moves in progress and all pauses, by the UID of the Deployment."""

    moves: Mapping[str, MoveRecord] = field(default_factory=dict)
    pauses: Mapping[str, Pause] = field(default_factory=dict)
    begun: Mapping[int, int] = field(default_factory=dict)
    """Number of moves that have begun, by the start of the minute, Unix seconds."""

    def begun_within_hour(self, now: Now) -> int:
        """Return the number of surge moves that have begun within the last hour."""
        return sum(self._counting(now).values())

    def with_begun(self, moves: Sequence[MoveRecord], now: Now) -> "MoveRecords":
        """Return the records with new *moves*, which count as begun now for the limit per hour."""
        begun, minute = self._counting(now), now.seconds // MINUTE_SECONDS * MINUTE_SECONDS
        begun[minute] = begun.get(minute, 0) + len(moves)
        return replace(self, moves={**self.moves, **{one.uid: one for one in moves}}, begun=begun)

    def _counting(self, now: Now) -> dict[int, int]:
        """Return the number of moves begun in each minute of the last hour.

        The key is the Unix second at which the minute starts. Minutes further in the future than
        the clocks of replicas can differ are left out.
        """
        length = HOUR_SECONDS + MINUTE_SECONDS
        return {
            minute: count
            for minute, count in self.begun.items()
            if now.before(minute + length) and now.reached(minute - CLOCKS_APART_SECONDS_MAX)
        }

    def with_move(self, move: MoveRecord) -> "MoveRecords":
        """Return the records with *move* added, or with it in place of its earlier record."""
        return replace(self, moves={**self.moves, move.uid: move})

    def without_move(self, uid: str) -> "MoveRecords":
        """Return the records without the move of the Deployment with this UID."""
        return replace(self, moves={key: one for key, one in self.moves.items() if key != uid})

    def with_pause(self, uid: str, pause: Pause | None) -> "MoveRecords":
        """Return the records with *pause* as the Deployment's only pause; None removes its pause.

        *uid*: UID of the Deployment.
        """
        pauses = {key: one for key, one in self.pauses.items() if key != uid}
        return replace(self, pauses=pauses if pause is None else {**pauses, uid: pause})


class Decoded(NamedTuple):
    """The records read from the ConfigMap `ebb-moves`, and a warning for each unusable entry."""

    records: MoveRecords
    warnings: tuple[str, ...]
    """One for each entry that was dropped."""


def encode(records: MoveRecords) -> dict[str, str]:
    """Return the `data` of the ConfigMap `ebb-moves` that stores these records.

    If there are too many pauses, those that end first are left out.
    """
    moves = sorted(records.moves.items())[:MOVES_MAX]
    data = {f"move.{uid}": _json(asdict(move)) for uid, move in moves}
    if records.begun:
        last_minutes = sorted(records.begun.items())[-MINUTES_MAX:]
        data[BEGUN] = _json({str(minute): count for minute, count in last_minutes})
    size = sum(map(len, data.values()))
    last = sorted(records.pauses.items(), key=lambda one: (-one[1].until, one[0]))
    for uid, pause in last[:PAUSES_MAX]:
        text = _json(pause._asdict())
        size += len(text)
        if size > DATA_CHARACTERS_MAX:
            break
        data[f"pause.{uid}"] = text
    return dict(sorted(data.items()))


def decode(data: Mapping[str, str]) -> Decoded:
    """Read the records from the `data` of the ConfigMap `ebb-moves`.

    Invalid entries, and moves beyond the maximum number, are dropped with a warning. The other
    entries are not affected.
    """
    moves: dict[str, MoveRecord] = {}
    pauses: dict[str, Pause] = {}
    warnings = []
    begun = _begun(data.get(BEGUN, "{}"))
    if begun is None:
        warnings.append(f"entry {BEGUN} is invalid and was dropped")
    for key, text in sorted(data.items()):
        if key == BEGUN:
            continue
        match = _KEY.fullmatch(key)
        entry = _entry(match[1], text) if match else None
        fits = len(moves) < MOVES_MAX if isinstance(entry, MoveRecord) else True
        if match is None or entry is None or entry.uid != match[2] or not fits:
            warnings.append(f"entry {key:.80} is invalid and was dropped")
        elif isinstance(entry, MoveRecord):
            moves[entry.uid] = entry
        elif len(pauses) < PAUSES_MAX:
            pauses[entry.uid] = entry
    records = MoveRecords(moves=moves, pauses=pauses, begun=begun or {})
    return Decoded(records, tuple(warnings[:PAUSES_MAX]))


def _json(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, separators=(",", ":"))


def _entry(kind: str, text: str) -> "MoveRecord | Pause | None":
    read: Callable[[Mapping[str, Any]], MoveRecord | Pause] = _move if kind == "move" else _pause
    if len(text) > ENTRY_CHARACTERS_MAX:
        return None
    try:
        return read(json.loads(text))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _begun(text: str) -> dict[int, int] | None:
    """Return the number of moves begun in each minute, from JSON; None if it is invalid.

    The key is the Unix second at which the minute starts.
    """
    if len(text) > ENTRY_CHARACTERS_MAX:
        return None
    try:
        found = json.loads(text)
        return {
            whole(int(minute)): min(whole(count), HOURLY_MAX) for minute, count in found.items()
        }
    except (ValueError, AttributeError, RecursionError):
        return None


def _move(found: Mapping[str, Any]) -> MoveRecord:
    """Return a move from its entry. Raises: ValueError, TypeError, KeyError if it is invalid."""
    original, raised = whole(found["original"]), whole(found["raised"])
    if raised != original + 1 or raised > REPLICAS_MAX:
        raise ValueError
    return MoveRecord(
        namespace=_name(found["namespace"]),
        deployment=_name(found["deployment"]),
        uid=_name(found["uid"]),
        original=original,
        raised=raised,
        pod=_name(found["pod"]),
        pod_uid=_name(found["pod_uid"]),
        node=_name(found["node"]),
        leader=_name(found["leader"]),
        begun=whole(found["begun"]),
        deadline=whole(found["deadline"]),
        step=MoveStep(found["step"]),
        outcome=MoveOutcome(found["outcome"]),
    )


def _pause(found: Mapping[str, Any]) -> Pause:
    """Return a pause from its entry. Raises: ValueError, TypeError, KeyError if it is invalid."""
    return Pause(
        namespace=_name(found["namespace"]),
        deployment=_name(found["deployment"]),
        uid=_name(found["uid"]),
        until=whole(found["until"]),
        times=whole(found["times"]),
        manager=printable(found["manager"])[:NAME_CHARACTERS_MAX],
        reverted_at=whole(found["reverted_at"]),
    )


def _name(value: object) -> str:
    """Return *value* as a name. Raises: ValueError if it is empty, too long or not printable."""
    name = printable(value)
    if 0 < len(name) <= NAME_CHARACTERS_MAX:
        return name
    raise ValueError
