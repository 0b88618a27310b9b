"""Drifted nodes: Karpenter replaces them, and Ebb's scale-down protection holds that up.

On nodes of Karpenter the protection is `karpenter.sh/do-not-disrupt`, which blocks every voluntary
disruption, also that by drift. Drift brings security patches, so a drifted node is protected for a
limited time only.
"""

from typing import Final

from core.model.cluster import Cluster
from core.model.now import Now

DRIFT_PROTECTION_SECONDS: Final = 3600
"""Time for which Ebb protects a node that Karpenter reports as drifted."""


def unprotectable(cluster: Cluster, now: Now | None) -> frozenset[str]:
    """Return the nodes that Ebb no longer protects; *now* None: no time has passed."""
    if now is None:
        return frozenset()
    return frozenset(
        claim.node
        for claim in cluster.node_claims
        if claim.node
        and claim.drifted_seconds is not None
        and now.reached(claim.drifted_seconds + DRIFT_PROTECTION_SECONDS)
    )
