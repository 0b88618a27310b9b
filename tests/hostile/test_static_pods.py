"""Mirror pods with many affinity terms, which a kubelet creates in the namespace of a tenant."""

from typing import Any

import orjson
import pytest

from tests.hostile.clusters import Watched, judged, written
from tests.hostile.objects import HOME, REQUIRED, TAME, Json, pod

TERMS = 64
"""Maximum number of affinity terms of a pod."""


def apart(labels: list[str]) -> Json:
    """Return anti-affinity to pods with these labels."""
    terms = [
        {"topologyKey": "n", "labelSelector": {"matchLabels": {"app": label}}} for label in labels
    ]
    return {"affinity": {"podAntiAffinity": {REQUIRED: terms}}}


def with_terms() -> list[tuple[str, bytes]]:
    """Return the tame cluster, with pods that have terms of their own."""
    own = [
        pod(f"own{n}", f"n{n % 3}", spec={**_spec(f"n{n % 3}"), **apart([f"own{n}"])})
        for n in range(9)
    ]
    return written((*TAME, *own))


def _spec(on: str) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {}}], "nodeName": on}


def attack(count: int) -> list[tuple[str, bytes]]:
    """Return mirror pods of the node HOME in the tame namespace, each with terms of its own."""
    found = []
    for number in range(count):
        terms = apart([f"t{number}-{n}" for n in range(TERMS)])
        mirror = pod(
            f"mirror{number}",
            HOME,
            metadata={"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": []},
            spec={**_spec(HOME), **terms},
        )
        found.append(("Pod", orjson.dumps(mirror)))
    return found


@pytest.mark.parametrize("count", [20, 300])
def test_mirror_pods_take_no_marks_from_other_nodes(count: int) -> None:
    before, after = Watched(), Watched()
    before.list(with_terms())
    after.list([*with_terms(), *attack(count)])
    plan, told = judged(before.cluster())
    attacked, told_then = judged(after.cluster())
    assert [one.node for one in attacked.removals] == [one.node for one in plan.removals]
    assert plan.removals
    assert {k: v for k, v in told_then.items() if k != HOME} == {
        k: v for k, v in told.items() if k != HOME
    }


def test_pods_of_the_namespace_are_evaluated_all_the_same() -> None:
    watched = Watched()
    watched.list([*with_terms(), *attack(300)])
    pods = watched.cluster().pods
    tame = [one for one in pods if one.namespace == "tame" and not one.mirror]
    assert any(
        "that the static pods of all nodes share" in one.too_much for one in pods if one.mirror
    )
    assert len(tame) > 9
    assert [one.name for one in tame if one.too_much] == []
