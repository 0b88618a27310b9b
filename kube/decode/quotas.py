"""Decode ResourceQuotas; errors name the field. Source: k8s.io/api core/v1."""

from collections.abc import Iterator
from sys import intern
from typing import Annotated, Final

import msgspec

from core.model.constraints import Requirement
from core.model.errors import InvalidInputError
from core.moves.quotas import ResourceQuota
from kube.decode.field_decoding import (
    NULL,
    SHOWN_MAX,
    ApiName,
    BoundedField,
    check_memory,
    checked_name,
    read_quantity,
    shared_name,
)
from kube.decode.objects import Amounts, Name, Struct

QUOTA_BYTES_MAX: Final = 32 * 1024
"""Maximum size of each map of amounts and of the scopes of a ResourceQuota, in JSON."""
QUOTA_MEMORY_MAX: Final = 60_000
"""Maximum memory that a ResourceQuota takes; one that would take more is unreadable."""
SMALL_BYTES: Final = 4 * 1024
"""Size in JSON up to which the amounts of a ResourceQuota take less memory than
QUOTA_MEMORY_MAX."""
CPU_NAMES: Final = frozenset({"cpu", "requests.cpu", "limits.cpu"})
WITH_VALUES: Final = frozenset({"In", "NotIn"})
OPERATORS: Final = WITH_VALUES | {"Exists", "DoesNotExist"}
QUOTA_AMOUNTS: Final = BoundedField[Amounts](Amounts, bytes_max=QUOTA_BYTES_MAX)
SCOPES: Final = BoundedField[list[ApiName]](list[ApiName], bytes_max=QUOTA_BYTES_MAX)


class ScopeRequirement(Struct):
    scope_name: ApiName = ""
    operator: ApiName = ""
    values: list[ApiName] | None = None


class ScopeSelector(Struct):
    match_expressions: list[ScopeRequirement] | None = None


SCOPE_SELECTOR: Final = BoundedField[ScopeSelector](ScopeSelector, bytes_max=QUOTA_BYTES_MAX)


class QuotaSpec(Struct):
    hard: Annotated[msgspec.Raw, QUOTA_AMOUNTS] = NULL
    scopes: Annotated[msgspec.Raw, SCOPES] = NULL
    scope_selector: Annotated[msgspec.Raw, SCOPE_SELECTOR] = NULL


class QuotaStatus(Struct):
    hard: Annotated[msgspec.Raw, QUOTA_AMOUNTS] = NULL
    used: Annotated[msgspec.Raw, QUOTA_AMOUNTS] = NULL


class QuotaObject(Struct):
    metadata: Name
    spec: QuotaSpec | None = None
    status: QuotaStatus | None = None


def resource_quota(obj: QuotaObject) -> ResourceQuota:
    """Convert a ResourceQuota: its limits, the used amounts, and its scopes.

    Raises: InvalidInputError with the invalid field.
    """
    spec, status = obj.spec or QuotaSpec(), obj.status or QuotaStatus()
    result = ResourceQuota(
        namespace=shared_name(obj.metadata.namespace or "default", "metadata.namespace"),
        name=checked_name(obj.metadata.name, "metadata.name"),
        # The API server checks new pods against the status. It has no limits until the
        # controller has counted for the first time.
        hard=_amounts(status.hard, "status.hard") or _amounts(spec.hard, "spec.hard"),
        used=_amounts(status.used, "status.used"),
        scopes=tuple(_scopes(spec)),
    )
    if result.scopes or len(spec.hard) + len(status.hard) + len(status.used) > SMALL_BYTES:
        check_memory(result, QUOTA_MEMORY_MAX)
    return result


def _scopes(spec: QuotaSpec) -> Iterator[Requirement]:
    for name in SCOPES.decode(spec.scopes, "spec.scopes") or ():
        yield Requirement(intern(name), "Exists")
    selector = SCOPE_SELECTOR.decode(spec.scope_selector, "spec.scopeSelector")
    for number, one in enumerate((selector and selector.match_expressions) or ()):
        field = f"spec.scopeSelector.matchExpressions[{number}]"
        if one.operator not in OPERATORS:
            problem = f"{one.operator[:SHOWN_MAX]!r}; allowed: {', '.join(sorted(OPERATORS))}"
            raise InvalidInputError(f"{field}.operator", problem)
        if (one.operator in WITH_VALUES) is not bool(one.values):
            allowed = "at least one" if one.operator in WITH_VALUES else "none"
            problem = f"{len(one.values or ())}; allowed with {one.operator}: {allowed}"
            raise InvalidInputError(f"{field}.values", problem)
        yield Requirement(intern(one.scope_name), one.operator, tuple(sorted(one.values or ())))


def _amounts(raw: msgspec.Raw, field: str) -> dict[str, int]:
    """Return the amount of each resource of a quota, in millicores or in whole units.

    Millicores: cpu, requests.cpu and limits.cpu. Raises: InvalidInputError with *field*.
    """
    amounts = QUOTA_AMOUNTS.decode(raw, field) or {}
    return {
        intern(name): read_quantity(
            "cpu" if name in CPU_NAMES else name, written, f"{field}.{name}"
        )
        for name, written in amounts.items()
    }
