"""Which nodes an autoscaler must not take before Ebb hands them over, and when Ebb does."""

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from core.config.budgets import Backoff, Pool, Reserve
from core.config.settings import Config, Mode, ScaleDownProtection, Scope
from core.engine.leader_state import LeaderState
from core.engine.reconcile import PassResult, reconcile
from core.marks.mark import (
    RESERVE_CHARACTERS_MAX,
    Mark,
    decode_details,
    guard_of,
    mark_of,
    reserved_for,
)
from core.marks.taints import desired_taints
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    GUARD_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    KARPENTER_KEEP_ANNOTATION,
    KARPENTER_LABEL,
    KEEP_ANNOTATION,
    MARK_LABEL,
    RESERVE_ANNOTATION,
)
from core.model.cluster import Cluster
from core.model.constraints import DisruptionFacts
from core.model.humanize import timestamp
from core.model.node import Node
from core.model.now import Now
from core.model.pod import DEVICES_FIELD, Pod
from core.writes.cleanup import cleanup
from core.writes.nodes import HOLDS_A_PASS_MAX, LeaderObservations, decide
from core.writes.write import Write, WriteKind, applied
from tests.support import mixed, mixed_config
from tests.support.builders import UNLIMITED, marked, node, pod
from tests.support.mixed_autoscalers import surrounded
from tests.support.reference_reserve import held_back

pytestmark = pytest.mark.mutate

NOW = 1_767_225_600
NO_RESERVE = Reserve(lookback_seconds=0)
BUDGETS = replace(UNLIMITED, reserve=NO_RESERVE, headroom=0)
CONFIG = Config(mode=Mode.ENFORCE, budgets=BUDGETS, deadline_seconds=3600)
NO_MARKS = replace(BUDGETS, cluster=replace(BUDGETS.cluster, min_nodes=1000))
HELD = {GUARD_ANNOTATION: "true", GUARD_OURS_ANNOTATION: "held"}
KARPENTERS = {
    KARPENTER_KEEP_ANNOTATION: "true",
    GUARD_OURS_ANNOTATION: "held karpenter.sh/do-not-disrupt",
}
OURS_GONE = {GUARD_ANNOTATION: None, GUARD_OURS_ANNOTATION: None}


def asked(scope: Scope, **budgets: object) -> Config:
    """Return a configuration under which no node is marked."""
    made = replace(NO_MARKS, **budgets)  # type: ignore[arg-type]
    return replace(CONFIG, budgets=made, scale_down_protection=ScaleDownProtection(scope=scope))


def looked(config: Config, nodes: list[Node], *pods: Pod, now: int = NOW) -> PassResult:
    return reconcile(Cluster.of(nodes, pods), config, LeaderState(first_pass_at=0), now)


def written(config: Config, found: PassResult, watching: int = 10**6) -> tuple[Write[Node], ...]:
    cluster, memory = found.snapshot.cluster, found.state
    watch = LeaderObservations(
        watching,
        found.no_schedule_blockers,
        held=memory.last_protected.at,
        reserved=memory.last_reserved.at,
    )
    return decide(cluster, found.plan, config, now_seconds=found.at, owner="me", watch=watch)


def stored(write: Write[Node], one: Node) -> Node:
    """Return the node as the webhook lets the write be stored."""
    made = applied(write, one)
    return replace(made, taints=desired_taints(made, CONFIG.taint_key))


def settled(config: Config, nodes: list[Node], *pods: Pod, now: int = NOW) -> list[Node]:
    """Write until there is nothing left to write, as a webhook and a writer do."""
    for _ in range(5):
        writes = written(config, looked(config, nodes, *pods, now=now))
        if not writes:
            return nodes
        for write in writes:
            nodes = [stored(write, one) if one.name == write.key else one for one in nodes]
    raise AssertionError


def ending(overdue: int) -> Pod:
    """Return a pod that should be gone by then."""
    return replace(
        pod("p", "n", 1, 1), terminating=True, ties=DisruptionFacts(overdue_seconds=overdue)
    )


EMPTY = {Scope.EMPTY, Scope.ALL}
EVERY = {Scope.ALL}
NEVER: set[Scope] = set()
IN_POOL = (Pool(name="p", node_selector=(("pool", "p"),), budget=UNLIMITED.cluster),)
ANY = pod("any", "full", 100, 100)


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize(
    ("one", "pods", "budgets", "held_with"),
    [
        (node("n"), (), {}, EMPTY),
        (node("n"), (pod("p", "n", 100, 100),), {}, EVERY),
        (node("n"), (replace(pod("p", "n", 100, 100), daemon=True),), {}, EMPTY),
        (node("n"), (replace(pod("p", "n", 1, 1), priority=-11),), {}, NEVER),
        (node("n"), (replace(pod("p", "n", 1, 1), terminating=True),), {}, EVERY),
        (node("n"), (ending(NOW),), {}, EVERY),
        (node("n"), (ending(NOW - 1),), {}, NEVER),
        (node("n"), (replace(pod("p", "n", 1, 1), unreadable="x"),), {}, EVERY),
        (node("n", annotations={KEEP_ANNOTATION: "true"}), (), {}, NEVER),
        (node("n", annotations={GUARD_ANNOTATION: "true"}), (), {}, NEVER),
        (node("n", annotations={GUARD_ANNOTATION: "false"}), (ANY,), {}, NEVER),
        (node("n", annotations={KARPENTER_KEEP_ANNOTATION: "true"}), (), {}, NEVER),
        (node("n", annotations=KARPENTERS), (), {}, EMPTY),
        (node("n", annotations=HELD), (), {}, EMPTY),
        (replace(node("n"), unschedulable=True), (), {}, NEVER),
        (replace(node("n"), unschedulable=True), (pod("p", "n", 1, 1),), {}, NEVER),
        (replace(node("n"), ready=False), (), {}, NEVER),
        (replace(node("n"), virtual=True), (), {}, NEVER),
        (replace(node("n"), unreadable="x"), (), {}, NEVER),
        (replace(node("n"), deleting=True), (), {}, NEVER),
        (node("n", labels={"node-role.kubernetes.io/control-plane": ""}), (), {}, NEVER),
        (node("n"), (), {"pools": IN_POOL}, NEVER),
        (node("n", labels={"pool": "p"}), (), {"pools": IN_POOL}, EMPTY),
        (node("n", annotations={BACKOFF_ANNOTATION: f"1 {NOW + 1}"}), (), {}, NEVER),
        (node("n", annotations={BACKOFF_ANNOTATION: f"1 {NOW}"}), (), {}, EMPTY),
        (node("n", annotations={BACKOFF_ANNOTATION: f"1 {NOW + 1}"}), (pod("p", "n", 1, 1),), {},
         EVERY),
        (node("n", annotations={BACKOFF_ANNOTATION: f"1 {NOW + 1}"}), (),
         {"reserve": Reserve()}, EMPTY),
    ],
)  # fmt: skip
def test_which_nodes_are_held(
    one: Node,
    pods: tuple[Pod, ...],
    budgets: dict[str, object],
    held_with: set[Scope],
    scope: Scope,
) -> None:
    """A leader that has not looked on keeps room for all that may come: the last row."""
    config = asked(scope, **budgets)
    cluster = Cluster.of([one, node("full")], [ANY, *pods])
    found = reconcile(cluster, config, LeaderState(), NOW)
    assert ("n" in found.plan.held) is (scope in held_with)
    kept = {held.node for held in found.plan.reserve}
    assert found.plan.held == held_back(cluster, config, NOW, kept)


@pytest.mark.parametrize(
    ("pods", "reserve", "scope", "held"),
    [
        ((), NO_RESERVE, Scope.EMPTY, False),
        ((), NO_RESERVE, Scope.ALL, False),
        ((pod("p", "n", 1, 1),), NO_RESERVE, Scope.ALL, True),
        ((), Reserve(), Scope.EMPTY, True),
    ],
)
def test_a_node_that_has_refused_its_mark_is_its_autoscalers(
    pods: tuple[Pod, ...], reserve: Reserve, scope: Scope, held: bool
) -> None:
    """Or it would carry our guard for ever, for a mark that nobody can write."""
    cluster = Cluster.of([node("n"), node("full")], [ANY, *pods])
    config, refused = asked(scope, reserve=reserve), frozenset({"n"})
    for now, left_alone in ((NOW, True), (NOW + 99, True), (NOW + 100, False)):
        memory = LeaderState().with_failed_writes(
            refused, Now(NOW), unneeded_time_seconds=100, max_seconds=100
        )
        found = reconcile(cluster, config, memory, now)
        assert ("n" in found.plan.held) is (held or not left_alone)


@pytest.mark.law(seeds_max=3000)
def test_held_nodes_are_those_of_the_plain_rules(seeds: range) -> None:
    seen = dict.fromkeys(("empty", "occupied", "left alone"), 0)
    for seed in seeds:
        chance = random.Random(seed)
        cluster = mixed.cluster(chance, social=False)
        nodes = [meddled(chance, one) for one in cluster.nodes]
        gone = [p for p in cluster.pods if p.stays_with_node or chance.random() < 0.4]
        cluster = surrounded(Cluster.of(nodes, gone), cluster)
        config = mixed_config.config(chance)
        reserve = Reserve(lookback_seconds=chance.choice((0, 3600)))
        budgets = replace(config.budgets, reserve=reserve, backoff=Backoff(max_seconds=DAY))
        scope = ScaleDownProtection(scope=chance.choice(list(Scope)))
        config = replace(config, budgets=budgets, scale_down_protection=scope)
        found = reconcile(cluster, config, LeaderState(), NOW)
        kept = {held.node for held in found.plan.reserve}
        plain = held_back(cluster, config, NOW, kept)
        assert found.plan.held == plain, seed
        for name in plain:
            seen["occupied" if name in found.snapshot.non_empty_nodes else "empty"] += 1
        seen["left alone"] += bool(found.rate_limits.backing_off.keys() - plain)
    assert min(seen.values()) > len(seeds) // 20, seen


DAY = 86_400
WORDS: tuple[Mapping[str, str], ...] = (
    *({},) * 10,
    HELD,
    KARPENTERS,
    {GUARD_ANNOTATION: "true"},
    {KARPENTER_KEEP_ANNOTATION: "false"},
    {GUARD_ANNOTATION: "true", GUARD_OURS_ANNOTATION: "marked karpenter.sh/do-not-disrupt"},
    {BACKOFF_ANNOTATION: f"2 {NOW + 60}"},
    {BACKOFF_ANNOTATION: f"2 {NOW - 60}"},
)


def meddled(chance: random.Random, one: Node) -> Node:
    labels = {KARPENTER_LABEL: "x"} if chance.random() < 0.3 else {}
    annotations = {**one.annotations, **chance.choice(WORDS)}
    return replace(one, labels={**one.labels, **labels}, annotations=annotations)


# What is written


def marked_node(**annotations: str) -> Node:
    """Return a node that was marked a minute ago."""
    return marked(node("n", annotations=annotations), since=NOW - 60, deadline=NOW + 3600)


OTHER = node("other")
MOVING = pod("p", "n", 100, 100)
THERE = pod("q", "other", 100, 100)


@pytest.mark.parametrize(
    ("one", "pods", "config", "kind", "annotations"),
    [
        (node("n"), (THERE,), asked(Scope.EMPTY), WriteKind.HOLD, HELD),
        (node("n"), (MOVING, THERE), asked(Scope.EMPTY), None, {}),
        (node("n"), (MOVING, THERE), asked(Scope.ALL), WriteKind.HOLD, HELD),
        (node("n", annotations=HELD), (THERE,), asked(Scope.EMPTY), None, {}),
        (node("n", annotations=HELD), (MOVING, THERE), asked(Scope.EMPTY), WriteKind.GUARD,
         {GUARD_OURS_ANNOTATION: str(NOW + 900)}),
        (node("n", annotations=HELD), (MOVING, THERE), asked(Scope.ALL), None, {}),
        (node("n", annotations=HELD), (THERE,), asked(Scope.MARKED), WriteKind.GUARD,
         {GUARD_OURS_ANNOTATION: str(NOW + 900)}),
        (node("n", annotations=HELD), (THERE,), replace(asked(Scope.EMPTY), mode=Mode.OBSERVE),
         WriteKind.GUARD, {GUARD_OURS_ANNOTATION: str(NOW + 900)}),
        (node("n", annotations=HELD | {GUARD_OURS_ANNOTATION: str(NOW + 450)}), (THERE,),
         asked(Scope.EMPTY), WriteKind.HOLD, {GUARD_OURS_ANNOTATION: "held"}),
        (node("n", annotations=HELD | {GUARD_OURS_ANNOTATION: str(NOW + 451)}), (THERE,),
         asked(Scope.EMPTY), None, {}),
        (node("n", annotations=HELD | {GUARD_OURS_ANNOTATION: str(NOW + 900)}), (THERE,),
         asked(Scope.EMPTY), None, {}),
        (node("n", annotations=HELD | {GUARD_OURS_ANNOTATION: str(NOW + 901)}), (THERE,),
         asked(Scope.EMPTY), WriteKind.HOLD, {GUARD_OURS_ANNOTATION: "held"}),
        (node("n", annotations=HELD | {GUARD_OURS_ANNOTATION: "marked"}), (THERE,),
         asked(Scope.EMPTY), WriteKind.HOLD, {GUARD_OURS_ANNOTATION: "held"}),
        (node("n", annotations={GUARD_OURS_ANNOTATION: "held"}), (THERE,),
         asked(Scope.EMPTY), WriteKind.HOLD, HELD),
        (node("n", annotations={GUARD_OURS_ANNOTATION: "held"}), (THERE,),
         asked(Scope.MARKED), WriteKind.UNGUARD, {GUARD_OURS_ANNOTATION: None}),
        (node("n", annotations=HELD), (THERE,), CONFIG, WriteKind.MARK,
         {GUARD_OURS_ANNOTATION: "marked"}),
    ],
)  # fmt: skip
def test_the_guard_of_a_node_without_a_mark(
    one: Node,
    pods: tuple[Pod, ...],
    config: Config,
    kind: WriteKind | None,
    annotations: Mapping[str, str | None],
) -> None:
    writes = written(config, looked(config, [one, OTHER], *pods))
    writes = tuple(write for write in writes if write.key == "n")
    assert [write.kind for write in writes] == ([kind] if kind else [])
    assert not writes or annotations.items() <= writes[0].annotations.items()


@pytest.mark.parametrize(
    ("scope", "pods", "note"),
    [
        (
            Scope.EMPTY,
            (THERE,),
            "min-nodes: the cluster would have 1 schedulable node, fewer than minNodes: 1000",
        ),
        (
            Scope.ALL,
            (MOVING, THERE),
            "the node needs protection from scale-down until Ebb releases it to the autoscaler",
        ),
    ],
)
def test_an_empty_node_is_told_why_it_stays_one_with_pods_what_for(
    scope: Scope, pods: tuple[Pod, ...], note: str
) -> None:
    writes = written(asked(scope), looked(asked(scope), [node("n"), OTHER], *pods))
    assert [write.note for write in writes if write.key == "n"] == [note]


@pytest.mark.parametrize(("drained", "kinds"), [("", []), ("n", [WriteKind.HARDEN])])
def test_a_node_that_is_drained_is_hard_from_its_first_second_on(
    drained: str, kinds: list[WriteKind]
) -> None:
    one = marked_node(**HELD | {GUARD_OURS_ANNOTATION: "marked"})
    found = looked(CONFIG, [one, OTHER], MOVING, THERE, now=NOW - 60)
    watch = LeaderObservations(10**6, found.no_schedule_blockers, hard=frozenset({drained}))
    writes = decide(
        found.snapshot.cluster, found.plan, CONFIG, now_seconds=found.at, owner="me", watch=watch
    )
    assert [write.kind for write in writes] == kinds


def on_karpenter(one: Node) -> Node:
    return replace(one, labels={**one.labels, KARPENTER_LABEL: "default"})


BY_OTHERS = {KARPENTER_KEEP_ANNOTATION: "true"}
OLD = {GUARD_ANNOTATION: None, KARPENTER_KEEP_ANNOTATION: "true"}


@pytest.mark.parametrize(
    ("one", "pods", "config", "kind", "annotations"),
    [
        (node("n"), (THERE,), asked(Scope.EMPTY), WriteKind.HOLD, KARPENTERS),
        (node("n", annotations=KARPENTERS), (THERE,), asked(Scope.EMPTY), None, {}),
        (node("n", annotations=HELD), (THERE,), asked(Scope.EMPTY), WriteKind.HOLD,
         OLD | KARPENTERS),
        (node("n", annotations=HELD | {GUARD_OURS_ANNOTATION: str(NOW + 5)}), (MOVING, THERE),
         asked(Scope.EMPTY), WriteKind.GUARD,
         OLD | {GUARD_OURS_ANNOTATION: f"{NOW + 900} {KARPENTER_KEEP_ANNOTATION}"}),
        (node("n"), (THERE,), CONFIG, WriteKind.MARK,
         {KARPENTER_KEEP_ANNOTATION: "true",
          GUARD_OURS_ANNOTATION: f"marked {KARPENTER_KEEP_ANNOTATION}"}),
        (marked_node(**HELD | {GUARD_OURS_ANNOTATION: "marked"}), (MOVING, THERE), CONFIG,
         WriteKind.GUARD, OLD),
        (marked_node(**KARPENTERS), (THERE,), CONFIG, WriteKind.UNGUARD,
         {KARPENTER_KEEP_ANNOTATION: None, GUARD_OURS_ANNOTATION: None}),
        (marked_node(**HELD), (THERE,), CONFIG, WriteKind.UNGUARD, OURS_GONE),
        (marked_node(), (MOVING, THERE), CONFIG, WriteKind.GUARD,
         {KARPENTER_KEEP_ANNOTATION: "true"}),
        (marked_node(**BY_OTHERS), (MOVING, THERE), CONFIG, WriteKind.RELEASE,
         {DETAILS_ANNOTATION: None}),
        (node("n", annotations=BY_OTHERS), (THERE,), asked(Scope.EMPTY), None, {}),
        (marked_node(**BY_OTHERS | HELD), (MOVING, THERE), CONFIG, WriteKind.RELEASE,
         {GUARD_ANNOTATION: "true", GUARD_OURS_ANNOTATION: str(NOW + 900)}),
        (node("n", annotations=BY_OTHERS | HELD), (MOVING, THERE), asked(Scope.EMPTY),
         WriteKind.GUARD,
         {GUARD_ANNOTATION: "true", GUARD_OURS_ANNOTATION: str(NOW + 900)}),
    ],
)  # fmt: skip
def test_where_karpenter_is_the_guard_is_its_own_word(
    one: Node,
    pods: tuple[Pod, ...],
    config: Config,
    kind: WriteKind | None,
    annotations: Mapping[str, str | None],
) -> None:
    """A guard from before the node was Karpenter's is moved; others' words stay."""
    one = on_karpenter(one)
    writes = written(config, looked(config, [one, OTHER], *pods))
    writes = tuple(write for write in writes if write.key == "n")
    assert [write.kind for write in writes] == ([kind] if kind else [])
    for write in writes:
        assert annotations.items() <= write.annotations.items()
        said = one.annotations.get(GUARD_OURS_ANNOTATION, "")
        others = BY_OTHERS.items() <= one.annotations.items()
        assert not (others and KARPENTER_KEEP_ANNOTATION not in said) or (
            KARPENTER_KEEP_ANNOTATION not in write.annotations
        )


def test_a_node_that_a_daemons_pod_keeps_for_a_time_is_handed_over_when_that_is_over() -> None:
    """Not earlier, and not a pass later: those before are skipped."""
    told = DisruptionFacts(notes=((KARPENTER_KEEP_ANNOTATION, "90s"),), started_seconds=NOW)
    keeps = replace(pod("d", "n", 1, 1), daemon=True, owner_kind="DaemonSet", ties=told)
    there = Cluster.of([on_karpenter(marked_node(**KARPENTERS)), OTHER], [keeps, THERE])
    last = looked(CONFIG, list(there.nodes), *there.pods)
    for now, skipped in ((NOW, True), (NOW + 89, True), (NOW + 90, False)):
        last = reconcile(there, CONFIG, last.state, now, last=last)
        assert last.skipped is skipped
        kinds = [write.kind for write in written(CONFIG, last) if write.key == "n"]
        assert (WriteKind.UNGUARD in kinds) is (now == NOW + 90)


@pytest.mark.parametrize(("kind", "empty"), [("StatefulSet", False), ("ReplicaSet", True)])
def test_a_stuck_pod_that_karpenter_waits_for_keeps_the_guard_and_ends_the_mark(
    kind: str, *, empty: bool
) -> None:
    """At the deadline, since the node has not emptied."""
    one = on_karpenter(marked_node(**KARPENTERS))
    stuck = replace(ending(NOW - DAY), owner_kind=kind)
    for now, kinds in (
        (NOW, [WriteKind.UNGUARD] if empty else []),
        (NOW + 3600, [WriteKind.MARK] if empty else [WriteKind.RELEASE]),
    ):
        writes = written(CONFIG, looked(CONFIG, [one, OTHER], stuck, THERE, now=now))
        assert [write.kind for write in writes if write.key == "n"] == kinds


@pytest.mark.parametrize("labels", [{}, {KARPENTER_LABEL: "default"}])
@pytest.mark.parametrize("scope", [Scope.EMPTY, Scope.ALL])
def test_a_guard_that_is_held_goes_as_marks_do(labels: dict[str, str], scope: Scope) -> None:
    """In mode observe after a while, and with `ebb release --all` at once."""
    config = asked(scope)
    begun = [node("n", labels=labels), OTHER]
    first = settled(config, begun, MOVING, THERE)
    nodes = settled(config, first, THERE)
    assert nodes[0].annotations == (KARPENTERS if labels else HELD)
    gone = cleanup(nodes[0], config.taint_key)
    assert gone is not None
    assert applied(gone, nodes[0]).annotations == {}
    config = replace(config, mode=Mode.OBSERVE)
    watched = settled(config, nodes, THERE)
    ended = settled(
        config, watched, THERE, now=NOW + config.scale_down_protection.after_release_seconds
    )
    assert ended == begun


def after(
    config: Config, empty: tuple[Node, ...], *pods: Pod, seconds: int, then: Config | None = None
) -> list[tuple[object, Mapping[str, str | None]]]:
    """Return what is written on n by one that has seen it empty, and has pods on it so long."""
    last = reconcile(Cluster.of(empty, [THERE]), config, LeaderState(), NOW)
    filled = Cluster.of(empty, [THERE, *pods])
    for now in (NOW + 1, NOW + seconds):
        last = reconcile(filled, then or config, last.state, now, last=last)
    found = (one for one in written(then or config, last) if one.key == "n")
    return [(one.kind, one.annotations) for one in found]


@pytest.mark.parametrize("labels", [{}, {KARPENTER_LABEL: "default"}])
@pytest.mark.parametrize("told", [{}, {RESERVE_ANNOTATION: "for p"}])
def test_a_node_that_has_just_filled_keeps_what_it_has_for_as_long_as_a_guard_stays(
    labels: dict[str, str], told: dict[str, str]
) -> None:
    """Without a write; one that is empty again by then has had none."""
    config = asked(Scope.EMPTY, reserve=Reserve(window_seconds=DAY))
    guard = KARPENTERS if labels else HELD
    nodes = (node("n", labels=labels, annotations={**guard, **told}), OTHER)
    for seconds in (1, 899):
        assert after(config, nodes, MOVING, seconds=seconds) == []
    gone = dict.fromkeys((*guard, *told))
    assert after(config, nodes, MOVING, seconds=900) == [(WriteKind.UNGUARD, gone)]
    ends = {GUARD_OURS_ANNOTATION: guard[GUARD_OURS_ANNOTATION].replace("held", str(NOW + 900))}
    (write,) = written(config, looked(config, list(nodes), MOVING, THERE))
    assert write.kind is WriteKind.GUARD, "who has not seen it empty says until when"
    assert ends.items() <= write.annotations.items()
    assert not told or write.annotations[RESERVE_ANNOTATION] is None


@pytest.mark.parametrize(
    ("one", "pods", "then"),
    [
        (node("n", annotations=HELD), (MOVING,), replace(asked(Scope.EMPTY), mode=Mode.OBSERVE)),
        (node("n", annotations=HELD), (MOVING,), asked(Scope.MARKED)),
        (node("n", annotations=HELD), (), asked(Scope.EMPTY, pools=IN_POOL)),
        (on_karpenter(node("n", annotations=HELD)), (MOVING,), asked(Scope.EMPTY)),
    ],
)
def test_a_guard_that_is_to_go_for_another_cause_says_until_when_at_once(
    one: Node, pods: tuple[Pod, ...], then: Config
) -> None:
    ((kind, annotations),) = after(asked(Scope.EMPTY), (one, OTHER), *pods, seconds=2, then=then)
    until = (annotations[GUARD_OURS_ANNOTATION] or "").split()[0]
    assert (kind, until) == (WriteKind.GUARD, str(NOW + 902))


def test_of_a_node_with_pods_that_is_held_it_is_not_told_for_long_whom_it_was_kept_for() -> None:
    config = asked(Scope.ALL, reserve=Reserve(window_seconds=DAY))
    nodes = (node("n", annotations={**HELD, RESERVE_ANNOTATION: "for p"}), OTHER)
    assert after(config, nodes, MOVING, seconds=899) == []
    told = [(WriteKind.TELL, {RESERVE_ANNOTATION: None})]
    assert after(config, nodes, MOVING, seconds=900) == told
    observe = replace(config, mode=Mode.OBSERVE)
    ((_, annotations),) = after(config, nodes, MOVING, seconds=2, then=observe)
    assert annotations[RESERVE_ANNOTATION] is None
    ends = after(config, nodes, MOVING, seconds=899, then=asked(Scope.EMPTY))
    assert ends == [], "it was held until the scope changed"


RELEASED = {GUARD_ANNOTATION: "true", GUARD_OURS_ANNOTATION: str(NOW + 800)}
KARPENTER_RELEASED = {
    KARPENTER_KEEP_ANNOTATION: "true",
    GUARD_OURS_ANNOTATION: f"{NOW + 800} {KARPENTER_KEEP_ANNOTATION}",
}


def claiming(one: Pod) -> Pod:
    """Return a pod that holds devices by claims."""
    return replace(one, unsupported=(DEVICES_FIELD,))


MOST = pod("p", "n", 3000, 1)
"""Of the node's 4 cores."""


@pytest.mark.parametrize(
    ("one", "pods", "lifted"),
    [
        (node("n", annotations=RELEASED), (MOST,), True),
        (node("n", annotations=RELEASED), (replace(MOST, requests=MOVING.requests),), False),
        (node("n", annotations=RELEASED), (replace(ending(NOW), requests=MOST.requests),), True),
        (node("n", annotations=RELEASED), (replace(ending(NOW - 1), requests=MOST.requests),),
         False),
        (on_karpenter(node("n", annotations=KARPENTER_RELEASED)), (MOST,), False),
        (node("n", annotations=RELEASED), (MOST, claiming(THERE)), True),
        (node("n", annotations=RELEASED), (claiming(MOST),), False),
    ],
)  # fmt: skip
def test_the_guard_of_a_released_node_is_lifted_where_no_autoscaler_would_drain_it(
    one: Node, pods: tuple[Pod, ...], *, lifted: bool
) -> None:
    config = asked(Scope.MARKED)
    writes = written(config, looked(config, [one, OTHER], *pods))
    assert [write.kind for write in writes] == [WriteKind.UNGUARD] * lifted


def test_a_pass_holds_a_few_the_empty_ones_first() -> None:
    """And marks come after all of them."""
    many = HOLDS_A_PASS_MAX + 1
    nodes = [node(f"n{number:03}") for number in range(many + 2)]
    pods = [pod("p0", "n000", 100, 100), pod("p1", "n001", 100, 100)]
    config = asked(Scope.ALL)
    writes = written(config, looked(config, nodes, *pods))
    assert [write.key for write in writes] == [f"n{n:03}" for n in range(2, many + 1)]
    after = settled(config, nodes, *pods)
    assert all(GUARD_OURS_ANNOTATION in one.annotations for one in after)


def test_an_empty_node_is_marked_at_once_and_handed_over_when_it_is_to_be_spared() -> None:
    """The first look marks it, the second hands it over; a new leader keeps it for one length."""
    config = replace(CONFIG, unneeded_time_seconds=600)
    nodes = [node("n"), OTHER]
    (write,) = written(config, looked(config, nodes, THERE))
    assert (write.kind, write.key) == (WriteKind.MARK, "n")
    nodes = settled(config, nodes, THERE)
    assert nodes[0].annotations.keys() == {DETAILS_ANNOTATION}
    kept = replace(config, budgets=replace(config.budgets, reserve=Reserve(window_seconds=60)))
    new = reconcile(Cluster.of(nodes, [THERE]), kept, LeaderState(), NOW)
    assert [write.kind for write in written(kept, new)] == [WriteKind.GUARD]
    later = reconcile(Cluster.of(nodes, [THERE]), kept, new.state, NOW + 60)
    assert written(kept, later) == ()


@pytest.mark.parametrize("policy", ["ClusterThreshold", "NodeUtilization"])
def test_a_node_that_holds_pods_waits_its_delay(policy: str) -> None:
    config = replace(CONFIG, unneeded_time_seconds=600, policy=policy)
    first = looked(config, [node("n"), node("m"), OTHER], MOVING, THERE)
    assert [removal.node for removal in first.plan.removals] == ["m"]


def test_what_a_node_is_kept_for_stands_on_it_from_beginning_to_end() -> None:
    """Not with every pod that comes and goes; whoever leads next takes it over."""
    config = asked(Scope.EMPTY, reserve=Reserve(window_seconds=60))
    begun = [node("n"), OTHER]
    new = reconcile(Cluster.of(begun, [THERE]), config, LeaderState(), NOW)
    (write,) = written(config, new)
    assert write.kind is WriteKind.HOLD
    said = f"a new leader observes pod arrivals until {timestamp(NOW + 60)}"
    assert write.annotations == {**HELD, RESERVE_ANNOTATION: said}
    nodes = [applied(write, begun[0]), OTHER]
    assert reserved_for(nodes[0]) == said
    other = reconcile(Cluster.of(nodes, [THERE]), config, new.state, NOW + 1)
    assert other.plan.reserve[0].why.message == said
    assert written(config, other) == ()
    over = reconcile(Cluster.of(nodes, [THERE]), config, new.state, NOW + 60)
    assert not over.plan.reserve
    assert written(config, over) == ()
    guard = config.scale_down_protection.after_release_seconds
    almost = reconcile(Cluster.of(nodes, [THERE]), config, over.state, NOW + guard - 1)
    assert written(config, almost) == ()
    late = reconcile(Cluster.of(nodes, [THERE]), config, almost.state, NOW + guard)
    (told,) = written(config, late)
    assert (told.kind, told.annotations) == (WriteKind.TELL, {RESERVE_ANNOTATION: None})
    nodes[0] = applied(told, nodes[0])
    assert nodes[0].annotations == HELD
    again = reconcile(Cluster.of(nodes, [THERE]), config, LeaderState(), NOW)
    (told,) = written(config, again)
    assert (told.kind, told.annotations) == (WriteKind.TELL, {RESERVE_ANNOTATION: said})
    assert told.note == f"reserve: {said}"


@pytest.mark.parametrize(
    ("one", "pods", "kind"),
    [
        (marked_node(), (THERE,), WriteKind.GUARD),
        (marked_node(**HELD), (THERE,), WriteKind.TELL),
        (node("n", annotations=HELD), (THERE,), WriteKind.MARK),
        (node("n"), (THERE,), WriteKind.MARK),
    ],
)
def test_it_is_told_in_the_write_that_there_is_if_there_is_one(
    one: Node, pods: tuple[Pod, ...], kind: WriteKind
) -> None:
    """And taken away in that which hands the node over, or later where a pod has come."""
    config = replace(CONFIG, budgets=replace(CONFIG.budgets, reserve=Reserve(window_seconds=60)))
    new = reconcile(Cluster.of([one, OTHER], pods), config, LeaderState(), NOW)
    (write,) = written(config, new)
    assert write.kind is kind
    assert write.annotations[RESERVE_ANNOTATION]
    after = stored(write, one)
    over = reconcile(Cluster.of([after, OTHER], pods), config, new.state, NOW + 60)
    (write,) = written(config, over)
    assert (write.kind, write.annotations[RESERVE_ANNOTATION]) == (WriteKind.UNGUARD, None)
    filled = Cluster.of([after, OTHER], [*pods, MOVING])
    assert written(config, reconcile(filled, config, new.state, NOW + 899)) == ()
    there = reconcile(filled, config, new.state, NOW + 900)
    assert {w.annotations[RESERVE_ANNOTATION] for w in written(config, there)} == {None}


def test_what_is_told_begins_with_the_mark_and_ends_with_it() -> None:
    """Of a node that is not held without one; beside a repair of its taints too."""
    budgets = replace(CONFIG.budgets, reserve=Reserve(window_seconds=60))
    config = replace(
        CONFIG, budgets=budgets, scale_down_protection=ScaleDownProtection(scope=Scope.MARKED)
    )
    new = reconcile(Cluster.of([node("n"), OTHER], [THERE]), config, LeaderState(), NOW)
    (write,) = written(config, new)
    assert (write.kind, RESERVE_ANNOTATION in write.annotations) == (WriteKind.MARK, True)
    stays = replace(new, plan=replace(new.plan, removals=()))
    assert written(config, stays) == ()
    of_mark = stored(write, node("n"))
    again = reconcile(Cluster.of([of_mark, OTHER], [THERE]), config, new.state, NOW)
    stays = replace(again, plan=replace(again.plan, removals=()))
    (write,) = written(config, stays)
    assert (write.kind, write.annotations[RESERVE_ANNOTATION]) == (WriteKind.RELEASE, None)
    bare = replace(
        of_mark,
        taints=(),
        annotations={DETAILS_ANNOTATION: of_mark.annotations[DETAILS_ANNOTATION]},
    )
    mends = written(config, reconcile(Cluster.of([bare, OTHER], [THERE]), config, new.state, NOW))
    assert {mend.kind for mend in mends} == {WriteKind.REPAIR, WriteKind.GUARD}


def test_nodes_of_which_nothing_but_that_is_to_be_told_come_by_name() -> None:
    config = asked(Scope.EMPTY)
    said = {RESERVE_ANNOTATION: "x"}
    nodes = [node(name, annotations=HELD | said) for name in ("b", "a")]
    writes = written(config, looked(config, [*nodes, OTHER], THERE))
    assert [(write.kind, write.key) for write in writes] == [
        (WriteKind.TELL, "a"),
        (WriteKind.TELL, "b"),
    ]


@pytest.mark.parametrize("told", ["x", "x" * RESERVE_CHARACTERS_MAX])
def test_what_is_told_is_read_with_the_guard_alone(told: str) -> None:
    assert reserved_for(node("n", annotations={**HELD, RESERVE_ANNOTATION: told})) == told
    assert reserved_for(node("n", annotations={RESERVE_ANNOTATION: told})) is None
    assert reserved_for(node("n", annotations=HELD)) is None


@pytest.mark.parametrize("told", ["", "x\n", "x" * (RESERVE_CHARACTERS_MAX + 1)])
def test_what_others_have_written_there_is_not_told(told: str) -> None:
    assert reserved_for(node("n", annotations={**HELD, RESERVE_ANNOTATION: told})) is None
    assert reserved_for(node("n", annotations={RESERVE_ANNOTATION: "x"})) is None
    (write,) = written(
        asked(Scope.EMPTY),
        looked(
            asked(Scope.EMPTY),
            [node("n", annotations={**HELD, RESERVE_ANNOTATION: told}), OTHER],
            THERE,
        ),
    )
    assert write.annotations == {RESERVE_ANNOTATION: None}


def test_a_node_that_is_kept_past_its_deadline_has_not_failed() -> None:
    """It gets another deadline; that of a node that holds pods is over."""
    late = NOW + CONFIG.deadline_seconds
    config = replace(CONFIG, budgets=replace(CONFIG.budgets, reserve=Reserve(window_seconds=60)))
    nodes = [marked_node(**HELD | {GUARD_OURS_ANNOTATION: "marked"}), OTHER]
    new = reconcile(Cluster.of(nodes, [THERE]), config, LeaderState(), late)
    assert [held.node for held in new.plan.reserve] == ["n"]
    (renewed,) = written(config, new)
    assert renewed.kind is WriteKind.MARK
    nodes[0] = applied(renewed, nodes[0])
    details = decode_details(nodes[0].annotations)
    assert details is not None
    assert (details.since, details.deadline) == (NOW - 60, late + config.deadline_seconds)
    assert written(config, reconcile(Cluster.of(nodes, [THERE]), config, new.state, late)) == ()
    nodes[0] = marked_node(**HELD | {GUARD_OURS_ANNOTATION: "marked"})
    (failed,) = written(
        config, reconcile(Cluster.of(nodes, [THERE, MOVING]), config, LeaderState(), late)
    )
    assert failed.kind is WriteKind.RELEASE
    assert failed.annotations[BACKOFF_ANNOTATION]


@pytest.mark.parametrize(("pods", "guarded"), [((MOVING,), True), ((), False)])
def test_one_write_softens_the_mark_of_a_node_that_is_not_empty_any_more_and_guards_it(
    pods: tuple[Pod, ...], guarded: bool
) -> None:
    """The second of two would rest on a Node that the first has changed."""
    one = replace(marked_node(), labels={MARK_LABEL: Mark.HARD})
    nodes = [replace(one, taints=desired_taints(one, CONFIG.taint_key)), OTHER]
    (write,) = written(CONFIG, looked(CONFIG, nodes, THERE, *pods))
    assert write.kind is WriteKind.SOFTEN
    after = stored(write, nodes[0])
    assert (guard_of(after) is not None) is guarded
    assert not written(CONFIG, looked(CONFIG, [after, OTHER], THERE, *pods))


def test_a_node_with_a_pod_that_should_have_ended_long_ago_is_handed_over() -> None:
    """No autoscaler waits for it: nor is the node released for it at its deadline."""
    nodes = [marked_node(**HELD | {GUARD_OURS_ANNOTATION: "marked"}), OTHER]
    for now, kinds in ((NOW, []), (NOW + 1, [WriteKind.UNGUARD])):
        found = written(CONFIG, looked(CONFIG, nodes, THERE, ending(NOW), now=now))
        assert [one.kind for one in found] == kinds


@pytest.mark.parametrize("value", Mark)
def test_an_empty_node_that_no_autoscaler_takes_keeps_its_mark(value: Mark) -> None:
    """Its group is at its minimum, say: it has emptied, so there is nothing to back off from.

    It stays handed over: a guard would only make the autoscaler begin to count anew.
    """
    late = NOW + CONFIG.deadline_seconds
    config = replace(CONFIG, no_schedule_after_seconds=60 if value is Mark.HARD else None)
    one = replace(marked_node(), labels={MARK_LABEL: value})
    nodes = [replace(one, taints=desired_taints(one, config.taint_key)), OTHER]
    assert written(config, looked(config, nodes, THERE, now=late - 1)) == ()
    (renewed,) = written(config, looked(config, nodes, THERE, now=late))
    assert (renewed.kind, renewed.key) == (WriteKind.MARK, "n")
    assert renewed.note == "the node is empty, but still exists at its deadline"
    assert set(renewed.annotations) == {DETAILS_ANNOTATION}
    nodes = [stored(renewed, nodes[0]), OTHER]
    assert mark_of(nodes[0].labels) is value
    details = decode_details(nodes[0].annotations)
    assert details is not None
    assert (details.since, details.deadline) == (NOW - 60, late + config.deadline_seconds)
    assert written(config, looked(config, nodes, THERE, now=late)) == ()


@pytest.mark.law(seeds_max=3000)
def test_no_annotation_of_others_is_written_over_or_taken_away(seeds: range) -> None:
    """On mixed clusters, with every word that others may have said, under every scope."""
    told = 0
    for seed in seeds:
        chance = random.Random(seed)
        cluster = mixed.cluster(chance, social=False)
        nodes = [meddled(chance, one) for one in cluster.nodes]
        made = Cluster.of(nodes, cluster.pods)
        cluster = surrounded(made, cluster)
        scope = ScaleDownProtection(scope=chance.choice(list(Scope)))
        mode = chance.choice(list(Mode))
        config = replace(mixed_config.config(chance), scale_down_protection=scope, mode=mode)
        for write in written(config, reconcile(cluster, config, LeaderState(), NOW)):
            said = write.before.annotations.get(GUARD_OURS_ANNOTATION, "")
            for key in (GUARD_ANNOTATION, KARPENTER_KEEP_ANNOTATION):
                theirs = key in write.before.annotations and not said
                assert not (theirs and key in write.annotations), seed
                told += theirs
            assert mark_of(write.before.labels) is None or KEEP_ANNOTATION not in write.annotations
    assert told
