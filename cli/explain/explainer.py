"""One node or one pod asked about: what would become of it, on the cluster as it stands.

The plan says what goes together; this says what would happen to one node alone, and which nodes
could take one pod now. It uses the plan's own parts, so that the two cannot disagree on a rule.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain

from core.capacity.reaches import Reach
from core.config.drain import Eviction
from core.drain.context import DrainContext, DrainInput
from core.drain.pods import owner_of
from core.engine.leader_state import LeaderState, observe, rate_limits
from core.engine.limits import RemovalLimits
from core.engine.plan import Placement, Plan
from core.engine.planner import Planner
from core.engine.reconcile import no_schedule_blockers, prepare
from core.engine.reserve import RESERVE
from core.engine.snapshot import ClusterSnapshot
from core.fit.filters import first_failing_filter
from core.guards.drainability import findings, long_lived_reasons
from core.guards.node_eligibility import (
    BEING_DELETED,
    CORDONED,
    NOT_READY,
    UNREADABLE,
    VIRTUAL_NODE,
)
from core.marks.mark import Mark, mark_of, reserved_for
from core.model.node import Node
from core.model.node_lifecycle import why_unready
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker
from core.model.resources import Resources
from core.packing.node_order import SHARE_SCALE
from core.packing.packer import Packer


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """What can be said about one node."""

    node: Node
    pods: tuple[Pod, ...]
    """All that are bound to it, by name."""
    order: int | None
    """Its number in the plan's order; None: it stays."""
    blockers: tuple[Blocker, ...]
    """Empty for a node that goes."""
    held: tuple[Blocker, ...]
    """What holds the running engine back from marking it now, as far as the cluster tells: what
    only the engine has seen (nodes that came, since when pods wait, the busiest moment) is not
    among it."""
    reserved: tuple[Blocker, ...]
    """For which pods it is kept from the autoscaler, as the engine that leads has said on it."""
    lingers: tuple[Blocker, ...]
    """Why it may empty late: pods of it that rarely leave by themselves."""
    against_hard: tuple[Blocker, ...]
    """Why its soft mark does not become hard; empty where that is not asked for."""
    undrained: tuple[Blocker, ...]
    """Which of its pods would not be evicted now; empty where nothing is evicted."""
    placements: tuple[Placement, ...]
    """Where pods would go: by the plan if the node goes, else if it alone went now."""
    homeless: tuple[tuple[str, str], ...]
    """(namespace/name, why) of the pods that would not find a place."""
    rule: str
    """How it stands by the policy; empty: price, pods to move and share say it."""
    price: Fraction
    to_move: int
    """Pods that would have to find another place."""
    share: Fraction
    """Requests over allocatable, in the resource of which most is asked for."""
    reached: bool
    """Whether some pod that may move could run on it."""
    reaches: tuple[Reach, ...]
    """Those that it is in, most nodes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAnswer:
    """What can be said about one pod."""

    pod: Pod
    node: Node | None
    """Where it runs; None: it waits, or its node has left the cluster."""
    blockers: tuple[Blocker, ...]
    """Why it does not move; of a pod that goes with its node: none."""
    nature: tuple[Blocker, ...]
    """Whether it leaves by itself, and whether it may be disturbed; blocks nothing."""
    home: NodeAnswer | None
    """About its node."""
    place: str | None
    """Where it would go if its node went; for a pod that waits: where the plan puts it."""
    why_not: str | None
    """Why there is no such place."""
    reach: Reach | None
    """The nodes that its own constraints admit, if those are several."""
    admitted: int
    """How many they are; of a pod that does not move: 0."""
    takers: tuple[str, ...]
    """Other nodes without a mark that could take it now, fullest first."""
    marked_takers: tuple[str, ...]
    """Marked nodes that could take it now, or could once they are released."""
    refusals: tuple[tuple[str, int], ...]
    """(rule, how many nodes it refuses first), most first."""


class Explainer:
    """Answers about one cluster and its plan; what they have in common is prepared once."""

    def __init__(
        self, survey: ClusterSnapshot, plan: Plan, now_seconds: int, own_namespace: str = ""
    ) -> None:
        """*survey*: what the plan was made from. *own_namespace*: where Ebb itself runs."""
        cluster = self._cluster = survey.cluster
        self._survey, self._config, self._plan = survey, survey.config, plan
        self._now, self._own = Now(now_seconds), own_namespace
        self._nodes = {node.name: node for node in cluster.nodes}
        self._removals = {removal.node: removal for removal in plan.removals}
        self._kept = {kept.node: kept for kept in plan.kept}

    def node(self, name: str) -> NodeAnswer | None:
        """Answer about a node; None: there is none of that name."""
        node = self._nodes.get(name)
        if node is None:
            return None
        removal = self._removals.get(name)
        placements, homeless = self._alone(name)
        pods = tuple(pod for pod in self._cluster.pods if pod.node == name)
        ground, reaches = self._survey.node_order, self._survey.reaches
        return NodeAnswer(
            node=node,
            pods=pods,
            order=removal.order if removal else None,
            blockers=() if removal else self._kept[name].blockers,
            held=self._held.get(name, ()),
            reserved=self._reserved(node),
            lingers=tuple(long_lived_reasons(pods, self._now)),
            against_hard=self._against_hard(node),
            undrained=self._undrained(pods),
            placements=removal.placements if removal else placements,
            homeless=() if removal else homeless,
            rule=self._work.describe(name),
            price=self._config.price_of(node.labels),
            to_move=len(placements) + len(homeless),
            share=Fraction(ground.share(ground.ids[name]), SHARE_SCALE),
            reached=self._survey.reaches_node(name),
            reaches=tuple(reaches.all[number] for number in reaches.by_node[ground.ids[name]]),
        )

    def pod(self, key: str) -> PodAnswer | None:
        """Answer about the pod namespace/name; None: there is none of that name."""
        pod = next((one for one in self._cluster.pods if one.key == key), None)
        if pod is None:
            return None
        home = self.node(pod.node) if pod.node is not None else None
        blockers = [] if pod.stays_with_node else self._survey.pod_blockers(pod)
        looks = pod.node is None if home is None else not home.node.virtual
        moves = not pod.stays_with_node and not blockers and looks
        place, why_not = self._place(pod, home) if moves else (self._planned.get(key), None)
        reaches = self._survey.reaches
        takers, refusals = _rooms(self._survey, pod) if moves else ([], ())
        marked = [name for name in takers if mark_of(self._nodes[name].labels) is not None]
        return PodAnswer(
            pod=pod,
            node=home.node if home else None,
            blockers=tuple(blockers),
            nature=tuple(blocker for _, blocker in findings(pod, self._now)),
            home=home,
            place=place,
            why_not=why_not,
            reach=reaches.reach_of(pod.placing) if moves else None,
            admitted=len(reaches.members(pod.placing)) if moves else 0,
            takers=tuple(name for name in takers if name not in marked),
            marked_takers=tuple(marked),
            refusals=refusals,
        )

    @cached_property
    def _work(self) -> Planner:
        return prepare(self._survey)[0]

    @cached_property
    def _held(self) -> Mapping[str, tuple[Blocker, ...]]:
        """Return by node that goes what holds it back, those before it that may go counted."""
        now = rate_limits(observe(LeaderState(), self._survey, self._now), self._survey, self._now)
        # To a memory of nothing every pod that waits has just begun to.
        brakes = RemovalLimits(self._survey, replace(now, pending_until=None))
        found: dict[str, tuple[Blocker, ...]] = {}
        for removal in self._plan.removals:
            node = self._nodes[removal.node]
            found[node.name] = tuple(brakes.blockers(node))
            if not found[node.name]:
                brakes.count_removal(node)
        return found

    def _reserved(self, node: Node) -> tuple[Blocker, ...]:
        """Return for which pods an empty node is kept; one that has filled may say so still."""
        told = None if node.name in self._survey.non_empty_nodes else reserved_for(node)
        return (Blocker(RESERVE, told),) if told else ()

    def _against_hard(self, node: Node) -> tuple[Blocker, ...]:
        if not self._config.hardens or mark_of(node.labels) is not Mark.SOFT:
            return ()
        return no_schedule_blockers(self._survey, {}, self._now)[node.name]

    @cached_property
    def _ground(self) -> DrainContext:
        scene = DrainInput(
            cluster=self._cluster,
            plan=self._plan,
            config=self._config,
            against_hard={},
            watched_seconds=0,
            now_seconds=self._now.seconds,
            own_namespace=self._own,
        )
        return DrainContext(scene, map(owner_of, self._cluster.pods))

    def _undrained(self, pods: Iterable[Pod]) -> tuple[Blocker, ...]:
        if self._config.eviction is not Eviction.ENABLED:
            return ()
        found = (self._ground.why_not_now(pod) for pod in pods)
        return tuple(blocker for blocker in found if blocker is not None)

    def _alone(self, name: str) -> tuple[tuple[Placement, ...], tuple[tuple[str, str], ...]]:
        """Say where the node's pods would go if it alone went now, and which find no place."""
        packer = self._work.packer
        node = packer.node_ids[name]
        attempt = packer.try_place(packer.on[node], node)
        homeless = (
            (packer.pods[pod].key, packer.explain(pod, node, attempt))
            for pod in attempt.unassigned
            if pod not in packer.placeholders
        )
        return self._work.placements(attempt), tuple(homeless)

    @cached_property
    def _planned(self) -> Mapping[str, str]:
        """Return by pod where the plan leaves it: on its way it may move a pod more than once."""
        found = chain(self._plan.pending, *(one.placements for one in self._plan.removals))
        return dict(found)

    def _place(self, pod: Pod, home: NodeAnswer | None) -> tuple[str | None, str | None]:
        """Say where the pod would go, or why nowhere."""
        if home is None or home.order is not None or home.node.name in self._survey.leaving_nodes:
            place = self._planned.get(pod.key)
        else:
            place = dict(home.placements).get(pod.key)
        if place is not None:
            return place, None
        why = dict(home.homeless).get(pod.key) if home else None
        return None, why or "no node that admits it has room"


def _rooms(survey: ClusterSnapshot, pod: Pod) -> tuple[list[str], tuple[tuple[str, int], ...]]:
    """Return which nodes could take the pod, marks set aside, and what refuses it on the others.

    First-fit is asked for a node again and again, each time without those that it named.
    """
    packer = Packer(survey.cluster, survey.node_order, movable=[[pod]])
    own = packer.node_ids.get(pod.node or "", -1)
    takers: list[str] = []
    while not (attempt := packer.try_place([0], own)).unassigned:
        _, node = attempt.assignments[0]
        packer.free[node] = packer.guard
        takers.append(packer.nodes[node].name)
    neighbours = ", ".join(sorted(attempt.refused_by.get(0, ()))) or "other pods"
    aside = {pod.node, *takers}
    counts = Counter(
        _refusal(survey, pod, node) or neighbours
        for node in survey.node_order.nodes
        if node.name not in aside
    )
    return takers, tuple(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def _refusal(survey: ClusterSnapshot, pod: Pod, node: Node) -> str:
    """Name why a node takes nobody, or the filter that refuses the pod; empty: neither."""
    asides = (node.virtual, node.name in survey.leaving_nodes, why_unready(node) is not None)
    if any(asides):
        return (VIRTUAL_NODE, BEING_DELETED, NOT_READY)[asides.index(True)].code
    if (failing := first_failing_filter(node, pod.placing)) is not None:
        return failing
    if node.name in survey.unschedulable_nodes:
        return (CORDONED if node.unschedulable else UNREADABLE).code
    ground = survey.node_order
    lacking = _lacking(pod.requests, node.allocatable - ground.used[ground.ids[node.name]])
    return f"too little {', '.join(lacking)}" if lacking else ""


def _lacking(asked: Resources, free: Resources) -> list[str]:
    """Name the resources of which less is free than asked, as kube-scheduler compares."""
    have = dict(free.extended)
    amounts = [
        ("cpu", asked.cpu_millis, free.cpu_millis),
        ("memory", asked.memory_bytes, free.memory_bytes),
        ("ephemeral-storage", asked.ephemeral_bytes, free.ephemeral_bytes),
        ("pods", asked.pods, free.pods),
        *((name, amount, have.get(name, 0)) for name, amount in asked.extended),
    ]
    return [name for name, want, left in amounts if want > 0 and want > left]
