"""Record the taint key in use in an annotation of the Lease, and refuse to run with another.

Ebb finds its taints by their key. A controller with another `taintKey` would never remove the
taints with the previous key. So it does not run until `ebb cleanup` has removed these taints and
the record.
"""

# The record is on the Lease, because only Ebb's own account may write the Lease. A kubelet could
# stop the controller by a record on its Node.

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from typing import Final

from controller.election import Leases
from core.model.errors import ConflictError, InvalidInputError, UnavailableError
from kube.stores.lease import Lease
from kube.target import NAMESPACE
from runtime.logs import fields

KEY_ANNOTATION: Final = "kube-ebb.io/taint-key"
RETRY_SECONDS: Final = 1.0
CHECK_SECONDS: Final = 10.0
"""Interval at which the leader checks that its key is still recorded."""

log = logging.getLogger("ebb.taint-key")


class TaintKey:
    """Compare the configured key with the recorded key, and record it."""

    def __init__(self, leases: Leases, key: str, namespace: str) -> None:
        """*namespace*: the namespace of the Lease, for the error message."""
        self._leases, self._key, self._namespace = leases, key, namespace

    async def check(self) -> None:
        """Compare the keys at the start.

        If the Lease cannot be read, they are compared when this replica leads.

        Raises: InvalidInputError if another key is recorded.
        """
        try:
            self._is_recorded(await self._leases.read())
        except UnavailableError as fault:
            log.warning(
                "cannot read the recorded taint key; it is compared when this replica leads",
                extra=fields(reason=str(fault)),
            )

    async def record(self) -> None:
        """Wait until the key is recorded.

        Raises: InvalidInputError if another key is recorded.
        """
        # No node may have a taint with a key that is not recorded.
        while True:
            if await self._is_now_recorded():
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def run(self) -> None:
        """Record the key again if the record has been removed, until cancelled.

        Raises: InvalidInputError if another key is recorded.
        """
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self._is_now_recorded()

    async def _is_now_recorded(self) -> bool:
        """Record the key if no key is recorded; return whether the key is recorded now."""
        try:
            lease = await self._leases.read()
            if self._is_recorded(lease):
                return True
            if lease is None:
                return False  # the elector creates the Lease at its next renewal
            annotations = {**lease.annotations, KEY_ANNOTATION: self._key}
            with suppress(ConflictError):  # the elector has renewed the Lease meanwhile
                await self._leases.write(replace(lease, annotations=annotations))
                log.info("recorded the taint key", extra=fields(key=self._key))
                return True
        except UnavailableError as fault:
            log.warning("cannot record the taint key; retrying", extra=fields(reason=str(fault)))
        return False

    def _is_recorded(self, lease: Lease | None) -> bool:
        found = lease.annotations.get(KEY_ANNOTATION, "") if lease else ""
        if found not in ("", self._key):
            raise InvalidInputError("taintKey", self._refusal(found))
        return found == self._key

    def _refusal(self, found: str) -> str:
        where = "" if self._namespace == NAMESPACE else f" --ebb-namespace {self._namespace}"
        return (
            f"is {self._key!r}, but nodes may have taints with the key {found!r}. To change the "
            "key: (1) scale the controller to 0, because an old replica would mark nodes again; "
            f"(2) run `ebb cleanup --all --taint-key {found}{where}`; "
            "(3) start all programs with the new key"
        )
