"""Add to pods what follows from their Namespaces: the names that selectors match, and `keep`.

The annotation `kube-ebb.io/keep` of a Namespace counts as one of each of its pods.

A term with a namespaceSelector selects the pods of all namespaces until the selector is looked up
here. Without Namespaces the term remains unchanged, and its pod is not movable. Source:
AffinityTerm.Matches of kube-scheduler: a namespace counts if the term names it, or if the
namespaceSelector matches it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from core.eligibility.drainability import OF_NAMESPACE
from core.marks.wellknown import KEEP_ANNOTATION
from core.model.cluster_pods import ClusterPods, chooses_namespaces
from core.model.constraints import (
    DisruptionFacts,
    NamespaceChoice,
    PodAffinityTerm,
    PodConstraints,
    Requirement,
)
from core.model.pod import Pod

AFFINITY_FIELD: Final = "spec.affinity.podAffinity.namespaceSelector"
ANTI_AFFINITY_FIELD: Final = "spec.affinity.podAntiAffinity.namespaceSelector"
"""In Pod.unsupported: namespace selectors that are not looked up."""
_OPERATORS: Final = frozenset(("In", "NotIn", "Exists", "DoesNotExist"))
_FIELDS: Final = frozenset((AFFINITY_FIELD, ANTI_AFFINITY_FIELD))


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A Namespace with its labels, which namespaceSelectors of pod affinity terms match."""

    name: str
    labels: Mapping[str, str] | None = field(default_factory=dict, hash=False)
    """Labels; None if they exceed the limits of Ebb, so that they are unknown."""
    kept: bool = False
    """The annotation KEEP_ANNOTATION excludes its pods and their nodes."""


Kept = Mapping[int, tuple[Pod, Pod]]
"""Pods as decoded and with the note of their Namespace, by the `id` of the decoded pod."""


def with_kept(
    namespaces: Iterable[Namespace], pods: ClusterPods, before: Kept
) -> tuple[ClusterPods, Kept]:
    """Return the pods of kept namespaces with a note that says so, and the next *before*.

    *before*: the second value of the previous call, so that unchanged pods remain the same
    objects; empty in the first call.
    """
    names = {namespace.name for namespace in namespaces if namespace.kept}
    if not names:
        return pods, {}
    # Return the same objects as before: callers compare pods by identity from one reconciliation
    # to the next.
    shared: dict[DisruptionFacts, DisruptionFacts] = {}
    converted = {
        id(pod): known
        if (known := before.get(id(pod))) is not None and known[0] is pod
        else (pod, _kept(pod, shared))
        for pod in pods.all
        if pod.namespace in names and not (pod.stays_with_node or pod.unreadable)
    }
    return pods.replacing({key: pod for key, (_, pod) in converted.items()}), converted


def _kept(pod: Pod, shared: dict[DisruptionFacts, DisruptionFacts]) -> Pod:
    facts = pod.disruption_facts
    if (KEEP_ANNOTATION, "true") in facts.notes:
        return pod
    if facts not in shared:
        notes = sorted({**dict(facts.notes), KEEP_ANNOTATION: OF_NAMESPACE}.items())
        shared[facts] = replace(facts, notes=tuple(notes))
    return replace(pod, disruption_facts=shared[facts])


class NamespaceNames(tuple[str, ...]):  # noqa: SLOT001 it keeps what it has computed
    """The sorted names of the namespaces that a selector matches; up to thousands.

    `in` does not compare each name, and the hash is computed once.
    """

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(iter(self))

    @cached_property
    def _hash(self) -> int:
        return tuple.__hash__(self)


def with_namespaces(pods: ClusterPods, namespaces: Sequence[Namespace]) -> ClusterPods:
    """Return the pods with names of namespaces in place of the namespaceSelectors of their terms.

    The terms are those of pod affinity and anti-affinity. If *namespaces* is empty, nothing is
    replaced.
    """
    if not namespaces:
        return pods
    lookup = _NamespaceLookup(pods.counts, namespaces)
    choosing = [pod for pod in pods.special if chooses_namespaces(pod.pod_constraints)]
    return pods.replacing({id(pod): lookup.pod(pod) for pod in choosing})


def _is_valid(chosen: NamespaceChoice) -> bool:
    return all(requirement.operator in _OPERATORS for requirement in chosen.requirements)


class _NamespaceLookup:
    """Replaces the namespaceSelectors of pods; looks up each selector only once.

    *with_pods*: names of all namespaces that have pods.
    """

    def __init__(self, with_pods: Collection[str], namespaces: Sequence[Namespace]) -> None:
        self._with_pods, self._namespaces = with_pods, namespaces
        self._looked_up: dict[int, tuple[PodConstraints, PodConstraints]] = {}
        """Constraints as decoded and as looked up, by the `id` of the decoded ones, which must not
        be freed."""
        self._chosen: dict[tuple[NamespaceChoice, bool], NamespaceNames] = {}

    def pod(self, pod: Pod) -> Pod:
        key = id(pod.pod_constraints)
        if key not in self._looked_up:
            self._looked_up[key] = pod.pod_constraints, self._pod_constraints(pod.pod_constraints)
        pod_constraints = self._looked_up[key][1]
        if pod_constraints is pod.pod_constraints:
            return pod
        unsupported = tuple(field for field in pod.unsupported if field not in _FIELDS)
        return replace(pod, pod_constraints=pod_constraints, unsupported=unsupported)

    def _pod_constraints(self, pod_constraints: PodConstraints) -> PodConstraints:
        """Return the constraints with names of namespaces in place of namespaceSelectors.

        The same object if there is no namespaceSelector, or if one has an unknown operator.
        """
        chosen = [
            term.chosen for term in (*pod_constraints.near, *pod_constraints.apart) if term.chosen
        ]
        if not chosen or not all(map(_is_valid, chosen)):
            return pod_constraints
        return replace(
            pod_constraints,
            near=self._terms(pod_constraints.near, doubtful=False),
            apart=self._terms(pod_constraints.apart, doubtful=True),
        )

    def _terms(
        self, terms: Iterable[PodAffinityTerm], *, doubtful: bool
    ) -> tuple[PodAffinityTerm, ...]:
        looked_up_terms = {self._term(term, doubtful=doubtful) for term in terms}
        return tuple(sorted(looked_up_terms, key=repr))

    def _term(self, term: PodAffinityTerm, *, doubtful: bool) -> PodAffinityTerm:
        if term.chosen is None:
            return term
        key = term.chosen, doubtful
        if key not in self._chosen:
            names = self._matching(term.chosen.requirements) | set(term.chosen.names)
            # A namespace with unknown labels may match. So its pods count for anti-affinity, but
            # not for affinity.
            names |= self._unknown if doubtful else set()
            self._chosen[key] = NamespaceNames(sorted(names))
        return PodAffinityTerm(
            replace(term.selector, namespaces=self._chosen[key]), term.topology_key
        )

    def _matching(self, requirements: Iterable[Requirement]) -> set[str]:
        names = set(self._all)
        for requirement in requirements:
            by_value = self._by_label.get(requirement.key, {})
            values = requirement.values if requirement.operator in ("In", "NotIn") else by_value
            having = set[str]().union(*(by_value.get(value, ()) for value in values))
            names = names & having if requirement.operator in ("In", "Exists") else names - having
        return names

    @cached_property
    def _all(self) -> set[str]:
        return {namespace.name for namespace in self._namespaces if namespace.labels is not None}

    @cached_property
    def _unknown(self) -> set[str]:
        """Return the names of the namespaces that have pods, but whose labels are unknown."""
        return set(self._with_pods) - self._all

    @cached_property
    def _by_label(self) -> Mapping[str, Mapping[str, set[str]]]:
        """Return the names of the namespaces by label key and label value."""
        names: dict[str, dict[str, set[str]]] = {}
        for namespace in self._namespaces:
            for key, value in (namespace.labels or {}).items():
                names.setdefault(key, {}).setdefault(value, set()).add(namespace.name)
        return names
