"""What a policy is: its word and settings in the file, and what a plan in the making asks it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Protocol

from core.capacity.sums import Exceeded
from core.capacity.utilization import RemovalEffect, UtilizationLedger
from core.model.node import Node
from core.model.pod import Pod
from core.model.reason import Blocker, Reason

Order = tuple[object, ...]
"""Comes out of one policy alone, and ends, together with the level's, in a unique key."""


class PolicyGauge(NamedTuple):
    """A series that a policy tells."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


class PolicyMetric(NamedTuple):
    """One value of a gauge."""

    gauge: str
    """Its name."""
    labels: tuple[str, ...]
    """The values of its labels; there is a bound to how many a policy tells."""
    value: Fraction | int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInput:
    """What a policy sees; nodes by their ids of the Ground, whose taints are without Ebb's own."""

    nodes: Sequence[Node]
    ledger: UtilizationLedger
    """Changes as nodes go; its `used` and `asked` of a node, and whether it has gone, are those of
    the state with pods moved."""
    settings: Any = None
    """The policy's own, of its type Settings."""
    marked: Collection[int] = ()
    """Nodes that carry a mark and are not leaving."""
    candidates: Collection[int] | None = None
    """Nodes that are candidates at this moment (`listed` said so); None: time plays no part."""
    is_blocked: Callable[[int], bool] = lambda _: False
    """Whether the node, or a pod of it, says of itself that it stays, whatever a policy says."""
    pods_on: Callable[[int], Sequence[Pod]] = lambda _: ()
    """All that are bound to the node at the start, DaemonSets' too, by namespace and name."""
    price: Callable[[Mapping[str, str]], Fraction]
    """Of a node with these labels."""
    long_lived_pods: Mapping[str, int]
    """By name of a node: pods that rarely leave by themselves; 0: no key."""
    count_to_move: Callable[[int], int]
    """How many pods would have to find another place."""
    share: Callable[[int], int]
    """The dominant share of what is asked for on the node, at the start."""


class Policy(Protocol):
    """A rule for which nodes go, on one cluster, while one plan is made.

    All else is common: fit, packing, guards, budgets, brakes, marks. Marked nodes are tried before
    others and in the order of their marks, whatever the policy; *marked* says of a question that
    it is about one of them, which may be held to less.

    Another policy is a class that inherits from this one, in a file of its own, and an entry in
    core.policies.all; what it does not say is as it stands here.
    """

    name: ClassVar[str]
    """The word in the file."""
    Settings: ClassVar[type[Any] | None] = None
    """A frozen dataclass of core.fields types with a default for each field; None: no settings."""
    section: ClassVar[str] = ""
    """Under which name the file has them, in this language's words: `excess_nodes`."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """What the file need not say under this policy, in the file's own words."""
    thresholds: ClassVar[bool] = False
    """Whether it goes by `thresholds`, `leaveThresholds` and `usability`."""
    remembers_placements: ClassVar[bool] = False
    """Whether a node is a candidate only while its pods would find places, which are remembered:
    the delay starts anew where nodes that go take one."""
    reorders: ClassVar[bool] = False
    """Whether `rank` changes as nodes go: all are put in order anew after each."""
    reasons: ClassVar[Sequence[Reason]] = ()
    """With which it says no; ClusterThreshold's stand where they always stood among the others."""
    gauges: ClassVar[Sequence[PolicyGauge]] = ()
    """What `figures` are of."""

    @staticmethod
    def node_labels(settings: Any) -> Iterable[str]:  # noqa: ANN401, ARG004 as Settings
        """Return the keys of nodes' labels that it goes by under these settings of its own."""
        return ()

    def __init__(self, policy_input: PolicyInput) -> None:
        """Look at the cluster."""

    def level(self, node: int) -> Order:  # noqa: ARG002 as the protocol has it
        """Return what nodes are tried in the order of, those of one level until none can go."""
        return ()

    def rank(self, node: int) -> Order:
        """Return what the nodes of one level are tried in the order of."""

    def nominates(self, node: int, *, marked: bool) -> bool:
        """Say whether the node may be tried, or stays marked; asked often, so O(1)."""

    def explain(self, node: int, *, marked: bool) -> Sequence[Blocker]:
        """Say why a node is not nominated: every reason."""

    def is_candidate(self, node: int, *, was: bool) -> bool:  # noqa: ARG002
        """Say whether an unmarked node is a candidate, whose delay runs; *was*: it was one.

        Asked on the state in which all marked nodes have gone.
        """
        return self.nominates(node, marked=False)

    @staticmethod
    def due_at(since: int, delay_seconds: int) -> int:
        """Return the unix second from which a candidate since *since* may be removed.

        It must have been one for longer than the delay (thesis 4.5).
        """
        return since + delay_seconds + 1

    def exceeded(self, trial: RemovalEffect, *, marked: bool) -> tuple[Exceeded, ...]:  # noqa: ARG002
        """Return what would not hold any more after the packing."""
        return ()

    def explain_exceeded(self, found: Exceeded, *, marked: bool) -> Blocker:  # noqa: ARG002
        """Say what would not hold."""
        raise AssertionError("it says of no packing that something would not hold")

    def describe(self, node: int) -> str:  # noqa: ARG002
        """Say for people how the node stands by the rule before any goes; empty: as in `rank`."""
        return ""

    def metrics(self) -> Iterable[PolicyMetric]:
        """Tell how it stands before any node goes."""
        return ()
