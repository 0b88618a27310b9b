"""What the two programs read of the configuration: addresses, certificates, answers, intervals."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from core.config.fields import Section

_ANY: Final = re.compile(r".+")
_LISTEN: Final = re.compile(
    r"(?a)(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)"
    r":(?:6553[0-5]|655[0-2]\d|65[0-4]\d{2}|6[0-4]\d{3}|[1-5]?\d{1,4})"
)
_LISTEN_ALLOWED: Final = "host:port, the port at most 65535"


class ScoreMode(StrEnum):
    """What unmarked nodes get: all the same, or more the fuller they are."""

    MARKS = "marks"
    PACK = "pack"


class AnswersMode(StrEnum):
    """Whether every node asked for is answered, or the marked ones alone."""

    FULL = "full"
    COMPACT = "compact"


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


def read_extender(section: Section, new: ExtenderConfig) -> ExtenderConfig:
    """Read the section `extender`."""
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


def read_webhook(section: Section, new: WebhookConfig) -> WebhookConfig:
    """Read the section `webhook`."""
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
