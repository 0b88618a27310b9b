"""The joint plan written plainly and slowly, from the documented order alone.

Nothing is shared, indexed or remembered: every question is answered by walking over everything.
Only the rules of fit of one node or one selector, the usable capacity of one node and the
thresholds are the product's own; what pods ask of other pods is written out here once more.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from core.capacity import Amount, Share, capacity, derive_usability, usable_capacity
from core.config import Config, UsabilityMode
from core.fit import affinity_met, node_selected, refusal, selects, taints_tolerated
from core.guards import node_blockers, pod_blockers
from core.marks import going, mark_of, marked_since
from core.model import ANY_IP, Cluster, Node, Pod, Resources, SpreadConstraint
from core.packing import dominant_share

Moves = list[tuple[str, str]]


@dataclass
class Place:
    node: Node
    pods: list[Pod] = field(default_factory=list)
    """All that is on it, the daemons too."""
    extra: list[Pod] = field(default_factory=list)
    """Unmovable or daemon: never placed, but part of what is used."""

    def used(self) -> Resources:
        total = Resources()
        for one in [*self.pods, *self.extra]:
            total += one.requests
        return total


class Company:
    """May the pod join those that stand there, as kube-scheduler's documentation puts it?"""

    def __init__(
        self,
        pod: Pod,
        node: Node,
        stands: list[tuple[Pod, Node]],
        nodes: tuple[Node, ...],
        mutant: str = "",
    ) -> None:
        self.pod, self.node, self.stands, self.nodes = pod, node, stands, nodes
        self.mutant = mutant

    def fits(self) -> bool:
        rules: dict[str, Callable[[], bool]] = {
            "no ports": self.ports_free,
            "no own anti-affinity": self.no_enemy_there,
            "no anti-affinity of others": self.nobody_minds,
            "no affinity": self.friends_there,
            "no spread": lambda: all(map(self.even, self.pod.company.spread)),
        }
        return all(rule() for name, rule in rules.items() if name != self.mutant)

    def with_the_node(self, key: str, other: Node) -> bool:
        here, there = self.node.labels.get(key), other.labels.get(key)
        return here is not None and here == there

    def ports_free(self) -> bool:
        return not any(
            want.port == have.port
            and want.protocol == have.protocol
            and (want.ip == have.ip or ANY_IP in (want.ip, have.ip))
            for want in self.pod.company.host_ports
            for other, at in self.stands
            if at is self.node
            for have in other.company.host_ports
        )

    def no_enemy_there(self) -> bool:
        return not any(
            selects(term.selector, other) and self.with_the_node(term.topology_key, at)
            for term in self.pod.company.apart
            for other, at in self.stands
        )

    def nobody_minds(self) -> bool:
        return not any(
            selects(term.selector, self.pod) and self.with_the_node(term.topology_key, at)
            for other, at in self.stands
            for term in other.company.apart
        )

    def friends_there(self) -> bool:
        terms = self.pod.company.near
        if not all(term.topology_key in self.node.labels for term in terms):
            return False
        friends = [
            at for other, at in self.stands if all(selects(term.selector, other) for term in terms)
        ]
        if all(any(self.with_the_node(t.topology_key, at) for at in friends) for t in terms):
            return True
        first = not any(term.topology_key in at.labels for term in terms for at in friends)
        alike = all(selects(term.selector, self.pod) for term in terms)
        return first and alike and self.mutant != "no first pod"

    def even(self, asked: SpreadConstraint) -> bool:
        pod, key = self.pod, asked.topology_key
        if key not in self.node.labels:
            return False
        counts: dict[str, int] = {}
        for node in self.nodes:
            if not all(one.topology_key in node.labels for one in pod.company.spread):
                continue
            if asked.honor_affinity and not (
                node_selected(node, pod.placing) and affinity_met(node, pod.placing)
            ):
                continue
            if asked.honor_taints and not taints_tolerated(node, pod.placing):
                continue
            counts.setdefault(node.labels[key], 0)
            for other, at in self.stands:
                if at is node and selects(asked.selector, other) and not other.terminating:
                    counts[node.labels[key]] += 1
        if self.node.labels[key] not in counts:
            return False
        least = min(counts.values()) if len(counts) >= asked.min_domains else 0
        if self.mutant == "no domains":
            least = min(counts.values())
        own = 1 if selects(asked.selector, pod) else 0
        return counts[self.node.labels[key]] + own - least <= asked.max_skew


class Reference:
    def __init__(self, cluster: Cluster, config: Config, mutant: str = "") -> None:
        self.config, self.mutant, self.cluster = config, mutant, cluster
        self.share = Share(config.thresholds.cpu, config.thresholds.memory)
        self.usability = (
            derive_usability(cluster.pods)
            if config.usability is UsabilityMode.AUTO
            else None
            if config.usability is UsabilityMode.NONE
            else config.usability
        )
        self.places = {one.name: Place(one) for one in cluster.nodes}
        self.blocked = {one.name for one in cluster.nodes if node_blockers(one)}
        self.loose: list[Pod] = []
        for pod in cluster.pods:
            place = self.places.get(pod.node or "")
            if place is None:
                if pod.node is None and not pod_blockers(pod) and not pod.stays_with_node:
                    self.loose.append(pod)
            elif pod.stays_with_node:
                place.extra.append(pod)
            elif pod_blockers(pod):
                place.extra.append(pod)
                self.blocked.add(place.node.name)
            else:
                place.pods.append(pod)
        whole = Resources()
        for one in cluster.nodes:
            whole += one.allocatable
        self.rank = self._pod_rank(whole)
        self.order = sorted(
            self.places.values(),
            key=lambda p: (-dominant_share(p.used(), p.node.allocatable), p.node.name),
        )

    def _pod_rank(self, whole: Resources) -> Callable[[Pod], tuple[object, ...]]:
        names = sorted({name for pod in self.cluster.pods for name, _ in pod.requests.extended})

        def rank(pod: Pod) -> tuple[object, ...]:
            asked, extended = pod.requests, dict(pod.requests.extended)
            amounts = [
                *(extended.get(name, 0) for name in reversed(names)),
                asked.ephemeral_bytes,
                asked.pods,
                asked.memory_bytes,
                asked.cpu_millis,
            ]
            share = dominant_share(asked, whole)
            sign = 1 if self.mutant == "smallest first" else -1
            return (sign * share, [-amount for amount in amounts], repr(pod.placing), pod.key)

        return rank

    def pack(self, pods: list[Pod], leaving: str | None) -> tuple[list[tuple[Pod, Place]], bool]:
        """Place on copies; say whether all found a place."""
        free = {p.node.name: p.node.allocatable - p.used() for p in self.order}
        placed = []
        moving = {id(pod) for pod in pods}
        stands = [
            (pod, p.node)
            for p in self.places.values()
            for pod in [*p.pods, *p.extra]
            if id(pod) not in moving
        ]
        for pod in sorted(pods, key=self.rank):
            for place in self.order:
                node = place.node
                if node.name == leaving or node.unschedulable or not node.ready or going(node):
                    continue
                if (
                    refusal(node, pod.placing) is None
                    and self._fits(pod, free[node.name])
                    and Company(pod, node, stands, self.cluster.nodes, self.mutant).fits()
                ):
                    free[node.name] -= pod.requests
                    placed.append((pod, place))
                    stands.append((pod, node))
                    break
        return placed, len(placed) == len(pods)

    def _fits(self, pod: Pod, free: Resources) -> bool:
        have = dict(free.extended)
        pairs = [
            (pod.requests.cpu_millis, free.cpu_millis),
            (pod.requests.memory_bytes, free.memory_bytes),
            (pod.requests.pods, free.pods),
            *((amount, have.get(name, 0)) for name, amount in pod.requests.extended),
        ]
        if self.mutant == "no pod count":
            del pairs[2]
        return all(not asked or asked <= room for asked, room in pairs)

    def usable(self, place: Place) -> Amount:
        total = place.used()
        used = Amount(total.cpu_millis, total.memory_bytes)
        if place.node.unschedulable or not place.node.ready:
            return used
        return usable_capacity(capacity(place.node), used, self.usability)

    def within(self, whole: Callable[[Place], Amount]) -> bool:
        """Hold the requests of all standing places against *whole*; displaced pods count."""
        requests = limit = Amount(0, 0)
        for place in self.order:
            if going(place.node):
                continue
            total = place.used()
            requests = requests.plus(Amount(total.cpu_millis, total.memory_bytes))
            limit = limit.plus(whole(place))
        return requests.within(self.share, limit)

    def run(self) -> list[tuple[str, Moves]]:
        waiting = self._candidates()
        displaced = [pod for p in self.order if going(p.node) for pod in p.pods]
        settled, _ = self.pack([*self.loose, *displaced], None)
        for place in self.order:
            if going(place.node):
                place.pods = []
        for pod, place in settled:
            place.pods.append(pod)
        removed: list[tuple[str, Moves]] = []
        while True:
            before = len(removed)
            for name in list(waiting):
                moves = self._try(name)
                if moves is not None:
                    removed.append((name, moves))
                    waiting.remove(name)
            if len(removed) == before:
                return removed

    def _candidates(self) -> list[str]:
        def rank(place: Place) -> tuple[object, ...]:
            node = place.node
            if mark_of(node.labels) is not None:
                return (0, marked_since(node, self.config.taint_key), node.name)
            original = Resources()
            for pod in self.cluster.pods:
                if pod.node == node.name:
                    original += pod.requests
            share = dominant_share(original, node.allocatable)
            price = self.config.price_of(node.labels)
            return (1, -price, len(place.pods), share, node.name)

        standing = [place for place in self.order if not going(place.node)]
        return [place.node.name for place in sorted(standing, key=rank)]

    def _try(self, name: str) -> Moves | None:
        place = self.places[name]
        if name in self.blocked:
            return None
        moves, complete = self.pack(place.pods, name)
        if not complete:
            return None
        saved_order, saved = self.order, {p.node.name: list(p.pods) for p in self.order}
        for pod, target in moves:
            target.pods.append(pod)
        place.pods = []
        self.order = [p for p in self.order if p is not place]
        if self.within(lambda p: capacity(p.node)) and self.within(self.usable):
            return [(pod.key, target.node.name) for pod, target in moves]
        self.order = saved_order
        for p in self.order:
            p.pods = saved[p.node.name]
        return None
