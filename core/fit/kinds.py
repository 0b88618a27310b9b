"""Kinds of nodes: those that no template can tell apart, by what the rules of fit read."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import compress

from core.fit.index import AT_ONCE, NodeIndex
from core.fit.rules import LABEL, RULES, VOLUME_RULES, Feature, Rules, refusal
from core.model.constraints import Placing, Requirement, SelectorTerm, VolumeReach
from core.model.node import Node


def _seen(node: Node, feature: Feature) -> object:
    """Return what a rule sees of the node."""
    what, key = feature
    return node.labels.get(key) if what == LABEL else getattr(node, what)


class NodeKinds:
    """Each template is asked once a kind, not once a node."""

    def __init__(self, nodes: Sequence[Node], placings: Iterable[Placing]) -> None:
        labels = {key for node in nodes for key in node.labels}
        features = sorted(
            {
                feature
                for placing in placings
                for rule in RULES
                if rule not in VOLUME_RULES  # asked volume by volume: see `allowing`
                for feature in rule.reads(placing)
                # What no node has a label of tells none apart, and anybody may ask for any.
                if feature[0] != LABEL or feature[1] in labels
            }
        )
        kinds: dict[tuple[object, ...], int] = {}
        self._nodes = nodes
        self._kind_of = [
            kinds.setdefault(tuple(_seen(node, one) for one in features), len(kinds))
            for node in nodes
        ]
        self._like: list[Node] = []
        """One node of each kind."""
        for node, kind in zip(nodes, self._kind_of, strict=True):
            if kind == len(self._like):
                self._like.append(node)
        self._index = NodeIndex(self._like)
        self._ids = list(range(len(nodes)))
        """One object for each id: templates may make as many lists as there are of them."""
        self._lists: dict[int, list[int]] = {}
        self._admitted: dict[Placing, frozenset[int]] = {}
        self._reached: dict[VolumeReach, frozenset[int]] = {}
        self._labelled: dict[str, dict[str, list[int]]] = {}

    def allowing(self, placing: Placing, rules: Rules = RULES) -> list[int]:
        """Return the ids of the nodes that admit the template, ascending; *rules* alone count.

        Templates that the same nodes admit share one list: it is not to be written to. Volumes
        are asked about one by one: those of a StatefulSet that lie on the nodes' own disks make
        as many templates as nodes, and each of them as many kinds.
        """
        if not placing.volumes:
            return self._of_kinds(placing, rules)
        plain = replace(placing, volumes=())
        admitted = self._admitted.get(plain)
        if admitted is None:
            admitted = self._admitted[plain] = frozenset(self._of_kinds(plain, rules))
        return sorted(admitted.intersection(*map(self._reaching, placing.volumes)))

    def _reaching(self, reach: VolumeReach) -> frozenset[int]:
        found = self._reached.get(reach)
        if found is None:
            alone = Placing(volumes=(reach,))
            found = self._reached[reach] = frozenset(
                number
                for number in self._candidates(reach.affinity)
                if refusal(self._nodes[number], alone, VOLUME_RULES) is None
            )
        return found

    def _candidates(self, terms: tuple[SelectorTerm, ...] | None) -> Iterable[int]:
        """Return the nodes that may meet one of the terms: those with the label that it asks for.

        A disk that is kept on several nodes names each of them in a term of its own.
        """
        labels = [_label_of(term) for term in terms or ()]
        if not labels or None in labels:
            return range(len(self._nodes))
        return {number for one in labels if one for number in self._having(one)}

    def _having(self, wanted: Requirement) -> Iterable[int]:
        """Yield the nodes that have one of the values; which have it is found out once a label."""
        by_value = self._labelled.get(wanted.key)
        if by_value is None:
            by_value = self._labelled[wanted.key] = {}
            for number, node in enumerate(self._nodes):
                if wanted.key in node.labels:
                    by_value.setdefault(node.labels[wanted.key], []).append(number)
        return (number for value in wanted.values for number in by_value.get(value, ()))

    def allows(self, placing: Placing, kinds: int, rules: Rules) -> bool:
        """Say whether all of the *kinds* admit a template without volumes; *rules* alone count."""
        return not kinds & ~self._kinds(placing, rules)

    def of(self, nodes: Iterable[int]) -> int:
        """Return the kinds of the nodes, to be asked about with `allows`."""
        found = {self._kind_of[node] for node in nodes}
        return sum(1 << kind for kind in found)

    def _kinds(self, placing: Placing, rules: Rules) -> int:
        kinds = self._index.all
        for rule in rules:
            if kinds and rule not in VOLUME_RULES:
                kinds &= AT_ONCE[rule.name](self._index, placing)
        return kinds

    def _of_kinds(self, placing: Placing, rules: Rules) -> list[int]:
        kinds = self._kinds(placing, rules)
        found = self._lists.get(kinds)
        if found is None:
            digits = f"{kinds:0{len(self._like)}b}"[::-1].encode()
            admits = map(digits.replace(b"0", b"\0").__getitem__, self._kind_of)
            found = self._lists[kinds] = list(compress(self._ids, admits))
        return found


def _label_of(term: SelectorTerm) -> Requirement | None:
    """Return a label that a node must have to meet the term, if one can be told."""
    return next((one for one in term.labels if one.operator == "In"), None)
