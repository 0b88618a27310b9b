"""Define the names of the controller's objects in the cluster, as in manifests/."""

from typing import Final

LEASE: Final = "ebb-controller"
DEPLOYMENT: Final = "ebb-controller"
CONFIG_MAP: Final = "ebb-config"
CONFIG_KEY: Final = "config.yaml"
"""Key of the configuration in the data of the ConfigMap."""
REPORTING: Final = "kube-ebb.io/controller"
"""The reportingController of the controller's Events."""
