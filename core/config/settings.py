"""The versioned configuration: one value for plan, simulation and programs.

Every setting stands once: its name, type, form and bounds, its default, its meaning (the text
below it), and which programs read it only when they start. core.config.document, .schema and .page
are made of that. Names in the file are these without their unit, in camelCase.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, make_dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import chain
from typing import Annotated, Any, Final

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    Tag,
    with_config,
)
from pydantic_core import CoreSchema, core_schema

from core.capacity.usable import Usability
from core.config.budgets import Budgets, Publish
from core.config.drain import DrainConfig, Eviction
from core.config.programs import PAIR, ControllerConfig, ExtenderConfig, WebhookConfig
from core.config.thresholds import Enter, Leave, Thresholds
from core.fields.structure import (
    BESIDE,
    CONTROLLER,
    EXTENDER,
    INLINE,
    RESTART,
    WEBHOOK,
    Listed,
    name_of,
)
from core.fields.value_types import (
    QUALIFIED_KEY,
    SHARE,
    Selector,
    duration,
    number,
    quantity,
    text,
    words,
)
from core.marks.wellknown import TAINT_KEY
from core.model.pod import SCHEDULER_CHARS_MAX
from core.model.quantity import millis, whole
from core.model.schedulers import KNOWN
from core.policies.all import POLICIES

API_VERSION: Final = "kube-ebb.io/v1alpha1"
KIND: Final = "EbbConfiguration"
PRICES_MAX: Final = 1000
SCHEDULERS_MAX: Final = 100
SCHEDULER_NAME: Final = text(
    r"[!-~]+", "a name as pods have it in spec.schedulerName", SCHEDULER_CHARS_MAX
)


class Mode(StrEnum):
    """Whether anything is written."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


class ScaleInOrder(StrEnum):
    """Whether a scale-in takes pods on marked nodes first, then those on nodes next in line."""

    AUTO = "auto"
    """Where the program may patch pods."""
    DISABLED = "disabled"
    ENABLED = "enabled"


class UsabilityMode(StrEnum):
    """Instead of four numbers."""

    AUTO = "auto"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    """Usability as it is written in the file."""

    min_cpu_millis: Annotated[int, quantity(millis, "m")]
    """Less free CPU than this is of use to no pod."""
    min_memory_bytes: Annotated[int, quantity(whole)]
    """Less free memory than this is of use to no pod."""
    max_cpu_per_gb: Annotated[Fraction, number(positive=True)]
    """Cores per 10^9 bytes: no pod asks for more CPU beside its memory than this."""
    max_gb_per_cpu: Annotated[Fraction, number(positive=True)]
    """10^9 bytes per core: no pod asks for more memory beside its CPU than this."""


def _read_numbers(_: object, handler: GetCoreSchemaHandler) -> CoreSchema:
    inner = handler.generate_schema(_Numbers)
    return core_schema.no_info_after_validator_function(
        lambda found: Usability(**asdict(found)),
        inner,
        serialization=core_schema.plain_serializer_function_ser_schema(
            lambda usability: _Numbers(**asdict(usability)), return_schema=inner
        ),
    )


UsabilityForm = Annotated[
    Annotated[Usability, GetPydanticSchema(_read_numbers), Tag("numbers")]
    | Annotated[UsabilityMode, Tag("mode")],
    Discriminator(lambda given: "numbers" if isinstance(given, dict | Usability) else "mode"),
    Field(title="auto, none, or a mapping of four numbers"),
]


class Scope(StrEnum):
    """Which nodes the autoscaler may take only once Ebb has handed them over."""

    MARKED = "marked"
    EMPTY = "empty"
    """And those that hold no pods: of an autoscaler that takes no others that is all."""
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Which nodes an autoscaler may take, and when."""

    scope: Scope = Scope.EMPTY
    """It takes no node but those that Ebb hands over: among the marked ones alone, the empty ones
    too, or all."""
    guard_seconds: Annotated[int, duration()] = 900
    """How long a released node is kept from an autoscaler that evicts, at most."""
    utilization: Annotated[Fraction, SHARE] = Fraction(1, 2)
    """The autoscaler's own threshold: with `scope: marked` a node above it needs no guard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a node costs that carries all these labels."""

    node_selector: Selector
    """The first entry counts all of whose labels a node has."""
    price: Annotated[Fraction, number(positive=False)]
    """What such a node costs, in any unit; one without an entry costs 0."""


PolicySettings: Final = make_dataclass(
    "PolicySettings",
    [
        (
            one.section,
            Annotated[one.Settings, Field(description=one.Settings.__doc__)],
            field(default_factory=one.Settings),
        )
        for one in POLICIES.values()
        if one.Settings is not None
    ],
    namespace={"__module__": __name__},
    frozen=True,
    slots=True,
    kw_only=True,
)
"""Those of every policy, each in the section that it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that can be configured; the defaults are those of an empty file."""

    mode: Mode = Mode.OBSERVE
    """Nothing is written but with `enforce`."""
    policy: Annotated[str, words(POLICIES)] = next(iter(POLICIES))
    """The rule by which nodes are nominated."""
    delay_seconds: Annotated[int, duration()] = 600
    """A node goes on only after it stayed a candidate longer than this; an empty one at once."""
    thresholds: Enter = field(default_factory=Thresholds)
    """Requests over usable capacity after a removal, at most."""
    leave_thresholds: Leave = None
    """A marked node stays marked up to these; what is not said is 5 points above `thresholds`."""
    usability: UsabilityForm = UsabilityMode.AUTO
    """Which free capacity is of use: derived from the live pods, all, or by four numbers."""
    budgets: Annotated[Budgets, INLINE] = field(default_factory=Budgets)
    prices: Annotated[tuple[Price, ...], Listed(PRICES_MAX, "{nodeSelector, price}")] = ()
    """What nodes cost: the dearest go first; the first entry that matches counts."""
    policies: Annotated[
        Any,
        GetPydanticSchema(lambda _, handler: handler.generate_schema(PolicySettings)),
        Field(alias=f"{BESIDE}policies"),
    ] = field(default_factory=PolicySettings)
    """What each policy reads, that of the others too."""
    taint_key: Annotated[
        str,
        QUALIFIED_KEY,
        Field(json_schema_extra={RESTART: [CONTROLLER, WEBHOOK, EXTENDER]}),
    ] = TAINT_KEY
    """The key of the taint that a mark becomes; to change it, run `ebb release` first
    (docs/how-it-works.md)."""
    schedulers: Annotated[
        tuple[Annotated[str, SCHEDULER_NAME], ...], Listed(SCHEDULERS_MAX, "that are names")
    ] = KNOWN
    """Schedulers whose filters are kube-scheduler's own, whatever their scores: profiles of the
    cluster's kube-scheduler, say. Pods of others are not movable. A list of your own takes the
    place of this one: name `default-scheduler` too."""
    deadline_seconds: Annotated[int, duration(60)] = 24 * 3600
    """A mark that is older is released, unless its node is empty by then."""
    hard_after_seconds: Annotated[int | None, duration(never=True)] = None
    """When a soft mark becomes a hard one."""
    hand_over: HandOver = HandOver()
    """Which nodes an autoscaler may take, and when."""
    scale_in_order: ScaleInOrder = ScaleInOrder.AUTO
    """Scale-ins take pods on marked nodes first, then on those next in line: with `auto` where Ebb
    may patch pods."""
    eviction: Eviction = Eviction.DISABLED
    """With `enabled`, the pods of marked nodes are evicted, one node at a time."""
    drain: DrainConfig = field(default_factory=DrainConfig)
    """How that is done."""
    extender: Annotated[
        ExtenderConfig,
        Field(json_schema_extra={RESTART: [EXTENDER], "dependentRequired": PAIR}),
    ] = field(default_factory=ExtenderConfig)
    """What `ebb-extender` reads."""
    webhook: Annotated[
        WebhookConfig,
        Field(json_schema_extra={RESTART: [WEBHOOK], "dependentRequired": PAIR}),
    ] = field(default_factory=WebhookConfig)
    """What `ebb-webhook` reads; of the other settings it reads `taintKey` alone."""
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    """What `ebb-controller` reads beside all settings outside the sections of programs."""

    def policy_settings(self) -> Any:  # noqa: ANN401 that policy's own
        """Return what the configured policy reads."""
        return getattr(self.policies, POLICIES[self.policy].section, None)

    def node_labels(self) -> frozenset[str]:
        """Return the keys of nodes' labels that prices, pools, or any of the policies go by."""
        selectors = chain(
            (price.node_selector for price in self.prices),
            (pool.node_selector for pool in self.budgets.pools),
        )
        keys = {key for selector in selectors for key, _ in selector}
        for policy in POLICIES.values():
            keys.update(policy.node_labels(getattr(self.policies, policy.section, None)))
        return frozenset(keys)

    @property
    def hardens(self) -> bool:
        """Say whether marks may become hard."""
        return self.hard_after_seconds is not None or self.eviction is Eviction.ENABLED

    @property
    def evicts(self) -> bool:
        """Say whether pods of marked nodes are evicted."""
        return self.mode is Mode.ENFORCE and self.eviction is Eviction.ENABLED

    @property
    def publishes(self) -> bool:
        """Say whether autoscalers are told what is expected."""
        publish = self.budgets.reserve.publish
        return self.mode is Mode.ENFORCE and publish is Publish.CAPACITY_BUFFER

    def leave(self) -> Thresholds:
        """Return the thresholds over which a marked node is released."""
        return self.leave_thresholds or self.thresholds.leave()

    def thresholds_of(self, labels: Mapping[str, str]) -> Thresholds:
        """Return those of a node with these labels: its pool's, or the cluster's."""
        pool = self.budgets.pool_of(labels)
        return pool.thresholds if pool and pool.thresholds else self.thresholds

    def leave_of(self, labels: Mapping[str, str]) -> Thresholds:
        """Return those over which such a node, when it is marked, is released."""
        pool = self.budgets.pool_of(labels)
        if pool is None or not (pool.thresholds or pool.leave_thresholds):
            return self.leave()
        return pool.leave_thresholds or self.thresholds_of(labels).leave()

    def price_of(self, labels: Mapping[str, str]) -> Fraction:
        """Return the price of a node with these labels: the first entry that matches, or 0."""
        for entry in self.prices:
            if all(labels.get(key) == value for key, value in entry.node_selector):
                return entry.price
        return Fraction(0)


@with_config(ConfigDict(alias_generator=name_of, extra="forbid", use_attribute_docstrings=True))
@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A configuration file."""

    api_version: Annotated[str, words([API_VERSION])]
    """The version of this form."""
    kind: Annotated[str, words([KIND])]
    """What the file is."""
    config: Annotated[Config, INLINE]
