"""AdmissionReview v1: bytes to a value, a value to bytes. Pure.

The patch is built from the object that was sent and from nothing else: a patch that does not
apply makes the API server refuse the write in spite of `failurePolicy: Ignore`. Hence no `test`,
no `remove`, no list indexes: the whole list of taints, added where there was none, else replaced.
Source: k8s.io/api admission/v1; apiserver pkg/admission/plugin/webhook/mutating/dispatcher.go.
"""

import base64
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson

from core.errors import InvalidInputError
from core.model import Node
from webhook.taints import changed_taints, marked_node

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
REVIEW_BYTES_MAX: Final = 8 * 1024 * 1024
"""A review holds the object twice; the API server's own limit for one is 3 MiB."""
KUBELETS: Final = "system:nodes"
"""A change of ours to a kubelet's own UPDATE would be refused by NodeRestriction, and with it the
kubelet's write."""


class _Meta(msgspec.Struct, gc=False):
    name: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, gc=False):
    taints: list[dict[str, Any]] | None = None


class _Object(msgspec.Struct, gc=False):
    kind: str = "Node"
    metadata: _Meta | None = None
    spec: _Spec | None = None


class _User(msgspec.Struct, gc=False):
    groups: list[str] | None = None


class _GroupVersionKind(msgspec.Struct, gc=False):
    group: str = ""
    kind: str = "Node"


class _Request(msgspec.Struct, gc=False, rename="camel"):
    uid: str
    operation: str
    kind: _GroupVersionKind = msgspec.field(default_factory=_GroupVersionKind)
    sub_resource: str | None = None
    name: str | None = None
    user_info: _User | None = None
    dry_run: bool | None = None
    object: _Object | None = None


class _Review(msgspec.Struct, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


_DECODER: Final = msgspec.json.Decoder(_Review)


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """One question of the API server about one Node."""

    uid: str
    operation: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    dry_run: bool
    """The answer does not depend on it; it is here to be counted."""
    node: Node | None
    """The object sent, as far as it matters; None: none was, or it must not be touched."""
    has_spec: bool
    raw_taints: tuple[dict[str, Any], ...] | None
    """spec.taints as sent; None: there is no such field."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply's body, and whether it changes the Node."""

    body: bytes
    mutated: bool


def decode_review(body: bytes) -> Review:
    """Read an AdmissionReview v1 about a Node.

    Raises: InvalidInputError when it is malformed, of another kind or version, or not on a Node.
    """
    try:
        found = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise InvalidInputError(KIND, str(fault)) from fault
    request = _request(found)
    touched = request.object if _may_touch(request) else None
    spec = touched.spec if touched is not None else None
    raw = tuple(spec.taints) if spec is not None and spec.taints is not None else None
    return Review(
        uid=request.uid,
        operation=request.operation,
        dry_run=request.dry_run is True,
        node=_node(request, touched, raw or ()) if touched is not None else None,
        has_spec=spec is not None,
        raw_taints=raw,
    )


def answer(review: Review, taint_key: str) -> Answer:
    """Allow the request, with the taint that the mark asks for, or without the one it does not."""
    operation = _operation(review, taint_key)
    response: dict[str, Any] = {"uid": review.uid, "allowed": True}
    if operation is not None:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps([operation])).decode("ascii")
    body = orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})
    return Answer(body, operation is not None)


def _operation(review: Review, taint_key: str) -> dict[str, Any] | None:
    if review.node is None:
        return None
    taints = changed_taints(review.node, review.raw_taints or (), taint_key)
    if taints is None:
        return None
    if not review.has_spec:
        return {"op": "add", "path": "/spec", "value": {"taints": taints}}
    verb = "add" if review.raw_taints is None else "replace"
    return {"op": verb, "path": "/spec/taints", "value": taints}


def _request(found: _Review) -> _Request:
    if found.api_version != API_VERSION or found.kind != KIND:
        got = f"{found.api_version or 'no apiVersion'}, {found.kind or 'no kind'}"
        raise InvalidInputError(KIND, f"{got}; allowed: {API_VERSION}, {KIND}")
    if found.request is None or not found.request.uid:
        raise InvalidInputError(KIND, "request.uid is missing")
    asked, sent = found.request.kind, found.request.object
    if asked.group or asked.kind != "Node" or (sent is not None and sent.kind != "Node"):
        raise InvalidInputError(KIND, "the object is no core/v1 Node; nothing else is judged here")
    return found.request


def _may_touch(request: _Request) -> bool:
    """Say whether the answer may change the object at all."""
    if request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
        return False
    groups = (request.user_info and request.user_info.groups) or ()
    return request.operation == "CREATE" or KUBELETS not in groups


def _node(request: _Request, touched: _Object, raw: tuple[dict[str, Any], ...]) -> Node:
    meta = touched.metadata or _Meta()
    name = meta.name or request.name or ""
    return marked_node(name, meta.labels or {}, meta.annotations or {}, raw)
