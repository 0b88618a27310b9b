"""Reference implementation of the filters for one pod on one node, without caching.

It follows the documentation of kube-scheduler, and shares only values with the product. A name in
*mutant* disables a rule, so that tests can show that the rule is needed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from core.model.constraints import (
    NodeConstraints,
    PodSelector,
    Requirement,
    SelectorTerm,
    Toleration,
)
from core.model.node import Node, Taint
from core.model.pod import Pod
from core.model.resources import Resources

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"
LEAVING = (
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/rebalance-recommendation",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "cloud.google.com/impending-node-termination",
    "remediator.kubernetes.azure.com/unschedulable",
    "remediator.aks.microsoft.com/unschedulable",
    "atlassian.com/escalator",
    "autoscaling.cast.ai/draining",
    "node-compactor.osdc.io/consolidating",
    "medik8s.io/drain",
    "kubevirt.io/drain",
)
"""Taints of nodes that are being removed."""
STARTING = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/network-unavailable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "karpenter.sh/unregistered",
    "node.cilium.io/agent-not-ready",
    "ebs.csi.aws.com/agent-not-ready",
    "efs.csi.aws.com/agent-not-ready",
)
STARTUP = re.compile(
    r"(startup|ignore)-taint\.cluster-autoscaler\.kubernetes\.io/|readiness\.k8s\.io/"
)
"""Taints of starting nodes: these keys, and keys with these prefixes."""
PASSING = (
    *LEAVING,
    *STARTING,
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "DeletionCandidateOfClusterAutoscaler",
    "node.cluster.x-k8s.io/outdated-revision",
    "deployment.machine.sapcloud.io/prefer-no-schedule",
    "node.machine.sapcloud.io/preserved",
    "kops.k8s.io/scheduled-for-update",
    "UpdateInProgress",
    "decommission-pending",
    "kured.dev/kured-node-reboot",
    "weave.works/kured-node-reboot",
)
INT64 = re.compile(r"(?a)[+-]?\d{1,64}")


def matches(wanted: Requirement, labels: Mapping[str, str]) -> bool:
    """Evaluate one expression; numbers are read like Go does: only digits, 64 bits."""
    has = wanted.key in labels
    value = labels.get(wanted.key, "")
    if wanted.operator == "In":
        return has and value in wanted.values
    if wanted.operator == "NotIn":
        return not (has and value in wanted.values)
    if wanted.operator == "Exists":
        return has
    if wanted.operator == "DoesNotExist":
        return not has
    numbers = [number(text) for text in (value, *wanted.values)]
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        return False
    return wanted.operator == {-1: "Lt", 1: "Gt"}.get(compared(numbers[0], numbers[1]))


def compared(one: int, other: int) -> int:
    """Compare two numbers; return -1, 0 or 1."""
    return (one > other) - (one < other)


def number(text: str) -> int | None:
    """Return a 64-bit integer, or None if the text is no number."""
    if not INT64.fullmatch(text):
        return None
    found = int(text)
    return found if -(2**63) <= found < 2**63 else None


def selects(selector: PodSelector, pod: Pod) -> bool:
    """Return whether the selector matches the pod."""
    there = selector.namespaces is None or pod.namespace in selector.namespaces
    return there and all(matches(one, pod.labels) for one in selector.requirements)


def term_selects(term: SelectorTerm, node: Node) -> bool:
    """Return whether the term matches the node; an empty term matches no node."""
    name = {"metadata.name": node.name}
    asked = len(term.labels) + len(term.fields)
    return (
        asked > 0
        and all(matches(one, node.labels) for one in term.labels)
        and all(matches(one, name) for one in term.fields)
    )


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether the toleration tolerates the taint."""
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    equal = toleration.operator in ("", "Equal")
    return equal and toleration.key == taint.key and toleration.value == taint.value


def passing(key: str) -> bool:
    """Return whether taints of this key are transient, so that reaches ignore them."""
    return key in PASSING or starts(key)


def starts(key: str) -> bool:
    """Return whether taints of this key mark starting nodes."""
    return key in STARTING or STARTUP.match(key) is not None


def tolerates_taints(
    node: Node, node_constraints: NodeConstraints, aside: Callable[[str], bool]
) -> bool:
    """Return whether all blocking taints are tolerated, except those set *aside*."""
    return all(
        aside(taint.key) or any(tolerates(one, taint) for one in node_constraints.tolerations)
        for taint in node.taints
        if taint.effect in ("NoSchedule", "NoExecute")
    )


def labelled(node: Node, node_constraints: NodeConstraints) -> bool:
    """Return whether the node has the labels of nodeSelector."""
    return set(node_constraints.node_selector) <= set(node.labels.items())


def of_system(node: Node, node_constraints: NodeConstraints) -> bool:
    """Return whether the node has the OS of the pod, which only kubelets check."""
    return set(node_constraints.system) <= set(node.labels.items())


def declares(node: Node, node_constraints: NodeConstraints) -> bool:
    """Return whether the node declares all features that the pod needs."""
    return set(node_constraints.features) <= set(node.features)


def offers(node: Node, node_constraints: NodeConstraints) -> bool:
    """Report whether the node has some of every extended resource that the pod requests."""
    there = {name for name, units in node.allocatable.extended if units > 0}
    return set(node_constraints.extended) <= there


def liked(node: Node, node_constraints: NodeConstraints) -> bool:
    """Return whether a term of the required node affinity matches."""
    return node_constraints.affinity is None or any(
        term_selects(one, node) for one in node_constraints.affinity
    )


def volumes_reach(node: Node, node_constraints: NodeConstraints) -> bool:
    """Return whether a term of the node affinity of each volume matches."""
    return all(
        any(term_selects(one, node) for one in volume.affinity)
        for volume in node_constraints.volumes
        if volume.affinity is not None
    )


def volumes_zoned(node: Node, node_constraints: NodeConstraints) -> bool:
    """Return whether the zones and regions of the volumes include those of the node."""
    newer = {OLD_ZONE: ZONE, OLD_REGION: REGION}
    if not any(key in node.labels for key in (ZONE, REGION, OLD_ZONE, OLD_REGION)):
        return True
    return all(
        node.labels.get(key, node.labels.get(newer.get(key, key), None)) in values
        for volume in node_constraints.volumes
        for key, values in volume.zones
    )


def reaches(
    node: Node, node_constraints: NodeConstraints, taint_key: str, mutant: str = ""
) -> bool:
    """Return whether the node constraints of the pod admit the node, in any state."""

    def aside(key: str) -> bool:
        named = key in node.leaving_taints
        return mutant != "temporary taints count" and (key == taint_key or passing(key) or named)

    return (
        (
            (labelled(node, node_constraints) and of_system(node, node_constraints))
            or mutant == "no selectors"
        )
        and (liked(node, node_constraints) or mutant == "no node affinity")
        and (tolerates_taints(node, node_constraints, aside) or mutant == "no taints")
        and (declares(node, node_constraints) or mutant == "no features")
        and (offers(node, node_constraints) or mutant == "nodes without devices are in reach")
    )


def without_places(node_constraints: NodeConstraints, mutant: str = "") -> NodeConstraints:
    """Return the constraints without names of nodes, zones and regions."""
    places = {ZONE, OLD_ZONE, REGION, OLD_REGION} if mutant != "named zones decide" else set()
    if mutant != "named nodes decide":
        places.add("kubernetes.io/hostname")

    def left(term: SelectorTerm) -> SelectorTerm:
        labels = tuple(one for one in term.labels if one.key not in places)
        return SelectorTerm(labels, term.fields if mutant == "named nodes decide" else ())

    terms = node_constraints.affinity or ()
    said_nothing_else = any(left(one) == SelectorTerm() != one for one in terms)
    return replace(
        node_constraints,
        node_selector=tuple(one for one in node_constraints.node_selector if one[0] not in places),
        affinity=None
        if said_nothing_else
        else node_constraints.affinity and tuple(map(left, terms)),
    )


def admits(
    node: Node, node_constraints: NodeConstraints, taint_key: str, mutant: str = ""
) -> bool:
    """Return whether the node admits the pod in its current state, apart from Ebb's taint."""
    rules: dict[str, Callable[[], bool]] = {
        "no selectors": lambda: (
            labelled(node, node_constraints) and of_system(node, node_constraints)
        ),
        "no node affinity": lambda: liked(node, node_constraints),
        "no taints": lambda: tolerates_taints(node, node_constraints, taint_key.__eq__),
        "no volume affinity": lambda: volumes_reach(node, node_constraints),
        "no volume zones": lambda: volumes_zoned(node, node_constraints),
        "no features": lambda: declares(node, node_constraints),
        "no devices": lambda: offers(node, node_constraints),
    }
    return all(rule() for name, rule in rules.items() if name != mutant)


def has_room(asked: Resources, free: Resources, mutant: str = "") -> bool:
    """Return whether the requests fit; resources that the pod does not request are ignored."""
    have = dict(free.extended)
    pairs = {
        "no cpu": (asked.cpu_millis, free.cpu_millis),
        "no memory": (asked.memory_bytes, free.memory_bytes),
        "no storage": (asked.ephemeral_bytes, free.ephemeral_bytes),
        "no pod count": (asked.pods, free.pods),
    }
    extended = [(amount, have.get(name, 0)) for name, amount in asked.extended]
    if mutant == "no devices":
        extended = []
    of_all = [pair for name, pair in pairs.items() if name != mutant]
    return all(not want or want <= room for want, room in [*of_all, *extended])
