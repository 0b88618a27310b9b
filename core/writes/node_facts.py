"""Collect the facts about one Node that decide what is written on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from core.config.settings import Config, Mode
from core.marks.mark import (
    Details,
    Mark,
    ProtectionRecord,
    decode_details,
    mark_of,
    protection_key,
    protection_of,
    seconds_of,
)
from core.marks.wellknown import RESERVE_ANNOTATION
from core.model.node import Node
from core.model.reason import Blocker

WATCH_SECONDS: Final = 300
"""Maximum time for which a new leader observes before it ends something whose end another leader
may have set."""


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """One Node, and what the plan and the leader know about it in one reconciliation."""

    node: Node
    config: Config
    now: int
    """Unix time, in seconds."""
    observed_seconds: int
    """Time for which the leader has observed the cluster."""
    may_begin: bool
    """Whether `schedule` and `pauseUntil` allow to begin anything now."""
    owner: str
    """Name of the leader, which the details of a mark contain."""
    policy: str
    """Name of the policy, which the details of a mark contain too."""
    order: int | None = None
    """Position of the node among the removals of the plan; None if the cluster needs the node."""
    kept: Sequence[Blocker] = ()
    """Why the plan does not remove the node."""
    reserve: Sequence[Blocker] = ()
    """Why the plan keeps the node for expected pods; empty if it does not."""
    protection_planned: bool = False
    """Whether the plan protects the node although it is not marked."""
    occupied: bool = False
    """Whether the node has pods that keep it from being empty."""
    drifted: bool = False
    """Whether Karpenter has reported the node as drifted for so long that it may replace it."""
    eviction_failure: Sequence[Blocker] = ()
    """Why evictions from the node failed; empty if none did."""
    evicting: bool = False
    """Whether Ebb evicts the pods of the node; its mark must be NoSchedule whatever its age."""
    no_schedule_blockers: Sequence[Blocker] = ()
    """Reasons against a NoSchedule mark."""
    protected_at: int | None = None
    """Unix second of the last reconciliation in which the plan protected the unmarked node."""
    reserved_at: int | None = None
    """Unix second of the last reconciliation in which the node was reserved."""

    @property
    def mark(self) -> Mark | None:
        """Return the mark of the Node; None if it is not marked."""
        return mark_of(self.node.labels)

    @cached_property
    def details(self) -> Details | None:
        """Return the details of the mark; None if they are missing or unreadable."""
        return decode_details(self.node.annotations)

    @cached_property
    def protection(self) -> ProtectionRecord | None:
        """Return the scale-down protection that Ebb has set; None if there is none."""
        return protection_of(self.node)

    @cached_property
    def protection_key(self) -> str | None:
        """Return the key of the annotation with which Ebb protects the node from scale-down.

        None if someone else has set the annotation with this key, and Ebb has set no other.
        """
        key, protection = protection_key(self.node), self.protection
        if key not in self.node.annotations or (protection and protection.key == key):
            return key
        return protection.key if protection else None

    @property
    def observe(self) -> bool:
        """Return whether the configured mode is observe."""
        return self.config.mode is Mode.OBSERVE

    @property
    def reserved(self) -> bool:
        """Return whether the node is empty, and the plan keeps it for expected pods."""
        return bool(self.reserve) and not self.occupied

    @property
    def free(self) -> bool:
        """Return whether the node is empty and not reserved."""
        return not self.occupied and not self.reserve

    @property
    def overdue(self) -> bool:
        """Return whether the deadline of the mark has passed."""
        passed = self.details is not None and self.now >= self.details.deadline
        return passed and self.observed_for(self.config.deadline_seconds)

    @property
    def after_unmark_seconds(self) -> int:
        """Return how long the protection lasts after its reason has ended."""
        return self.config.scale_down_protection.after_unmark_seconds

    @property
    def no_schedule_after_seconds(self) -> int | None:
        """Return the age from which the mark should be NoSchedule; None means never."""
        return 0 if self.evicting else self.config.no_schedule_after_seconds

    @property
    def protection_needed(self) -> bool:
        """Return whether Ebb must protect the unmarked node, and can."""
        can = self.protection_key is not None and not self.drifted
        return self.protection_planned and can and not self.observe

    @property
    def protected_until(self) -> str:
        """Return the end of the protection as Ebb has written it; empty if there is none."""
        return self.protection.until if self.protection else ""

    @property
    def protection_ends_in(self) -> int | None:
        """Return in how many seconds the protection of the unmarked node ends.

        None if it has no readable end.
        """
        end = seconds_of(self.protected_until)
        return None if end is None or self.mark is not None else end - self.now

    @property
    def reserve_outdated(self) -> bool:
        """Return whether the reserve annotation is missing, or must be removed."""
        return self.reserve_wanted is not (RESERVE_ANNOTATION in self.node.annotations)

    @property
    def reserve_wanted(self) -> bool:
        """Return whether the Node should have the reserve annotation."""
        # The number of pods changes in almost every reconciliation, so a change of it is not
        # written.
        protected = self.order is not None or self.protection_planned
        return self.reserved and protected and not self.observe

    def observed_for(self, seconds: int) -> bool:
        """Return whether the leader has observed for *seconds*; WATCH_SECONDS are always enough.

        Only then does it end, for example, a deadline of this length that another leader may have
        set.
        """
        # The clock of another leader may have set the end. A wrong clock must not end it early.
        return self.observed_seconds >= min(seconds, WATCH_SECONDS)
