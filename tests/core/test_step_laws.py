"""A pass that knows the last one finds what one finds that does not."""

import gc
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from core.capacity.usable import Amount
from core.config.budgets import CLOCKS_APART_SECONDS_MAX, Backoff, Budgets, Cooldown, Reserve
from core.config.settings import Config
from core.engine.census import Census
from core.engine.memory import Memory
from core.engine.step import Pass, step
from core.marks.keys import BACKOFF_ANNOTATION
from core.marks.mark import Mark
from core.model.cluster import Cluster, DisruptionBudget
from core.model.constraints import Ties
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from core.policies.all import POLICIES
from core.policies.ported.node_utilization import NodeUtilization
from core.policies.ported.underutilized_count import CountedPools
from tests.support import counting, mixed, mixed_config
from tests.support.builders import UNLIMITED, node, pod

pytestmark = [pytest.mark.law, pytest.mark.mutate]

WAITS = {"delay_seconds": 60, "max_seconds": 600}
"""Of nodes whose mark is refused."""
LOOKS = 12
SECONDS = (0, 1, 1, 1, 10, 10, 60, 61, 600, 4000)
EPOCH = 1_000_000
AHEAD = CLOCKS_APART_SECONDS_MAX + 100
"""Of an end that a leader of our time may have written."""
TIMED = (
    Ties(notes=(("karpenter.sh/do-not-disrupt", "90s"),), started_seconds=EPOCH),
    Ties(overdue_seconds=EPOCH + 100),
)
COUNTED = CountedPools(
    pool_label="pool",
    pools={name: counting.counted("4/5", 1) for name in ("batch", "general", "gpu", "")},
)


def config(chance: random.Random) -> Config:
    found = mixed_config.config(chance)
    timed = replace(
        found.budgets,
        window_seconds=chance.choice((5, 100)),
        peak_window_seconds=chance.choice((0, 30, 300)),
        cooldown=Cooldown(
            after_node_add_seconds=chance.choice((0, 50)),
            after_pending_seconds=chance.choice((0, 50)),
        ),
        backoff=Backoff(first_seconds=10, max_seconds=100),
        spacing_seconds=chance.choice((0, 0, 40)),
        reserve=Reserve(
            length_seconds=chance.choice((1, 7, 100)), over_seconds=chance.choice((0, 50, 300))
        ),
    )
    return replace(
        found,
        policy=chance.choice((*POLICIES, *POLICIES, NodeUtilization.name)),
        policies=replace(found.policies, underutilized_count=COUNTED),
        budgets=timed,
        delay_seconds=chance.choice((0, 15, 100)),
        hard_after_seconds=chance.choice((None, 0, 30)),
    )


def changed(chance: random.Random, was: Cluster, now: int) -> Cluster:
    """Return the cluster after a few changes of some kind, or the same objects in another one."""
    nodes, pods = list(was.nodes), list(was.pods)
    budgets, limits = was.budgets, was.attach_limits
    match chance.randrange(6):
        case 0:
            pods = list(_pods(chance, pods, nodes))
        case 1:
            nodes = [_node(chance, one, now) if chance.random() < 0.2 else one for one in nodes]
        case 2:
            nodes.append(mixed.node(chance, f"m{chance.randrange(10)}"))
            nodes = list({one.name: one for one in nodes}.values())
        case 3:
            nodes = [one for one in nodes if chance.random() < 0.9]
        case 4:
            budgets = (DisruptionBudget(namespace="d", name="b", disruptions_allowed=1),)
            limits = {one.name: chance.choice(({"ebs": 1}, {})) for one in nodes}
        case _:
            pods = [replace(one) for one in pods]
    return replace(Cluster.of(nodes, pods, budgets), attach_limits=limits)


def _pods(chance: random.Random, pods: list[Pod], nodes: list[Node]) -> Iterator[Pod]:
    rare = chance.choice((20, 100, 300))
    for one in pods:
        match chance.randrange(rare):
            case 0:
                continue
            case 1:
                yield replace(one, node=chance.choice(nodes).name if nodes else None)
            case 2:
                yield replace(one, node=None, unschedulable=chance.random() < 0.5)
            case 3:
                yield replace(one, name=f"{one.name}-more", labels={"app": "a"})
            case 4:
                yield replace(one, ties=chance.choice(TIMED), terminating=chance.random() < 0.5)
            case 5:
                yield mixed.odd(chance, one)
            case _:
                yield one


def _node(chance: random.Random, one: Node, now: int) -> Node:
    ends = {BACKOFF_ANNOTATION: f"1 {now + chance.choice((-5, 20, AHEAD + 2))}"}
    return chance.choice(
        (
            mixed.marked(replace(one, labels={}, taints=()), "soft", now + chance.choice((-3, 9))),
            mixed.marked(replace(one, labels={}, taints=()), "hard", now - 1),
            replace(one, ready=not one.ready),
            replace(one, labels={**one.labels, "rank": "7"}),
            replace(one, annotations={**one.annotations, **ends}),
            mixed.tainted(one, chance.choice((*mixed.PASSING, *mixed.LEAVING, mixed.GPU))),
        )
    )


def found(one: Pass) -> tuple[object, ...]:
    return one.plan, one.pace, one.against_hard, one.memory, one.at


@pytest.mark.parametrize("seed", range(150))
def test_a_pass_that_knows_the_last_one_finds_what_one_finds_that_does_not(seed: int) -> None:
    chance = random.Random(seed)
    asked, now, cluster = config(chance), EPOCH, mixed.cluster(chance)
    warm = cold = step(cluster, asked, Memory(), now)
    for _ in range(LOOKS):
        now += chance.choice(SECONDS)
        if chance.random() < 0.5:
            cluster = changed(chance, cluster, now)
        failed = frozenset(one.name for one in cluster.nodes if chance.random() < 0.02)
        warm = step(cluster, asked, warm.memory.refusing(failed, now, **WAITS), now, last=warm)
        cold = step(cluster, asked, cold.memory.refusing(failed, now, **WAITS), now)
        assert not cold.skipped
        assert found(warm) == found(cold)


def test_pods_that_are_followed_are_sorted_out_as_those_that_are_looked_at_anew() -> None:
    followed = 0
    for seed in range(300):
        chance = random.Random(seed)
        cluster = mixed.cluster(chance)
        warm = Census.of(cluster)
        for _ in range(LOOKS):
            cluster = changed(chance, cluster, EPOCH)
            before, warm, cold = warm, warm.followed(cluster), Census.of(cluster)
            assert counted(warm) == counted(cold)
            assert warm.pods is cluster.pods
            kept = {id(one) for one in before.groups.values()}
            followed += any(id(one) in kept for one in warm.groups.values())
    assert followed > 300


@pytest.mark.parametrize(
    ("gone", "came", "followed"), [(1, 1, True), (2, 0, False), (2, 2, False)]
)
def test_where_one_pod_of_eight_has_changed_the_others_are_not_sorted_anew(
    gone: int, came: int, followed: bool
) -> None:
    other = pod("other", "n0", 500, 500)
    pods = [pod(f"p{n:02}", "n0", 100, 100) for n in range(15)]
    new = [pod(f"q{n:02}", "n0", 100, 100) for n in range(came)]
    before = Census.of(Cluster.of([node("n0")], [*pods, other]))
    now = before.followed(Cluster.of([node("n0")], [*pods[gone:], *new, other]))
    alike = other.requests, other.placing
    assert (now.groups[alike] is before.groups[alike]) is followed


LEFT = pod("a", "left", 100, 100)


@pytest.mark.parametrize(
    ("orphan", "waits"),
    [
        (LEFT, True),
        (replace(LEFT, owner_kind="Job"), True),
        (replace(LEFT, owner_kind=""), False),
        (replace(LEFT, terminating=True), False),
        (replace(LEFT, priority=-20), False),
        (replace(LEFT, mirror=True), False),
        (replace(LEFT, daemon=True), False),
    ],
)
def test_a_pod_whose_node_has_left_waits_as_what_is_made_in_its_place_will(
    orphan: Pod, waits: bool
) -> None:
    others = [pod(f"b{number:02}", "n0", 100, 100) for number in range(20)]
    before = Census.of(Cluster.of([node("n0")], others))
    found = before.followed(Cluster.of([node("n0")], [orphan, *others]))
    anew = [replace(orphan, node=None)] if waits else []
    assert list(found.groups.values()) == [[*anew, *others]]
    assert found.used == before.used
    collected = found.followed(Cluster.of([node("n0")], others))
    assert list(collected.groups.values()) == [others]


def test_one_whose_node_has_left_and_that_cannot_be_judged_holds_no_node() -> None:
    odd = replace(LEFT, unsupported=("spec.volumes",))
    found = Census.of(Cluster.of([node("n0")], [odd]))
    assert (found.odd, found.groups) == ([replace(odd, node=None)], {})


def test_a_pass_follows_the_pods_of_the_last_one() -> None:
    other = pod("other", "n0", 500, 500)
    pods = [pod(f"p{n:02}", "n0", 100, 100) for n in range(20)]
    asked, nodes = Config(budgets=UNLIMITED), [node("n0"), node("n1")]
    last = step(Cluster.of(nodes, [*pods, other]), asked, Memory(), 0)
    again = step(Cluster.of(nodes, [*pods[1:], other]), asked, last.memory, 1, last=last)
    alike = other.requests, other.placing
    assert again.survey.census.groups[alike] is last.survey.census.groups[alike]


def counted(census: Census) -> tuple[object, ...]:
    """Return it without what adds up to nothing."""
    sums = [
        {name: (Amount(one.cpu_millis, one.memory_bytes), one.pods, dict(one.extended))
         for name, one in found.items() if one != Resources()}
        for found in (census.used, census.resident)
    ]  # fmt: skip
    return *sums, census.groups, census.odd, census.virtual


def standing(count: int = 3) -> Cluster:
    """Return nodes with small pods, one each."""
    pods = [pod(f"p{n}", f"n{n}", 10 if n else 500, 10 if n else 500) for n in range(count)]
    return Cluster.of([node(f"n{n}") for n in range(count)], pods)


@pytest.mark.parametrize("peak_window_seconds", [0, 100])
def test_a_pass_is_made_when_time_alone_has_changed_something_and_not_before(
    peak_window_seconds: int,
) -> None:
    """What is asked for now is no peak that ends."""
    budgets = replace(UNLIMITED, peak_window_seconds=peak_window_seconds)
    asked = Config(budgets=budgets, delay_seconds=600)
    last = step(standing(), asked, Memory(), 0)
    assert last.again == 601
    for now, skipped in ((0, True), (600, True), (601, False), (10**9, True)):
        last = step(standing(), asked, last.memory, now, last=last)
        assert last.skipped is skipped
        assert bool(last.plan.removals) is (now > 600)


def test_a_mark_leaves_the_window_and_a_back_off_becomes_possible_in_their_second() -> None:
    rules = Backoff(first_seconds=10, max_seconds=100)
    asked = Config(budgets=replace(UNLIMITED, window_seconds=60, backoff=rules))
    made = standing()
    one = mixed.marked(made.nodes[0], "soft", 100)
    far = replace(made.nodes[1], annotations={BACKOFF_ANNOTATION: f"1 {200 + AHEAD}"})
    for cluster, last_second in (
        (Cluster.of([one, *made.nodes[1:]], made.pods), 159),
        (Cluster.of([far, made.nodes[0]], made.pods), 199),
    ):
        last = step(cluster, asked, Memory(candidates={"n0": 0, "n1": 0, "n2": 0}), 110)
        before = step(cluster, asked, last.memory, last_second, last=last)
        after = step(cluster, asked, before.memory, last_second + 1, last=before)
        assert before.pace == last.pace
        assert after.pace != last.pace


@pytest.mark.parametrize(
    ("ties", "last_second"), [(TIMED[0], EPOCH + 89), (TIMED[1], EPOCH + 100)]
)
def test_what_a_pod_says_for_a_time_is_heard_for_that_time(ties: Ties, last_second: int) -> None:
    """The node with the pod that stays is tried last, as long as it does."""
    asked = Config(budgets=UNLIMITED, delay_seconds=0)
    stays = replace(pod("a", "n0", 500, 500), owner_kind="", ties=ties)
    if ties is TIMED[0]:
        stays = replace(stays, owner_kind="ReplicaSet")
    cluster = Cluster.of(
        [node("n0"), node("n1")], [stays, replace(stays, name="b", node="n1", ties=Ties())]
    )
    cluster = replace(
        cluster, pods=(cluster.pods[0], replace(cluster.pods[1], owner_kind="ReplicaSet"))
    )
    last = step(cluster, asked, Memory(candidates={"n0": 0, "n1": 0}), EPOCH)
    assert [one.node for one in last.plan.removals] == ["n1"]
    last = step(cluster, asked, last.memory, last_second, last=last)
    assert last.skipped
    last = step(cluster, asked, last.memory, last_second + 1, last=last)
    assert [one.node for one in last.plan.removals] == ["n0"]


def test_a_pass_is_made_after_each_change() -> None:
    asked = Config(budgets=UNLIMITED)
    last = step(standing(), asked, Memory(), 0)
    again = step(standing(4), asked, last.memory, 1, last=last)
    assert not again.skipped
    assert not step(standing(4), replace(asked), again.memory, 2, last=again).skipped
    assert not step(standing(4), asked, again.memory, 0, last=again).skipped
    failed = again.memory.refusing(frozenset({"n1"}), 1, **WAITS)
    assert not step(standing(4), asked, failed, 2, last=again).skipped
    assert step(standing(4), asked, again.memory, 2, last=again).skipped


def test_what_ran_out_of_time_is_tried_again() -> None:
    asked = Config(budgets=UNLIMITED, delay_seconds=0)
    first = step(standing(), asked, Memory(), 0)
    late = step(standing(), asked, first.memory, 1, last=first, in_time=lambda: False)
    assert not late.plan.removals
    assert step(standing(), asked, late.memory, 1, last=late).plan.removals


def test_while_a_text_counts_the_seconds_passes_are_made() -> None:
    cooling = Cooldown(after_node_add_seconds=600, after_pending_seconds=600)
    asked = Config(budgets=Budgets(cooldown=cooling))
    last = step(standing(), asked, Memory(), 0)
    last = step(standing(4), asked, last.memory, 10, last=last)
    for now in (11, 609):
        last = step(standing(4), asked, last.memory, now, last=last)
        assert not last.skipped
        assert not last.plan.removals
    assert codes(last, "n1") == ["cooldown"]
    for now, skipped in ((610, False), (611, False), (612, True)):  # n3's delay ends with 610
        last = step(standing(4), asked, last.memory, now, last=last)
        assert last.skipped is skipped


def codes(one: Pass, name: str) -> list[str]:
    (kept,) = (kept for kept in one.plan.kept if kept.node == name)
    return [blocker.code for blocker in kept.blockers]


@pytest.mark.parametrize("marked_at", [1, 10])
def test_what_speaks_against_a_hard_mark_all_the_time_counts_no_seconds(marked_at: int) -> None:
    asked = Config(budgets=UNLIMITED, hard_after_seconds=0)
    pods = [pod("busy", "n1", 3500, 100), replace(pod("p", "n1", 501, 100), priority=1)]
    cluster = Cluster.of([mixed.marked(node("n0"), "soft", marked_at), node("n1")], pods)
    last = step(cluster, asked, Memory(), 10)
    assert [one.code for one in last.against_hard["n0"]] == ["hard-preemption"]
    assert step(cluster, asked, last.memory, 11, last=last).skipped
    over = step(Cluster.of(cluster.nodes, pods[:1]), asked, last.memory, 20, last=last)
    assert [one.code for one in over.against_hard["n0"]] == ["hard-preemption"]
    never = replace(asked, hard_after_seconds=None)
    assert step(cluster, never, Memory(), 10).against_hard == {}


def test_a_pod_that_waits_for_the_place_it_was_found_speaks_against_hard_marks() -> None:
    """And not before it has waited so long: a scheduler takes its time."""
    asked = Config(budgets=UNLIMITED, hard_after_seconds=0)
    waits = replace(pod("p", None, 500, 500), unschedulable=True)
    nodes = [mixed.marked(node("n0"), "hard", 1), node("n1")]
    last = None
    for now, told in ((10, []), (14, []), (15, ["hard-waiting"])):
        cluster = Cluster.of(nodes, [waits])
        last = step(cluster, asked, last.memory if last else Memory(), now, last=last)
        assert [one.code for one in last.against_hard["n0"]] == told


def test_a_pass_leaves_nothing_that_only_the_collector_of_cycles_could_free() -> None:
    """That one stops every thread while it walks all that a pass has made."""
    for seed in range(8):
        chance = random.Random(seed)
        asked, cluster = config(chance), mixed.cluster(chance)
        last = step(cluster, asked, Memory(), EPOCH)
        gc.collect()
        last = step(changed(chance, cluster, EPOCH), asked, last.memory, EPOCH + 1, last=last)
        assert gc.collect() == 0


def test_what_has_just_ended_speaks_against_a_hard_mark_also_in_the_second_of_its_end() -> None:
    """Several passes a second are made where pods wait."""
    asked = Config(budgets=UNLIMITED, hard_after_seconds=0)
    waits = replace(pod("w", None, 100, 100, unsupported=("spec.volumes",)), unschedulable=True)
    nodes = [mixed.marked(node("n0"), "soft", 1), node("n1")]
    last = step(Cluster.of(nodes, [waits]), asked, Memory(), 10)
    bound = Cluster.of(nodes, [replace(waits, node="n1", unschedulable=False)])
    for now, ago in ((10, "0 s"), (11, "1 s"), (309, "4 min 59 s")):
        last = step(bound, asked, last.memory, now, last=last)
        assert not last.skipped
        (why,) = last.against_hard["n0"]
        assert why.code == "hard-waiting"
        assert why.message.endswith(f"; that was {ago} ago")
    last = step(bound, asked, last.memory, 310, last=last)
    assert not last.against_hard["n0"]


def soft_and_spoken_against(one: Pass) -> set[str]:
    marks = {name for name, found in one.survey.marks.items() if found.mark is Mark.SOFT}
    return {name for name in marks if one.against_hard[name]}


def test_a_new_leader_keeps_soft_what_the_one_before_would_have_kept_so() -> None:
    """Both look at the same; the reserve, which a new leader begins anew, is left out."""
    kept = 0
    for seed in range(200):
        chance = random.Random(seed)
        asked, now, cluster = config(chance), EPOCH, mixed.cluster(chance)
        budgets = replace(asked.budgets, reserve=Reserve(over_seconds=0))
        asked = replace(asked, budgets=budgets, hard_after_seconds=0)
        old, new = step(cluster, asked, Memory(), now - 1000), None
        for look in range(LOOKS):
            cluster, now = changed(chance, cluster, now), now + chance.choice(SECONDS[:-2])
            old = step(cluster, asked, old.memory, now, last=old)
            if look >= LOOKS // 3:
                memory = new.memory if new else Memory()
                new = step(cluster, asked, memory, now, last=new)
                assert soft_and_spoken_against(old) <= soft_and_spoken_against(new), seed
                kept += len(soft_and_spoken_against(old))
    assert kept > 0


def test_a_leader_that_begins_keeps_no_mark_soft_but_what_is_so_already_and_that_for_a_while() -> (
    None
):
    asked = Config(budgets=UNLIMITED, hard_after_seconds=0)
    nodes = [mixed.marked(node(name), how, 1) for name, how in (("h", "hard"), ("s", "soft"))]
    last = step(Cluster.of([*nodes, node("n")], []), asked, Memory(), 10)
    later = Cluster.of([*nodes, mixed.marked(node("n"), "soft", 11), node("m")], [])
    for now, ago in ((10, "0 s"), (309, "4 min 59 s"), (310, "")):
        last = step(later, asked, last.memory, now, last=last)
        told = {name: [one.code for one in why] for name, why in last.against_hard.items()}
        assert told == {"h": [], "s": ["hard-new-leader"] if ago else [], "n": []}
        began = "another leader began, which has not seen what was before"
        assert not ago or last.against_hard["s"][0].message == f"{began}; that was {ago} ago"
