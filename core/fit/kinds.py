"""Kinds of nodes: those that no template can tell apart, by what the rules of fit read."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from core.fit.rules import LABEL, LABEL_RULES, RULES, VOLUME_RULES, Feature, Rules, refusal
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
        self._lists: dict[bytes, list[int]] = {}
        self._admitted: dict[Placing, frozenset[int]] = {}
        self._reached: dict[VolumeReach, frozenset[int]] = {}
        self._labelled: dict[str, dict[str, list[int]]] = {}
        self._kinds_labelled: dict[str, dict[str, list[int]]] = {}

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
                for number in _having(self._labelled, self._nodes, _sole_label(reach.affinity))
                if refusal(self._nodes[number], alone, VOLUME_RULES) is None
            )
        return found

    def _of_kinds(self, placing: Placing, rules: Rules) -> list[int]:
        verdicts = bytearray(len(self._like))
        by_label = set(LABEL_RULES) <= set(rules)
        for kind in self._kinds_near(placing) if by_label else range(len(verdicts)):
            verdicts[kind] = refusal(self._like[kind], placing, rules) is None
        key = bytes(verdicts)
        found = self._lists.get(key)
        if found is None:
            found = self._lists[key] = [
                number for number, kind in enumerate(self._kind_of) if key[kind]
            ]
        return found

    def _kinds_near(self, placing: Placing) -> Iterable[int]:
        """Return the kinds that can admit the template at most, by one label they must have."""
        selected = (Requirement(key, "In", (value,)) for key, value in placing.node_selector)
        wanted = next(selected, None) or _sole_label(placing.affinity)
        return _having(self._kinds_labelled, self._like, wanted)


def _sole_label(terms: tuple[SelectorTerm, ...] | None) -> Requirement | None:
    """Return a label that a node must have to meet the terms, if one can be told."""
    if not terms or len(terms) > 1:
        return None
    return next((one for one in terms[0].labels if one.operator == "In"), None)


def _having(
    index: dict[str, dict[str, list[int]]], nodes: Sequence[Node], wanted: Requirement | None
) -> Sequence[int]:
    """Return the places of the nodes that have the label, if one is wanted; *index* keeps them."""
    if wanted is None:
        return range(len(nodes))
    by_value = index.get(wanted.key)
    if by_value is None:
        by_value = index[wanted.key] = {}
        for number, node in enumerate(nodes):
            if wanted.key in node.labels:
                by_value.setdefault(node.labels[wanted.key], []).append(number)
    return [number for value in wanted.values for number in by_value.get(value, ())]
