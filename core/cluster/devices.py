"""Find devices that pods request by name and that no node offers; pure.

If a node does not offer the device, kube-scheduler looks for a DeviceClass with this extended
resource name and claims a device for the pod (DRA). Ebb does not read DeviceClasses. If no node
offers the device, Ebb cannot tell such a pod from a pod that never fits anywhere. It evaluates
neither, as with resource claims. If some nodes offer the device, Ebb considers these nodes only.
Source: kube-scheduler 1.36, NodeResourcesFit (shouldDelegateResourceToDRA); its feature gate
DRAExtendedResource is enabled by default.
"""

from collections.abc import Iterable
from dataclasses import replace

from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import is_device


def offered(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the extended resources that at least one node offers."""
    return frozenset(name for node in nodes for name, many in node.allocatable.extended if many)


def without_claimed(pod: Pod, there: frozenset[str]) -> Pod:
    """Return the pod without the devices that no node offers, marked as not evaluable.

    The remaining requests still show which nodes have no room for the pod. *there*: the extended
    resources that nodes offer.
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
