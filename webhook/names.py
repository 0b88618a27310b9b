"""Define the names of the webhook's objects in the cluster, as in manifests/."""

from typing import Final

SERVICE: Final = "ebb-webhook"
SECRET: Final = "ebb-webhook-certs"  # noqa: S105 the name of one
REGISTRATION: Final = "ebb-webhook"
"""Name of the MutatingWebhookConfiguration."""
REPORTING: Final = "kube-ebb.io/webhook"
"""The reportingController of the webhook's Events."""


def server_names(namespace: str) -> tuple[str, ...]:
    """Return the DNS names and IP addresses for the webhook's serving certificate.

    *namespace*: namespace of Ebb. The API server uses the names of the Service; loopback is for
    port-forwarding.
    """
    service = f"{SERVICE}.{namespace}"
    return (SERVICE, service, f"{service}.svc", f"{service}.svc.cluster.local",
            "localhost", "127.0.0.1")  # fmt: skip
