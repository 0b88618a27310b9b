"""Names of the webhook's objects in the cluster; manifests/ has the same names."""

from typing import Final

SERVICE: Final = "ebb-webhook"
SECRET: Final = "ebb-webhook-certs"  # noqa: S105 the name of one
REGISTRATION: Final = "ebb-webhook"
"""The MutatingWebhookConfiguration."""
REPORTING: Final = "kube-ebb.io/webhook"
"""The reportingController of the webhook's Events."""


def server_names(namespace: str) -> tuple[str, ...]:
    """Return what callers call the server: the API server by the Service, people by loopback."""
    service = f"{SERVICE}.{namespace}"
    return (SERVICE, service, f"{service}.svc", f"{service}.svc.cluster.local",
            "localhost", "127.0.0.1")  # fmt: skip
