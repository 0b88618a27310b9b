"""Count the pods that keep each removable node from being empty, by how they end.

They end by surge moves (Ebb starts a replacement, then a pod is deleted), by completion, by
rollouts and scale-ins, or rarely.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from core.config.settings import Config
from core.eligibility.drainability import long_lived_reasons
from core.eligibility.emptiness import occupying
from core.engine.plan import Plan
from core.model.cluster import Cluster
from core.model.now import Now
from core.model.pod import JOB, REPLICA_SET, Pod
from core.model.reason import Blocker
from core.moves.objects import SurgeObjects
from core.moves.planner import LASTING, SurgeContext, SurgeInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptying:
    """The pods that keep one node from being empty, by how they end."""

    moves: int | None
    """Pods that surge moves would replace sooner or later; None if these are disabled, or if the
    objects that they depend on are unknown."""
    completing: int
    """Other pods that run to completion."""
    turnover: int
    """Other pods that rollouts and scale-ins delete."""
    staying: tuple[Blocker, ...]
    """Reasons why other pods rarely terminate by themselves, one for each pod."""
    own: tuple[Pod, ...] = ()
    """Pods of Ebb's own Deployments among the others, which a person may move at once."""

    @property
    def pods(self) -> int:
        """Return the number of pods that keep the node from being empty."""
        return (self.moves or 0) + self.completing + self.turnover + len(self.staying)


def emptying(
    cluster: Cluster,
    plan: Plan,
    config: Config,
    objects: SurgeObjects | None,
    own_namespace: str,
    now_seconds: int,
    leader_pod: str = "",
) -> dict[str, Emptying]:
    """Return, by the name of each removable node, its numbers of pods by how they end.

    *objects*: objects that surge moves depend on, such as Deployments; None if they are unknown.
    *own_namespace*: namespace in which Ebb is installed. *leader_pod*: its leader as
    namespace/name; empty if it is unknown.
    """
    names = frozenset(removal.node for removal in plan.removals)
    now, surge = Now(now_seconds), None
    if objects is not None and config.surges:
        surge_input = SurgeInput(
            cluster=cluster,
            plan=plan,
            config=config,
            objects=objects,
            own_namespace=own_namespace,
            leader_pod=leader_pod,
            now_seconds=now_seconds,
        )
        surge = SurgeContext(surge_input, names)
    on: dict[str, list[Pod]] = {name: [] for name in names}
    for name, pod in occupying(cluster, now, names):
        on[name].append(pod)
    return {name: _emptying(pods, surge, own_namespace, now) for name, pods in on.items()}


def _emptying(
    pods: Iterable[Pod], surge: SurgeContext | None, own_namespace: str, now: Now
) -> Emptying:
    moves = completing = turnover = 0
    staying: list[Blocker] = []
    own: list[Pod] = []
    for pod in pods:
        if surge is not None and _can_be_moved(surge, pod):
            moves += 1
            continue
        if pod.namespace == own_namespace and pod.owner_kind == REPLICA_SET:
            own.append(pod)
        if reasons := long_lived_reasons((pod,), now):
            staying.append(reasons[0])
        elif pod.owner_kind == JOB or pod.disruption_facts.completes:
            completing += 1
        else:
            turnover += 1
    return Emptying(
        moves=None if surge is None else moves,
        completing=completing,
        turnover=turnover,
        staying=tuple(staying),
        own=tuple(own),
    )


def _can_be_moved(surge: SurgeContext, pod: Pod) -> bool:
    return not any(blocker.reason in LASTING for blocker in surge.blockers(pod))
