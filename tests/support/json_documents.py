"""The documents that `-o json` prints, as types; `python -m tests.support.json_documents` writes
docs/schema/.

tests/cli/test_json_schema.py validates what the commands print.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

import msgspec
import orjson
from msgspec import Meta

from controller.day_report import DayReport
from controller.leader_report import (
    Decision,
    Delay,
    LimitUse,
    PeakDemand,
    RefusedWrites,
    Report,
)
from core.config.settings import API_VERSION

FOLDER: Final = Path(__file__).parents[2] / "docs" / "schema"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

Millicores = Annotated[int, Meta(description="millicores")]
Bytes = Annotated[int, Meta(description="bytes")]
Time = Annotated[int, Meta(description="Unix seconds")]
Seconds = Annotated[int, Meta(description="seconds")]
Cost = Annotated[float, Meta(description="currency of `prices`")]
Price = Annotated[float, Meta(description="currency of `prices` for an hour")]
Share = Annotated[float, Meta(description="a share; 1 is all")]
Code = Annotated[str, Meta(description="reason code; see docs/reasons.md")]
PodKey = Annotated[str, Meta(description="namespace/name")]
BEING_DELETED: Final = Meta(
    description="the Node object is being deleted, or a taint says that an autoscaler is about to "
    "delete the node"
)
ApiVersion = Annotated[str, Meta(description=API_VERSION)]


class Units(TypedDict):
    """Unit of each quantity in the document."""

    cpu: str
    memory: str
    price: str
    cost: str
    time: str


class Target(TypedDict):
    """API server of a live cluster."""

    server: str
    context: str
    cluster: str


class Origin(TypedDict):
    apiVersion: ApiVersion
    units: Units
    time: Annotated[int, Meta(description="Unix seconds; time of the cluster that was read")]
    source: str
    cluster: Annotated[Target | None, Meta(description="null for a dump")]
    configuration: Annotated[str | None, Meta(description="source; null for built-in defaults")]
    notRead: Annotated[list[str], Meta(description="what could not be read, and why")]


class Amount(TypedDict):
    """CPU and memory."""

    cpu: Millicores
    memory: Bytes


class Shares(TypedDict):
    """Shares of CPU and memory."""

    cpu: Share
    memory: Share


class Totals(TypedDict):
    """Sums over nodes that pods can use."""

    nodes: int
    capacity: Amount
    requests: Amount
    usable: Amount
    utilization: Shares
    usableUtilization: Shares


class Capacity(Amount):
    devices: Annotated[dict[str, int], Meta(description="units by extended resource")]


class Saved(TypedDict):
    """What the removable nodes cost."""

    perHour: Price
    perMonth: Annotated[float, Meta(description="currency of `prices`, for 730 hours")]
    unpriced: Annotated[list[str], Meta(description="nodes without a price; each counts as 0")]


class Wait(TypedDict):
    """A reason why removable nodes are not marked now."""

    code: Code
    nodes: int
    until: Annotated[int | None, Meta(description="Unix seconds; null if unknown")]


class Late(TypedDict):
    """A reason why pods of removable nodes rarely terminate."""

    code: Code
    pods: int
    example: PodKey


class Headline(TypedDict):
    """What Ebb will do; each number counts nodes."""

    mode: Annotated[
        Literal["observe", "enforce"] | None,
        Meta(description="null if the configuration could not be read"),
    ]
    nodes: int
    removable: int
    capacity: Annotated[Capacity, Meta(description="of the removable nodes")]
    savings: Annotated[Saved | None, Meta(description="null if `prices` is not set")]
    marked: Annotated[int, Meta(description="removable nodes that are marked already")]
    toMarkNow: Annotated[list[str], Meta(description="in mode observe only reported")]
    waiting: Annotated[int, Meta(description="removable nodes that are not marked now")]
    waits: Annotated[list[Wait], Meta(description="a node with several reasons counts in each")]
    leaderAsked: Annotated[bool, Meta(description="whether delays and peaks are known")]
    empty: Annotated[int, Meta(description="removable nodes that are empty already")]
    emptiedByThemselves: Annotated[int, Meta(description="by completion and turnover of pods")]
    emptiedByMoves: Annotated[int, Meta(description="with the help of surge moves")]
    emptiedLate: Annotated[int, Meta(description="with pods that rarely terminate")]
    lateBecause: list[Late]


class DeviceUnits(TypedDict):
    """Units of an extended resource."""

    requested: int
    capacity: int


class Device(TypedDict):
    """A device on the nodes that pods can use, before and after the plan."""

    name: str
    before: DeviceUnits
    after: DeviceUnits


class Offered(TypedDict):
    """Units of an extended resource in a reach."""

    requested: int
    offered: int


class ReachDevice(TypedDict):
    """A device that pods of a reach request, before and after the plan."""

    name: str
    threshold: Share
    unmarkThreshold: Share
    before: Offered
    after: Offered


class Usability(TypedDict):
    """Which free capacity is usable."""

    minCPU: Millicores
    minMemory: Bytes
    maxCPUPerGB: float
    maxGBPerCPU: float


class DerivedUsability(Usability):
    derived: Annotated[bool, Meta(description="derived from the pods, not configured")]


class ReachSums(TypedDict):
    """A set of nodes that the same pods can use, before and after the plan."""

    name: str
    key: str
    thresholds: Shares
    unmarkThresholds: Shares
    usableCapacity: Usability | None
    before: Totals
    after: Totals
    devices: list[ReachDevice]


class Placement(TypedDict):
    """A pod and the node on which it would fit."""

    pod: PodKey
    node: str


class NodeReason(TypedDict):
    """A reason why a node is not removable, or why a pod rarely terminates."""

    code: Code
    message: str
    pod: PodKey | None


class EmptiedBy(TypedDict):
    """Pods that keep a node from being empty, by how they end."""

    moves: Annotated[int | None, Meta(description="null if surge moves are unknown or disabled")]
    completion: int
    turnover: int
    staying: list[NodeReason]


class Removal(TypedDict):
    """A removable node."""

    node: str
    order: int
    pods: Annotated[int, Meta(description="without DaemonSet and static pods")]
    requested: Annotated[float, Meta(description="larger share of CPU and memory; 1 is all")]
    price: Price | None
    ageSeconds: Seconds | None
    pool: str | None
    zone: str | None
    instanceType: str | None
    placements: list[Placement]
    emptiedBy: EmptiedBy


class Unremovable(TypedDict):
    """A node that is not removable, with all reasons."""

    node: str
    reasons: list[NodeReason]


class Buffer(TypedDict):
    """A CapacityBuffer of another tool; numbers are pods."""

    buffer: str
    requested: int
    allowed: int
    reserved: int
    fault: str


class WarnedNode(TypedDict):
    node: str
    pods: int


class Warned(TypedDict):
    """A warning about the cluster that was read."""

    code: str
    message: str
    count: int
    nodes: Annotated[list[WarnedNode], Meta(description="at most 20")]


class Prices(TypedDict):
    """Cost of the nodes."""

    before: Price
    after: Price
    removed: Price


class Refusal(TypedDict):
    """Why no mark, surge move or eviction may begin now."""

    code: Code
    message: str
    until: Time | None


class KeptEmpty(TypedDict):
    """An empty node that Ebb keeps from scale-down."""

    node: str
    why: str
    until: Annotated[Time | None, Meta(description="null: the protection has no fixed end")]
    price: Annotated[Price | None, Meta(description="null without `prices`")]


class Metric(TypedDict):
    """A metric of the policy."""

    name: str
    labels: list[str]
    value: float


class Bound(TypedDict):
    """How few nodes the pods need, without rules such as affinity and thresholds."""

    nodes: Annotated[int, Meta(description="nodes that exist")]
    planned: Annotated[int, Meta(description="nodes that remain after the plan")]
    found: Annotated[int, Meta(description="nodes of the best placement found")]
    atLeast: Annotated[int, Meta(description="proved lower bound of the nodes needed")]


class Plan(Origin):
    """`ebb plan -o json`."""

    kind: Literal["Plan"]
    mode: Literal["offline"]
    headline: Headline
    policy: str
    thresholds: Annotated[Shares | None, Meta(description="null if the policy has none")]
    metrics: list[Metric]
    usableCapacity: DerivedUsability | None
    before: Totals
    after: Totals
    devices: list[Device]
    reaches: list[ReachSums]
    pending: list[Placement]
    removals: list[Removal]
    unremovable: list[Unremovable]
    markedInfeasible: list[str]
    buffers: list[Buffer]
    warnings: list[Warned]
    prices: Prices | None
    nothingBegins: list[Refusal]
    keptEmpty: list[KeptEmpty]
    bound: Annotated[Bound | None, Meta(description="null without --bound")]


class Mark(TypedDict):
    """State of the mark and of the scale-down protection of a node."""

    value: Literal["PreferNoSchedule", "NoSchedule"] | None
    since: Time | None
    deadline: Time | None
    owner: str | None
    policy: str | None
    reason: str | None
    overdue: bool
    empty: bool
    scaleDownProtection: Literal["none", "marked", "unmarked", "ending", "others"]
    taintsCorrect: bool
    leaving: bool
    beingDeleted: Annotated[bool, BEING_DELETED]
    skippedUntil: Time | None


class NodeMark(Mark):
    node: str
    podsLeft: int


class Leader(TypedDict):
    """Leader of the controller according to its Lease."""

    lease: str
    holder: str | None
    renewed: Time | None
    durationSeconds: Seconds
    problem: str | None


class Counts(TypedDict):
    """Number of nodes in each state; a node may be in several."""

    nodes: int
    removableNow: int
    removableAndMarked: int
    marked: int
    markedPreferNoSchedule: int
    markedNoSchedule: int
    markedAndEmpty: int
    markedAndProtected: int
    markedAndOverdue: int
    markedWithWrongTaint: int
    unmarkedAndProtected: int
    scaleInTargets: int
    reserved: int
    unmarkedWithLeftOverTaint: int
    leaving: int
    beingDeleted: Annotated[int, BEING_DELETED]


class Published(TypedDict):
    """A CapacityBuffer of Ebb; numbers are pods."""

    buffer: str
    pods: int
    accepted: int
    fault: str


class PendingCounts(TypedDict):
    all: int
    unschedulable: int


class ReasonCount(TypedDict):
    code: Code
    nodes: int


class Status(Origin):
    """`ebb status -o json`."""

    kind: Literal["Status"]
    leader: Leader | None
    leaderReport: Annotated[Report | None, Meta(description="null for a dump, or if not read")]
    headline: Headline
    counts: Counts
    before: Totals
    after: Totals
    devices: list[Device]
    reaches: list[ReachSums]
    buffers: list[Buffer]
    published: list[Published]
    marks: list[NodeMark]
    leftOverTaints: list[str]
    pendingPods: PendingCounts
    markedInfeasible: list[str]
    removable: list[str]
    nothingBegins: list[Refusal]
    keptEmpty: list[KeptEmpty]
    warnings: list[Warned]
    reasons: list[ReasonCount]


class Reason(NodeReason):
    meaning: str
    fix: str
    endsWhen: str


class KnownToLeader(TypedDict):
    """What the leader knows about a node."""

    delays: list[Delay]
    refusedWrites: list[RefusedWrites]
    limits: list[LimitUse]
    peaks: list[PeakDemand]
    decisions: list[Decision]


class Verdict(TypedDict):
    removable: bool
    order: int | None


class Rank(TypedDict):
    price: Price
    requested: Share


class NodePods(TypedDict):
    """Numbers of pods on a node."""

    all: int
    toMove: int
    removedWithNode: int
    remaining: int
    scaleInFirst: int


class Reach(TypedDict):
    """A set of nodes that the same pods can use."""

    name: str
    key: str
    nodes: int


class Scalability(TypedDict):
    state: str
    evidence: str


class Unplaced(TypedDict):
    pod: PodKey
    reason: str


class PlannedHere(TypedDict):
    """A pod that the plan has placed on the node, and its own node; null for a Pending pod."""

    pod: PodKey
    runsOn: str | None


class NodeExplanation(Origin):
    """`ebb explain node -o json`."""

    kind: Literal["NodeExplanation"]
    knownToLeader: KnownToLeader | None
    node: str
    verdict: Verdict
    mark: Mark
    rule: str | None
    rank: Rank
    pods: NodePods
    reaches: list[Reach]
    reached: bool
    scalability: Scalability
    reasons: list[Reason]
    rateLimits: list[Reason]
    reservedFor: list[Reason]
    emptiesLate: list[Reason]
    staysPreferNoSchedule: list[Reason]
    notEvicted: list[Reason]
    notMoved: list[Reason]
    surgeMoves: int | None
    placements: list[Placement]
    unplaced: list[Unplaced]
    plannedHere: list[PlannedHere]


class Rejection(TypedDict):
    rule: str
    nodes: int


class PodExplanation(Origin):
    """`ebb explain pod -o json`."""

    kind: Literal["PodExplanation"]
    pod: PodKey
    node: str | None
    pending: bool
    requests: Amount
    removedWithNode: bool
    movable: bool
    reach: Reach | None
    admittedBy: int
    reasons: list[Reason]
    remarks: list[Reason]
    nodeVerdict: Verdict | None
    nodeReasons: list[Code]
    target: str | None
    whyNoTarget: str | None
    couldRunOn: list[str]
    couldRunOnMarked: list[str]
    rejectedBy: list[Rejection]


class PlanOfCluster(TypedDict):
    context: str
    error: Annotated[str | None, Meta(description="why the cluster could not be read")]
    answer: Plan | None


class StatusOfCluster(TypedDict):
    context: str
    error: Annotated[str | None, Meta(description="why the cluster could not be read")]
    answer: Status | None


class History(TypedDict):
    """`ebb history -o json`."""

    apiVersion: ApiVersion
    kind: Literal["History"]
    units: Units
    time: Time
    cluster: str
    period: Literal["day", "week", "month"]
    first: Annotated[str, Meta(description="date of the first day, in UTC")]
    last: str
    countedUntil: Annotated[Time | None, Meta(description="null if nothing is stored")]
    total: Annotated[DayReport, Meta(description="sums of the days; its date is the last one")]
    days: Annotated[list[DayReport], Meta(description="the last day first")]


class PlanList(TypedDict):
    """`ebb plan -o json` with several contexts."""

    apiVersion: ApiVersion
    kind: Literal["ClusterList"]
    items: list[PlanOfCluster]


class StatusList(TypedDict):
    """`ebb status -o json` with several contexts."""

    apiVersion: ApiVersion
    kind: Literal["ClusterList"]
    items: list[StatusOfCluster]


class NodeExplanationList(TypedDict):
    """`ebb explain node -o json` with several nodes."""

    apiVersion: ApiVersion
    kind: Literal["NodeExplanationList"]
    items: list[NodeExplanation]


class PodExplanationList(TypedDict):
    """`ebb explain pod -o json` with several pods."""

    apiVersion: ApiVersion
    kind: Literal["PodExplanationList"]
    items: list[PodExplanation]


DOCUMENTS: Final[Mapping[str, Any]] = {
    "plan": Plan,
    "status": Status,
    "explain-node": NodeExplanation,
    "explain-pod": PodExplanation,
    "explain-node-list": NodeExplanationList,
    "explain-pod-list": PodExplanationList,
    "history": History,
    "plan-list": PlanList,
    "status-list": StatusList,
}
"""Type of each document by the name of its file in docs/schema/."""


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document: each field is required, and no other is allowed."""
    found = msgspec.json.schema(DOCUMENTS[name])
    for part in [found, *found["$defs"].values()]:
        if properties := part.get("properties"):
            part |= {"required": sorted(properties), "additionalProperties": False}
            for one in properties.values():
                one.pop("default", None)
    return {"$schema": DIALECT, **found}


def text(name: str) -> str:
    """Return the file with the schema of a document."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    return orjson.dumps(schema(name), option=options).decode() + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for document in DOCUMENTS:
        (FOLDER / f"{document}.json").write_text(text(document), "utf-8")
