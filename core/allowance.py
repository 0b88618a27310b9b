"""How much the pods of one namespace may ask of other pods, together, and still be evaluated.

Every term about other pods costs time in every pass for all pods that it is about. What one pod
may ask is bounded where it is read; this bounds what many pods ask. Each namespace has its own
allowance, so that one tenant cannot use up another's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from core.model import ALONE, Company, Placing, Pod, PodAffinityTerm, SpreadConstraint

TERMS_MAX: Final = 512
"""Different terms of pod affinity and anti-affinity and spread constraints, in a namespace."""
FOREIGN_TERMS_MAX: Final = 32
"""Those of them that are about pods of other namespaces: they cost others time."""

Term = PodAffinityTerm | tuple[SpreadConstraint, Placing]
"""A spread constraint counts the nodes that the pod's own placing admits."""
Kind = tuple[Company, Placing | None]
"""Pods that ask the same of others."""


def within_allowance(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods; those beyond their namespace's allowance ask too much.

    What most pods of the namespace ask is evaluated first, then in the order of names.
    """
    asking: dict[str, dict[tuple[int, int], list[int]]] = {}
    for number, pod in enumerate(pods):
        company = pod.company
        if company is not ALONE and (company.apart or company.near or company.spread):
            # Objects before values: pods of one template share them, and hashing values is dear.
            objects = id(company), id(pod.placing) if company.spread else 0
            asking.setdefault(pod.namespace, {}).setdefault(objects, []).append(number)
    found = list(pods)
    for groups in asking.values():
        if sum(_count(pods[alike[0]].company) for alike in groups.values()) > FOREIGN_TERMS_MAX:
            for number in _beyond(pods, groups.values()):
                found[number] = _too_much(pods[number])
    return found


def _count(company: Company) -> int:
    return len(company.near) + len(company.apart) + len(company.spread)


def _beyond(pods: Sequence[Pod], groups: Iterable[list[int]]) -> Iterable[int]:
    """Yield the pods of a namespace that ask what its allowance does not hold any more."""
    kinds: dict[Kind, list[int]] = {}
    for alike in groups:
        pod = pods[alike[0]]
        kind = pod.company, pod.placing if pod.company.spread else None
        kinds.setdefault(kind, []).extend(alike)
    ranked = sorted(
        kinds.items(), key=lambda kind: (-len(kind[1]), min(pods[one].name for one in kind[1]))
    )
    own: set[Term] = set()
    foreign: set[Term] = set()
    for (company, placing), alike in ranked:
        namespace = pods[alike[0]].namespace
        new = set(_terms(company, placing))
        abroad = {one for one in new if _is_foreign(one, namespace)}
        if len(own | new) > TERMS_MAX or len(foreign | abroad) > FOREIGN_TERMS_MAX:
            yield from alike
        else:
            own |= new
            foreign |= abroad


def _terms(company: Company, placing: Placing | None) -> Iterable[Term]:
    yield from company.near
    yield from company.apart
    for one in company.spread:
        yield one, placing or Placing()


def _is_foreign(term: Term, namespace: str) -> bool:
    if not isinstance(term, PodAffinityTerm):
        return False
    namespaces = term.selector.namespaces
    return namespaces is None or any(one != namespace for one in namespaces)


def _too_much(pod: Pod) -> Pod:
    """Return the pod with what it asks of others left out, but for ports and disks."""
    told = (
        f"terms about other pods beyond those that are evaluated for namespace {pod.namespace} "
        f"({TERMS_MAX} different ones, {FOREIGN_TERMS_MAX} about other namespaces)"
    )
    return replace(pod, company=replace(pod.company, near=(), apart=(), spread=()), too_much=told)
