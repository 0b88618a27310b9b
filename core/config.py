"""The versioned configuration: one value for plan, simulation and programs.

`parse` takes the mapping that the YAML holds and reports every fault at once, each with its path,
the value and what is allowed. Pure: reading files is core.edge.files.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Final, TypeGuard

from core.capacity import Usability
from core.errors import ConfigError
from core.fields import Section
from core.marks import TAINT_KEY
from core.quantity import millis, whole

API_VERSION: Final = "kube-ebb.io/v1alpha1"
KIND: Final = "EbbConfiguration"
POLICIES: Final = ("ClusterThreshold",)
PRICES_MAX: Final = 1000

_ANY: Final = re.compile(r".+")
_LISTEN: Final = re.compile(
    r"(?a)(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)"
    r":(?:6553[0-5]|655[0-2]\d|65[0-4]\d{2}|6[0-4]\d{3}|[1-5]?\d{1,4})"
)
_LISTEN_ALLOWED: Final = "host:port, the port at most 65535"
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


class UsabilityMode(StrEnum):
    """Instead of four numbers."""

    AUTO = "auto"
    NONE = "none"


class ScoreMode(StrEnum):
    """What unmarked nodes get: all the same, or more the fuller they are."""

    MARKS = "marks"
    PACK = "pack"


class AnswersMode(StrEnum):
    """Whether every node asked for is answered, or the marked ones alone."""

    FULL = "full"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Requests over usable capacity after a removal, at most; shares, exact."""

    cpu: Fraction = Fraction(4, 5)
    memory: Fraction = Fraction(4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a node costs that carries all these labels."""

    node_selector: tuple[tuple[str, str], ...]
    price: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderConfig:
    """What the extender program reads."""

    score: ScoreMode = ScoreMode.MARKS
    answers: AnswersMode = AnswersMode.FULL
    listen: str = "0.0.0.0:8888"
    cert_file: str | None = None
    """With a key: TLS, read anew when the files change; without: plain HTTP."""
    key_file: str | None = None
    client_ca_file: str | None = None
    """Callers must show a certificate of this CA."""
    stale_after_seconds: int = 180
    """A view without news (bookmarks come about once a minute) for longer answers neutrally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """What the webhook program reads."""

    listen: str = "0.0.0.0:8443"
    metrics_listen: str = "0.0.0.0:8080"
    cert_file: str | None = None
    """With a key: read anew when the files change; without: certificates of its own."""
    key_file: str | None = None
    interval_seconds: int = 10
    lease_seconds: int = 15
    """How long a leader that has died keeps the others from leading."""
    rotation_soak_seconds: int = 300
    """How long a new CA is trusted before it signs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that can be configured; the defaults are those of an empty file."""

    mode: Mode = Mode.OBSERVE
    policy: str = POLICIES[0]
    delay_seconds: int = 600
    thresholds: Thresholds = Thresholds()
    usability: Usability | UsabilityMode = UsabilityMode.AUTO
    prices: tuple[Price, ...] = ()
    taint_key: str = TAINT_KEY
    deadline_seconds: int = 24 * 3600
    """A mark that is older is released."""
    extender: ExtenderConfig = field(default_factory=ExtenderConfig)
    webhook: WebhookConfig = field(default_factory=WebhookConfig)

    def price_of(self, labels: Mapping[str, str]) -> Fraction:
        """Return the price of a node with these labels: the first entry that matches, or 0."""
        for entry in self.prices:
            if all(labels.get(key) == value for key, value in entry.node_selector):
                return entry.price
        return Fraction(0)


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
    thresholds = top.section("thresholds")
    config = Config(
        mode=top.choice("mode", new.mode),
        policy=top.word("policy", new.policy, POLICIES),
        delay_seconds=top.duration("delay", new.delay_seconds),
        thresholds=Thresholds(
            cpu=thresholds.share("cpu", new.thresholds.cpu),
            memory=thresholds.share("memory", new.thresholds.memory),
        ),
        usability=_usability(top),
        prices=_prices(top),
        taint_key=top.text("taintKey", new.taint_key, _QUALIFIED, "a qualified label key") or "",
        deadline_seconds=top.duration("deadline", new.deadline_seconds, least=60),
        extender=_extender(top.section("extender"), new.extender),
        webhook=_webhook(top.section("webhook"), new.webhook),
    )
    thresholds.close()
    top.close()
    return config


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
        selector = section.take("nodeSelector")
        if not _is_selector(selector):
            section.fault("nodeSelector", "a mapping with at least one label, text to text")
            selector = {}
        price = section.number("price", positive=False)
        prices.append(Price(node_selector=tuple(sorted(selector.items())), price=price))
        section.close()
    return tuple(prices)


def _is_selector(value: object) -> TypeGuard[dict[str, str]]:
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())
    )


def _extender(section: Section, new: ExtenderConfig) -> ExtenderConfig:
    config = ExtenderConfig(
        score=section.choice("score", new.score),
        answers=section.choice("answers", new.answers),
        listen=section.text("listen", new.listen, _LISTEN, _LISTEN_ALLOWED) or "",
        cert_file=section.text("certFile", None, _ANY, "a path"),
        key_file=section.text("keyFile", None, _ANY, "a path"),
        client_ca_file=section.text("clientCAFile", None, _ANY, "a path"),
        stale_after_seconds=section.duration("staleAfter", new.stale_after_seconds, least=1),
    )
    if config.answers is AnswersMode.COMPACT and config.score is not ScoreMode.MARKS:
        section.fault_at("answers", "compact", "full, because score: pack scores every node")
    _check_pair(section, config.cert_file, config.key_file)
    if config.client_ca_file is not None and config.cert_file is None:
        section.fault_at("clientCAFile", config.client_ca_file, "only beside certFile and keyFile")
    section.close()
    return config


def _webhook(section: Section, new: WebhookConfig) -> WebhookConfig:
    config = WebhookConfig(
        listen=section.text("listen", new.listen, _LISTEN, _LISTEN_ALLOWED) or "",
        metrics_listen=section.text("metricsListen", new.metrics_listen, _LISTEN, _LISTEN_ALLOWED)
        or "",
        cert_file=section.text("certFile", None, _ANY, "a path"),
        key_file=section.text("keyFile", None, _ANY, "a path"),
        interval_seconds=section.duration("interval", new.interval_seconds, least=1),
        lease_seconds=section.duration("leaseDuration", new.lease_seconds, least=3),
        rotation_soak_seconds=section.duration("rotationSoak", new.rotation_soak_seconds, least=5),
    )
    _check_pair(section, config.cert_file, config.key_file)
    section.close()
    return config


def _check_pair(section: Section, cert_file: str | None, key_file: str | None) -> None:
    if (cert_file is None) != (key_file is None):
        section.fault_at("certFile", cert_file, "certFile and keyFile together, or neither")
