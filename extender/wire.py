"""kube-scheduler's extender messages, bytes to names and scores to bytes; pure.

Source: k8s.io/kube-scheduler extender/v1. The Go types carry no JSON tags, so names are
capitalised on the wire; Go reads any casing, and so do we.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from core.depth import decoded
from core.errors import InvalidInputError


class _Meta(msgspec.Struct, gc=False):
    name: str


class _Node(msgspec.Struct, gc=False):
    metadata: _Meta


class _NodeList(msgspec.Struct, gc=False):
    items: list[_Node] | None = None


class _Args(msgspec.Struct, gc=False):
    """ExtenderArgs; of the two lists the one in use is not null."""

    NodeNames: list[str] | None = None
    nodeNames: list[str] | None = None  # noqa: N815 as it may stand on the wire
    nodenames: list[str] | None = None
    Nodes: _NodeList | None = None
    nodes: _NodeList | None = None


_DECODER: Final = msgspec.json.Decoder(_Args)
EMPTY: Final = b"[]"
FRAGMENTS_MAX: Final = 50_000
"""More than the nodes of any cluster; about 200 bytes each."""
NAME_CHARACTERS_MAX: Final = 253
"""Of a Kubernetes object."""


def node_names(body: bytes) -> list[str]:
    """Return the names of the nodes that a prioritize call asks about, in its order.

    Raises: InvalidInputError, with the reason, for anything that is not such a call.
    """
    try:
        args = decoded(_DECODER.decode, body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise InvalidInputError("ExtenderArgs", str(fault)) from fault
    for names in (args.NodeNames, args.nodeNames, args.nodenames):
        if names is not None:
            return names
    for nodes in (args.Nodes, args.nodes):
        if nodes is not None:
            return [node.metadata.name for node in nodes.items or ()]
    raise InvalidInputError("ExtenderArgs", "neither NodeNames nor Nodes is given")


def fragment(name: str, score: int) -> bytes:
    """Return one HostPriority, ready to be joined with others."""
    return b'{"Host":%b,"Score":%d}' % (msgspec.json.encode(name), score)


class Fragments(dict[str, bytes]):
    """HostPriorities by node, ready to be joined; a node that is not there gets *score*.

    What has been asked for is kept, within bounds: the scheduler asks for the same names again.
    """

    def __init__(self, score: int) -> None:
        super().__init__()
        self._score = score

    def __missing__(self, name: str) -> bytes:
        made = fragment(name, self._score)
        if len(self) < FRAGMENTS_MAX and len(name) <= NAME_CHARACTERS_MAX:
            self[name] = made
        return made


def answer(names: Iterable[str], fragments: Fragments) -> bytes:
    """Return a HostPriorityList for all *names*."""
    return b"[%b]" % b",".join(map(fragments.__getitem__, names))


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
