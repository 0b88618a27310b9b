"""Answer a what-if: make another plan with other settings, or without a node.

Nothing changes in the cluster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from cli.answers import Planned, RowOptions
from cli.formats.text import headline
from cli.plan import Limits, planned
from core.config.budgets import HEADROOM_MAX
from core.model.cluster import Cluster
from core.model.errors import InvalidInputError
from core.model.humanize import first, plural
from core.setting_types.value_types import SHARE_ALLOWED, read_share

NAMES_SHOWN: Final = 10


class Change(NamedTuple):
    """The other settings and the missing node of a what-if; None leaves a setting as it is."""

    cpu: Fraction | None = None
    """Threshold for CPU."""
    memory: Fraction | None = None
    """Threshold for memory."""
    headroom: int | None = None
    without: str = ""
    """Name of a node to leave out; empty for none."""


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    cpu: str | None = None
    memory: str | None = None
    headroom: str | None = None
    without: str = ""


def read(raw: bytes) -> Change:
    """Read the fields of the what-if form, as JSON. Raises: InvalidInputError."""
    try:
        given = msgspec.json.decode(raw, type=_Request)
    except (msgspec.MsgspecError, RecursionError, ValueError) as fault:
        raise InvalidInputError("what-if", f"{fault!s:.200}") from fault
    return Change(
        cpu=_share("CPU threshold", given.cpu),
        memory=_share("memory threshold", given.memory),
        headroom=_headroom(given.headroom),
        without=given.without,
    )


def _share(name: str, text: str | None) -> Fraction | None:
    try:
        return None if text is None else read_share(text)
    except ValueError as fault:
        raise InvalidInputError(name, f"{text!r:.80}; allowed: {SHARE_ALLOWED}") from fault


def _headroom(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or int(text) > HEADROOM_MAX:
        allowed = f"a whole number from 0 to {HEADROOM_MAX}"
        raise InvalidInputError("headroom", f"{text!r:.80}; allowed: {allowed}")
    return int(text)


class Answer(NamedTuple):
    """The effect of a change on the plan."""

    lines: Sequence[str]
    """Sentences for the user."""
    removable: Sequence[str]
    """Nodes that the other plan removes, in its order."""


def answer(now: Planned, change: Change) -> Answer:
    """Return the effect of a change on the plan.

    *now*: the present plan. Raises: InvalidInputError, for example if the node to leave out does
    not exist.
    """
    cluster_input, config = now.cluster_input, now.config
    if change.headroom is not None:
        budgets = replace(config.budgets, headroom=change.headroom)
        config = replace(config, budgets=budgets)
    cluster, displaced = _without(cluster_input.cluster, change.without)
    other = planned(
        replace(cluster_input, cluster=cluster, config=config),
        Limits(cpu=change.cpu, memory=change.memory),
        RowOptions(),
    )
    lines = list(headline.lines(other.headline, other.now_seconds))
    lines = [
        lines[0],
        *_difference(now, other, change.without),
        *_room(other, displaced),
        *lines[1:2],
    ]
    return Answer(lines, [removal.node for removal in other.plan.removals])


def _without(cluster: Cluster, name: str) -> tuple[Cluster, Sequence[str]]:
    """Return the cluster without the node *name*, and the pods that need another node.

    The pods become Pending, and are named as namespace/name. DaemonSet pods and static pods are
    removed. If *name* is empty, the cluster is unchanged and no pod is named. Raises:
    InvalidInputError for an unknown node.
    """
    if not name:
        return cluster, ()
    nodes = tuple(node for node in cluster.nodes if node.name != name)
    if len(nodes) == len(cluster.nodes):
        raise InvalidInputError("without this node", f"the cluster has no node {name!r:.300}")
    pods = tuple(
        replace(pod, node=None, nominated_node="") if pod.node == name else pod
        for pod in cluster.pods
        if pod.node != name or not pod.stays_with_node
    )
    displaced = [pod.key for pod in cluster.pods if pod.node == name and not pod.stays_with_node]
    return replace(cluster, nodes=nodes, pods=pods), displaced


def _difference(now: Planned, other: Planned, without: str) -> Iterator[str]:
    before, after = ([removal.node for removal in answer.plan.removals] for answer in (now, other))
    yield f"Removable now: {len(before):,}; with this change: {len(after):,}."
    for text, names in (
        ("Removable too", [name for name in after if name not in set(before)]),
        ("Not removable any more", [name for name in before if name not in {*after, without}]),
    ):
        if names:
            yield f"{text}: {first(names, NAMES_SHOWN)}."


def _room(other: Planned, displaced: Sequence[str]) -> Iterator[str]:
    if displaced:
        placed = {placement.pod for placement in other.plan.pending}
        missing = [pod for pod in displaced if pod not in placed]
        with_room = len(displaced) - len(missing)
        pods = plural(len(displaced), "pod")
        yield f"Other nodes have room for {with_room:,} of {pods} of the node."
        if missing:
            yield f"No other node has room for: {first(missing, NAMES_SHOWN)}."
