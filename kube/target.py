"""The API server that a client calls, and the namespace of the objects of Ebb's programs."""

from typing import Any, Final, NamedTuple

NAMESPACE: Final = "ebb-system"
"""Default namespace of the programs; POD_NAMESPACE overrides it.

The `names.py` of each program has the names of its objects."""


class Overrides(NamedTuple):
    """Options of a command line that replace a part of the kubeconfig or a default."""

    user: str | None = None
    """User to impersonate."""
    groups: tuple[str, ...] = ()
    """Groups to impersonate; they need a user."""
    request_seconds: float | None = None
    """Timeout of each call; 0 means five minutes, None the default."""
    cluster_entry: str | None = None
    """Entry of the kubeconfig's clusters that replaces that of the context."""
    user_entry: str | None = None
    """Entry of the kubeconfig's users that replaces that of the context."""

    def as_user(self) -> dict[str, Any]:
        """Return the impersonation as fields of a kubeconfig's user; empty without a user."""
        return {} if self.user is None else {"as": self.user, "as-groups": list(self.groups)}


class Target(NamedTuple):
    """The API server that a client calls, for messages."""

    server: str
    """URL of the API server."""
    context: str = ""
    """Name of the context; empty inside a cluster."""
    cluster: str = ""
    """Name of the cluster in the kubeconfig; empty inside a cluster."""

    def __str__(self) -> str:
        """Return the name of the cluster, with the context if it has another name.

        Inside a cluster, return the URL of the API server.
        """
        if not self.context:
            return self.server
        return (
            self.cluster
            if self.context == self.cluster
            else (f"{self.cluster} (context {self.context})")
        )
