"""Create the packer and the policy of a plan, and the placeholder pods for headroom."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from core.engine.snapshot import ClusterSnapshot
from core.model.constraints import without_volumes
from core.model.pod import Pod
from core.model.resources import Resources
from core.placement.packer import Packer
from core.placement.utilization_ledger import UtilizationLedger
from core.policies.policy import Policy, PolicyInput

NO_COUNTS: Final[Mapping[str, int]] = {}


def new_packer(snapshot: ClusterSnapshot, placeholders: Sequence[Pod] = ()) -> Packer:
    """Return a new packer for the movable pods and for *placeholders*.

    A placeholder stands for a pod that does not exist, so that its room remains free.
    """
    return Packer(
        snapshot.cluster,
        snapshot.node_order,
        movable=snapshot.movable,
        placeholders=placeholders,
        admitting=snapshot.reaches.admitting,
        total_capacity=snapshot.reachable_allocatable,
        constrained=snapshot.pod_index.constrained,
    )


def new_policy(
    snapshot: ClusterSnapshot,
    ledger: UtilizationLedger,
    count_to_move: Callable[[int], int] = lambda _: 0,
    candidates: Collection[str] | None = None,
    pods_not_replaceable: Mapping[str, int] = NO_COUNTS,
) -> Policy:
    """Return a new object of the configured policy, which proposes nodes for removal.

    *ledger*: sums of the plan in progress. *count_to_move*: returns the number of pods that must
    move if the node with this id is removed. *candidates*: names of current candidates; None if no
    unneeded time applies. *pods_not_replaceable*: number of pods by node that no surge move can
    replace, which only ranks depend on.
    """
    ids, nodes, config = snapshot.node_order.ids, snapshot.node_order.nodes, snapshot.config
    policy_input = PolicyInput(
        nodes=nodes,
        ledger=ledger,
        settings=config.policy_settings(),
        hysteresis=config.hysteresis,
        marked=frozenset(ids[name] for name in snapshot.marks.keys() - snapshot.leaving_nodes),
        candidates=None if candidates is None else frozenset(ids[name] for name in candidates),
        is_blocked=lambda node: bool(snapshot.blockers[nodes[node].name]),
        pods_on=lambda node: snapshot.pods.by_node.get(nodes[node].name, ()),
        price=config.price_of,
        long_lived_pods=snapshot.long_lived_pods,
        pods_not_replaceable=pods_not_replaceable,
        count_to_move=count_to_move,
        share=snapshot.node_order.share,
        cost_share=snapshot.node_order.cost_share,
    )
    return snapshot.policy_type(policy_input)


def headroom_pods(snapshot: ClusterSnapshot, pods: int) -> list[Pod]:
    """Return headroom: placeholder pods that room must be left for, *pods* for each reach.

    They request as much as the largest pod of the reach, by CPU, then memory, then other
    resources, but no devices. They have its node constraints, but neither volumes nor inter-pod
    constraints.
    """
    by_reach: dict[str, list[Pod]] = {}
    for members, reach in snapshot.groups if pods else ():
        if reach is not None:
            by_reach.setdefault(reach.key, []).append(members[0])
    headroom = []
    for reach in snapshot.reaches.all:
        if distinct := by_reach.get(reach.key):
            most = max(_size(pod.requests) for pod in distinct)
            largest = [pod for pod in distinct if _size(pod.requests) == most]
            node_constraints = min(
                (without_volumes(pod.node_constraints) for pod in largest), key=repr
            )
            placeholder = Pod(
                namespace="",
                name="headroom",
                requests=replace(largest[0].requests, extended=()),
                node_constraints=node_constraints,
            )
            headroom += [placeholder] * pods
    return headroom


def _size(requests: Resources) -> tuple[object, ...]:
    return (
        requests.cpu_millis,
        requests.memory_bytes,
        requests.ephemeral_bytes,
        requests.pods,
        requests.extended,
    )
