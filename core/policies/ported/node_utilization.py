"""Cluster Autoscaler's rule: a node goes that is hardly used and whose pods all fit elsewhere.

Its utilization is what all its pods ask for, DaemonSets' and static ones too, over what it has.
Some pods keep their node: those that nothing would bring back, those of kube-system, those with
data on the node, and those that must not be evicted; an annotation of their owners may say
otherwise. Where a node's pods would go is remembered by the engine (core.engine.placement_hints).
Source: Cluster Autoscaler's FAQ ("How does scale-down work?") and its drainability rules.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final

from core.capacity.sums import RESOURCE_NAMES, beside, limit_text, requested
from core.fields.structure import at_least
from core.fields.value_types import SHARE, Flag, eased
from core.guards.drainability import (
    BARE,
    LOCAL_STORAGE,
    NOT_SAFE_TO_EVICT,
    SAFE,
    SYSTEM,
    SYSTEM_NAMESPACE,
    findings,
    ordinary,
)
from core.model.pod import Pod
from core.model.reason import Blocker, Reason
from core.policies.policy import Order, Policy, PolicyInput

UTILIZED: Final = Reason(
    "utilized",
    "The node's pods ask for too much of its CPU or memory.",
    "wait for requests to fall, lower what pods ask for beyond their use, or set "
    "`nodeUtilization.utilization` higher",
    "CPU and memory of its pods are both under `nodeUtilization.utilization`",
)
KEEPING_POD: Final = Reason(
    "keeping-pod",
    "A pod keeps its node: it is stand-alone, of kube-system, has data on the node, or must not "
    "be evicted.",
    "see what it is: ebb explain pod {namespace}/{name}; if it may be lost, annotate it with "
    'cluster-autoscaler.kubernetes.io/safe-to-evict: "true"; or set `keepStandalone`, '
    "`keepSystem` or `keepLocalStorage` to false",
    "the pod is gone, or may be evicted",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What policy NodeUtilization reads."""

    utilization: Annotated[Fraction, SHARE] = Fraction(1, 2)
    """Nodes of which less is asked for, of CPU and of memory, may go."""
    leave: Annotated[Annotated[Fraction, SHARE] | None, at_least("utilization")] = None
    """A marked node stays marked while less is asked for; where nothing is said, that is 5 points
    above `utilization`: 55%."""
    keep_standalone: Flag = True
    """Pods without a controller keep their node."""
    keep_system: Flag = True
    """Pods of kube-system keep their node, but for DaemonSets' and static ones."""
    keep_local_storage: Flag = True
    """Pods with data on their node (hostPath, emptyDir on disk) keep it."""

    def limit(self, *, marked: bool) -> Fraction:
        """Return what the utilization must be under."""
        if not marked:
            return self.utilization
        return eased(self.utilization) if self.leave is None else self.leave

    def keeping(self) -> frozenset[Reason]:
        """Return what must not be true of any pod of a node that goes."""
        flags = ((BARE, self.keep_standalone), (SYSTEM, self.keep_system),
                 (LOCAL_STORAGE, self.keep_local_storage), (NOT_SAFE_TO_EVICT, True))  # fmt: skip
        return frozenset(reason for reason, keep in flags if keep)


class NodeUtilization(Policy):
    """Those first that empty soonest."""

    name: ClassVar[str] = "NodeUtilization"
    Settings: ClassVar[type[Any] | None] = Settings
    section: ClassVar[str] = "node_utilization"
    defaults: ClassVar[Mapping[str, Any]] = {
        "delay": "10m",
        "cooldown": {"afterNodeAdd": "10m"},
        "controller": {"interval": "10s"},
    }
    reasons = (UTILIZED, KEEPING_POD)
    remembers_placements: ClassVar[bool] = True

    def __init__(self, policy_input: PolicyInput) -> None:
        self._input, self._ledger = policy_input, policy_input.ledger
        settings: Settings = policy_input.settings
        self._limits = settings.limit(marked=False), settings.limit(marked=True)
        self._keeping = settings.keeping()
        self._keeping_pods_known: dict[int, tuple[Blocker, ...]] = {}
        """By node: why pods that are bound to it keep it, one each."""

    def rank(self, node: int) -> Order:
        """Return what tells how soon it empties."""
        policy_input, name = self._input, self._input.nodes[node].name
        return (
            policy_input.long_lived_pods.get(name, 0),
            policy_input.count_to_move(node),
            policy_input.share(node),
            name,
        )

    def nominates(self, node: int, *, marked: bool) -> bool:
        """Say whether little is asked for on it, and no pod keeps it."""
        limit = self._limits[marked]
        parts = zip(self._ledger.used(node), self._ledger.capacity(node), strict=True)
        return all(_is_under(*part, limit) for part in parts) and not self._keeping_pods(node)

    def explain(self, node: int, *, marked: bool) -> Sequence[Blocker]:
        """Say how much is asked for, and which pods keep the node."""
        found, limit = [], self._limits[marked]
        used, whole = self._ledger.used(node), self._ledger.capacity(node)
        over = [
            f"{name} at {beside(part, total, limit)}" if total > 0 else f"{name} without capacity"
            for name, part, total in zip(RESOURCE_NAMES, used, whole, strict=True)
            if not _is_under(part, total, limit)
        ]
        if over:
            message = f"{' and '.join(over)}, not under {limit_text(limit)}"
            found.append(Blocker(UTILIZED, message))
        found += (Blocker(KEEPING_POD, one.message, one.pod) for one in self._keeping_pods(node))
        return found

    def describe(self, node: int) -> str:
        """Say how much is asked for on it, and how many pods need another place."""
        message = requested(self._ledger.used(node), self._ledger.capacity(node))
        moves = self._input.count_to_move(node)
        return f"{message} requested, {moves} {'pod' if moves == 1 else 'pods'} to move"

    def _keeping_pods(self, node: int) -> tuple[Blocker, ...]:
        found = self._keeping_pods_known.get(node)
        if found is None:
            pods = (pod for pod in self._input.pods_on(node) if not ordinary(pod))
            verdicts = (keeps(pod, self._keeping) for pod in pods)
            found = self._keeping_pods_known[node] = tuple(
                one for one in verdicts if one is not None
            )
        return found


def keeps(pod: Pod, keeping: Collection[Reason]) -> Blocker | None:
    """Say which of these reasons keeps the pod's node, unless its owner says it may be evicted.

    It asks the rules in their order, which Cluster Autoscaler's are too.
    """
    for _, found in findings(pod):
        if found.reason is SAFE:
            return None
        critical_alone = found.reason is SYSTEM and pod.namespace != SYSTEM_NAMESPACE
        if found.reason in keeping and not critical_alone:
            return found
    return None


def _is_under(part: int, whole: int, limit: Fraction) -> bool:
    """Say whether that is less than the share; nothing is less than a share of nothing."""
    return part * limit.denominator < limit.numerator * whole
