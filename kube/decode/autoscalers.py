"""Decode NodePools, NodeClaims and the status of Cluster Autoscaler into core.model.node_groups.

Errors name the field. Cluster Autoscaler writes its status every few seconds, as YAML in a
ConfigMap. The lines that change each time are removed before the YAML is parsed, and equal texts
are parsed once.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from sys import intern
from typing import Annotated, Any, Final

import msgspec

from core.model.errors import ConfigError, InvalidInputError
from core.model.node_groups import AutoscalerStatus, NodeClaim, NodeGroup, NodePool
from kube.decode.field_decoding import NULL, ApiName, BoundedField, checked_name, unix_seconds
from kube.decode.objects import Meta, Name, Struct

LIST_BYTES_MAX: Final = 64 * 1024
"""Maximum size of a list of conditions or budgets, in JSON; longer ones are not decoded."""
STATUS_BYTES_MAX: Final = 128 * 1024
"""Maximum size of a status, after the removal of lines that Ebb does not need.

Some 600 node groups fit in it."""
GROUPS_MAX: Final = 300
"""Maximum number of node groups of a status."""
GROUP_CHARS_MAX: Final = 512
"""Maximum length of the id of a node group; that of GKE is a URL."""
NAMES_CHARS_MAX: Final = 18 * 1024
"""Maximum length of the names of all node groups of a status together."""
PARSED_MAX: Final = 4
"""Maximum number of parsed statuses that are kept; there is only one in use."""
SIZE_MAX: Final = 2**31 - 1
"""Maximum of a 32-bit number, as in the API."""
SHOWN_MAX: Final = 80
"""Maximum length of a text of the status in a message."""
FIELD: Final = "data.status"
INSTANCE_TERMINATING: Final = "InstanceTerminating"
"""Condition of a NodeClaim whose machine Karpenter has asked the cloud to terminate."""

_UNUSED: Final = re.compile(
    r"^ +(?:lastProbeTime|lastTransitionTime|status|ready|notStarted|beingDeleted"
    r"|resourceUnready|longUnregistered|unregistered|candidates|cloudProviderTarget|maxSize"
    r"|errorCode|errorMessage):[^\n]*\n|^(?:time|message):[^\n]*\n",
    re.MULTILINE,
)
"""Lines with a field that Ebb does not need; the rest is still YAML of the same structure."""
_YAML: Final = re.compile(r"^(?:autoscalerStatus|nodeGroups|clusterWide):", re.MULTILINE)
_OLDER: Final = "Cluster-autoscaler status at "
"""Beginning of the text that Cluster Autoscaler wrote before 1.30."""
_ZONE: Final = re.compile(r"/zones/([a-z0-9-]{1,63})/")


class NodePoolBudget(Struct):
    """A budget of a NodePool: how many nodes Karpenter may disrupt at the same time."""

    nodes: ApiName = ""
    reasons: list[str] | None = None
    schedule: str | None = None


BUDGETS: Final = BoundedField[list[NodePoolBudget]](list[NodePoolBudget], bytes_max=LIST_BYTES_MAX)


class Disruption(Struct):
    consolidate_after: str | None = None
    consolidation_policy: str | None = None
    budgets: Annotated[msgspec.Raw, BUDGETS] = NULL


class NodePoolSpec(Struct):
    replicas: int | None = None
    disruption: Disruption | None = None


class NodePoolObject(Struct):
    metadata: Name
    spec: NodePoolSpec | None = None


class DatedCondition(Struct):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


CONDITIONS: Final = BoundedField[list[DatedCondition]](
    list[DatedCondition], bytes_max=LIST_BYTES_MAX
)


class NodeClaimStatus(Struct):
    node_name: ApiName | None = None
    conditions: Annotated[msgspec.Raw, CONDITIONS] = NULL


class NodeClaimObject(Struct):
    metadata: Meta
    status: NodeClaimStatus | None = None


class StatusData(Struct):
    status: str | None = None


class StatusObject(Struct):
    metadata: Name
    data: StatusData | None = None


Parsed = tuple[tuple[NodeGroup, ...], str]
"""Node groups, or why they are unknown."""
_PARSED: Final[dict[bytes, Parsed]] = {}


def node_pool(obj: NodePoolObject) -> NodePool:
    """Convert a NodePool of Karpenter. Raises: InvalidInputError with the invalid field."""
    spec = obj.spec or NodePoolSpec()
    return NodePool(name=checked_name(obj.metadata.name, "metadata.name"), fixed=_why_fixed(spec))


def _why_fixed(spec: NodePoolSpec) -> str:
    """Return why Karpenter removes no empty nodes of the NodePool; empty if it removes them."""
    if spec.replicas is not None:
        nodes = min(max(spec.replicas, 0), SIZE_MAX)
        return f"keeps a fixed number of nodes (spec.replicas: {nodes})"
    disruption = spec.disruption or Disruption()
    if disruption.consolidate_after == "Never":
        return "removes no empty nodes (spec.disruption.consolidateAfter: Never)"
    budgets = BUDGETS.decode(disruption.budgets, "spec.disruption.budgets")
    # The reasons for which the budgets never allow a disruption.
    blocked = set(_blocked_reasons(budgets or ()))
    # Karpenter removes an empty node for the reason Empty, or together with other nodes for the
    # reason Underutilized. With the policy WhenEmpty it has only the reason Empty.
    reasons = (
        {"Empty"} if disruption.consolidation_policy == "WhenEmpty" else {"Empty", "Underutilized"}
    )
    if reasons <= blocked:
        return 'removes no empty nodes (spec.disruption.budgets: nodes "0" at all times)'
    return ""


def _blocked_reasons(budgets: Iterable[NodePoolBudget]) -> Iterator[str]:
    for budget in budgets:
        if budget.nodes in ("0", "0%", "00%") and not budget.schedule:
            yield from budget.reasons or ("Empty", "Underutilized")


def node_claim(obj: NodeClaimObject) -> NodeClaim:
    """Convert a NodeClaim of Karpenter: its node, the time of its drift, and whether it goes.

    Raises: InvalidInputError with the invalid field.
    """
    status = obj.status or NodeClaimStatus()
    conditions = CONDITIONS.decode(status.conditions, "status.conditions") or ()
    drifted = next((condition for condition in conditions if condition.type == "Drifted"), None)
    since = None
    if drifted is not None and drifted.status == "True":
        # The API requires the time. If it is missing, the drift counts as old, so that Ebb does
        # not delay the replacement of the node.
        since = unix_seconds(drifted.last_transition_time) or 0
    return NodeClaim(
        name=checked_name(obj.metadata.name, "metadata.name"),
        node=checked_name(status.node_name, "status.nodeName") if status.node_name else "",
        drifted_seconds=since,
        leaving=_why_claim_leaves(obj.metadata, conditions),
    )


def _why_claim_leaves(meta: Meta, conditions: Iterable[DatedCondition]) -> str:
    # Karpenter's StateNode counts a node as deleting in the same cases.
    if meta.deletion_timestamp is not None:
        return "is being deleted (it has a deletionTimestamp)"
    true = {condition.type for condition in conditions if condition.status == "True"}
    return f"has the condition {INSTANCE_TERMINATING}" if INSTANCE_TERMINATING in true else ""


def autoscaler_status(obj: StatusObject) -> AutoscalerStatus:
    """Convert the status ConfigMap of Cluster Autoscaler: its node groups, or why none are known.

    Raises: InvalidInputError if its name or namespace is invalid. An invalid status is no error.
    """
    meta, text = obj.metadata, (obj.data and obj.data.status) or ""
    groups, fault = _groups_in(text)
    return AutoscalerStatus(
        namespace=checked_name(meta.namespace or "default", "metadata.namespace"),
        name=checked_name(meta.name, "metadata.name"),
        groups=groups,
        fault=fault,
    )


def _groups_in(text: str) -> Parsed:
    if text.startswith(_OLDER):
        return (), f"{FIELD} has the format of Cluster Autoscaler before 1.30"
    if not _YAML.search(text):
        return (), f"{FIELD} is missing, or is no status of Cluster Autoscaler"
    used = _UNUSED.sub("", text)
    if len(used) > STATUS_BYTES_MAX:
        return (), f"{FIELD} is too large: {len(used)} characters; allowed: {STATUS_BYTES_MAX}"
    return _parsed(used)


def _parsed(text: str) -> Parsed:
    raw = text.encode("utf-8", "replace")
    digest = sha256(raw).digest()  # the text itself would take more memory than its groups
    if digest not in _PARSED:
        if len(_PARSED) >= PARSED_MAX:
            _PARSED.clear()
        _PARSED[digest] = _parse(raw)
    return _PARSED[digest]


def _parse(raw: bytes) -> Parsed:
    # Slow to import, and many clusters have no Cluster Autoscaler.
    from runtime.yaml_text import parse_yaml  # noqa: PLC0415

    try:
        (document,) = parse_yaml(raw, FIELD, single=True)
        entries = document.get("nodeGroups") if isinstance(document, dict) else None
        return _groups(entries or []), ""
    except ConfigError as fault:
        return (), " ".join(str(fault).split())[: 2 * SHOWN_MAX]
    except InvalidInputError as fault:
        return (), f"{FIELD}: {fault}"


def _groups(entries: object) -> tuple[NodeGroup, ...]:
    if not isinstance(entries, list) or len(entries) > GROUPS_MAX:
        raise InvalidInputError("nodeGroups", f"is not a list of at most {GROUPS_MAX} entries")
    groups = tuple(map(_group, sorted(entries, key=repr)))
    if sum(len(group.name) for group in groups) > NAMES_CHARS_MAX:
        raise InvalidInputError(
            "nodeGroups", f"has names with more than {NAMES_CHARS_MAX} characters in total"
        )
    return groups


def _shown(value: object) -> str:
    return "a missing value" if value is None else f"{value!r:.{SHOWN_MAX}}"


def _group(entry: Any) -> NodeGroup:  # noqa: ANN401 YAML holds anything
    name = entry.get("name") if isinstance(entry, dict) else None
    is_name = isinstance(name, str) and name.isascii() and name.isprintable()
    if not isinstance(name, str) or not is_name or not 0 < len(name) <= GROUP_CHARS_MAX:
        raise InvalidInputError("nodeGroups.name", f"{_shown(name)} is not a name")
    health = entry.get("health")
    least = health.get("minSize") if isinstance(health, dict) else None
    if not isinstance(least, int) or isinstance(least, bool) or not 0 <= least <= SIZE_MAX:
        raise InvalidInputError(
            "nodeGroups.health.minSize", f"{_shown(least)} is not a number of nodes"
        )
    zone = _ZONE.search(name)
    counts = health.get("nodeCounts") if isinstance(health, dict) else None
    registered = counts.get("registered") if isinstance(counts, dict) else None
    nodes = registered.get("total") if isinstance(registered, dict) else None
    # The number only confirms what is known otherwise.
    known = isinstance(nodes, int) and not isinstance(nodes, bool) and 0 <= nodes <= SIZE_MAX
    return NodeGroup(
        name.rpartition("/")[2],
        least,
        intern(zone[1]) if zone else "",
        nodes if known else None,
    )
