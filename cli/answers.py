"""Answers of the commands: plain values that every output format can write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from cli.explain.caveats import Caveat
from cli.explain.emptying import Emptying
from cli.explain.headline import Headline
from cli.input.cluster_input import ClusterInput
from cli.nodes import NodeRow
from core.config.settings import Config
from core.engine.plan import Plan
from core.engine.snapshot import NO_POOL, ClusterSnapshot
from core.model.reason import Blocker

if TYPE_CHECKING:  # slow to import
    from cli.explain.explainer import NodeAnswer, PodAnswer
    from cli.input.kept_empty import KeptEmpty
    from cli.input.mark_status import MarkStatus
    from controller.day_report import DayReport
    from controller.leader_report import LimitUse
    from sim.fewest_nodes import NodesNeeded
    from sim.recording import Recording
    from sim.report import RunMetric

Part = TypeVar("Part")


class RowOptions(NamedTuple):
    """Options for formats with a row for each node: label columns, sort key, headings or not."""

    label_columns: tuple[str, ...] = ()
    """Labels of nodes that are shown as columns."""
    sort_by: str = "order"
    no_headers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Answer of `ebb plan` for one cluster: the plan, a row for each shown node, and warnings."""

    plan: Plan
    whole: Plan
    """The plan of all nodes, of which `plan` has the shown ones."""
    snapshot: ClusterSnapshot
    """Facts about the cluster from which the plan was made."""
    headline: Headline
    cluster_input: ClusterInput
    config: Config
    """Configuration from which the plan was made."""
    caveats: Sequence[Caveat]
    emptying: Mapping[str, Emptying]
    """Pods on each removable node, by how they end."""
    refused: Sequence[Blocker]
    """Reasons why nothing may begin now; empty if marks, moves and evictions may begin."""
    now_seconds: int
    """Time of the cluster that was read, in Unix seconds."""
    rows: Sequence[NodeRow]
    """The nodes of the plan."""
    statuses: "Sequence[MarkStatus]"
    """State of the mark and scale-down protection of each of these nodes."""
    kept_empty: "Sequence[KeptEmpty]"
    """The empty nodes that Ebb keeps from scale-down, by name."""
    view: RowOptions
    needed: "NodesNeeded | None" = None
    """How few nodes any placement needs; None if that was not requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplained:
    """Explanation of a node: why it is removable or not, and its mark's state."""

    answer: "NodeAnswer"
    status: "MarkStatus"
    cluster_input: ClusterInput
    now_seconds: int

    @property
    def limits(self) -> "Sequence[LimitUse]":
        """Return the leader's counts for the limits on a new mark of this node."""
        node, facts = self.answer.node, self.cluster_input.facts
        pool = self.cluster_input.config.budgets.pool_of(node.labels)
        return facts.limits_of(node, pool.name if pool else NO_POOL) if facts else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodExplained:
    """Explanation of a pod: whether it is movable, and on which nodes it could run."""

    answer: "PodAnswer"
    cluster_input: ClusterInput
    now_seconds: int


@dataclass(frozen=True, slots=True)
class Explained:
    """Answer of `ebb explain`: explanations of nodes, or of pods, in the requested order."""

    explanations: "Sequence[NodeExplained | PodExplained]"


@dataclass(frozen=True, slots=True)
class Reasons:
    """Answer of `ebb reasons`: the reason codes to list, in this order."""

    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettingsSchema:
    """Answer of `ebb config schema`; empty, because every format writes all settings of Ebb."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDays:
    """Answer of `ebb history`: the figures of the days of a period, in UTC."""

    cluster: str
    period: str
    """day, week or month."""
    first: str
    """Date of the first day, such as 2026-01-31."""
    last: str
    days: "Sequence[DayReport]"
    """The days of which there are figures, the last one first."""
    total: "DayReport"
    """Sums of these days."""
    counted_until_seconds: int | None
    """Unix second up to which the leader has stored figures; None if it has not stored any."""
    now_seconds: int


class Figure(NamedTuple):
    """Mean, minimum and maximum of one metric of a simulated variant over all seeds."""

    metric: "RunMetric"
    mean: Fraction | None
    """Mean over the seeds; None if the metric is undefined in a run."""
    least: Fraction | None
    most: Fraction | None

    @property
    def label(self) -> str:
        """Return the name and the unit of the metric."""
        return self.metric.label

    @property
    def mean_text(self) -> str:
        """Return the mean as text, without the unit."""
        return self.metric.shown(self.mean)

    @property
    def range_text(self) -> str:
        """Return the range from minimum to maximum as text, or one value if both read the same."""
        least, most = self.metric.shown(self.least), self.metric.shown(self.most)
        return least if least == most else f"{least} to {most}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """Result of one simulated variant: a combination of mode, policy and other settings."""

    name: str
    settings: Sequence[tuple[str, str]]
    """Settings that the sweep sets in this variant; empty for variants outside the sweep."""
    figures: Sequence[Figure]
    best: bool
    """True if no other variant is better in cost or Pending time and at least as good in both."""
    recording: "Recording | None" = None
    """Frames of the run with the first seed; None if the answer has no time lapse of it."""

    def figure_of(self, metric: "RunMetric") -> Figure:
        """Return the mean, minimum and maximum of a metric over the seeds."""
        return next(figure for figure in self.figures if figure.metric == metric)

    def mean(self, metric: "RunMetric") -> Fraction:
        """Return the mean of a metric over the seeds; 0 if the metric is undefined."""
        return self.figure_of(metric).mean or Fraction()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """The variant that `ebb replay` recommends, the reason, and its configuration file as text."""

    name: str
    why: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Answer of `ebb replay`: all simulated variants of a history, and the recommended one."""

    source: str
    summary: str
    """Description of the simulation: length, size, number of variants and seeds."""
    notes: Sequence[str]
    """Parts of the history that the simulation leaves out or changes."""
    variants: Sequence[VariantResult]
    seeds: Sequence[int]
    recorded: Sequence[Figure]
    """Figures of the nodes as recorded; empty for a trace, which does not record them."""
    recommended: Recommended | None
    """Recommendation; None if in every variant of Ebb pods were evicted, or Pending because of a
    mark."""

    @property
    def modes(self) -> Sequence[VariantResult]:
        """Return the results of variants outside --sweep: one for each mode, score and policy."""
        return [variant for variant in self.variants if not variant.settings]

    @property
    def points(self) -> Sequence[VariantResult]:
        """Return the results of variants from --sweep: one for each combination of its values."""
        return [variant for variant in self.variants if variant.settings]


class ClusterPart(NamedTuple, Generic[Part]):
    """The answer for one of several clusters, reduced to what its output format writes."""

    context: str
    part: Part | None
    """Result of `Several.part` of the output format; None if there is an error."""
    error: str = ""
    """Error because of which the cluster could not be read; empty if it was."""
