"""How long pods live, and when a node is empty: tables, and laws against the plain one."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.pod import Pod
from core.survival.ages import AGE_SECONDS_MAX, BOUNDS, WIDTHS, age, step_of
from core.survival.curve import ENDED_MAX, WHOLE, Curve, Lives
from core.survival.left import EARLY, EXPECTED, LATE, Aged, Left, left, within
from core.survival.seen import ENDED_MIN, WORKLOADS_MAX, Curves, Seen
from core.survival.spans import EMPTY, FAR, span
from tests.support.reference_survival import MUTANTS, Life, Watch

HOUR, DAY = 3600, 86_400
NOW = 1_800_000_000


def pod(life: Life, number: int = 0, node: str | None = "n") -> Pod:
    return Pod(
        namespace=life.namespace,
        name=f"p{number}",
        node=node,
        owner_kind=life.kind,
        owner_name=life.name,
        created_seconds=life.created,
    )


def told(lives: Iterable[Life], since: int | None, now: int) -> Curves:
    """Tell a program what a plain one is given at once."""
    seen = Seen(since)
    for ended, life in sorted((one.ended, one) for one in lives if one.ended is not None):
        seen.ended(pod(life), ended)
    return seen.curves((pod(one) for one in lives if one.ended is None), now)


def of(*ages: int, many: int = 1) -> Curve:
    """Return the curve of pods that were seen from birth to those ages."""
    lives = Lives()
    for one in ages * many:
        lives.ends_at(0, one)
    return lives.curve()


# Ages


def test_steps_are_at_most_a_quarter_longer_than_the_one_before() -> None:
    assert BOUNDS[:10] == (0, 4, 5, 6, 7, 8, 10, 12, 14, 16)
    assert sum(WIDTHS) == BOUNDS[-1] > 365 * DAY
    assert all(4 * after <= 5 * before for before, after in pairwise(BOUNDS[1:]))


@given(st.integers(0, AGE_SECONDS_MAX))
def test_each_age_lies_in_one_step(seconds: int) -> None:
    step = step_of(seconds)
    assert BOUNDS[step] <= seconds < BOUNDS[step + 1]


@pytest.mark.parametrize(
    ("since", "now", "found"),
    [(0, 0, 0), (5, 3, 0), (0, 10**12, AGE_SECONDS_MAX), (10, 25, 15)],
)
def test_no_age_is_negative_or_beyond_the_steps(since: int, now: int, found: int) -> None:
    assert age(since, now) == found


@pytest.mark.parametrize(
    ("seconds", "found"), [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3), (3600, 12), (None, FAR)]
)
def test_spans_are_doublings(seconds: int | None, found: int) -> None:
    assert EMPTY < span(seconds) == found
    assert span(AGE_SECONDS_MAX) < FAR


# Curves


def test_of_n_that_ended_the_next_one_lives_longer_than_all_in_one_case_of_n_and_one() -> None:
    """Whatever lives are distributed like: the pod asked about is as likely at any place."""
    ages = [BOUNDS[10 * place] for place in range(1, 8)]
    curve = of(*ages)
    for place, one in enumerate(ages):
        assert abs(curve.at(one) * 8 - (8 - place) * WHOLE) < 100
    assert abs(curve.alive[-1] * 8 - WHOLE) < 100


def test_who_lives_counts_up_to_its_age_and_who_was_there_before_from_its_own_on() -> None:
    lives = Lives()
    lives.ends_at(0, BOUNDS[20])
    assert lives.curve().at(BOUNDS[21]) == WHOLE // 2
    lives.lives(0, BOUNDS[21])  # at risk there as well, and has not ended
    assert lives.curve().at(BOUNDS[21]) == WHOLE * 2 // 3
    lives.lives(0, BOUNDS[20])  # was not seen at that age
    assert lives.curve().at(BOUNDS[21]) == WHOLE * 2 // 3
    lives.lives(BOUNDS[21], BOUNDS[22])  # neither was this one
    assert lives.curve().at(BOUNDS[21]) == WHOLE * 2 // 3
    lives.lives(BOUNDS[20], BOUNDS[30])
    assert lives.curve().at(BOUNDS[21]) == WHOLE * 3 // 4
    assert lives.curve().at(BOUNDS[30]) == WHOLE * 3 // 4


def test_a_halved_curve_says_about_the_same() -> None:
    lives = Lives()
    for seconds in range(40, 440):
        lives.ends_at(0, seconds)
    before = lives.curve()
    lives.halve()
    after = lives.curve()
    assert before.ended == 400
    assert after.ended == 200
    for share in (EARLY, EXPECTED, LATE):
        first, then = within((Aged(before, 0),), share), within((Aged(after, 0),), share)
        assert first is not None
        assert then is not None
        assert abs(first - then) * 20 <= first


@given(st.lists(st.integers(0, 3 * DAY), max_size=60))
def test_halving_loses_no_end(ages: list[int]) -> None:
    """Odd ones by turns: if each step lost its own, pods would seem to live longer and longer."""
    lives = Lives()
    for seconds in ages:
        lives.ends_at(0, seconds)
    lives.halve()
    assert lives.ends == len(ages) // 2
    assert min(lives.ended) >= 0


AGES = st.integers(0, 40 * DAY)
LIVES = st.lists(st.tuples(AGES, AGES, st.booleans()), max_size=40)


def counted(lives: Sequence[tuple[int, int, bool]]) -> Lives:
    found = Lives()
    for one, other, ended in lives:
        (found.ends_at if ended else found.lives)(min(one, other), max(one, other))
    return found


@given(LIVES, st.randoms(use_true_random=False))
def test_a_curve_falls_never_to_nothing_and_in_any_order_alike(
    lives: list[tuple[int, int, bool]], chance: random.Random
) -> None:
    curve = counted(lives).curve()
    assert curve.alive[0] == WHOLE
    assert list(curve.alive) == sorted(curve.alive, reverse=True)
    assert curve.alive[-1] > 0
    mixed = list(lives)
    chance.shuffle(mixed)
    cut = chance.randint(0, len(mixed))
    assert counted(mixed[:cut]).with_living(counted(mixed[cut:])).curve() == curve


@given(LIVES, AGES, AGES)
def test_between_two_ages_a_curve_falls(
    lives: list[tuple[int, int, bool]], one: int, other: int
) -> None:
    curve = counted(lives).curve()
    assert curve.at(min(one, other)) >= curve.at(max(one, other))


# Until a node is empty

SHORT = of(*range(60, 160, 5))
LONG = of(*range(HOUR, 3 * HOUR, HOUR // 10))


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        ([], Left(0, 0, 0)),
        ([Aged(SHORT, 0)], Left(70, 110, 155)),
        ([Aged(SHORT, 100)], Left(7, 33, 59)),
        ([Aged(SHORT, 0)] * 2, Left(91, 133, 160)),
        ([Aged(SHORT, 0), Aged(LONG, 0)], Left(4166, 7518, 11971)),
        ([Aged(LONG, 2 * HOUR)], Left(373, 1862, 4903)),
        ([Aged(LONG, 20 * HOUR)], Left(None, None, None)),
        ([Aged(SHORT, 0), Aged(LONG, 20 * HOUR)], Left(None, None, None)),
        ([Aged(of(600, many=8), 0)], Left(527, 584, None)),
    ],
    ids=range(9),
)
def test_by_when_all_pods_are_gone(pods: list[Aged], found: Left) -> None:
    assert left(pods) == found


CURVES = LIVES.map(lambda lives: counted(lives).curve())
PODS = st.lists(st.builds(Aged, CURVES, AGES), min_size=1, max_size=4)
SHARES = st.fractions(Fraction(1, 100), Fraction(99, 100))


def late(seconds: int | None) -> int:
    return AGE_SECONDS_MAX * 2 if seconds is None else seconds


@settings(deadline=None)
@given(PODS, SHARES, SHARES)
def test_a_greater_chance_takes_longer(pods: list[Aged], one: Fraction, other: Fraction) -> None:
    sooner, later = (within(pods, share) for share in sorted((one, other)))
    assert late(sooner) <= late(later)


@settings(deadline=None)
@given(PODS, PODS, SHARES)
def test_another_pod_never_makes_a_node_empty_sooner(
    pods: list[Aged], others: list[Aged], share: Fraction
) -> None:
    both = within(pods + others, share)
    assert late(both) >= max(late(within(pods, share)), late(within(others, share)))
    assert both == within(others[::-1] + pods[::-1], share)


@settings(deadline=None)
@given(PODS)
def test_a_range_is_in_order(pods: list[Aged]) -> None:
    found = [late(seconds) for seconds in left(pods)]
    assert found == sorted(found)


# What has been seen


def drawn(seed: int) -> Watch:
    """Draw what a program has seen: two namespaces, three workloads, a few hours."""
    chance = random.Random(seed)
    since = NOW - chance.choice((HOUR, 6 * HOUR, 3 * DAY))
    lives = []
    for _ in range(chance.choice((10, 40, 120))):
        created = chance.randrange(since - chance.choice((1, DAY, 30 * DAY)), NOW)
        ended = created + round(chance.expovariate(1 / chance.choice((300, HOUR, DAY))))
        if ended > since:
            lives.append(
                Life(
                    chance.choice("ab"),
                    chance.choice(("ReplicaSet", "ReplicaSet", "Job")),
                    chance.choice("xxxxyz"),
                    created,
                    ended if ended < NOW else None,
                )
            )
    return Watch(lives, since, NOW)


def answers(watch: Watch) -> list[int | None]:
    """Return what the plain one says of each pod, and of all together."""
    living = [life for life in watch.lives if life.ended is None]
    shares = (EARLY, EXPECTED, LATE)
    return [watch.empty([one], share) for one in living for share in shares] + [
        watch.empty(living, share) for share in shares
    ]


def found_by(curves: Curves, watch: Watch) -> list[int | None]:
    aged = [curves.aged(pod(one), watch.now) for one in watch.lives if one.ended is None]
    parts = [left((one,)) if one else Left(None, None, None) for one in aged]
    known = [one for one in aged if one]
    whole = left(known) if len(known) == len(aged) else Left(None, None, None)
    return [seconds for part in (*parts, whole) for seconds in part]


SEEDS = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_it_is_what_the_plain_one_finds(seed: int) -> None:
    watch = drawn(seed)
    assert found_by(told(watch.lives, watch.since, watch.now), watch) == answers(watch)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_notices(mutant: str) -> None:
    for seed in range(SEEDS):
        watch = drawn(seed)
        if found_by(told(watch.lives, watch.since, watch.now), watch) != answers(
            watch._replace(mutant=mutant)
        ):
            return
    pytest.fail(f"nothing notices: {mutant}")


# Bounds, and who may write what


def ended(namespace: str, name: str, created: int, at: int, node: str | None = "n") -> Pod:
    return pod(Life(namespace, "Job", name, created, at), node=node)


def test_a_new_program_knows_nothing() -> None:
    curves = Seen(NOW).curves([ended("a", "x", NOW - DAY, 0)], NOW)
    assert not curves.known(ended("a", "x", NOW, 0))
    assert curves.aged(ended("a", "x", NOW, 0), NOW) is None
    assert curves.span(ended("a", "x", NOW, 0), 0) == FAR


@pytest.mark.parametrize(("many", "known"), [(ENDED_MIN - 1, False), (ENDED_MIN, True)])
def test_with_too_few_ends_nothing_is_known(many: int, known: bool) -> None:
    seen = Seen(NOW)
    for number in range(many):
        seen.ended(ended("a", f"only-this-{number}", NOW, 0), NOW + 60)
    assert seen.curves((), NOW + 60).known(ended("a", "another", NOW, 0)) is known


COUNTS = Pod(namespace="a", name="p", node="n", created_seconds=NOW, owner_kind="Job")


@pytest.mark.parametrize(
    "odd",
    [
        replace(COUNTS, node=None),
        replace(COUNTS, created_seconds=None),
        replace(COUNTS, daemon=True),
        replace(COUNTS, priority=-11),
    ],
)
def test_who_keeps_no_node_from_being_empty_does_not_count(odd: Pod) -> None:
    seen = Seen(NOW)
    for number in range(2 * ENDED_MIN):
        seen.ended(odd, NOW + 60 + number)
    assert not seen.curves([odd], NOW + 99).known(ended("a", "", NOW, 0))


@given(st.lists(st.tuples(st.sampled_from("xy"), AGES), max_size=40))
def test_a_namespace_says_nothing_about_another(others: list[tuple[str, int]]) -> None:
    ours = [Life("a", "Job", "x", NOW, NOW + 60 * number) for number in range(1, 20)]
    theirs = [Life("b", "Job", name, NOW - lived, NOW + 60) for name, lived in others]
    alone, beside = told(ours, NOW, NOW + DAY), told(ours + theirs, NOW, NOW + DAY)
    asked = pod(Life("a", "Job", "y", NOW, None))
    assert alone.of(asked) == beside.of(asked) != None  # noqa: E711 both say something


def test_who_makes_workloads_without_end_loses_its_own() -> None:
    seen = Seen(NOW)
    for second in range(1, ENDED_MIN + 1):
        seen.ended(ended("quiet", "x", NOW, 0), NOW + second)
    for number in range(WORKLOADS_MAX + 100):
        seen.ended(ended("loud", f"job{number}y", NOW, 0), NOW + 60)
    assert seen.workloads == WORKLOADS_MAX
    assert seen.curves((), NOW + 60).known(ended("quiet", "x", NOW, 0))


def test_what_was_forgotten_begins_anew_with_its_first_end() -> None:
    seen = Seen(NOW)
    for number in range(WORKLOADS_MAX):
        seen.ended(ended("loud", f"job{number}y", NOW, 0), NOW + 60)
    for _ in range(ENDED_MIN + 1):
        seen.ended(ended("new", "x", NOW, 0), NOW + 120)
    assert not seen.curves((), NOW + 121).known(ended("new", "x", NOW, 0))
    for second in range(ENDED_MIN):
        seen.ended(ended("new", "x", NOW, 0), NOW + 121 + second)
    assert seen.curves((), NOW + 200).known(ended("new", "x", NOW, 0))


def test_many_ends_are_halved_and_the_time_with_them() -> None:
    seen = Seen(NOW)
    for second in range(ENDED_MAX):
        seen.ended(ended("a", "x", NOW + second - 60, 0), NOW + second + 1)
    curve = seen.curves((), NOW + ENDED_MAX).of(ended("a", "x", NOW, 0))
    assert curve is not None
    assert curve.ended == ENDED_MAX // 2
    early, late = (ended("a", "x", NOW + second, 0) for second in (0, ENDED_MAX // 2))
    for old, more in ((early, False), (late, True)):  # the first was young before that time
        found = seen.curves([old] * 99, NOW + ENDED_MAX).of(old)
        assert found is not None
        assert (found.at(61) > curve.at(61)) is more


def test_without_a_beginning_the_first_end_of_each_workload_is_it() -> None:
    """As where finished pods stand in a list for a while: what ended before is not there."""
    seen = Seen()
    for number in range(ENDED_MIN + 1):
        assert not seen.curves((), NOW).known(ended("a", "x", NOW, 0))
        seen.ended(ended("a", "x", NOW - 600, 0), NOW - 500 + number)
    found = seen.curves((), NOW).of(ended("a", "x", NOW, 0))
    assert found is not None
    assert found.ended == ENDED_MIN


@pytest.mark.parametrize("together", [1, 5])
def test_what_is_said_comes_true_as_often_as_it_is_said(together: int) -> None:
    """Of pods that end by chance at any time, by a program that began when some were there."""
    chance = random.Random(7)
    seen, pods = Seen(NOW), list[Life]()
    second = NOW - DAY
    while (second := second + round(chance.expovariate(1 / 30))) < NOW + 2 * DAY:
        ended_at = second + round(chance.expovariate(1 / HOUR))
        pods.append(Life("a", "Job", "x", second, ended_at))
    told_of = iter(sorted((one.ended, one) for one in pods if one.ended and one.ended > NOW))
    after = next(told_of)
    gone = [0, 0, 0]
    many = 0
    for now in range(NOW + 6 * HOUR, NOW + 2 * DAY, HOUR):
        while after[0] <= now:
            seen.ended(pod(after[1]), after[0])
            after = next(told_of)
        living = [one for one in pods if one.created <= now < (one.ended or 0)]
        curves = seen.curves(map(pod, living), now)
        for begin in range(0, len(living) - together, together):
            ours = living[begin :: len(living) // together][:together]
            aged = [curves.aged(pod(one), now) for one in ours]
            took = max(one.ended or 0 for one in ours) - now
            many += 1
            for number, seconds in enumerate(left(one for one in aged if one)):
                gone[number] += seconds is None or took <= seconds
    found = [round(100 * one / many) for one in gone]
    assert many > 500
    for share, wanted in zip(found, (10, 50, 90), strict=True):
        assert abs(share - wanted) <= 9, found
