"""One look at a drain: which node is at work, which of its pods go now, and why not the others.

One node at a time, in the plan's order; only pods for which the plan has a place, and only once
the node's mark is hard, so that no other pod comes in their place. All that matters can be read
off the cluster: the marks and their order, the pods that terminate, the pods that are not Ready.
So a new leader goes on where another one was killed; and a node that does not go any more is
released like any other.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from core.drain.context import DrainContext, DrainInput
from core.drain.pods import Owner, leaves, owner_of, why_waited_for
from core.drain.reasons import INTERRUPTED, NO_PLACE, NOT_REPLACED, REFUSED, TURN
from core.drain.state import LOOK_ON_SECONDS, MISSED_MAX, DrainState, Evicted, Eviction
from core.engine.unschedulable import is_unschedulable
from core.marks.mark import Mark, mark_of
from core.model.humanize import plural
from core.model.pod import Pod
from core.model.reason import Blocker
from core.model.workload import STATEFUL_SET


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainDecision:
    """What a look has found; the memory says which node is at work and which have failed."""

    memory: DrainState
    hard: frozenset[str] = frozenset()
    """Nodes whose mark is to be hard, unless something speaks against it: nobody comes back."""
    evict: tuple[Eviction, ...] = ()
    """Now, in this order; all of the node at work."""
    waits: tuple[Blocker, ...] = ()
    """Why others of its pods are not evicted now."""


NOTHING: Final = DrainDecision(memory=DrainState())


def standing(scene: DrainInput, memory: DrainState) -> DrainDecision:
    """Leave hard marks as they are, and evict nothing: as where nobody is at work."""
    if not scene.config.evicts:
        return NOTHING
    nodes = scene.cluster.nodes
    hard = (one.name for one in nodes if mark_of(one.labels) is Mark.HARD)
    return DrainDecision(memory=memory, hard=frozenset(hard))


def plan_drain(scene: DrainInput, memory: DrainState) -> DrainDecision:
    """Say what to evict now, given what this leader has evicted before."""
    if not scene.config.evicts:
        return NOTHING
    past = bool(memory.evicted or memory.missed)
    if not past and not any(mark_of(one.labels) for one in scene.cluster.nodes):
        return NOTHING
    ground = DrainContext(scene, [*(one.owner for one in memory.evicted), *memory.missed])
    seen = _turned(ground, _followed(ground, memory))
    idle = standing(scene, seen)
    if not seen.node:
        return idle
    drain = _batch(ground, replace(seen, progress=_progress(ground, memory, seen)))
    drain = replace(drain, hard=idle.hard | {seen.node})
    late = ground.now.seconds - drain.memory.progress >= scene.config.drain.timeout_seconds
    new = any(one.pod.uid not in drain.memory.refused for one in drain.evict)
    return _failed(drain) if late and not new else drain


# What became of the evictions before


def _followed(ground: DrainContext, memory: DrainState) -> DrainState:
    """Return the memory without pods that others stand in for, and without lost hopes."""
    open_ = [one for one in (_stands(ground, memory, one) for one in memory.evicted) if one]
    timeout = ground.scene.config.drain.timeout_seconds
    late = [one for one in open_ if ground.now.seconds - one.at >= timeout]
    failed = {name: why for name, why in memory.failed.items() if name in ground.marked}
    if late and memory.began and memory.node in ground.marked:
        failed.setdefault(memory.node, _not_replaced(late[0]))
    there = {pod.uid for on in ground.on.values() for pod in on}
    return replace(
        memory,
        evicted=tuple(one for one in open_ if one not in late),
        refused={uid: one for uid, one in memory.refused.items() if uid in there},
        failed=failed,
        missed=_missed(ground, memory, late),
    )


def _missed(
    ground: DrainContext, memory: DrainState, late: Sequence[Evicted]
) -> Mapping[Owner, Evicted]:
    """Return whose pods are missed still, those first that have been for the shortest time."""
    seconds = ground.scene.config.budgets.backoff.max_seconds
    new = {one.owner: one._replace(at=ground.now.seconds) for one in late}
    before = [one for one in memory.missed.values() if one.owner not in new]
    known = [
        one
        for one in (*new.values(), *before)
        if ground.now.seconds - one.at < seconds
        and sum(map(_serves, ground.of_owner[one.owner])) < one.ready
    ]
    return {one.owner: one for one in known[:MISSED_MAX]}


def _why_missed(ground: DrainContext, memory: DrainState, name: str) -> Blocker | None:
    """Return the first pod of the node whose controller lacks one that was evicted."""
    found = (memory.missed.get(owner_of(pod)) for pod in ground.on[name] if not pod.terminating)
    return next((_not_replaced(one) for one in found if one is not None), None)


def _stands(ground: DrainContext, memory: DrainState, one: Evicted) -> Evicted | None:
    """Return an eviction as it stands now; None: another pod stands in its place.

    Where no new pod is to be seen, it may be wanted all the same, and be held back: by scheduling
    gates, a quota, a webhook. Only where others have gone that nobody evicted are fewer wanted.
    """
    pods = [pod for pod in ground.of_owner[one.owner] if not pod.overdue(ground.now)]
    same = next((pod for pod in pods if (pod.key, pod.uid) == (one.key, one.uid)), None)
    if same is not None:
        return one._replace(at=ground.now.seconds) if same.terminating else one
    serving = sum(map(_serves, pods))
    alike = sum(other.owner == one.owner for other in memory.evicted)
    fewer = serving == len(pods) and serving + alike < one.ready
    return None if fewer or serving >= one.ready else one


def _serves(pod: Pod) -> bool:
    return pod.ready and not pod.terminating


def _not_replaced(one: Evicted) -> Blocker:
    pods = plural(one.ready, "Ready pod")
    told = f"{one.owner.kind} {one.owner.name} had {pods}, and has had fewer since"
    return Blocker(NOT_REPLACED, told, one.key)


# Whose turn it is


def _turned(ground: DrainContext, memory: DrainState) -> DrainState:
    """Return the memory with the node that is at work now: the same as long as it can be."""
    failed = dict(memory.failed)
    if memory.began and ground.broke_off(memory.node):
        failed.setdefault(memory.node, _interrupted(ground, memory.node))
    if memory.began and (waited := _why_waited(ground, memory)) is not None:
        failed.setdefault(memory.node, waited)
    for name in sorted(ground.places, key=lambda name: name != memory.node):
        same = name == memory.node
        if name in failed or not ground.on[name] or not ground.hardens(name):
            continue
        if not same and not ground.had_its_time(name):
            continue
        began, why = same and memory.began, ground.why_never(name)
        why = why or _why_missed(ground, memory, name)
        if began and why is None:
            why = ground.why_back(name, memory.here, memory.left)
        if why is not None:
            failed[name] = why
        elif began or not ground.ends_by_itself(name):
            return _at(ground, memory if same else memory.released(failed), name, failed)
    return memory.released(failed)


def _why_waited(ground: DrainContext, memory: DrainState) -> Blocker | None:
    """Say whether the node must not be hard while a pod waits that is to stand in for one of it.

    The pod would come back, and once the mark is hard again be evicted again, for ever.
    """
    if memory.node not in ground.marked or ground.hardens(memory.node):
        return None
    waited = (
        one for one in memory.evicted if any(map(is_unschedulable, ground.of_owner[one.owner]))
    )
    return next(map(_not_replaced, waited), None)


def _interrupted(ground: DrainContext, name: str) -> Blocker:
    kept = (one.blockers for one in ground.scene.plan.kept if one.node == name)
    codes = dict.fromkeys(blocker.code for blockers in kept for blocker in blockers)
    return Blocker(INTERRUPTED, f"the plan keeps it: {', '.join(codes)}")


def _at(
    ground: DrainContext, memory: DrainState, name: str, failed: Mapping[str, Blocker]
) -> DrainState:
    """Return the memory of this node at work."""
    first = not memory.here and ground.why_not_hard(name) is None
    here = frozenset(pod.uid for pod in ground.on[name]) if first else memory.here
    return replace(memory, node=name, here=here, failed=failed)


def _progress(ground: DrainContext, before: DrainState, seen: DrainState) -> int:
    """Return when the drain last went on: what is on its way has a time of its own.

    Not on a node that is not hard: pods come and go there, and it may never become hard.
    """
    goes_on = (
        seen.node != before.node
        or seen.here != before.here
        or len(seen.evicted) < len(before.evicted)
        or _looks_on(ground)
        or (
            ground.why_not_hard(seen.node) is None
            and any(leaves(pod, ground.now) for pod in ground.on[seen.node])
        )
    )
    return ground.now.seconds if goes_on else seen.progress


def _looks_on(ground: DrainContext) -> bool:
    """Say whether the leader does not know yet what one before it has evicted."""
    return ground.scene.watched_seconds < LOOK_ON_SECONDS


def _failed(drain: DrainDecision) -> DrainDecision:
    """Return what follows when nothing has gone on for too long."""
    memory = drain.memory
    why = _refused(memory, drain.evict[0].pod) if drain.evict else drain.waits[0]
    gone = memory.released({**memory.failed, memory.node: why})
    return replace(drain, memory=gone, evict=())


# What goes now


def _batch(ground: DrainContext, memory: DrainState) -> DrainDecision:
    """Say which pods of the node at work go now, and why the others do not."""
    pods = ground.in_order(memory.node)
    if (soft := ground.why_not_hard(memory.node)) is not None:
        return DrainDecision(memory=memory, waits=(soft,))
    if _looks_on(ground):
        return DrainDecision(memory=memory)
    if memory.evicted:
        return DrainDecision(
            memory=memory, waits=tuple(_not_replaced(one) for one in memory.evicted)
        )
    left = [pod for pod in pods if not pod.terminating]
    whys = [why for pod in left if (why := _why_not(ground, memory, pod)) is not None]
    if whys and not memory.began:  # it may fail yet: then nobody was disturbed for nothing
        return DrainDecision(memory=memory, waits=tuple(whys))
    evict, waits = _chosen(ground, memory, left)
    return DrainDecision(memory=memory, evict=tuple(evict), waits=tuple(waits))


def _chosen(
    ground: DrainContext, memory: DrainState, pods: Sequence[Pod]
) -> tuple[list[Eviction], list[Blocker]]:
    """Choose as many as may be on their way at once."""
    limits, (nodes, namespaces, everywhere) = ground.scene.config.drain, ground.on_the_way()
    there = nodes[memory.node]
    room = min(limits.max_on_node - there, limits.max_in_cluster - everywhere)
    sets: Counter[object] = Counter()
    evict: list[Eviction] = []
    waits: list[Blocker] = []
    for pod in pods:
        owner = owner_of(pod)
        why = _why_not(ground, memory, pod)
        if why is None and (
            len(evict) >= room
            or namespaces[pod.namespace] >= limits.max_in_namespace
            or (owner.kind == STATEFUL_SET and sets[owner])
        ):
            why = Blocker(TURN, "others go first", pod.key)
        if why is not None:
            waits.append(why)
            continue
        evict.append(Eviction(pod, owner, sum(map(_serves, ground.of_owner[owner]))))
        ground.budgets.take(pod)
        namespaces[pod.namespace] += 1
        sets[owner] += 1
    return evict, waits


def _why_not(ground: DrainContext, memory: DrainState, pod: Pod) -> Blocker | None:
    """Say why a pod of the node at work is not evicted now, or None."""
    if (waited_for := why_waited_for(pod, ground.now)) is not None:
        return waited_for
    if pod.key not in ground.places[memory.node]:
        return Blocker(NO_PLACE, "the plan places it nowhere", pod.key)
    refused = memory.refused.get(pod.uid)
    if refused is not None and ground.now.seconds < refused.until:
        return _refused(memory, pod)
    return ground.why_not_yet(pod)


def _refused(memory: DrainState, pod: Pod) -> Blocker:
    refused = memory.refused[pod.uid]
    return Blocker(REFUSED, f"refused {plural(refused.times, 'time')}: {refused.why}", pod.key)
