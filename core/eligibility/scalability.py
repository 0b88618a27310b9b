"""Decide whether an autoscaler removes a node: scalable, not scalable, or unknown.

Of these verdicts only *not scalable* keeps Ebb from marking a node. Whether a node group is at its
minimum depends on the other nodes of the group. So core.engine.limits decides that, while a plan
is made.

Sources: the labels, annotations and node group names of the providers of NODE_GROUPS; NodeGroup.Id
of their packages in cluster-autoscaler/cloudprovider, such as ParseMigUrl of gce;
Emptiness.ShouldDisrupt of Karpenter.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from core.marks.wellknown import KARPENTER_LABEL
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.node_groups import AutoscalerStatus, NodeGroup, NodePool
from core.model.reason import Reason

NOT_SCALABLE: Final = Reason(
    "not-scalable",
    "No autoscaler would remove the node: its node pool is fixed or for system pods, or its node "
    "group is at its minimum.",
    "none needed; to let Ebb empty the node, remove the cause in the message; for example, lower "
    "the minimum of the node group",
    "the node group has more nodes than its minimum, or the cause in the message is removed",
)

SYSTEM_LABEL: Final = ("kubernetes.azure.com/mode", "system")
"""Label of AKS nodes in a system pool, which AKS needs for its own pods."""
UNMANAGED_PROVIDERS: Final = (
    "k3s",
    "rke2",
    "eks-hybrid",  # machines on premises in a cluster of EKS
    "hrobot",  # dedicated servers of Hetzner
)
"""Providers of nodes whose machines no autoscaler creates or removes."""
ZONE_LABELS: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_EKS_ID: Final = r"(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]*[0-9][0-9a-f]*)"


class NodeGroupKey(NamedTuple):
    """A label or annotation of a node that names its node group."""

    key: str
    group: str = "VALUE"
    """Pattern of the name of the group, with the value in place of VALUE.

    It must contain the whole value, so that `web` is not taken for the pool of
    `eks-web-large-1234`."""
    annotation: bool = False
    of_set: bool = False
    """The value may be that of a set of machines, with one more part after a dash."""
    of_machine: bool = False
    """The value is namespace/name of a machine, whose name has one more part after a dash."""


NODE_GROUPS: Final = (
    NodeGroupKey("eks.amazonaws.com/nodegroup", rf"eks-VALUE-{_EKS_ID}"),
    NodeGroupKey("cloud.google.com/gke-nodepool", r"gke-.+-VALUE-[0-9a-f]+-grp"),
    # Scale sets of Windows pools have short names, as `akswin`.
    NodeGroupKey("kubernetes.azure.com/agentpool", r"aks-VALUE-[0-9]+-vmss|aksVALUE"),
    NodeGroupKey("cluster.x-k8s.io/owner-name", annotation=True, of_set=True),  # Cluster API
    NodeGroupKey("machine.openshift.io/machine", annotation=True, of_machine=True),
    NodeGroupKey("kops.k8s.io/instancegroup", r"VALUE\..+"),
    NodeGroupKey("doks.digitalocean.com/node-pool-id"),
    NodeGroupKey("lke.linode.com/pool-id"),
    NodeGroupKey("k8s.scaleway.com/pool"),
    NodeGroupKey("kubernetes.civo.com/civo-node-pool"),
    NodeGroupKey("hcloud/node-group"),
    NodeGroupKey("magnum.openstack.org/nodegroup", r"VALUE-[0-9a-f]+"),
    NodeGroupKey("oci.oraclecloud.com/node-pool-id", annotation=True),
    NodeGroupKey("compute.coreweave.com/node-pool-uid"),
    NodeGroupKey("cluster-autoscaler.kwok.nodegroup/name", annotation=True),
    NodeGroupKey("nodepool"),  # OVHcloud
)
"""How the node group of a node is found, in the order of the search.

A name that equals the value is always the node's. Annotations are read if NodeAnnotations
(kube/decode/node.py) has them."""
MANAGED: Final = NODE_GROUPS[:3]
"""Keys of groups that a cloud manages, and that have a fixed size without Cluster Autoscaler."""
GROUPS_SHOWN: Final = 100
"""Maximum number of groups of nodes for display, beside OTHER."""
OTHER: Final = "(other)"
"""Name for what is beyond a limit. No label has such a value."""
_LABELS_READ: Final = (
    SYSTEM_LABEL[0],
    KARPENTER_LABEL,
    *ZONE_LABELS,
    *(one.key for one in NODE_GROUPS if not one.annotation),
)
"""Labels on which the verdict on a node depends."""
_BY_ANNOTATION: Final = tuple(one for one in NODE_GROUPS if one.annotation)
"""Annotations on which the verdict on a node depends."""


class Scalability(StrEnum):
    """Whether an autoscaler removes a node that is empty and unneeded."""

    SCALABLE = "scalable"
    NOT_SCALABLE = "not-scalable"
    UNKNOWN = "unknown"


class NodeScalability(NamedTuple):
    """Whether an autoscaler removes a node when it is empty, with a text that says why."""

    state: Scalability
    evidence: str
    group: NodeGroup | None = None
    """Node group of the node, if Cluster Autoscaler reports it."""


@dataclass(frozen=True, slots=True)
class Autoscalers:
    """The autoscalers of a cluster that publish which nodes they manage, with that information."""

    status: AutoscalerStatus | None = None
    """Status of Cluster Autoscaler; None if there is none."""
    node_pools: Mapping[str, NodePool] = field(default_factory=dict)
    """NodePools of Karpenter by name."""

    @staticmethod
    def of(cluster: Cluster, status_key: str) -> "Autoscalers":
        """Return the autoscalers that the objects of a cluster show.

        *status_key*: namespace/name of the ConfigMap with the status of Cluster Autoscaler.
        """
        statuses = (status for status in cluster.autoscaler_statuses if status.key == status_key)
        pools = {pool.name: pool for pool in cluster.node_pools}
        return Autoscalers(next(statuses, None), pools)

    @property
    def found(self) -> bool:
        """Return whether any autoscaler publishes which nodes it manages."""
        return self.status is not None or bool(self.node_pools)

    def verdicts(self, nodes: Iterable[Node]) -> Mapping[str, NodeScalability]:
        """Return for each node whether an autoscaler removes it when it is empty, by node name.

        The status of Cluster Autoscaler has the number of nodes of each group. If it differs much
        from the number of nodes that seem to be in the group, their group is unknown.
        """
        known: dict[tuple[str | None, ...], NodeScalability] = {}
        verdicts = {}
        counts = Counter[NodeGroup]()
        for node in nodes:
            traits = (
                node.provider,
                *map(node.labels.get, _LABELS_READ),
                *((_value(node, one) for one in _BY_ANNOTATION) if node.annotations else ()),
            )
            if traits not in known:
                known[traits] = self.verdict(node)
            verdicts[node.name] = found = known[traits]
            if found.group is not None and found.group.nodes is not None:
                counts[found.group] += 1
        doubtful = {group for group, count in counts.items() if not _confirms(group, count)}
        if not doubtful:
            return verdicts
        return {
            name: _doubt(verdict, counts) if verdict.group in doubtful else verdict
            for name, verdict in verdicts.items()
        }

    def unpromised(self, verdicts: Mapping[str, NodeScalability]) -> frozenset[str]:
        """Return the names of nodes whose removal must not be promised as savings.

        They are the nodes of unknown scalability, if Cluster Autoscaler publishes node groups that
        Ebb can read. *verdicts*: of the nodes, by name.
        """
        if self.status is None or not self.status.groups:
            return frozenset()
        unknown = Scalability.UNKNOWN
        return frozenset(name for name, verdict in verdicts.items() if verdict.state is unknown)

    def verdict(self, node: Node) -> NodeScalability:
        """Return whether an autoscaler removes the node when it is empty, and why."""
        return _of_platform(node) or self._of_karpenter(node) or self._of_group(node)

    def _of_karpenter(self, node: Node) -> NodeScalability | None:
        name = node.labels.get(KARPENTER_LABEL)
        if name is None:
            return None
        pool = self.node_pools.get(name)
        if pool is None:
            return _unknown(f"NodePool {name} of the node does not exist or was not read")
        if pool.fixed:
            return _not(f"the node's NodePool {name} {pool.fixed}")
        return NodeScalability(
            Scalability.SCALABLE, f"Karpenter manages the node (NodePool {name})"
        )

    def _of_group(self, node: Node) -> NodeScalability:
        named = [(one, value) for one in NODE_GROUPS if (value := _value(node, one))]
        if not named:
            return _unknown("no label or annotation of the node names its node group")
        if self.status is not None:
            return _in_group(node, named, self.status)
        key, value = named[0]
        text = f"{key.key}={value}"
        if self.node_pools and key in MANAGED:
            return _not(
                f"the node group ({text}) is fixed: Karpenter manages other nodes, and there is "
                "no Cluster Autoscaler"
            )
        return _unknown(f"no autoscaler was found for the node group ({text})")


def group_name(node: Node, pool: str) -> str:
    """Return the group of the node by its labels and annotations, or else *pool*.

    It is for display: an autoscaler may name the group differently. *pool*: name of the node's
    pool of the setting `pools`; empty if it is in none.
    """
    if name := node.labels.get(KARPENTER_LABEL):
        return name
    return next(filter(None, (_value(node, one) for one in NODE_GROUPS)), pool)


def largest_groups(groups: Mapping[str, str]) -> Mapping[str, str]:
    """Return *groups* with the GROUPS_SHOWN largest ones, and OTHER in place of the rest.

    *groups*: group of each node for display, by name of the node.
    """
    counts = Counter(groups.values())
    if len(counts) <= GROUPS_SHOWN:
        return groups
    largest_first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rest = {group for group, _ in largest_first[GROUPS_SHOWN:]}
    return {name: OTHER if group in rest else group for name, group in groups.items()}


def _of_platform(node: Node) -> NodeScalability | None:
    key, value = SYSTEM_LABEL
    if node.labels.get(key) == value:
        return _not(f"label {key}={value} says that the node is in a system pool")
    if node.provider in UNMANAGED_PROVIDERS:
        return _not(f"no autoscaler manages machines with a providerID {node.provider}://")
    return None


def _not(evidence: str) -> NodeScalability:
    return NodeScalability(Scalability.NOT_SCALABLE, evidence)


def _unknown(evidence: str) -> NodeScalability:
    return NodeScalability(Scalability.UNKNOWN, evidence)


def _in_group(
    node: Node, named: Sequence[tuple[NodeGroupKey, str]], status: AutoscalerStatus
) -> NodeScalability:
    if status.fault:
        return _unknown(f"ConfigMap {status.key}: {status.fault}")
    key, value, candidates = next(
        (
            (key, value, found)
            for key, value in named
            if (found := _groups_of(node, key, value, status.groups))
        ),
        (*named[0], []),
    )
    if len(candidates) != 1:
        many, match = (
            (f"{len(candidates)} node groups", "match")
            if candidates
            else ("no node group", "matches")
        )
        text = f"{key.key}={value}"
        return _unknown(f"{many} in ConfigMap {status.key} {match} the node ({text})")
    (group,) = candidates
    return NodeScalability(
        Scalability.SCALABLE,
        f"Cluster Autoscaler manages node group {group.name} (minimum size {group.min_size})",
        group,
    )


def _value(node: Node, key: NodeGroupKey) -> str:
    if not key.annotation:
        return node.labels.get(key.key, "")
    value = node.annotations.get(key.key, "")
    return value.rpartition("/")[2].rpartition("-")[0] if key.of_machine else value


def _groups_of(
    node: Node, key: NodeGroupKey, value: str, groups: Iterable[NodeGroup]
) -> list[NodeGroup]:
    """Return the node groups that may be the node's, by their names and zones.

    *value*: what the label or annotation *key* of the node says.
    """
    values = {value, value.rpartition("-")[0]} if key.of_set else {value}
    form = None
    if key.group != NodeGroupKey(key.key).group:
        form = re.compile(key.group.replace("VALUE", re.escape(value)))
    zones = {node.labels[key] for key in ZONE_LABELS if key in node.labels}
    return [
        group
        for group in groups
        if (not group.zone or group.zone in zones)
        and (group.name in values or (form is not None and form.fullmatch(group.name)))
    ]


def _confirms(group: NodeGroup, count: int) -> bool:
    """Return whether the group may have *count* nodes, although nodes come and go."""
    said = group.nodes
    return said is None or 2 * min(said, count) >= max(said, count)


def _doubt(verdict: NodeScalability, counts: Mapping[NodeGroup, int]) -> NodeScalability:
    group = verdict.group
    if group is None:
        return verdict
    return _unknown(
        f"{counts[group]} nodes seem to be in node group {group.name}, but Cluster Autoscaler "
        f"reports {group.nodes} nodes there"
    )
