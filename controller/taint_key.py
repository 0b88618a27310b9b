"""The taint key in use, recorded in an annotation of the Lease.

Taints are found by their key. A controller with another `taintKey` would never remove the taints
of the key before, so it does not run until `ebb release` has removed them and the record. Only
Ebb's own account writes the Lease; a kubelet, which writes its Node, cannot stop the controller.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from typing import Final

from controller.election import Leases
from controller.stores.lease import Lease
from core.edge.kube.names import NAMESPACE
from core.edge.logs import fields
from core.model.errors import ConflictError, InvalidInputError, UnavailableError

KEY_ANNOTATION: Final = "kube-ebb.io/taint-key"
RETRY_SECONDS: Final = 1.0
KEEP_SECONDS: Final = 10.0
"""How often the leader looks whether its key is still recorded."""

log = logging.getLogger("ebb.taint-key")


class TaintKey:
    """Compares the configured key with the recorded one, and records it."""

    def __init__(self, leases: Leases, key: str, namespace: str) -> None:
        """*namespace*: that of the Lease, for the message."""
        self._leases, self._key, self._namespace = leases, key, namespace

    async def check(self) -> None:
        """Compare the keys once; if the Lease cannot be read, the leader will compare them.

        Raises: InvalidInputError if another key is recorded.
        """
        try:
            self._is_recorded(await self._leases.read())
        except UnavailableError as fault:
            log.warning("cannot read the recorded key", extra=fields(reason=str(fault)))

    async def record(self) -> None:
        """Wait until the key is recorded: no node may have its taint before.

        Raises: InvalidInputError if another key is recorded.
        """
        while True:
            if await self._recorded():
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def keep(self) -> None:
        """Record the key again when somebody has removed the record, until cancelled.

        Raises: InvalidInputError if another key is recorded.
        """
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            await self._recorded()

    async def _recorded(self) -> bool:
        """Record the key if none is recorded, and say whether it is."""
        try:
            lease = await self._leases.read()
            if self._is_recorded(lease):
                return True
            if lease is None:
                return False  # the elector creates it when it renews it
            annotations = {**lease.annotations, KEY_ANNOTATION: self._key}
            with suppress(ConflictError):  # the elector renews the Lease all the time
                await self._leases.write(replace(lease, annotations=annotations))
                log.info("recorded the taint key", extra=fields(key=self._key))
                return True
        except UnavailableError as fault:
            log.warning("cannot record the taint key", extra=fields(reason=str(fault)))
        return False

    def _is_recorded(self, lease: Lease | None) -> bool:
        found = lease.annotations.get(KEY_ANNOTATION, "") if lease else ""
        if found not in ("", self._key):
            raise InvalidInputError("taintKey", self._refusal(found))
        return found == self._key

    def _refusal(self, found: str) -> str:
        where = "" if self._namespace == NAMESPACE else f" --namespace {self._namespace}"
        return (
            f"is {self._key!r}, but nodes may have taints with the key {found!r}. To change the "
            "key: (1) scale the controller to 0, because an old replica would mark nodes again; "
            f"(2) run `ebb release --all --taint-key {found}{where}`; "
            "(3) start all programs with the new key"
        )
