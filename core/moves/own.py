"""Decide about Ebb's own pods: which one surge moves leave alone, and when the leader steps back.

Replicas that do not lead, and webhooks, are moved like the pods of any Deployment. The leader
cannot finish a move of its own pod. So it hands its Lease over to another replica first, and the
new leader moves the pod.
"""

from typing import Final

from core.engine.maintenance_gate import MayBegin
from core.model.pod import Pod
from core.moves.objects import ObservedDeployment
from core.moves.planner import SurgeContext
from core.moves.reasons import OWN
from core.moves.steps import leaving_nodes, marked_nodes

HANDOVER_ANNOTATION: Final = "kube-ebb.io/handed-over"
"""Annotation of the controller's Lease: Unix second at which a leader last handed it over."""
HANDOVER_SECONDS_MIN: Final = 24 * 3600
"""Minimum time between two handovers: a new leader begins with all waiting times."""


def leader_to_replace(context: SurgeContext) -> Pod | None:
    """Return the pod of the leader if it must hand its Lease over now, so that it can be moved.

    It is the last pod on its marked node, nothing but its leading speaks against its move, and no
    other move is in progress. Every other replica is Ready and on a node that stays.
    """
    given = context.surge_input
    if not context.allowed or not isinstance(context.beginning, MayBegin):
        return None
    if context.pods_pending or context.detached or given.memory.own:
        return None
    alone = (pods[0] for pods in context.on.values() if len(pods) == 1)
    leader = next((pod for pod in alone if pod.key == given.leader_pod), None)
    deployment = given.objects.deployment_of(leader) if leader is not None else None
    if leader is None or deployment is None or not _others_can_lead(context, leader, deployment):
        return None
    against = [blocker for blocker in context.blockers(leader) if blocker.reason is not OWN]
    return None if against else leader


def _others_can_lead(context: SurgeContext, leader: Pod, deployment: ObservedDeployment) -> bool:
    nodes = context.surge_input.cluster.nodes
    left = marked_nodes(nodes) | leaving_nodes(nodes)
    others = [pod for pod in context.of_deployment[deployment.key] if pod.uid != leader.uid]
    return bool(others) and all(
        pod.ready and not pod.terminating and pod.node not in left for pod in others
    )
