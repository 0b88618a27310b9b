"""What is of use in a reach: scraps by its own pods, ratios by all that can use its nodes."""

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


def planned() -> Plan:
    """Plan four half full workers with 4 GB a core beside a control plane that runs CoreDNS."""
    cps = [node(f"cp{n}", 4000, 16_000, labels=LABEL, taints=(CONTROL_PLANE,)) for n in (1, 2)]
    workers = [node(f"w{n}", 4000, 16_000) for n in range(4)]
    dns = [
        pod(f"dns{n}", f"cp{n}", 100, 70, placing=TOLERATES, namespace="kube-system")
        for n in (1, 2)
    ]
    web = [pod(f"web{n}-{m}", f"w{n}", 500, 2000) for n in range(4) for m in range(4)]
    return reconcile.plan(Cluster.of([*cps, *workers], [*dns, *web]), Config(budgets=UNLIMITED))


def beside_gpus() -> Plan:
    """Plan workers with pods of 1 GB a core beside GPU nodes whose pods ask for 8."""
    gpu = Taint("gpu", "", "NoSchedule")
    workers = [node(f"w{n}", 4000, 16_000) for n in range(3)]
    gpus = [node(f"g{n}", 4000, 32_000, labels={"pool": "gpu"}, taints=(gpu,)) for n in range(2)]
    placing = NodeConstraints(
        node_selector=(("pool", "gpu"),), tolerations=(Toleration("gpu", "Exists"),)
    )
    web = [pod(f"web{n}", f"w{n}", 1000, 1000) for n in range(3)]
    train = [pod(f"train{n}", f"g{n}", 1000, 8000, placing=placing) for n in range(2)]
    return reconcile.plan(Cluster.of([*workers, *gpus], [*web, *train]), Config(budgets=UNLIMITED))


def of(plan: Plan, name: str) -> ReachSums:
    (found,) = (one for one in plan.reaches if one.name.startswith(name))
    return found


def test_pods_of_one_shape_do_not_make_the_memory_of_others_useless() -> None:
    """CoreDNS asks for 0.7 GB a core; of what is free beside it web's pods can use 4."""
    plan = planned()
    dns = of(plan, "tolerates")
    assert dns.usability is not None
    assert dns.usability.max_gb_per_cpu == Fraction(4)
    assert dns.usability.min_cpu_millis == 90
    assert dns.before.usable.memory_bytes > 95 * 10**9  # of 96
    assert [removal.node for removal in plan.removals] == ["w0"]


def test_what_nobody_there_can_use_is_not_usable() -> None:
    """Pods with 1 GB a core alone: of the four that are there beside each core three are lost."""
    general = of(beside_gpus(), "general")
    assert general.usability is not None
    assert general.usability.max_gb_per_cpu == Fraction(1)
    assert general.before.usable.memory_bytes < general.before.capacity.memory_bytes
