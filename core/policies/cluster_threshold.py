"""The thesis's rule: the whole cluster must stay under its thresholds without the node.

Source: thesis 4.4, candidate_check. Necessary, never sufficient: usable capacity is at most
capacity, so a node that fails here fails the final check too.
"""

from core.capacity.usable import Amount, Share


def nominated(
    *, requests: Amount, capacity: Amount, daemon: Amount, node: Amount, thresholds: Share
) -> bool:
    """Say whether requests without *daemon* fit the thresholds of capacity without *node*.

    `requests` and `capacity` are the cluster's sums, `daemon` what goes with the node, `node` its
    allocatable. O(1). The last node fails, because nothing would be left (thesis repair m).
    """
    return requests.minus(daemon).within(thresholds, capacity.minus(node))
