"""From the wire's structs to the model. Faults name the field; whoever calls adds the object."""

from functools import lru_cache
from sys import intern
from typing import Final

from core.edge import templates
from core.edge.asked import requests_of
from core.edge.fields import read_quantity
from core.edge.objects import BudgetObject, Container, NodeObject, PodObject, PodSpec, Volume
from core.edge.objects import Taint as WireTaint
from core.errors import InvalidInputError
from core.model import DisruptionBudget, Node, Pod, Taint
from core.requests import resources

NAME_MAX: Final = 253
NAMES_MAX: Final = 65_536
"""Names of nodes and namespaces that are kept, so that each is checked once."""
FINISHED: Final = ("Succeeded", "Failed")
DAEMON_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
DEFAULT_SCHEDULER: Final = "default-scheduler"
ATTACHABLE: Final = "attachable-volumes-"
"""Counts of volumes: no pod requests them by this name."""


def node(obj: NodeObject) -> Node:
    """Make a Node. Raises: InvalidInputError with the field."""
    status, spec, meta = obj.status, obj.spec, obj.metadata
    conditions = (status.conditions if status else None) or []
    amounts = _allocatable(obj)
    return Node(
        name=_shared(meta.name, "metadata.name"),
        uid=meta.uid,
        labels=meta.labels or {},
        annotations=meta.annotations or {},
        taints=tuple(map(_taint, (spec and spec.taints) or ())),
        unschedulable=bool(spec and spec.unschedulable),
        allocatable=resources(amounts, pods=amounts.get("pods", 0)),
        ready=not conditions or any(c.type == "Ready" and c.status == "True" for c in conditions),
    )


def _taint(found: WireTaint) -> Taint:
    return Taint(found.key, found.value or "", found.effect, found.time_added or "")


def _allocatable(obj: NodeObject) -> dict[str, int]:
    """Read what pods may use; without it the capacity counts, as the API server defaults it."""
    status, field = obj.status, "status.allocatable"
    found = status.allocatable if status else None
    if not found and status:
        found, field = status.capacity, "status.capacity"
    if not found:
        problem = 'missing, and status.capacity too; allowed: resources, such as cpu: "4"'
        raise InvalidInputError("status.allocatable", problem)
    return {
        intern(name): read_quantity(name, written, f"{field}.{name}")
        for name, written in found.items()
        if not name.startswith(ATTACHABLE)
    }


def budget(obj: BudgetObject) -> DisruptionBudget:
    """Make a DisruptionBudget. Raises: InvalidInputError with the field."""
    return DisruptionBudget(
        namespace=obj.metadata.namespace or "default",
        name=_name(obj.metadata.name, "metadata.name"),
        disruptions_allowed=obj.status.disruptions_allowed if obj.status else 0,
    )


def pod(obj: PodObject) -> Pod | None:
    """Make a Pod; None for a finished one. Raises: InvalidInputError with the field."""
    if obj.status is not None and obj.status.phase in FINISHED:
        return None
    meta, spec = obj.metadata, obj.spec
    namespace = _shared(meta.namespace or "default", "metadata.namespace")
    owner = next((o for o in meta.owner_references or () if o.controller), None)
    annotations = meta.annotations or {}
    kind = intern(owner.kind) if owner else ""
    daemon = kind == "DaemonSet" or annotations.get(DAEMON_ANNOTATION) == "true"
    mirror = MIRROR_ANNOTATION in annotations
    template = _template(spec, resident=(daemon or mirror) and bool(spec.node_name))
    return Pod(
        namespace=namespace,
        name=_name(meta.name, "metadata.name"),
        uid=meta.uid,
        node=_shared(spec.node_name, "spec.nodeName") if spec.node_name else None,
        requests=requests_of(spec, obj.status),
        placing=template.placing,
        labels=templates.labels(bytes(meta.labels)),
        owner_kind=kind,
        owner_name=intern(owner.name) if owner else "",
        priority=spec.priority or 0,
        mirror=mirror,
        daemon=daemon,
        unsupported=_unsupported(spec, template),
        repels=templates.selectors(template.repels, namespace) if template.repels else (),
    )


def _template(spec: PodSpec, *, resident: bool) -> templates.Template:
    affinity = bytes(spec.affinity)
    if resident:
        return templates.template_of_resident(affinity)
    return templates.template(bytes(spec.node_selector), affinity, bytes(spec.tolerations))


def _unsupported(spec: PodSpec, template: templates.Template) -> tuple[str, ...]:
    """Name the fields that ask what the engine cannot evaluate."""
    found = []
    if template.attracts:
        found.append("spec.affinity.podAffinity")
    if template.repels:
        found.append("spec.affinity.podAntiAffinity")
    spreads = spec.topology_spread_constraints
    if spreads and any(one.when_unsatisfiable != "ScheduleAnyway" for one in spreads):
        found.append("spec.topologySpreadConstraints")
    if spec.containers and (what := _host_port(spec.containers, spec)):
        found.append(f"spec.containers.{what}")
    if spec.init_containers and (what := _host_port(spec.init_containers, spec)):
        found.append(f"spec.initContainers.{what}")
    for volume in spec.volumes or ():
        if _binds(volume):
            found.append("spec.volumes")
            break
    if spec.resource_claims:
        found.append("spec.resourceClaims")
    if spec.scheduler_name and spec.scheduler_name != DEFAULT_SCHEDULER:
        found.append("spec.schedulerName")
    return tuple(found)


def _host_port(containers: list[Container], spec: PodSpec) -> str:
    """Say what takes a port of the host; on the host's network every port is one."""
    for one in containers:
        for port in one.ports or ():
            if port.host_port:
                return "ports.hostPort"
            if spec.host_network:
                return "ports"
    return ""


def _binds(volume: Volume) -> bool:
    return bool(
        volume.persistent_volume_claim
        or volume.ephemeral
        or volume.gce_persistent_disk
        or volume.aws_elastic_block_store
        or volume.azure_disk
        or volume.cinder
        or volume.iscsi
        or volume.rbd
    )


@lru_cache(maxsize=NAMES_MAX)
def _shared(text: str, field: str) -> str:
    return intern(_name(text, field))


def _name(text: str, field: str) -> str:
    """Refuse names that no API server would take; the rest of Ebb prints and sorts by them."""
    if 0 < len(text) <= NAME_MAX and text.isascii() and text.isprintable() and " " not in text:
        return text
    shown = f"{text[:40]!r} is no name" if text else "missing"
    allowed = f"1 to {NAME_MAX} ASCII letters, digits, '-' and '.'"
    raise InvalidInputError(field, f"{shown}; allowed: {allowed}")
