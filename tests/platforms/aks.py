"""AKS: a system pool, a user pool in three zones, a Windows pool, and a virtual node."""

from collections.abc import Iterator
from dataclasses import replace

from tests.platforms.objects import (
    App,
    Json,
    Machine,
    autoscaler_status,
    budget,
    csi_nodes,
    digits,
    everywhere,
    node,
    replicas,
    taint,
)

REGION = "westeurope"
GROUP = "MC_shop-prod_shop_westeurope"
LINUX = {"kubernetes.io/os": "linux"}
WINDOWS = {"kubernetes.io/os": "windows"}


def _machine(pool: str, mode: str, **more: str) -> Machine:
    return Machine(
        cpu="3860m",
        memory="14147368Ki",
        capacity_cpu="4",
        capacity_memory="16375592Ki",
        image="Ubuntu 22.04.5 LTS",
        kernel="5.15.0-1089-azure",
        kubelet="v1.33.3",
        labels={
            "agentpool": pool,
            "kubernetes.azure.com/agentpool": pool,
            "kubernetes.azure.com/cluster": GROUP,
            "kubernetes.azure.com/mode": mode,
            "kubernetes.azure.com/node-image-version": "AKSUbuntu-2204gen2containerd-202509.18.0",
            "kubernetes.azure.com/os-sku": "Ubuntu",
            "kubernetes.azure.com/role": "agent",
            "kubernetes.azure.com/storageprofile": "managed",
            "node.kubernetes.io/instance-type": "Standard_D4s_v5",
            **more,
        },
        annotations={"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        conditions=("KubeletProblem", "VMEventScheduled", "FilesystemCorruptionProblem"),
    )


SYSTEM = replace(
    _machine("system", "system"), taints=(taint("CriticalAddonsOnly", "true"),), cpu="1900m",
    memory="5368709120", capacity_cpu="2", capacity_memory="8129540Ki",
)  # fmt: skip
USER = _machine("user", "user")
WIN = replace(
    _machine("win", "user", **{"node.kubernetes.io/windows-build": "10.0.20348"}),
    os="windows",
    image="Windows Server 2022 Datacenter",
    kernel="10.0.20348.4052",
)
VIRTUAL = Machine(
    cpu="10k",
    memory="4Ti",
    capacity_cpu="10k",
    capacity_memory="4Ti",
    pods="5k",
    kubelet="v1.25.0-vk-azure-aci-1.6.2",
    labels={
        "alpha.service-controller.kubernetes.io/exclude-balancer": "true",
        "kubernetes.io/role": "agent",
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        "type": "virtual-kubelet",
    },
    taints=(taint("virtual-kubelet.io/provider", "azure"),),
)
SYSTEMS = [f"aks-system-31415926-vmss00000{n}" for n in range(2)]
USERS = [f"aks-user-27182818-vmss00000{n}" for n in range(6)]
WINS = [f"akswin00000{n}" for n in range(3)]
ACI = "virtual-node-aci-linux"


def _node(name: str, machine: Machine, zone: int | None = None) -> Json:
    # A pool without availability zones has the fault domain in the label: 0, 1, 2.
    where = f"{REGION}-{zone}" if zone else "0"
    scale_set = f"virtualMachineScaleSets/{name[:-6]}/virtualMachines/{int(name[-1])}"
    provider = (
        f"azure:///subscriptions/{digits('subscription', 32)}/resourceGroups/{GROUP.lower()}"
        f"/providers/Microsoft.Compute/{scale_set}"
    )
    labels = {"topology.kubernetes.io/zone": where, "topology.kubernetes.io/region": REGION}
    return node(name, machine, provider_id=provider, labels=labels)


def items() -> Iterator[Json]:
    """Yield everything that the API server has."""
    yield from (_node(name, SYSTEM, zone) for zone, name in enumerate(SYSTEMS, 1))
    yield from (_node(name, USER, number % 3 + 1) for number, name in enumerate(USERS))
    yield from (_node(name, WIN) for name in WINS)
    yield node(ACI, VIRTUAL)
    yield from _system()
    yield from _load()
    yield autoscaler_status({"aks-user-27182818-vmss": (4, 6), "akswin": (2, 3)})
    drivers = {"disk.csi.azure.com": 8, "file.csi.azure.com": None}
    yield from csi_nodes([*SYSTEMS, *USERS, *WINS], drivers)


def _system() -> Iterator[Json]:
    all_of: Json = {"tolerations": [{"operator": "Exists"}], "priority": 2_000_001_000}
    for app in (
        App(
            name="azure-cns", asks=[("40m", "250Mi")], selector=LINUX, host_network=True, **all_of
        ),
        App(name="azure-ip-masq-agent", asks=[("100m", "50Mi")], selector=LINUX, **all_of),
        App(name="cloud-node-manager", asks=[("50m", "50Mi")], selector=LINUX, **all_of),
        App(name="csi-azuredisk-node", asks=[("10m", "20Mi")] * 3, selector=LINUX, **all_of),
        App(name="csi-azurefile-node", asks=[("10m", "20Mi")] * 3, selector=LINUX, **all_of),
        App(name="kube-proxy", asks=[("100m", "")], selector=LINUX, host_network=True, **all_of),
    ):
        yield from everywhere(app, *SYSTEMS, *USERS)
    for app in (
        App(name="azure-cns-win", asks=[("40m", "250Mi")], selector=WINDOWS, **all_of),
        App(name="cloud-node-manager-windows", asks=[("50m", "50Mi")], selector=WINDOWS, **all_of),
        App(name="csi-azuredisk-node-win", asks=[("10m", "40Mi")] * 3, selector=WINDOWS, **all_of),
        App(name="kube-proxy-win", asks=[("100m", "150Mi")], selector=WINDOWS, **all_of),
    ):
        yield from everywhere(app, *WINS)
    own: Json = {
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "selector": LINUX,
        "priority": 2_000_000_000,
    }
    dns = App(name="coredns", asks=[("100m", "70Mi")], **own)
    yield from replicas(dns, *SYSTEMS)
    yield budget(dns)
    for app in (
        App(name="metrics-server", asks=[("44m", "53Mi"), ("5m", "16Mi")], **own),
        App(name="konnectivity-agent", asks=[("20m", "20Mi")], **own),
    ):
        yield from replicas(app, *SYSTEMS)
    for app in (
        App(name="coredns-autoscaler", asks=[("20m", "10Mi")], **own),
        App(name="aci-connector-linux", asks=[("200m", "200Mi")], **own),
    ):
        yield from replicas(app, SYSTEMS[0])


def _load() -> Iterator[Json]:
    api = App(name="orders", namespace="shop", asks=[("600m", "2Gi")], selector=LINUX)
    yield from replicas(api, *USERS, *USERS[:2])
    yield budget(api)
    yield from replicas(App(name="cart", namespace="shop", asks=[("800m", "1Gi")], selector=LINUX),
                        *USERS[:3])  # fmt: skip
    legacy = App(name="billing", namespace="legacy", asks=[("1", "2Gi")], selector=WINDOWS,
                 os="windows")  # fmt: skip
    yield from replicas(legacy, WINS[0], WINS[0], WINS[1])
    burst = App(name="burst", namespace="shop", asks=[("1", "2Gi")], selector={
        "kubernetes.io/role": "agent", "type": "virtual-kubelet", **LINUX,
    }, tolerations=[{"key": "virtual-kubelet.io/provider", "operator": "Exists"}])  # fmt: skip
    yield from replicas(burst, ACI, ACI, ACI)
