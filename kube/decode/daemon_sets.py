"""Decode DaemonSets into core.model.cluster; errors name the field.

Source: NodeShouldRunDaemonPod and AddOrUpdateDaemonPodTolerations of the DaemonSet controller.
"""

from dataclasses import replace
from typing import Final

from core.model.cluster import DaemonSet
from core.model.constraints import Toleration
from kube.decode import templates
from kube.decode.buffers import PodTemplateSpec
from kube.decode.fields import checked, few_bytes, shared
from kube.decode.objects import Meta, PodSpec, Struct
from kube.decode.selectors import ordered

KEPT_BYTES_MAX: Final = 62_000
"""Maximum memory that a DaemonSet takes; a DaemonSet that would take more is unreadable."""
SMALL_BYTES: Final = 4 * 1024
"""Size of constraints in JSON up to which they always take less memory than KEPT_BYTES_MAX."""


def _tolerates(condition: str, effect: str) -> Toleration:
    return Toleration(f"node.kubernetes.io/{condition}", "Exists", effect=effect)


ADDED: Final = (
    _tolerates("not-ready", "NoExecute"),
    _tolerates("unreachable", "NoExecute"),
    _tolerates("disk-pressure", "NoSchedule"),
    _tolerates("memory-pressure", "NoSchedule"),
    _tolerates("pid-pressure", "NoSchedule"),
    _tolerates("unschedulable", "NoSchedule"),
)
"""Tolerations that the DaemonSet controller adds to each pod."""
ADDED_ON_HOST: Final = _tolerates("network-unavailable", "NoSchedule")
"""Toleration that the DaemonSet controller adds to each pod with hostNetwork."""


class DaemonSetSpec(Struct):
    template: PodTemplateSpec | None = None


class DaemonSetObject(Struct):
    metadata: Meta
    spec: DaemonSetSpec | None = None


def daemon_set(obj: DaemonSetObject) -> DaemonSet | None:
    """Create a DaemonSet; None if it is being deleted. Raises: InvalidInputError with the field.

    If the constraints of its pods exceed a limit, Ebb reads only the tolerations that the
    DaemonSet controller adds.
    """
    meta = obj.metadata
    if meta.deletion_timestamp is not None:
        return None
    found = obj.spec.template if obj.spec else None
    spec = (found.spec if found else None) or PodSpec()
    blocks = spec.node_selector, spec.affinity, spec.tolerations
    node_constraints = templates.template(*map(bytes, blocks)).node_constraints
    added = (*ADDED, ADDED_ON_HOST) if spec.host_network else ADDED
    tolerations = ordered((*node_constraints.tolerations, *added))
    made = DaemonSet(
        namespace=shared(meta.namespace or "default", "metadata.namespace"),
        name=checked(meta.name, "metadata.name"),
        node_constraints=replace(node_constraints, tolerations=tolerations),
    )
    if sum(map(len, blocks)) > SMALL_BYTES:
        few_bytes(made, KEPT_BYTES_MAX)
    return made
