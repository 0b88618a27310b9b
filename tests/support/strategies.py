"""Generated clusters: small, but with everything in them that the engine tells apart."""

from dataclasses import replace

from hypothesis import strategies as st

from core.fit import refusal
from core.model import Cluster, Node, Placing, Pod, Taint, Toleration
from tests.support.builders import node, pod

PLACINGS = (
    Placing(),
    Placing(),
    Placing(node_selector=(("zone", "a"),)),
    Placing(tolerations=(Toleration(key="batch", operator="Exists"),)),
)
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
        labels={"zone": draw(st.sampled_from("ab"))},
        annotations={"kube-ebb.io/keep": "true"} if draw(st.integers(0, 9)) == 0 else {},
        taints=draw(st.sampled_from(TAINTS)),
        unschedulable=draw(st.integers(0, 9)) == 0,
        ready=draw(st.integers(0, 9)) != 0,
        pods=draw(st.sampled_from((3, 10, 110))),
        extended=(("gpu", draw(st.integers(1, 4))),) if draw(st.booleans()) else (),
    )


@st.composite
def clusters(draw: st.DrawFn, most: int = 8) -> Cluster:
    """Return a cluster in which every pod stands where the scheduler could have put it."""
    places = [draw(nodes(number)) for number in range(draw(st.integers(1, most)))]
    pods: list[Pod] = []
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
        )
        target = draw(st.sampled_from(places))
        pods.append(_bound(made, target, left))
    return Cluster.of(places, [one for one in pods if not (one.daemon and one.node is None)])


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
