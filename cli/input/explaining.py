"""Explain a plan with all that a command has read, such as what only the leader knows."""

from cli.explain.explainer import Explainer
from cli.input.cluster_input import ClusterInput
from core.engine.plan import Plan
from core.engine.snapshot import ClusterSnapshot


def explainer(
    cluster_input: ClusterInput, snapshot: ClusterSnapshot, plan: Plan, now_seconds: int
) -> Explainer:
    """Return the explainer of a plan; *snapshot*: the one from which it was made."""
    return Explainer(
        snapshot,
        plan,
        now_seconds,
        cluster_input.namespace,
        cluster_input.surge_objects,
        cluster_input.facts,
        cluster_input.leader_pod,
    )
