"""Scale-down protection of nodes, and when Ebb allows their scale-down."""

import random
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest

from core.config.budgets import LabelSelector, Pool, Reserve
from core.config.settings import Config, Mode, ScaleDownProtection, Scope
from core.engine.leader_state import LeaderState
from core.engine.mark_limits import BACKOFF
from core.engine.reconcile import ReconcileResult, reconcile
from core.marks.mark import (
    RESERVE_CHARACTERS_MAX,
    Mark,
    decode_details,
    mark_of,
    protection_of,
    reserved_for,
)
from core.marks.taints import desired_taints
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    KARPENTER_LABEL,
    KEEP_ANNOTATION,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    RESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.model.cluster import Cluster
from core.model.constraints import DisruptionFacts
from core.model.humanize import timestamp
from core.model.node import Node
from core.model.now import Now
from core.model.pod import DEVICES_FIELD, Pod
from core.writes.cleanup import cleanup_write
from core.writes.nodes import PROTECTIONS_PER_RECONCILIATION_MAX, LeaderObservations, decide
from core.writes.write import Write, WriteKind, applied
from tests.support import mixed, mixed_config
from tests.support.builders import UNLIMITED, marked, node, pod
from tests.support.mixed_autoscalers import surrounded
from tests.support.reference_reserve import held_back

pytestmark = pytest.mark.mutate

NOW = 1_767_225_600
ONE_NODE_LEFT = "without the node, the cluster would have 1 schedulable node that pods can use"
NO_RESERVE = Reserve(window_seconds=None)
BRIEF = Reserve(window_seconds=60, percentile=Fraction(1))
BUDGETS = replace(UNLIMITED, reserve=NO_RESERVE, headroom=0)
CONFIG = Config(mode=Mode.ENFORCE, budgets=BUDGETS, deadline_seconds=3600)
NO_MARKS = replace(BUDGETS, cluster=replace(BUDGETS.cluster, min_nodes=1000))
PROTECTED = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "unmarked"}
KARPENTERS = {
    DO_NOT_DISRUPT_ANNOTATION: "true",
    PROTECTION_ANNOTATION: "unmarked karpenter.sh/do-not-disrupt",
}
OURS_GONE = {SCALE_DOWN_DISABLED_ANNOTATION: None, PROTECTION_ANNOTATION: None}


def scoped(scope: Scope, **budgets: object) -> Config:
    """Return a configuration under which no node is marked."""
    made = replace(NO_MARKS, **budgets)  # type: ignore[arg-type]
    return replace(CONFIG, budgets=made, scale_down_protection=ScaleDownProtection(scope=scope))


def run_reconciliation(
    config: Config, nodes: list[Node], *pods: Pod, now: int = NOW
) -> ReconcileResult:
    return reconcile(Cluster.of(nodes, pods), config, LeaderState(first_reconciliation_at=0), now)


def writes_of(
    config: Config, found: ReconcileResult, watching: int = 10**6
) -> tuple[Write[Node], ...]:
    cluster, memory = found.snapshot.cluster, found.state
    watch = LeaderObservations(
        watching,
        found.no_schedule_blockers,
        protected=memory.last_protected.at,
        reserved=memory.last_reserved.at,
    )
    return decide(cluster, found.plan, config, now_seconds=found.at, owner="me", watch=watch)


def expecting(config: Config, nodes: list[Node], *pods: Pod) -> LeaderState:
    """Return the state of a leader that expects a pod for which only an empty node has room.

    It does so for about 20 more seconds.
    """
    first = reconcile(Cluster.of(nodes, pods), config, LeaderState(), NOW - 3680)
    come = pod("come", None, 3950, 100)
    return reconcile(Cluster.of(nodes, [*pods, come]), config, first.state, NOW - 3580).state


def stored(write: Write[Node], one: Node) -> Node:
    """Return the node as it is stored after the write and the webhook."""
    made = applied(write, one)
    return replace(made, taints=desired_taints(made, TAINT_KEY))


def settled(config: Config, nodes: list[Node], *pods: Pod, now: int = NOW) -> list[Node]:
    """Apply writes as webhook and writer do, until none is left."""
    for _ in range(5):
        writes = writes_of(config, run_reconciliation(config, nodes, *pods, now=now))
        if not writes:
            return nodes
        for write in writes:
            nodes = [stored(write, one) if one.name == write.key else one for one in nodes]
    raise AssertionError


def ending(overdue: int) -> Pod:
    """Return a terminating pod that should have ended at *overdue*."""
    return replace(
        pod("p", "n", 1, 1),
        terminating=True,
        disruption_facts=DisruptionFacts(overdue_seconds=overdue),
    )


EMPTY_AND_ALL = {Scope.EMPTY, Scope.ALL}
NOT_MARKED = {Scope.RESERVED, *EMPTY_AND_ALL}
ONLY_ALL = {Scope.ALL}
NO_SCOPE: set[Scope] = set()
IN_POOL = (
    Pool(
        name="p", selector=LabelSelector(match_labels=(("pool", "p"),)), budget=UNLIMITED.cluster
    ),
)
ANY = pod("any", "full", 100, 100)


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize(
    ("one", "pods", "budgets", "protecting_scopes"),
    [
        (node("n"), (), {}, EMPTY_AND_ALL),
        (node("n"), (pod("p", "n", 100, 100),), {}, ONLY_ALL),
        (node("n"), (replace(pod("p", "n", 100, 100), daemon=True),), {}, EMPTY_AND_ALL),
        (node("n"), (replace(pod("p", "n", 1, 1), priority=-11),), {}, NO_SCOPE),
        (node("n"), (replace(pod("p", "n", 1, 1), terminating=True),), {}, ONLY_ALL),
        (node("n"), (ending(NOW),), {}, ONLY_ALL),
        (node("n"), (ending(NOW - 1),), {}, NO_SCOPE),
        (node("n"), (replace(pod("p", "n", 1, 1), unreadable="x"),), {}, ONLY_ALL),
        (node("n", annotations={KEEP_ANNOTATION: "true"}), (), {}, NO_SCOPE),
        (node("n", annotations={SCALE_DOWN_DISABLED_ANNOTATION: "true"}), (), {}, NO_SCOPE),
        (node("n", annotations={SCALE_DOWN_DISABLED_ANNOTATION: "false"}), (ANY,), {}, NO_SCOPE),
        (node("n", annotations={DO_NOT_DISRUPT_ANNOTATION: "true"}), (), {}, NO_SCOPE),
        (node("n", annotations=KARPENTERS), (), {}, EMPTY_AND_ALL),
        (node("n", annotations=PROTECTED), (), {}, EMPTY_AND_ALL),
        (replace(node("n"), unschedulable=True), (), {}, NO_SCOPE),
        (replace(node("n"), unschedulable=True), (pod("p", "n", 1, 1),), {}, NO_SCOPE),
        (replace(node("n"), ready=False), (), {}, NO_SCOPE),
        (replace(node("n"), virtual=True), (), {}, NO_SCOPE),
        (replace(node("n"), unreadable="x"), (), {}, NO_SCOPE),
        (replace(node("n"), deleting=True), (), {}, NO_SCOPE),
        (node("n", labels={"node-role.kubernetes.io/control-plane": ""}), (), {}, NO_SCOPE),
        (node("n"), (), {"pools": IN_POOL}, NO_SCOPE),
        (node("n", labels={"pool": "p"}), (), {"pools": IN_POOL}, EMPTY_AND_ALL),
        (node("n", annotations={BACKOFF_ANNOTATION: f"1 {NOW + 1}"}), (), {}, NO_SCOPE),
        (node("n", annotations={BACKOFF_ANNOTATION: f"1 {NOW}"}), (), {}, EMPTY_AND_ALL),
        (node("n", annotations={BACKOFF_ANNOTATION: f"1 {NOW + 1}"}), (pod("p", "n", 1, 1),), {},
         ONLY_ALL),
        (node("n"), (), {"reserve": Reserve()}, EMPTY_AND_ALL),
        (node("n", annotations=PROTECTED | {BACKOFF_ANNOTATION: f"1 {NOW + 1}"}), (),
         {"reserve": Reserve()}, NOT_MARKED),
    ],
)  # fmt: skip
def test_node_is_protected_depending_on_scope(
    one: Node,
    pods: tuple[Pod, ...],
    budgets: dict[str, object],
    protecting_scopes: set[Scope],
    scope: Scope,
) -> None:
    """The last row: a new leader reserves the nodes that are protected."""
    config = scoped(scope, **budgets)
    cluster = Cluster.of([one, node("full")], [ANY, *pods])
    found = reconcile(cluster, config, LeaderState(), NOW)
    assert ("n" in found.plan.protected) is (scope in protecting_scopes)
    kept = {protected.node for protected in found.plan.reserve}
    assert found.plan.protected == held_back(cluster, config, NOW, kept)


@pytest.mark.parametrize(
    ("pods", "reserve", "scope", "protected"),
    [
        ((), NO_RESERVE, Scope.EMPTY, False),
        ((), NO_RESERVE, Scope.ALL, False),
        ((pod("p", "n", 1, 1),), NO_RESERVE, Scope.ALL, True),
        ((), Reserve(), Scope.EMPTY, True),
    ],
)
def test_empty_node_is_not_protected_when_its_mark_failed(
    pods: tuple[Pod, ...], reserve: Reserve, scope: Scope, protected: bool
) -> None:
    """Otherwise the protection would never end, as the mark cannot be written."""
    cluster = Cluster.of([node("n", annotations=PROTECTED), node("full")], [ANY, *pods])
    config, refused = scoped(scope, reserve=reserve), frozenset({"n"})
    for now, backing_off in ((NOW, True), (NOW + 99, True), (NOW + 100, False)):
        memory = LeaderState().with_failed_writes(
            refused, Now(NOW), unneeded_time_seconds=100, max_seconds=100
        )
        found = reconcile(cluster, config, memory, now)
        assert ("n" in found.plan.protected) is (protected or not backing_off)


@pytest.mark.law(seeds_max=3000)
def test_protected_nodes_agree_with_plain_rules(seeds: range) -> None:
    seen = dict.fromkeys(("empty", "occupied", "backing off"), 0)
    for seed in seeds:
        chance = random.Random(seed)
        cluster = mixed.cluster(chance, social=False)
        nodes = [randomly_annotated(chance, one) for one in cluster.nodes]
        gone = [p for p in cluster.pods if p.stays_with_node or chance.random() < 0.4]
        cluster = surrounded(Cluster.of(nodes, gone), cluster)
        config = mixed_config.config(chance)
        reserve = Reserve(window_seconds=chance.choice((None, 60)))
        budgets = replace(config.budgets, reserve=reserve)
        scope = ScaleDownProtection(scope=chance.choice(list(Scope)))
        config = replace(config, budgets=budgets, scale_down_protection=scope)
        found = reconcile(cluster, config, LeaderState(), NOW)
        kept = {protected.node for protected in found.plan.reserve}
        plain = held_back(cluster, config, NOW, kept)
        assert found.plan.protected == plain, seed
        for name in plain:
            seen["occupied" if name in found.snapshot.non_empty_nodes else "empty"] += 1
        seen["backing off"] += bool(found.rate_limits.of(BACKOFF).keys() - plain)
    assert min(seen.values()) > len(seeds) // 50, seen


DAY = 86_400
ANNOTATIONS: tuple[Mapping[str, str], ...] = (
    *({},) * 10,
    PROTECTED,
    KARPENTERS,
    {SCALE_DOWN_DISABLED_ANNOTATION: "true"},
    {DO_NOT_DISRUPT_ANNOTATION: "false"},
    {
        SCALE_DOWN_DISABLED_ANNOTATION: "true",
        PROTECTION_ANNOTATION: "marked karpenter.sh/do-not-disrupt",
    },
    {BACKOFF_ANNOTATION: f"2 {NOW + 60}"},
    {BACKOFF_ANNOTATION: f"2 {NOW - 60}"},
)


def randomly_annotated(chance: random.Random, one: Node) -> Node:
    labels = {KARPENTER_LABEL: "x"} if chance.random() < 0.3 else {}
    annotations = {**one.annotations, **chance.choice(ANNOTATIONS)}
    return replace(one, labels={**one.labels, **labels}, annotations=annotations)


# Writes


def marked_node(**annotations: str) -> Node:
    """Return a node that was marked a minute ago."""
    return marked(node("n", annotations=annotations), since=NOW - 60, deadline=NOW + 3600)


OTHER = node("other")
MOVING = pod("p", "n", 100, 100)
THERE = pod("q", "other", 100, 100)


@pytest.mark.parametrize(
    ("one", "pods", "config", "kind", "annotations"),
    [
        (node("n"), (THERE,), scoped(Scope.EMPTY), WriteKind.PROTECT_UNMARKED, PROTECTED),
        (node("n"), (MOVING, THERE), scoped(Scope.EMPTY), None, {}),
        (node("n"), (MOVING, THERE), scoped(Scope.ALL), WriteKind.PROTECT_UNMARKED, PROTECTED),
        (node("n", annotations=PROTECTED), (THERE,), scoped(Scope.EMPTY), None, {}),
        (node("n", annotations=PROTECTED), (MOVING, THERE), scoped(Scope.EMPTY), WriteKind.PROTECT,
         {PROTECTION_ANNOTATION: str(NOW + 900)}),
        (node("n", annotations=PROTECTED), (MOVING, THERE), scoped(Scope.ALL), None, {}),
        (node("n", annotations=PROTECTED), (THERE,), scoped(Scope.MARKED), WriteKind.PROTECT,
         {PROTECTION_ANNOTATION: str(NOW + 900)}),
        (node("n", annotations=PROTECTED), (THERE,),
         replace(scoped(Scope.EMPTY), mode=Mode.OBSERVE), WriteKind.PROTECT,
         {PROTECTION_ANNOTATION: str(NOW + 900)}),
        (node("n", annotations=PROTECTED | {PROTECTION_ANNOTATION: str(NOW + 450)}), (THERE,),
         scoped(Scope.EMPTY), WriteKind.PROTECT_UNMARKED, {PROTECTION_ANNOTATION: "unmarked"}),
        (node("n", annotations=PROTECTED | {PROTECTION_ANNOTATION: str(NOW + 451)}), (THERE,),
         scoped(Scope.EMPTY), None, {}),
        (node("n", annotations=PROTECTED | {PROTECTION_ANNOTATION: str(NOW + 900)}), (THERE,),
         scoped(Scope.EMPTY), None, {}),
        (node("n", annotations=PROTECTED | {PROTECTION_ANNOTATION: str(NOW + 901)}), (THERE,),
         scoped(Scope.EMPTY), WriteKind.PROTECT_UNMARKED, {PROTECTION_ANNOTATION: "unmarked"}),
        (node("n", annotations=PROTECTED | {PROTECTION_ANNOTATION: "marked"}), (THERE,),
         scoped(Scope.EMPTY), WriteKind.PROTECT_UNMARKED, {PROTECTION_ANNOTATION: "unmarked"}),
        (node("n", annotations={PROTECTION_ANNOTATION: "unmarked"}), (THERE,),
         scoped(Scope.EMPTY), WriteKind.PROTECT_UNMARKED, PROTECTED),
        (node("n", annotations={PROTECTION_ANNOTATION: "unmarked"}), (THERE,),
         scoped(Scope.MARKED), WriteKind.REMOVE_PROTECTION, {PROTECTION_ANNOTATION: None}),
        (node("n", annotations=PROTECTED), (THERE,), CONFIG, WriteKind.MARK,
         {PROTECTION_ANNOTATION: "marked"}),
    ],
)  # fmt: skip
def test_unmarked_node_gets_protection_write(
    one: Node,
    pods: tuple[Pod, ...],
    config: Config,
    kind: WriteKind | None,
    annotations: Mapping[str, str | None],
) -> None:
    writes = writes_of(config, run_reconciliation(config, [one, OTHER], *pods))
    writes = tuple(write for write in writes if write.key == "n")
    assert [write.kind for write in writes] == ([kind] if kind else [])
    assert not writes or annotations.items() <= writes[0].annotations.items()


@pytest.mark.parametrize(
    ("scope", "pods", "note"),
    [
        (
            Scope.EMPTY,
            (THERE,),
            f"min-nodes: {ONE_NODE_LEFT}; `minNodes` is 1000",
        ),
        (
            Scope.ALL,
            (MOVING, THERE),
            "the node needs protection until Ebb allows its scale-down",
        ),
    ],
)
def test_protection_note_gives_blocker_or_purpose(
    scope: Scope, pods: tuple[Pod, ...], note: str
) -> None:
    writes = writes_of(
        scoped(scope),
        run_reconciliation(scoped(scope), [node("n"), OTHER], *pods),
    )
    assert [write.note for write in writes if write.key == "n"] == [note]


@pytest.mark.parametrize(("drained", "kinds"), [("", []), ("n", [WriteKind.SET_NO_SCHEDULE])])
def test_node_with_evictions_is_no_schedule_at_once(drained: str, kinds: list[WriteKind]) -> None:
    one = marked_node(**PROTECTED | {PROTECTION_ANNOTATION: "marked"})
    found = run_reconciliation(CONFIG, [one, OTHER], MOVING, THERE, now=NOW - 60)
    watch = LeaderObservations(10**6, found.no_schedule_blockers, no_schedule=frozenset({drained}))
    writes = decide(
        found.snapshot.cluster, found.plan, CONFIG, now_seconds=found.at, owner="me", watch=watch
    )
    assert [write.kind for write in writes] == kinds


def on_karpenter(one: Node) -> Node:
    return replace(one, labels={**one.labels, KARPENTER_LABEL: "default"})


BY_OTHERS = {DO_NOT_DISRUPT_ANNOTATION: "true"}
OLD = {SCALE_DOWN_DISABLED_ANNOTATION: None, DO_NOT_DISRUPT_ANNOTATION: "true"}


@pytest.mark.parametrize(
    ("one", "pods", "config", "kind", "annotations"),
    [
        (node("n"), (THERE,), scoped(Scope.EMPTY), WriteKind.PROTECT_UNMARKED, KARPENTERS),
        (node("n", annotations=KARPENTERS), (THERE,), scoped(Scope.EMPTY), None, {}),
        (node("n", annotations=PROTECTED), (THERE,), scoped(Scope.EMPTY),
         WriteKind.PROTECT_UNMARKED,
         OLD | KARPENTERS),
        (node("n", annotations=PROTECTED | {PROTECTION_ANNOTATION: str(NOW + 5)}), (MOVING, THERE),
         scoped(Scope.EMPTY), WriteKind.PROTECT,
         OLD | {PROTECTION_ANNOTATION: f"{NOW + 900} {DO_NOT_DISRUPT_ANNOTATION}"}),
        (node("n"), (THERE,), CONFIG, WriteKind.MARK,
         {DO_NOT_DISRUPT_ANNOTATION: "true",
          PROTECTION_ANNOTATION: f"marked {DO_NOT_DISRUPT_ANNOTATION}"}),
        (marked_node(**PROTECTED | {PROTECTION_ANNOTATION: "marked"}), (MOVING, THERE), CONFIG,
         WriteKind.PROTECT, OLD),
        (marked_node(**KARPENTERS), (THERE,), CONFIG, WriteKind.REMOVE_PROTECTION,
         {DO_NOT_DISRUPT_ANNOTATION: None, PROTECTION_ANNOTATION: None}),
        (marked_node(**PROTECTED), (THERE,), CONFIG, WriteKind.REMOVE_PROTECTION, OURS_GONE),
        (marked_node(), (MOVING, THERE), CONFIG, WriteKind.PROTECT,
         {DO_NOT_DISRUPT_ANNOTATION: "true"}),
        (marked_node(**BY_OTHERS), (MOVING, THERE), CONFIG, WriteKind.UNMARK,
         {DETAILS_ANNOTATION: None}),
        (node("n", annotations=BY_OTHERS), (THERE,), scoped(Scope.EMPTY), None, {}),
        (marked_node(**BY_OTHERS | PROTECTED), (MOVING, THERE), CONFIG, WriteKind.UNMARK,
         {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: str(NOW + 900)}),
        (node("n", annotations=BY_OTHERS | PROTECTED), (MOVING, THERE), scoped(Scope.EMPTY),
         WriteKind.PROTECT,
         {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: str(NOW + 900)}),
    ],
)  # fmt: skip
def test_karpenter_annotation_protects_karpenter_nodes(
    one: Node,
    pods: tuple[Pod, ...],
    config: Config,
    kind: WriteKind | None,
    annotations: Mapping[str, str | None],
) -> None:
    """Older protection moves to Karpenter's annotation; foreign annotations are not changed."""
    one = on_karpenter(one)
    writes = writes_of(config, run_reconciliation(config, [one, OTHER], *pods))
    writes = tuple(write for write in writes if write.key == "n")
    assert [write.kind for write in writes] == ([kind] if kind else [])
    for write in writes:
        assert annotations.items() <= write.annotations.items()
        said = one.annotations.get(PROTECTION_ANNOTATION, "")
        others = BY_OTHERS.items() <= one.annotations.items()
        assert not (others and DO_NOT_DISRUPT_ANNOTATION not in said) or (
            DO_NOT_DISRUPT_ANNOTATION not in write.annotations
        )


def test_scale_down_is_allowed_when_do_not_disrupt_of_daemon_pod_expires() -> None:
    """Earlier reconciliations are skipped; the first one after it allows the scale-down."""
    facts = DisruptionFacts(notes=((DO_NOT_DISRUPT_ANNOTATION, "90s"),), started_seconds=NOW)
    keeps = replace(
        pod("d", "n", 1, 1), daemon=True, owner_kind="DaemonSet", disruption_facts=facts
    )
    there = Cluster.of([on_karpenter(marked_node(**KARPENTERS)), OTHER], [keeps, THERE])
    last = run_reconciliation(CONFIG, list(there.nodes), *there.pods)
    for now, skipped in ((NOW, True), (NOW + 89, True), (NOW + 90, False)):
        last = reconcile(there, CONFIG, last.state, now, last=last)
        assert last.skipped is skipped
        kinds = [write.kind for write in writes_of(CONFIG, last) if write.key == "n"]
        assert (WriteKind.REMOVE_PROTECTION in kinds) is (now == NOW + 90)


@pytest.mark.parametrize(("kind", "empty"), [("StatefulSet", False), ("ReplicaSet", True)])
def test_stuck_pod_keeps_protection_when_karpenter_waits_for_it(kind: str, *, empty: bool) -> None:
    """The node is unmarked at the deadline, because the node is not empty."""
    one = on_karpenter(marked_node(**KARPENTERS))
    stuck = replace(ending(NOW - DAY), owner_kind=kind)
    for now, kinds in (
        (NOW, [WriteKind.REMOVE_PROTECTION] if empty else []),
        (NOW + 3600, [WriteKind.MARK] if empty else [WriteKind.UNMARK]),
    ):
        writes = writes_of(CONFIG, run_reconciliation(CONFIG, [one, OTHER], stuck, THERE, now=now))
        assert [write.kind for write in writes if write.key == "n"] == kinds


@pytest.mark.parametrize(
    ("labels", "scope"),
    [({}, Scope.EMPTY), ({}, Scope.ALL), ({KARPENTER_LABEL: "default"}, Scope.EMPTY)],
)
def test_protection_of_unmarked_node_is_removed_like_marks(
    labels: dict[str, str], scope: Scope
) -> None:
    """In mode observe after some time, and at once by `ebb cleanup --all`."""
    config = scoped(scope)
    initial = [node("n", labels=labels), OTHER]
    first = settled(config, initial, MOVING, THERE)
    nodes = settled(config, first, THERE)
    assert nodes[0].annotations == (KARPENTERS if labels else PROTECTED)
    removal = cleanup_write(nodes[0], TAINT_KEY)
    assert removal is not None
    assert applied(removal, nodes[0]).annotations == {}
    config = replace(config, mode=Mode.OBSERVE)
    watched = settled(config, nodes, THERE)
    ended = settled(
        config, watched, THERE, now=NOW + config.scale_down_protection.after_unmark_seconds
    )
    assert ended == initial


def after(
    config: Config, empty: tuple[Node, ...], *pods: Pod, seconds: int, then: Config | None = None
) -> list[tuple[object, Mapping[str, str | None]]]:
    """Return the writes of n by a leader that saw it empty, and then *pods* for *seconds*."""
    last = reconcile(Cluster.of(empty, [THERE]), config, LeaderState(), NOW)
    filled = Cluster.of(empty, [THERE, *pods])
    for now in (NOW + 1, NOW + seconds):
        last = reconcile(filled, then or config, last.state, now, last=last)
    found = (one for one in writes_of(then or config, last) if one.key == "n")
    return [(one.kind, one.annotations) for one in found]


@pytest.mark.parametrize("labels", [{}, {KARPENTER_LABEL: "default"}])
@pytest.mark.parametrize("reservation", [{}, {RESERVE_ANNOTATION: "for p"}])
def test_protection_is_retained_temporarily_when_node_fills(
    labels: dict[str, str], reservation: dict[str, str]
) -> None:
    """Without a write, so a node that is empty again by then was never written."""
    config = scoped(Scope.EMPTY, reserve=Reserve(window_seconds=DAY))
    guard = KARPENTERS if labels else PROTECTED
    nodes = (node("n", labels=labels, annotations={**guard, **reservation}), OTHER)
    for seconds in (1, 899):
        assert after(config, nodes, MOVING, seconds=seconds) == []
    removed = dict.fromkeys((*guard, *reservation))
    assert after(config, nodes, MOVING, seconds=900) == [(WriteKind.REMOVE_PROTECTION, removed)]
    ends = {
        PROTECTION_ANNOTATION: guard[PROTECTION_ANNOTATION].replace("unmarked", str(NOW + 900))
    }
    (write,) = writes_of(config, run_reconciliation(config, list(nodes), MOVING, THERE))
    assert write.kind is WriteKind.PROTECT, "a leader that did not see it empty writes the end"
    assert ends.items() <= write.annotations.items()
    assert not reservation or write.annotations[RESERVE_ANNOTATION] is None


@pytest.mark.parametrize(
    ("one", "pods", "then"),
    [
        (
            node("n", annotations=PROTECTED),
            (MOVING,),
            replace(scoped(Scope.EMPTY), mode=Mode.OBSERVE),
        ),
        (node("n", annotations=PROTECTED), (MOVING,), scoped(Scope.MARKED)),
        (node("n", annotations=PROTECTED), (), scoped(Scope.EMPTY, pools=IN_POOL)),
        (on_karpenter(node("n", annotations=PROTECTED)), (MOVING,), scoped(Scope.EMPTY)),
    ],
)
def test_end_of_protection_is_written_at_once_for_other_causes(
    one: Node, pods: tuple[Pod, ...], then: Config
) -> None:
    ((kind, annotations),) = after(scoped(Scope.EMPTY), (one, OTHER), *pods, seconds=2, then=then)
    until = (annotations[PROTECTION_ANNOTATION] or "").split()[0]
    assert (kind, until) == (WriteKind.PROTECT, str(NOW + 902))


def test_reserve_annotation_is_removed_when_protected_node_remains_occupied() -> None:
    config = scoped(Scope.ALL, reserve=Reserve(window_seconds=DAY))
    nodes = (node("n", annotations={**PROTECTED, RESERVE_ANNOTATION: "for p"}), OTHER)
    assert after(config, nodes, MOVING, seconds=899) == []
    expected = [(WriteKind.UPDATE_RESERVE, {RESERVE_ANNOTATION: None})]
    assert after(config, nodes, MOVING, seconds=900) == expected
    observe = replace(config, mode=Mode.OBSERVE)
    ((_, annotations),) = after(config, nodes, MOVING, seconds=2, then=observe)
    assert annotations[RESERVE_ANNOTATION] is None
    ends = after(config, nodes, MOVING, seconds=899, then=scoped(Scope.EMPTY))
    assert ends == [], "it was protected until the scope changed"


RELEASED = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: str(NOW + 800)}
KARPENTER_RELEASED = {
    DO_NOT_DISRUPT_ANNOTATION: "true",
    PROTECTION_ANNOTATION: f"{NOW + 800} {DO_NOT_DISRUPT_ANNOTATION}",
}


def claiming(one: Pod) -> Pod:
    """Return a pod that uses devices by resource claims."""
    return replace(one, unsupported=(DEVICES_FIELD,))


def test_reconciliation_protects_bounded_number_of_nodes_empty_first() -> None:
    """Later reconciliations protect the others."""
    many = PROTECTIONS_PER_RECONCILIATION_MAX + 1
    nodes = [node(f"n{number:03}") for number in range(many + 2)]
    pods = [pod("p0", "n000", 100, 100), pod("p1", "n001", 100, 100)]
    config = scoped(Scope.ALL)
    writes = writes_of(config, run_reconciliation(config, nodes, *pods))
    assert [write.key for write in writes] == [f"n{n:03}" for n in range(2, many + 1)]
    after = settled(config, nodes, *pods)
    assert all(PROTECTION_ANNOTATION in one.annotations for one in after)


def test_empty_node_is_marked_at_once_and_its_scale_down_allowed_unless_reserved() -> None:
    """The first reconciliation marks the node, the second one allows its scale-down.

    A new leader does not protect it again.
    """
    config = replace(CONFIG, unneeded_time_seconds=600)
    nodes = [node("n"), OTHER]
    (write,) = writes_of(config, run_reconciliation(config, nodes, THERE))
    assert (write.kind, write.key) == (WriteKind.MARK, "n")
    nodes = settled(config, nodes, THERE)
    assert nodes[0].annotations.keys() == {DETAILS_ANNOTATION}
    kept = replace(config, budgets=replace(config.budgets, reserve=BRIEF))
    new = reconcile(Cluster.of(nodes, [THERE]), kept, LeaderState(), NOW)
    assert writes_of(kept, new) == ()
    found = reconcile(Cluster.of(nodes, [THERE]), kept, expecting(kept, nodes, THERE), NOW)
    assert [write.kind for write in writes_of(kept, found)] == [WriteKind.PROTECT]
    later = reconcile(Cluster.of(nodes, [THERE]), kept, found.state, NOW + 120)
    assert writes_of(kept, later) == ()


@pytest.mark.parametrize("policy", ["ClusterThreshold", "NodeUtilization"])
def test_node_with_pods_is_not_removed_before_unneeded_time(policy: str) -> None:
    config = replace(CONFIG, unneeded_time_seconds=600, policy=policy)
    first = run_reconciliation(config, [node("n"), node("m"), OTHER], MOVING, THERE)
    assert [removal.node for removal in first.plan.removals] == ["m"]


def test_reserve_annotation_is_set_while_node_is_reserved() -> None:
    """It is not rewritten for every pod; the next leader adopts it."""
    config = scoped(Scope.EMPTY, reserve=BRIEF)
    initial = [node("n"), OTHER]
    new = reconcile(Cluster.of(initial, [THERE]), config, expecting(config, initial, THERE), NOW)
    (write,) = writes_of(config, new)
    assert write.kind is WriteKind.PROTECT_UNMARKED
    reason = "the node is reserved for 1 pod: 1 of 3950m + 95.4Mi"
    assert write.annotations == {**PROTECTED, RESERVE_ANNOTATION: reason}
    nodes = [applied(write, initial[0]), OTHER]
    assert reserved_for(nodes[0]) == reason
    other = reconcile(Cluster.of(nodes, [THERE]), config, new.state, NOW + 1)
    assert other.plan.reserve[0].why.message == reason
    assert writes_of(config, other) == ()
    over = reconcile(Cluster.of(nodes, [THERE]), config, new.state, NOW + 60)
    assert not over.plan.reserve
    assert writes_of(config, over) == ()
    guard = config.scale_down_protection.after_unmark_seconds
    almost = reconcile(Cluster.of(nodes, [THERE]), config, over.state, NOW + guard - 1)
    assert writes_of(config, almost) == ()
    late = reconcile(Cluster.of(nodes, [THERE]), config, almost.state, NOW + guard)
    (update,) = writes_of(config, late)
    assert (update.kind, update.annotations) == (
        WriteKind.UPDATE_RESERVE,
        {RESERVE_ANNOTATION: None},
    )
    nodes[0] = applied(update, nodes[0])
    assert nodes[0].annotations == PROTECTED
    again = reconcile(Cluster.of(nodes, [THERE]), config, LeaderState(), NOW)
    (update,) = writes_of(config, again)
    reason = f"a new leader observes pod arrivals until {timestamp(NOW + 60)}"
    assert (update.kind, update.annotations) == (
        WriteKind.UPDATE_RESERVE,
        {RESERVE_ANNOTATION: reason},
    )
    assert update.note == f"reserve: {reason}"


@pytest.mark.parametrize(
    ("one", "pods", "kind"),
    [
        (marked_node(), (THERE,), WriteKind.PROTECT),
        (marked_node(**PROTECTED), (THERE,), WriteKind.UPDATE_RESERVE),
        (node("n", annotations=PROTECTED), (THERE,), WriteKind.MARK),
        (node("n"), (THERE,), WriteKind.MARK),
    ],
)
def test_reserve_annotation_is_part_of_another_write_if_there_is_one(
    one: Node, pods: tuple[Pod, ...], kind: WriteKind
) -> None:
    """The unmarking removes it too, or a later write if a pod has arrived."""
    config = replace(CONFIG, budgets=replace(CONFIG.budgets, reserve=BRIEF))
    state = expecting(config, [one, OTHER], *pods)
    new = reconcile(Cluster.of([one, OTHER], pods), config, state, NOW)
    (write,) = writes_of(config, new)
    assert write.kind is kind
    assert write.annotations[RESERVE_ANNOTATION]
    after = stored(write, one)
    over = reconcile(Cluster.of([after, OTHER], pods), config, new.state, NOW + 120)
    (write,) = writes_of(config, over)
    assert (write.kind, write.annotations[RESERVE_ANNOTATION]) == (
        WriteKind.REMOVE_PROTECTION,
        None,
    )
    filled = Cluster.of([after, OTHER], [*pods, MOVING])
    assert writes_of(config, reconcile(filled, config, new.state, NOW + 899)) == ()
    there = reconcile(filled, config, new.state, NOW + 900)
    assert {w.annotations[RESERVE_ANNOTATION] for w in writes_of(config, there)} == {None}


def test_reserve_annotation_begins_and_ends_with_mark_when_scope_is_marked() -> None:
    """Unmarked nodes are not protected here. Repairs of taints are written beside it."""
    config = replace(
        CONFIG,
        budgets=replace(CONFIG.budgets, reserve=BRIEF),
        scale_down_protection=ScaleDownProtection(scope=Scope.MARKED),
    )
    state = expecting(config, [node("n"), OTHER], THERE)
    new = reconcile(Cluster.of([node("n"), OTHER], [THERE]), config, state, NOW)
    (write,) = writes_of(config, new)
    assert (write.kind, RESERVE_ANNOTATION in write.annotations) == (WriteKind.MARK, True)
    stays = replace(new, plan=replace(new.plan, removals=()))
    assert writes_of(config, stays) == ()
    of_mark = stored(write, node("n"))
    again = reconcile(Cluster.of([of_mark, OTHER], [THERE]), config, new.state, NOW)
    stays = replace(again, plan=replace(again.plan, removals=()))
    (write,) = writes_of(config, stays)
    assert (write.kind, write.annotations[RESERVE_ANNOTATION]) == (WriteKind.UNMARK, None)
    bare = replace(
        of_mark,
        taints=(),
        annotations={DETAILS_ANNOTATION: of_mark.annotations[DETAILS_ANNOTATION]},
    )
    mends = writes_of(
        config, reconcile(Cluster.of([bare, OTHER], [THERE]), config, new.state, NOW)
    )
    assert {mend.kind for mend in mends} == {WriteKind.REPAIR_TAINTS, WriteKind.PROTECT}


def test_reserve_annotation_writes_are_ordered_by_name() -> None:
    config = scoped(Scope.EMPTY)
    said = {RESERVE_ANNOTATION: "x"}
    nodes = [node(name, annotations=PROTECTED | said) for name in ("b", "a")]
    writes = writes_of(config, run_reconciliation(config, [*nodes, OTHER], THERE))
    assert [(write.kind, write.key) for write in writes] == [
        (WriteKind.UPDATE_RESERVE, "a"),
        (WriteKind.UPDATE_RESERVE, "b"),
    ]


@pytest.mark.parametrize("value", ["x", "x" * RESERVE_CHARACTERS_MAX])
def test_reserve_annotation_is_read_only_with_protection(value: str) -> None:
    assert reserved_for(node("n", annotations={**PROTECTED, RESERVE_ANNOTATION: value})) == value
    assert reserved_for(node("n", annotations={RESERVE_ANNOTATION: value})) is None
    assert reserved_for(node("n", annotations=PROTECTED)) is None


@pytest.mark.parametrize("value", ["", "x\n", "x" * (RESERVE_CHARACTERS_MAX + 1)])
def test_invalid_reserve_annotation_is_ignored_and_removed(value: str) -> None:
    assert reserved_for(node("n", annotations={**PROTECTED, RESERVE_ANNOTATION: value})) is None
    assert reserved_for(node("n", annotations={RESERVE_ANNOTATION: "x"})) is None
    (write,) = writes_of(
        scoped(Scope.EMPTY),
        run_reconciliation(
            scoped(Scope.EMPTY),
            [node("n", annotations={**PROTECTED, RESERVE_ANNOTATION: value}), OTHER],
            THERE,
        ),
    )
    assert write.annotations == {RESERVE_ANNOTATION: None}


def test_reserved_node_gets_new_deadline_instead_of_backoff() -> None:
    """A node with pods is unmarked at the deadline."""
    late = NOW + CONFIG.deadline_seconds
    config = replace(CONFIG, budgets=replace(CONFIG.budgets, reserve=Reserve(window_seconds=60)))
    nodes = [marked_node(**PROTECTED | {PROTECTION_ANNOTATION: "marked"}), OTHER]
    new = reconcile(Cluster.of(nodes, [THERE]), config, LeaderState(), late)
    assert [protected.node for protected in new.plan.reserve] == ["n"]
    (renewed,) = writes_of(config, new)
    assert renewed.kind is WriteKind.MARK
    nodes[0] = applied(renewed, nodes[0])
    details = decode_details(nodes[0].annotations)
    assert details is not None
    assert (details.since, details.deadline) == (NOW - 60, late + config.deadline_seconds)
    assert writes_of(config, reconcile(Cluster.of(nodes, [THERE]), config, new.state, late)) == ()
    nodes[0] = marked_node(**PROTECTED | {PROTECTION_ANNOTATION: "marked"})
    (failed,) = writes_of(
        config, reconcile(Cluster.of(nodes, [THERE, MOVING]), config, LeaderState(), late)
    )
    assert failed.kind is WriteKind.UNMARK
    assert failed.annotations[BACKOFF_ANNOTATION]


@pytest.mark.parametrize(("pods", "protected"), [((MOVING,), True), ((), False)])
def test_one_write_sets_prefer_no_schedule_and_protects_node_when_not_empty(
    pods: tuple[Pod, ...], protected: bool
) -> None:
    """A second write would conflict with the Node that the first one changed."""
    one = replace(marked_node(), labels={MARK_LABEL: Mark.NO_SCHEDULE})
    nodes = [replace(one, taints=desired_taints(one, TAINT_KEY)), OTHER]
    (write,) = writes_of(CONFIG, run_reconciliation(CONFIG, nodes, THERE, *pods))
    assert write.kind is WriteKind.SET_PREFER_NO_SCHEDULE
    after = stored(write, nodes[0])
    assert (protection_of(after) is not None) is protected
    assert not writes_of(CONFIG, run_reconciliation(CONFIG, [after, OTHER], THERE, *pods))


def test_scale_down_is_allowed_when_pod_is_overdue() -> None:
    """Autoscalers do not wait for an overdue pod, so it does not keep the node protected."""
    nodes = [marked_node(**PROTECTED | {PROTECTION_ANNOTATION: "marked"}), OTHER]
    for now, kinds in ((NOW, []), (NOW + 1, [WriteKind.REMOVE_PROTECTION])):
        found = writes_of(CONFIG, run_reconciliation(CONFIG, nodes, THERE, ending(NOW), now=now))
        assert [one.kind for one in found] == kinds


@pytest.mark.parametrize("value", Mark)
def test_empty_node_keeps_mark_when_no_autoscaler_removes_it(value: Mark) -> None:
    """For example its node group is at its minimum. Evictions succeeded, so there is no backoff.

    Its scale-down remains allowed: protection would only restart the timer of the autoscaler.
    """
    late = NOW + CONFIG.deadline_seconds
    config = replace(CONFIG, no_schedule_after_seconds=60 if value is Mark.NO_SCHEDULE else None)
    one = replace(marked_node(), labels={MARK_LABEL: value})
    nodes = [replace(one, taints=desired_taints(one, TAINT_KEY)), OTHER]
    assert writes_of(config, run_reconciliation(config, nodes, THERE, now=late - 1)) == ()
    (renewed,) = writes_of(config, run_reconciliation(config, nodes, THERE, now=late))
    assert (renewed.kind, renewed.key) == (WriteKind.MARK, "n")
    assert renewed.note == (
        "the autoscaler has not removed the empty node before its deadline; Ebb extends the "
        "deadline"
    )
    assert set(renewed.annotations) == {DETAILS_ANNOTATION}
    nodes = [stored(renewed, nodes[0]), OTHER]
    assert mark_of(nodes[0].labels) is value
    details = decode_details(nodes[0].annotations)
    assert details is not None
    assert (details.since, details.deadline) == (NOW - 60, late + config.deadline_seconds)
    assert writes_of(config, run_reconciliation(config, nodes, THERE, now=late)) == ()


@pytest.mark.law(seeds_max=3000)
def test_foreign_annotations_are_never_overwritten_or_removed(seeds: range) -> None:
    """On mixed clusters, with every foreign annotation, under every scope."""
    foreign = 0
    for seed in seeds:
        chance = random.Random(seed)
        cluster = mixed.cluster(chance, social=False)
        nodes = [randomly_annotated(chance, one) for one in cluster.nodes]
        made = Cluster.of(nodes, cluster.pods)
        cluster = surrounded(made, cluster)
        scope = ScaleDownProtection(scope=chance.choice(list(Scope)))
        mode = chance.choice(list(Mode))
        config = replace(mixed_config.config(chance), scale_down_protection=scope, mode=mode)
        for write in writes_of(config, reconcile(cluster, config, LeaderState(), NOW)):
            said = write.before.annotations.get(PROTECTION_ANNOTATION, "")
            for key in (SCALE_DOWN_DISABLED_ANNOTATION, DO_NOT_DISRUPT_ANNOTATION):
                theirs = key in write.before.annotations and not said
                assert not (theirs and key in write.annotations), seed
                foreign += theirs
            assert mark_of(write.before.labels) is None or KEEP_ANNOTATION not in write.annotations
    assert foreign
