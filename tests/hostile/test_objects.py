"""One hostile object in a well-formed cluster must not change the verdicts of other nodes."""

from functools import cache

import orjson
import pytest

from core.engine.plan import Plan
from core.model.errors import InvalidInputError
from tests.hostile.clusters import Watched, dumped, judged, written
from tests.hostile.objects import HOME, HOSTILE, TAME, Hostile

TAME_BYTES = written(TAME)
STRANGE = frozenset({"evil", HOME})
"""Nodes whose own verdict a hostile object may change."""


@cache
def without() -> tuple[Plan, dict[str, str]]:
    found = Watched()
    found.list(TAME_BYTES)
    return judged(found.cluster())


def _others(told: dict[str, str]) -> dict[str, str]:
    return {name: said for name, said in told.items() if name not in STRANGE}


def test_tame_cluster_has_removals_and_pending_pods() -> None:
    plan, told = without()
    assert plan.removals
    assert plan.pending
    assert len(told) == 7


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda one: f"{one.kind} {one.name}")
def test_hostile_object_does_not_change_verdicts_of_other_nodes(hostile: Hostile) -> None:
    found, watched = Watched(), Watched()
    found.list([*TAME_BYTES, (hostile.kind, hostile.raw)])
    _, told = judged(found.cluster())
    if hostile.alone:
        assert _others(told) == _others(without()[1])
    watched.list(TAME_BYTES)
    if watched.event(hostile.kind, hostile.raw):
        assert watched.cluster() == found.cluster(), "the watch tells what the list tells"
    try:
        assert dumped([*TAME_BYTES, (hostile.kind, hostile.raw)]) == found.cluster()
    except InvalidInputError as fault:
        # A file that is not JSON is rejected as a whole; no API server sends such an object.
        with pytest.raises(orjson.JSONDecodeError):
            orjson.loads(hostile.raw)
        assert "is not complete, valid JSON" in str(fault)  # noqa: PT017 either way is right
