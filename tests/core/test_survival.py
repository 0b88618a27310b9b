"""How long pods live, and when a node is empty: tables, and laws against the plain one."""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.pod import Pod
from core.model.workload import Workload
from core.survival.ages import AGE_SECONDS_MAX, BOUNDS, WIDTHS, age, step_of
from core.survival.curve import WHOLE, Curve, Lives
from core.survival.left import EARLY, EXPECTED, LATE, Aged, Left, left, within
from core.survival.seen import ENDED_MAX, ENDED_MIN, WORKLOADS_MAX, Curves, Seen
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


def test_one_more_is_at_risk_and_ends_as_often_as_those_near_its_age() -> None:
    """Of n that ended nobody knows whether the next one outlives all: in one case of n + 1."""
    ages = [BOUNDS[10 * place] for place in range(1, 8)]
    curve = of(*ages)
    for place, one in enumerate(ages, 1):
        at_risk = 8 - place
        begin, end = curve.at(one), curve.at(BOUNDS[10 * place + 1])
        near = 5 * at_risk + 4 * (at_risk - 1)  # pods in nine steps, of which one ends
        left = 1 - (1 + Fraction(1, near)) / (at_risk + 1)
        assert abs(end - begin * left) < 1000
    assert Fraction(1, 32) < Fraction(curve.alive[-1], WHOLE) < Fraction(1, 8)


def test_who_lives_counts_up_to_its_age_and_who_was_there_before_from_its_own_on() -> None:
    lives = Lives()
    lives.ends_at(0, BOUNDS[20])
    alone = lives.curve().at(BOUNDS[21])
    for first, last in ((0, BOUNDS[11]), (BOUNDS[25], BOUNDS[30])):  # a doubling away: not near
        lives.lives(first, last)
        assert lives.curve().at(BOUNDS[21]) == alone
    lives.lives(0, BOUNDS[21])  # at risk there as well, and has not ended
    with_another = lives.curve().at(BOUNDS[21])
    assert with_another > alone
    lives.lives(BOUNDS[20], BOUNDS[30])
    assert lives.curve().at(BOUNDS[21]) > with_another


def test_where_nobody_was_seen_nobody_is_known_to_end() -> None:
    lives = Lives()
    lives.ends_at(BOUNDS[18], BOUNDS[20])
    curve = lives.curve()
    assert curve.at(BOUNDS[18]) == WHOLE
    assert curve.at(BOUNDS[21]) < WHOLE // 2
    assert curve.alive[-1] == curve.at(BOUNDS[21])


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
        ([Aged(SHORT, 0)], Left(69, 107, 152)),
        ([Aged(SHORT, 100)], Left(7, 31, 57)),
        ([Aged(SHORT, 0)] * 2, Left(90, 130, 158)),
        ([Aged(SHORT, 0), Aged(LONG, 0)], Left(4084, 7265, 10379)),
        ([Aged(LONG, 2 * HOUR)], Left(345, 1768, 4099)),
        ([Aged(LONG, 20 * HOUR)], Left(None, None, None)),
        ([Aged(SHORT, 0), Aged(LONG, 20 * HOUR)], Left(None, None, None)),
        ([Aged(of(600, many=8), 0)], Left(519, 578, 638)),
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


@pytest.mark.parametrize("many", [1, 2, 50, 10_000])
def test_of_pods_alike_it_is_when_the_power_of_one_chance_is_enough(many: int) -> None:
    """Were it quadratic in the pods, this would not end: a virtual node has thousands."""
    curve = of(*range(600, 900, 10), many=3000)
    for share in (EARLY, EXPECTED):
        seconds = within([Aged(curve, 0)] * many, share)
        assert seconds is not None
        enough = [
            (WHOLE - curve.at(one)) ** many * share.denominator >= WHOLE**many * share.numerator
            for one in (seconds - 1, seconds)
        ]
        assert enough == [False, True]


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


@settings(deadline=None)
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


def test_namespaces_that_come_and_go_take_no_room_from_those_that_stay() -> None:
    """As of previews that live for a day; of these there are ten times as many as have room."""
    seen, now, many = Seen(NOW), NOW, 40
    seen.inhabited = {"stays"}
    for number in range(10 * WORKLOADS_MAX // 2):
        now += DAY // (WORKLOADS_MAX // 8)
        seen.ended(ended(f"preview-{number}", "x", now - 60, 0), now)
        if number % many == 0:
            for name in "uvwxyz":
                seen.ended(ended("stays", name, now - 60, 0), now)
    curves = seen.curves((), now)
    assert all(name in curves._curves for name in map(one_of_those_that_stay, "uvwxyz"))
    assert seen.workloads == WORKLOADS_MAX
    assert len(seen._records) < WORKLOADS_MAX, "of what has been left nothing stays"


def one_of_those_that_stay(name: str) -> Workload:
    return Workload("stays", "Job", name)


def test_a_clock_that_is_behind_what_it_told_before_makes_no_fault() -> None:
    seen = Seen(NOW)
    for number in range(ENDED_MIN):
        seen.ended(ended("a", "x", NOW, 0), NOW + 1 + number)
    for back in (1, 10, 400 * DAY):
        living = [ended("a", "x", NOW - back - age_, 0) for age_ in (0, 3, 600)]
        assert seen.curves(living, NOW - back).known(living[0])


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


def drawn_lives(many: int, seed: int = 3) -> list[Life]:
    """Draw pods of which one begins every half a minute, and that live an hour on average."""
    chance = random.Random(seed)
    found, created = list[Life](), NOW - DAY
    while len(found) < many:
        created += round(chance.expovariate(1 / 30))
        ended_at = created + round(chance.expovariate(1 / HOUR))
        found.append(Life("a", "Job", "x", created, ended_at))
    return found


def kept_since(lives: Sequence[Life], since: int) -> int:
    """Return from when on all counts, plainly: a new time begins with every 512th end."""
    begins, counted = [since], 0
    for ended_at in sorted(one.ended or 0 for one in lives):
        counted += ended_at > begins[-1]
        if counted == ENDED_MAX // 2:
            begins.append(ended_at)
            counted = 0
    return begins[max(len(begins) - 2, 0)]


@pytest.mark.parametrize("many", [400, 600, 1400, 1800, 4000])
def test_with_many_ends_it_is_as_if_the_program_had_begun_later(many: int) -> None:
    lives = [one for one in drawn_lives(many) if one.ended and one.ended > NOW - DAY]
    now = max(one.created for one in lives) + HOUR
    seen = [one if one.ended and one.ended < now else one._replace(ended=None) for one in lives]
    ended_ones = [one for one in seen if one.ended is not None]
    since = kept_since(ended_ones, NOW - DAY)
    assert (since > NOW - DAY) is (len(ended_ones) > ENDED_MAX)
    asked = pod(Life("a", "Job", "x", NOW, None))
    found = told(seen, NOW - DAY, now).of(asked)
    assert found == told(seen, since, now).of(asked) != None  # noqa: E711 both say something
    assert found is not None
    assert min(len(ended_ones), ENDED_MAX // 2) <= found.ended <= ENDED_MAX


def times_expected(many: int, seed: int) -> Fraction:
    """Return how many times as long as they do pods of the last ones are expected to live."""
    lives = [one for one in drawn_lives(many, seed) if one.ended and one.ended > NOW - DAY]
    now = lives[-1].created
    seen = [one if one.ended and one.ended < now else one._replace(ended=None) for one in lives]
    curve = told(seen, NOW - DAY, now).of(pod(Life("a", "Job", "x", NOW, None)))
    assert curve is not None
    found = within((Aged(curve, 0),), EXPECTED)
    assert found is not None
    return Fraction(found, round(HOUR * math.log(2)))


@pytest.mark.parametrize("many", [900, 5000])
def test_however_many_have_ended_they_seem_to_live_neither_longer_nor_shorter(many: int) -> None:
    seeds = range(8)
    found = sum((times_expected(many, seed) for seed in seeds), Fraction()) / len(seeds)
    assert abs(found - 1) < Fraction(1, 20), float(found)


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
            ours = living[begin : begin + together]
            aged = [curves.aged(pod(one), now) for one in ours]
            took = max(one.ended or 0 for one in ours) - now
            many += 1
            for number, seconds in enumerate(left(one for one in aged if one)):
                gone[number] += seconds is None or took <= seconds
    found = [round(100 * one / many) for one in gone]
    assert many > 500
    for share, wanted in zip(found, (10, 50, 90), strict=True):
        assert abs(share - wanted) <= 4, found
