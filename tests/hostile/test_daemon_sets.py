"""Soften NoSchedule marks to PreferNoSchedule when a new DaemonSet does not tolerate them."""

from typing import Any, cast

import orjson
import pytest

from controller.metrics import Metrics
from controller.reconciler import Reconciler
from core.marks.mark import PROTECTED_WHILE_MARKED, Details, encode_details
from core.marks.wellknown import (
    DETAILS_ANNOTATION,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.writes.write import WriteKind
from tests.hostile.clusters import CONFIG, NOW, Watched, written
from tests.hostile.objects import TAME, Json, node, pod

DETAILS = Details(since=NOW, deadline=NOW + 3600, owner="o", policy="p", reason="r")
NO_SCHEDULE = node(
    "marked",
    metadata={
        "name": "marked",
        "labels": {MARK_LABEL: "NoSchedule", "n": "marked"},
        "annotations": {
            DETAILS_ANNOTATION: encode_details(DETAILS),
            SCALE_DOWN_DISABLED_ANNOTATION: "true",
            PROTECTION_ANNOTATION: PROTECTED_WHILE_MARKED,
        },
    },
    spec={"taints": [{"key": TAINT_KEY, "value": str(NOW), "effect": "NoSchedule"}]},
)


def agent(**spec: Any) -> bytes:
    """Return a DaemonSet."""
    found: Json = {"metadata": {"name": "agent", "namespace": "tame"}}
    return orjson.dumps({**found, "spec": {"template": {"spec": spec}}})


def is_softened(watched: Watched, controller: Reconciler, at: int) -> bool:
    writes = controller.evaluate(watched.cluster(), at).writes
    return any(
        one.kind is WriteKind.SET_PREFER_NO_SCHEDULE for one in writes if one.key == "marked"
    )


@pytest.mark.parametrize(
    ("spec", "softened"),
    [
        ({}, True),
        ({"nodeSelector": {"n": "marked"}}, True),
        ({"nodeSelector": {"n": "n1"}}, False),
        ({"tolerations": [{"operator": "Exists"}]}, False),
    ],
)
def test_mark_softens_when_a_daemonset_without_toleration_is_created(
    spec: Json, *, softened: bool
) -> None:
    others = [one for one in TAME if one["metadata"]["name"] != "marked"]
    watched = Watched()
    watched.list(written([*others, NO_SCHEDULE, pod("stays", "marked")]))
    controller = Reconciler(CONFIG, cast("Any", None), owner="o", metrics=Metrics())
    # A new leader changes marks to PreferNoSchedule until it has observed for some minutes.
    before = [is_softened(watched, controller, NOW + turn * 1000) for turn in range(3)]
    assert not before[-1]
    assert watched.event("DaemonSet", agent(**spec))
    assert is_softened(watched, controller, NOW + 3001) is softened
