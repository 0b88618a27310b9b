"""One Node or Pod at a time: read, decided on, and written on the version that was read."""

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, Protocol

from core.edge.decode.kinds import NODES, PODS, Kind
from core.edge.decode.pod_times import FINISHED_TOO
from core.edge.kube.client import CALL_TRIES_MAX, ApiError, Client, answered, one_line
from core.model.errors import ConflictError, GarbledError, InvalidInputError, UnavailableError
from core.model.node import Node
from core.model.pod import Pod
from core.writes.write import DEFERRABLE, Object, Write

TRIES_MAX: Final = 5
"""How often one object is tried that others change at the same time."""
FOR_ALL: Final = frozenset((401, 429))
"""Refusals that are about who asks, or how often: the next object would meet them too, unless it
is admission that says so of one."""
FORBIDDEN_MAX: Final = 20
"""After so many refusals in a row for want of a right it is taken to be missing for all objects.
Those of a namespace are not in a row as long as others, by turns, are written."""

Versioned = tuple[Object, str]
"""An object, and its resourceVersion."""


class Written(NamedTuple, Generic[Object]):
    """A write that was done."""

    write: Write[Object]
    stored: Versioned[Object]
    """What the API server made of it."""


class Objects(Protocol[Object]):
    """How objects of one kind are read and written: the API server, or a simulated one."""

    async def get(self, key: str) -> Versioned[Object] | None:
        """Return an object as stored; None when it is gone, or a Pod has finished.

        Raises: UnavailableError.
        """

    async def write(self, write: Write[Object], version: str) -> Versioned[Object]:
        """Write on a resourceVersion; return the object as stored.

        Raises: ConflictError when it has changed or is gone, UnavailableError.
        """


class Store(Generic[Object]):
    """The API server's objects of one kind."""

    def __init__(self, client: Client, kind: Kind[Any, Object] | Kind[Any, Object | None]) -> None:
        self._client, self._kind = client, kind

    async def get(self, key: str) -> Versioned[Object] | None:
        """Return an object as stored; None when it is gone, or a Pod has finished."""
        raw = await self._client.find(self._kind.path_of(key))
        return None if raw is None else self._read(raw)

    async def write(self, write: Write[Object], version: str) -> Versioned[Object]:
        """Write on a resourceVersion; return the object as stored.

        While the API server throttles, what is DEFERRABLE waits and is tried again.
        """
        path, patch = self._kind.path_of(write.key), write.merge_patch(version)
        tries_max = CALL_TRIES_MAX if write.kind in DEFERRABLE else 1
        try:
            raw = await self._client.ask("PATCH", path, patch, tries_max=tries_max)
        except ApiError as fault:
            if fault.status == 404:
                raise ConflictError(str(fault)) from fault
            raise
        if (stored := self._read(raw)) is None:
            raise ConflictError(f"{write.key} has finished")
        return stored

    def _read(self, raw: bytes) -> Versioned[Object] | None:
        try:
            found = answered(self._kind.decoder, raw)
            made = self._kind.made(found)
        except (GarbledError, InvalidInputError) as fault:
            problem = f"API server: not a {self._kind.name}: {one_line(str(fault))}"
            raise UnavailableError(problem) from fault
        return None if made is None else (made, found.metadata.resource_version)


def nodes(client: Client) -> Store[Node]:
    """Return the Nodes, by name."""
    return Store(client, NODES)


def pods(client: Client, *, finished: bool = False) -> Store[Pod]:
    """Return the Pods, by namespace/name. *finished*: those that have finished are there too."""
    return Store(client, FINISHED_TOO if finished else PODS)


async def write_as_decided(
    objects: Objects[Object],
    key: str,
    decide: Callable[[Object], Write[Object] | None],
    heard: Callable[[], Versioned[Object] | None] = lambda: None,
) -> Written[Object] | None:
    """Write what is decided on the object as it stands; if others change it meanwhile, once more.

    *decide* is asked before each try, and says None when there is nothing to write. *heard* is the
    object as it was heard of last, which saves a call. Returns: None if nothing was written.
    Raises: UnavailableError; ConflictError when others change the object all the time.
    """
    tried = {""}
    for _ in range(TRIES_MAX):
        found = heard()
        if found is None or found[1] in tried:
            found = await objects.get(key)
        write = decide(found[0]) if found else None
        if found is None or write is None:
            return None
        try:
            return Written(write, await objects.write(write, found[1]))
        except ConflictError:
            tried.add(found[1])
    raise ConflictError(f"{key}: somebody else writes it all the time")


class Failures:
    """How writes of many objects fail, and whether to go on with the others."""

    def __init__(self) -> None:
        self._forbidden = 0

    def end(self, fault: UnavailableError | None) -> bool:
        """Count a write; None: it was done. Say whether the next would most likely fail too."""
        if fault is None:
            self._forbidden = 0
            return False
        forbidden = isinstance(fault, ApiError) and fault.forbidden
        self._forbidden = self._forbidden + 1 if forbidden else 0
        return self._forbidden >= FORBIDDEN_MAX or not _of_this_one(fault)


def is_for_all(fault: UnavailableError) -> bool:
    """Say whether a write was refused for who asks, or how often, whatever its object is."""
    return isinstance(fault, ApiError) and fault.status in FOR_ALL and not fault.denied


def _of_this_one(fault: UnavailableError) -> bool:
    """Say whether a write may have failed by what its object is."""
    if isinstance(fault, ApiError):
        return fault.denied or (400 <= fault.status < 500 and not is_for_all(fault))
    return isinstance(fault, ConflictError)
