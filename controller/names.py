"""Define the names of the controller's objects in the cluster, as in manifests/."""

from typing import Final

LEASE: Final = "ebb-controller"
CONFIG_MAP: Final = "ebb-config"
CONFIG_KEY: Final = "config.yaml"
"""Key of the configuration in the data of the ConfigMap."""
TODAY: Final = "ebb-today"
HISTORY: Final = "ebb-history"
"""Names of the ConfigMaps with the figures of days (core.history)."""
REPORTING: Final = "kube-ebb.io/controller"
"""The reportingController of the controller's Events."""
