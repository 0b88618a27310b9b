"""Expected reasons and totals of each platform, determined by hand."""

from collections.abc import Mapping
from typing import Final

from tests.platforms.aks import ACI, USERS, WINS
from tests.platforms.eks import BATCH, DEFAULT, DISRUPTED, INTERRUPTED, SERVERLESS, SYSTEM, full
from tests.platforms.gke import DEFAULT as POOL
from tests.platforms.gke import GPUS, SPOTS, STOPPING
from tests.platforms.kubeadm import CPS

STAYS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "aks": {
        # No constraint binds system pods to the system pool, so they may run on user nodes.
        USERS[0]: ("no-room",),
        **dict.fromkeys([USERS[1], USERS[2], WINS[1]], ("headroom",)),
        WINS[0]: ("no-room",),
        ACI: ("virtual-node",),
    },
    "eks": {
        # Karpenter's two replicas have anti-affinity, and the group has no third node.
        **dict.fromkeys(map(full, SYSTEM), ("no-room",)),
        full(DEFAULT[0]): ("headroom", "no-room"),
        full(DEFAULT[1]): ("no-room",),
        full(DEFAULT[2]): ("headroom",),
        full(BATCH[0]): ("headroom",),
        full(BATCH[1]): ("headroom", "no-room"),
        **dict.fromkeys(map(full, [DISRUPTED, INTERRUPTED]), ("being-deleted",)),
        **dict.fromkeys(map(full, SERVERLESS), ("virtual-node",)),
    },
    "gke": {
        # `front` is spread over the zones, so each zone needs a node.
        **dict.fromkeys([POOL[0], POOL[4]], ("headroom",)),
        POOL[2]: ("no-room",),
        SPOTS[0]: ("headroom",),
        SPOTS[1]: ("no-room",),
        # Headroom for one more pod with a GPU.
        **dict.fromkeys(GPUS, ("headroom",)),
        STOPPING: ("being-deleted",),
    },
    "k3s": {"pi-1": ("control-plane", "headroom", "last-node", "min-nodes", "no-room")},
    "kind": {"kind-control-plane": ("control-plane",), "kind-worker3": ("headroom", "no-room")},
    "kubeadm": {
        **dict.fromkeys(CPS[:2], ("control-plane",)),
        CPS[2]: ("control-plane",),
        "gpu-a1": ("headroom", "no-room"),
        "worker-a2": ("headroom",),
        **dict.fromkeys(["worker-a1", "worker-b1", "worker-b2"], ("reach-threshold",)),
        "worker-c1": ("reach-threshold", "zone-balance"),
    },
}
"""Reason codes of each unremovable node; all other nodes are removable."""

CPU: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    "aks": {
        # orders, cart, and 350m of DaemonSets on each of six nodes.
        "os=linux": (8 * 600 + 3 * 800 + 6 * 350, 6 * 3860),
        # billing, and 220m of DaemonSets.
        "os=windows": (3 * 1000 + 3 * 220, 3 * 3860),
    },
    "eks": {
        # web (one pod from the leaving node), api, postgres, and 180m of DaemonSets on each node.
        "general": (6 * 600 + 3 * 800 + 2 * 1000 + 5 * 180, 5 * 3920),
        # render (one pod from the leaving node), and DaemonSets.
        "karpenter.sh/nodepool=batch, tolerates batch=true:NoSchedule": (
            3 * 1500 + 2 * 180,
            2 * 3920,
        ),
    },
    "gke": {
        # front, search, kube-dns, konnectivity, metrics-server, the back end, 340m on each node.
        "general": (6 * 700 + 3 * 1000 + 2 * 260 + 3 * 10 + 48 + 10 + 6 * 340, 6 * 3920),
    },
    "k3s": {"general": (100 + 100 + 250, 4 * 4000)},
    "kind": {"general": (3 * 250 + 3 * 100, 3 * 8000)},
    "kubeadm": {
        # web, cache, Calico.
        "general": (21 * 1250 + 2 * 500 + 6 * 250, 6 * 8000),
        # Four web pods and one cache pod on each of the two nodes.
        "topology.kubernetes.io/zone=dc-a": (8 * 1250 + 2 * 500 + 2 * 250, 2 * 8000),
    },
}
"""Requested and allocatable millicores of each reach, before the plan."""
