"""The joint plan written plainly and slowly, from the documented order alone.

Nothing is shared, indexed or remembered: every question is answered by walking over everything.
Only the rules of fit of one node or one selector, the usable capacity of one node and the
thresholds are the product's own; what pods ask of other pods is written out here once more.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from core.brakes import ZONE_LABEL, Pace, headroom
from core.budgets import Budget
from core.capacity import Amount, Share, capacity, derive_usability, usable_capacity
from core.config import Config, UsabilityMode
from core.fit import affinity_met, node_selected, refusal, selects, taints_tolerated
from core.guards import node_blockers, pod_blockers
from core.marks import Mark, going, mark_of, mark_order, without_our_taint
from core.model import ANY_IP, Cluster, Node, Pod, Resources, SpreadConstraint
from core.packing import dominant_share
from core.stickiness import stickiness
from core.wants import ANY_DRIVER

Moves = list[tuple[str, str]]
Limits = Mapping[str, Mapping[str, int | None]]


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
        limits: Limits | None = None,
    ) -> None:
        self.pod, self.node, self.stands, self.nodes = pod, node, stands, nodes
        self.mutant, self.limits = mutant, limits or {}

    def fits(self) -> bool:
        rules: dict[str, Callable[[], bool]] = {
            "no ports": self.ports_free,
            "no sole claims": self.claims_free,
            "no attach limits": self.attachable,
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

    def claims_free(self) -> bool:
        return not any(
            claim in other.company.sole
            for claim in self.pod.company.sole
            for other, _ in self.stands
        )

    def attachable(self) -> bool:
        limits = self.limits.get(self.node.name, {})
        for driver in {disk.driver for disk in self.pod.company.disks}:
            mine = {disk.handle for disk in self.pod.company.disks if disk.driver == driver}
            there = {
                disk.handle
                for other, at in self.stands
                if at is self.node
                for disk in other.company.disks
                if disk.driver in (driver, ANY_DRIVER)
            }
            if self.mutant == "no shared disks":
                there = {f"another's {handle}" for handle in there}
            limit = limits.get(driver, 0)
            if limit is not None and mine - there and len(mine | there) > limit:
                return False
        return True

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


class Held:
    """What the configured limits and the pace say about the next step."""

    def __init__(self, cluster: Cluster, config: Config, pace: Pace | None) -> None:
        self.budgets, self.pace = config.budgets, pace
        self.standing = [node for node in cluster.nodes if not going(node)]
        self.all = list(self.standing)
        self.new: list[Node] = []

    def pool(self, node: Node) -> str:
        pools = (
            pool.name
            for pool in self.budgets.pools
            if dict(pool.node_selector).items() <= node.labels.items()
        )
        return next(pools, "")

    def scopes(self, node: Node) -> list[tuple[str, Budget, list[Node]]]:
        found = [("", self.budgets.cluster, self.all)]
        for pool in self.budgets.pools:
            if pool.name == self.pool(node):
                mine = [one for one in self.all if self.pool(one) == pool.name]
                found.append((pool.name, pool.budget, mine))
        return found

    def back(self, node: Node) -> bool:
        scopes = self.scopes(node)
        if self.budgets.pools and len(scopes) == 1:
            return True
        for _, budget, members in scopes:
            if len([one for one in members if one in self.standing]) - 1 < budget.min_nodes:
                return True
        if mark_of(node.labels) is not None:
            return False
        if self.budgets.balance_zones and self.unbalances(node, scopes[-1][2]):
            return True
        return self.pace is not None and self.too_fast(node, scopes, self.pace)

    def unbalances(self, node: Node, members: list[Node]) -> bool:
        zones = [one.labels.get(ZONE_LABEL) for one in members if one in self.standing]
        mine = node.labels.get(ZONE_LABEL)
        others = {zone for zone in zones if zone not in (None, mine)}
        return mine is not None and any(
            zones.count(mine) - 1 < zones.count(zone) - 1 for zone in others
        )

    def too_fast(
        self, node: Node, scopes: list[tuple[str, Budget, list[Node]]], pace: Pace
    ) -> bool:
        if pace.frozen or node.name in pace.backing_off:
            return True
        for name, budget, members in scopes:
            new = len([one for one in self.new if one in members])
            marked = len([one for one in members if mark_of(one.labels) is not None])
            window = pace.in_window.get(name, 0)
            if budget.max_marked and marked + new >= budget.max_marked.of(len(members)):
                return True
            if budget.max_in_window and window + new >= budget.max_in_window.of(len(members)):
                return True
        return False

    def take(self, node: Node) -> None:
        self.standing.remove(node)
        if mark_of(node.labels) is None:
            self.new.append(node)


class Reference:
    def __init__(
        self, cluster: Cluster, config: Config, mutant: str = "", pace: Pace | None = None
    ) -> None:
        self.held = Held(cluster, config, pace)
        self.reserve = pace.reserve if pace else Amount(0, 0)
        self.real = {node.name: node for node in cluster.nodes}
        if any(mark_of(node.labels) is Mark.HARD for node in cluster.nodes):
            bare = [without_our_taint(node, config.taint_key) for node in cluster.nodes]
            cluster = replace(cluster, nodes=tuple(bare))
        self.config, self.mutant, self.cluster = config, mutant, cluster
        self.spare = headroom(cluster, config.budgets.headroom)
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
                    and self._joins(pod, node, stands)
                ):
                    free[node.name] -= pod.requests
                    placed.append((pod, place))
                    stands.append((pod, node))
                    break
        return placed, len(placed) == len(pods)

    def _joins(self, pod: Pod, node: Node, stands: list[tuple[Pod, Node]]) -> bool:
        nodes, limits = self.cluster.nodes, self.cluster.attach_limits
        return Company(pod, node, stands, nodes, self.mutant, limits).fits()

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

    def within(self, whole: Callable[[Place], Amount], *, marked: bool) -> bool:
        """Hold the requests of all standing places against *whole*; displaced pods count."""
        requests = limit = Amount(0, 0)
        for place in self.order:
            if going(place.node):
                continue
            total = place.used()
            requests = requests.plus(Amount(total.cpu_millis, total.memory_bytes))
            limit = limit.plus(whole(place))
        shares = self.config.leave() if marked else self.config.thresholds
        return requests.plus(self.reserve).within(Share(shares.cpu, shares.memory), limit)

    def run(self) -> list[tuple[str, Moves]]:
        waiting = self._candidates()
        displaced = [pod for p in self.order if going(p.node) for pod in p.pods]
        refused = [pod for pod in self.loose if pod.unschedulable]
        for pod, place in self.pack(refused, None)[0]:
            place.pods.append(pod)
        loose = [pod for pod in self.loose if not pod.unschedulable]
        settled, _ = self.pack([*loose, *displaced], None)
        for place in self.order:
            if going(place.node):
                place.pods = []
        for pod, place in settled:
            place.pods.append(pod)
        for pod, place in self.pack(self.spare, None)[0]:
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
                return (0, *mark_order(node, self.config.taint_key), node.name)
            original = Resources()
            sticky = 0
            for pod in self.cluster.pods:
                if pod.node == node.name:
                    original += pod.requests
                    sticky += bool(stickiness([pod]))
            if self.mutant == "no stickiness":
                sticky = 0
            share = dominant_share(original, node.allocatable)
            price = self.config.price_of(node.labels)
            return (1, -price, sticky, len(place.pods), share, node.name)

        standing = [place for place in self.order if not going(place.node)]
        return [place.node.name for place in sorted(standing, key=rank)]

    def _try(self, name: str) -> Moves | None:
        place = self.places[name]
        if name in self.blocked or self.held.back(self.real[name]):
            return None
        moves, complete = self.pack(place.pods, name)
        if not complete:
            return None
        saved_order, saved = self.order, {p.node.name: list(p.pods) for p in self.order}
        for pod, target in moves:
            target.pods.append(pod)
        place.pods = []
        self.order = [p for p in self.order if p is not place]
        marked = mark_of(place.node.labels) is not None
        if self.within(lambda p: capacity(p.node), marked=marked) and self.within(
            self.usable, marked=marked
        ):
            self.held.take(self.real[name])
            return [(pod.key, to.node.name) for pod, to in moves if pod not in self.spare]
        self.order = saved_order
        for p in self.order:
            p.pods = saved[p.node.name]
        return None
