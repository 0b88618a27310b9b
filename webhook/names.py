"""What the webhook's objects in the cluster are called; manifests/ says the same."""

from typing import Final

NAMESPACE: Final = "ebb-system"
"""Where the program runs, unless POD_NAMESPACE says otherwise."""
SERVICE: Final = "ebb-webhook"
LEASE: Final = "ebb-webhook"
SECRET: Final = "ebb-webhook-certs"  # noqa: S105 the name of one
REGISTRATION: Final = "ebb-webhook"
"""The MutatingWebhookConfiguration."""


def server_names(namespace: str) -> tuple[str, ...]:
    """Return what callers call the server: the API server by the Service, people by loopback."""
    service = f"{SERVICE}.{namespace}"
    return (SERVICE, service, f"{service}.svc", f"{service}.svc.cluster.local",
            "localhost", "127.0.0.1")  # fmt: skip
