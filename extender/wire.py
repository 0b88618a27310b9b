"""Decode and encode the messages of kube-scheduler's extender API; pure.

Source: k8s.io/kube-scheduler extender/v1. The Go types have no JSON tags, so field names are
capitalized on the wire. Go accepts other casing, and so does this module.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from core.model.errors import InvalidInputError
from core.model.pod import Pod
from core.model.resources import Resources
from kube.decode.field_decoding import DECODE_ERRORS, NAME_MAX, NULL, ApiName, BoundedField
from kube.decode.json_depth import at_once, decoded, pruning
from kube.decode.kinds import PODS
from kube.decode.pod import head
from kube.decode.requests import amounts_of, containers_of

BODY_BYTES_MAX: Final = 64 * 1024**2
"""Maximum size of a call; enough for some thousand full Nodes."""
POD_BYTES_MAX: Final = 3 * 1024**2
"""Maximum size of the pod in a call: the API server accepts no larger object."""
NODES_MAX: Final = 25_000
"""Maximum nodes of a call, five times what Kubernetes supports in a cluster."""
NAMES: Final = BoundedField[list[str]](list[str], items_max=NODES_MAX - 1, of=b",")
"""Limit on node names; it counts commas, because no name contains one."""
UNCOUNTED_BYTES_MAX: Final = 1024**2
"""Size up to which names are counted after they are decoded; they take at most 16 MB then."""
STEPS_MIN: Final = 45_000
"""Steps for removing deeply nested JSON that every call may take, about 20 ms altogether.

Two Nodes with the maximum nesting of the API server (10,000) need 40,000 steps.
"""
STEP_BYTES: Final = 136
"""A call may take one step beyond STEPS_MIN for each of these bytes of its size.

A step skips one nested JSON value. A call with node names needs no steps: kube-scheduler removes
managedFields from its pods, and no other field is nested deeply. If one of many full Nodes is
nested too deeply, all Nodes take steps: the Node of a kubelet one for 350 bytes, a Node of kwok
one for 80 bytes. A body that consists of brackets would take one for 3 bytes.
"""


class _Meta(msgspec.Struct, gc=False):
    name: ApiName


class _Node(msgspec.Struct, gc=False):
    metadata: _Meta

    def __post_init__(self) -> None:
        _counter.count_node()


class _NodeList(msgspec.Struct, gc=False):
    items: list[_Node] | None = None


class _Args(msgspec.Struct, gc=False):
    """ExtenderArgs, with each spelling of its fields that a caller may use.

    Either the node names or the Nodes are null.
    """

    Pod: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    pod: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    NodeNames: list[str] | None = None
    nodeNames: list[str] | None = None  # noqa: N815 as it may stand on the wire
    nodenames: list[str] | None = None
    Nodes: _NodeList | None = None
    nodes: _NodeList | None = None


class LargeArgs(msgspec.Struct, gc=False):
    """ExtenderArgs of a large request: node names stay JSON until they have been counted."""

    Pod: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    pod: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    NodeNames: Annotated[msgspec.Raw, NAMES] = NULL
    nodeNames: Annotated[msgspec.Raw, NAMES] = NULL  # noqa: N815 as above
    nodenames: Annotated[msgspec.Raw, NAMES] = NULL
    Nodes: _NodeList | None = None
    nodes: _NodeList | None = None


class _NodeCounter:
    """A counter of decoded Nodes that raises ValueError above NODES_MAX.

    msgspec checks a length only after the whole list.
    """

    def __init__(self) -> None:
        self.nodes = 0

    def count_node(self) -> None:
        self.nodes += 1
        if self.nodes > NODES_MAX:
            raise ValueError(f"more than {NODES_MAX} nodes")


_counter: Final = _NodeCounter()
_DECODER: Final = msgspec.json.Decoder(_Args)
_LARGE_DECODER: Final = msgspec.json.Decoder(LargeArgs)


class Call(NamedTuple):
    """A decoded prioritize call: the candidate nodes, and the JSON of the pod to schedule."""

    names: list[str]
    """Names of the candidate nodes, in the order of the call."""
    pod: bytes
    """JSON of the pod to schedule, undecoded."""


def call(body: bytes) -> Call:
    """Decode the body of a prioritize call, an ExtenderArgs as JSON.

    Raises: InvalidInputError with the reason, for any other body.
    """
    return at_once(calling(body))


def call_at_once(body: bytes) -> Call | None:
    """Return what `call` returns; None if the body is nested too deeply."""
    try:
        return _call(*_args(body))
    except RecursionError:
        return None
    except DECODE_ERRORS as fault:
        raise InvalidInputError("ExtenderArgs", str(fault)) from fault


def calling(body: bytes) -> Generator[None, None, Call]:
    """Do what `call` does; if the body is nested too deeply, pause (yield) every few milliseconds.

    Other bodies are decoded without a pause.
    """
    found = call_at_once(body)
    if found is not None:
        return found
    try:
        pruned = yield from pruning(body, _steps_max(body))
        return _call(*_args(pruned))
    except DECODE_ERRORS as fault:
        raise InvalidInputError("ExtenderArgs", str(fault)) from fault


def _call(args: _Args | LargeArgs, names: list[str] | None) -> Call:
    if names is not None:
        return Call(names, bytes(args.Pod) or bytes(args.pod))
    for nodes in (args.Nodes, args.nodes):
        if nodes is not None:
            listed = [node.metadata.name for node in nodes.items or ()]
            return Call(listed, bytes(args.Pod) or bytes(args.pod))
    raise InvalidInputError("ExtenderArgs", "neither NodeNames nor Nodes is given")


class PodToSchedule(NamedTuple):
    """The pod of a prioritize call: its owner and metadata, and its requests."""

    pod: Pod
    """The pod, with only its name, namespace, labels and owner."""
    requests: Resources


def pod_to_schedule(pod: bytes) -> PodToSchedule | None:
    """Decode the JSON of the pod of a call; None if it is too large or cannot be read."""
    if len(pod) > POD_BYTES_MAX:
        return None
    try:
        decoded_pod = decoded(PODS.decoder.decode, pod, _steps_max(pod))
        spec = decoded_pod.spec
        requests = amounts_of(spec, containers_of(spec)).requests
        return PodToSchedule(head(decoded_pod.metadata), requests)
    except (*DECODE_ERRORS, InvalidInputError):
        return None


def _steps_max(raw: bytes) -> int:
    return STEPS_MIN + len(raw) // STEP_BYTES


def _args(body: bytes) -> tuple[_Args | LargeArgs, list[str] | None]:
    _counter.nodes = 0
    if len(body) <= UNCOUNTED_BYTES_MAX:
        args = _DECODER.decode(body)
        lists = (args.NodeNames, args.nodeNames, args.nodenames)
        names = next((names for names in lists if names is not None), None)
        if names is not None and len(names) > NODES_MAX:
            raise _too_many_names()
        return args, names
    large = _LARGE_DECODER.decode(body)
    for raw in (large.NodeNames, large.nodeNames, large.nodenames):
        if NAMES.why_too_large(raw):
            raise _too_many_names()
        # If a key occurs twice, `raw` is its last value: the same bytes are counted and decoded.
        names = NAMES.decode(raw, "ExtenderArgs")
        if names is not None:
            return large, names
    return large, None


def _too_many_names() -> InvalidInputError:
    return InvalidInputError("ExtenderArgs", f"more than {NODES_MAX} names")


def fragment(name: str, score: int) -> bytes:
    """Return the JSON of the score of the node *name*: one HostPriority of the answer."""
    return b'{"Host":%b,"Score":%d}' % (msgspec.json.encode(name), score)


FRAGMENTS_MAX: Final = 2 * NODES_MAX
"""Maximum number of cached fragments of unknown names.

A fragment takes about 200 bytes, or 900 bytes with the longest name."""


class Fragments(dict[str, bytes]):
    """The JSON of the score (a HostPriority) of each node, by node name.

    An unknown name gets *score*. Its JSON is cached, because kube-scheduler repeats the same
    names. The cache is cleared when it is full, since most of its names may be of deleted nodes by
    then. Raises: InvalidInputError for an invalid name.
    """

    def __init__(self, score: int, cached_max: int = FRAGMENTS_MAX) -> None:
        """Create an empty mapping; *score*: score of unknown names.

        *cached_max*: maximum number of cached unknown names; 0: none are cached.
        """
        super().__init__()
        self._score, self._cached_max = score, cached_max
        self._cached = 0

    def __missing__(self, name: str) -> bytes:
        if not 0 < len(name) <= NAME_MAX:
            raise InvalidInputError(
                "ExtenderArgs", f"a node name of {len(name)} characters; allowed: 1 to {NAME_MAX}"
            )
        json = fragment(name, self._score)
        if self._cached_max:
            if self._cached == self._cached_max:
                self._forget()
            self._cached += 1
            self[name] = json
        return json

    def _forget(self) -> None:
        """Remove all names with the score of unknown names, to empty the cache."""
        self._cached = 0
        for name in [name for name, json in self.items() if json == fragment(name, self._score)]:
            del self[name]


def answer(fragments: Iterable[bytes]) -> bytes:
    """Join the JSON of all nodes' scores to the answer, a HostPriorityList."""
    return b"[%b]" % b",".join(fragments)


class _Score(msgspec.Struct, gc=False):
    Host: str
    Score: int


_SCORES: Final = msgspec.json.Decoder(list[_Score])


def names_body(names: Sequence[str], pod: bytes = b"{}") -> bytes:
    """Return the body of a prioritize call as kube-scheduler sends it with nodeCacheCapable.

    *names*: names of the candidate nodes. *pod*: JSON of the pod to schedule.
    """
    return b'{"Pod":%b,"Nodes":null,"NodeNames":%b}' % (pod, msgspec.json.encode(names))


def scores(answer: bytes) -> dict[str, int]:
    """Decode an answer to the score of each node by name; several scores of a node add up.

    kube-scheduler reads answers in the same way.
    """
    totals: dict[str, int] = {}
    for score in _SCORES.decode(answer):
        totals[score.Host] = totals.get(score.Host, 0) + score.Score
    return totals
