"""Settings of single programs; each program reads its own section only."""

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, ValidationInfo

from core.setting_types.value_types import duration, not_allowed, text, words

Path = Annotated[str, text(r"[^\n]+", "a path")]

BESIDE: Final = {"clientCAFile": ["certDir"]}
"""Fields of the extender that require others, for the JSON Schema keyword dependentRequired."""
SCORE_NAMES: Final = ("pack", "marks")
"""Scoring rules of the extender; the first is the default."""


def _beside_cert(client_ca_file: str | None, info: ValidationInfo) -> str | None:
    if "cert_dir" in info.data and info.data["cert_dir"] is None:
        raise not_allowed("a path, if extender.certDir is set too")
    return client_ca_file


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderConfig:
    """Settings of `ebb-extender`, which scores nodes for kube-scheduler."""

    score: Annotated[str, words(SCORE_NAMES)] = SCORE_NAMES[0]
    """How unmarked nodes are scored; marked nodes always score lower. `pack` prefers fuller nodes,
    and nodes without GPUs or other costly resources that the pod does not need. It also prefers to
    place pods of ReplicaSets together, and other pods together. `marks` scores all unmarked nodes
    equally. Set it to `marks` if kube-scheduler's own scores must decide between unmarked
    nodes."""
    cert_dir: Path | None = None
    """Directory with `tls.crt` and `tls.key`, such as a mounted Secret of the type
    `kubernetes.io/tls`. With it the extender serves TLS, and reloads the files when they change.
    Without it the extender serves plain HTTP. Set it where kube-scheduler must call the extender
    by TLS."""
    client_ca_file: Annotated[Path | None, AfterValidator(_beside_cert)] = None
    """CA of client certificates. With it, callers must present a certificate of this CA. Set it
    if nobody but kube-scheduler may call the extender."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """Settings of `ebb-webhook`, which sets the taints of marked Nodes."""

    cert_dir: Path | None = None
    """Directory with `tls.crt` and `tls.key`, such as a mounted Secret of the type
    `kubernetes.io/tls`. With it the webhook serves this certificate, and reloads the files when
    they change. Without it the webhook creates and rotates its own certificates. Set it where
    certificates must come from your own issuer, such as cert-manager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Settings of `ebb-controller`, which plans and marks nodes."""

    interval_seconds: Annotated[int, duration(1)] = 10
    """Time between the end of a reconciliation and the start of the next one. Raise it if
    `ebb-controller` uses too much CPU in a large cluster."""
