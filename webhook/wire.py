"""Answer AdmissionReviews of Nodes with a JSONPatch of the taints; pure.

Source: k8s.io/api/admission/v1, RFC 6902.
"""

# If a patch does not apply, the API server rejects the user's write, in spite of
# `failurePolicy: Ignore`. So a patch depends on nothing but the object in the review, has no
# `test` operation, and changes only fields that exist. Taints of others stay byte for byte.

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
import orjson

from core.marks.taints import desired_taints
from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL
from core.model.errors import InvalidInputError
from core.model.node import Node, Taint
from core.model.resources import Resources
from kube.decode.field_decoding import DECODE_ERRORS, NULL, ApiName, BoundedField
from kube.decode.json_depth import decoded
from kube.decode.objects import keyed

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
KUBELETS: Final = "system:nodes"
_OBJECT: Final = "AdmissionReview: request.object"
_USER_INFO: Final = "AdmissionReview: request.userInfo"


TAINTS: Final = BoundedField[list[msgspec.Raw]](
    list[msgspec.Raw], bytes_max=64 * 1024, items_max=1024
)
"""Limit on taints. A review with more is rejected, and the controller writes the taint."""
GROUPS: Final = BoundedField[list[str]](list[str], bytes_max=256 * 1024)


class _Labels(msgspec.Struct, gc=False):
    mark: str | None = keyed(MARK_LABEL)


class _Annotations(msgspec.Struct, gc=False):
    details: str | None = keyed(DETAILS_ANNOTATION)


class _Meta(msgspec.Struct, gc=False):
    name: ApiName = ""
    labels: _Labels | None = None
    annotations: _Annotations | None = None


class _Spec(msgspec.Struct, gc=False):
    taints: Annotated[msgspec.Raw, TAINTS] = NULL
    """Taints as JSON, so that taints of others keep every field in the patch."""


class _Taint(msgspec.Struct, gc=False):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class _Object(msgspec.Struct, gc=False):
    kind: ApiName = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec | None = None


class _User(msgspec.Struct, gc=False):
    groups: Annotated[msgspec.Raw, GROUPS] = NULL


class _Request(msgspec.Struct, gc=False, rename="camel"):
    uid: ApiName
    operation: ApiName = ""
    sub_resource: ApiName = ""
    user_info: _User = msgspec.field(default_factory=_User)
    object: _Object | None = None


class Review(msgspec.Struct, gc=False, rename="camel"):
    """An AdmissionReview, with the fields that the answer depends on."""

    request: _Request
    api_version: ApiName = ""
    kind: ApiName = ""


_DECODER: Final = msgspec.json.Decoder(Review)
_TAINT: Final = msgspec.json.Decoder(_Taint)
GOT_CHARACTERS_MAX: Final = 60
"""Maximum length of an unknown kind in the error message and the log."""
STEPS_MAX: Final = 45_000
"""Maximum number of steps to remove JSON that is nested too deeply, about 40 ms.

Any pod may be able to send a review, and the event loop waits meanwhile. The review of an update
contains the Node twice, as `object` and `oldObject`. Two Nodes nested as deeply as the API server
accepts (10,000) need 40,000 steps. A review beyond the limit is rejected, and the controller
writes the taint."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an AdmissionReview: its JSON, and whether it changes the Node."""

    body: bytes
    patched: bool
    """Whether the answer changes the Node."""


def review(body: bytes, taint_key: str) -> Answer:
    """Answer an AdmissionReview of a Node: allow it, and patch taints that contradict the mark.

    *body*: the review as JSON. *taint_key*: key of the taint that Ebb sets. The answer has no side
    effects, so a dry run is answered like any other request. Raises: InvalidInputError.
    """
    try:
        admission = decoded(_DECODER.decode, body, STEPS_MAX)
        patch = _patch(admission.request, taint_key)
    except DECODE_ERRORS as fault:
        raise InvalidInputError("AdmissionReview", str(fault)) from fault
    if not admission.request.uid:
        raise InvalidInputError("AdmissionReview: request.uid", "is empty; allowed: a UID")
    if admission.api_version != API_VERSION or admission.kind != KIND:
        got = f"{admission.api_version} {admission.kind}"[:GOT_CHARACTERS_MAX]
        raise InvalidInputError("AdmissionReview", f"is {got!r}; allowed: {API_VERSION} {KIND}")
    response: dict[str, Any] = {"uid": admission.request.uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(patch).decode()
    document = {"apiVersion": API_VERSION, "kind": KIND, "response": response}
    return Answer(orjson.dumps(document), patched=bool(patch))


def _patch(request: _Request, taint_key: str) -> bytes | None:
    """Return a JSONPatch that adapts the taints of the Node to its mark; None for no patch.

    None means that the taints are right, or that the webhook must not change the request: it is
    not a create or update of a Node, or it is an update by a kubelet. Raises: msgspec.DecodeError,
    UnicodeDecodeError, InvalidInputError.
    """
    node = request.object
    if node is None or node.kind not in ("", "Node") or request.sub_resource:
        return None
    if request.operation not in ("CREATE", "UPDATE"):
        return None
    # NodeRestriction runs again after a webhook has changed an object. It would reject an update
    # by a kubelet if this webhook added a change of the taints.
    if request.operation == "UPDATE":
        groups = GROUPS.decode(request.user_info.groups, f"{_USER_INFO}.groups") or ()
        if KUBELETS in groups:
            return None
    taints = TAINTS.decode(node.spec.taints, f"{_OBJECT}.spec.taints") if node.spec else ()
    sent = [bytes(taint) for taint in taints or ()]
    before = tuple(_taint(taint) for taint in sent)
    labels, annotations = node.metadata.labels, node.metadata.annotations
    after = desired_taints(
        Node(
            name=node.metadata.name,
            labels=_texts(MARK_LABEL, labels.mark if labels else None),
            annotations=_texts(DETAILS_ANNOTATION, annotations.details if annotations else None),
            taints=before,
            allocatable=Resources(),
        ),
        taint_key,
    )
    if after == before:
        return None
    written = b",".join(_written(after, before, sent, taint_key))
    if node.spec is None:
        return b'[{"op":"add","path":"/spec","value":{"taints":[%b]}}]' % written
    # `add` on a member that exists replaces it (RFC 6902, 4.1): one operation serves both.
    return b'[{"op":"add","path":"/spec/taints","value":[%b]}]' % written


def _texts(key: str, value: str | None) -> dict[str, str]:
    return {} if value is None else {key: value}


def _taint(sent: bytes) -> Taint:
    sent.decode()  # msgspec does not validate UTF-8 in fields that it skips
    taint = _TAINT.decode(sent)
    return Taint(taint.key or "", taint.value or "", taint.effect or "")


def _written(
    after: Iterable[Taint], before: Iterable[Taint], sent: Sequence[bytes], taint_key: str
) -> Iterator[bytes]:
    """Yield the JSON of each taint in *after*, as it was sent if possible.

    *sent*: the JSON of each taint in *before*. Only a missing or wrong taint of Ebb (with
    *taint_key*) gets new JSON, so taints of others keep all fields.
    """
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
