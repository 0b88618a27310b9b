"""Objects because of which a pod must not lose its label: the traps, one row for each."""

from typing import Any

import pytest

from core.model.constraints import NO_POD, PodSelector, Requirement
from core.moves.selecting import SelectingObject, SelectingObjects, selecting_blockers
from tests.support.surge import make_pod

POD = make_pod("old", of="web-5d8f", labels={"app": "web", "pod-template-hash": "5d8f"})


def labeled(**labels: str) -> PodSelector:
    """Return a selector of pods with these labels; `hash` is the label pod-template-hash."""
    return PodSelector(
        None,
        tuple(
            Requirement("pod-template-hash" if key == "hash" else key, "In", (value,))
            for key, value in labels.items()
        ),
    )


OWN = SelectingObject("ReplicaSet", "web-5d8f", (labeled(app="web", hash="5d8f"),))
OLD = SelectingObject("ReplicaSet", "web-77aa", (labeled(app="web", hash="77aa"),))


def codes(
    *, controllers: tuple[SelectingObject, ...] = (), observers: tuple[SelectingObject, ...] = ()
) -> list[tuple[str, str]]:
    found = selecting_blockers(POD, SelectingObjects((OWN, OLD, *controllers), observers))
    return [(blocker.code, blocker.about) for blocker in found]


@pytest.mark.parametrize(
    ("kind", "selector", "adopts"),
    [
        pytest.param("DaemonSet", labeled(app="web"), True, id="DaemonSet with equal selector"),
        pytest.param("ReplicaSet", labeled(app="web"), True, id="bare ReplicaSet, 0 replicas too"),
        pytest.param(
            "ReplicaSet", labeled(app="web", hash="5d8f"), True, id="Deployment of equal template"
        ),
        pytest.param("ReplicationController", labeled(app="web"), True, id="controller"),
        pytest.param("DaemonSet", PodSelector(None, ()), True, id="selects all pods"),
        pytest.param(
            "DaemonSet",
            PodSelector(None, (Requirement("pod-template-hash", "DoesNotExist", ()),)),
            True,
            id="selects pods without the label",
        ),
        pytest.param("DaemonSet", labeled(app="agent"), False, id="other pods"),
        pytest.param("ReplicaSet", labeled(app="web", hash="9"), False, id="another hash"),
        pytest.param("ReplicationController", NO_POD, False, id="no pods"),
    ],
)
def test_pod_is_not_moved_when_another_controller_would_adopt_it(
    kind: str, selector: PodSelector, *, adopts: bool
) -> None:
    found = codes(controllers=(SelectingObject(kind, "other", (selector,)),))
    assert found == ([("surge-other-controller", "other")] if adopts else [])


def test_controller_of_another_kind_with_the_name_of_the_replica_set_is_another() -> None:
    twin = SelectingObject("DaemonSet", "web-5d8f", (labeled(app="web"),))
    assert codes(controllers=(twin,)) == [("surge-other-controller", "web-5d8f")]


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "NetworkPolicy"])
@pytest.mark.parametrize(
    ("selectors", "selects_on_hash"),
    [
        pytest.param([labeled(app="web")], False, id="usual"),
        pytest.param([labeled(app="web", hash="5d8f")], True, id="the hash of the pod"),
        pytest.param([labeled(app="web", hash="77aa")], False, id="another hash"),
        pytest.param(
            [PodSelector(None, (Requirement("pod-template-hash", "Exists", ()),))], True, id="any"
        ),
        pytest.param(
            [PodSelector(None, (Requirement("pod-template-hash", "NotIn", ("5d8f",)),))],
            True,
            id="all but the hash",
        ),
        pytest.param([labeled(app="web"), labeled(hash="5d8f")], True, id="second selector"),
        pytest.param([], False, id="no selector"),
    ],
)
def test_pod_is_not_moved_when_an_object_selects_on_its_hash(
    kind: str, selectors: Any, *, selects_on_hash: bool
) -> None:
    found = codes(observers=(SelectingObject(kind, "canary", tuple(selectors)),))
    assert found == ([("surge-hash-selected", "canary")] if selects_on_hash else [])
