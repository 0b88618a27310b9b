"""Define the interface of policies, the rules that propose nodes for removal."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Protocol

from core.model.node import Node
from core.model.pod import Pod
from core.model.reason import Blocker, Reason
from core.placement.reach_utilization import Exceeded
from core.placement.utilization_ledger import RemovalEffect, UtilizationLedger

Order = tuple[object, ...]
"""Sort key of a node; only keys of one policy are compared. Level and rank together are unique."""


class PolicyGauge(NamedTuple):
    """The name, help text and label names of a metric that a policy exposes."""

    name: str
    help: str
    """Help text of the metric."""
    labels: tuple[str, ...] = ()


class PolicyMetric(NamedTuple):
    """One value of a policy's metric, for certain values of the metric's labels."""

    gauge: str
    """Name of the metric."""
    labels: tuple[str, ...]
    """Values of its labels; the policy bounds their number."""
    value: Fraction | int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInput:
    """The data that a policy gets for one plan: nodes, requests, settings, and current marks.

    Node ids are positions in `nodes`, which do not have Ebb's own taint.
    """

    nodes: Sequence[Node]
    ledger: UtilizationLedger
    """Ledger of the plan in progress; it changes with every removal."""
    settings: Any = None
    """Settings of the policy, of its type Settings."""
    hysteresis: Fraction
    """Share that is added to the limits of utilization for marked nodes."""
    marked: Collection[int] = ()
    """Marked nodes that are not leaving."""
    candidates: Collection[int] | None = None
    """Current candidates according to `is_candidate`; None if no unneeded time applies."""
    is_blocked: Callable[[int], bool] = lambda _: False
    """Reports whether the node or one of its pods blocks the removal under every policy."""
    pods_on: Callable[[int], Sequence[Pod]] = lambda _: ()
    """Returns all pods bound to the node at the start, by namespace and name."""
    price: Callable[[Mapping[str, str]], Fraction]
    """Returns the price of a node with these labels."""
    long_lived_pods: Mapping[str, int]
    """Number of pods that rarely terminate by themselves, by node name; nodes without such pods
    are absent."""
    pods_not_replaceable: Mapping[str, int] = field(default_factory=dict)
    """Number of pods that no surge move can replace, by node name; empty without surge moves."""
    count_to_move: Callable[[int], int]
    """Returns the number of pods that would have to move if the node were removed."""
    share: Callable[[int], int]
    """Returns the dominant share of the requests on the node at the start."""
    cost_share: Callable[[int], int]
    """Returns the share of the node's cost that is requested at the start."""


class Policy(Protocol):
    """A rule that proposes nodes for removal while one plan is made.

    Everything else is the same for all policies: filters, packing, eligibility, limits and marks.
    Marked nodes are always tried first, in the order of their marks. The argument *marked* says
    whether the node is marked, so that a policy may apply a weaker condition to marked nodes.

    To add a policy, write a subclass in a file of its own and list it in core.policies.all.
    """

    name: ClassVar[str]
    """Name in the configuration."""
    Settings: ClassVar[type[Any] | None] = None
    """Frozen dataclass of core.setting_types types with a default for each field, or None."""
    section: ClassVar[str] = ""
    """Field of the configuration with its settings, in snake case: `excess_nodes`."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults of other settings under this policy, as in the configuration."""
    thresholds: ClassVar[bool] = False
    """True if the policy uses `thresholds` and `usableCapacity`."""
    hysteresis: ClassVar[bool] = False
    """True if the policy adds `hysteresis` to its limits for marked nodes."""
    remembers_placements: ClassVar[bool] = False
    """True if a node is a candidate only while its pods have places on other nodes. Ebb remembers
    the places. If pods of removed nodes take one, the unneeded time of the node restarts."""
    reorders: ClassVar[bool] = False
    """True if `rank` changes with removals, so that nodes are sorted again after each removal."""
    reasons: ClassVar[Sequence[Reason]] = ()
    """Reasons of the policy. Those of ClusterThreshold are listed elsewhere, among the general
    ones."""
    gauges: ClassVar[Sequence[PolicyGauge]] = ()
    """Metrics that the policy exposes; the method `metrics` returns their values."""

    @staticmethod
    def node_labels(settings: Any) -> Iterable[str]:  # noqa: ANN401, ARG004 as Settings
        """Return the keys of the node labels that the policy reads with these settings."""
        return ()

    def __init__(self, policy_input: PolicyInput) -> None:
        """Store the input, and compute from it the values that all methods need."""

    def level(self, node: int) -> Order:  # noqa: ARG002 as the protocol has it
        """Return the sort key of the node's level; smaller levels are tried first.

        Nodes of a later level are tried after all nodes of the earlier levels.
        """
        return ()

    def rank(self, node: int) -> Order:
        """Return the sort key of the node within its level; smaller keys are tried first."""

    def nominates(self, node: int, *, marked: bool) -> bool:
        """Report whether an unmarked node may be tried, or a marked node may keep its mark.

        A plan calls this often, so it must take constant time.
        """

    def explain(self, node: int, *, marked: bool) -> Sequence[Blocker]:
        """Return every reason why `nominates` is False for the node."""

    def is_candidate(self, node: int, *, was: bool) -> bool:  # noqa: ARG002
        """Report whether an unmarked node is a candidate for removal.

        A node may be removed after it has been a candidate for the time `unneededTime`. *was*: the
        node was a candidate in the last reconciliation. All marked nodes count as removed here.
        """
        return self.nominates(node, marked=False)

    @staticmethod
    def due_at(since: int, unneeded_time_seconds: int) -> int:
        """Return the time (unix seconds) at which the node may be removed.

        *since*: the time (unix seconds) since which the node has been a candidate. By default it
        must have been a candidate for longer than *unneeded_time_seconds* (thesis 4.5).
        """
        return since + unneeded_time_seconds + 1

    def exceeded(self, trial: RemovalEffect, *, marked: bool) -> tuple[Exceeded, ...]:  # noqa: ARG002
        """Return the sums that would exceed a threshold after the removal *trial*.

        The sums are those of the cluster, a device or a reach (a set of nodes that some pods can
        use). An empty result means that the policy allows the removal.
        """
        return ()

    def surely_within(self, pods: int) -> bool:  # noqa: ARG002
        """Report whether `exceeded` is surely empty for all unmarked nodes and all placements.

        *pods*: the largest number of pods on a node. False also means unknown.
        """
        return True

    def explain_exceeded(self, found: Exceeded, *, marked: bool) -> Blocker:  # noqa: ARG002
        """Return a Blocker that names the threshold that would be exceeded.

        *found*: a result of `exceeded`. *marked*: whether the node has a mark already.
        """
        raise AssertionError("a policy without exceeded() has nothing to explain")

    def describe(self, node: int) -> str:  # noqa: ARG002
        """Return a text for users about the node, such as its utilization; "" if there is none.

        It is requested before the plan removes any node.
        """
        return ""

    def metrics(self) -> Iterable[PolicyMetric]:
        """Return the values of the policy's metrics, before the plan removes any node."""
        return ()
