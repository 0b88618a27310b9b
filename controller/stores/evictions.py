"""Evictions: asked of the API server, which has the last word. Source: k8s.io/api policy/v1."""

from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from controller.access_review import EVICT_PODS, is_allowed
from core.edge.kube.client import ApiError, Client
from core.model.errors import ConflictError, UnavailableError
from core.model.pod import Pod

CALL_SECONDS_MAX: Final = 10.0


class EvictionResult(StrEnum):
    """The result of an eviction; a metric label."""

    EVICTED = "evicted"
    GONE = "gone"
    """The answer was that the pod is not there any more, or that another one has its name (404,
    409). A webhook may deny with the same status."""
    REFUSED = "refused"
    """A budget, a webhook or a full server did not let it go."""
    ERROR = "error"
    """There was no answer; it may be evicted or not."""


class Answer(NamedTuple):
    """The API server's answer."""

    result: EvictionResult
    why: str = ""
    retry_after_seconds: int = 0


class Evictions(Protocol):
    """Who evicts: the API server, or a stand-in."""

    async def evict(self, pod: Pod) -> Answer:
        """Evict this very pod, with its own grace period."""

    async def allowed(self) -> bool:
        """Say whether the program has the right. Raises: UnavailableError."""


class EvictionStore:
    """The API server's pods/eviction."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def evict(self, pod: Pod) -> Answer:
        """Evict this very pod: another one of its name is left alone."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        try:
            await self._client.ask(
                "POST", path, _eviction(pod), seconds_max=CALL_SECONDS_MAX, tries_max=1
            )
        except ConflictError as fault:
            return Answer(EvictionResult.GONE, str(fault))
        except ApiError as fault:
            if fault.status == 404:
                return Answer(EvictionResult.GONE, str(fault))
            return Answer(EvictionResult.REFUSED, str(fault), int(fault.retry_after_seconds or 0))
        except UnavailableError as fault:
            return Answer(EvictionResult.ERROR, str(fault))
        return Answer(EvictionResult.EVICTED)

    async def allowed(self) -> bool:
        """Ask whether this program may evict pods, in any namespace. Raises: UnavailableError."""
        return await is_allowed(self._client, EVICT_PODS)


def _eviction(pod: Pod) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": pod.namespace, "name": pod.name},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
