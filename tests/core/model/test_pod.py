"""Find the workload that a pod belongs to."""

import pytest

from core.model.pod import Pod, Workload, workload_of


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
def test_workload_is_read_from_owner_and_template_hash(
    kind: str, owner: str, template: str | None, name: str
) -> None:
    labels = {"pod-template-hash": template} if template else {}
    owned_pod = Pod(namespace="d", name="p", owner_kind=kind, owner_name=owner, labels=labels)
    assert workload_of(owned_pod) == Workload("d", kind, name)
