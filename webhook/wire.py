"""AdmissionReview v1 of Nodes: bytes to a question, taints to a JSONPatch, answer to bytes; pure.

The API server refuses the user's own write when a patch does not apply, in spite of
`failurePolicy: Ignore`. So a patch is built from the object that was sent and nothing else, has
no `test`, and names only what is there.
"""

import base64
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson

from core.depth import decoded
from core.errors import InvalidInputError
from core.marks import TAINT_KEY, desired_taints
from core.model import Node, Resources, Taint

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
KUBELETS: Final = "system:nodes"


class _Meta(msgspec.Struct, gc=False):
    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, gc=False):
    taints: list[dict[str, Any]] | None = None
    """As they were sent: others' taints go back with every field that they came with."""


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


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back, and whether it changes the Node."""

    body: bytes
    patched: bool


def review(body: bytes, taint_key: str = TAINT_KEY) -> Answer:
    """Answer an AdmissionReview: always allowed, with a patch if the taints are not as desired.

    Pure, so a dry run is answered like any other. Raises: InvalidInputError.
    """
    try:
        asked = decoded(_DECODER.decode, body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise InvalidInputError("AdmissionReview", str(fault)) from fault
    if not asked.request.uid:
        raise InvalidInputError("AdmissionReview: request.uid", "is empty; allowed: any text")
    if asked.api_version != API_VERSION or asked.kind != KIND:
        got = f"{asked.api_version} {asked.kind}"
        raise InvalidInputError("AdmissionReview", f"is {got!r}; allowed: {API_VERSION} {KIND}")
    patch = _patch(asked.request, taint_key)
    response: dict[str, Any] = {"uid": asked.request.uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(patch)).decode()
    document = {"apiVersion": API_VERSION, "kind": KIND, "response": response}
    return Answer(orjson.dumps(document), patched=bool(patch))


def _patch(request: _Request, taint_key: str) -> list[dict[str, Any]]:
    """Return the operations; none when nothing is to change or the request is not ours to change.

    NodeRestriction runs again after a webhook's change and refuses a kubelet's own request whose
    taints differ, so kubelets' updates pass as they are.
    """
    node = request.object
    if node is None or node.kind not in ("", "Node") or request.sub_resource:
        return []
    if request.operation not in ("CREATE", "UPDATE"):
        return []
    if request.operation == "UPDATE" and KUBELETS in (request.user_info.groups or ()):
        return []
    sent = (node.spec.taints if node.spec else None) or []
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
        return []
    if node.spec is None:
        return [{"op": "add", "path": "/spec", "value": {"taints": _written(after, before, sent)}}]
    # `add` on a member that exists replaces it (RFC 6902, 4.1): one operation serves both.
    return [{"op": "add", "path": "/spec/taints", "value": _written(after, before, sent)}]


def _taint(taint: dict[str, Any]) -> Taint:
    key, value, effect = (taint.get(field) or "" for field in ("key", "value", "effect"))
    return Taint(str(key), str(value), str(effect))


def _written(
    after: tuple[Taint, ...], before: tuple[Taint, ...], sent: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    as_sent = dict(zip(before, sent, strict=True))
    return [
        as_sent.get(taint) or {"key": taint.key, "value": taint.value, "effect": taint.effect}
        for taint in after
    ]
