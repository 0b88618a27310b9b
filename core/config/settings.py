"""The versioned configuration: one value for plan, simulation and programs.

Each setting is defined once: name, type, format, bounds, default, meaning (the docstring below
it), the programs that read it only when they start, and its place in the documentation. The last
sentence of its meaning says when to change it. core.config.document, .schema and .page are derived
from these definitions. The file uses the names in camelCase and without units.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, make_dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import chain
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    Tag,
    ValidationInfo,
    with_config,
)
from pydantic_core import CoreSchema, core_schema

from core.cluster.default_spread import DefaultSpread
from core.cluster.read_options import KNOWN_SCHEDULERS, ReadOptions
from core.config.budgets import Budgets
from core.config.eviction import EvictionConfig, EvictionMode
from core.config.prices import PRICES_MAX, Price
from core.config.programs import BESIDE, ControllerConfig, ExtenderConfig, WebhookConfig
from core.config.schedule import TIME, WINDOWS_MAX, Window
from core.config.surge import SurgeConfig, SurgeMode
from core.config.thresholds import Enter, Thresholds
from core.marks.wellknown import TAINT_KEY
from core.model.node import CONDITION_MESSAGE_CHARS
from core.model.node_lifecycle import LEAVING_CONDITIONS, LeavingCondition
from core.model.pod import SCHEDULER_CHARS_MAX
from core.model.quantity import millis, whole
from core.placement.usable_capacity import Usability
from core.policies.all import POLICIES
from core.setting_types.structure import (
    AT_CONTROLLER_START,
    EXTENDER,
    FLATTEN,
    FLATTENED,
    ON_FIRST_PAGE,
    POLICY_PART,
    RESTART,
    WEBHOOK,
    BoundedList,
    name_of,
    refused,
)
from core.setting_types.value_types import (
    QUALIFIED_KEY,
    SHARE_BELOW_ONE,
    duration,
    number,
    quantity,
    text,
    whole_number,
    words,
)

API_VERSION: Final = "kube-ebb.io/v1alpha1"
KIND: Final = "EbbConfiguration"
LEAVING_TAINTS_MAX: Final = 100
LEAVING_CONDITIONS_MAX: Final = 100
SPREADS_MAX: Final = 10
SKEW_MAX: Final = 10_000
SCHEDULERS_MAX: Final = 100
NAMESPACE_CHARS_MAX: Final = 63
NAME_CHARS_MAX: Final = 253
_DNS_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
CONFIG_MAP: Final = text(
    rf"{_DNS_LABEL}/{_DNS_LABEL}(?:\.{_DNS_LABEL})*",
    "namespace/name of a ConfigMap",
    NAMESPACE_CHARS_MAX + 1 + NAME_CHARS_MAX,
    excluded=rf"[^/]{{{NAMESPACE_CHARS_MAX + 1},}}/|[^/]*/.{{{NAME_CHARS_MAX + 1},}}",
)
SCHEDULER_NAME: Final = text(
    r"[!-~]+", "a name as pods have it in spec.schedulerName", SCHEDULER_CHARS_MAX
)


class Mode(StrEnum):
    """Whether Ebb writes to the cluster."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


class PodDeletionCost(StrEnum):
    """Whether Ebb sets pod deletion costs, so that scale-ins delete pods on marked nodes first."""

    AUTO = "auto"
    """Enabled if the program may patch Pods."""
    DISABLED = "disabled"
    ENABLED = "enabled"


class UsabilityMode(StrEnum):
    """Values of `usableCapacity` other than a mapping."""

    AUTO = "auto"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    """Four numbers that define which free capacity is usable, as the file has them."""

    min_cpu_millis: Annotated[int, quantity(millis, "m"), POLICY_PART]
    """Smaller amounts of free CPU are not usable by any pod. Set it to the smallest CPU request of
    usual pods."""
    min_memory_bytes: Annotated[int, quantity(whole), POLICY_PART]
    """Smaller amounts of free memory are not usable by any pod. Set it to the smallest memory
    request of usual pods."""
    max_cpu_per_gb: Annotated[Fraction, number(positive=True), POLICY_PART]
    """Maximum of usable free CPU, in cores per 10^9 bytes of free memory. Set it to the largest
    ratio of CPU to memory that a usual pod requests."""
    max_gb_per_cpu: Annotated[Fraction, number(positive=True), POLICY_PART]
    """Maximum of usable free memory, in 10^9 bytes per core of free CPU. Set it to the largest
    ratio of memory to CPU that a usual pod requests."""


def _read_numbers(_: object, handler: GetCoreSchemaHandler) -> CoreSchema:
    inner = handler.generate_schema(_Numbers)
    return core_schema.no_info_after_validator_function(
        lambda numbers: Usability(**asdict(numbers)),
        inner,
        serialization=core_schema.plain_serializer_function_ser_schema(
            lambda usability: _Numbers(**asdict(usability)), return_schema=inner
        ),
    )


UsabilityForm = Annotated[
    Annotated[Usability, GetPydanticSchema(_read_numbers), Tag("numbers")]
    | Annotated[UsabilityMode, Tag("mode")],
    Discriminator(lambda given: "numbers" if isinstance(given, dict | Usability) else "mode"),
    Field(title="auto, all, or a mapping of four numbers"),
]


class Scope(StrEnum):
    """Nodes that are protected from scale-down until Ebb allows it."""

    MARKED = "marked"
    RESERVED = "reserved"
    """Marked nodes, and empty nodes that expected pods or a CapacityBuffer need."""
    EMPTY = "all-empty"
    """Marked and empty nodes."""
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDownProtection:
    """Scale-down protection: which nodes the autoscaler may remove, and when."""

    scope: Annotated[Scope, ON_FIRST_PAGE] = Scope.RESERVED
    """Nodes that Ebb protects from scale-down until it allows their scale-down: only marked nodes
    (`marked`), also empty nodes that expected pods or a CapacityBuffer need (`reserved`), all
    empty nodes (`all-empty`), or all nodes (`all`), where `all` is `reserved` on nodes of
    Karpenter. Set it to `all` where the autoscaler evicts pods and you cannot turn that off."""
    after_unmark_seconds: Annotated[int, duration()] = 900
    """Maximum time for which a node stays protected from scale-down after its mark was removed, so
    that an autoscaler that evicts pods does not drain it at once. With `0s` it is not protected.
    Raise it if the autoscaler evicts pods from nodes that Ebb has just unmarked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAutoscaler:
    """Where Cluster Autoscaler publishes its status."""

    status: Annotated[str, CONFIG_MAP] = "kube-system/cluster-autoscaler-status"
    """ConfigMap with the status, as namespace/name. A Role must allow `ebb-controller` to read it.
    Set it where Cluster Autoscaler runs in another namespace, as its Helm chart allows, or has the
    flag `--status-config-map-name`."""


class ConditionStatus(StrEnum):
    """The status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingConditionConfig:
    """A condition of Nodes that announces the removal of the node."""

    type: Annotated[str, QUALIFIED_KEY]
    """Type of the condition."""
    status: ConditionStatus = ConditionStatus.TRUE
    """Status of the condition. Set it if another status than `True` announces the removal."""
    message: Annotated[
        str, text(r"[ -~]*", "at most 64 printable ASCII characters", CONDITION_MESSAGE_CHARS)
    ] = ""
    """Beginning of the message; with an empty text any message counts. Set it if the condition can
    also mean that the node stays."""
    cordoned: bool = False
    """Whether the condition counts on cordoned nodes only. Set it to `true` if the condition can
    remain on a node that takes pods again."""


class WhenUnsatisfiable(StrEnum):
    """The action of kube-scheduler if no node satisfies the constraint for a pod."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultTopologySpread:
    """A default topology spread constraint, as kube-scheduler's own configuration has it."""

    topology_key: Annotated[str, QUALIFIED_KEY]
    """Node label whose values are the topology domains."""
    max_skew: Annotated[int, whole_number(1, SKEW_MAX)]
    """Largest difference of the number of pods between two domains."""
    when_unsatisfiable: WhenUnsatisfiable
    """Only `DoNotSchedule` matters to Ebb."""


def _with_costs(surge: SurgeConfig, info: ValidationInfo) -> SurgeConfig:
    """Return *surge*; reject surge moves if pod deletion costs are disabled.

    The costs decide which pod a ReplicaSet deletes.
    """
    disabled = info.data.get("pod_deletion_cost") is PodDeletionCost.DISABLED
    if surge.mode is SurgeMode.ENABLED and disabled:
        allowed = "disabled, because podDeletionCost is disabled"
        raise refused([("mode", surge.mode.value, allowed)])
    return surge


PolicySettings: Final = make_dataclass(
    "PolicySettings",
    [
        (
            policy.section,
            Annotated[policy.Settings, POLICY_PART, Field(description=policy.Settings.__doc__)],
            field(default_factory=policy.Settings),
        )
        for policy in POLICIES.values()
        if policy.Settings is not None
    ],
    namespace={"__module__": __name__},
    frozen=True,
    slots=True,
    kw_only=True,
)
"""The settings of all policies, each in the section of its policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings; the defaults are those of an empty file."""

    mode: Annotated[Mode, ON_FIRST_PAGE] = Mode.OBSERVE
    """With `observe`, Ebb reports its plan and writes nothing. With `enforce`, it also marks nodes
    and makes the other writes of the plan. Set it to `enforce` once you agree with the plan that
    Ebb reports."""
    policy: Annotated[str, words(POLICIES)] = next(iter(POLICIES))
    """The rule that nominates nodes for removal. Set it if Ebb replaces a tool whose rule you want
    to keep."""
    unneeded_time_seconds: Annotated[int, duration()] = 120
    """A node must be a candidate for longer than this before it is marked. Empty nodes are marked
    at once. Raise it if nodes are marked in short dips of the load."""
    thresholds: Enter = field(default_factory=Thresholds)
    """Maximum ratio of requests to usable capacity after the removal of a node. It must hold in
    the cluster and in every set of nodes that a pod can use."""
    hysteresis: Annotated[Fraction, SHARE_BELOW_ONE] = Fraction(1, 20)
    """Share that is added to `thresholds`, also those of `pools`, and to
    `nodeUtilization.utilization`. The mark of a node is removed only above the sum, at most 100%.
    Raise it if nodes are unmarked and soon marked again."""
    usable_capacity: UsabilityForm = UsabilityMode.AUTO
    """Which free capacity counts as usable. With `auto`, Ebb derives the limits from the running
    pods: the smallest usable amounts of CPU and memory, and the largest usable ratios between
    them. With `all`, all free capacity counts. A mapping sets the four limits. Set it to `all` if
    nodes stay only because much free capacity does not count."""
    budgets: Annotated[Budgets, FLATTENED] = field(default_factory=Budgets)
    prices: Annotated[tuple[Price, ...], BoundedList(PRICES_MAX, "{nodeSelector, price}")] = ()
    """Prices of nodes. Ebb removes the most expensive nodes first. Set it where nodes differ in
    price, and to see savings as money."""
    min_savings: Annotated[
        Fraction,
        number(positive=False),
        Field(title="a price for an hour, a decimal number of at least 0"),
    ] = Fraction(0)
    """Minimum price of a node for an hour. A cheaper node is not marked. Without `prices` it has
    no effect. Raise it if the removal of small nodes saves too little for the pods that it
    moves."""
    schedule: Annotated[
        tuple[Window, ...],
        BoundedList(WINDOWS_MAX, "{start, duration, timeZone}"),
        ON_FIRST_PAGE,
    ] = ()
    """Windows in which Ebb may begin marks, surge moves and evictions. While none is open, marks
    stay, moves that have begun finish, and marks are still removed. With an empty list Ebb may
    begin them at any time. Set it if marks, moves and evictions may begin only at certain
    hours."""
    pause_until_seconds: Annotated[Annotated[int, TIME] | None, ON_FIRST_PAGE] = None
    """Time until which Ebb begins no mark, no surge move and no eviction, as outside of the
    windows of `schedule`. Set it for a change freeze, such as holidays or a cluster upgrade."""
    policies: Annotated[
        Any,
        GetPydanticSchema(lambda _, handler: handler.generate_schema(PolicySettings)),
        Field(alias=f"{FLATTEN}policies"),
    ] = field(default_factory=PolicySettings)
    """Settings of each policy, including policies that are not configured."""
    schedulers: Annotated[
        tuple[Annotated[str, SCHEDULER_NAME], ...], BoundedList(SCHEDULERS_MAX, "that are names")
    ] = KNOWN_SCHEDULERS
    """Schedulers that use kube-scheduler's own filters; scores do not matter. Pods of other
    schedulers are not movable. A configured list replaces the default, so it must include
    `default-scheduler`. Set it where kube-scheduler has further profiles that pods name."""
    leaving_taints: Annotated[
        tuple[Annotated[str, QUALIFIED_KEY], ...], BoundedList(LEAVING_TAINTS_MAX, "that are keys")
    ] = ()
    """Keys of more taints by which other tools announce that they drain or remove a node. The
    taints of common autoscalers and drain tools need no entry. The capacity of such a node
    does not count, and its pods are placed first. Ebb ignores its own taint in this list. Set it
    where a drain tool or a spot handler of your own taints nodes."""
    leaving_conditions: Annotated[
        tuple[LeavingConditionConfig, ...],
        BoundedList(LEAVING_CONDITIONS_MAX, "{type, status, message, cordoned}"),
    ] = ()
    """More conditions of Nodes by which other tools announce that a node will be removed. These
    need no entry: `Terminating`, Azure's `VMEventScheduled` for a preemption, redeployment or
    termination, and `DrainInProgress` and `Drained` on cordoned nodes. Ebb handles such a node as
    with a taint of `leavingTaints`, for at most an hour after the condition has changed. Set it
    where a tool announces removals by a condition and not by a taint."""
    default_topology_spread: Annotated[
        tuple[DefaultTopologySpread, ...],
        BoundedList(SPREADS_MAX, "{maxSkew, topologyKey, whenUnsatisfiable}"),
    ] = ()
    """The `defaultConstraints` of kube-scheduler's plugin PodTopologySpread. They apply to pods of
    ReplicaSets, ReplicationControllers and StatefulSets without topologySpreadConstraints. Set it
    to the same list if the configuration of kube-scheduler has one."""
    deadline_seconds: Annotated[int, duration(60)] = 24 * 3600
    """A mark older than this is removed, unless the node is empty. Raise it if marked nodes would
    become empty a little later, lower it to try other nodes sooner."""
    max_job_age_seconds: Annotated[int | None, duration(never=True)] = 1800
    """A node is not marked while a pod on it runs to completion, as pods of Jobs do, and is older
    than this. Pods that have run for long mostly still run for long. `never` sets no limit. Raise
    it if most Jobs run longer than this and all of them end at about the same age."""
    no_schedule_after_seconds: Annotated[int | None, duration(never=True)] = None
    """Time after which a PreferNoSchedule mark becomes a NoSchedule mark. With `never`, only the
    node whose pods are being evicted gets a NoSchedule mark. Set it if marked nodes do not become
    empty because they still get new pods."""
    scale_down_protection: ScaleDownProtection = ScaleDownProtection()
    """Scale-down protection: which nodes the autoscaler may remove, and when."""
    cluster_autoscaler: Annotated[ClusterAutoscaler, AT_CONTROLLER_START] = ClusterAutoscaler()
    """Where Cluster Autoscaler publishes its status: the minimum sizes of its node groups."""
    pod_deletion_cost: PodDeletionCost = PodDeletionCost.AUTO
    """Whether Ebb sets pod deletion costs, so that scale-ins delete pods on marked nodes first,
    and then pods on the nodes to be marked next. With `auto`, Ebb sets them if it may patch Pods.
    Set it to `disabled` if Kubernetes alone must choose the pods that a scale-in deletes."""
    eviction: Annotated[EvictionConfig, Field(title="a mapping of mode, after and maxAtOnce")] = (
        field(default_factory=EvictionConfig)
    )
    """Settings for eviction of the pods of marked nodes."""
    surge: Annotated[SurgeConfig, AfterValidator(_with_costs)] = field(default_factory=SurgeConfig)
    """Settings for surge moves, which move pods of Deployments from marked nodes without
    eviction."""
    extender: Annotated[
        ExtenderConfig,
        Field(json_schema_extra={RESTART: [EXTENDER], "dependentRequired": BESIDE}),
    ] = field(default_factory=ExtenderConfig)
    """Settings of `ebb-extender`."""
    webhook: Annotated[WebhookConfig, Field(json_schema_extra={RESTART: [WEBHOOK]})] = field(
        default_factory=WebhookConfig
    )
    """Settings of `ebb-webhook`, which reads no other section."""
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    """Settings of `ebb-controller`. It also reads all settings outside the sections of
    programs."""

    @property
    def read_options(self) -> ReadOptions:
        """Return the settings that decide how nodes and pods are understood.

        These are the known schedulers, the taints and conditions of leaving nodes, and default
        topology spread constraints.
        """
        # With Ebb's own key every marked node would count as leaving, and so lose its mark.
        leaving = tuple(key for key in self.leaving_taints if key != TAINT_KEY)
        spread = tuple(
            DefaultSpread(constraint.topology_key, constraint.max_skew)
            for constraint in self.default_topology_spread
            if constraint.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE
        )
        named = (
            LeavingCondition(one.type, one.status.value, one.message, one.cordoned)
            for one in self.leaving_conditions
        )
        return ReadOptions(self.schedulers, leaving, (*LEAVING_CONDITIONS, *named), spread)

    def policy_settings(self) -> Any:  # noqa: ANN401 that policy's own
        """Return the settings of the configured policy, or None if the policy has none."""
        return getattr(self.policies, POLICIES[self.policy].section, None)

    def node_labels(self) -> frozenset[str]:
        """Return the keys of all node labels that prices, pools or any policy read."""
        keys = {key for price in self.prices for key, _ in price.node_selector}
        keys.update(chain.from_iterable(pool.selector.label_keys for pool in self.budgets.pools))
        for policy in POLICIES.values():
            keys.update(policy.node_labels(getattr(self.policies, policy.section, None)))
        return frozenset(keys)

    @property
    def sets_no_schedule(self) -> bool:
        """Return whether Ebb may change a mark from PreferNoSchedule to NoSchedule."""
        return (
            self.no_schedule_after_seconds is not None
            or self.eviction.mode is EvictionMode.ENABLED
        )

    @property
    def evicts(self) -> bool:
        """Return whether Ebb evicts pods of marked nodes; False in mode `observe`."""
        return self.mode is Mode.ENFORCE and self.eviction.mode is EvictionMode.ENABLED

    @property
    def surges(self) -> bool:
        """Return whether surge moves are enabled; also True in mode `observe`."""
        return self.surge.mode is SurgeMode.ENABLED

    def thresholds_of(self, labels: Mapping[str, str]) -> Thresholds:
        """Return the thresholds of utilization for the removal of a node with these labels.

        They are those of the pool of the node, or else those of the cluster.
        """
        pool = self.budgets.pool_of(labels)
        return pool.thresholds if pool and pool.thresholds else self.thresholds

    @property
    def lacks_prices(self) -> bool:
        """Return whether `minSavings` has no effect, because there are no prices."""
        return self.min_savings > 0 and not self.prices

    def price_of(self, labels: Mapping[str, str]) -> Fraction:
        """Return the price for an hour of a node with these labels, in the currency of the file.

        The first matching entry of `prices` decides; 0 if none matches.
        """
        for entry in self.prices:
            if all(labels.get(key) == value for key, value in entry.node_selector):
                return entry.price
        return Fraction(0)


@with_config(ConfigDict(alias_generator=name_of, extra="forbid", use_attribute_docstrings=True))
@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A configuration file."""

    api_version: Annotated[str, words([API_VERSION])]
    """Version of the configuration format."""
    kind: Annotated[str, words([KIND])]
    """Kind of the file."""
    config: Annotated[Config, FLATTENED]
