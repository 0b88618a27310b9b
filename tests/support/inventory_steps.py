"""Random events of an inventory, for laws about it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from hypothesis import strategies as st

from core.cluster.namespaces import ANTI_AFFINITY_FIELD, Namespace
from core.cluster.read_options import SCHEDULER_FIELD
from core.cluster.volumes import Claim, CsiNode, Volume
from core.model.constraints import (
    OS_LABEL,
    ClaimUse,
    Disk,
    DisruptionFacts,
    InlineDisk,
    NamespaceChoice,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
    Toleration,
)
from core.model.pod import CLAIMS_FIELD, VOLUMES_FIELD, Pod
from kube.decode.kinds import CLAIMS, CSI_NODES, NAMESPACES, NODES, PODS, VOLUMES, AnyKind
from kube.inventory import Inventory
from tests.support.builders import node, pod

NAMES: Final = (("a", "p"), ("a", "q"), ("a-b", "p"))
"""Namespace and name of pods; as one text, a-b/p comes before a/p."""
GPU: Final = "example.com/gpu"
PREFERRED: Final = NodeConstraints(tolerations=(Toleration("k"),))
FAR: Final = PodConstraints(
    apart=(
        PodAffinityTerm(
            PodSelector(None, ()), "zone", NamespaceChoice((), (Requirement("team", "Exists"),))
        ),
    )
)


def _versions(plain: Pod) -> Iterable[Pod]:
    """Yield pods of one name; each has something that may change it in a Cluster."""
    yield plain
    yield replace(plain, priority=1, owner_kind="ReplicaSet", labels={"app": "web"})
    yield replace(plain, node_constraints=PREFERRED)
    yield replace(plain, mirror=True, node_constraints=PREFERRED)
    yield replace(plain, node=None, nominated_node="n")
    yield replace(plain, scheduler="volcano", unsupported=(SCHEDULER_FIELD,))
    yield replace(plain, scheduler="gke.io/optimize-utilization-scheduler")
    yield replace(plain, unsupported=(VOLUMES_FIELD,))
    yield replace(plain, requests=replace(plain.requests, extended=((GPU, 1),)))
    yield replace(plain, pod_constraints=FAR, unsupported=(ANTI_AFFINITY_FIELD,))
    yield replace(plain, pod_constraints=replace(FAR), daemon=True)
    claims = DisruptionFacts(claims=(ClaimUse("c"),))
    yield replace(plain, disruption_facts=claims, unsupported=(CLAIMS_FIELD,))
    disks = DisruptionFacts(disks=(InlineDisk("ebs", "1"),))
    yield replace(plain, disruption_facts=disks, unsupported=(VOLUMES_FIELD,))


OBJECTS: Final[list[tuple[AnyKind, Any]]] = [
    (NODES, node("n")),
    (NODES, node("n", labels={OS_LABEL: "linux"})),
    (NODES, node("n", unschedulable=True)),
    (NODES, node("m", labels={OS_LABEL: "windows"}, extended=((GPU, 1),))),
    (CLAIMS, Claim(namespace="a", name="c", volume="pv", modes=("ReadWriteOnce",))),
    (CLAIMS, Claim(namespace="a", name="c", volume="pv", modes=("ReadWriteMany",))),
    (VOLUMES, Volume(name="pv", disk=Disk("ebs", "2"))),
    (CSI_NODES, CsiNode(name="n", limits={"ebs": 3})),
    (NAMESPACES, Namespace(name="a")),
    (NAMESPACES, Namespace(name="a", labels={"team": "x"})),
    *((PODS, version) for namespace, name in NAMES
      for version in _versions(pod(name, "n", 1, 1, namespace=namespace))),
]  # fmt: skip


def events(others: str) -> st.SearchStrategy[list[tuple[AnyKind, Any, str]]]:
    """Generate kinds, objects and steps: those of `carry_out`, and *others*."""
    steps = st.tuples(st.sampled_from(OBJECTS), st.sampled_from(f"ccgdl{others}"))
    return st.lists(steps.map(lambda found: (*found[0], found[1])), max_size=40)


def carry_out(inventory: Inventory, kind: AnyKind, one: Any, step: str) -> bool:
    """Change objects of the inventory; return False if *step* is none of these.

    (c)hange an object, (g)arbled object, (d)elete, (l)ist the object and the others of its kind.
    """
    key = kind.key(one)
    match step:
        case "c":
            inventory.changed(kind, one)
        case "g":
            inventory.refused(kind, key, "odd")
        case "d":
            inventory.deleted(kind, key)
        case "l":
            inventory.replaced(kind, {**inventory.of(kind), key: one}.values())
        case _:
            return False
    return True
