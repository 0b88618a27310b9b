"""The sections of the programs: each program reads its own and ignores those of the others."""

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, Field, ValidationInfo

from core.fields.structure import AT_CONTROLLER_START, refused
from core.fields.value_types import duration, not_allowed, text, words

Address = Annotated[
    str,
    text(
        r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)"
        r":(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5]?[0-9]{1,4})",
        "host:port, the port at most 65535",
    ),
]
File = Annotated[str, text(r"[^\n]+", "a path")]

PAIR: Final = {"certFile": ["keyFile"], "keyFile": ["certFile"], "clientCAFile": ["certFile"]}
"""What stands only beside what, in JSON Schema's words."""
SCORE_NAMES: Final = ("pack", "marks")
"""Scores of the extender; the first one is the default."""


def _paired(cert_file: str | None, info: ValidationInfo) -> str | None:
    if "key_file" in info.data and (cert_file is None) != (info.data["key_file"] is None):
        # By its name, which pydantic leaves out where the field is missing.
        raise refused([("certFile", cert_file, "certFile and keyFile together, or neither")])
    return cert_file


def _beside_cert(client_ca_file: str | None, info: ValidationInfo) -> str | None:
    if "cert_file" in info.data and info.data["cert_file"] is None:
        raise not_allowed("only beside certFile and keyFile")
    return client_ca_file


def _free_of_listen(metrics_listen: str, info: ValidationInfo) -> str:
    # Port 0 is any that is free, for each another.
    if metrics_listen == info.data.get("listen") and not metrics_listen.endswith(":0"):
        # By its name, which pydantic leaves out where the field is missing.
        raise refused([("metricsListen", metrics_listen, "another host:port than webhook.listen")])
    return metrics_listen


CertFile = Annotated[File | None, AfterValidator(_paired), Field(validate_default=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderConfig:
    """What the extender program reads."""

    score: Annotated[str, words(SCORE_NAMES)] = SCORE_NAMES[0]
    """Unmarked nodes get more the fuller they are, the less of their worth a new pod takes, and
    where pods are as it is, of ReplicaSets or not (`pack`); or all the same score (`marks`)."""
    listen: Address = "[::]:8888"
    """Where kube-scheduler's calls and the probes are answered; `[::]` is every address, of IPv4
    too."""
    key_file: File | None = None
    """The key of `certFile`; read anew when the file changes."""
    cert_file: CertFile = None
    """With a key: TLS, read anew when the file changes; without: plain HTTP."""
    client_ca_file: Annotated[File | None, AfterValidator(_beside_cert)] = None
    """Who asks for scores must show a certificate of this CA."""
    stale_after_seconds: Annotated[int, duration(1)] = 180
    """A view without news (bookmarks come about once a minute) for longer answers neutrally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """What the webhook program reads."""

    listen: Address = "[::]:8443"
    """Where the API server's calls are answered; `[::]` is every address, of IPv4 too."""
    metrics_listen: Annotated[
        Address, AfterValidator(_free_of_listen), Field(validate_default=True)
    ] = "[::]:8080"
    """Where probes and metrics are answered; `[::]` is every address, of IPv4 too."""
    key_file: File | None = None
    """The key of `certFile`; read anew when the file changes."""
    cert_file: CertFile = None
    """With a key: read anew when the file changes; without: certificates of its own."""
    rotation_soak_seconds: Annotated[int, duration(5)] = 300
    """How long a replica sees a new CA in every caBundle before that CA signs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """What the controller program reads."""

    interval_seconds: Annotated[int, duration(1)] = 10
    """How long after a pass the next one begins."""
    lease_seconds: Annotated[
        int, duration(3), Field(alias="leaseDuration"), AT_CONTROLLER_START
    ] = 15
    """How long a leader that has died keeps the others from leading."""
    metrics_listen: Annotated[Address, AT_CONTROLLER_START] = "[::]:8081"
    """Where probes and metrics are answered; `[::]` is every address, of IPv4 too."""
