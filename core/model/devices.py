"""Devices that pods ask for by name and that no node offers; pure.

On a node that has none of a device, kube-scheduler looks for a DeviceClass that stands for its
name, and claims one of its devices for the pod (DRA). Ebb reads no DeviceClasses: where no node
has any, it cannot tell such a pod from one that no node will ever hold, so it judges neither, as
with resource claims. Where some nodes have the device it knows of these alone.
Source: kube-scheduler 1.36, NodeResourcesFit (shouldDelegateResourceToDRA); the gate
DRAExtendedResource is on there by default.
"""

from collections.abc import Iterable
from dataclasses import replace

from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import is_device


def offered(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the extended resources that some node has any of."""
    return frozenset(name for node in nodes for name, many in node.allocatable.extended if many)


def without_claimed(pod: Pod, there: frozenset[str]) -> Pod:
    """Return the pod without the devices that are not *there*, as one that cannot be judged.

    Whether a node has room for the rest can still be told.
    """
    asked = pod.requests.extended
    missing = [name for name, many in asked if many and name not in there and is_device(name)]
    if not missing:
        return pod
    left = tuple((name, many) for name, many in asked if name not in missing)
    return replace(
        pod,
        requests=replace(pod.requests, extended=left),
        unsupported=(*pod.unsupported, f"{missing[0]}, which no node offers"),
    )
