"""Whose pod it is."""

import pytest

from core.model.pod import Pod
from core.model.workload import Workload, workload_of


@pytest.mark.parametrize(
    ("kind", "owner", "template", "name"),
    [
        ("ReplicaSet", "web-6d4cf56db6", "6d4cf56db6", "web"),
        ("ReplicaSet", "web-6d4cf56db6", None, "web-6d4cf56db6"),
        ("ReplicaSet", "web-6d4cf56db6", "other", "web-6d4cf56db6"),
        ("ReplicaSet", "web-28473920", None, "web-28473920"),
        ("StatefulSet", "db-1", None, "db-1"),
    ],
)
def test_pods_that_are_made_alike_are_of_one_workload(
    kind: str, owner: str, template: str | None, name: str
) -> None:
    labels = {"pod-template-hash": template} if template else {}
    one = Pod(namespace="d", name="p", owner_kind=kind, owner_name=owner, labels=labels)
    assert workload_of(one) == Workload("d", kind, name)
