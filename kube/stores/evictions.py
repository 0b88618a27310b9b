"""Evict pods with the eviction subresource of the API server. Source: k8s.io/api policy/v1."""

from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from core.model.errors import ConflictError, UnavailableError
from core.model.pod import Pod
from kube.client import ApiError, Client
from kube.decode.kinds import BUDGETS
from kube.stores.access_review import EVICT_PODS, is_allowed, list_access

CALL_SECONDS_MAX: Final = 10.0


class EvictionResult(StrEnum):
    """The result of a request to evict a pod; a label of a metric."""

    EVICTED = "evicted"
    GONE = "gone"
    """The pod no longer exists (404), or another pod has its name (409). A webhook can deny an
    eviction with the same codes."""
    REFUSED = "refused"
    """A PodDisruptionBudget, a webhook or an overloaded API server rejected the eviction."""
    ERROR = "error"
    """The API server did not answer; the pod may be evicted or not."""


class EvictionAnswer(NamedTuple):
    """The result of an eviction, the error message, and the pause before a retry."""

    result: EvictionResult
    why: str = ""
    """Error message; empty for an evicted pod."""
    retry_after_seconds: int = 0
    """Pause that the API server requires before a retry."""


class Evictions(Protocol):
    """An interface for evicting pods; EvictionStore and the simulation implement it."""

    async def evict(self, pod: Pod) -> EvictionAnswer:
        """Evict a pod, with its own grace period, unless another pod has its name now.

        Every failure is a result; nothing is raised.
        """

    async def allowed(self) -> bool:
        """Return whether RBAC allows evictions in all namespaces. Raises: UnavailableError."""


class EvictionStore:
    """Evicts pods with the eviction subresource of the API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def evict(self, pod: Pod) -> EvictionAnswer:
        """Evict a pod, with its own grace period, unless another pod has its name now.

        Every failure of the request is a result; nothing is raised.
        """
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        try:
            await self._client.ask(
                "POST", path, _eviction(pod), seconds_max=CALL_SECONDS_MAX, tries_max=1
            )
        except ConflictError as fault:
            return EvictionAnswer(EvictionResult.GONE, str(fault))
        except ApiError as fault:
            if fault.status == 404:
                return EvictionAnswer(EvictionResult.GONE, str(fault))
            return EvictionAnswer(
                EvictionResult.REFUSED, str(fault), int(fault.retry_after_seconds or 0)
            )
        except UnavailableError as fault:
            return EvictionAnswer(EvictionResult.ERROR, str(fault))
        return EvictionAnswer(EvictionResult.EVICTED)

    async def allowed(self) -> bool:
        """Return whether RBAC allows evictions in all namespaces, and listing the budgets.

        Without permission to list PodDisruptionBudgets, Ebb would plan evictions that the API
        server refuses. Raises: UnavailableError.
        """
        allowed = await is_allowed(self._client, EVICT_PODS)
        return allowed and await is_allowed(self._client, list_access(BUDGETS))


def _eviction(pod: Pod) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": pod.namespace, "name": pod.name},
        # A controller may have created another pod with the same name, as a StatefulSet does.
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
