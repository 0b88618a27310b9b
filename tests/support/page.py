"""Plans for the page of a cluster, also of clusters with names that no API server accepts."""

from collections.abc import Iterable

from cli.answers import Planned, View
from cli.input.cluster_input import ClusterInput
from cli.plan import Limits, planned
from core.config.settings import Config
from core.engine.zones import ZONE_LABEL
from core.model.cluster import Cluster
from core.model.node import Node, Taint
from core.model.pod import Pod
from tests.support import builders

HOSTILE = "</script><!--<img src=x onerror=\"document.title='owned'\">&amp;"


def input_of(nodes: Iterable[Node], pods: Iterable[Pod]) -> ClusterInput:
    cluster = Cluster.of(nodes, pods)
    return ClusterInput(cluster=cluster, config=Config(), where=HOSTILE, kinds=frozenset())


def plan_of(cluster_input: ClusterInput) -> Planned:
    return planned(cluster_input, Limits(), View())


def hostile_input() -> ClusterInput:
    """Return a cluster in which every name is an attempt to insert HTML."""
    labels = {HOSTILE: HOSTILE, ZONE_LABEL: HOSTILE}
    nodes = [
        builders.node(HOSTILE, labels=labels, taints=(Taint(HOSTILE, HOSTILE, HOSTILE),)),
        builders.node("a"),
    ]
    pods = [
        builders.pod(HOSTILE, HOSTILE, 100, 100, namespace=HOSTILE),
        builders.pod(f"{HOSTILE}-pending", None, 100, 100),
    ]
    return input_of(nodes, pods)
