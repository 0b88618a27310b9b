"""Random CapacityBuffers for mixed clusters."""

import random
from dataclasses import replace

from core.model.buffers import Buffer
from core.model.cluster import Cluster
from core.model.pod import Pod
from tests.support import mixed


def drawn(chance: random.Random, cluster: Cluster) -> Cluster:
    """Return the cluster with some buffers, for pods like the existing pods and for others."""
    found = []
    for number in range(chance.choice((1, 2, 3, 5))):
        pod = mixed.app(chance, 0.0)
        if cluster.pods and chance.random() < 0.5:
            pod = chance.choice(cluster.pods)
        namespace, name = chance.choice("ddef"), f"b{number}"
        made = Pod(
            namespace="",
            name=f"{namespace}/{name}",
            requests=pod.requests,
            node_constraints=replace(pod.node_constraints, volumes=()),
            owner_kind="CapacityBuffer",
            owner_name=f"{namespace}/{name}",
        )
        many = chance.choice((0, *(1, 1, 2, 3) * 4, 10, 40))
        found.append(Buffer(namespace=namespace, name=name, replicas=many, pod=made))
    return replace(cluster, buffers=tuple(sorted(found, key=lambda b: (b.namespace, b.name))))
