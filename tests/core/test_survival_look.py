"""When nodes are empty, by one look: of ends it shows those of finished pods alone."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from core.model.pod import Pod
from core.model.workload import Workload
from core.survival.left import EARLY, EXPECTED, LATE, Left
from core.survival.look import Emptying, End, emptying
from core.survival.seen import ENDED_MIN
from tests.support.reference_survival import MUTANTS_OF_LOOKS, Life, Watch

HOUR, DAY = 3600, 86_400
NOW = 1_800_000_000
MANY = ENDED_MIN + 1
"""Ends that suffice in a look: the first is where it begins."""
NODES = tuple(f"n{number}" for number in range(30))
KEEPERS = ("ReplicaSet", "StatefulSet", "ReplicationController")


def pod(life: Life, number: int, node: str = "n") -> Pod:
    return Pod(
        namespace=life.namespace,
        name=f"p{number}",
        node=node,
        owner_kind=life.kind,
        owner_name=life.name,
        created_seconds=life.created,
    )


def batch(**other: Any) -> Pod:
    return replace(pod(Life("a", "Job", "x", NOW - HOUR, None), 0), **other)


def ends(many: int, *, lived: int = HOUR, **other: Any) -> list[End]:
    """Return pods that finished one after the other, each a minute younger."""
    return [
        End(
            batch(name=f"e{number}", created_seconds=NOW - DAY + 60 * number, **other),
            NOW - DAY + 60 * number + lived,
        )
        for number in range(many)
    ]


def of_n(pods: Iterable[Pod], found: Iterable[End]) -> Emptying:
    return emptying(["n"], list(pods), found, NOW)["n"]


OF_X = (Workload("a", "Job", "x"),)
OF_Y = (Workload("a", "Job", "y"),)
OF_WEB = (Workload("a", "ReplicaSet", "x"),)
WEB: Any = {"owner_kind": "ReplicaSet"}
WEBS = [end._replace(pod=replace(end.pod, **WEB)) for end in ends(MANY)]
DAEMON = batch(name="d", daemon=True)


@pytest.mark.parametrize(
    ("pods", "found", "told"),
    [
        ([], [], Emptying(Left(0, 0, 0))),
        ([DAEMON], [], Emptying(Left(0, 0, 0))),
        ([batch()], [], Emptying(None, OF_X)),
        ([batch()], ends(MANY - 1), Emptying(None, OF_X)),
        ([batch()], ends(MANY, lived=2 * HOUR), Emptying(Left(2943, 3935, 4479))),
        ([batch(), batch(name="o", owner_name="y")], [], Emptying(None, (*OF_X, *OF_Y))),
        ([batch(), DAEMON], ends(MANY, namespace="b"), Emptying(None, OF_X)),
        ([batch(created_seconds=None)], ends(MANY), Emptying(None, OF_X)),
        ([batch(**WEB)], WEBS, Emptying(None, OF_WEB)),
        ([batch(node="other")], ends(MANY), Emptying(Left(0, 0, 0))),
        ([batch(node=None)], ends(MANY), Emptying(Left(0, 0, 0))),
    ],
    ids=range(11),
)  # fmt: skip
def test_when_a_node_is_empty(pods: list[Pod], found: list[End], told: Emptying) -> None:
    assert of_n(pods, found) == told


def test_a_node_that_is_not_there_is_empty() -> None:
    assert emptying(["x"], [batch()], (), NOW) == {"x": Emptying(Left(0, 0, 0))}


def test_who_says_that_a_pod_ended_tomorrow_says_that_it_ended_now() -> None:
    later = [end._replace(at_seconds=end.at_seconds + 2 * DAY) for end in ends(MANY)]
    first, *others = ends(MANY)
    now = [first, *(end._replace(at_seconds=NOW) for end in others)]
    assert of_n([batch()], [first, *later[1:]]) == of_n([batch()], now)


def test_a_kubelet_moves_its_own_namespaces_alone() -> None:
    three = zip(ends(3, namespace="b"), (0, NOW, 10**15), strict=True)
    odd = [end._replace(at_seconds=at) for end, at in three]
    assert of_n([batch()], ends(MANY)) == of_n([batch()], [*odd, *ends(MANY)])


def drawn(seed: int) -> Watch:
    """Draw what one look shows: two namespaces, three workloads, what ended in the last hours."""
    chance = random.Random(seed)
    since = NOW - chance.choice((HOUR, 6 * HOUR, 3 * DAY))
    lives = []
    for _ in range(chance.choice((10, 60, 160))):
        created = chance.randrange(since - chance.choice((1, DAY, 30 * DAY)), NOW)
        ended = created + round(chance.expovariate(1 / chance.choice((300, HOUR, DAY))))
        if ended > since:
            kind = chance.choice(("Job", "Job", "ReplicaSet"))
            lives.append(
                Life(
                    chance.choice("ab"),
                    kind,
                    chance.choice("xxxxyz"),
                    created,
                    ended if ended < NOW else None,
                )
            )
    return Watch(lives, None, NOW)


def told(watch: Watch) -> list[Left | None]:
    pods, over = [], []
    for number, life in enumerate(watch.lives):
        one = pod(life, number, NODES[number % len(NODES)])
        if life.ended is None:
            pods.append(one)
        else:
            over.append(End(one, life.ended))
    random.Random(len(pods)).shuffle(over)
    return [one.left for one in emptying(NODES, pods, over, NOW).values()]


def plainly(watch: Watch, mutant: str = "") -> list[Left | None]:
    keepers = () if mutant == "counts keepers" else KEEPERS
    known = [life for life in watch.lives if life.ended is None or life.kind not in keepers]
    plain = Watch(known, None, NOW, mutant)
    found: list[Left | None] = []
    for number in range(len(NODES)):
        ours = [one for one in watch.lives[number :: len(NODES)] if one.ended is None]
        if any(plain.like(one) is None for one in ours):
            found.append(None)
        elif ours:
            found.append(Left(*(plain.empty(ours, share) for share in (EARLY, EXPECTED, LATE))))
        else:
            found.append(Left(0, 0, 0))
    return found


SEEDS = 30


@pytest.mark.parametrize("seed", range(SEEDS))
def test_it_is_what_the_plain_one_finds(seed: int) -> None:
    watch = drawn(seed)
    assert told(watch) == plainly(watch)


def test_something_is_known_in_some_of_them_and_in_others_not() -> None:
    found = [one for seed in range(SEEDS) for one in told(drawn(seed))]
    assert 100 < sum(one is None for one in found) < len(found) - 100


@pytest.mark.parametrize("mutant", MUTANTS_OF_LOOKS)
def test_the_comparison_notices(mutant: str) -> None:
    assert any(told(watch) != plainly(watch, mutant) for watch in map(drawn, range(SEEDS))), (
        f"nothing notices: {mutant}"
    )
