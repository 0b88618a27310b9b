"""kind: one control-plane node and three workers, each as large as the machine below them all."""

from collections.abc import Iterator
from dataclasses import replace

from tests.platforms.objects import (
    EVERYWHERE,
    App,
    Json,
    Machine,
    csi_nodes,
    everywhere,
    node,
    replicas,
    static,
    taint,
)

WORKER = Machine(
    cpu="8",
    memory="16374568Ki",
    capacity_cpu="8",
    capacity_memory="16374568Ki",
    image="Debian GNU/Linux 12 (bookworm)",
    kernel="6.10.14-linuxkit",
    kubelet="v1.33.4",
    annotations={"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
)
CONTROL_PLANE = replace(
    WORKER,
    labels={
        "node-role.kubernetes.io/control-plane": "",
        "node.kubernetes.io/exclude-from-external-load-balancers": "",
    },
    taints=(taint("node-role.kubernetes.io/control-plane"),),
)
FIRST = "kind-control-plane"
WORKERS = ["kind-worker", "kind-worker2", "kind-worker3"]


def items() -> Iterator[Json]:
    """Yield everything that the API server has."""
    yield node(FIRST, CONTROL_PLANE, provider_id=f"kind://docker/kind/{FIRST}")
    yield from (node(name, WORKER, provider_id=f"kind://docker/kind/{name}") for name in WORKERS)
    for app in (
        App(name="etcd", asks=[("100m", "100Mi")], host_network=True),
        App(name="kube-apiserver", asks=[("250m", "")], host_network=True),
        App(name="kube-controller-manager", asks=[("200m", "")], host_network=True),
        App(name="kube-scheduler", asks=[("100m", "")], host_network=True),
    ):
        yield from static(app, FIRST)
    for app in (
        App(name="kindnet", asks=[("100m", "50Mi")], tolerations=EVERYWHERE, host_network=True),
        App(name="kube-proxy", tolerations=EVERYWHERE, host_network=True),
    ):
        yield from everywhere(app, FIRST, *WORKERS)
    control_plane = [
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
        {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
    ]
    linux = {"kubernetes.io/os": "linux"}
    dns = App(name="coredns", asks=[("100m", "70Mi")], tolerations=control_plane, selector=linux)
    yield from replicas(dns, FIRST, FIRST)
    provisioner = App(
        name="local-path-provisioner",
        namespace="local-path-storage",
        tolerations=[
            *control_plane,
            {"key": "node-role.kubernetes.io/master", "operator": "Equal"},
        ],
        selector=linux,
    )
    yield from replicas(provisioner, FIRST)
    yield from replicas(App(name="hello", namespace="default", asks=[("250m", "128Mi")]), *WORKERS)
    yield from csi_nodes([FIRST, *WORKERS], {})
