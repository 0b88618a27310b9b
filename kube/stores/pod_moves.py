"""Read the metadata of a pod, and patch the pod for a move. Source: k8s.io/api core/v1."""

from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION, MOVE_ANNOTATION
from core.model.errors import ConflictError
from core.model.pod import DETACHED_LABEL, TEMPLATE_LABEL
from core.moves.patches import Patch, PodMetadata
from kube.client import STRATEGIC_MERGE_PATCH, ApiError, Client, answered
from kube.decode.field_decoding import NULL, ApiName, BoundedField
from kube.decode.kinds import PODS
from kube.decode.objects import Meta, Struct, keyed
from kube.stores.objects import TRIES_MAX

CALL_SECONDS_MAX: Final = 10.0

Decide = Callable[[PodMetadata], Patch | None]
"""Returns the patch for a pod as read; None to write nothing."""


class PodMoves:
    """Reads and patches the pods of moves at the API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, key: str) -> PodMetadata | None:
        """Return the metadata of a pod, also of a finished one; None if there is none.

        *key*: namespace/name. Raises: UnavailableError.
        """
        raw = await self._client.find(PODS.path_of(key), seconds_max=CALL_SECONDS_MAX, tries_max=1)
        return None if raw is None else _metadata(raw)

    async def patch(self, key: str, decide: Decide) -> bool:
        """Read a pod, and make the patch that *decide* returns; return whether it was made.

        If others have changed the pod since it was read, read it and decide again. Raises:
        UnavailableError; ConflictError if others changed the pod during each attempt.
        """
        for _ in range(TRIES_MAX):
            pod = await self.read(key)
            patch = None if pod is None else decide(pod)
            if patch is None:
                return False
            try:
                await self._client.ask(
                    "PATCH",
                    PODS.path_of(key),
                    patch,
                    seconds_max=CALL_SECONDS_MAX,
                    tries_max=1,
                    patch_type=STRATEGIC_MERGE_PATCH,
                )
            except ConflictError:
                continue
            except ApiError as fault:
                if fault.status == 404:
                    return False
                raise
            return True
        raise ConflictError("another client keeps changing the object")


def refuses_owner_references(fault: ApiError) -> bool:
    """Return whether OwnerReferencesPermissionEnforcement has refused a patch.

    Source: plugin/pkg/admission/gc of the API server: both of its messages name the field.
    """
    text = str(fault)
    return fault.status == 403 and ("ownerRef" in text or "blockOwnerDeletion" in text)


class _Labels(Struct):
    hash: ApiName | None = keyed(TEMPLATE_LABEL)
    detached: ApiName | None = keyed(DETACHED_LABEL)


class _Annotations(Struct):
    cost: str | None = keyed(COST_ANNOTATION)
    cost_ours: str | None = keyed(COST_OURS_ANNOTATION)
    move: str | None = keyed(MOVE_ANNOTATION)


class _Owner(Struct):
    kind: ApiName = ""
    name: ApiName = ""
    uid: ApiName = ""
    controller: bool | None = None


_OWNERS: Final = BoundedField[list[_Owner]](list[_Owner], items_max=1024)


class _Meta(Meta):
    labels: _Labels | None = None
    annotations: _Annotations | None = None
    owner_references: Annotated[msgspec.Raw, _OWNERS] = NULL


class _Pod(Struct):
    metadata: _Meta


_DECODER: Final = msgspec.json.Decoder(_Pod)


def _metadata(raw: bytes) -> PodMetadata:
    meta = answered(_DECODER, raw).metadata
    labels, annotations = meta.labels or _Labels(), meta.annotations or _Annotations()
    owners = _OWNERS.decode(meta.owner_references, "metadata.ownerReferences") or ()
    controller = next((owner for owner in owners if owner.controller), _Owner())
    return PodMetadata(
        uid=meta.uid,
        version=meta.resource_version,
        terminating=meta.deletion_timestamp is not None,
        hash=labels.hash or "",
        detached=labels.detached or "",
        controller=(controller.kind, controller.name, controller.uid),
        cost=annotations.cost,
        cost_ours=annotations.cost_ours,
        move=annotations.move,
    )
