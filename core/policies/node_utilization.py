"""Cluster Autoscaler's rule: one node at a time, by its own utilization.

Source: Cluster Autoscaler, simulator/utilization and scaledown/eligibility (1.35 and newer).
"""

from fractions import Fraction

from core.capacity.usable import Amount, capacity
from core.model.node import Node


def considered(node: Node, requests: Amount, threshold: Fraction) -> bool:
    """Say whether the larger of the node's two utilizations is at most *threshold*.

    Cluster Autoscaler considers a node from 1.35 on when `utilization <= threshold` and looks at
    requests over allocatable. A node without a resource counts as unused in it.
    """
    return all(
        used * threshold.denominator <= threshold.numerator * whole
        for used, whole in zip(requests, capacity(node), strict=True)
        if whole > 0
    )
