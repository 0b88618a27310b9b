"""Read one Node or Pod, decide on it, and write it only if it has not changed since."""

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, Protocol

from core.model.errors import ConflictError, GarbledError, InvalidInputError, UnavailableError
from core.model.node import Node
from core.model.pod import Pod
from core.writes.write import DEFERRABLE, Object, Write
from kube.client import CALL_TRIES_MAX, ApiError, Client, answered, one_line
from kube.decode.kinds import NODES, NODES_WITH_ALL_KEYS, PODS, Kind
from kube.decode.pod_times import FINISHED_TOO

TRIES_MAX: Final = 5
"""Maximum number of attempts to write an object that others change at the same time."""
FOR_ALL: Final = frozenset((401, 429))
"""Status codes of errors about the client or its rate of calls. They concern all objects, unless
admission answers with such a code for one object."""
FORBIDDEN_MAX: Final = 20
"""Number of RBAC errors in a row after which the permission counts as missing for all objects.

Writes alternate between namespaces. So a permission that is missing in a single namespace does not
cause so many errors in a row."""

Versioned = tuple[Object, str]
"""An object, and its resourceVersion."""


class Written(NamedTuple, Generic[Object]):
    """A successful write, and the object as the API server has stored it."""

    write: Write[Object]
    stored: Versioned[Object]
    """The object as stored by the API server, after admission."""


class Objects(Protocol[Object]):
    """An interface for reading and writing objects of one kind; Store implements it."""

    async def get(self, key: str) -> Versioned[Object] | None:
        """Return an object and its resourceVersion, or None.

        None: the object does not exist, or is a finished Pod. *key*: name of a Node,
        namespace/name of a Pod. Raises: UnavailableError.
        """

    async def write(self, write: Write[Object], version: str) -> Versioned[Object]:
        """Write an object if it still has this resourceVersion.

        Returns: the object as stored, and its new resourceVersion. Raises: ConflictError if the
        object has changed or does not exist, UnavailableError.
        """


class Store(Generic[Object]):
    """Reads and writes the objects of one kind at the API server."""

    def __init__(self, client: Client, kind: Kind[Any, Object] | Kind[Any, Object | None]) -> None:
        self._client, self._kind = client, kind

    async def get(self, key: str) -> Versioned[Object] | None:
        """Return an object and its resourceVersion, or None.

        None: the object does not exist, or is a finished Pod. *key*: name of a Node,
        namespace/name of a Pod. Raises: UnavailableError.
        """
        raw = await self._client.find(self._kind.path_of(key))
        return None if raw is None else self._read(raw)

    async def write(self, write: Write[Object], version: str) -> Versioned[Object]:
        """Write an object if it still has this resourceVersion.

        After a 429, only a write that remains correct later (DEFERRABLE) is retried. Returns: the
        object as stored, and its new resourceVersion. Raises: ConflictError if the object has
        changed, has finished or does not exist; UnavailableError.
        """
        path, patch = self._kind.path_of(write.key), write.merge_patch(version)
        tries_max = CALL_TRIES_MAX if write.kind in DEFERRABLE else 1
        try:
            raw = await self._client.ask("PATCH", path, patch, tries_max=tries_max)
        except ApiError as fault:
            if fault.status == 404:
                raise ConflictError(str(fault)) from fault  # deleted since it was read
            raise
        if (stored := self._read(raw)) is None:
            raise ConflictError(f"the {self._kind.name} has finished")
        return stored

    def _read(self, raw: bytes) -> Versioned[Object] | None:
        try:
            wire = answered(self._kind.decoder, raw)
            obj = self._kind.model_of(wire)
        except (GarbledError, InvalidInputError) as fault:
            problem = f"API server: the answer is not a {self._kind.name}: {one_line(str(fault))}"
            raise UnavailableError(problem) from fault
        return None if obj is None else (obj, wire.metadata.resource_version)


def nodes(client: Client, *, all_keys: bool = False) -> Store[Node]:
    """Return a store that reads and writes Nodes; keys are names.

    *all_keys*: read every annotation with a prefix of Ebb, also annotations that only
    older versions use.
    """
    return Store(client, NODES_WITH_ALL_KEYS if all_keys else NODES)


def pods(client: Client, *, finished: bool = False) -> Store[Pod]:
    """Return a store that reads and writes Pods; keys are namespace/name.

    *finished*: also return finished Pods, which otherwise count as missing.
    """
    return Store(client, FINISHED_TOO if finished else PODS)


async def write_as_decided(
    objects: Objects[Object],
    key: str,
    decide: Callable[[Object], Write[Object] | None],
    latest: Callable[[], Versioned[Object] | None] = lambda: None,
) -> Written[Object] | None:
    """Read one object, and make the write that *decide* returns for it.

    If others have changed the object since it was read, read it and decide again.

    *decide*: returns the write for the current object; None to write nothing. *latest*: returns
    the object as known from a watch, which saves a read, or None. Returns: None if nothing was
    written, also because the object does not exist. Raises: UnavailableError; ConflictError if
    others changed the object during each attempt.
    """
    tried = {""}
    for _ in range(TRIES_MAX):
        current = latest()
        if current is None or current[1] in tried:
            current = await objects.get(key)
        write = decide(current[0]) if current else None
        if current is None or write is None:
            return None
        try:
            return Written(write, await objects.write(write, current[1]))
        except ConflictError:
            tried.add(current[1])
    raise ConflictError("another client keeps changing the object")


class Failures:
    """Decide after each write whether writes of further objects would fail too."""

    def __init__(self) -> None:
        self._forbidden = 0

    def end(self, fault: UnavailableError | None) -> bool:
        """Record the end of a write; return whether the next write would most likely fail too.

        *fault*: the error; None for a successful write.
        """
        if fault is None:
            self._forbidden = 0
            return False
        forbidden = isinstance(fault, ApiError) and fault.forbidden
        self._forbidden = self._forbidden + 1 if forbidden else 0
        return self._forbidden >= FORBIDDEN_MAX or not _is_specific(fault)


def is_for_all(fault: UnavailableError) -> bool:
    """Return whether the API server would refuse the write of any object with this error.

    False also if it did not answer, or if admission denied only this object.
    """
    return isinstance(fault, ApiError) and fault.status in FOR_ALL and not fault.denied


def _is_specific(fault: UnavailableError) -> bool:
    if isinstance(fault, ApiError):
        return fault.denied or (400 <= fault.status < 500 and not is_for_all(fault))
    return isinstance(fault, ConflictError)
