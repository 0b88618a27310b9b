"""Limit Ebb's scale-down protection of drifted nodes, because it blocks their replacement.

On nodes of Karpenter the protection is `karpenter.sh/do-not-disrupt`. It blocks every voluntary
disruption, also the replacement of drifted nodes. That replacement brings security patches, so
Ebb protects a drifted node for a limited time only.
"""

from typing import Final

from core.model.cluster import Cluster
from core.model.now import Now

DRIFT_PROTECTION_SECONDS: Final = 3600
"""Maximum time, counted from the drift, for which Ebb protects a node that Karpenter reports as
drifted."""


def unprotectable(cluster: Cluster, now: Now | None) -> frozenset[str]:
    """Return the names of drifted nodes that Ebb no longer protects from scale-down.

    Karpenter has reported these nodes as drifted for DRIFT_PROTECTION_SECONDS or longer. Empty if
    *now* is None.
    """
    if now is None:
        return frozenset()
    return frozenset(
        claim.node
        for claim in cluster.node_claims
        if claim.node
        and claim.drifted_seconds is not None
        and now.reached(claim.drifted_seconds + DRIFT_PROTECTION_SECONDS)
    )
