"""List the policies (rules that propose nodes for removal); the first one is the default."""

from collections.abc import Mapping
from typing import Final

from core.policies.cluster_threshold import ClusterThreshold
from core.policies.policy import Policy
from core.policies.ported.excess_nodes import ExcessNodes
from core.policies.ported.node_utilization import NodeUtilization
from core.policies.ported.underutilized_count import UnderutilizedCount

POLICIES: Final[Mapping[str, type[Policy]]] = {
    policy.name: policy
    for policy in (ClusterThreshold, ExcessNodes, UnderutilizedCount, NodeUtilization)
}
"""Policies by their name in the configuration."""
