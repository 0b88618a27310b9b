"""The score `lifetime` by the wire: of a new program, and of one that has seen pods end."""

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from core.config.programs import ExtenderConfig
from core.edge.decode.kinds import NODES, PODS
from core.marks.keys import MARK_LABEL, TAINT_KEY
from core.model.pod import Pod
from core.scores import SCORE_MARKED_SOFT_MAX, SCORES, score_lifetime
from core.survival.ages import BOUNDS
from core.survival.left import EXPECTED
from core.survival.seen import ENDED_MIN
from core.survival.spans import EMPTY, FAR, span
from extender import wire
from extender.view import View
from tests.support.builders import node
from tests.support.builders import pod as any_pod
from tests.support.clock import FakeClock
from tests.support.reference_survival import Life, Watch, aged

NOW, HOUR = 1_800_000_000, 3600
NAMES = [f"n{number}" for number in range(6)]


Scores = dict[str, int]


class Program:
    """A view, and who feeds it."""

    def __init__(self, score: str = "lifetime") -> None:
        self.clock = FakeClock(NOW)
        self.view = View(ExtenderConfig(score=score), TAINT_KEY, self.clock)
        self.view.replaced(NODES, [node(name) for name in NAMES])
        self.view.replaced(PODS, [])
        self.fresh()

    def fresh(self) -> None:
        for kind in (NODES, PODS):
            self.view.news.alive(kind, self.clock.seconds)

    def predict(self) -> None:
        for _ in self.view.repredict():
            pass

    def ask(self, owner: str, names: Sequence[str] = NAMES, namespace: str = "d") -> Scores:
        self.fresh()
        body = wire.names_body(names, asked(owner, namespace))
        return wire.scores(self.view.answer(body, self.clock.seconds)[0])

    def lived(self, owner: str, seconds: int, times: int = 2 * ENDED_MIN) -> None:
        """Let pods of a workload come and go."""
        for number in range(times):
            one = job(f"{owner}-{number}", owner, int(self.clock.seconds))
            self.view.changed(PODS, one)
            self.clock.seconds += seconds
            self.view.deleted(PODS, one.key)
        self.predict()


def full(program: Program) -> Program:
    """Fill a node with what nobody knows anything about."""
    program.view.changed(PODS, any_pod("filler", "n1", 4000, 0))
    return program


def by_fullness(program: Program) -> Scores:
    """Return what a pod gets that cannot be read, of a score that knows nothing of time."""
    return wire.scores(program.view.answer(wire.names_body(NAMES, b"{}"), NOW)[0])


def asked(owner: str, namespace: str) -> bytes:
    owners = [{"kind": "Job", "name": owner, "controller": True}]
    meta = {"name": "new", "namespace": namespace, "labels": {"a": "b"}, "ownerReferences": owners}
    return orjson.dumps({"metadata": meta, "spec": {"containers": [{"name": "main"}]}})


def job(name: str, owner: str, created: int, on: str = "n0", namespace: str = "d") -> Pod:
    return Pod(
        namespace=namespace,
        name=name,
        node=on,
        owner_kind="Job",
        owner_name=owner,
        created_seconds=created,
    )


def test_a_new_program_goes_by_how_full_nodes_are() -> None:
    new, packing = Program(), Program("pack")
    for one in (new, packing):
        one.view.replaced(PODS, [any_pod(f"p{n}", f"n{n}", 700 * n, 0) for n in range(6)])
        one.predict()
    assert new.ask("x") == by_fullness(packing)
    assert len(set(new.ask("x").values())) > 3


def test_nodes_that_are_there_anyway_come_first_the_one_that_is_empty_soonest_before_others() -> (
    None
):
    program = Program()
    program.lived("short", 300)
    program.lived("hour", HOUR)
    program.lived("day", 24 * HOUR)
    now = int(program.clock.seconds)
    for on, owner in (("n1", "short"), ("n2", "hour"), ("n3", "day"), ("n4", "never-seen")):
        program.view.changed(PODS, job(f"on-{on}", owner, now, on, "d"))
    program.view.changed(PODS, job("on-n5", "z", now, "n5", "other"))
    short, hour, day = (program.ask(owner) for owner in ("short", "hour", "day"))
    assert short["n1"] > short["n2"] >= short["n3"] >= short["n5"] > short["n0"]
    assert hour["n2"] > hour["n3"] >= hour["n5"] > hour["n1"] > hour["n0"]
    assert day["n3"] > day["n5"] > day["n2"] >= day["n1"] > day["n0"]


def test_what_passes_is_predicted_anew() -> None:
    program = Program()
    program.lived("day", 24 * HOUR)
    program.lived("job", 4 * HOUR)
    program.view.changed(PODS, job("old", "day", int(program.clock.seconds), "n1"))
    assert program.ask("job")["n1"] == 7
    program.clock.seconds += 23 * HOUR
    program.predict()
    assert program.ask("job")["n1"] == 10


def test_marked_nodes_come_last_whatever_is_expected() -> None:
    program = Program()
    program.lived("hour", HOUR)
    program.view.changed(PODS, job("on", "hour", int(program.clock.seconds), "n1"))
    assert program.ask("hour")["n1"] == 10
    program.view.changed(NODES, node("n1", labels={MARK_LABEL: "soft"}))
    scores = program.ask("hour")
    assert scores["n1"] <= SCORE_MARKED_SOFT_MAX < min(scores[name] for name in NAMES[2:])
    program.view.changed(NODES, node("n1"))
    assert program.ask("hour")["n1"] == 10


def test_a_namespace_moves_its_own_scores_alone() -> None:
    program, packing = full(Program()), full(Program("pack"))
    program.lived("short", 300)
    assert program.ask("short") != program.ask("short", namespace="other")
    assert program.ask("short", namespace="other") == by_fullness(packing)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"null",
        b'{"metadata":null}',
        b'{"metadata":{"name":7}}',
        b'{"metadata":{"ownerReferences":"x"}}',
        b'{"metadata":{"labels":{"a":1}}}',
    ],
)
def test_of_a_pod_that_cannot_be_read_nothing_is_expected(body: bytes) -> None:
    program, packing = full(Program()), full(Program("pack"))
    program.lived("short", 300)
    program.fresh()
    answer, known = program.view.answer(wire.names_body(NAMES, body), program.clock.seconds)
    assert known
    assert wire.scores(answer) == by_fullness(packing) != program.ask("short")


@pytest.mark.parametrize("years", [-5, 5])
def test_what_was_seen_by_a_clock_that_had_not_been_set_counts_no_more(years: int) -> None:
    program, packing = full(Program()), full(Program("pack"))
    program.lived("short", 300)
    assert program.ask("short") != by_fullness(packing)
    program.clock.seconds += years * 366 * 24 * HOUR
    program.predict()
    assert program.ask("short") == by_fullness(packing)
    program.lived("short", 300)
    assert program.ask("short") != by_fullness(packing)


def calls(act: Callable[[], object]) -> int:
    """Return how many functions are called meanwhile."""
    found = 0

    def look(_: object, event: str, __: Any) -> None:
        nonlocal found
        found += event == "call"

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        act()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("on", ["n0", "none"])
def test_a_pods_event_costs_the_same_however_many_are_on_its_node(on: str) -> None:
    """A virtual node has thousands, and who creates pods may bind any number to any name."""

    def coming_and_going(there: int) -> int:
        program = Program()
        program.lived("short", 300)
        program.ask("short")
        now = int(program.clock.seconds)
        for number in range(there):
            program.view.changed(PODS, job(f"p{number}", "short", now, on))
        one = job("one", "short", now, on)
        come = calls(lambda: program.view.changed(PODS, one))
        return come + calls(lambda: program.view.deleted(PODS, one.key))

    assert coming_and_going(500) < 2 * coming_and_going(5)


@pytest.mark.parametrize("seed", range(10))
def test_after_any_events_of_a_moment_it_is_what_a_new_list_says(seed: int) -> None:
    chance, program, living = random.Random(seed), Program(), dict[str, Pod]()
    for owner, seconds in (("short", 300), ("hour", HOUR), ("day", 24 * HOUR)):
        program.lived(owner, seconds)
    owners, now = ("short", "hour", "day", "never-seen"), int(program.clock.seconds)
    for owner in owners:
        program.ask(owner)  # the answers of each kind are kept from here on
    for number in range(100):
        happens, key = chance.choice(("comes", "goes", "again")), chance.choice([*living, ""])
        if not key or happens == "comes":
            on, created = chance.choice(NAMES[:3]), now - chance.choice((0, 600, 9 * HOUR))
            one = job(f"p{number}", chance.choice(owners), created, on)
        elif happens == "again":
            one = replace(living[key], node=chance.choice(NAMES), uid=str(number))
        else:
            program.view.deleted(PODS, living.pop(key).key)
            continue
        living[one.key] = one
        program.view.changed(PODS, one)
    found = [program.ask(owner) for owner in owners]
    program.view.replaced(PODS, living.values())
    assert [program.ask(owner) for owner in owners] == found


def test_a_node_that_is_not_known_is_scored_as_an_empty_one() -> None:
    program = Program()
    program.lived("short", 300)
    assert program.ask("short", ["n0", "unknown"])["unknown"] == program.ask("short")["n0"]


def test_who_is_not_in_a_new_list_has_ended() -> None:
    program = Program()
    now = int(program.clock.seconds)
    for number in range(ENDED_MIN):
        program.view.changed(PODS, job(f"p{number}", "x", now))
    program.clock.seconds += 300
    program.view.replaced(PODS, [])
    full(program).predict()
    assert program.ask("x") != by_fullness(full(Program("pack")))


def scores_of(watch: Watch, on: dict[str, list[Life]], owner: Life) -> dict[str, int]:
    """Return plainly what each node is scored for a pod that begins now."""

    def ends(life: Life, seconds: int) -> int:
        like = life._replace(created=watch.now - seconds)
        return span(watch.empty([like], EXPECTED)) if watch.like(like) else FAR

    def begun(life: Life) -> int:
        """Return the beginning of the step in which its age lies."""
        return max(one for one in BOUNDS if one <= aged(life.created, watch.now))

    mine = ends(owner, 0)
    return {
        name: score_lifetime(mine, max((ends(one, begun(one)) for one in lives), default=EMPTY))
        for name, lives in on.items()
    }


@pytest.mark.parametrize("seed", range(10))
def test_it_is_what_a_plain_one_scores_that_has_seen_the_same(seed: int) -> None:
    chance = random.Random(seed)
    program, lives, living = Program(), list[Life](), dict[str, tuple[Pod, Life]]()
    for number in range(150):
        now = int(program.clock.seconds)
        if living and chance.random() < 0.45:
            key = chance.choice(sorted(living))
            one, life = living.pop(key)
            lives.append(life._replace(ended=now))
            program.view.deleted(PODS, one.key)
        else:
            owner, on = chance.choice("xxy"), chance.choice(NAMES[1:])
            made = job(f"p{number}", owner, now, on)
            living[made.key] = made, Life("d", "Job", owner, now, None)
            program.view.changed(PODS, made)
        if chance.random() < 0.2:
            program.predict()
            program.ask(chance.choice("xy"))
        program.clock.seconds += chance.choice((5, 60, 900))
    program.predict()
    now = int(program.clock.seconds)
    watch = Watch([*lives, *(life for _, life in living.values())], NOW, now)
    there = {name: [life for one, life in living.values() if one.node == name] for name in NAMES}
    for owner in "xy":
        assert program.ask(owner) == scores_of(watch, there, Life("d", "Job", owner, now, None))


def test_every_score_goes_by_how_full_nodes_are_where_nothing_is_known() -> None:
    assert SCORES["lifetime"].of is SCORES["pack"].of
