"""Find out which running pods leave no place for a second pod like them.

A surge move starts the new pod while the old one still runs. The old one has left its ReplicaSet:
it lacks the label pod-template-hash, so rules with `matchLabelKeys: [pod-template-hash]` do not
count it. All other rules do. For example, if the anti-affinity of a Deployment allows one pod in
each zone, the old pod keeps the new one out of its zone. All other pods are where they are now.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from core.model.pod import REPLICA_SET, TEMPLATE_LABEL, Pod
from core.placement.bits import bits_of
from core.placement.equivalence_groups import EquivalenceGroup, NodesForConstraints
from core.placement.free_space import FreeSpace
from core.placement.inter_pod import Changes, PodTopology
from core.placement.node_search import Searches
from core.placement.tallies import Domain, Group

KINDS_MAX: Final = 10_000
"""Maximum number of kinds of pods that are looked at in one plan; other pods have a place.

A kind takes about 10 microseconds with 5,000 nodes. Pods with equal constraints, requests and
labels that selectors read are of one kind, unless a rule ignores the old pod: then the answer may
differ by topology domain."""
ENOUGH: Final = 2
"""Number of nodes after which a search ends, because at most one is the node of the pod itself."""

Domains = tuple[Domain | None, ...]
"""Domains of a pod's node in which rules ignore the old pod."""


@dataclass(slots=True, eq=False)
class _Kind:
    """Pods that share an answer."""

    equivalence: EquivalenceGroup
    group: Group
    admitted: int
    """Nodes that admit a second pod, with or without room, as a bit set; without marked nodes."""
    places: list[int] = field(default_factory=list)
    """The first of these nodes with room for it, at most ENOUGH."""


class SecondPods:
    """The running pods of ReplicaSets for which a second pod may have no place.

    A pod that no inter-pod rule concerns is not among them, and neither is one whose rules look
    only at the pods on a node, such as host ports: pods leave no node that stays. Nor is a
    detached pod, whose second pod is created already. Pod ids and node ids are those of the
    Packer.
    """

    def __init__(
        self,
        pods: Sequence[Pod],
        group_of: Sequence[EquivalenceGroup],
        topology: PodTopology,
        *,
        space: FreeSpace,
        node_ids: Mapping[str, int],
        leaving: Collection[int],
        kinds_max: int = KINDS_MAX,
    ) -> None:
        """Answer for the current state of *topology*, which may change later.

        *group_of*: equivalence groups by pod id. *space*: the free space now, which must not
        change later. *leaving*: ids of the nodes that are marked already. *kinds_max*: number of
        kinds of pods to look at.
        """
        self._pods, self._topology, self._kinds_max = pods, topology, kinds_max
        self._space, self._searches, self._node_ids = space, Searches(space), node_ids
        count = len(node_ids)
        self._stay = ((1 << count) - 1) ^ bits_of(count, leaving)
        self._last: dict[tuple[NodesForConstraints, Group, Domains], _Kind] = {}
        """The last kind, of those that the same nodes admit, for which nodes with room were
        searched."""
        self._kinds: dict[tuple[EquivalenceGroup, Group, Domains], _Kind] = {}
        self._kind_of: dict[int, _Kind] = {}
        """Kinds by pod id, for the pods that are looked at."""
        self.crowded: list[int] = []
        """Ids of the pods for which no node that is unmarked now has a place."""
        for number, group in topology.groups.items():
            if not group.rules or group.by_node:
                continue
            pod = pods[number]
            if pod.node is None or pod.owner_kind != REPLICA_SET or pod.detached:
                continue
            node = node_ids[pod.node]
            kind = self._kind(group_of[number], group, node)
            if kind is not None:
                self._kind_of[number] = kind
                if len(kind.places) < ENOUGH and kind.places in ([], [node]):
                    self.crowded.append(number)

    def crowded_without(self, removed: Collection[str]) -> list[str]:
        """Return the pods on removed nodes for which no node that stays has a place.

        Pods are namespace/name. *removed*: names of all nodes that the plan removes.
        """
        gone = bits_of(len(self._node_ids), {self._node_ids[name] for name in removed})
        found: dict[_Kind, bool] = {}
        crowded = []
        for number, kind in self._kind_of.items():
            if self._pods[number].node in removed:
                if kind not in found:
                    found[kind] = bool(self._places(kind, kind.admitted & ~gone))
                if not found[kind]:
                    crowded.append(self._pods[number].key)
        return crowded

    def _kind(self, equivalence: EquivalenceGroup, group: Group, node: int) -> _Kind | None:
        """Return the kind of a pod on the node; None if there are too many other kinds."""
        changes = self._topology.changes_without_label(group, TEMPLATE_LABEL, node)
        domains = tuple([tally.domains.of[node] for tally, _ in changes]) if changes else ()
        key = equivalence, group, domains
        kind = self._kinds.get(key)
        if kind is not None or len(self._kinds) >= self._kinds_max:
            return kind
        admission = equivalence.nodes, group, domains
        last = self._last.get(admission)
        if last is None:
            admitted = self._admitted(equivalence, group, node, changes)
        else:
            admitted = last.admitted
        kind = self._kinds[key] = _Kind(equivalence, group, admitted)
        # Pods that differ only in their requests often find room on the same nodes.
        if last is not None and self._have_room(last.places, equivalence.request):
            kind.places = last.places
        else:
            kind.places = self._places(kind, admitted)
            self._last[admission] = kind
        return kind

    def _admitted(
        self, equivalence: EquivalenceGroup, group: Group, node: int, changes: Changes
    ) -> int:
        for tally, by in changes:
            tally.add(node, by)
        admitted = group.admitted(equivalence.nodes.candidate_bits & self._stay)
        for tally, by in changes:
            tally.add(node, -by)
        return admitted

    def _have_room(self, nodes: Sequence[int], request: int) -> bool:
        return len(nodes) == ENOUGH and all(self._space.fits(node, request) for node in nodes)

    def _places(self, kind: _Kind, nodes: int) -> list[int]:
        """Return the first nodes among *nodes* with room for a pod, at most ENOUGH."""
        search, places = self._searches[kind.equivalence], []
        for node in search.with_room(nodes & search.open_nodes()):
            if kind.group.takes(node):
                places.append(node)
                if len(places) == ENOUGH:
                    break
        return places
