"""The Pod Security Standard `restricted`, and further restrictions of the manifests."""

import pytest

from tests.manifests.kustomize import Json, containers, of_kind, render, templates
from tests.manifests.test_objects import EVERYTHING

VOLUMES_ALLOWED = {"configMap", "emptyDir", "projected", "secret"}
HOST_FIELDS = {"hostNetwork", "hostPID", "hostIPC", "hostUsers"}


@pytest.fixture(params=EVERYTHING, ids=lambda name: name or "base")
def objects(request: pytest.FixtureRequest) -> list[Json]:
    return render(request.param)


def test_pods_are_restricted(objects: list[Json]) -> None:
    for template in templates(objects):
        spec = template["spec"]
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert not HOST_FIELDS & set(spec)
        assert "initContainers" not in spec
        for volume in spec["volumes"]:
            assert set(volume) - {"name"} <= VOLUMES_ALLOWED


def test_containers_are_restricted(objects: list[Json]) -> None:
    for container in containers(objects):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert all("hostPort" not in port for port in container["ports"])
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert all(mount.get("readOnly") for path, mount in mounts.items() if path != "/tmp")


def test_containers_have_memory_limits(objects: list[Json]) -> None:
    """The webhook has no view of the cluster; its limit is for requests in progress."""
    most = {"ebb-controller": "2Gi", "ebb-webhook": "512Mi", "ebb-extender": "1Gi"}
    for container in containers(objects):
        assert container["resources"]["limits"] == {"memory": most[container["command"][0]]}


def test_secrets_are_only_in_memory_volumes(objects: list[Json]) -> None:
    for template in templates(objects):
        for volume in template["spec"]["volumes"]:
            if "emptyDir" in volume:
                assert volume["name"] == "tmp"
                assert volume["emptyDir"]["medium"] == "Memory"
                assert volume["emptyDir"]["sizeLimit"]
            if "secret" in volume:
                assert volume["secret"]["defaultMode"] == 0o440


def test_pods_tolerate_control_plane_and_terminate_in_30_seconds(objects: list[Json]) -> None:
    for template in templates(objects):
        spec = template["spec"]
        assert spec["priorityClassName"] == "system-cluster-critical"
        assert spec["terminationGracePeriodSeconds"] == 30
        assert spec["tolerations"] == [
            {
                "key": "node-role.kubernetes.io/control-plane",
                "operator": "Exists",
                "effect": "NoSchedule",
            }
        ]


def test_services_are_not_exposed_externally(objects: list[Json]) -> None:
    for service in of_kind(objects, "Service"):
        assert service["spec"].get("type", "ClusterIP") == "ClusterIP"
        assert not {"externalIPs", "loadBalancerIP"} & set(service["spec"])
