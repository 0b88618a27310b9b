"""Every code by which a node stays or a mark stays soft: what it means and what helps.

Each stands beside the rule that gives it. Here they are gathered, in the order in which they are
told; docs/reasons.md is written from that.
"""

import shlex
from collections.abc import Mapping
from typing import Final

from core.drain import reasons as drain
from core.engine import buffers, limits, no_schedule, planner, reserve, snapshot
from core.guards import drainability, node_eligibility, unplaceable
from core.model.reason import Blocker, Reason
from core.policies import cluster_threshold
from core.policies.all import POLICIES

STAYS: Final = (
    *node_eligibility.REASONS,
    *unplaceable.REASONS,
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
"""Why a node stays."""
HELD: Final = (reserve.RESERVE,)
"""Why a node that is empty is not handed over."""
SOFT: Final = no_schedule.REASONS
"""Why the mark of a node that goes does not become hard."""
NATURE: Final = drainability.REASONS
"""What is known of a pod's leaving."""
EVICTION: Final = drain.REASONS
"""Why a pod is not evicted, where that is asked for."""
REASONS: Final[Mapping[str, Reason]] = {
    reason.code: reason for reason in (*STAYS, *HELD, *SOFT, *NATURE, *EVICTION)
}
"""All, by code."""


_PAGE_HEAD: Final = """\
# Reasons

Every node that stays has all its reasons at all times, each with one of these codes. They are the same in `ebb plan`, `ebb explain`, `ebb status`, in
the label `reason` of the metric `ebb_engine_kept_nodes`, and in Events. Codes are added, never renamed.

`ebb reasons -o markdown` writes this page from the rules' own reasons (`cli/explain/reasons.py`); `make fix` writes it anew.

## Why a node stays
"""  # noqa: E501 lines of a page, as long as those of the others


def advice(blocker: Blocker, node: str) -> Reason:
    """Return the reason of a blocker of *node*, or of a pod of it, with its names filled in."""
    namespace, name = "NAMESPACE", "NAME"
    if blocker.pod is not None:
        namespace, _, name = blocker.pod.partition("/")
    reason, key, owner = blocker.reason, blocker.about or "KEY", blocker.about or "OWNER"
    words = {"node": node, "namespace": namespace, "name": name, "key": key, "owner": owner}
    # As a shell takes them for one word: nothing checks those of owners.
    words = {field: word and shlex.quote(word) for field, word in words.items()}
    return reason._replace(
        fix=reason.fix.format_map(words), lifted=reason.lifted.format_map(words)
    )


def in_general(reason: Reason) -> Reason:
    """Return what to say about no node in particular: NODE, KEY and such words stand there."""
    return advice(Blocker(reason, ""), "NODE")


def page() -> str:
    """Write docs/reasons.md."""
    held = "## Why an empty node is not handed over\n\nIt keeps its guard.\n"
    soft = "## Why a mark stays soft\n\nOnly where `hardAfter` or `eviction` is configured.\n"
    nature = "## Why a node empties late\n\nWhat is known of a pod's leaving. It blocks nothing.\n"
    eviction = (
        "## Why a pod is not evicted\n\nOnly where `eviction` is configured; beside these, what "
        "is known of a pod's leaving.\n"
    )
    parts = [
        *map(_part, STAYS),
        held,
        *map(_part, HELD),
        soft,
        *map(_part, SOFT),
        nature,
        *map(_part, NATURE),
    ]
    parts += [eviction, *map(_part, EVICTION)]
    return "\n".join([_PAGE_HEAD, *parts])


def _part(reason: Reason) -> str:
    told = in_general(reason)
    return (
        f"### `{reason.code}`\n\n{told.meaning}\n\n"
        f"- Cheapest fix: {told.fix}.\n- It ends when {told.lifted}.\n"
    )
