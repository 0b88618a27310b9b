"""The values of the options that select a cluster; needs neither settings nor decoders."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from core.model.errors import InvalidInputError
from kube.target import Overrides

IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
"""Environment variable that every container in a cluster has."""
Environment = Mapping[str, str]


class ClusterOptions(NamedTuple):
    """The values of the options that select a cluster and its configuration."""

    from_file: Sequence[str]
    kubeconfig: str | None
    contexts: Sequence[str]
    """Contexts of the kubeconfig; none: its current context."""
    ebb_namespace: str
    config: str | None
    policy: str | None
    """Policy that replaces the configured one; None if the command has no such option."""
    overrides: Overrides
    """Options that replace parts of the kubeconfig."""
    setup: bool = False
    """The command also needs the setup around Ebb."""

    @property
    def live_only(self) -> list[str]:
        """Return the given options that only a live cluster has."""
        options = (
            ("--kubeconfig", self.kubeconfig),
            ("--context", self.contexts),
            ("--cluster", self.overrides.cluster_entry),
            ("--user", self.overrides.user_entry),
            ("--as", self.overrides.user),
            ("--request-timeout", self.overrides.request_seconds),
        )
        return [name for name, given in options if given]


def kubeconfig_of(
    given: str | None, environment: Environment, alternatives: str = ""
) -> str | None:
    """Return the kubeconfig path, or several paths as in $KUBECONFIG; None for in-cluster access.

    *alternatives* is text about alternatives for the error message.
    Raises: InvalidInputError if there is no kubeconfig and no in-cluster access.
    """
    if named := given or environment.get("KUBECONFIG", ""):
        return named
    default_path = Path(environment.get("HOME", "/nowhere"), ".kube", "config")
    if default_path.is_file():
        return str(default_path)
    if environment.get(IN_CLUSTER):
        return None
    raise InvalidInputError(
        "no cluster",
        f"there is no --kubeconfig, no $KUBECONFIG, no {default_path} and no in-cluster access"
        f"{alternatives}",
    )
