"""May a soft mark become a hard one, or would the NoSchedule taint make other pods wait.

Source: Kubernetes' DaemonSet controller (its pods need the toleration like all others) and the
scheduler's topology spread, which by default counts tainted nodes as domains.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from core.fit import tolerates
from core.guards import Blocker
from core.marks import Mark, mark_of
from core.model import Cluster, Effect, Node, Taint

DAEMON_SET: Final = "DaemonSet"


def refusals(cluster: Cluster, taint_key: str) -> Mapping[str, tuple[Blocker, ...]]:
    """Return what speaks against a hard mark, for every marked node."""
    marked = [node for node in cluster.nodes if mark_of(node.labels) is not None]
    if not marked:
        return {}
    found: dict[str, list[Blocker]] = {node.name: [] for node in marked}
    for name, message, pod in _daemons(cluster, taint_key):
        if name in found:
            found[name].append(Blocker("hard-daemonset", message, pod))
    keys = {
        one.topology_key
        for pod in cluster.pods
        for one in pod.company.spread
        if not one.honor_taints
    }
    for key in sorted(keys):
        open_domains = _domains(cluster.nodes, key)
        for node in marked:
            domain = node.labels.get(key)
            if domain is not None and domain not in open_domains:
                message = f"pods spread over {key} would count {domain}, which no pod could enter"
                found[node.name].append(Blocker("hard-spread", message))
    return {name: tuple(blockers) for name, blockers in found.items()}


def _daemons(cluster: Cluster, taint_key: str) -> Iterable[tuple[str, str, str]]:
    taint = Taint(taint_key, "1", Effect.NO_SCHEDULE)
    for pod in cluster.pods:
        if pod.owner_kind != DAEMON_SET or pod.node is None:
            continue
        if not any(tolerates(toleration, taint) for toleration in pod.placing.tolerations):
            message = f"DaemonSet {pod.owner_name} does not tolerate the taint {taint_key}"
            yield pod.node, message, pod.key


def _domains(nodes: Iterable[Node], key: str) -> frozenset[str]:
    """Return the domains that have a node without a mark: those stay open to all pods.

    A soft mark counts too: all of a domain's nodes may become hard in one pass.
    """
    return frozenset(
        node.labels[key]
        for node in nodes
        if key in node.labels and mark_of(node.labels) is None and not node.unschedulable
    )


def wanted(against: tuple[Blocker, ...], hard_after_seconds: int | None, age_seconds: int) -> Mark:
    """Return what the mark of a node should be that has had one for so long."""
    if hard_after_seconds is None or against or age_seconds < hard_after_seconds:
        return Mark.SOFT
    return Mark.HARD
