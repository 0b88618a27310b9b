"""The facts that a look at a drain rests on; but for what budgets have left, read only."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from core.config.settings import Config
from core.drain.budgets import Allowances
from core.drain.pods import Owner, leaves, owner_of, why_never, why_waited_for
from core.drain.reasons import COMES_BACK, NOT_HARD, UNSETTLED
from core.engine.no_schedule import Against
from core.engine.plan import Plan
from core.fit.matching import tolerates
from core.guards.emptiness import occupying
from core.marks.mark import Mark, mark_of, marked_since
from core.marks.taints import desired_taints, hard_taint
from core.model.cluster import Cluster
from core.model.node import Effect, Taint
from core.model.node_lifecycle import why_leaving
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainInput:
    """What a look is given: one pass, and who looks."""

    cluster: Cluster
    plan: Plan
    """Made for this cluster."""
    config: Config
    against_hard: Against
    watched_seconds: int
    """For how long this leader has looked on."""
    now_seconds: int
    own_namespace: str
    """Whose pods are Ebb's own."""


class OnTheWay(NamedTuple):
    """Pods of marked nodes that are being deleted, and still may need the time."""

    on_node: Counter[str]
    in_namespace: Counter[str]
    in_cluster: int


class DrainContext:
    """The marked nodes, what keeps them from being empty, and who would replace that."""

    def __init__(self, scene: DrainInput, owners: Iterable[Owner]) -> None:
        """*owners*: controllers that matter beside those of the marked nodes' pods."""
        self.scene, self.now = scene, Now(scene.now_seconds)
        cluster = scene.cluster
        self.marked = {one.name: one for one in cluster.nodes if mark_of(one.labels) is not None}
        self.on: dict[str, list[Pod]] = {name: [] for name in self.marked}
        """By marked node: the pods that keep it from being empty."""
        for name, pod in occupying(cluster, self.now, self.on):
            self.on[name].append(pod)
        self.of_owner: dict[Owner, list[Pod]] = {owner: [] for owner in owners}
        """All pods of the controllers that matter, wherever they are."""
        self.of_owner |= {owner_of(pod): [] for on in self.on.values() for pod in on}
        names = {owner.name for owner in self.of_owner}
        for pod in cluster.pods:
            if pod.owner_name in names and (alike := self.of_owner.get(owner_of(pod))) is not None:
                alike.append(pod)
        self.budgets = Allowances(cluster.budgets)

    @cached_property
    def places(self) -> dict[str, dict[str, int]]:
        """Return by marked node that goes, in the plan's order: the pods that have a place.

        With each goes its number in the order of packing, which is theirs to go.
        """
        return {
            removal.node: {placed.pod: turn for turn, placed in enumerate(removal.placements)}
            for removal in sorted(self.scene.plan.removals, key=lambda one: one.order)
            if removal.node in self.marked
        }

    def in_order(self, name: str) -> Sequence[Pod]:
        """Return a node's pods in the order in which they go."""
        places = self.places[name]
        return sorted(self.on[name], key=lambda pod: (places.get(pod.key, len(places)), pod.key))

    def why_not_hard(self, name: str) -> Blocker | None:
        """Say why pods may still come to the node, or None: mark and taint stand there."""
        node = self.marked[name]
        if mark_of(node.labels) is not Mark.HARD:
            return Blocker(NOT_HARD, "its mark is soft")
        if desired_taints(node, self.scene.config.taint_key) != node.taints:
            return Blocker(NOT_HARD, "its taint is not that of its mark")
        return None

    def hardens(self, name: str) -> bool:
        """Say whether nothing speaks against a hard mark."""
        return not self.scene.against_hard.get(name)

    def broke_off(self, name: str) -> bool:
        """Say whether the plan keeps a node that is not empty yet, and does not leave."""
        node = self.marked.get(name)
        if node is None or name in self.places or why_leaving(node) is not None:
            return False
        return bool(self.on[name])

    def had_its_time(self, name: str) -> bool:
        """Say whether the node was given its time to empty by itself."""
        since = marked_since(self.marked[name], self.scene.config.taint_key)
        return self.now.seconds - since >= self.scene.config.drain.after_seconds

    def why_never(self, name: str) -> Blocker | None:
        """Return the first pod that keeps the node from ever being drained."""
        found = (self._never(pod) for pod in self.on[name] if not leaves(pod, self.now))
        return next((why for why in found if why is not None), None)

    def why_not_now(self, pod: Pod) -> Blocker | None:
        """Say why a pod of any node would not be evicted now if it were its turn, or None.

        Its controller is one of those that matter.
        """
        if not pod.occupies or pod.terminating:
            return None
        if (waited_for := why_waited_for(pod, self.now)) is not None:
            return waited_for
        return self._never(pod) or self.why_not_yet(pod)

    def why_not_yet(self, pod: Pod) -> Blocker | None:
        """Say what such a pod, if it may ever be evicted, has to wait for, or None.

        One that serves goes only while all other pods of its controller do.
        """
        alike = self.of_owner[owner_of(pod)] if pod.ready else ()
        if unsettled := next((one for one in alike if self._in_the_making(one)), None):
            told = f"{pod.owner_kind} {pod.owner_name}: {unsettled.name} is not Ready"
            return Blocker(UNSETTLED, told, pod.key)
        return self.budgets.why_not(pod)

    def _in_the_making(self, pod: Pod) -> bool:
        """Say whether a pod may soon serve, or has just ceased to."""
        return leaves(pod, self.now) if pod.terminating else not pod.ready

    def _never(self, pod: Pod) -> Blocker | None:
        own, taint_key = self.scene.own_namespace, self.scene.config.taint_key
        if (why := why_never(pod, own, self.now)) is not None:
            return why
        node = self.marked.get(pod.node or "")
        taint = hard_taint(node, taint_key) if node else Taint(taint_key, "", Effect.NO_SCHEDULE)
        if any(tolerates(one, taint) for one in pod.placing.tolerations):
            return Blocker(COMES_BACK, "it tolerates the taint of a mark", pod.key, taint_key)
        return self.budgets.why_never(pod)

    def why_back(
        self, name: str, here: Collection[str], left: Collection[Owner]
    ) -> Blocker | None:
        """Return a pod that is on the node although pods of its controller were evicted there.

        *here*: the uids of those that were there before.
        """
        taint_key = self.scene.config.taint_key
        for pod in self.on[name]:
            if owner_of(pod) in left and pod.uid not in here and not pod.terminating:
                told = (
                    f"{pod.owner_kind} {pod.owner_name} puts its pods there in spite of the mark"
                )
                return Blocker(COMES_BACK, told, pod.key, taint_key)
        return None

    def ends_by_itself(self, name: str) -> bool:
        """Say whether a pod is there whose own end is waited for."""
        return any(why_waited_for(pod, self.now) for pod in self.on[name])

    def on_the_way(self) -> OnTheWay:
        """Count the pods that leave, whoever has sent them.

        Of each namespace no more count, of a node and of all, than may be at once: whoever deletes
        pods of one, and lets them take years, takes no turn from others.
        """
        found = [pod for on in self.on.values() for pod in on if leaves(pod, self.now)]
        most = self.scene.config.drain.max_in_namespace
        spaces = Counter(pod.namespace for pod in found)
        on_nodes = Counter((pod.node or "", pod.namespace) for pod in found)
        nodes: Counter[str] = Counter()
        for (node, _), many in on_nodes.items():
            nodes[node] += min(many, most)
        return OnTheWay(nodes, spaces, sum(min(many, most) for many in spaces.values()))
