"""Build request bodies of a given size that are as costly to answer as a caller can make them."""

from collections.abc import Callable, Mapping
from typing import Final

from extender.wire import POD_BYTES_MAX

_HEAD: Final = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":'
    b'{"uid":"u","operation":"UPDATE","object":{"kind":"Node","metadata":{"name":"n",'
    b'"labels":{"kube-ebb.node-restriction.kubernetes.io/mark":"PreferNoSchedule"}},"spec":{"taints":'
)


def review(taints: bytes) -> bytes:
    """Return a review of a marked Node with these taints."""
    return b"%b%b}}}}" % (_HEAD, taints)


def _many(item: bytes, size: int) -> bytes:
    return b",".join([item] * (size // (len(item) + 1)))


def _pod(containers: bytes) -> bytes:
    return b'{"Pod":{"spec":{"containers":[%b]}},"NodeNames":["n"]}' % containers


def _names(names: bytes, *, after: bytes = b"") -> bytes:
    return b'{"NodeNames":[%b]%b}' % (names, after)


def _nodes(items: bytes, *, after: bytes = b"") -> bytes:
    return b'{"Nodes":{"items":[%b]}%b}' % (items, after)


NODE: Final = b'{"metadata":{"name":"a"}}'
CALLS: Final[Mapping[str, Callable[[int], bytes]]] = {
    "containers": lambda size: _pod(_many(b"{}", size)),
    "containers of the largest pod": lambda size: _pod(
        _many(b"{}", min(size, POD_BYTES_MAX - 100))
    ),
    "names": lambda size: _names(_many(b'"a"', size)),
    "names, and few in their place": lambda size: _names(
        _many(b'"a"', size), after=b',"NodeNames":["n"]'
    ),
    "few names, and many in their place": lambda size: _names(
        b'"n"', after=b',"NodeNames":[%b]' % _many(b'"a"', size)
    ),
    "names in another spelling": lambda size: (
        b'{"nodenames":[%b],"NodeNames":["n"]}' % _many(b'"a"', size)
    ),
    "doubled names": lambda size: b"{%b}" % _many(b'"NodeNames":["a","b"]', size),
    "nodes": lambda size: _nodes(_many(NODE, size)),
    "nodes, and few in their place": lambda size: _nodes(
        _many(NODE, size), after=b',"Nodes":{"items":[]}'
    ),
    "doubled names of a node": lambda size: _nodes(
        b'{"metadata":{%b}}' % _many(b'"name":"a"', size)
    ),
    "one long name": lambda size: _names(b'"%b"' % (b"a" * size)),
    "one node with a long name": lambda size: _nodes(
        b'{"metadata":{"name":"%b"}}' % (b"a" * size)
    ),
    "brackets": lambda size: b"[" * size,
    "braces": lambda size: b'{"a":' * (size // 5),
    "values nested a little, and one too deeply": lambda size: (
        b'{"Pod":{"a":[%b,%b]},"NodeNames":["n"]}'
        % (b"[" * 5000 + b"]" * 5000, _many(b'{"a":{"a":{"a":{"a":1}}}}', size))
    ),
    "one value nested too deeply, and many strings": lambda size: (
        b'{"NodeNames":["n"],"x":[%b,%b]}' % (b"[" * 9000 + b"]" * 9000, _many(b'"a"', size))
    ),
    "deep values in a pod": lambda size: (
        b'{"Pod":{"a":[%b]},"NodeNames":["n"]}' % _many(b"[" * 70 + b"]" * 70, size)
    ),
}
"""Prioritize calls by what is large in them."""
REVIEWS: Final[Mapping[str, Callable[[int], bytes]]] = {
    "taints": lambda size: review(b"[%b]" % _many(b"{}", size)),
    "taints, doubled": lambda size: b"%b[],%b}}}}" % (_HEAD, _many(b'"taints":[{},{}]', size)),
    "taints of one letter": lambda size: review(b"[%b]" % _many(b'{"key":"a"}', size)),
    "groups": lambda size: (
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",'
        b'"userInfo":{"groups":[%b]}}}' % _many(b'"a"', size)
    ),
    "labels": lambda size: (
        b'{"request":{"uid":"u","object":{"metadata":{"labels":{%b}}}}}' % _many(b'"a":"b"', size)
    ),
    "brackets": lambda size: b"[" * size,
    "braces": lambda size: b'{"a":' * (size // 5),
    "values nested a little, and one too deeply": lambda size: review(
        b"[%b,%b]" % (b"[" * 5000 + b"]" * 5000, _many(b'{"a":{"a":{"a":{"a":1}}}}', size))
    ),
    "deep values": lambda size: review(b"[%b]" % _many(b"[" * 70 + b"]" * 70, size)),
}
"""Reviews by what is large in them."""
