"""Choose the node whose pods are evicted, and the pods to evict now; say why others must wait.

Ebb empties one node at a time, in the order of the plan. It evicts only pods for which the plan
has another node, and only while the mark is NoSchedule, so that no new pod takes their place.
Marks, their order and the states of pods are in the cluster, so a new leader continues where the
previous leader stopped.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from core.engine.maintenance_gate import MayBegin, Refusal
from core.engine.node_share import NodeShares, first_placed, within_window
from core.engine.unschedulable import is_unschedulable
from core.eviction.context import EvictionContext, EvictionInput
from core.eviction.pods import Owner, leaves, owner_of, why_waited_for
from core.eviction.reasons import (
    INTERRUPTED,
    NO_PLACE,
    NODE_SHARE,
    NOT_REPLACED,
    REFUSED,
    TURN,
)
from core.eviction.state import (
    MISSED_MAX,
    OBSERVE_SECONDS,
    Evicted,
    EvictionState,
    PlannedEviction,
)
from core.marks.mark import BACKOFF_SECONDS_MAX, Mark, mark_of
from core.marks.wellknown import TAINT_KEY
from core.model.humanize import plural
from core.model.pod import STATEFUL_SET, Pod
from core.model.reason import Blocker


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionDecision:
    """The pods to evict in one reconciliation, and what the leader remembers afterwards."""

    state: EvictionState
    """State after the decision."""
    no_schedule: frozenset[str] = frozenset()
    """Nodes whose mark should become or stay NoSchedule, unless a reason speaks against it."""
    evict: tuple[PlannedEviction, ...] = ()
    """Pods of `state.node` to evict now, in this order."""
    waits: tuple[Blocker, ...] = ()
    """Why other pods of `state.node` are not evicted now."""


NOTHING: Final = EvictionDecision(state=EvictionState())


def keep_marks(eviction_input: EvictionInput, state: EvictionState) -> EvictionDecision:
    """Return the decision to evict no pod and to leave NoSchedule marks as they are.

    If evictions are disabled, the decision is NOTHING, which keeps no NoSchedule mark.
    """
    if not eviction_input.config.evicts:
        return NOTHING
    nodes = eviction_input.cluster.nodes
    marked = (node.name for node in nodes if mark_of(node.labels) is Mark.NO_SCHEDULE)
    return EvictionDecision(state=state, no_schedule=frozenset(marked))


def plan_evictions(eviction_input: EvictionInput, state: EvictionState) -> EvictionDecision:
    """Choose the pods to evict now, and update what the leader remembers of its evictions.

    *state*: the state after the last decision.
    """
    if not eviction_input.config.evicts:
        return NOTHING
    past = bool(state.evicted or state.missed or state.placed)
    if not past and not any(mark_of(node.labels) for node in eviction_input.cluster.nodes):
        return NOTHING
    context = EvictionContext(
        eviction_input, [*(eviction.owner for eviction in state.evicted), *state.missed]
    )
    state = _with_placements(context, state)
    current = _with_node(context, _after_replacements(context, state))
    idle = keep_marks(eviction_input, current)
    if not current.node:
        return idle
    decision = _batch(context, replace(current, progress=_progress(context, state, current)))
    # Without a permit no mark becomes NoSchedule.
    begins = {current.node} if isinstance(context.beginning, MayBegin) else set()
    decision = replace(decision, no_schedule=idle.no_schedule | begins)
    seconds = context.now.seconds - decision.state.progress
    late = seconds >= eviction_input.timeout_seconds
    new = any(eviction.pod.uid not in decision.state.refused for eviction in decision.evict)
    waits = any(blocker.reason is NODE_SHARE for blocker in decision.waits)
    return _failed(decision) if late and not new and not waits else decision


# Earlier evictions


def _with_placements(context: EvictionContext, state: EvictionState) -> EvictionState:
    """Return the state with the nodes on which replacements have been seen within the window."""
    placed = within_window(state.placed, context.now)
    seen = {one.pod for one in placed.values()}
    for eviction in state.evicted:
        new = [
            pod
            for pod in context.of_owner[eviction.owner]
            if pod.uid not in eviction.others and pod.uid not in seen
        ]
        first = first_placed(new, context.now)
        if first is not None and eviction.uid not in placed:
            placed[eviction.uid] = first
            seen.add(first.pod)
    return replace(state, placed=placed)


def _after_replacements(context: EvictionContext, state: EvictionState) -> EvictionState:
    """Return the state without evictions whose pod was replaced or that exceed TIMEOUT_SECONDS.

    A pod is replaced once its controller has as many Ready pods as before the eviction. If an
    eviction exceeds the timeout, the evictions on the current node fail.
    """
    pending = [
        eviction
        for eviction in (_unreplaced(context, state, eviction) for eviction in state.evicted)
        if eviction
    ]
    timeout = context.eviction_input.timeout_seconds
    late = [eviction for eviction in pending if context.now.seconds - eviction.at >= timeout]
    failed = {name: why for name, why in state.failed.items() if name in context.marked}
    if late and state.began and state.node in context.marked:
        failed.setdefault(state.node, _not_replaced(late[0]))
    present = {pod.uid for on in context.on.values() for pod in on}
    return replace(
        state,
        evicted=tuple(eviction for eviction in pending if eviction not in late),
        refused={uid: refusal for uid, refusal in state.refused.items() if uid in present},
        failed=failed,
        missed=_missed(context, state, late),
    )


def _missed(
    context: EvictionContext, state: EvictionState, late: Sequence[Evicted]
) -> Mapping[Owner, Evicted]:
    """Return the controllers that did not replace a pod in time, with the eviction of this pod.

    The most recent ones come first. A controller is left out once it has enough Ready pods, or
    after BACKOFF_SECONDS_MAX. *late*: evictions whose time passes now.
    """
    new = {eviction.owner: eviction._replace(at=context.now.seconds) for eviction in late}
    before = [eviction for eviction in state.missed.values() if eviction.owner not in new]
    known = [
        eviction
        for eviction in (*new.values(), *before)
        if context.now.seconds - eviction.at < BACKOFF_SECONDS_MAX
        and sum(map(_serves, context.of_owner[eviction.owner])) < eviction.ready
    ]
    return {eviction.owner: eviction for eviction in known[:MISSED_MAX]}


def _why_missed(context: EvictionContext, state: EvictionState, name: str) -> Blocker | None:
    evictions = (
        state.missed.get(owner_of(pod)) for pod in context.on[name] if not pod.terminating
    )
    return next((_not_replaced(eviction) for eviction in evictions if eviction is not None), None)


def _unreplaced(
    context: EvictionContext, state: EvictionState, eviction: Evicted
) -> Evicted | None:
    """Return *eviction* while its pod has no replacement, or None if it has one or needs none.

    The pod has one once its controller has as many Ready pods as before. It needs none if the
    controller wants fewer pods. While the pod still terminates, the time of the eviction is set to
    now.
    """
    pods = [pod for pod in context.of_owner[eviction.owner] if not pod.overdue(context.now)]
    same = next((pod for pod in pods if (pod.key, pod.uid) == (eviction.key, eviction.uid)), None)
    if same is not None:
        return eviction._replace(at=context.now.seconds) if same.terminating else eviction
    serving = sum(map(_serves, pods))
    evicted = sum(other.owner == eviction.owner for other in state.evicted)
    # The absence of a new pod proves nothing: scheduling gates, a quota or a webhook may delay it.
    # The controller wants fewer pods if more pods have disappeared than were evicted.
    fewer = serving == len(pods) and serving + evicted < eviction.ready
    return None if fewer or serving >= eviction.ready else eviction


def _serves(pod: Pod) -> bool:
    return pod.ready and not pod.terminating


def _not_replaced(eviction: Evicted) -> Blocker:
    owner = f"{eviction.owner.kind} {eviction.owner.name}"
    pods = plural(eviction.ready, "Ready pod")
    message = f"{owner} had {pods} before the eviction, and has fewer now"
    return Blocker(NOT_REPLACED, message, eviction.key)


# The node whose pods are evicted


def _with_node(context: EvictionContext, state: EvictionState) -> EvictionState:
    """Return the state with the node whose pods are to be evicted now; `node` is empty if none is.

    Another node is chosen only after the evictions of the previous one have ended.
    """
    failed = dict(state.failed)
    if state.began and context.was_interrupted(state.node):
        failed.setdefault(state.node, _interrupted(context, state.node))
    if state.began and (waited := _why_waited(context, state)) is not None:
        failed.setdefault(state.node, waited)
    may_begin = isinstance(context.beginning, MayBegin)
    for name in sorted(context.places, key=lambda name: name != state.node):
        same = name == state.node
        if name in failed or not context.on[name] or not context.allows_no_schedule(name):
            continue
        if not same and not (may_begin and context.prefer_no_schedule_period_over(name)):
            continue
        began, why = same and state.began, context.why_never(name)
        why = why or _why_missed(context, state, name)
        if began and why is None:
            why = context.returned_pod(name, state.initial_pods, state.evicted_owners)
        if why is not None:
            failed[name] = why
        elif began or not context.ends_by_itself(name):
            return _emptying(context, state if same else state.stopped(failed), name, failed)
    return state.stopped(failed)


def _why_waited(context: EvictionContext, state: EvictionState) -> Blocker | None:
    """Return why evictions fail because a replacement is unschedulable, or None if they do not.

    An unschedulable replacement forbids the NoSchedule mark of the node.
    """
    # Without a failure, the replacement would be scheduled to the node once its mark is
    # PreferNoSchedule, and be evicted again after the next NoSchedule mark.
    if state.node not in context.marked or context.allows_no_schedule(state.node):
        return None
    waited = (
        eviction
        for eviction in state.evicted
        if any(map(is_unschedulable, context.of_owner[eviction.owner]))
    )
    return next(map(_not_replaced, waited), None)


def _interrupted(context: EvictionContext, name: str) -> Blocker:
    kept = (
        kept_node.blockers
        for kept_node in context.eviction_input.plan.kept
        if kept_node.node == name
    )
    codes = dict.fromkeys(blocker.code for blockers in kept for blocker in blockers)
    return Blocker(INTERRUPTED, f"the cluster needs the node again: {', '.join(codes)}")


def _emptying(
    context: EvictionContext, state: EvictionState, name: str, failed: Mapping[str, Blocker]
) -> EvictionState:
    initial_pods = state.initial_pods
    if not initial_pods and context.why_not_no_schedule(name) is None:
        initial_pods = frozenset(pod.uid for pod in context.on[name])
    return replace(state, node=name, initial_pods=initial_pods, failed=failed)


def _progress(context: EvictionContext, before: EvictionState, current: EvictionState) -> int:
    """Return when evictions on the current node last made progress, in Unix seconds.

    Progress is, for example, a new node or an evicted pod that is gone; then the result is now.
    *before*: the state after the last decision. *current*: the state with the node chosen now.
    """
    # Terminating pods have a grace period of their own, so they count as progress. On a node
    # without a NoSchedule mark they do not: new pods can arrive and terminate there forever.
    progressed = (
        current.node != before.node
        or current.initial_pods != before.initial_pods
        or len(current.evicted) < len(before.evicted)
        or _observes(context)
        or isinstance(context.beginning, Refusal)
        or (
            context.why_not_no_schedule(current.node) is None
            and any(leaves(pod, context.now) for pod in context.on[current.node])
        )
    )
    return context.now.seconds if progressed else current.progress


def _observes(context: EvictionContext) -> bool:
    """Return whether the leader is too new to know which pods the previous leader evicted."""
    return context.eviction_input.watched_seconds < OBSERVE_SECONDS


def _failed(decision: EvictionDecision) -> EvictionDecision:
    """Return the decision in which the evictions on the node have failed for lack of progress."""
    state = decision.state
    why = _refused(state, decision.evict[0].pod) if decision.evict else decision.waits[0]
    return replace(decision, state=state.stopped({**state.failed, state.node: why}), evict=())


# The pods to evict


def _batch(context: EvictionContext, state: EvictionState) -> EvictionDecision:
    if isinstance(context.beginning, Refusal):
        return EvictionDecision(state=state, waits=tuple(context.beginning.blockers))
    pods = context.in_order(state.node)
    if (why_not := context.why_not_no_schedule(state.node)) is not None:
        return EvictionDecision(state=state, waits=(why_not,))
    if _observes(context):
        return EvictionDecision(state=state)
    if state.evicted:
        return EvictionDecision(
            state=state, waits=tuple(_not_replaced(eviction) for eviction in state.evicted)
        )
    left = [pod for pod in pods if not pod.terminating]
    whys = [why for pod in left if (why := _why_not(context, state, pod)) is not None]
    if (
        whys and not state.began
    ):  # if a node cannot become empty, none of its pods should have been evicted
        return EvictionDecision(state=state, waits=tuple(whys))
    evict, waits = _chosen(context, state, left, context.beginning)
    return EvictionDecision(state=state, evict=tuple(evict), waits=tuple(waits))


def _chosen(
    context: EvictionContext, state: EvictionState, pods: Sequence[Pod], permit: MayBegin
) -> tuple[list[PlannedEviction], list[Blocker]]:
    """Choose as many of the *pods* as the eviction limits allow now.

    Returns the evictions, and the reason why each other pod must wait.
    """
    given = context.eviction_input
    on_node, in_namespace, in_cluster = context.terminating_pods()
    at_once = given.config.eviction.max_at_once
    room = min(given.on_node_max - on_node[state.node], at_once - in_cluster)
    stateful_sets: Counter[Owner] = Counter()
    shares = NodeShares(
        given.cluster.nodes,
        given.cluster.pods,
        state.placed.values(),
        unplaced=0,  # nothing is evicted before all replacements are Ready
        taint_key=TAINT_KEY,
    )
    evict: list[PlannedEviction] = []
    waits: list[Blocker] = []
    for pod in pods:
        owner = owner_of(pod)
        why = _why_not(context, state, pod)
        if why is None and (
            len(evict) >= room
            or in_namespace[pod.namespace] >= given.in_namespace_max
            or (owner.kind == STATEFUL_SET and stateful_sets[owner])
        ):
            why = Blocker(TURN, "other pods are evicted first", pod.key)
        if why is None and (full := shares.why_not(pod)) is not None:
            why = Blocker(NODE_SHARE, full, pod.key)
        if why is not None:
            waits.append(why)
            continue
        ready = sum(map(_serves, context.of_owner[owner]))
        others = frozenset(one.uid for one in context.of_owner[owner])
        evict.append(PlannedEviction(pod, owner, ready, permit, others))
        context.budgets.take(pod)
        shares.take()
        in_namespace[pod.namespace] += 1
        stateful_sets[owner] += 1
    return evict, waits


def _why_not(context: EvictionContext, state: EvictionState, pod: Pod) -> Blocker | None:
    if (waited_for := why_waited_for(pod, context.now)) is not None:
        return waited_for
    if pod.key not in context.places[state.node]:
        return Blocker(NO_PLACE, "no other node has room for it in Ebb's plan", pod.key)
    refused = state.refused.get(pod.uid)
    if refused is not None and context.now.seconds < refused.until:
        return _refused(state, pod)
    return context.why_not_yet(pod)


def _refused(state: EvictionState, pod: Pod) -> Blocker:
    refused = state.refused[pod.uid]
    return Blocker(
        REFUSED, f"eviction rejected {plural(refused.times, 'time')}: {refused.why}", pod.key
    )
