"""Generated clusters: small, but with everything in them that the engine tells apart."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from core.fit import refusal
from core.model import (
    ALONE,
    Cluster,
    Company,
    HostPort,
    Node,
    Placing,
    Pod,
    PodAffinityTerm,
    PodSelector,
    SpreadConstraint,
    Taint,
    Toleration,
)
from tests.support.builders import node, pod, select

PLACINGS = (
    Placing(),
    Placing(),
    Placing(node_selector=(("zone", "a"),)),
    Placing(tolerations=(Toleration(key="batch", operator="Exists"),)),
)
A, B = select("a"), select("b")
ZONE_A, ZONE_B = PodAffinityTerm(A, "zone"), PodAffinityTerm(B, "zone")
HOST_A, HOST_B = PodAffinityTerm(A, "host"), PodAffinityTerm(B, "host")
EVERYBODY = PodSelector(None, ())
APART = (
    Company(apart=(HOST_A,)),
    Company(apart=(ZONE_B,)),
    Company(apart=(HOST_A, ZONE_B)),
    Company(apart=(PodAffinityTerm(EVERYBODY, "host"),)),
)
NEAR = (
    Company(near=(ZONE_A,)),
    Company(near=(HOST_B,)),
    Company(near=(HOST_A, ZONE_A)),
    Company(near=(ZONE_A, ZONE_B)),
    Company(near=(ZONE_A,), apart=(HOST_A,)),
)
SPREAD = (
    Company(spread=(SpreadConstraint(A, "zone", 1),)),
    Company(spread=(SpreadConstraint(A, "host", 1),)),
    Company(spread=(SpreadConstraint(B, "host", 2, min_domains=9),)),
    Company(spread=(SpreadConstraint(A, "zone", 1, 3), SpreadConstraint(A, "host", 2))),
    Company(spread=(SpreadConstraint(B, "zone", 1, honor_affinity=False, honor_taints=True),)),
    Company(spread=(SpreadConstraint(PodSelector((), ()), "zone", 1),)),
)
PORTS = (
    Company(host_ports=(HostPort(80),)),
    Company(host_ports=(HostPort(80, ip="10.0.0.1"), HostPort(81))),
    Company(host_ports=(HostPort(80, ip="10.0.0.2"),)),
    Company(host_ports=(HostPort(80, "UDP"),), apart=(ZONE_A,)),
)
COMPANIES = APART + NEAR + SPREAD + PORTS
TAINTS = ((), (), (), (Taint("batch", "", "NoSchedule"),), (Taint("x", "", "PreferNoSchedule"),))
SHAPES = ((4000, 8000), (8000, 8000), (2000, 16_000))
REQUESTS = ((0, 0), (100, 200), (500, 300), (500, 2000), (1500, 1000), (2000, 6000))


@st.composite
def nodes(draw: st.DrawFn, number: int) -> Node:
    cpu, memory = draw(st.sampled_from(SHAPES))
    return node(
        f"n{number:02}",
        cpu,
        memory,
        labels={
            "zone": draw(st.sampled_from("aab")),
            **({"host": f"n{number:02}"} if draw(st.integers(0, 9)) else {}),
        },
        annotations={"kube-ebb.io/keep": "true"} if draw(st.integers(0, 9)) == 0 else {},
        taints=draw(st.sampled_from(TAINTS)),
        unschedulable=draw(st.integers(0, 9)) == 0,
        ready=draw(st.integers(0, 9)) != 0,
        pods=draw(st.sampled_from((3, 10, 110))),
        extended=(("gpu", draw(st.integers(1, 4))),) if draw(st.booleans()) else (),
    )


@st.composite
def clusters(draw: st.DrawFn, most: int = 8, companies: Sequence[Company] = COMPANIES) -> Cluster:
    """Return a cluster in which every pod stands where the scheduler could have put it.

    Only what pods ask of other pods may be broken, as it may in a cluster: nothing enforces it
    once a pod runs.
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
            placing=draw(st.sampled_from(PLACINGS)),
            daemon=draw(st.integers(0, 9)) == 0,
            unsupported=("spec.volumes",) if draw(st.integers(0, 19)) == 0 else (),
            extended=(("gpu", 1),) if draw(st.integers(0, 9)) == 0 else (),
            labels={"app": draw(st.sampled_from("abc"))} if social else {},
            company=draw(st.sampled_from(companies)) if draw(_of_ten(social)) else ALONE,
            terminating=social > 0 and draw(_of_ten(1)),
        )
        target = draw(st.sampled_from(places))
        pods.append(_bound(made, target, left))
    return Cluster.of(places, [one for one in pods if not (one.daemon and one.node is None)])


def _of_ten(number: int) -> st.SearchStrategy[bool]:
    """Be true so many times of ten."""
    return st.integers(0, 9).map(lambda drawn: drawn >= 10 - number)


def _bound(made: Pod, target: Node, left: dict[str, tuple[int, int, int]]) -> Pod:
    """Bind the pod to *target* if it fits there; else it stays pending."""
    asked = made.requests
    cpu, memory, slots = left[target.name]
    gpus = dict(target.allocatable.extended).get("gpu", 0)
    if (
        refusal(target, made.placing) is not None
        or asked.cpu_millis > cpu
        or asked.memory_bytes > memory
        or slots < 1
        or (asked.extended and not gpus)
    ):
        return made
    left[target.name] = (cpu - asked.cpu_millis, memory - asked.memory_bytes, slots - 1)
    return replace(made, node=target.name)
