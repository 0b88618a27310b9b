"""The versioned configuration: one value for plan, simulation and programs.

`parse` takes the mapping that the YAML holds and reports every fault at once, each with its path,
the value and what is allowed. Pure: reading files is core.edge.files.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Final

from core.capacity.usable import Usability
from core.config.budgets import Budgets, read_budgets, read_selector
from core.config.fields import Section
from core.config.programs import ExtenderConfig, WebhookConfig, read_extender, read_webhook
from core.config.thresholds import Thresholds, read_enter, read_leave
from core.errors import ConfigError
from core.marks.keys import TAINT_KEY
from core.model.quantity import millis, whole
from core.policies.all import POLICIES

API_VERSION: Final = "kube-ebb.io/v1alpha1"
KIND: Final = "EbbConfiguration"
PRICES_MAX: Final = 1000

_DNS_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_QUALIFIED: Final = re.compile(
    rf"(?:(?=[^/]{{1,253}}/){_DNS_LABEL}(?:\.{_DNS_LABEL})*/)?"
    r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
"""What Kubernetes takes for a label's or a taint's key."""


class Mode(StrEnum):
    """Whether anything is written."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


class ScaleInOrder(StrEnum):
    """Whether a scale-in takes pods on marked nodes first."""

    DISABLED = "disabled"
    ENABLED = "enabled"


class UsabilityMode(StrEnum):
    """Instead of four numbers."""

    AUTO = "auto"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """How a released node is kept from an autoscaler that evicts."""

    guard_seconds: int = 900
    utilization: Fraction = Fraction(1, 2)
    """The autoscaler's own threshold: a node above it needs no guard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a node costs that carries all these labels."""

    node_selector: tuple[tuple[str, str], ...]
    price: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that can be configured; the defaults are those of an empty file."""

    mode: Mode = Mode.OBSERVE
    policy: str = next(iter(POLICIES))
    delay_seconds: int = 600
    thresholds: Thresholds = field(default_factory=Thresholds)
    leave_thresholds: Thresholds | None = None
    """A marked node stays marked up to these; None: see `leave`."""
    usability: Usability | UsabilityMode = UsabilityMode.AUTO
    budgets: Budgets = field(default_factory=Budgets)
    prices: tuple[Price, ...] = ()
    taint_key: str = TAINT_KEY
    deadline_seconds: int = 24 * 3600
    """A mark that is older is released."""
    hard_after_seconds: int | None = None
    """When a soft mark becomes a hard one; None: never."""
    hand_over: HandOver = HandOver()
    scale_in_order: ScaleInOrder = ScaleInOrder.DISABLED
    extender: ExtenderConfig = field(default_factory=ExtenderConfig)
    webhook: WebhookConfig = field(default_factory=WebhookConfig)

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


def restart_needed(before: Config, after: Config) -> list[str]:
    """Return the fields that differ and that the webhook reads once, when it starts."""
    old, new = before.webhook, after.webhook
    fixed = {
        "webhook.listen": (old.listen, new.listen),
        "webhook.metricsListen": (old.metrics_listen, new.metrics_listen),
        "webhook.certFile": (old.cert_file, new.cert_file),
        "webhook.keyFile": (old.key_file, new.key_file),
        "webhook.leaseDuration": (old.lease_seconds, new.lease_seconds),
        "webhook.rotationSoak": (old.rotation_soak_seconds, new.rotation_soak_seconds),
        "taintKey": (before.taint_key, after.taint_key),
    }
    return [name for name, (was, is_now) in fixed.items() if was != is_now]


def parse(document: object, source: str) -> Config:
    """Read a configuration.

    Raises: ConfigError with all faults.
    """
    reader = Section(document, "", source, [])
    config = _config(reader)
    if reader.faults:
        raise ConfigError(source, reader.faults)
    return config


def _config(top: Section) -> Config:
    if top.take("apiVersion") != API_VERSION:
        top.fault("apiVersion", API_VERSION)
    if top.take("kind") != KIND:
        top.fault("kind", KIND)
    new = Config()
    enter = read_enter(top, new.thresholds) or new.thresholds
    hand_over = top.section("handOver")
    config = Config(
        mode=top.choice("mode", new.mode),
        policy=top.word("policy", new.policy, tuple(POLICIES)),
        delay_seconds=top.duration("delay", new.delay_seconds),
        thresholds=enter,
        leave_thresholds=read_leave(top, enter),
        usability=_usability(top),
        budgets=read_budgets(top, enter),
        prices=_prices(top),
        taint_key=top.text("taintKey", new.taint_key, _QUALIFIED, "a qualified label key") or "",
        deadline_seconds=top.duration("deadline", new.deadline_seconds, least=60),
        hard_after_seconds=_hard_after(top),
        hand_over=HandOver(
            guard_seconds=hand_over.duration("guard", new.hand_over.guard_seconds),
            utilization=hand_over.share("utilization", new.hand_over.utilization),
        ),
        scale_in_order=top.choice("scaleInOrder", new.scale_in_order),
        extender=read_extender(top.section("extender"), new.extender),
        webhook=read_webhook(top.section("webhook"), new.webhook),
    )
    hand_over.close()
    top.close()
    return config


def _hard_after(top: Section) -> int | None:
    if top.take("hardAfter") in (None, "never"):
        return None
    return top.duration("hardAfter", 0)


def _usability(top: Section) -> Usability | UsabilityMode:
    given = top.take("usability")
    if given is None:
        return UsabilityMode.AUTO
    if isinstance(given, str) and given in tuple(UsabilityMode):
        return UsabilityMode(given)
    if not isinstance(given, dict):
        top.fault("usability", "auto, none, or a mapping of four numbers")
        return UsabilityMode.AUTO
    section = Section(given, "usability.", top.source, top.faults)
    usability = Usability(
        min_cpu_millis=section.quantity("minCPU", millis),
        min_memory_bytes=section.quantity("minMemory", whole),
        max_cpu_per_gb=section.number("maxCPUPerGB", positive=True),
        max_gb_per_cpu=section.number("maxGBPerCPU", positive=True),
    )
    section.close()
    return usability


def _prices(top: Section) -> tuple[Price, ...]:
    entries = top.take("prices")
    if entries is None:
        return ()
    if not isinstance(entries, list) or len(entries) > PRICES_MAX:
        top.fault("prices", f"a list of at most {PRICES_MAX} entries {{nodeSelector, price}}")
        return ()
    prices = []
    for number, entry in enumerate(entries):
        section = Section(entry, f"prices[{number}].", top.source, top.faults)
        selector = read_selector(section)
        price = section.number("price", positive=False)
        prices.append(Price(node_selector=selector, price=price))
        section.close()
    return tuple(prices)
