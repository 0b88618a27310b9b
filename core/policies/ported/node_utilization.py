"""Remove nodes with low utilization whose pods fit elsewhere (Cluster Autoscaler).

The utilization of a node is the requests of all its pods, including DaemonSet and static pods,
over its allocatable resources. Some pods prevent the removal of their node: bare pods, pods of
kube-system, pods with local storage, and pods that must not be evicted. An annotation of the pod
may override this. The engine remembers where the pods of a node would be placed
(core.engine.placement_hints).
Source: Cluster Autoscaler's FAQ ("How does scale-down work?") and its drainability rules.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final

from core.eligibility.drainability import (
    BARE,
    LOCAL_STORAGE,
    NOT_SAFE_TO_EVICT,
    SAFE,
    SYSTEM,
    SYSTEM_NAMESPACE,
    findings,
    surely_short_lived,
)
from core.model.pod import Pod
from core.model.reason import Blocker, Reason
from core.placement.reach_utilization import RESOURCE_NAMES, beside, limit_text, requested
from core.policies.policy import Order, Policy, PolicyInput
from core.setting_types.value_types import SHARE, Flag, raised

UTILIZED: Final = Reason(
    "utilized",
    "The pods of the node request at least `nodeUtilization.utilization` of its CPU or memory.",
    "wait for requests to fall, lower requests that pods do not use, or raise "
    "`nodeUtilization.utilization`",
    "the CPU and memory requests of its pods are both below `nodeUtilization.utilization`",
)
KEEPING_POD: Final = Reason(
    "keeping-pod",
    "A pod prevents the removal of its node: it has no controller, belongs to kube-system, has "
    "local storage, or must not be evicted.",
    "see why: ebb explain pod {namespace}/{name}; if the pod may be evicted, annotate it with "
    'cluster-autoscaler.kubernetes.io/safe-to-evict: "true"; or set '
    "`nodeUtilization.keepSystem` or `nodeUtilization.keepLocalStorage` to false",
    "the pod is gone, or may be evicted",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of policy NodeUtilization."""

    utilization: Annotated[Fraction, SHARE] = Fraction(1, 2)
    """Nodes may be removed while their CPU and memory requests are both below this share. A marked
    node keeps its mark while they are below this share plus `hysteresis`. Raise it if too few
    nodes are removed, lower it if too many pods must move."""
    keep_system: Flag = True
    """Whether pods of kube-system, except DaemonSet and static pods, prevent the removal of their
    node. Set it to `false` if these pods may restart on other nodes."""
    keep_local_storage: Flag = True
    """Whether pods with local storage (hostPath, emptyDir on disk) prevent the removal of their
    node. Set it to `false` if your pods can lose this data, as a cache can."""

    def keeping(self) -> frozenset[Reason]:
        """Return the reasons for which a pod prevents its node's removal under these settings."""
        flags = ((BARE, True), (SYSTEM, self.keep_system),
                 (LOCAL_STORAGE, self.keep_local_storage), (NOT_SAFE_TO_EVICT, True))  # fmt: skip
        return frozenset(reason for reason, keep in flags if keep)


class NodeUtilization(Policy):
    """Remove nodes whose CPU and memory requests are both below a share of their allocatable.

    Nodes that will be empty soon come first.
    """

    name: ClassVar[str] = "NodeUtilization"
    Settings: ClassVar[type[Any] | None] = Settings
    section: ClassVar[str] = "node_utilization"
    defaults: ClassVar[Mapping[str, Any]] = {
        "unneededTime": "10m",
        "maxJobAge": "never",
        "cooldown": {"delayAfterAdd": "10m"},
        "controller": {"interval": "10s"},
    }
    hysteresis: ClassVar[bool] = True
    reasons = (UTILIZED, KEEPING_POD)
    remembers_placements: ClassVar[bool] = True

    def __init__(self, policy_input: PolicyInput) -> None:
        self._input, self._ledger = policy_input, policy_input.ledger
        settings: Settings = policy_input.settings
        own = settings.utilization
        self._limits = own, raised(own, policy_input.hysteresis)
        """Limits for an unmarked node, and for a marked one."""
        self._keeping = settings.keeping()
        self._keeping_pods_known: dict[int, tuple[Blocker, ...]] = {}
        """Blockers by node, one for each bound pod that prevents its removal."""

    def rank(self, node: int) -> Order:
        """Return a sort key: nodes that will be empty soon come first.

        These have few long-lived pods, few pods to move and low requests; the name decides last.
        """
        policy_input, name = self._input, self._input.nodes[node].name
        return (
            policy_input.long_lived_pods.get(name, 0),
            policy_input.count_to_move(node),
            policy_input.share(node),
            name,
        )

    def nominates(self, node: int, *, marked: bool) -> bool:
        """Report whether CPU and memory requests are low, and no pod prevents the node's removal.

        *marked*: whether the node is marked; then the requests may be higher.
        """
        limit = self._limits[marked]
        parts = zip(self._ledger.used(node), self._ledger.capacity(node), strict=True)
        return all(_is_under(*part, limit) for part in parts) and not self._keeping_pods(node)

    def explain(self, node: int, *, marked: bool) -> Sequence[Blocker]:
        """Return the reasons why `nominates` is False, as Blockers.

        At most one is about the requests; all others are about pods that prevent the removal.
        """
        blockers, limit = [], self._limits[marked]
        used, whole = self._ledger.used(node), self._ledger.capacity(node)
        over = [
            f"{name} at {beside(part, total, limit)}" if total > 0 else f"{name} without capacity"
            for name, part, total in zip(RESOURCE_NAMES, used, whole, strict=True)
            if not _is_under(part, total, limit)
        ]
        if over:
            message = f"requests: {' and '.join(over)}, not under the limit of {limit_text(limit)}"
            blockers.append(Blocker(UTILIZED, message))
        blockers += (
            Blocker(KEEPING_POD, pod.message, pod.pod) for pod in self._keeping_pods(node)
        )
        return blockers

    def describe(self, node: int) -> str:
        """Return a text with the requests on the node, and the number of pods that would move."""
        message = requested(self._ledger.used(node), self._ledger.capacity(node))
        moves = self._input.count_to_move(node)
        return f"{message} requested, {moves} {'pod' if moves == 1 else 'pods'} to move"

    def _keeping_pods(self, node: int) -> tuple[Blocker, ...]:
        blockers = self._keeping_pods_known.get(node)
        if blockers is None:
            pods = (pod for pod in self._input.pods_on(node) if not surely_short_lived(pod))
            answers = (keeps(pod, self._keeping) for pod in pods)
            blockers = self._keeping_pods_known[node] = tuple(
                answer for answer in answers if answer is not None
            )
        return blockers


def keeps(pod: Pod, keeping: Collection[Reason]) -> Blocker | None:
    """Return the finding that the pod prevents the removal of its node, for a reason in *keeping*.

    Return None if the pod does not prevent it.
    """
    # The rules are in Cluster Autoscaler's order. The first one that applies decides.
    for _, finding in findings(pod):
        if finding.reason is SAFE:
            return None
        critical_alone = finding.reason is SYSTEM and pod.namespace != SYSTEM_NAMESPACE
        if finding.reason in keeping and not critical_alone:
            return finding
    return None


def _is_under(part: int, whole: int, limit: Fraction) -> bool:
    """Report whether *part* is less than the share *limit* of *whole*; False if *whole* is 0."""
    return part * limit.denominator < limit.numerator * whole
