"""The engine loop: judge a snapshot, carry out what was decided, check what came back.

Knows neither clock nor API server: time is an argument, nodes are written through NodeWriter. The
deciding is in webhook.decide; here is only the carrying out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from core import engine
from core.config import Config, Mode
from core.engine import Plan
from core.errors import EbbError, UnavailableError
from core.marks import going
from core.model import Cluster, Node
from webhook.decide import Write, decide
from webhook.taints import RawTaint, changed_taints

REPAIR_TRIES_MAX: Final = 5
"""Writers that race for one node's taints: each lost race costs one try."""
WRITES_MAX: Final = 500
"""In one tick; the rest comes with the next."""


class ConflictError(UnavailableError):
    """The node was written by somebody else since (409)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A Node as the API server answered a write."""

    node: Node
    resource_version: str
    raw_taints: Sequence[RawTaint]
    """spec.taints as they stand in JSON, one for each of node.taints."""


class NodeWriter(Protocol):
    """What the loop asks of the API server. Both raise UnavailableError."""

    async def patch_node(self, name: str, merge_patch: Mapping[str, Any]) -> Written:
        """Send a JSON merge patch; an empty one reads the node and lets the webhook repair it."""

    async def replace_taints(
        self, name: str, taints: Sequence[RawTaint], resource_version: str
    ) -> Written:
        """Write the whole list of taints on this version of the node, or raise ConflictError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What one look at the cluster led to; nothing is written yet."""

    plan: Plan
    candidates: Mapping[str, int]
    due: frozenset[str]
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TickReport:
    """What became of one tick."""

    judgement: Judgement
    written: tuple[Write, ...]
    """Carried out; in mode observe none."""
    repaired: tuple[str, ...]
    """Nodes whose taint the webhook had not set."""
    faults: tuple[str, ...]
    """One line for each write that failed; the next tick decides anew."""


class Controller:
    """The loop's state: since when each node has been a candidate."""

    def __init__(
        self, config: Config, nodes: NodeWriter, *, owner: str, removals_max: int | None = None
    ) -> None:
        """Take what is needed; *owner* stands in the marks, *removals_max* limits marked nodes."""
        self._config = config
        self._nodes = nodes
        self._owner = owner
        self._removals_max = removals_max
        self._candidates: dict[str, int] = {}

    async def tick(self, cluster: Cluster, now_seconds: int) -> TickReport:
        """Judge and carry out. Raises: nothing; failed writes are in the report."""
        return await self.carry_out(self.judge(cluster, now_seconds))

    def judge(self, cluster: Cluster, now_seconds: int) -> Judgement:
        """Decide what to write, and remember since when nodes have been candidates.

        Takes the processor for as long as the engine needs; may run in a thread, one at a time.
        """
        config = self._config
        candidates = engine.update_candidates(cluster, config, self._candidates, now_seconds)
        self._candidates = candidates
        due = engine.due(candidates, config.delay_seconds, now_seconds)
        plan = engine.plan(cluster, config, due=due, removals_max=self._removals_max)
        writes = decide(cluster, plan, config, now_seconds, self._owner)
        return Judgement(plan=plan, candidates=candidates, due=due, writes=writes)

    async def carry_out(self, judgement: Judgement) -> TickReport:
        """Write, one node after the other; one that fails does not stop the others."""
        written: list[Write] = []
        repaired: list[str] = []
        faults: list[str] = []
        todo = judgement.writes[:WRITES_MAX] if self._config.mode is Mode.ENFORCE else ()
        for write in todo:
            try:
                if await self._carry(write):
                    repaired.append(write.node)
                written.append(write)
            except EbbError as fault:
                faults.append(f"node {write.node}: {write.kind}: {fault}")
        return TickReport(
            judgement=judgement,
            written=tuple(written),
            repaired=tuple(repaired),
            faults=tuple(faults),
        )

    async def _carry(self, write: Write) -> bool:
        """Send one write and see to the taint; say whether it had to be repaired.

        Raises: UnavailableError.
        """
        answer = await self._nodes.patch_node(write.node, write.merge_patch)
        taints = self._wrong(answer)
        repaired = taints is not None
        for _ in range(REPAIR_TRIES_MAX):
            if taints is None:
                return repaired
            answer = await self._repair(answer, taints)
            taints = self._wrong(answer)
        if taints is not None:
            raise UnavailableError(f"its taints were not right after {REPAIR_TRIES_MAX} tries")
        return repaired

    def _wrong(self, answer: Written) -> Sequence[RawTaint] | None:
        """Return what the node's taints should be, if they are not and it is not going anyway."""
        if going(answer.node):
            return None
        return changed_taints(answer.node, answer.raw_taints, self._config.taint_key)

    async def _repair(self, found: Written, taints: Sequence[RawTaint]) -> Written:
        name = found.node.name
        try:
            return await self._nodes.replace_taints(name, taints, found.resource_version)
        except ConflictError:
            return await self._nodes.patch_node(name, {})
