"""Define the names of the controller's objects in the cluster, as in manifests/."""

from typing import Final

LEASE: Final = "ebb-controller"
REPORTING: Final = "kube-ebb.io/controller"
"""The reportingController of the controller's Events."""
