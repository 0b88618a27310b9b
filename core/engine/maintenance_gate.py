"""Decide whether anything may begin now: a mark, a surge move, an eviction, a NoSchedule mark.

This is the only module that evaluates `schedule` and `pauseUntil`, and whether the API server
refuses Ebb's writes. The planner, surge moves, evictions and the writes to Nodes call it. To begin
something they need the value MayBegin, so code that does not call it does not type-check. Whatever
has begun may finish, and marks may be removed, at any time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from core.config.schedule import Window
from core.config.settings import Config
from core.model.humanize import timestamp
from core.model.now import Now
from core.model.reason import Blocker, Reason

MERGED_MAX: Final = 16
"""Maximum number of windows that follow one another without a gap and count as one."""

PAUSED: Final = Reason(
    "paused",
    "Ebb is paused by `pauseUntil`. It begins no mark, no surge move and no eviction.",
    "wait; or remove `pauseUntil` from the configuration",
    "the time in `pauseUntil` has come",
)
CLOSED: Final = Reason(
    "schedule",
    "No window of `schedule` is open. Ebb begins no mark, no surge move and no eviction.",
    "wait; or add a window to `schedule`",
    "the next window opens",
)
WRITES_REFUSED: Final = Reason(
    "writes-refused",
    "A ValidatingAdmissionPolicy for Ebb's own accounts refuses Ebb's writes, because another "
    "webhook or policy changes the same objects. Ebb begins nothing that it might not be able to "
    "end.",
    "run `ebb doctor`, whose check `mutating-admission` names the webhook or policy; "
    "docs/alerts.md#ebbwritesrefused says what to do",
    "no write has been refused for a minute; then Ebb tries again",
)
REASONS: Final = (PAUSED, CLOSED, WRITES_REFUSED)


class RefusedWrite(NamedTuple):
    """The last write that a policy for Ebb's own accounts refused."""

    policy: str
    """Name of the ValidatingAdmissionPolicy."""
    change: str
    """The change that the policy does not allow, in its own words."""
    until: int
    """Unix second before which nothing may begin."""


@dataclass(frozen=True, slots=True)
class MayBegin:
    """The permission to begin a mark, a surge move, an eviction or a NoSchedule mark now.

    Code gets it from `may_begin`, which returns a Refusal instead if nothing may begin.
    """

    until: int | None = field(default=None, compare=False)
    """Unix second at which the permission ends; None if it never ends."""

    @property
    def blockers(self) -> Sequence[Blocker]:
        """Return an empty sequence, because nothing is forbidden; a Refusal returns reasons."""
        return ()

    def is_valid(self, now: Now) -> bool:
        """Report whether the permission has not ended yet at *now*."""
        return self.until is None or now.before(self.until)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reasons, at least one, why no mark, surge move or eviction may begin now."""

    blockers: Sequence[Blocker]

    @property
    def until(self) -> int | None:
        """Return the unix second before which nothing may begin; None if no end is known."""
        return max((why.until for why in self.blockers if why.until is not None), default=None)


Beginning = MayBegin | Refusal
ALWAYS: Final = MayBegin()
"""The permission without `schedule` and `pauseUntil`."""


def may_begin(config: Config, now: Now, refused: RefusedWrite | None = None) -> Beginning:
    """Return MayBegin if Ebb may begin a mark, a surge move or an eviction now, else a Refusal.

    The settings `schedule` and `pauseUntil` and the last refused write decide. A Refusal contains
    the reasons. *refused*: None if no write was refused, or if that is unknown.
    """
    blockers = (
        *_paused(config, now),
        *_closed(config.schedule, now),
        *_refused(refused, now),
    )
    if blockers:
        return Refusal(blockers)
    until = _open_until(config.schedule, now.seconds)
    if until is not None:
        now.before(until)  # the answer may change then
    return MayBegin(until)


def _paused(config: Config, now: Now) -> Iterator[Blocker]:
    until = config.pause_until_seconds
    if until is not None and now.before(until):
        yield Blocker(PAUSED, f"`pauseUntil` is {timestamp(until)}", until=until)


def _closed(windows: Sequence[Window], now: Now) -> Iterator[Blocker]:
    at = now.seconds
    if not windows or _open_until(windows, at) is not None:
        return
    starts = [start for window in windows if (start := window.next_start(at)) is not None]
    if not starts:
        yield Blocker(CLOSED, "no window of `schedule` opens again")
    elif now.before(until := min(starts)):
        message = f"the next window of `schedule` opens at {timestamp(until)}"
        yield Blocker(CLOSED, message, until=until)


def _refused(refused: RefusedWrite | None, now: Now) -> Iterator[Blocker]:
    if refused is not None and now.before(refused.until):
        message = (
            f"ValidatingAdmissionPolicy {refused.policy} refuses Ebb's writes ({refused.change})"
        )
        why = f"{message}; Ebb tries again at {timestamp(refused.until)}"
        yield Blocker(WRITES_REFUSED, why, until=refused.until)


def _open_until(windows: Sequence[Window], at: int) -> int | None:
    """Return the unix second at which the windows that are open at *at* end; None if none is open.

    Windows that follow one another without a gap count as one, up to MERGED_MAX of them. So
    another window may follow.
    """
    until: int | None = None
    for _ in range(MERGED_MAX):
        ends = [end for window in windows if (end := window.open_until(until or at)) is not None]
        if not ends:
            break
        until = max(ends)
    return until
