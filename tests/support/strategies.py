"""Hypothesis strategies for small clusters with all features that the engine evaluates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from core.config.settings import Config
from core.engine.snapshot import ClusterSnapshot
from core.engine.zones import ZONE_LABEL
from core.marks.mark import Mark
from core.marks.taints import without_our_taint
from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL, TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import (
    ANY_DRIVER,
    NO_DISRUPTION_FACTS,
    NO_POD_CONSTRAINTS,
    Disk,
    DisruptionFacts,
    HostPort,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
    SelectorTerm,
    SpreadConstraint,
    Toleration,
    VolumeTopology,
)
from core.model.node import Node, Taint
from core.model.pod import Pod
from core.placement.filters import first_failing_filter
from tests.support.builders import marked, node, pod, select

PLACINGS = (
    NodeConstraints(),
    NodeConstraints(),
    NodeConstraints(node_selector=(("zone", "a"),)),
    NodeConstraints(system=(("zone", "a"),)),
    NodeConstraints(tolerations=(Toleration(key="batch", operator="Exists"),)),
    NodeConstraints(volumes=(VolumeTopology(zones=((ZONE_LABEL, ("a",)),)),)),
    NodeConstraints(
        node_selector=(("zone", "a"),),
        volumes=(
            VolumeTopology(
                affinity=(SelectorTerm((Requirement("host", "In", ("n00", "n01", "n02")),)),)
            ),
            VolumeTopology(
                affinity=(SelectorTerm((Requirement("zone", "Exists"),)), SelectorTerm())
            ),
        ),
    ),
)
A, B = select("a"), select("b")
ZONE_A, ZONE_B = PodAffinityTerm(A, "zone"), PodAffinityTerm(B, "zone")
HOST_A, HOST_B = PodAffinityTerm(A, "host"), PodAffinityTerm(B, "host")
EVERYBODY = PodSelector(None, ())
APART = (
    PodConstraints(apart=(HOST_A,)),
    PodConstraints(apart=(ZONE_B,)),
    PodConstraints(apart=(HOST_A, ZONE_B)),
    PodConstraints(apart=(PodAffinityTerm(EVERYBODY, "host"),)),
)
NEAR = (
    PodConstraints(near=(ZONE_A,)),
    PodConstraints(near=(HOST_B,)),
    PodConstraints(near=(HOST_A, ZONE_A)),
    PodConstraints(near=(ZONE_A, ZONE_B)),
    PodConstraints(near=(ZONE_A,), apart=(HOST_A,)),
)
SPREAD = (
    PodConstraints(spread=(SpreadConstraint(A, "zone", 1),)),
    PodConstraints(spread=(SpreadConstraint(A, "host", 1),)),
    PodConstraints(spread=(SpreadConstraint(B, "host", 2, min_domains=9),)),
    PodConstraints(spread=(SpreadConstraint(A, "zone", 1, 3), SpreadConstraint(A, "host", 2))),
    PodConstraints(
        spread=(SpreadConstraint(B, "zone", 1, honor_affinity=False, honor_taints=True),)
    ),
    PodConstraints(spread=(SpreadConstraint(PodSelector((), ()), "zone", 1),)),
)
PORTS = (
    PodConstraints(host_ports=(HostPort(80),)),
    PodConstraints(host_ports=(HostPort(80, ip="10.0.0.1"), HostPort(81))),
    PodConstraints(host_ports=(HostPort(80, ip="10.0.0.2"),)),
    PodConstraints(host_ports=(HostPort(80, "UDP"),), apart=(ZONE_A,)),
)
V1, V2, V3 = (Disk("ebs", f"v{number}") for number in (1, 2, 3))
DISKS = (
    PodConstraints(disks=(V1,)),
    PodConstraints(disks=(V2,)),
    PodConstraints(disks=(V1, V3)),
    PodConstraints(disks=(V2, Disk("nas", "v1")), apart=(HOST_A,)),
)
SOLE = (
    PodConstraints(sole=("d/one",)),
    PodConstraints(sole=("d/one", "d/other"), disks=(V3,)),
    PodConstraints(sole=("d/other",)),
)
COMPANIES = APART + NEAR + SPREAD + PORTS + DISKS + SOLE
LIMITS: tuple[Mapping[str, int | None], ...] = (
    {"ebs": 1},
    {"ebs": 2, "nas": 1},
    {"ebs": 3, "nas": None},
    {"nas": 0},
    {},
)
ATTACHED = (Disk("ebs", "v1"), Disk("ebs", "gone"), Disk("nas", "gone"))
"""Volumes that a VolumeAttachment may name."""
TAINTS = ((), (), (), (Taint("batch", "", "NoSchedule"),), (Taint("x", "", "PreferNoSchedule"),))
SHAPES = ((4000, 8000), (8000, 8000), (2000, 16_000))
REQUESTS = ((0, 0), (100, 200), (500, 300), (500, 2000), (1500, 1000), (2000, 6000))


@st.composite
def nodes(draw: st.DrawFn, number: int) -> Node:
    cpu, memory = draw(st.sampled_from(SHAPES))
    found = node(
        f"n{number:02}",
        cpu,
        memory,
        labels={
            "zone": (zone := draw(st.sampled_from("aab"))),
            **({ZONE_LABEL: zone} if draw(st.integers(0, 9)) else {}),
            **({"host": f"n{number:02}"} if draw(st.integers(0, 9)) else {}),
        },
        annotations={"kube-ebb.io/keep": "true"} if draw(st.integers(0, 9)) == 0 else {},
        taints=draw(st.sampled_from(TAINTS)),
        unschedulable=draw(st.integers(0, 9)) == 0,
        ready=draw(st.integers(0, 9)) != 0,
        pods=draw(st.sampled_from((3, 10, 110))),
        extended=(("gpu", draw(st.integers(1, 4))),) if draw(st.booleans()) else (),
    )
    mark = draw(st.sampled_from((None, None, None, Mark.PREFER_NO_SCHEDULE, Mark.NO_SCHEDULE)))
    return found if mark is None else marked(found, mark, since=draw(st.integers(1, 3)))


def unmarked(found: Node) -> Node:
    """Return the node without its mark and the taint of Ebb."""
    labels = {key: value for key, value in found.labels.items() if key != MARK_LABEL}
    annotations = {k: v for k, v in found.annotations.items() if k != DETAILS_ANNOTATION}
    return replace(without_our_taint(found, TAINT_KEY), labels=labels, annotations=annotations)


@st.composite
def clusters(
    draw: st.DrawFn, most: int = 8, companies: Sequence[PodConstraints] = COMPANIES
) -> Cluster:
    """Draw a cluster in which every pod is on a feasible node.

    Only inter-pod constraints may be violated, since nothing enforces them once a pod runs.
    """
    places = [draw(nodes(number)) for number in range(draw(st.integers(1, most)))]
    pods: list[Pod] = []
    social = draw(st.sampled_from((0, 2, 8)))
    left = {one.name: (one.allocatable.cpu_millis, one.allocatable.memory_bytes,
                       one.allocatable.pods) for one in places}  # fmt: skip
    for number in range(draw(st.integers(0, 5 * len(places)))):
        cpu, memory = draw(st.sampled_from(REQUESTS))
        made = pod(
            f"p{number:02}",
            None,
            cpu,
            memory,
            node_constraints=draw(st.sampled_from(PLACINGS)),
            daemon=draw(st.integers(0, 9)) == 0,
            unsupported=("spec.volumes",) if draw(st.integers(0, 19)) == 0 else (),
            extended=(("gpu", 1),) if draw(st.integers(0, 9)) == 0 else (),
            labels={"app": draw(st.sampled_from("abc"))} if social else {},
            pod_constraints=draw(st.sampled_from(companies))
            if draw(_of_ten(social))
            else NO_POD_CONSTRAINTS,
            terminating=social > 0 and draw(_of_ten(1)),
        )
        if not made.daemon and draw(_of_ten(1)):
            kind = draw(st.sampled_from(("", "StatefulSet", "Job")))
            disruption_facts = draw(
                st.sampled_from((NO_DISRUPTION_FACTS, DisruptionFacts(completes=True)))
            )
            made = replace(made, owner_kind=kind, disruption_facts=disruption_facts)
        made = replace(made, unschedulable=draw(st.booleans()))
        if made.unsupported and social:
            made = replace(
                made, pod_constraints=PodConstraints(disks=(Disk(ANY_DRIVER, made.name),))
            )
        target = draw(st.sampled_from(places))
        pods.append(_bound(made, target, left))
    found = Cluster.of(places, [one for one in pods if not (one.daemon and one.node is None)])
    limits = {one.name: draw(st.sampled_from(LIMITS)) for one in places if social}
    attached = {
        one.name: frozenset(draw(st.lists(st.sampled_from(ATTACHED), max_size=2)))
        for one in places
        if social
    }
    return replace(found, attach_limits=limits, attachments=attached)


def _of_ten(number: int) -> st.SearchStrategy[bool]:
    """Draw True in *number* of ten cases."""
    return st.integers(0, 9).map(lambda drawn: drawn >= 10 - number)


def _bound(made: Pod, target: Node, left: dict[str, tuple[int, int, int]]) -> Pod:
    """Return the pod bound to *target* if it fits, else Pending."""
    asked = made.requests
    cpu, memory, slots = left[target.name]
    gpus = dict(target.allocatable.extended).get("gpu", 0)
    if (
        first_failing_filter(without_our_taint(target, TAINT_KEY), made.node_constraints)
        is not None
        or asked.cpu_millis > cpu
        or asked.memory_bytes > memory
        or slots < 1
        or (asked.extended and not gpus)
    ):
        return made
    left[target.name] = (cpu - asked.cpu_millis, memory - asked.memory_bytes, slots - 1)
    return replace(made, node=target.name, unschedulable=False)


def keys(cluster: Cluster, config: Config) -> Callable[[frozenset[str]], str]:
    """Return a function from a set of nodes to the key of its reach, if there is one."""
    snapshot = ClusterSnapshot(cluster, config)
    found = {
        frozenset(snapshot.node_order.nodes[node].name for node in reach.nodes): reach.key
        for reach in snapshot.reaches.all
    }
    return lambda names: found.get(names, "")
