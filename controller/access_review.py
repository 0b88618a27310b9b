"""SelfSubjectAccessReviews: whether RBAC allows this program something, in any namespace.

Source: k8s.io/api authorization/v1.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from core.edge.clock import Clock
from core.edge.kube.client import Client, answered
from core.edge.logs import fields
from core.model.errors import UnavailableError

REVIEW_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ANSWER_SECONDS: Final = 300
"""How long an answer counts."""

Access = Mapping[str, str]
"""The resourceAttributes of a review; without a namespace they mean every namespace."""
EVICT_PODS: Final[Access] = MappingProxyType(
    {"verb": "create", "resource": "pods", "subresource": "eviction"}
)
PATCH_PODS: Final[Access] = MappingProxyType({"verb": "patch", "resource": "pods"})

log = logging.getLogger("ebb.access-review")


class AccessReview:
    """Keeps the answer of a review, and asks again when it does not count any more."""

    def __init__(self, ask: Callable[[], Awaitable[bool]], clock: Clock, what: str) -> None:
        """*ask* raises UnavailableError. *what*: the access, for the log."""
        self._ask, self._clock, self._what = ask, clock, what
        self.forget()

    def forget(self) -> None:
        """Drop the answer."""
        self.held: bool | None = None
        """Whether the access is allowed; None: there is no answer yet."""
        self._asked_at = 0.0

    async def look_up(self) -> bool:
        """Ask if the last answer does not count any more. Returns: whether the answer changed.

        If there is no answer, the last one is kept.
        """
        now = self._clock.monotonic_seconds()
        if self.held is not None and now - self._asked_at < ANSWER_SECONDS:
            return False
        try:
            held = await self._ask()
        except UnavailableError as fault:
            log.warning("cannot review access", extra=fields(to=self._what, reason=str(fault)))
            return False
        changed = held is not self.held
        self.held, self._asked_at = held, now
        return changed


async def is_allowed(client: Client, access: Access) -> bool:
    """Ask the API server whether this program has the access. Raises: UnavailableError."""
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
