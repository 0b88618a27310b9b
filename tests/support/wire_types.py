"""Find the fields of wire types, and write objects in which one of these fields is large."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from kube.decode.field_decoding import BoundedField

Path = tuple[str, ...]
"""Names of fields as in JSON; `[]` is an item of a list, `{}` a value of a map."""
ITEM: Final = "[]"
VALUE: Final = "{}"


@dataclass(frozen=True)
class Place:
    """A value in a wire type that can be large: a text, a list or a map."""

    path: Path
    kind: type
    bounded: bool
    """True if the value lies in a field that is read as bytes of limited length."""

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} ({self.kind.__name__})"


def places(shape: Any, path: Path = (), *, bounded: bool = False) -> Iterator[Place]:
    """Yield every text, list and map of a wire type. Raises: TypeError for bytes without limit."""
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        limits = [one.shape for one in arguments[1:] if isinstance(one, BoundedField)]
        inner = limits[0] if limits else arguments[0]
        yield from places(inner, path, bounded=bounded or bool(limits))
    elif origin in (Union, UnionType):
        for one in arguments:
            if one is not NoneType:
                yield from places(one, path, bounded=bounded)
    elif origin in (list, dict):
        yield Place(path, origin, bounded)
        inside = (*path, ITEM if origin is list else VALUE)
        yield from places(arguments[-1], inside, bounded=bounded)
    elif shape is str:
        yield Place(path, str, bounded)
    elif shape is msgspec.Raw:
        if not bounded:
            raise TypeError(f"{path}: bytes without a limit")
    elif isinstance(shape, type) and issubclass(shape, msgspec.Struct):
        yield from _of_fields(shape, path, bounded=bounded)


def _of_fields(shape: type[msgspec.Struct], path: Path, *, bounded: bool) -> Iterator[Place]:
    hints = get_type_hints(shape, include_extras=True)
    for field in msgspec.structs.fields(shape):
        yield from places(hints[field.name], (*path, field.encode_name), bounded=bounded)


@dataclass(frozen=True)
class Form:
    """A way to make a value large."""

    name: str
    applies: Callable[[Place], bool]
    doubled: bool = False


LONG: Final = Form("one long text", lambda place: place.kind is str)
MANY: Final = Form(
    "many items", lambda place: place.kind is not str or {ITEM, VALUE} & {*place.path} != set()
)
DOUBLED: Final = Form("doubled keys", lambda place: place.path[-1] not in (ITEM, VALUE), True)
FORMS: Final = (LONG, MANY, DOUBLED)
NUMBER: Final = b"<count>"
"""Placeholder for a number that differs in each item; it is about as long as the number."""


def large(place: Place, form: Form, size: int, seed: int = 0) -> bytes:
    """Return the JSON of an object in which one value has about *size* bytes.

    *seed* makes its texts differ from those of other objects.
    """
    writer = _Writer(place, form, size, seed)
    return _named(writer.value(0).replace(NUMBER, b"%d" % seed), place.path)


class _Writer:
    def __init__(self, place: Place, form: Form, size: int, seed: int) -> None:
        self._place, self._form, self._size, self._seed = place, form, size, seed
        steps = [n for n, step in enumerate(place.path) if step in (ITEM, VALUE)]
        repeated = steps[-1] if form is MANY and place.kind is str and steps else None
        self._repeated = len(place.path) - 1 if form.doubled else repeated

    def value(self, at: int) -> bytes:
        """Return the value at a step of the path."""
        path = self._place.path
        if at == len(path):
            return self._leaf()
        inner = self._few() if self._form.doubled and at == self._repeated else self.value(at + 1)
        entry = {
            ITEM: b"%b" % inner,
            VALUE: b'"k%b":%b' % (NUMBER, inner),
        }.get(path[at], b'"%b":%b' % (path[at].encode(), inner))
        if at == self._repeated:
            entry = self._many(entry, self._size)
        return b"[%b]" % entry if path[at] == ITEM else b"{%b}" % entry

    def _many(self, entry: bytes, size: int) -> bytes:
        count = max(1, size // len(entry))
        if NUMBER not in entry:
            return b",".join([entry] * count)
        pattern = entry.replace(NUMBER, b"%(n)d")
        numbers = range(self._seed, self._seed + count)
        return b",".join([pattern % {b"n": n} for n in numbers])

    def _few(self) -> bytes:
        if self._place.kind is str:
            return b'"%b"' % NUMBER
        return b"[]" if self._place.kind is list else b"{}"

    def _leaf(self) -> bytes:
        if self._place.kind is str:
            more = b"x" * self._size if self._form is LONG else b""
            return b'"%b%b"' % (NUMBER, more)
        if self._place.kind is list:
            return b"[%b]" % b",".join([b"{}"] * max(1, self._size // 3))
        return b"{%b}" % self._many(b'"k%b":"1"' % NUMBER, self._size)


def _named(written: bytes, path: Path) -> bytes:
    """Add the fields that every object has, unless the path leads to them."""
    identity = b'"name":"a","namespace":"d"'
    if path[:1] != ("metadata",):
        return b'{"metadata":{%b},%b' % (identity, written[1:])
    if path[1] in ("name", "namespace"):
        return written
    return written.replace(b'"metadata":{', b'"metadata":{%b,' % identity, 1)
