"""Turn a load of the live loop into a load of the simulation."""

import json
from dataclasses import replace

from core.model.constraints import HOST_LABEL
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from kube.decode.kinds import NODES, PODS
from sim.cluster import DAEMON_REQUESTS
from sim.deployments import NAMESPACE
from sim.simulated_load import Arrival, Deployment, SimulatedLoad, amount
from tests.e2e.live import Event, Load
from tests.e2e.objects import pod

TICK_MS = 1000
MS = 1000


def begin_ms(load: Load) -> int:
    """Return the time when counting begins; before it, the initial state is built."""
    return round(-MS * load.events[0].second)


def simulated(load: Load) -> SimulatedLoad:
    """Return the recorded events as a load of the simulation."""
    begin = begin_ms(load)
    groups = _groups(load)
    shapes = list(groups)
    at = {id(event): begin + round(MS * event.second) for event in load.events}
    jobs = [
        Arrival(
            at[id(one)],
            f"job-{number:05}",
            amount(one.cpu, one.memory, 0),
            max(1, round(MS * one.life)),
        )
        for number, one in enumerate(sorted(load.events, key=lambda event: event.second))
        if one.event == "job"
    ]

    def deployment(first: Event) -> Deployment:
        own = [one for one in load.events if one.app == first.app]
        return Deployment(
            first.app,
            amount(first.cpu, first.memory, 0),
            tuple((at[id(one)], one.replicas) for one in own if one.event != "kill"),
            restarts=tuple(at[id(one)] for one in own if one.event == "kill"),
            startup_ms=MS,
            pod_constraints=_pod(first).pod_constraints,
            disruption_facts=_pod(first).disruption_facts,
        )

    return SimulatedLoad(
        "recorded",
        tuple(shapes[number % len(shapes)] for number in range(load.nodes)),
        tuple(jobs),
        begin + round(MS * load.seconds),
        TICK_MS,
        groups,
        tuple(deployment(one) for one in load.events if one.event == "deploy"),
    )


def _pod(event: Event) -> Pod:
    one = pod("any", restartPolicy="Always", **event.pod_spec)
    one["metadata"]["namespace"] = NAMESPACE  # selectors select pods of the pod's namespace
    one["metadata"]["annotations"] = dict(event.annotations)
    found = PODS.decode(json.dumps(one).encode())
    assert found is not None
    return found


def _groups(load: Load) -> dict[Resources, Node]:
    """Return the template of the nodes of each zone by its shape, which some bytes distinguish."""
    templates = {}
    for number in range(max(load.shape.zones, 1)):
        node = NODES.decode(json.dumps(load.shape.node(number)).encode())
        shape = node.allocatable + DAEMON_REQUESTS
        shape = replace(shape, memory_bytes=shape.memory_bytes - number)
        labels = {key: value for key, value in node.labels.items() if key != HOST_LABEL}
        templates[shape] = Node(name="", allocatable=shape, labels=labels)
    return templates
