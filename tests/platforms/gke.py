"""GKE: a general pool in three zones, a GPU pool, a spot pool of which one machine will stop."""

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
    static,
    taint,
)

REGION = "europe-west1"
DETECTED = (
    "FrequentKubeletRestart",
    "KernelDeadlock",
    "ReadonlyFilesystem",
    "CorruptDockerOverlay2",
    "FrequentUnregisterNetDevice",
    "NetworkUnavailable",
)


def _machine(pool: str, kind: str, **more: str) -> Machine:
    return Machine(
        cpu="3920m",
        memory="13584704Ki",
        capacity_cpu="4",
        capacity_memory="16374592Ki",
        image="Container-Optimized OS from Google",
        kernel="6.6.93+",
        kubelet="v1.33.4-gke.1134000",
        conditions=DETECTED,
        labels={
            "node.kubernetes.io/instance-type": kind,
            "cloud.google.com/gke-nodepool": pool,
            "cloud.google.com/gke-boot-disk": "pd-balanced",
            "cloud.google.com/gke-container-runtime": "containerd",
            "cloud.google.com/gke-cpu-scaling-level": "4",
            "cloud.google.com/gke-logging-variant": "DEFAULT",
            "cloud.google.com/gke-max-pods-per-node": "110",
            "cloud.google.com/gke-memory-gb-scaling-level": "16",
            "cloud.google.com/gke-os-distribution": "cos",
            "cloud.google.com/machine-family": kind.partition("-")[0],
            **more,
        },
        annotations={
            "container.googleapis.com/instance_id": digits(pool, 19, "123456789"),
            "node.gke.io/last-applied-node-labels": f"cloud.google.com/gke-nodepool={pool}",
            "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        },
    )


GENERAL = _machine("default-pool", "e2-standard-4")
SPOT = replace(
    _machine("spot", "e2-standard-4", **{"cloud.google.com/gke-spot": "true"}),
    taints=(taint("cloud.google.com/gke-spot", "true"),),
)
GPU = replace(
    _machine("gpu", "n1-standard-4", **{"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}),
    taints=(taint("nvidia.com/gpu", "present"),),
    extended={"nvidia.com/gpu": "1"},
)


def name(pool: str, zone: str, number: int = 0) -> str:
    """Return a node's name."""
    return f"gke-prod-{pool}-{digits(pool + zone, 8)}-{digits(f'{pool}{zone}{number}', 4)}"


def _group(pool: str, zone: str) -> str:
    """Return the URL of a pool's instance group in a zone."""
    path = f"projects/shop-prod/zones/{REGION}-{zone}/instanceGroups"
    group = f"gke-prod-{pool}-{digits(pool + zone, 8)}-grp"
    return f"https://www.googleapis.com/compute/v1/{path}/{group}"


DEFAULT = [name("default-pool", zone, number) for number in (0, 1) for zone in "bcd"]
SPOTS = [name("spot", zone) for zone in "bc"]
STOPPING = name("spot", "d")
GPUS = [name("gpu", zone) for zone in "bc"]


def _node(one: str, zone: str, machine: Machine, *taints: Json) -> Json:
    where = f"{REGION}-{zone}"
    return node(
        one,
        machine,
        zone=where,
        provider_id=f"gce://shop-prod/{where}/{one}",
        labels={"topology.gke.io/zone": where},
        taints=taints,
    )


def items() -> Iterator[Json]:
    """Yield everything that the API server has."""
    stops = taint("cloud.google.com/impending-node-termination")
    yield from (_node(one, zone, GENERAL) for one, zone in zip(DEFAULT, "bcdbcd", strict=True))
    yield from (_node(one, zone, SPOT) for one, zone in zip(SPOTS, "bc", strict=True))
    yield _node(STOPPING, "d", SPOT, stops)
    yield from (_node(one, zone, GPU) for one, zone in zip(GPUS, "bc", strict=True))
    every = [*DEFAULT, *SPOTS, STOPPING, *GPUS]
    yield from _system(every)
    yield from _load()
    yield autoscaler_status(
        {
            **{_group("default-pool", zone): (1, 2) for zone in "bcd"},
            **{_group("spot", zone): (0, 1) for zone in "bcd"},
            **{_group("gpu", zone): (0, 1) for zone in "bc"},
        }
    )
    yield from csi_nodes(
        every, {"pd.csi.storage.gke.io": 15, "filestore.csi.storage.gke.io": None}
    )


def _system(every: list[str]) -> Iterator[Json]:
    all_of: Json = {"tolerations": [{"operator": "Exists"}], "priority": 2_000_001_000}
    for app in (
        App(name="fluentbit-gke", asks=[("100m", "200Mi"), ("5m", "30Mi")], **all_of),
        App(name="gke-metrics-agent", asks=[("6m", "100Mi"), ("2m", "20Mi")], **all_of),
        App(name="gke-metadata-server", asks=[("100m", "100Mi")], host_network=True, **all_of),
        App(name="ip-masq-agent", asks=[("10m", "16Mi")], host_network=True, **all_of),
        App(name="netd", asks=[("2m", "30Mi")], host_network=True, **all_of),
        App(name="pdcsi-node", asks=[("5m", "10Mi"), ("5m", "10Mi")], **all_of),
        App(
            name="collector",
            namespace="gmp-system",
            asks=[("4m", "32Mi"), ("1m", "4Mi")],
            **all_of,
        ),
    ):
        yield from everywhere(app, *every)
    gpu = App(name="nvidia-gpu-device-plugin", asks=[("50m", "50Mi")], **all_of)
    yield from everywhere(gpu, *GPUS)
    yield from static(App(name="kube-proxy", asks=[("100m", "")], host_network=True), *every)
    own: Json = {"tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}]}
    dns = App(name="kube-dns", asks=[("100m", "70Mi"), ("150m", "20Mi"), ("10m", "20Mi")], **own)
    yield from replicas(dns, DEFAULT[0], DEFAULT[1])
    yield budget(dns)
    yield from replicas(
        App(name="konnectivity-agent", asks=[("10m", "30Mi")], **own), *DEFAULT[:3]
    )
    yield from replicas(App(name="metrics-server", asks=[("43m", "55Mi"), ("5m", "50Mi")], **own),
                        DEFAULT[2])  # fmt: skip
    yield from replicas(App(name="l7-default-backend", asks=[("10m", "20Mi")], **own), DEFAULT[1])


def _load() -> Iterator[Json]:
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "front"}},
    }
    front = App(name="front", namespace="shop", asks=[("700m", "1Gi")], spreads=[spread])
    yield from replicas(front, *DEFAULT)
    yield budget(front)
    yield from replicas(App(name="search", namespace="shop", asks=[("1", "3Gi")]), *DEFAULT[:3])
    spot = [{"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true",
             "effect": "NoSchedule"}]  # fmt: skip
    worker = App(name="worker", namespace="jobs", asks=[("1", "2Gi")], tolerations=spot,
                 selector={"cloud.google.com/gke-spot": "true"})  # fmt: skip
    yield from replicas(worker, *SPOTS, STOPPING)
    gpu = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    model = App(name="model", namespace="ml", asks=[("2", "6Gi")], tolerations=gpu,
                more={"nvidia.com/gpu": "1"},
                selector={"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"})  # fmt: skip
    yield from replicas(model, GPUS[0])
