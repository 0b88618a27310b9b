"""Name the API server that a client calls."""

from typing import NamedTuple


class Target(NamedTuple):
    """The API server that a client calls, for messages."""

    server: str
    """URL of the API server."""
    context: str = ""
    """Name of the context; empty inside a cluster."""
    cluster: str = ""
    """Name of the cluster in the kubeconfig; empty inside a cluster."""

    def __str__(self) -> str:
        """Return the name of the cluster, and of the context if it has another name."""
        if not self.context:
            return self.server
        return (
            self.cluster
            if self.context == self.cluster
            else (f"{self.cluster} (context {self.context})")
        )
