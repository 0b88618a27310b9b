"""Remember that a policy for Ebb's own accounts refuses writes, and report it once.

The policies let every write of Ebb pass, unless a mutating webhook or policy of somebody else
changes the object too. Then Ebb cannot end what it begins. So for RETRY_SECONDS after each refused
write to a Node it begins nothing, and after one to a Pod no surge move. Writes that end something
are tried all the same.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from controller.metrics import Metrics
from core.engine.maintenance_gate import RefusedWrite
from kube.client import PolicyRefusedError
from kube.decode.kinds import NODES, PODS
from runtime.clock import Clock
from runtime.logs import fields

RETRY_SECONDS: Final = 60
"""Time after a refused write for which nothing, or no surge move, begins."""
FORGET_SECONDS: Final = 3600
"""Time after a refused write at which the refusal is over, although no write was accepted."""
REFUSED: Final = "WritesRefused"
NOT_BEGUN: Final[Mapping[str, str]] = {
    NODES.resource: "no mark, surge move or eviction",
    PODS.resource: "no surge move",
}
"""What does not begin while writes to a resource are refused."""

log = logging.getLogger("ebb.refusals")


@dataclass(slots=True)
class _State:
    write: RefusedWrite
    ends: int
    """Unix second at which the refusal is over, unless another write is refused before."""


class Refusals:
    """The policies that refuse writes to Nodes or Pods now."""

    def __init__(
        self, clock: Clock, metrics: Metrics, record_event: Callable[[str, str], None]
    ) -> None:
        """Start without refusals; *record_event*: writes an Event with a reason and a note."""
        self._clock, self._record_event = clock, record_event
        self._states: dict[str, _State] = {}
        """Last refusal by resource; only resources of WRITE_POLICIES are in it."""
        metrics.writes_refused.set_function(lambda: metrics.is_leading() and bool(self.current))

    @property
    def current(self) -> Mapping[str, RefusedWrite]:
        """Return the last refused write of each refusal that is not over, by resource."""
        now = self._clock.unix_seconds()
        return {key: one.write for key, one in self._states.items() if now < one.ends}

    def of_node(self) -> RefusedWrite | None:
        """Return the write to a Node that was refused in the last RETRY_SECONDS, or None."""
        return self._recent(NODES.resource)

    def of_node_or_pod(self) -> RefusedWrite | None:
        """Return a write to a Node or Pod that was refused in the last RETRY_SECONDS, or None."""
        return self._recent(NODES.resource) or self._recent(PODS.resource)

    def _recent(self, resource: str) -> RefusedWrite | None:
        write, now = self.current.get(resource), self._clock.unix_seconds()
        return write if write is not None and now < write.until else None

    def observe(self, path: str, fault: PolicyRefusedError | None) -> None:
        """Record that the API server accepted (None) or refused a patch of the object at *path*.

        The first refusal is reported. It is over RETRY_SECONDS after the last refused write, if
        another write was accepted meanwhile; otherwise FORGET_SECONDS later.
        """
        resource = path.split("/")[-2]
        before = self.current.get(resource)
        if fault is not None:
            until = self._clock.unix_seconds() + RETRY_SECONDS
            write = RefusedWrite(fault.policy, fault.change, until)
            self._states[resource] = _State(write, until + FORGET_SECONDS)
            if before is None:
                self._report(resource, write)
        elif before is not None:
            self._states[resource].ends = before.until

    def _report(self, resource: str, write: RefusedWrite) -> None:
        log.error(
            "a ValidatingAdmissionPolicy for Ebb's own accounts refuses writes",
            extra=fields(policy=write.policy, resource=resource, change=write.change),
        )
        note = (
            f"ValidatingAdmissionPolicy {write.policy}, which limits Ebb's own accounts, refuses "
            f"Ebb's writes to {resource} ({write.change}): another webhook or policy changes "
            f"them; exempt Ebb's accounts there. Meanwhile Ebb begins {NOT_BEGUN[resource]}"
        )
        self._record_event(REFUSED, note)
