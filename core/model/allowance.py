"""How much the pods of one namespace may ask of nodes and other pods and still be evaluated.

Every requirement of nodes costs time in every pass, and a term about other pods does for all pods
that it is about. What one pod may ask is bounded where it is read; this bounds what many pods ask.
Each namespace has its own allowance, so that one tenant cannot use up another's.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Final, TypeVar

from core.model.constraints import (
    NO_NODE_CONSTRAINTS,
    NO_POD_CONSTRAINTS,
    HostPort,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
    SpreadConstraint,
    without_volumes,
)
from core.model.pod import Pod

NODE_REQUIREMENTS_MAX: Final = 4096
"""Of nodes, in nodeSelectors and node affinity of different templates: hundreds of usual ones."""
REQUIREMENTS_MAX: Final = 1024
"""Of selectors in different terms of pod affinity and anti-affinity and in spread constraints."""
FOREIGN_MAX: Final = 64
"""Those of them that are about pods of other namespaces: they cost others time."""
COUNTED_MAX: Final = 2**18
"""Pods that these are about, counted for each term anew, as far as labels tell: each of them costs
time in each of its terms wherever it is tried."""
PORTS_MAX: Final = 4096
"""Host ports of different sets of them: hundreds of usual ones."""
CLAIMS_MAX: Final = 2**14
"""Claims that pods name, of each pod: thousands of pods with a few. They need not be there."""
VALUES_A_REQUIREMENT: Final = 16
"""So many values of a requirement count as one more, and so many tolerations as one."""

Entry = (
    PodAffinityTerm
    | tuple[SpreadConstraint, NodeConstraints | None]
    | tuple[tuple[PodAffinityTerm, ...], str]
)
"""A term, a spread constraint with the placing whose nodes it counts, or affinity by topology."""
Kind = tuple[PodConstraints, NodeConstraints | None]
"""Pods that ask the same of others."""
Ports = tuple[HostPort, ...]
Kind_ = TypeVar("Kind_", Kind, NodeConstraints, Ports)


def within_allowance(pods: Sequence[Pod]) -> Sequence[Pod]:
    """Return the pods; those beyond their namespace's allowance ask too much.

    What most pods of the namespace ask is evaluated first, then in the order of names.
    """
    pods = _without(pods, _beyond_of_nodes(pods), _asks_too_much_of_nodes)
    pods = _without(pods, _beyond_of_ports(pods), _takes_too_many_ports)
    return _without(pods, _beyond_of_pods(pods), _asks_too_much_of_pods)


def within_claims(pods: Sequence[Pod]) -> Sequence[Pod]:
    """Return the pods; of those beyond their namespace's allowance no claim is looked up.

    Those that name fewest are looked at first, then in the order of names.
    """
    naming: dict[str, list[int]] = {}
    for number, pod in enumerate(pods):
        if pod.ties.claims:
            naming.setdefault(pod.namespace, []).append(number)
    beyond: list[int] = []
    for numbers in naming.values():
        left = CLAIMS_MAX
        numbers.sort(key=lambda one: (len(pods[one].ties.claims), pods[one].name))
        for number in numbers:
            left -= len(pods[number].ties.claims)
            beyond += (number,) if left < 0 else ()
    return _without(pods, beyond, _names_too_many_claims)


def _without(
    pods: Sequence[Pod], beyond: Iterable[int], less: Callable[[Pod], Pod]
) -> Sequence[Pod]:
    """Return the pods; of those *beyond* what is left of them."""
    found = {number: less(pods[number]) for number in beyond}
    return [found.get(number, pod) for number, pod in enumerate(pods)] if found else pods


def _beyond_of_nodes(pods: Sequence[Pod]) -> Iterable[int]:
    """Yield the pods that ask more of nodes than their namespaces' allowances hold."""
    templates = {id(pod.placing): pod.placing for pod in pods}
    if sum(map(_asked_of_nodes, templates.values())) <= NODE_REQUIREMENTS_MAX:
        return
    asking: dict[
        str, tuple[dict[NodeConstraints, list[int]], dict[NodeConstraints, list[int]]]
    ] = {}
    """By namespace: of pods that move, and of those that go with a node: each asks for its own."""
    same: dict[int, NodeConstraints] = {}
    for number, pod in enumerate(pods):
        # Of what a pod asks that goes with its node the tolerations alone are known.
        if not (pod.stays_with_node and pod.node):
            template = same.get(id(pod.placing))
            if template is None:
                # What volumes ask is not their pod's word.
                template = same[id(pod.placing)] = without_volumes(pod.placing)
            mine = asking.setdefault(pod.namespace, ({}, {}))[pod.stays_with_node]
            mine.setdefault(template, []).append(number)
    for both in asking.values():
        left = NODE_REQUIREMENTS_MAX
        for template, alike in chain.from_iterable(_ranked(pods, kinds) for kinds in both):
            weight = _asked_of_nodes(template)
            if weight > left:
                yield from alike
            else:
                left -= weight


def _asked_of_nodes(placing: NodeConstraints) -> int:
    terms = placing.affinity or ()
    found = _weight_of(one for term in terms for one in (*term.labels, *term.fields))
    tolerated = len(placing.tolerations) // VALUES_A_REQUIREMENT
    return max(1, found + len(placing.labels) + tolerated)


def _ranked(
    pods: Sequence[Pod], kinds: Mapping[Kind_, list[int]]
) -> list[tuple[Kind_, list[int]]]:
    """Return first what most pods ask, then by the first name."""
    return sorted(
        kinds.items(), key=lambda kind: (-len(kind[1]), min(pods[one].name for one in kind[1]))
    )


def _beyond_of_ports(pods: Sequence[Pod]) -> Iterable[int]:
    """Yield the pods that take more host ports than their namespaces' allowances hold.

    Those that go with their node are placed nowhere, and so are no matter.
    """
    taking: dict[str, dict[Ports, list[int]]] = {}
    for number, pod in enumerate(pods):
        ports = pod.company.host_ports
        if ports and not (pod.stays_with_node and pod.node):
            taking.setdefault(pod.namespace, {}).setdefault(ports, []).append(number)
    for sets in taking.values():
        left = PORTS_MAX
        for ports, alike in _ranked(pods, sets) if sum(map(len, sets)) > left else ():
            if len(ports) > left:
                yield from alike
            else:
                left -= len(ports)


def _beyond_of_pods(pods: Sequence[Pod]) -> Iterable[int]:
    """Yield the pods that ask more of others than their namespaces' allowances hold."""
    asking: dict[str, dict[tuple[int, int], list[int]]] = {}
    for number, pod in enumerate(pods):
        company = pod.company
        if company is not NO_POD_CONSTRAINTS and (company.apart or company.near or company.spread):
            # Objects before values: pods of one template share them, and hashing values is dear.
            objects = id(company), id(pod.placing) if company.spread else 0
            asking.setdefault(pod.namespace, {}).setdefault(objects, []).append(number)
    sizes = Counter(pod.namespace for pod in pods) if asking else Counter[str]()
    labelled = _Labelled(pods)
    for namespace, groups in asking.items():
        companies = [pods[alike[0]].company for alike in groups.values()]
        asked = sum(_weight(_entries(company, None)) for company in companies)
        at_home = not any(_entries(_foreign(one, namespace), None) for one in companies)
        counted = asked * (sizes[namespace] if at_home else len(pods))
        if asked > FOREIGN_MAX or counted > COUNTED_MAX:
            yield from _beyond(pods, groups.values(), labelled)


def _beyond(
    pods: Sequence[Pod], groups: Iterable[list[int]], labelled: "_Labelled"
) -> Iterable[int]:
    """Yield the pods of a namespace that ask what its allowance does not hold any more."""
    kinds: dict[Kind, list[int]] = {}
    for alike in groups:
        pod = pods[alike[0]]
        kind = pod.company, pod.placing if pod.company.spread else None
        kinds.setdefault(kind, []).extend(alike)
    own: dict[Entry, int] = {}
    foreign: dict[Entry, int] = {}
    counted = 0
    for (company, placing), alike in _ranked(pods, kinds):
        namespace = pods[alike[0]].namespace
        new = _entries(company, placing)
        abroad = _entries(_foreign(company, namespace), placing)
        more = sum(labelled.most(_selectors(entry)) for entry in new.keys() - own.keys())
        if (
            _weight(own | new) > REQUIREMENTS_MAX
            or _weight(foreign | abroad) > FOREIGN_MAX
            or counted + more > COUNTED_MAX
        ):
            yield from alike
        else:
            own |= new
            foreign |= abroad
            counted += more


class _Labelled:
    """How many pods have a label; counted when it is asked for first."""

    def __init__(self, pods: Sequence[Pod]) -> None:
        self._pods = pods

    @cached_property
    def _counts(self) -> Counter[tuple[str | None, str, str | None]]:
        """By namespace (None: of all), key and value (None: all pods, of no key)."""
        labels = {id(pod.labels): pod.labels for pod in self._pods}
        found: Counter[tuple[str | None, str, str | None]] = Counter()
        alike = Counter((pod.namespace, id(pod.labels)) for pod in self._pods)
        for (namespace, which), many in alike.items():
            for key, value in (("", None), *labels[which].items()):
                found[namespace, key, value] += many
                found[None, key, value] += many
        return found

    def most(self, selectors: Iterable[PodSelector]) -> int:
        """Return how many pods all the selectors are about at most, as far as `In` tells."""
        found = []
        for one in selectors:
            named = one.namespaces or ()
            namespace = named[0] if len(named) == 1 else None
            found.append(self._counts[namespace, "", None] if one.namespaces != () else 0)
            found += (
                sum(self._counts[namespace, asked.key, value] for value in asked.values)
                for asked in one.requirements
                if asked.operator == "In"
            )
        return min(found, default=0)


def _selectors(entry: Entry) -> Iterable[PodSelector]:
    """Return those of one entry: whom it counts, all of them are about."""
    if isinstance(entry, PodAffinityTerm):
        return (entry.selector,)
    about, _ = entry
    return (
        (about.selector,) if isinstance(about, SpreadConstraint) else (o.selector for o in about)
    )


def _weight(entries: Mapping[Entry, int]) -> int:
    return sum(entries.values())


def _entries(company: PodConstraints, placing: NodeConstraints | None) -> dict[Entry, int]:
    """Return what is counted for a company, and of how many requirements it is."""
    found: dict[Entry, int] = {term: _requirements(term.selector) for term in company.apart}
    near = sum(_requirements(term.selector) for term in company.near)
    # All terms of an affinity are asked of a pod at once, for each topology.
    found |= {(company.near, term.topology_key): near for term in company.near}
    return found | {(one, placing): _requirements(one.selector) for one in company.spread}


def _requirements(selector: PodSelector) -> int:
    return max(1, _weight_of(selector.requirements))


def _weight_of(requirements: Iterable[Requirement]) -> int:
    return sum(1 + len(one.values) // VALUES_A_REQUIREMENT for one in requirements)


def _foreign(company: PodConstraints, namespace: str) -> PodConstraints:
    """Return what of a company is about pods of other namespaces."""
    own = (namespace,)
    apart = tuple(term for term in company.apart if term.selector.namespaces != own)
    at_home = all(term.selector.namespaces == own for term in company.near)
    return PodConstraints(near=() if at_home else company.near, apart=apart)


def _asks_too_much_of_nodes(pod: Pod) -> Pod:
    """Return the pod with what it asks left out, but for ports and disks."""
    told = (
        f"nodes in more ways than are evaluated for namespace {pod.namespace} "
        f"({NODE_REQUIREMENTS_MAX} requirements)"
    )
    return replace(
        pod, placing=NO_NODE_CONSTRAINTS, company=_not_of_pods(pod.company), too_much=told
    )


def _names_too_many_claims(pod: Pod) -> Pod:
    told = f"more claims than are looked up for namespace {pod.namespace} ({CLAIMS_MAX})"
    return replace(pod, ties=replace(pod.ties, claims=()), too_much=told)


def _takes_too_many_ports(pod: Pod) -> Pod:
    """Return the pod with what it asks of others left out, but for ports and disks."""
    told = (
        f"host ports in more ways than are evaluated for namespace {pod.namespace} "
        f"({PORTS_MAX} ports)"
    )
    return replace(pod, company=_not_of_pods(pod.company), too_much=told)


def _asks_too_much_of_pods(pod: Pod) -> Pod:
    """Return the pod with what it asks of others left out, but for ports and disks."""
    told = (
        f"terms about other pods beyond those that are evaluated for namespace {pod.namespace} "
        f"({REQUIREMENTS_MAX} requirements, {FOREIGN_MAX} of them about other namespaces, "
        f"{COUNTED_MAX} pods that they are about)"
    )
    return replace(pod, company=_not_of_pods(pod.company), too_much=told)


def _not_of_pods(company: PodConstraints) -> PodConstraints:
    if company is NO_POD_CONSTRAINTS:
        return company
    return replace(company, near=(), apart=(), spread=())
