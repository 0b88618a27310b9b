"""Settings of single programs; each program reads its own section only."""

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, Field, ValidationInfo

from core.setting_types.structure import AT_CONTROLLER_START, refused
from core.setting_types.value_types import duration, not_allowed, text, whole_number, words

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
"""Fields that require other fields, for the JSON Schema keyword dependentRequired."""
PORT_MAX: Final = 65_535
SCORE_NAMES: Final = ("pack", "marks")
"""Scoring rules of the extender; the first is the default."""


def _paired(cert_file: str | None, info: ValidationInfo) -> str | None:
    if "key_file" in info.data and (cert_file is None) != (info.data["key_file"] is None):
        # Name the field: pydantic leaves the name out if the field is missing.
        raise refused([("certFile", cert_file, "certFile and keyFile together, or neither")])
    return cert_file


def _beside_cert(client_ca_file: str | None, info: ValidationInfo) -> str | None:
    if "cert_file" in info.data and info.data["cert_file"] is None:
        raise not_allowed("only beside certFile and keyFile")
    return client_ca_file


def _free_of_listen(metrics_listen: str, info: ValidationInfo) -> str:
    # Port 0 selects any free port, so two listeners never conflict.
    if metrics_listen == info.data.get("listen") and not metrics_listen.endswith(":0"):
        # Name the field: pydantic leaves the name out if the field is missing.
        raise refused([("metricsListen", metrics_listen, "another host:port than webhook.listen")])
    return metrics_listen


CertFile = Annotated[File | None, AfterValidator(_paired), Field(validate_default=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderConfig:
    """Settings of `ebb-extender`, which scores nodes for kube-scheduler."""

    score: Annotated[str, words(SCORE_NAMES)] = SCORE_NAMES[0]
    """How unmarked nodes are scored; marked nodes always score lower. `pack` prefers fuller nodes,
    and nodes without GPUs or other costly resources that the pod does not need. It also prefers to
    place pods of ReplicaSets together, and other pods together. `marks` scores all unmarked nodes
    equally."""
    listen: Address = "[::]:8888"
    """Address for calls of kube-scheduler and for probes. `[::]` is every address, IPv4
    included."""
    key_file: File | None = None
    """Private key of `certFile`; it is reloaded when the file changes."""
    cert_file: CertFile = None
    """With a certificate the extender serves TLS and reloads the file when it changes. Without one
    it serves plain HTTP."""
    client_ca_file: Annotated[File | None, AfterValidator(_beside_cert)] = None
    """CA of client certificates. With it, callers must present a certificate of this CA."""
    stale_after_seconds: Annotated[int, duration(1)] = 180
    """If a watch receives nothing for this long, all nodes get the same score. Bookmarks arrive
    about once a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """Settings of `ebb-webhook`, which sets the taints of marked Nodes."""

    listen: Address = "[::]:8443"
    """Address for calls of the API server. `[::]` is every address, IPv4 included."""
    metrics_listen: Annotated[
        Address, AfterValidator(_free_of_listen), Field(validate_default=True)
    ] = "[::]:8080"
    """Address for probes and metrics. `[::]` is every address, IPv4 included."""
    key_file: File | None = None
    """Private key of `certFile`; it is reloaded when the file changes."""
    cert_file: CertFile = None
    """With a certificate the webhook serves it and reloads the file when it changes. Without one
    it creates and rotates its own certificates."""
    rotation_soak_seconds: Annotated[int, duration(5)] = 300
    """Time for which a replica must see a new CA in every caBundle before this CA signs
    certificates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Settings of `ebb-controller`, which plans and marks nodes."""

    interval_seconds: Annotated[int, duration(1)] = 10
    """Time between the end of a reconciliation and the start of the next one."""
    lease_seconds: Annotated[
        int, duration(3), Field(alias="leaseDuration"), AT_CONTROLLER_START
    ] = 15
    """Time after which another replica takes over from a leader that has died."""
    metrics_listen: Annotated[Address, AT_CONTROLLER_START] = "[::]:8081"
    """Address for probes and metrics. `[::]` is every address, IPv4 included."""
    report_port: Annotated[int, whole_number(0, PORT_MAX), AT_CONTROLLER_START] = 8082
    """Port on 127.0.0.1 at which `ebb` reads, through a port-forward, what only the leader knows.
    With 0, any free port is used, which `ebb` cannot find."""
