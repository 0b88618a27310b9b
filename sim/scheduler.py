"""Simulate kube-scheduler for the pods of the load.

Source: kube-scheduler plugins TaintToleration and those of sim.scoring, the number of sampled
nodes (numFeasibleNodesToFind), and the sums of prioritizeNodes. Weights are the defaults.
"""

import random
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, Protocol

from core.model.constraints import NO_POD_CONSTRAINTS, NodeConstraints
from core.model.node import Effect
from core.model.pod import REPLICA_SET, Pod
from core.model.resources import Resources
from core.placement.bits import set_bits
from core.placement.filters import first_failing_filter
from core.placement.inter_pod import PodTopology
from core.placement.matching import tolerates
from sim.cluster import ClusterState, NodeResult, Place
from sim.scoring import DEFAULT, Profile, Weighed, spread

TAINT_WEIGHT: Final = 3
SPREAD_WEIGHT: Final = 2
EXTENDER_WEIGHT: Final = 100
"""Weight in the shipped configuration: a score of 10 outweighs all other preferences together."""
POINTS_PER_SCORE: Final = 10
SAMPLED_MIN: Final = 100
POD_CLASSES_MAX: Final = 1000
"""Maximum number of classes of equivalent pods whose results are cached on every node."""


class Scorer(Protocol):
    """An extender of kube-scheduler that scores nodes for a pod."""

    def scores(self, pod: Pod, names: Sequence[str]) -> Mapping[str, int]:
        """Return the score of each node by name; *names*: the feasible nodes for the pod."""


class Scheduler:
    """The simulated kube-scheduler, which selects a node for a pod; ties are broken at random."""

    def __init__(
        self, state: ClusterState, scorer: Scorer | None, seed: int, profile: Profile = DEFAULT
    ) -> None:
        self._state, self._scorer = state, scorer
        self._weighed = Weighed(profile)
        self._chance = random.Random(seed)
        self._pod_classes: dict[tuple[Resources, NodeConstraints], object] = {}
        self._next = 0

    def choose(self, pod: Pod) -> str | None:
        """Return the name of the feasible node with the highest score; None: none is feasible."""
        feasible = self._feasible(pod)
        if len(feasible) < 2:
            return feasible[0][0].node.name if feasible else None
        totals = _plugin_scores(pod, feasible)
        if self._scorer is not None:
            names = list(totals)
            scores = self._scorer.scores(pod, names)
            for name in names:  # the answer may contain other nodes
                totals[name] += scores.get(name, 0) * EXTENDER_WEIGHT * POINTS_PER_SCORE
        best = max(totals.values())
        winners = sorted(name for name, total in totals.items() if total == best)
        return winners[0] if len(winners) == 1 else self._chance.choice(winners)

    def _feasible(self, pod: Pod) -> list[tuple[Place, NodeResult]]:
        """Return feasible nodes for a pod, with scores that do not depend on other nodes.

        In a cluster of more than SAMPLED_MIN nodes it is a sample. The next search then starts
        after the last node of this one.
        """
        places = self._admitted_by_pods(pod)
        wanted = len(places)
        if wanted > SAMPLED_MIN:
            percent = max(50 - wanted // 125, 5)
            wanted = max(wanted * percent // 100, SAMPLED_MIN)
        feasible: list[tuple[Place, NodeResult]] = []
        start, pod_class = self._next % max(len(places), 1), self._pod_class(pod)
        for step, place in enumerate(chain(places[start:], places[:start]), 1):
            if pod_class not in place.results:
                place.results[pod_class] = self._find(place, pod)
            result = place.results[pod_class]
            if result is not None:
                feasible.append((place, result))
                if len(feasible) == wanted < len(places):
                    self._next = (start + step) % len(places)
                    break
        return feasible

    def _admitted_by_pods(self, pod: Pod) -> list[Place]:
        """Return the nodes that admit the pod by its required constraints on other pods.

        These are inter-pod affinity, anti-affinity and topology spread. Without constraints, all
        nodes are returned.
        """
        places = list(self._state.places.values())
        if pod.pod_constraints == NO_POD_CONSTRAINTS:
            return places
        nodes = [place.node for place in places]
        group = PodTopology(self._state.snapshot(), nodes, [pod]).group(0)
        if group is None:
            return places
        return [places[at] for at in set_bits(group.admitted((1 << len(places)) - 1))]

    def _pod_class(self, pod: Pod) -> object:
        """Return the key under which nodes cache scores for pods like this one.

        All pods with equal requests and node constraints have the same key.
        """
        pod_class = pod.requests, pod.node_constraints
        if pod_class not in self._pod_classes and len(self._pod_classes) == POD_CLASSES_MAX:
            self._pod_classes.clear()
            for place in self._state.places.values():
                place.results.clear()
        return self._pod_classes.setdefault(pod_class, object())

    def _find(self, place: Place, pod: Pod) -> NodeResult | None:
        if not admits(place, pod):
            return None
        return NodeResult(self._weighed.score(place, pod), _untolerated_taints(place, pod))


def _plugin_scores(pod: Pod, feasible: Sequence[tuple[Place, NodeResult]]) -> dict[str, int]:
    most = max(result.untolerated for _, result in feasible)
    totals = {}
    spread_scores = _spread_scores(pod, [place for place, _ in feasible])
    for (place, result), spread_score in zip(feasible, spread_scores, strict=True):
        taint_score = 100 - 100 * result.untolerated // most if most else 100
        totals[place.node.name] = (
            result.score + TAINT_WEIGHT * taint_score + SPREAD_WEIGHT * spread_score
        )
    return totals


def admits(place: Place, pod: Pod) -> bool:
    """Return whether a node is Ready, has free capacity for the pod, and passes its filters."""
    return has_room(place, pod) and first_failing_filter(place.node, pod.node_constraints) is None


def has_room(place: Place, pod: Pod) -> bool:
    """Return whether the node is Ready and has enough free capacity for the pod's requests."""
    return place.node.ready and pod.requests.fits_in(place.free)


def _spread_scores(pod: Pod, feasible: Sequence[Place]) -> list[int]:
    """Return a score from 0 to 100 for each node: fewer pods of the pod's ReplicaSet score higher.

    A detached pod does not count: kube-scheduler selects with the selector of the ReplicaSet.
    All scores are 0 without a ReplicaSet, and for pods with topology spread constraints of their
    own, which replace kube-scheduler's default.
    """
    if pod.owner_kind != REPLICA_SET or pod.pod_constraints.spread:
        return [0] * len(feasible)
    owner = pod.namespace, REPLICA_SET, pod.owner_name
    return spread(
        [
            sum(
                (one.namespace, one.owner_kind, one.owner_name) == owner and not one.detached
                for one in on.values()
            )
            for on in (place.pods for place in feasible)
        ]
    )


def _untolerated_taints(place: Place, pod: Pod) -> int:
    return sum(
        taint.effect == Effect.PREFER_NO_SCHEDULE
        and not any(
            tolerates(toleration, taint) for toleration in pod.node_constraints.tolerations
        )
        for taint in place.node.taints
    )
