"""Choose the pods to replace by surge moves, and say why others are not replaced now.

A surge move replaces a pod on a marked node by a new one, before the old one is deleted. Ebb moves
only pods for which the plan has a place on a node that stays. The nodes that will be empty soonest
come first, and namespaces take turns.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple

from core.config.settings import Config, Mode
from core.eligibility.emptiness import occupying
from core.eligibility.surge import NEVER, VOLUME, why_not_replaced
from core.engine.maintenance_gate import Beginning, MayBegin, Refusal, RefusedWrite, may_begin
from core.engine.node_share import NodeShares, Placement, within_window
from core.engine.plan import Plan
from core.engine.unschedulable import feasible_unschedulable, round_robin
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.humanize import timestamp
from core.model.now import Now
from core.model.pod import TEMPLATE_LABEL, Pod, detached_pods
from core.model.reason import Blocker
from core.moves.deployments import deployment_blockers
from core.moves.move import Move
from core.moves.note import MoveNote, note_of
from core.moves.objects import ObservedDeployment, SurgeObjects, is_controller
from core.moves.outcomes import settle_seconds
from core.moves.reasons import (
    BESIDE,
    CHEAPER,
    HASH_SELECTED,
    HOST_PORT,
    HPA,
    KEEP,
    LEFT_ALONE,
    MIN_READY,
    NO_DEPLOYMENT,
    NO_PLACE,
    NODE_SHARE,
    NOT_READY,
    OTHER_CONTROLLER,
    OWN,
    OWNER_REFERENCES,
    PENDING,
    ROLLOUT,
    SETTLING,
    STRATEGY,
    TURN,
    UNDER_WAY,
    YOUNG,
)
from core.moves.steps import leaving_nodes, marked_nodes
from core.writes.costs import MOVE_COST, number_of

LASTING: Final = NEVER | {
    NO_DEPLOYMENT,
    OWN,
    STRATEGY,
    KEEP,
    MIN_READY,
    HPA,
    VOLUME,
    NO_PLACE,
    BESIDE,
    HOST_PORT,
    OTHER_CONTROLLER,
    HASH_SELECTED,
    OWNER_REFERENCES,
}
"""Reasons that rarely end while the pod runs, so its node does not become empty by moves."""
MOVES_IN_NAMESPACE_MAX: Final = 10
"""Maximum number of moves at the same time in one namespace."""
FAILURES_IN_NAMESPACE_MAX: Final = 10
"""Number of failed moves within an hour after which no move begins in their namespace.

So pods that never start take few of the moves that `surge.maxPerHour` allows all namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveMemory:
    """What a running leader knows of moves beside the objects of the cluster."""

    own: Mapping[str, Move] = field(default_factory=dict)
    """Moves that this leader has begun, by the UID of their pod."""
    begun_within_hour: int = 0
    ended: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Unix second at which the last move ended, by namespace and name of the ReplicaSet."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Number of failed moves within the last hour, by namespace."""
    refused: Mapping[tuple[str, str], Sequence[Blocker]] = field(default_factory=dict)
    """Why pods cannot be detached, by namespace and name of their ReplicaSet."""
    placed: Mapping[str, Placement] = field(default_factory=dict)
    """Where new pods were first seen, by UID of the moved pod: for all moves of the last window
    and those in progress."""


NO_MEMORY: Final = MoveMemory()


@dataclass(frozen=True, slots=True, kw_only=True)
class SurgeInput:
    """The input of a decision about surge moves in one reconciliation.

    It has the cluster, the plan, the moves in progress, and the identity of the leader.
    """

    cluster: Cluster
    plan: Plan
    """The plan for this cluster."""
    config: Config
    objects: SurgeObjects
    memory: MoveMemory = NO_MEMORY
    own_namespace: str
    """Namespace in which Ebb is installed."""
    leader_pod: str = ""
    """Pod of the leader as namespace/name. Empty if it is unknown: then any replica of the
    controller may be the leader."""
    now_seconds: int
    refused_write: RefusedWrite | None = None
    """The last write to a Node or Pod that a policy for Ebb's own accounts refused, if any."""
    in_namespace_max: int = MOVES_IN_NAMESPACE_MAX


class NewMove(NamedTuple):
    """A surge move to begin, its pod, and the permission to begin it."""

    move: Move
    pod: Pod
    permit: MayBegin
    """Permission to begin the move; it may end before the pod is detached."""


class MovePlan(NamedTuple):
    """The surge moves to begin now, and the reasons why other pods of marked nodes must wait."""

    begin: tuple[NewMove, ...]
    """Moves to begin now, in this order."""
    waits: tuple[Blocker, ...]
    """Why other pods of marked nodes are not moved now."""


class SurgeContext:
    """Answer questions about surge moves in one reconciliation.

    It has the marked nodes, the pods on them, and all pods of these pods' Deployments.
    """

    def __init__(self, surge_input: SurgeInput, nodes: Collection[str] | None = None) -> None:
        """Collect the pods on the nodes to empty, and all pods of their Deployments.

        *nodes*: names of the nodes to empty; None: the marked nodes.
        """
        self.surge_input, self.now = surge_input, Now(surge_input.now_seconds)
        cluster, objects = surge_input.cluster, surge_input.objects
        leaving = leaving_nodes(cluster.nodes)
        wanted = marked_nodes(cluster.nodes) if nodes is None else frozenset(nodes)
        self.on: dict[str, list[Pod]] = {
            node.name: []
            for node in cluster.nodes
            if node.name in wanted and node.name not in leaving
        }
        """Pods that keep each of these nodes from being empty, by node; without leaving nodes."""
        for name, pod in occupying(cluster, self.now, self.on):
            self.on[name].append(pod)
        owners = (objects.deployment_of(pod) for pod in chain.from_iterable(self.on.values()))
        keys = {one.key for one in owners if one is not None}
        self.of_deployment: dict[str, list[Pod]] = {key: [] for key in sorted(keys)}
        """All pods of the relevant Deployments, on any node."""
        for pod in cluster.pods:
            key = objects.owners.get((pod.namespace, pod.owner_name), "")
            if key in self.of_deployment and objects.deployment_of(pod) is not None:
                self.of_deployment[key].append(pod)

    @property
    def allowed(self) -> bool:
        """Return whether surge moves are enabled and the mode is enforce."""
        return self.surge_input.config.surges and self.surge_input.config.mode is Mode.ENFORCE

    @cached_property
    def detached(self) -> Sequence[Pod]:
        """Return the detached pods of the cluster."""
        return detached_pods(self.surge_input.cluster.pods)

    @cached_property
    def moving(self) -> frozenset[str]:
        """Return the UIDs of the Deployments that have a detached pod, or get one now."""
        own = (move.deployment_uid for move in self.surge_input.memory.own.values())
        deployment_of = self.surge_input.objects.deployment_of
        found = (deployment_of(pod) for pod in self.detached)
        return frozenset((*own, *(one.uid for one in found if one is not None)))

    @cached_property
    def beginning(self) -> Beginning:
        """Return the permission to begin moves now (MayBegin), or why none may begin (Refusal)."""
        given = self.surge_input
        return may_begin(given.config, self.now, given.refused_write)

    @cached_property
    def pods_pending(self) -> bool:
        """Return whether an unschedulable pod exists that some node would admit if it were empty.

        Then no move begins, because this pod needs the room.
        """
        found = feasible_unschedulable(self.surge_input.cluster, TAINT_KEY)
        return next(iter(found), None) is not None

    @cached_property
    def places(self) -> Mapping[str, str]:
        """Return the node on which the plan finally places each pod that it moves.

        Keys are namespace/name of pods, values are names of nodes. A later removal may move a pod
        again that an earlier removal of the plan has placed.
        """
        removals = sorted(self.surge_input.plan.removals, key=lambda one: one.order)
        return {pod: node for removal in removals for pod, node in removal.placements}

    def shares(self) -> NodeShares:
        """Return how many new pods each node has got within the last window."""
        cluster, memory = self.surge_input.cluster, self.surge_input.memory
        return NodeShares(
            cluster.nodes,
            # The old pod of a move runs until its ReplicaSet has deleted it.
            (pod for pod in cluster.pods if pod.deletion_cost != str(MOVE_COST)),
            within_window(memory.placed, self.now).values(),
            unplaced=len(memory.own.keys() - memory.placed.keys()),
            taint_key=TAINT_KEY,
        )

    def blockers(self, pod: Pod) -> list[Blocker]:
        """Return every reason why Ebb does not replace the pod by a surge move now; empty if none.

        The limits on the number of moves are not among the reasons.
        """
        objects, keep = self.surge_input.objects, self.surge_input.config.surge.keep_local_storage
        deployment = objects.deployment_of(pod)
        never = why_not_replaced(pod, self.now, keep_local_storage=keep)
        found = [never] if never is not None else []
        if deployment is None:
            owner = f"{pod.owner_kind} {pod.owner_name}"
            message = f"belongs to {owner}" if pod.owner_kind else "belongs to no controller"
            return [*found, Blocker(NO_DEPLOYMENT, message, pod.key)]
        if self._may_lead(pod, deployment):
            known = "is" if self.surge_input.leader_pod else "may be"
            message = f"{known} the leader of ebb-controller"
            found.append(Blocker(OWN, message, pod.key, deployment.name))
        found += deployment_blockers(deployment, pod, objects)
        found += self._after_last_move(pod, deployment)
        found += self._pod_blockers(pod, deployment)
        refused = self.surge_input.memory.refused.get((pod.namespace, pod.owner_name), ())
        found += (blocker._replace(pod=pod.key) for blocker in refused)
        return found

    def _may_lead(self, pod: Pod, deployment: ObservedDeployment) -> bool:
        if leader := self.surge_input.leader_pod:
            return pod.key == leader
        return is_controller(deployment, self.surge_input.own_namespace)

    def _after_last_move(self, pod: Pod, deployment: ObservedDeployment) -> Iterator[Blocker]:
        memory, name = self.surge_input.memory, deployment.name
        notes = (note_of(one, self.now) for one in self.of_deployment[deployment.key])
        until = max((note.until for note in notes if note is not None), default=0)
        if self.now.before(until):
            message = (
                f"the last move of Deployment {name} failed; no move before {timestamp(until)}"
            )
            yield Blocker(LEFT_ALONE, message, pod.key, name, until)
        if memory.failures.get(pod.namespace, 0) >= FAILURES_IN_NAMESPACE_MAX:
            message = f"{FAILURES_IN_NAMESPACE_MAX} moves failed in the namespace within an hour"
            yield Blocker(LEFT_ALONE, message, pod.key, name)
        ended = memory.ended.get((pod.namespace, pod.owner_name))
        until = 0 if ended is None else ended + settle_seconds(deployment.replicas)
        if self.now.before(until):
            message = (
                f"a move of Deployment {name} has just ended; no move before {timestamp(until)}"
            )
            yield Blocker(SETTLING, message, pod.key, name, until)

    def _pod_blockers(self, pod: Pod, deployment: ObservedDeployment) -> Iterator[Blocker]:
        if deployment.uid in self.moving:
            message = f"another move of Deployment {deployment.name} is in progress"
            yield Blocker(UNDER_WAY, message, pod.key)
        if pod.owner_name != deployment.replica_set:
            message = f"belongs to the old ReplicaSet {pod.owner_name}"
            yield Blocker(ROLLOUT, message, pod.key, deployment.name)
        if not pod.ready:
            yield Blocker(NOT_READY, "is not Ready", pod.key)
        until = (pod.created_seconds or 0) + self.surge_input.config.surge.min_pod_age_seconds
        if self.now.before(until):
            message = f"is younger than `surge.minPodAge` until {timestamp(until)}"
            yield Blocker(YOUNG, message, pod.key, until=until)
        for other in self.of_deployment[deployment.key]:
            if other.uid != pod.uid and number_of(other.deletion_cost) < MOVE_COST:
                message = f"pod {other.name} has the lower pod deletion cost {other.deletion_cost}"
                yield Blocker(CHEAPER, message, pod.key)
                break
        if pod.key not in self.places:
            ports = pod.pod_constraints.host_ports
            reason = HOST_PORT if ports else NO_PLACE
            yield Blocker(reason, "no node that stays has room for it in Ebb's plan", pod.key)
        elif pod.key in self.surge_input.plan.crowded:
            message = "no node that stays has a place for the new pod while this one runs"
            yield Blocker(BESIDE, message, pod.key)


def plan_moves(context: SurgeContext) -> MovePlan:
    """Choose the surge moves to begin now, and say why other pods of marked nodes must wait.

    The result has neither moves nor reasons if moves are disabled or no node is to be emptied.
    """
    if not context.allowed or not context.on:
        return MovePlan((), ())
    beginning = context.beginning
    if isinstance(beginning, Refusal):
        return MovePlan((), tuple(beginning.blockers))
    return _Choice(context, beginning).plan()


class _Choice:
    def __init__(self, context: SurgeContext, permit: MayBegin) -> None:
        self._context, self._permit = context, permit
        self._limits = context.surge_input.config.surge
        self._in_namespace_max = context.surge_input.in_namespace_max
        memory = context.surge_input.memory
        # Whoever may write a pod can give it the label of a detached pod. Such pods count in their
        # own namespace only, and must not keep others from being moved.
        in_namespace = {(move.namespace, uid) for uid, move in memory.own.items()}
        in_namespace |= {
            (pod.namespace, pod.uid)
            for pod in context.detached
            if note_of(pod, context.now) is not None
        }
        self._in_namespace = Counter(namespace for namespace, _ in in_namespace)
        self._busy = set(context.moving)
        self._left = min(
            self._limits.max_at_once - len(memory.own),
            self._limits.max_per_hour - memory.begun_within_hour,
        )
        self._with_quota = set(context.surge_input.objects.quotas)
        self._shares = context.shares()
        self._begin: list[NewMove] = []
        self._waits: list[Blocker] = []

    def plan(self) -> MovePlan:
        blockers = {
            pod.key: self._context.blockers(pod)
            for pods in self._context.on.values()
            for pod in pods
        }
        ordered = _in_order(self._context.on, blockers)
        for pod in round_robin(ordered, lambda pod: pod.namespace):
            found = blockers[pod.key] or self._limit(pod)
            self._waits += found
            if not found:
                self._add(pod)
        return MovePlan(tuple(self._begin), tuple(self._waits))

    def _limit(self, pod: Pod) -> list[Blocker]:
        if self._context.pods_pending:
            return [Blocker(PENDING, "other pods are unschedulable", pod.key)]
        deployment = self._context.surge_input.objects.deployment_of(pod)
        if deployment is not None and deployment.uid in self._busy:
            return [Blocker(UNDER_WAY, "another pod of its Deployment is moved first", pod.key)]
        full = self._in_namespace[pod.namespace] >= self._in_namespace_max
        if full or self._left <= 0:
            return [Blocker(TURN, "other pods are moved first", pod.key)]
        full_node = self._shares.why_not(pod)
        return [] if full_node is None else [Blocker(NODE_SHARE, full_node, pod.key)]

    def _add(self, pod: Pod) -> None:
        surge_input = self._context.surge_input
        deployment = surge_input.objects.deployment_of(pod)
        if deployment is None or pod.node is None:
            return
        siblings = self._context.of_deployment[deployment.key]
        notes = (note_of(one, self._context.now) for one in siblings)
        begun = surge_input.now_seconds
        move = Move(
            namespace=pod.namespace,
            pod=pod.name,
            uid=pod.uid,
            node=pod.node,
            replica_set=pod.owner_name,
            hash=pod.labels.get(TEMPLATE_LABEL, ""),
            note=MoveNote(
                begun=begun,
                deadline=begun + deployment.deadline_seconds,
                failures=max((note.failures for note in notes if note is not None), default=0),
            ),
            deployment=deployment.name,
            deployment_uid=deployment.uid,
            generation=deployment.generation,
            others=frozenset(one.uid for one in siblings),
        )
        self._begin.append(NewMove(move, pod, self._permit))
        self._busy.add(deployment.uid)
        self._left -= 1
        self._shares.take()
        self._in_namespace[pod.namespace] += 1
        if pod.namespace in self._with_quota:
            # The next reconciliation sees the quota with the new pod.
            self._in_namespace[pod.namespace] = self._in_namespace_max


def _in_order(
    on: Mapping[str, Sequence[Pod]], blockers: Mapping[str, Sequence[Blocker]]
) -> Iterator[Pod]:
    """Yield the pods node by node: first those of the nodes that will be empty soonest.

    *on*: pods by node. *blockers*: reasons against a move, by namespace/name of the pod. The first
    nodes have the fewest pods that stay for long, then the fewest other pods.
    """

    def stays(pod: Pod) -> bool:
        return any(blocker.reason in LASTING for blocker in blockers[pod.key])

    def rank(name: str) -> tuple[int, int, str]:
        many = sum(map(stays, on[name]))
        return many, len(on[name]) - many, name

    for name in sorted(on, key=rank):
        yield from sorted(on[name], key=lambda pod: pod.key)
