"""How much the pods of one namespace may ask of other pods, together, and still be evaluated.

Every term about other pods costs time in every pass for all pods that it is about. What one pod
may ask is bounded where it is read; this bounds what many pods ask. Each namespace has its own
allowance, so that one tenant cannot use up another's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from core.model.constraints import ALONE, Company, Placing, PodAffinityTerm, PodSelector
from core.model.pod import Pod

REQUIREMENTS_MAX: Final = 1024
"""Of selectors in different terms of pod affinity and anti-affinity and in spread constraints."""
FOREIGN_MAX: Final = 64
"""Those of them that are about pods of other namespaces: they cost others time."""
VALUES_A_REQUIREMENT: Final = 16
"""So many values of a requirement count as one more."""

Entry = PodAffinityTerm | tuple[object, object]
"""A term, a spread constraint with the placing whose nodes it counts, or affinity by topology."""
Kind = tuple[Company, Placing | None]
"""Pods that ask the same of others."""


def within_allowance(pods: Sequence[Pod]) -> Sequence[Pod]:
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
    beyond: dict[int, Pod] = {}
    for groups in asking.values():
        companies = (pods[alike[0]].company for alike in groups.values())
        if sum(_weight(_entries(company, None)) for company in companies) > FOREIGN_MAX:
            for number in _beyond(pods, groups.values()):
                beyond[number] = _too_much(pods[number])
    return [beyond.get(number, pod) for number, pod in enumerate(pods)] if beyond else pods


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
    own: dict[Entry, int] = {}
    foreign: dict[Entry, int] = {}
    for (company, placing), alike in ranked:
        namespace = pods[alike[0]].namespace
        new = _entries(company, placing)
        abroad = _entries(_foreign(company, namespace), placing)
        if _weight(own | new) > REQUIREMENTS_MAX or _weight(foreign | abroad) > FOREIGN_MAX:
            yield from alike
        else:
            own |= new
            foreign |= abroad


def _weight(entries: Mapping[Entry, int]) -> int:
    return sum(entries.values())


def _entries(company: Company, placing: Placing | None) -> dict[Entry, int]:
    """Return what is counted for a company, and of how many requirements it is."""
    found: dict[Entry, int] = {term: _requirements(term.selector) for term in company.apart}
    near = sum(_requirements(term.selector) for term in company.near)
    # All terms of an affinity are asked of a pod at once, for each topology.
    found |= {(company.near, term.topology_key): near for term in company.near}
    return found | {(one, placing): _requirements(one.selector) for one in company.spread}


def _requirements(selector: PodSelector) -> int:
    found = (1 + len(one.values) // VALUES_A_REQUIREMENT for one in selector.requirements)
    return max(1, sum(found))


def _foreign(company: Company, namespace: str) -> Company:
    """Return what of a company is about pods of other namespaces."""
    own = (namespace,)
    apart = tuple(term for term in company.apart if term.selector.namespaces != own)
    at_home = all(term.selector.namespaces == own for term in company.near)
    return Company(near=() if at_home else company.near, apart=apart)


def _too_much(pod: Pod) -> Pod:
    """Return the pod with what it asks of others left out, but for ports and disks."""
    told = (
        f"terms about other pods beyond those that are evaluated for namespace {pod.namespace} "
        f"({REQUIREMENTS_MAX} requirements, {FOREIGN_MAX} of them about other namespaces)"
    )
    return replace(pod, company=replace(pod.company, near=(), apart=(), spread=()), too_much=told)
