"""Usable capacity of a reach: minimum sizes from its own pods, ratios from all pods."""

from fractions import Fraction

import pytest

from core.config.settings import Config
from core.engine import reconcile
from core.engine.plan import Plan, ReachSums
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, Toleration
from core.model.node import Taint
from tests.support.builders import UNLIMITED, node, pod

pytestmark = pytest.mark.mutate

CONTROL_PLANE = Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule")
TOLERATES = NodeConstraints(tolerations=(Toleration(CONTROL_PLANE.key, "Exists"),))
LABEL = {"node-role.kubernetes.io/control-plane": ""}


def control_plane_plan() -> Plan:
    """Plan four half-full workers with 4 GB per core beside a control plane with CoreDNS."""
    cps = [node(f"cp{n}", 4000, 16_000, labels=LABEL, taints=(CONTROL_PLANE,)) for n in (1, 2)]
    workers = [node(f"w{n}", 4000, 16_000) for n in range(4)]
    dns = [
        pod(f"dns{n}", f"cp{n}", 100, 70, node_constraints=TOLERATES, namespace="kube-system")
        for n in (1, 2)
    ]
    web = [pod(f"web{n}-{m}", f"w{n}", 500, 2000) for n in range(4) for m in range(4)]
    return reconcile.plan(Cluster.of([*cps, *workers], [*dns, *web]), Config(budgets=UNLIMITED))


def gpu_plan() -> Plan:
    """Plan workers with pods of 1 GB per core beside GPU nodes with pods of 8 GB per core."""
    gpu = Taint("gpu", "", "NoSchedule")
    workers = [node(f"w{n}", 4000, 16_000) for n in range(3)]
    gpus = [node(f"g{n}", 4000, 32_000, labels={"pool": "gpu"}, taints=(gpu,)) for n in range(2)]
    node_constraints = NodeConstraints(
        node_selector=(("pool", "gpu"),), tolerations=(Toleration("gpu", "Exists"),)
    )
    web = [pod(f"web{n}", f"w{n}", 1000, 1000) for n in range(3)]
    train = [
        pod(f"train{n}", f"g{n}", 1000, 8000, node_constraints=node_constraints) for n in range(2)
    ]
    return reconcile.plan(Cluster.of([*workers, *gpus], [*web, *train]), Config(budgets=UNLIMITED))


def reach_of(plan: Plan, name: str) -> ReachSums:
    (found,) = (one for one in plan.reaches if one.name.startswith(name))
    return found


def test_pods_of_one_ratio_do_not_make_memory_of_others_unusable() -> None:
    """CoreDNS requests 0.7 GB per core; the web pods can use 4 GB per core."""
    plan = control_plane_plan()
    dns = reach_of(plan, "tolerates")
    assert dns.usability is not None
    assert dns.usability.max_gb_per_cpu == Fraction(4)
    assert dns.usability.min_cpu_millis == 90
    assert dns.before.usable.memory_bytes > 95 * 10**9  # of 96
    assert [removal.node for removal in plan.removals] == ["w3"]


def test_memory_is_not_usable_when_no_pod_of_reach_can_use_it() -> None:
    """All pods request 1 GB per core, so 3 of the 4 GB per core are unusable."""
    general = reach_of(gpu_plan(), "general")
    assert general.usability is not None
    assert general.usability.max_gb_per_cpu == Fraction(1)
    assert general.before.usable.memory_bytes < general.before.capacity.memory_bytes
