"""Decide which pods may use devices by Dynamic Resource Allocation (DRA), so cannot be evaluated.

A pod requests a device by the name of an extended resource. A node offers it by a device plugin,
in its allocatable resources. If the node offers none, kube-scheduler looks for a DeviceClass with
this extended resource name, and claims a device of the node for the pod. Ebb does not read the
devices of nodes (ResourceSlices), so it cannot tell whether such a node has one:

- If no node offers the device by a plugin, the pod cannot be evaluated. Without a DeviceClass it
  could run nowhere, and some API servers do not let Ebb read DeviceClasses.
- If some nodes offer it by a plugin, and a DeviceClass maps its name, a Pending pod cannot be
  evaluated, and neither can a pod on a node that offers none. Other pods stay on the nodes that
  offer the device by a plugin: Ebb places them there only.

Source: kube-scheduler 1.37, NodeResourcesFit (shouldDelegateResourceToDRA); its feature gate
DRAExtendedResource is locked on since 1.37.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import is_device


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """A DeviceClass, with the name of the extended resource for which it stands."""

    name: str
    resource: str = ""
    """Name of the extended resource; empty if none is set."""


class Devices:
    """The devices that nodes offer by plugins, and the names that DeviceClasses map to DRA."""

    def __init__(self, nodes: Sequence[Node], classes: Iterable[DeviceClass]) -> None:
        """Collect the extended resources of the nodes, and the names that the classes map."""
        self._nodes = nodes
        self.mapped = frozenset(one.resource for one in classes if one.resource)
        """Names of extended resources that a node may offer by DRA."""

    @cached_property
    def _by_node(self) -> Mapping[str, frozenset[str]]:
        """Return the names of the extended resources that each node offers, by node name."""
        return {
            node.name: frozenset(name for name, units in node.allocatable.extended if units > 0)
            for node in self._nodes
        }

    @cached_property
    def offered(self) -> frozenset[str]:
        """Return the names of the extended resources that at least one node offers."""
        return frozenset().union(*self._by_node.values())

    @cached_property
    def _partly_offered(self) -> frozenset[str]:
        """Return the mapped names that some nodes offer by a plugin, and others do not."""
        everywhere = self.mapped.intersection(*self._by_node.values())
        return self.mapped.intersection(self.offered) - everywhere

    def without_claimed(self, pod: Pod) -> Pod:
        """Return the pod without requests for devices that it may get by DRA.

        `unsupported` then names such a device, so the pod is not evaluable. The remaining requests
        still show which nodes have no room for the pod. The same object if there is no such
        request.
        """
        requested = [name for name, units in pod.requests.extended if units and is_device(name)]
        missing = [name for name in requested if name not in self.offered]
        unknown = [name for name in requested if self._may_be_claimed(pod, name)]
        if not (missing or unknown):
            return pod
        claimed = {*missing, *unknown}
        remaining = tuple((name, of) for name, of in pod.requests.extended if name not in claimed)
        field = (
            f"requests for {missing[0]} (no node offers it)"
            if missing
            else f"requests for {unknown[0]} (some nodes may offer it by DRA: a DeviceClass maps "
            "it)"
        )
        return replace(
            pod,
            requests=replace(pod.requests, extended=remaining),
            unsupported=(*pod.unsupported, field),
        )

    def _may_be_claimed(self, pod: Pod, name: str) -> bool:
        if name not in self.mapped or name not in self._partly_offered:
            return False
        there = None if pod.node is None else self._by_node.get(pod.node)
        return there is None or name not in there
