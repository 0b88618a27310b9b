"""kube-scheduler's extender messages, bytes to names and scores to bytes; pure.

Source: k8s.io/kube-scheduler extender/v1. The Go types carry no JSON tags, so names are
capitalised on the wire; Go reads any casing, and so do we.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from core.edge.decode.fields import FAULTS, NAME_MAX
from core.edge.decode.json_depth import decoded
from core.edge.decode.kinds import PODS
from core.edge.decode.pod import head
from core.edge.decode.requests import requests_of
from core.model.errors import InvalidInputError
from core.model.pod import Pod
from core.model.resources import Resources

_Value = TypeVar("_Value")

EMPTY: Final = b"[]"
BODY_BYTES_MAX: Final = 64 * 1024**2
"""Full Node lists of some thousand nodes."""
NODES_MAX: Final = 25_000
"""Five times what Kubernetes supports in a cluster."""
STEPS_MIN: Final = 50_000
"""Of cutting what nests too deep, that any call may take, some 20 ms.

Two Nodes that nest as deep as the API server takes them (10,000) need 40,000.
"""
STEP_BYTES: Final = 64
"""A call may take one step more for each so many.

A call of names needs none: kube-scheduler takes managedFields off its pods, and nothing else of
them nests. Of whole Nodes one that nests deep is enough for all to be gone through: a step in 350
bytes of a kubelet's Node, in 80 of kwok's. Whoever sends brackets alone has one in three.
"""


class _Meta(msgspec.Struct, gc=False):
    name: str


class _Node(msgspec.Struct, gc=False):
    metadata: _Meta

    def __post_init__(self) -> None:
        _tally.one()


class _NodeList(msgspec.Struct, gc=False):
    items: list[_Node] | None = None


class _Args(msgspec.Struct, gc=False):
    """ExtenderArgs; of the two lists the one in use is not null."""

    Pod: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    pod: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    NodeNames: list[str] | None = None
    nodeNames: list[str] | None = None  # noqa: N815 as it may stand on the wire
    nodenames: list[str] | None = None
    Nodes: _NodeList | None = None
    nodes: _NodeList | None = None


class _Outline(msgspec.Struct, gc=False):
    """ExtenderArgs with names that have not been looked at."""

    NodeNames: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    nodeNames: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)  # noqa: N815 as above
    nodenames: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class _Tally:
    """Counts Nodes while they are decoded: msgspec looks at a length after the whole list."""

    def __init__(self) -> None:
        self.nodes = 0

    def one(self) -> None:
        self.nodes += 1
        if self.nodes > NODES_MAX:
            raise ValueError(f"more than {NODES_MAX} nodes")


_tally: Final = _Tally()
_DECODER: Final = msgspec.json.Decoder(_Args)
_OUTLINE: Final = msgspec.json.Decoder(_Outline)


class Call(NamedTuple):
    """A prioritize call."""

    names: list[str]
    """Of the nodes that it asks about, in its order."""
    pod: bytes
    """The pod that is to be placed, as it came; not looked at."""


def call(body: bytes) -> Call:
    """Read a prioritize call.

    Raises: InvalidInputError, with the reason, for anything that is not such a call.
    """
    try:
        args = _decoded(_args, body)
    except FAULTS as fault:
        raise InvalidInputError("ExtenderArgs", str(fault)) from fault
    for names in (args.NodeNames, args.nodeNames, args.nodenames):
        if names is not None:
            return Call(names, bytes(args.Pod) or bytes(args.pod))
    for nodes in (args.Nodes, args.nodes):
        if nodes is not None:
            found = [node.metadata.name for node in nodes.items or ()]
            return Call(found, bytes(args.Pod) or bytes(args.pod))
    raise InvalidInputError("ExtenderArgs", "neither NodeNames nor Nodes is given")


class New(NamedTuple):
    """The pod of a call, as far as its scores go by it."""

    pod: Pod
    """Who and whose it is, and nothing else."""
    requests: Resources


def new(pod: bytes) -> New | None:
    """Read the pod of a call; None where that cannot be done."""
    try:
        found = _decoded(PODS.decoder.decode, pod)
        return New(head(found.metadata), requests_of(found.spec, None))
    except (*FAULTS, InvalidInputError):
        return None


def _decoded(decode: Callable[[bytes], _Value], raw: bytes) -> _Value:
    return decoded(decode, raw, STEPS_MIN + len(raw) // STEP_BYTES)


def _args(body: bytes) -> _Args:
    if body.count(b",") >= NODES_MAX:
        _check_counts(body)
    _tally.nodes = 0
    return _DECODER.decode(body)


def _check_counts(body: bytes) -> None:
    """Refuse more names than a cluster has nodes before they are decoded; none has a comma.

    Raises: InvalidInputError, msgspec.DecodeError.
    """
    outline = _OUTLINE.decode(body)
    for names in (outline.NodeNames, outline.nodeNames, outline.nodenames):
        if bytes(names).count(b",") >= NODES_MAX:
            raise InvalidInputError("ExtenderArgs", f"more than {NODES_MAX} names")


def fragment(name: str, score: int) -> bytes:
    """Return one HostPriority, ready to be joined with others."""
    return b'{"Host":%b,"Score":%d}' % (msgspec.json.encode(name), score)


FRAGMENTS_MAX: Final = 2 * NODES_MAX
"""Of names that are longest about 900 bytes each, of usual ones 200."""


class Fragments(dict[str, bytes]):
    """HostPriorities by node, ready to be joined; a node that is not there gets *score*.

    What has been asked for is kept, within bounds: the scheduler asks for the same names again.
    So a name is looked at once, until so many others have been that most may be of nodes that are
    gone. Raises: InvalidInputError for what is no name.
    """

    def __init__(self, score: int, most: int = FRAGMENTS_MAX) -> None:
        """*most*: how many that have been asked for are kept."""
        super().__init__()
        self._score, self._most = score, most
        self._kept = 0

    def __missing__(self, name: str) -> bytes:
        if not 0 < len(name) <= NAME_MAX:
            raise InvalidInputError("ExtenderArgs", f"a name of {len(name)} characters")
        made = fragment(name, self._score)
        if self._most:
            if self._kept == self._most:
                self._forget()
            self._kept += 1
            self[name] = made
        return made

    def _forget(self) -> None:
        """Forget who gets what anybody gets."""
        self._kept = 0
        for name in [name for name, made in self.items() if made == fragment(name, self._score)]:
            del self[name]


def answer(fragments: Iterable[bytes]) -> bytes:
    """Return a HostPriorityList of them."""
    return b"[%b]" % b",".join(fragments)


class _Score(msgspec.Struct, gc=False):
    Host: str
    Score: int


_SCORES: Final = msgspec.json.Decoder(list[_Score])


def names_body(names: Sequence[str], pod: bytes = b"{}") -> bytes:
    """Write a prioritize call as kube-scheduler does with nodeCacheCapable."""
    return b'{"Pod":%b,"Nodes":null,"NodeNames":%b}' % (pod, msgspec.json.encode(names))


def scores(answer: bytes) -> dict[str, int]:
    """Read an answer as kube-scheduler does: scores of one host add up."""
    found: dict[str, int] = {}
    for score in _SCORES.decode(answer):
        found[score.Host] = found.get(score.Host, 0) + score.Score
    return found
