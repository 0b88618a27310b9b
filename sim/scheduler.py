"""kube-scheduler, as far as pods of the workload can tell.

Source: kube-scheduler plugins TaintToleration and those of sim.scoring, how many nodes it looks
at (numFeasibleNodesToFind), and the sums of prioritizeNodes; the weights are its defaults.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from core.fit.rules import refusal, tolerates
from core.model.node import Effect
from core.model.pod import Pod
from sim.cluster import Place, State
from sim.scoring import DEFAULT, Profile, Weighed, spread

TAINT_WEIGHT: Final = 3
SPREAD_WEIGHT: Final = 2
REPLICA_SET: Final = "ReplicaSet"
EXTENDER_WEIGHT: Final = 100
"""The shipped weight: ten points outweigh all default preferences together."""
POINTS_PER_SCORE: Final = 10
SAMPLED_MIN: Final = 100


class Scorer(Protocol):
    """An extender: scores by node name."""

    def scores(self, pod: Pod, names: Sequence[str]) -> Mapping[str, int]:
        """Answer a prioritize call."""


class Scheduler:
    """Chooses a node for a pod; ties fall by seeded chance."""

    def __init__(
        self, state: State, scorer: Scorer | None, seed: int, profile: Profile = DEFAULT
    ) -> None:
        self._state, self._scorer = state, scorer
        self._weighed = Weighed(profile)
        self._chance = random.Random(seed)
        self._next = 0

    def choose(self, pod: Pod) -> str | None:
        """Return the node for *pod*, or None when it fits nowhere."""
        feasible = self._feasible(pod)
        if len(feasible) < 2:
            return feasible[0].node.name if feasible else None
        totals = self._plugin_scores(pod, feasible)
        if self._scorer is not None:
            names = [place.node.name for place in feasible]
            scores = self._scorer.scores(pod, names)
            for name in names:  # nodes that were not asked about may be answered too
                totals[name] += scores.get(name, 0) * EXTENDER_WEIGHT * POINTS_PER_SCORE
        best = max(totals.values())
        winners = sorted(name for name, total in totals.items() if total == best)
        return winners[0] if len(winners) == 1 else self._chance.choice(winners)

    def _feasible(self, pod: Pod) -> list[Place]:
        """Return the nodes that admit the pod; in large clusters a sample, round robin."""
        places = list(self._state.places.values())
        wanted = len(places)
        if wanted > SAMPLED_MIN:
            percent = max(50 - wanted // 125, 5)
            wanted = max(wanted * percent // 100, SAMPLED_MIN)
        found: list[Place] = []
        start = self._next
        for step in range(len(places)):
            place = places[(start + step) % len(places)]
            if admits(place, pod):
                found.append(place)
                if len(found) == wanted < len(places):
                    self._next = (start + step + 1) % len(places)
                    break
        return found

    def _plugin_scores(self, pod: Pod, feasible: Sequence[Place]) -> dict[str, int]:
        disliked = [_disliked_taints(place, pod) for place in feasible]
        most = max(disliked)
        totals = {}
        apart = _apart(pod, feasible)
        for place, count, far in zip(feasible, disliked, apart, strict=True):
            liked = 100 - 100 * count // most if most else 100
            wishes = TAINT_WEIGHT * liked + SPREAD_WEIGHT * far
            totals[place.node.name] = self._weighed.score(place, pod) + wishes
        return totals


def admits(place: Place, pod: Pod) -> bool:
    """Filter one node: ready, room, cordon, taints, selectors."""
    return (
        place.node.ready
        and pod.requests.fits_in(place.free)
        and refusal(place.node, pod.placing) is None
    )


def _apart(pod: Pod, feasible: Sequence[Place]) -> list[int]:
    """Score nodes by how few pods of the same ReplicaSet they have; other pods do not mind."""
    if pod.owner_kind != REPLICA_SET:
        return [0] * len(feasible)
    whose = pod.namespace, REPLICA_SET, pod.owner_name
    return spread(
        [
            sum((one.namespace, one.owner_kind, one.owner_name) == whose for one in on.values())
            for on in (place.pods for place in feasible)
        ]
    )


def _disliked_taints(place: Place, pod: Pod) -> int:
    return sum(
        taint.effect == Effect.PREFER_NO_SCHEDULE
        and not any(tolerates(toleration, taint) for toleration in pod.placing.tolerations)
        for taint in place.node.taints
    )
