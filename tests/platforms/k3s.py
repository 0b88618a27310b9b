"""K3s as many run it at home: one server that also works, agents, hardly a pod with requests."""

from collections.abc import Iterator
from dataclasses import replace

from tests.platforms.objects import App, Json, Machine, digits, everywhere, node, replicas

AGENT = Machine(
    cpu="4",
    memory="8131956Ki",
    capacity_cpu="4",
    capacity_memory="8131956Ki",
    image="Debian GNU/Linux 12 (bookworm)",
    kernel="6.1.0-37-amd64",
    kubelet="v1.33.5+k3s1",
    labels={
        "beta.kubernetes.io/instance-type": "k3s",
        "node.kubernetes.io/instance-type": "k3s",
    },
    annotations={
        "alpha.kubernetes.io/provided-node-ip": "192.168.1.21",
        "flannel.alpha.coreos.com/backend-type": "vxlan",
        "flannel.alpha.coreos.com/kube-subnet-manager": "true",
        "k3s.io/hostname": "agent",
        "k3s.io/internal-ip": "192.168.1.21",
        "k3s.io/node-args": '["agent"]',
        "k3s.io/node-config-hash": digits("k3s", 52).upper() + "====",
        "k3s.io/node-env": "{}",
    },
    finalizers=("wrangler.cattle.io/node",),
)
SERVER = replace(
    AGENT,
    labels={
        **AGENT.labels,
        "node-role.kubernetes.io/control-plane": "true",
        "node-role.kubernetes.io/master": "true",
    },
)
AGENTS = ["pi-2", "pi-3", "pi-4"]


def items() -> Iterator[Json]:
    """Yield everything that the API server has."""
    yield node("pi-1", SERVER, provider_id="k3s://pi-1")
    yield from (node(name, AGENT, provider_id=f"k3s://{name}") for name in AGENTS)
    balancer = App(name="svclb-traefik-1f2e3d4c", asks=[None, None])
    yield from everywhere(balancer, "pi-1", *AGENTS)
    critical = [{"key": "CriticalAddonsOnly", "operator": "Exists"}]
    for app in (
        App(name="coredns", asks=[("100m", "70Mi")], tolerations=critical),
        App(name="metrics-server", asks=[("100m", "70Mi")], tolerations=critical),
        App(name="local-path-provisioner", tolerations=critical),
        App(name="traefik", tolerations=critical),
    ):
        yield from replicas(app, "pi-1")
    for app, on in (
        (App(name="home-assistant", namespace="home"), ["pi-2"]),
        (App(name="grafana", namespace="monitoring"), ["pi-2"]),
        (App(name="prometheus", namespace="monitoring", asks=[("", "400Mi")]), ["pi-3"]),
        (App(name="gitea", namespace="git"), ["pi-3"]),
        (App(name="paperless", namespace="home", asks=[("250m", "512Mi")]), ["pi-4"]),
        (App(name="whoami", namespace="default"), ["pi-2", "pi-3", "pi-4"]),
    ):
        yield from replicas(app, *on)
