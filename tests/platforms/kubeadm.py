"""kubeadm: three control-plane nodes, workers in three zones, GPUs behind a taint."""

from collections.abc import Iterator
from dataclasses import replace

from tests.platforms.objects import (
    EVERYWHERE,
    App,
    Json,
    Machine,
    budget,
    csi_nodes,
    everywhere,
    node,
    replicas,
    static,
    taint,
    uid,
)

ZONE = "topology.kubernetes.io/zone"
GPU_TAINT = "nvidia.com/gpu"
WORKER = Machine(
    cpu="8",
    memory="32Gi",
    capacity_cpu="8",
    capacity_memory="33Gi",
    kubelet="v1.34.1",
    annotations={
        "kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/containerd/containerd.sock",
        "projectcalico.org/IPv4Address": "10.1.0.11/16",
        "projectcalico.org/IPv4IPIPTunnelAddr": "192.168.7.1",
    },
    conditions=("NetworkUnavailable",),
)
CONTROL_PLANE = replace(
    WORKER,
    labels={
        "node-role.kubernetes.io/control-plane": "",
        "node.kubernetes.io/exclude-from-external-load-balancers": "",
    },
    taints=(taint("node-role.kubernetes.io/control-plane"),),
    cpu="4",
    memory="16Gi",
    capacity_cpu="4",
    capacity_memory="16Gi",
)
GPU = replace(
    WORKER,
    cpu="32",
    memory="256Gi",
    capacity_cpu="32",
    capacity_memory="257Gi",
    labels={
        "feature.node.kubernetes.io/pci-10de.present": "true",
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    },
    taints=(taint(GPU_TAINT, "present"),),
    extended={"nvidia.com/gpu": "4"},
)
CPS = ["cp-1", "cp-2", "cp-3"]
WORKERS = [f"worker-{zone}{number}" for zone in "abc" for number in (1, 2)]
GPUS = ["gpu-a1", "gpu-a2", "gpu-a3"]


def items() -> Iterator[Json]:
    """Yield everything that the API server has."""
    for name, zone in zip(CPS, "abc", strict=True):
        yield _node(name, CONTROL_PLANE, zone)
    for name in WORKERS:
        yield _node(name, WORKER, name[-2])
    for name in GPUS:
        yield _node(name, GPU, "a")
    yield from _system()
    yield from _load()
    yield from csi_nodes([*CPS, *WORKERS, *GPUS], {})


def _node(name: str, machine: Machine, zone: str) -> Json:
    return node(
        name, machine, provider_id=f"vsphere://{uid(name)}", zone=f"dc-{zone}",
    )  # fmt: skip


def _system() -> Iterator[Json]:
    every = [*CPS, *WORKERS, *GPUS]
    for app in (
        App(name="etcd", asks=[("100m", "100Mi")], host_network=True),
        App(name="kube-apiserver", asks=[("250m", "")], host_network=True),
        App(name="kube-controller-manager", asks=[("200m", "")], host_network=True),
        App(name="kube-scheduler", asks=[("100m", "")], host_network=True),
    ):
        yield from static(app, *CPS)
    calico = App(
        name="calico-node", asks=[("250m", "")], tolerations=EVERYWHERE, host_network=True
    )
    yield from everywhere(calico, *every)
    proxy = App(name="kube-proxy", tolerations=EVERYWHERE, host_network=True)
    yield from everywhere(proxy, *every)
    plugin = App(name="nvidia-device-plugin", namespace="gpu-operator", tolerations=EVERYWHERE)
    yield from everywhere(plugin, *GPUS)
    own = [
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
        {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
    ]
    dns = App(name="coredns", asks=[("100m", "70Mi")], tolerations=own,
              selector={"kubernetes.io/os": "linux"})  # fmt: skip
    yield from replicas(dns, "cp-1", "cp-2")
    yield budget(dns)


def _load() -> Iterator[Json]:
    web = App(name="web", namespace="shop", asks=[("1250m", "3Gi")])
    yield from replicas(web, *WORKERS, *WORKERS[:5], *WORKERS[:5], *WORKERS[:5])
    yield budget(web)
    # Data of one zone: its pods may run nowhere else.
    in_zone = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["dc-a"]}]}
            ]
        }
    }
    cache = App(name="cache", namespace="shop", asks=[("500m", "1Gi")],
                affinity={"nodeAffinity": in_zone})  # fmt: skip
    yield from replicas(cache, "worker-a1", "worker-a2")
    train = App(name="train", namespace="ml", asks=[("8", "64Gi")], more={"nvidia.com/gpu": "1"},
                tolerations=[{"key": GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"}],
                selector={"nvidia.com/gpu.present": "true"})  # fmt: skip
    yield from replicas(train, "gpu-a1", owner="Job")
