"""Ask the API server whether RBAC allows this program an action, in one or all namespaces.

Source: SelfSubjectAccessReview of k8s.io/api authorization/v1.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from core.model.errors import UnavailableError
from kube.client import Client, answered
from kube.decode.kinds import AnyKind
from runtime.clock import Clock
from runtime.logs import fields

REVIEW_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ANSWER_SECONDS: Final = 300
"""Time for which an answer is used before another review."""

Access = Mapping[str, str]
"""The resourceAttributes of a review. Without a namespace they mean all namespaces."""
EVICT_PODS: Final[Access] = MappingProxyType(
    {"verb": "create", "resource": "pods", "subresource": "eviction"}
)
PATCH_PODS: Final[Access] = MappingProxyType({"verb": "patch", "resource": "pods"})

log = logging.getLogger("ebb.access-review")


def list_access(kind: AnyKind) -> Access:
    """Return the resourceAttributes of an access review: list a kind in all namespaces."""
    return {"verb": "list", "group": kind.group, "resource": kind.resource}


def create_access(kind: AnyKind, namespace: str) -> Access:
    """Return the resourceAttributes of an access review: create a kind in a namespace."""
    return {
        "verb": "create",
        "group": kind.group,
        "resource": kind.resource,
        "namespace": namespace,
    }


class AccessReview:
    """Cache whether an action is allowed by RBAC, for ANSWER_SECONDS."""

    def __init__(self, ask: Callable[[], Awaitable[bool]], clock: Clock, action: str) -> None:
        """Start without an answer.

        *ask*: requests the review, and returns whether the action is allowed; it may raise
        UnavailableError. *action*: name of the action, for the log.
        """
        self._ask, self._clock, self._action = ask, clock, action
        self.forget()

    def forget(self) -> None:
        """Remove the answer from the cache."""
        self.allowed: bool | None = None
        """Whether the action is allowed; None if there is no answer yet."""
        self._asked_at = 0.0

    async def refresh(self) -> bool:
        """Ask again if there is no answer or it has expired; return whether `allowed` has changed.

        If the API server does not answer, the last answer remains in use.
        """
        now = self._clock.monotonic_seconds()
        if self.allowed is not None and now - self._asked_at < ANSWER_SECONDS:
            return False
        try:
            allowed = await self._ask()
        except UnavailableError as fault:
            log.warning(
                "the SelfSubjectAccessReview failed; using its last answer",
                extra=fields(action=self._action, reason=str(fault)),
            )
            return False
        changed = allowed is not self.allowed
        self.allowed, self._asked_at = allowed, now
        return changed


async def is_allowed(client: Client, access: Access) -> bool:
    """Ask the API server whether RBAC allows this program an action. Raises: UnavailableError.

    *access*: the resourceAttributes of the review, such as verb, group and resource.
    """
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": dict(access)},
    }
    return answered(_DECODER, await client.ask("POST", REVIEW_PATH, review)).status.allowed


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


_DECODER: Final = msgspec.json.Decoder(_Review)
