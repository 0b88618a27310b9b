"""All reason codes, with their meaning and fix, and the page docs/reasons.md.

Each reason is defined beside its rule. This module lists them in the order of the page.
"""

import shlex
from collections.abc import Mapping
from typing import Final

from core.eligibility import drainability, node_eligibility, unplaceable
from core.engine import buffers, limits, no_schedule, planner, reserve, snapshot
from core.eviction import reasons as eviction_reasons
from core.model.reason import Blocker, Reason
from core.moves import reasons as move_reasons
from core.policies import cluster_threshold
from core.policies.all import POLICIES

NOT_REMOVABLE: Final = (
    *node_eligibility.REASONS,
    *unplaceable.REASONS,
    drainability.KEPT,
    planner.DELAY,
    planner.NO_ROOM,
    cluster_threshold.THRESHOLD,
    cluster_threshold.USABLE_THRESHOLD,
    cluster_threshold.REACH_THRESHOLD,
    snapshot.UNREACHED,
    cluster_threshold.LAST_NODE,
    cluster_threshold.PEAK_DEMAND,
    planner.PLACE_TAKEN,
    planner.HEADROOM,
    buffers.BUFFERED,
    *(reason for policy in POLICIES.values() for reason in policy.reasons),
    *limits.REASONS,
    planner.TIME_BOX,
    planner.LIMIT,
)
"""Reasons why a node is not removable."""
SCALE_DOWN_NOT_ALLOWED: Final = (reserve.RESERVE,)
"""Reasons why Ebb does not allow scale-down of an empty node."""
NOT_SET_TO_NO_SCHEDULE: Final = no_schedule.REASONS
"""Reasons why a mark stays PreferNoSchedule."""
LIFETIME: Final = tuple(
    reason for reason in drainability.REASONS if reason is not drainability.KEPT
)
"""Remarks on the lifetime of a pod."""
EVICTION: Final = eviction_reasons.REASONS
"""Reasons why a pod is not evicted, if eviction is enabled."""
MOVES: Final = move_reasons.REASONS
"""Reasons why a pod is not moved by a surge move, if these are enabled."""
REASONS: Final[Mapping[str, Reason]] = {
    reason.code: reason
    for reason in (
        *NOT_REMOVABLE,
        *SCALE_DOWN_NOT_ALLOWED,
        *NOT_SET_TO_NO_SCHEDULE,
        *LIFETIME,
        *EVICTION,
        *MOVES,
    )
}
"""All reasons by code."""


_PAGE_HEAD: Final = """\
# Reasons

Ebb reports all reasons why a node is not removable, each with one of these codes. `ebb plan`, `ebb explain`, `ebb status`, Events, and the label `reason`
of the metric `ebb_unremovable_nodes` use the same codes. Codes are added, never renamed.

This page is generated: `ebb reasons -o markdown` prints it, and `make fix` updates it.

## Why a node is not removable
"""  # noqa: E501 lines of a page


def advice(blocker: Blocker, node: str) -> Reason:
    """Return the reason of a blocker, with the names of *node*, pod, key and owner filled in.

    These names stand in the commands of its fix and in the text about its end.
    """
    namespace, name = "NAMESPACE", "NAME"
    if blocker.pod is not None:
        namespace, _, name = blocker.pod.partition("/")
    reason, key, owner = blocker.reason, blocker.about or "KEY", blocker.about or "OWNER"
    words = {"node": node, "namespace": namespace, "name": name, "key": key, "owner": owner}
    # Quoted for a shell: the API server accepts any text as the name of an owner.
    words = {field: word and shlex.quote(word) for field, word in words.items()}
    return reason._replace(
        fix=reason.fix.format_map(words), ends_when=reason.ends_when.format_map(words)
    )


def with_placeholders(reason: Reason) -> Reason:
    """Return a reason with placeholders such as NODE, KEY and OWNER in its commands."""
    return advice(Blocker(reason, ""), "NODE")


def page() -> str:
    """Return the Markdown text of the page docs/reasons.md."""
    scale_down_not_allowed = (
        "## Why scale-down of an empty node is not allowed\n\n"
        "The node keeps its scale-down protection.\n"
    )
    not_set_to_no_schedule = (
        "## Why a mark stays PreferNoSchedule\n\n"
        "These reasons occur only if `noScheduleAfter` or `eviction` is configured.\n"
    )
    lifetime = (
        "## Why a node may empty late\n\nRemarks on the lifetime of pods. They block nothing.\n"
    )
    eviction = (
        "## Why a pod is not evicted\n\nThese reasons occur only if `eviction` is configured. "
        "Remarks on the lifetime of a pod can prevent its eviction too.\n"
    )
    parts = [
        *map(_part, NOT_REMOVABLE),
        scale_down_not_allowed,
        *map(_part, SCALE_DOWN_NOT_ALLOWED),
        not_set_to_no_schedule,
        *map(_part, NOT_SET_TO_NO_SCHEDULE),
        lifetime,
        *map(_part, LIFETIME),
    ]
    moves = (
        "## Why a pod is not moved by a surge move\n\nThese reasons occur only if `surge.mode` is "
        "`enabled`. Remarks on the lifetime of a pod can prevent its move too.\n"
    )
    parts += [eviction, *map(_part, EVICTION), moves, *map(_part, MOVES)]
    return "\n".join([_PAGE_HEAD, *parts])


def _part(reason: Reason) -> str:
    filled = with_placeholders(reason)
    return (
        f"### `{reason.code}`\n\n{filled.meaning}\n\n"
        f"- Cheapest fix: {filled.fix}.\n- Ends when {filled.ends_when}.\n"
    )
