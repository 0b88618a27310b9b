"""Change an annotation of the controller's Lease, which the elector renews at the same time."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from controller.election import Leases
from core.model.errors import ConflictError
from runtime.logs import fields

TRIES_MAX: Final = 5
"""Maximum number of attempts to write the Lease."""

log = logging.getLogger("ebb.lease-annotation")


async def annotate(leases: Leases, key: str, change: Callable[[str], str | None]) -> bool:
    """Replace the value of an annotation; return False if it stays.

    *change*: returns the new value for the present one, which is empty if there is none, or None
    to leave it. Raises: UnavailableError; ConflictError if the Lease was written during each
    attempt, or does not exist.
    """
    for _ in range(TRIES_MAX):
        lease = await leases.read()
        if lease is None:
            break
        value = change(lease.annotations.get(key, ""))
        if value is None:
            return False
        try:
            await leases.write(replace(lease, annotations={**lease.annotations, key: value}))
        except ConflictError as fault:
            log.info(
                "the Lease changed before its annotation was written; retrying",
                extra=fields(reason=str(fault)),
            )
            continue
        return True
    raise ConflictError(f"the annotation {key} of the Lease could not be written")
