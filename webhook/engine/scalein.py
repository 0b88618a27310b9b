"""Carries out what core.writes.costs decides: a bounded batch of pods a pass.

In mode observe costs are only told: what stands on pods from another mode is taken away.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from core.config.settings import Config, Mode, ScaleInOrder
from core.edge.logs import fields
from core.edge.metrics import Metrics
from core.errors import ConflictError, UnavailableError
from core.model.cluster import Cluster
from core.model.pod import Pod
from core.writes.costs import CostKind, CostWrite, cost_traces, decide_costs

WRITES_MAX: Final = 200
"""Pods a pass; the others wait for the next one."""
WRITERS_MAX: Final = 4
"""Pods that are written at once."""
BEGIN_SECONDS_MAX: Final = 0.5
"""After this no further pod of a pass is begun: a release of nodes must not wait for them."""

log = logging.getLogger("ebb.scalein")


class PodWriter(Protocol):
    """How pods are read anew and written; the API server, or a test's."""

    async def get_pod(self, namespace: str, name: str) -> tuple[Pod, str] | None:
        """Return a Pod and its resourceVersion, None when it has finished or is gone."""

    async def patch_pod(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Merge-patch a Pod. Raises: ConflictError when it has changed or is gone."""


@dataclass(slots=True)
class _Pass:
    """A batch while it is being written."""

    waiting: Iterator[CostWrite]
    end: float
    """When the last write may begin, by the event loop's clock."""
    halted: Callable[[], str | None]
    failed: int = 0


class ScaleIn:
    """Writes deletion costs. All it remembers is which pods were refused; they are tried last."""

    def __init__(self, config: Config, writer: PodWriter, metrics: Metrics) -> None:
        self.configure(config)
        self._writer, self._metrics = writer, metrics
        self._refused: set[str] = set()

    def configure(self, config: Config) -> None:
        """Go on with another configuration."""
        self._enabled = config.scale_in_order is ScaleInOrder.ENABLED
        self._enforced = config.mode is Mode.ENFORCE

    def judge(self, cluster: Cluster) -> tuple[CostWrite, ...]:
        """Decide what to write; no I/O. Turned off, that is to take away what is ours."""
        return decide_costs(cluster, enabled=self._enabled)

    async def carry_out(
        self, writes: Sequence[CostWrite], halted: Callable[[], str | None] = lambda: None
    ) -> int:
        """Write a batch, until there is a reason to look again first; return how many failed.

        A write that fails ends the batch, since the next would most likely fail as well; the next
        pass begins with the others, so that a pod that is always refused holds nobody up.
        """
        told = [write for write in writes if write.kind is CostKind.SET and not self._enforced]
        wanted = [write for write in writes if write.kind is CostKind.CLEAR or self._enforced]
        _tell("would write deletion costs", told)
        _tell("deletion costs to write", wanted)
        self._refused &= {write.key for write in wanted}
        batch = sorted(wanted, key=lambda write: write.key in self._refused)[:WRITES_MAX]
        end = asyncio.get_running_loop().time() + BEGIN_SECONDS_MAX
        running = _Pass(iter(batch), end, halted)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(WRITERS_MAX, len(batch))):
                tasks.create_task(self._work(running))
        return running.failed

    async def _work(self, running: _Pass) -> None:
        clock = asyncio.get_running_loop()
        for write in running.waiting:
            if running.halted() is not None:
                return
            if not await self._carry_out(write):
                running.failed += 1
            if running.failed or clock.time() >= running.end:
                return

    async def _carry_out(self, write: CostWrite) -> bool:
        try:
            done = await write_as_seen(self._writer, write)
        except ConflictError:
            done = False
        except UnavailableError as fault:
            self._refused.add(write.key)
            self._metrics.pod_writes.labels("failed").inc()
            log.warning("a write failed", extra=fields(pod=write.key, reason=str(fault)))
            return False
        self._metrics.pod_writes.labels(write.kind.value if done else "outdated").inc()
        return True


async def write_as_seen(writer: PodWriter, write: CostWrite) -> bool:
    """Write if the pod still is as it was when this was decided; say whether it was.

    Raises: ConflictError when it changes at that moment.
    """
    found = await writer.get_pod(write.namespace, write.name)
    if found is None or cost_traces(found[0]) != write.seen:
        return False
    await writer.patch_pod(write.namespace, write.name, write.merge_patch(found[1]))
    return True


def _tell(what: str, writes: Sequence[CostWrite]) -> None:
    if writes:
        log.info(what, extra=fields(**Counter(write.kind.value for write in writes)))
