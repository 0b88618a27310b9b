"""EKS: a managed node group for the cluster's own, Karpenter's nodes, a namespace on Fargate."""

from collections.abc import Iterator
from dataclasses import replace

from tests.platforms.objects import (
    App,
    Json,
    Machine,
    attachments,
    budget,
    csi_nodes,
    digits,
    everywhere,
    node,
    node_claim,
    node_pool,
    replicas,
    taint,
    uid,
    volumes,
)

REGION = "eu-central-1"
TYPE = "node.kubernetes.io/instance-type"
LARGE = Machine(
    cpu="3920m",
    memory="14961180Ki",
    capacity_cpu="4",
    capacity_memory="15896988Ki",
    pods="58",
    disk="18242267924",
    image="Amazon Linux 2023.8.20250808",
    kernel="6.1.147-172.266.amzn2023.x86_64",
    kubelet="v1.33.3-eks-3abbec1",
    labels={
        TYPE: "m5.xlarge",
        "beta.kubernetes.io/instance-type": "m5.xlarge",
        "karpenter.k8s.aws/instance-category": "m",
        "karpenter.k8s.aws/instance-cpu": "4",
        "karpenter.k8s.aws/instance-family": "m5",
        "karpenter.k8s.aws/instance-memory": "16384",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/initialized": "true",
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/registered": "true",
        "k8s.io/cloud-provider-aws": digits("eks", 32),
    },
    annotations={
        "alpha.kubernetes.io/provided-node-ip": "10.0.1.12",
        "karpenter.k8s.aws/ec2nodeclass-hash": digits("class", 19, "0123456789"),
        "karpenter.sh/nodepool-hash": digits("pool", 19, "0123456789"),
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    },
    finalizers=("karpenter.sh/termination",),
)
GROUP = replace(
    LARGE,
    labels={
        TYPE: "m5.xlarge",
        "eks.amazonaws.com/capacityType": "ON_DEMAND",
        "eks.amazonaws.com/nodegroup": "system",
        "eks.amazonaws.com/nodegroup-image": "ami-0123456789abcdef0",
    },
    taints=(taint("CriticalAddonsOnly", "true"),),
    finalizers=(),
)
SPOT = replace(LARGE, labels={**LARGE.labels, "karpenter.sh/capacity-type": "spot",
                              "karpenter.sh/nodepool": "batch"},
               taints=(taint("batch", "true"),))  # fmt: skip
FARGATE = Machine(
    cpu="2",
    memory="3914888Ki",
    capacity_cpu="2",
    capacity_memory="4017288Ki",
    pods="1",
    image="Amazon Linux 2",
    kubelet="v1.33.3-eks-3abbec1",
    labels={"eks.amazonaws.com/compute-type": "fargate"},
    taints=(taint("eks.amazonaws.com/compute-type", "fargate"),),
)
ADDON = [{"key": "CriticalAddonsOnly", "operator": "Exists"}]
SYSTEM = ["ip-10-0-1-10", "ip-10-0-2-10"]
DEFAULT = ["ip-10-0-1-21", "ip-10-0-2-22", "ip-10-0-3-23", "ip-10-0-1-24", "ip-10-0-2-25"]
BATCH = ["ip-10-0-1-31", "ip-10-0-2-32"]
DISRUPTED = "ip-10-0-3-26"
INTERRUPTED = "ip-10-0-3-33"
SERVERLESS = ["fargate-ip-10-0-1-41", "fargate-ip-10-0-2-42"]


def full(name: str) -> str:
    """Return a node's whole name."""
    return f"{name}.{REGION}.compute.internal"


def _zone(name: str) -> str:
    return REGION + "abc"[int(name.split("-")[-2]) - 1]


def _node(name: str, machine: Machine, *taints: Json) -> Json:
    zone = _zone(name)
    if machine is FARGATE:
        provider = f"aws:///{zone}/{digits(name, 10)}-{digits(zone, 32)}/{full(name)}"
    else:
        provider = f"aws:///{zone}/i-{digits(name, 17)}"
    labels = {"topology.k8s.aws/zone-id": f"euc1-az{'abc'.index(zone[-1]) + 1}"}
    return node(full(name), machine, provider_id=provider, zone=zone, labels=labels, taints=taints)


def items() -> Iterator[Json]:
    """Yield everything that the API server has."""
    yield from (_node(name, GROUP) for name in SYSTEM)
    yield from (_node(name, LARGE) for name in DEFAULT)
    yield _node(DISRUPTED, LARGE, taint("karpenter.sh/disrupted"))
    yield from (_node(name, SPOT) for name in BATCH)
    yield _node(INTERRUPTED, SPOT, taint("aws-node-termination-handler/spot-itn", "event-1"))
    yield from (_node(name, FARGATE) for name in SERVERLESS)
    machines = [*map(full, SYSTEM), *map(full, DEFAULT), full(DISRUPTED)]
    machines += [*map(full, BATCH), full(INTERRUPTED)]
    yield from _system(machines)
    yield from _load()
    yield from csi_nodes(machines, {"ebs.csi.aws.com": 25})
    claims = [f"pvc-{uid(f'shop/data-postgres-{number}')}" for number in range(2)]
    attached = dict(zip(claims, map(full, DEFAULT[:2]), strict=True))
    yield from attachments("ebs.csi.aws.com", attached)
    yield from (node_pool(name) for name in ("default", "batch"))
    yield from (node_claim("default", full(name)) for name in [*DEFAULT, DISRUPTED])
    yield from (node_claim("batch", full(name)) for name in [*BATCH, INTERRUPTED])


def _system(machines: list[str]) -> Iterator[Json]:
    all_of: Json = {"tolerations": [{"operator": "Exists"}], "priority": 2_000_001_000}
    yield from everywhere(App(name="aws-node", asks=[("25m", ""), ("25m", "")], host_network=True,
                              **all_of), *machines)  # fmt: skip
    yield from everywhere(App(name="kube-proxy", asks=[("100m", "")], host_network=True, **all_of),
                          *machines)  # fmt: skip
    yield from everywhere(
        App(name="ebs-csi-node", asks=[("10m", "40Mi")] * 3, **all_of), *machines
    )
    yield from everywhere(
        App(name="eks-pod-identity-agent", host_network=True, **all_of), *machines
    )
    own: Json = {"tolerations": ADDON, "priority": 2_000_000_000}
    dns = App(name="coredns", asks=[("100m", "70Mi")], **own)
    yield from replicas(dns, *map(full, SYSTEM))
    yield budget(dns)
    yield from replicas(App(name="ebs-csi-controller", asks=[("10m", "40Mi")] * 6, **own),
                        *map(full, SYSTEM))  # fmt: skip
    yield from replicas(App(name="metrics-server", asks=[("100m", "200Mi")], **own),
                        full(SYSTEM[0]))  # fmt: skip
    apart = {
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "karpenter"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    karpenter = App(
        name="karpenter",
        asks=[("1", "1Gi")],
        selector={"eks.amazonaws.com/nodegroup": "system"},
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        **own,
    )
    yield from replicas(karpenter, *map(full, SYSTEM))
    yield budget(karpenter)


def _load() -> Iterator[Json]:
    web = App(name="web", namespace="shop", asks=[("500m", "1Gi"), ("100m", "128Mi")])
    yield from replicas(web, *map(full, [*DEFAULT, DISRUPTED]))
    yield budget(web)
    api = App(name="api", namespace="shop", asks=[("800m", "2Gi")])
    yield from replicas(api, *map(full, DEFAULT[:3]))
    zones = [_zone(DEFAULT[0]), _zone(DEFAULT[1])]
    database = App(name="postgres", namespace="shop", asks=[("1", "4Gi")], claim="data")
    yield from replicas(database, *map(full, DEFAULT[:2]), owner="StatefulSet")
    yield from volumes(database, 2, "ebs.csi.aws.com", "topology.kubernetes.io/zone", zones)
    job = App(name="render", namespace="batch", asks=[("1500m", "3Gi")],
              selector={"karpenter.sh/nodepool": "batch"},
              tolerations=[{"key": "batch", "operator": "Exists"}])  # fmt: skip
    yield from replicas(job, full(BATCH[0]), full(BATCH[1]), full(INTERRUPTED), owner="Job")
    reports = App(name="reports", namespace="reports", asks=[("250m", "512Mi")],
                  scheduler="fargate-scheduler",
                  labels={"eks.amazonaws.com/fargate-profile": "fp"},
                  annotations={"CapacityProvisioned": "0.5vCPU 1GB"})  # fmt: skip
    yield from replicas(reports, *map(full, SERVERLESS))
