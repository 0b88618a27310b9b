"""List the objects of a namespace that select pods by labels, before a move begins.

They are listed and not watched: a cluster can have thousands of them, and few moves begin.
"""

from typing import Any, Final

import msgspec

from core.model.errors import UnavailableError
from core.moves.selecting import SelectingObject, SelectingObjects
from kube.client import Client, answered
from kube.decode.kinds import in_namespace
from kube.decode.selecting import CONTROLLERS, OBSERVERS, SelectingKind
from kube.listing import Page

OBJECTS_MAX: Final = 10_000
"""Maximum number of objects of a kind in a namespace; with more, no pod of it is moved."""


async def selecting_objects(client: Client, namespace: str) -> SelectingObjects:
    """Return all objects of the namespace that select pods by labels.

    Raises: UnavailableError, also if there are more than OBJECTS_MAX of a kind.
    """
    controllers = [one for kind in CONTROLLERS for one in await _listed(client, kind, namespace)]
    observers = [one for kind in OBSERVERS for one in await _listed(client, kind, namespace)]
    return SelectingObjects(tuple(controllers), tuple(observers))


async def _listed(client: Client, kind: SelectingKind, namespace: str) -> list[SelectingObject]:
    decoder: msgspec.json.Decoder[Page[Any]] = msgspec.json.Decoder(Page[kind.wire])  # type: ignore[name-defined]
    found: list[SelectingObject] = []
    token: str | None = None
    while True:
        path = in_namespace(kind.path, namespace)
        page = answered(decoder, await client.page(path, label_selector=None, token=token))
        for item in page.items or ():
            selectors = tuple(kind.selectors(item.spec)) if item.spec else ()
            found.append(SelectingObject(kind.name, item.metadata.name, selectors))
        token = page.metadata.token
        if len(found) > OBJECTS_MAX:
            raise UnavailableError(
                f"namespace {namespace} has more than {OBJECTS_MAX} objects of kind {kind.name}, "
                "so Ebb moves no pod there"
            )
        if not token:
            return found
