"""Expected reasons and totals of each platform, determined by hand."""

from collections.abc import Mapping
from typing import Final

from tests.platforms.aks import ACI, SYSTEMS, USERS, WINS
from tests.platforms.eks import BATCH, DEFAULT, DISRUPTED, INTERRUPTED, SERVERLESS, SYSTEM, full
from tests.platforms.gke import DEFAULT as POOL
from tests.platforms.gke import GPUS, SPOTS, STOPPING
from tests.platforms.k3s import AGENTS
from tests.platforms.kubeadm import CPS

STAYS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "aks": {
        **dict.fromkeys(SYSTEMS, ("not-scalable",)),
        # Four of six are the minimum of their scale set; two of three that of the Windows pool.
        **dict.fromkeys([USERS[1], USERS[2]], ("not-scalable", "zone-balance")),
        **dict.fromkeys([USERS[0], USERS[3]], ("not-scalable",)),
        WINS[0]: ("no-room", "not-scalable"),
        WINS[1]: ("headroom", "not-scalable"),
        ACI: ("virtual-node",),
    },
    "eks": {
        # Karpenter's two replicas keep apart; there is no third node of the group.
        # Their node group is fixed: Karpenter has not made them.
        **dict.fromkeys(map(full, SYSTEM), ("no-room", "not-scalable")),
        full(DEFAULT[0]): ("headroom", "no-room"),
        full(DEFAULT[1]): ("no-room",),
        full(DEFAULT[2]): ("headroom",),
        full(BATCH[0]): ("headroom",),
        full(BATCH[1]): ("headroom", "no-room"),
        **dict.fromkeys(map(full, [DISRUPTED, INTERRUPTED]), ("being-deleted",)),
        **dict.fromkeys(map(full, SERVERLESS), ("virtual-node",)),
    },
    "gke": {
        # `front` must stay spread over the zones, so one node in each of them stays; one is also
        # the minimum of each group.
        **dict.fromkeys([POOL[0], POOL[4]], ("headroom", "not-scalable")),
        POOL[2]: ("no-room", "not-scalable"),
        SPOTS[0]: ("headroom",),
        SPOTS[1]: ("no-room",),
        # Headroom for one more pod with a GPU.
        **dict.fromkeys(GPUS, ("reach-threshold",)),
        STOPPING: ("being-deleted",),
    },
    "k3s": {
        "pi-1": ("control-plane", "not-scalable"),
        **dict.fromkeys(AGENTS, ("not-scalable",)),
    },
    "kind": {"kind-control-plane": ("control-plane",), "kind-worker": ("headroom", "no-room")},
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

NEVER: Final[Mapping[str, frozenset[str]]] = {
    "aks": frozenset(SYSTEMS),
    "eks": frozenset(map(full, SYSTEM)),
    "k3s": frozenset(("pi-1", *AGENTS)),
}
"""Nodes of system pools, and nodes whose number nothing changes."""
MINIMUMS: Final[Mapping[str, tuple[tuple[frozenset[str], int], ...]]] = {
    "aks": ((frozenset(USERS), 4), (frozenset(WINS), 2)),
    "gke": tuple((frozenset(POOL[zone::3]), 1) for zone in range(3)),
}
"""Node groups, and how many nodes of each must stay."""

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
