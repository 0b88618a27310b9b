"""Reference implementation of inter-pod rules: ports, claims, volumes, affinity and spread.

It follows the documentation of kube-scheduler, and shares only values with the product.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.model.cluster import Cluster
from core.model.constraints import HostPort, SpreadConstraint
from core.model.node import Node
from core.model.pod import Pod
from tests.support.reference_fit import labelled, liked, selects, tolerates_taints

Standing = Sequence[tuple[Pod, Node]]
"""Pods and their nodes."""


@dataclass(frozen=True)
class Beside:
    """The inter-pod rules for a pod on a node beside other pods."""

    pod: Pod
    node: Node
    standing: Standing
    cluster: Cluster
    taint_key: str
    mutant: str = ""

    def fits(self) -> bool:
        """Return whether all rules admit the pod."""
        rules: dict[str, Callable[[], bool]] = {
            "no ports": self.ports_free,
            "no sole claims": self.claims_free,
            "no attach limits": self.attachable,
            "no own anti-affinity": self.no_enemy_there,
            "no anti-affinity of others": self.nobody_minds,
            "no affinity": self.friends_there,
            "no spread": lambda: all(map(self.even, self.pod.pod_constraints.spread)),
        }
        return all(rule() for name, rule in rules.items() if name != self.mutant)

    def together(self, key: str, other: Node) -> bool:
        """Return whether the other node is in the same topology domain."""
        return key in self.node.labels and self.node.labels[key] == other.labels.get(key)

    def ports_free(self) -> bool:
        """Return whether no pod on the node uses a host port of the pod."""
        return not any(
            clash(want, have)
            for want in self.pod.pod_constraints.host_ports
            for other, at in self.standing
            if at.name == self.node.name
            for have in other.pod_constraints.host_ports
        )

    def claims_free(self) -> bool:
        """Return whether no pod in the cluster uses a ReadWriteOncePod claim of the pod."""
        return not any(
            claim in other.pod_constraints.sole
            for claim in self.pod.pod_constraints.sole
            for other, _ in self.standing
        )

    def attachable(self) -> bool:
        """Return whether the attach limits of the node admit the new volumes of the pod."""
        limits = self.cluster.attach_limits.get(self.node.name, {})
        for driver in {disk.driver for disk in self.pod.pod_constraints.disks}:
            mine = {
                disk.handle for disk in self.pod.pod_constraints.disks if disk.driver == driver
            }
            there = {
                disk.handle
                for other, at in self.standing
                if at.name == self.node.name
                for disk in other.pod_constraints.disks
                if disk.driver in (driver, "")  # "": a volume of unknown driver
            }
            if self.mutant == "no shared disks":
                there = {f"another's {handle}" for handle in there}
            # Attached, though no pod that is there uses it: kube-scheduler counts it, even if the
            # pod that it places is the one that will use it.
            attached = {
                disk.handle
                for disk in self.cluster.attachments.get(self.node.name, ())
                if disk.driver == driver and self.mutant != "VolumeAttachments are ignored"
            }
            count = len(mine - there) + len(there) + len(attached - there)
            limit = limits.get(driver, 0)
            if limit is not None and mine - there and count > limit:
                return False
        return True

    def no_enemy_there(self) -> bool:
        """Return whether the pod's anti-affinity admits the domain."""
        return not any(
            selects(term.selector, other) and self.together(term.topology_key, at)
            for term in self.pod.pod_constraints.apart
            for other, at in self.standing
        )

    def nobody_minds(self) -> bool:
        """Return whether the anti-affinity of all other pods admits the pod."""
        return not any(
            selects(term.selector, self.pod) and self.together(term.topology_key, at)
            for other, at in self.standing
            for term in other.pod_constraints.apart
        )

    def friends_there(self) -> bool:
        """Return whether the pod's affinity is satisfied, or the pod is the first of its group."""
        terms = self.pod.pod_constraints.near
        if not all(term.topology_key in self.node.labels for term in terms):
            return False
        friends = [
            at
            for other, at in self.standing
            if terms and all(selects(term.selector, other) for term in terms)
        ]
        if all(any(self.together(t.topology_key, at) for at in friends) for t in terms):
            return True
        first = not any(term.topology_key in at.labels for term in terms for at in friends)
        alike = all(selects(term.selector, self.pod) for term in terms)
        return first and alike and self.mutant != "no first pod"

    def even(self, asked: SpreadConstraint) -> bool:
        """Return whether the topology spread constraint admits the domain."""
        pod, key = self.pod, asked.topology_key
        if key not in self.node.labels:
            return False
        counts: dict[str, int] = {}
        for node in self.cluster.nodes:
            if not all(one.topology_key in node.labels for one in pod.pod_constraints.spread):
                continue
            if asked.honor_affinity and not (
                labelled(node, pod.node_constraints) and liked(node, pod.node_constraints)
            ):
                continue
            if asked.honor_taints and not tolerates_taints(
                node, pod.node_constraints, self.taint_key.__eq__
            ):
                continue
            counts.setdefault(node.labels[key], 0)
            for other, at in self.standing:
                counted = selects(asked.selector, other) and not other.terminating
                counts[node.labels[key]] += at.name == node.name and counted
        if self.node.labels[key] not in counts:
            return False
        least = min(counts.values()) if len(counts) >= asked.min_domains else 0
        if self.mutant == "minDomains is ignored":
            least = min(counts.values())
        own = 1 if selects(asked.selector, pod) else 0
        return counts[self.node.labels[key]] + own - least <= asked.max_skew


def clash(one: HostPort, other: HostPort) -> bool:
    """Return whether two host ports conflict; 0.0.0.0 is every address."""
    everywhere = "0.0.0.0"
    same_place = one.ip == other.ip or everywhere in (one.ip, other.ip)
    return one.port == other.port and one.protocol == other.protocol and same_place
