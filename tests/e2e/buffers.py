"""The CRD of CapacityBuffers, which an autoscaler installs on real clusters."""

from kube.decode.kinds import BUFFERS
from tests.e2e.api import Api, Json, RefusedError
from tests.e2e.plane import Plane, until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "autoscaling.x-k8s.io"
NAME = f"{BUFFERS.resource}.{GROUP}"
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
VERSIONS: list[Json] = [
    {
        "name": name,
        "served": True,
        "storage": name == "v1beta1",
        "schema": {"openAPIV3Schema": OPEN},
        "subresources": {"status": {}},
    }
    for name in ("v1beta1", "v1alpha1")
]
DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": NAME,
        "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
    },
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {
            "plural": BUFFERS.resource,
            "singular": "capacitybuffer",
            "kind": BUFFERS.name,
            "listKind": "CapacityBufferList",
        },
        "versions": VERSIONS,
    },
}
"""The CRD with an open schema, so that Ebb must handle anything that is stored."""


def define(plane: Plane) -> None:
    """Install the CRD if it is missing, and wait until it is served."""
    if not plane.kubectl("get", "crd", NAME, "--ignore-not-found"):
        plane.api.create(DEFINITIONS, DEFINITION)
    plane.kubectl("wait", "--for=condition=Established", f"crd/{NAME}")
    until(lambda: _served(plane.api), "CapacityBuffers are served")


def _served(api: Api) -> bool:
    try:
        api.get(BUFFERS.path)
    except RefusedError:
        return False
    return True
