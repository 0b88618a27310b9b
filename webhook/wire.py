"""Answer AdmissionReviews of Nodes with a JSONPatch of the taints; pure.

Source: k8s.io/api/admission/v1, RFC 6902.
"""

# If a patch does not apply, the API server rejects the user's write, in spite of
# `failurePolicy: Ignore`. So a patch depends on nothing but the object in the review, has no
# `test` operation, and changes only fields that exist. Taints of others stay byte for byte.

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson

from core.edge.decode.fields import FAULTS
from core.edge.decode.json_depth import decoded
from core.marks.taints import desired_taints
from core.model.errors import InvalidInputError
from core.model.node import Node, Taint
from core.model.resources import Resources

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
KUBELETS: Final = "system:nodes"


class _Meta(msgspec.Struct, gc=False):
    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, gc=False):
    taints: list[msgspec.Raw] | None = None
    """Taints as JSON, so that taints of others keep every field in the patch."""


class _Taint(msgspec.Struct, gc=False):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class _Object(msgspec.Struct, gc=False):
    kind: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec | None = None


class _User(msgspec.Struct, gc=False):
    groups: list[str] | None = None


class _Request(msgspec.Struct, gc=False, rename="camel"):
    uid: str
    operation: str = ""
    sub_resource: str = ""
    user_info: _User = msgspec.field(default_factory=_User)
    object: _Object | None = None


class _Review(msgspec.Struct, gc=False, rename="camel"):
    request: _Request
    api_version: str = ""
    kind: str = ""


_DECODER: Final = msgspec.json.Decoder(_Review)
_TAINT: Final = msgspec.json.Decoder(_Taint)
GOT_CHARACTERS_MAX: Final = 60
"""Maximum length of an unknown kind in the error message and the log."""
STEPS_MAX: Final = 60_000
"""Maximum number of steps to remove JSON that is nested too deeply, about 50 ms.

Any pod may be able to send a review, and the event loop waits meanwhile. The review of an update
contains the Node twice, as `object` and `oldObject`. Two Nodes nested as deeply as the API server
accepts (10,000) need 40,000 steps. A review beyond the limit is rejected, and the controller
writes the taint."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an AdmissionReview."""

    body: bytes
    patched: bool
    """Whether the answer changes the Node."""


def review(body: bytes, taint_key: str) -> Answer:
    """Answer an AdmissionReview: always allowed, with a patch if the taints do not match the mark.

    The answer has no side effects, so a dry run is answered like any other request.
    Raises: InvalidInputError.
    """
    try:
        asked = decoded(_DECODER.decode, body, STEPS_MAX)
        patch = _patch(asked.request, taint_key)
    except FAULTS as fault:
        raise InvalidInputError("AdmissionReview", str(fault)) from fault
    if not asked.request.uid:
        raise InvalidInputError("AdmissionReview: request.uid", "is empty; allowed: a UID")
    if asked.api_version != API_VERSION or asked.kind != KIND:
        got = f"{asked.api_version} {asked.kind}"[:GOT_CHARACTERS_MAX]
        raise InvalidInputError("AdmissionReview", f"is {got!r}; allowed: {API_VERSION} {KIND}")
    response: dict[str, Any] = {"uid": asked.request.uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(patch).decode()
    document = {"apiVersion": API_VERSION, "kind": KIND, "response": response}
    return Answer(orjson.dumps(document), patched=bool(patch))


def _patch(request: _Request, taint_key: str) -> bytes | None:
    """Return the JSONPatch, or None if the request must not or need not change.

    Raises: msgspec.DecodeError, UnicodeDecodeError.
    """
    node = request.object
    if node is None or node.kind not in ("", "Node") or request.sub_resource:
        return None
    if request.operation not in ("CREATE", "UPDATE"):
        return None
    # NodeRestriction runs again after a webhook has changed an object. It rejects an update by a
    # kubelet that changes the taints of its Node.
    if request.operation == "UPDATE" and KUBELETS in (request.user_info.groups or ()):
        return None
    sent = [bytes(taint) for taint in (node.spec.taints if node.spec else None) or ()]
    before = tuple(_taint(taint) for taint in sent)
    after = desired_taints(
        Node(
            name=node.metadata.name,
            labels=node.metadata.labels or {},
            annotations=node.metadata.annotations or {},
            taints=before,
            allocatable=Resources(),
        ),
        taint_key,
    )
    if after == before:
        return None
    taints = b",".join(_written(after, before, sent, taint_key))
    if node.spec is None:
        return b'[{"op":"add","path":"/spec","value":{"taints":[%b]}}]' % taints
    # `add` on a member that exists replaces it (RFC 6902, 4.1): one operation serves both.
    return b'[{"op":"add","path":"/spec/taints","value":[%b]}]' % taints


def _taint(sent: bytes) -> Taint:
    sent.decode()  # msgspec does not validate UTF-8 in fields that it skips
    taint = _TAINT.decode(sent)
    return Taint(taint.key or "", taint.value or "", taint.effect or "")


def _written(
    after: Iterable[Taint], before: Iterable[Taint], sent: Sequence[bytes], taint_key: str
) -> Iterator[bytes]:
    """Yield the taints as JSON: those of others, and a correct one of Ebb, as they were sent."""
    pairs = list(zip(before, sent, strict=True))
    others = (written for taint, written in pairs if taint.key != taint_key)
    ours = {taint: written for taint, written in pairs if taint.key == taint_key}
    for taint in after:
        if taint.key != taint_key:
            yield next(others)
        else:
            yield ours.get(taint) or orjson.dumps(
                {"key": taint.key, "value": taint.value, "effect": taint.effect}
            )
