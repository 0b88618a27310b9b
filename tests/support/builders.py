"""Build small clusters; amounts are in millicores and MB (10^6 bytes), as in the thesis."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from core.config.budgets import Budget, Budgets, Cooldown, Reserve
from core.config.prices import Price
from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.marks.mark import Details, encode_details
from core.marks.taints import desired_taints
from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL, TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import (
    NO_NODE_CONSTRAINTS,
    NO_POD_CONSTRAINTS,
    NodeConstraints,
    PodConstraints,
    PodSelector,
    Requirement,
)
from core.model.node import Node, Taint
from core.model.pod import Pod
from core.model.resources import Resources
from core.placement.usable_capacity import Usability

MB = 10**6
UNLIMITED = Budgets(
    cluster=Budget(),
    balance_zones=False,
    headroom=0,
    reserve=Reserve(window_seconds=None),
    stabilization_window_seconds=0,
    cooldown=Cooldown(delay_after_add_seconds=0, delay_after_pending_seconds=0),
)
"""Budgets without limits, so that only thresholds and packing decide, as in the thesis."""
EIGHTY_PERCENT = Thresholds(cpu=Fraction(4, 5), memory=Fraction(4, 5))
"""Thresholds that small clusters reach sooner than the defaults."""
THESIS_USABILITY = Usability(
    min_cpu_millis=100,
    min_memory_bytes=90 * MB,
    max_cpu_per_gb=Fraction("3.6"),
    max_gb_per_cpu=Fraction(20),
)


def node(
    name: str,
    cpu: int = 4000,
    memory: int = 8000,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    unschedulable: bool = False,
    ready: bool = True,
    pods: int = 110,
    extended: tuple[tuple[str, int], ...] = (),
) -> Node:
    return Node(
        name=name,
        labels=labels or {},
        annotations=annotations or {},
        taints=taints,
        unschedulable=unschedulable,
        ready=ready,
        allocatable=Resources(cpu, memory * MB, 0, pods, extended),
    )


def pod(
    name: str,
    on: str | None,
    cpu: int,
    memory: int,
    *,
    node_constraints: NodeConstraints = NO_NODE_CONSTRAINTS,
    daemon: bool = False,
    unsupported: tuple[str, ...] = (),
    extended: tuple[tuple[str, int], ...] = (),
    pod_constraints: PodConstraints = NO_POD_CONSTRAINTS,
    labels: Mapping[str, str] | None = None,
    namespace: str = "d",
    terminating: bool = False,
) -> Pod:
    return Pod(
        namespace=namespace,
        name=name,
        node=on,
        requests=Resources(cpu, memory * MB, 0, 1, extended),
        node_constraints=node_constraints,
        owner_kind="DaemonSet" if daemon else "ReplicaSet",
        daemon=daemon,
        unsupported=unsupported,
        pod_constraints=pod_constraints,
        labels=labels or {},
        terminating=terminating,
    )


def marked(
    made: Node,
    mark: str = "PreferNoSchedule",
    since: int = 1,
    order: int = 0,
    *,
    deadline: int | None = None,
) -> Node:
    """Return the node after the controller has marked it and the webhook has added its taint."""
    details = Details(
        since=since,
        deadline=since + 3600 if deadline is None else deadline,
        owner="me",
        policy="p",
        reason="r",
        order=order,
    )
    annotations = {**made.annotations, DETAILS_ANNOTATION: encode_details(details)}
    patched = replace(made, labels={**made.labels, MARK_LABEL: mark}, annotations=annotations)
    return replace(patched, taints=desired_taints(patched, TAINT_KEY))


def config(share: str = "1", *, prices: tuple[Price, ...] = (), **budgets: object) -> Config:
    """Return a configuration in which only thresholds, packing and the given budgets decide."""
    return Config(
        thresholds=Thresholds(cpu=Fraction(share), memory=Fraction(share)),
        usable_capacity=UsabilityMode.ALL,
        budgets=replace(UNLIMITED, **budgets),  # type: ignore[arg-type]
        prices=prices,
    )


def select(app: str, *namespaces: str) -> PodSelector:
    """Return a selector of the pods with this label `app`, by default in namespace d."""
    return PodSelector(namespaces or ("d",), (Requirement("app", "In", (app,)),))


GREEN = NodeConstraints(node_selector=(("green", "true"),))


def thesis_cluster() -> Cluster:
    """Return the cluster of chapter 3 of the thesis, in the sizes of the test vectors."""
    return Cluster.of(
        [node("1"), node("2"), node("3"), node("4", labels={"green": "true"})],
        [
            pod("A", "1", 2500, 2000),
            pod("B", "2", 2000, 1500),
            pod("C", "2", 200, 1000),
            pod("D", "3", 1000, 4000),
            pod("E", "3", 500, 2500),
            pod("F", "4", 1000, 1000, node_constraints=GREEN),
        ],
    )


def thesis_config(cpu: str = "0.8", memory: str = "0.8", **changes: object) -> Config:
    """Return the settings of the thesis, with its thresholds and its unneeded time."""
    settings = Config(
        thresholds=Thresholds(cpu=Fraction(cpu), memory=Fraction(memory)),
        unneeded_time_seconds=600,
        usable_capacity=THESIS_USABILITY,
        budgets=UNLIMITED,
    )
    return replace(settings, **changes)  # type: ignore[arg-type]
