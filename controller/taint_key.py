"""Record the key of Ebb's taint in an annotation of the Lease, and refuse to run with another.

Ebb finds its taints by their key. A controller with another `taintKey` would never remove the
taints with the previous key. So it does not run until `ebb cleanup` has removed these taints and
the record.
"""

# The record is on the Lease, because only the ServiceAccount of Ebb may write the Lease. A kubelet
# could stop the controller by a record on its Node.

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
    """Compare the configured key of Ebb's taint with the recorded key, and record it."""

    def __init__(self, leases: Leases, key: str, namespace: str) -> None:
        """Take the store of the Lease and the configured *key*.

        *namespace*: the namespace of the Lease, for the error message.
        """
        self._leases, self._key, self._namespace = leases, key, namespace

    async def check(self) -> None:
        """Compare the configured with the recorded taint key when the program starts.

        If the Lease cannot be read, `record` compares them when this replica leads.

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
        """Record the configured taint key if none is recorded; retry until it is recorded.

        Raises: InvalidInputError if another key is recorded.
        """
        # No node may have a taint with a key that is not recorded.
        while True:
            if await self._is_now_recorded():
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def run(self) -> None:
        """Record the taint key again whenever somebody has removed the record, until cancelled.

        Raises: InvalidInputError if another key is recorded.
        """
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self._is_now_recorded()

    async def _is_now_recorded(self) -> bool:
        """Record the taint key if no key is recorded; return whether it is recorded now.

        False: the Lease does not exist yet, or could not be read or written.
        """
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
        recorded = lease.annotations.get(KEY_ANNOTATION, "") if lease else ""
        if recorded not in ("", self._key):
            raise InvalidInputError("taintKey", self._refusal(recorded))
        return recorded == self._key

    def _refusal(self, recorded: str) -> str:
        where = "" if self._namespace == NAMESPACE else f" --ebb-namespace {self._namespace}"
        return (
            f"is {self._key!r}, but nodes may have taints with the key {recorded!r}. To change "
            "the key: (1) scale the controller to 0, because an old replica would mark nodes "
            f"again; (2) run `ebb cleanup --all --taint-key {recorded}{where}`; "
            "(3) start all programs with the new key"
        )
