"""Plan randomly mutated clusters: there is no exception, and every node gets a verdict."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from core.model.errors import InvalidInputError
from kube.cluster_kinds import BY_NAME
from tests.hostile.clusters import Watched, dumped, judged, written
from tests.hostile.objects import TAME, Json
from tests.support.examples import examples

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["evil", "n0", "n1", "a", "web", "tame", "-1", "1e3", "9" * 40, "Always", "In", "NoSchedule"]
)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) in a document."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    found: list[tuple[Any, Any]] = []
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            found += _places(value[key])
    return found


@st.composite
def mutated(draw: st.DrawFn) -> list[Json]:
    """Draw the tame cluster with a few values replaced, moved, added or deleted."""
    objects = deepcopy(list(TAME))
    for _ in range(draw(st.integers(1, 8))):
        victim = draw(st.sampled_from(objects))
        kind = victim["kind"]
        holder, key = draw(st.sampled_from(_places(victim)))
        match draw(st.sampled_from(["junk", "other", "gone", "more"])):
            case "junk":
                holder[key] = draw(JUNK)
            case "other":  # a value of another place
                there, other = draw(st.sampled_from(_places(draw(st.sampled_from(objects)))))
                holder[key] = deepcopy(there[other])
            case "gone":
                del holder[key]
            case _:
                if isinstance(holder[key], dict):
                    holder[key][draw(TEXT)] = draw(JUNK)
                elif isinstance(holder[key], list):
                    holder[key] += holder[key] * 2
        victim["kind"] = kind
    return objects


@pytest.mark.law
@settings(
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(mutated())
def test_pass_succeeds_on_any_mutated_cluster(objects: list[Json]) -> None:
    raw = written(objects)
    watched = Watched()
    watched.list(raw)
    cluster = watched.cluster()
    judged(cluster)
    try:
        found = dumped(raw)
    except InvalidInputError as fault:
        # A file can contain two objects with one name; an API server cannot.
        assert "occurs more than once in the input" in str(fault)  # noqa: PT017 either way is right
    else:
        assert [node.name for node in found.nodes] == [node.name for node in cluster.nodes]


@settings(max_examples=max(20, examples(5)))
@given(mutated(), mutated())
def test_watch_events_yield_same_cluster_as_list(before: list[Json], after: list[Json]) -> None:
    """Watch events of the changed objects, compared with a list of them."""
    names = [[one.get("metadata") for one in objects] for objects in (before, after)]
    assume(all(isinstance(meta, dict) for metas in names for meta in metas))
    tame = [one["metadata"].get("name") for one in TAME]
    spaces = [one["metadata"].get("namespace") for one in TAME]
    for metas in names:
        assume([meta.get("name") for meta in metas if meta] == tame)
        assume([meta.get("namespace") for meta in metas if meta] == spaces)
    listed, watched = Watched(), Watched()
    listed.list(written(after))
    watched.list(written(before))
    for kind, raw in written(after):
        assert kind in BY_NAME
        watched.event(kind, raw)
    assert watched.cluster() == listed.cluster()
