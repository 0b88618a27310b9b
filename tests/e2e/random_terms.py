"""Random constraints of pods in Kubernetes JSON: selectors, affinity, tolerations, spread."""

import random
from collections.abc import Iterable, Sequence

from tests.e2e.api import Json

NAMESPACES = ("default", "e2e-other")
SCHEDULE_LABELS = {"disk": ("ssd", "hdd"), "rack": ("1", "2", "3"), "old": ("true",)}
"""Further labels of nodes."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TAINTS: tuple[Json, ...] = (
    {"key": "batch", "value": "yes", "effect": "NoSchedule"},
    {"key": "batch", "value": "yes", "effect": "NoSchedule"},
    {"key": "batch", "value": "no", "effect": "NoExecute"},
    {"key": "special", "value": "", "effect": "NoSchedule"},
    {"key": "rather", "value": "not", "effect": "PreferNoSchedule"},
)
TOLERATIONS: tuple[Json, ...] = (
    {"key": "batch", "operator": "Exists"},
    {"key": "batch", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "batch", "operator": "Equal", "value": "yes"},
    {"key": "batch", "value": "no", "effect": "NoExecute"},
    {"key": "special"},
    {"key": "special", "operator": "Exists", "effect": "NoExecute"},
    {"operator": "Exists"},
    {"operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
)
FEATURE = "RestartAllContainersOnContainerExits"
RESTARTS_ALL: Json = {
    "restartPolicy": "Never",
    "restartPolicyRules": [
        {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    ],
}
"""Fields of a container whose node must declare the FEATURE."""
FEATURE_MINOR_MIN = 36
"""The first minor version of Kubernetes with this FEATURE; an older one rejects these fields."""
TOPOLOGIES = (
    "kubernetes.io/hostname",
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/zone",
    "rack",
    "disk",
)


def remove_newer_fields(pods: Iterable[Json], minor: int) -> None:
    """Remove the fields of containers that this minor version of Kubernetes rejects."""
    if minor < FEATURE_MINOR_MIN:
        for container in (one for found in pods for one in found["spec"]["containers"]):
            for name in RESTARTS_ALL:
                container.pop(name, None)


def tolerations(chance: random.Random) -> list[Json]:
    """Return one or two tolerations."""
    return chance.sample(TOLERATIONS, chance.choice((1, 1, 2)))


def tolerates_evicting(tolerated: Iterable[Json], taints: Iterable[Json]) -> bool:
    """Return whether the pod tolerates all NoExecute taints of a node."""
    return all(one["effect"] != "NoExecute" for one in taints) or any(
        one.get("effect") in (None, "NoExecute")
        and one.get("key") in (None, "batch")
        and one.get("value") in (None, "no")
        for one in tolerated
    )


def pods(chance: random.Random, app: str) -> Json:
    """Return a label selector, mostly for the pods of this application or of another."""
    other = chance.choice("abcdef")
    if chance.random() < 0.8:
        return chance.choice((
            {"matchLabels": {"app": app}},
            {"matchLabels": {"app": app}},
            {"matchLabels": {"app": other}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": [app, other]}]},
            {"matchLabels": {"app": app},
             "matchExpressions": [{"key": "tier", "operator": "Exists"}]},
        ))  # fmt: skip
    return chance.choice((
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [other, "daemon"]}]},
        {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
        {},
    ))  # fmt: skip


def node_affinity(chance: random.Random, hosts: Sequence[str]) -> Json:
    """Return required terms, and sometimes preferred terms."""
    terms = [_node_term(chance, hosts) for _ in range(chance.choice((1, 1, 2)))]
    required = {REQUIRED: {"nodeSelectorTerms": terms}}
    if chance.random() < 0.3:
        wish = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
        required[PREFERRED] = [{"weight": 100, "preference": wish}]  # type: ignore[assignment]
    return required


def _node_term(chance: random.Random, hosts: Sequence[str]) -> Json:
    expressions: tuple[Json, ...] = (
        {"key": "disk", "operator": "In", "values": ["ssd"]},
        {"key": "disk", "operator": "NotIn", "values": ["ssd"]},
        {"key": "rack", "operator": "Gt", "values": ["1"]},
        {"key": "rack", "operator": "Lt", "values": ["3"]},
        {"key": "disk", "operator": "Lt", "values": ["3"]},
        {"key": "old", "operator": "Exists"},
        {"key": "old", "operator": "DoesNotExist"},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]},
    )
    term: Json = {}
    if chance.random() < 0.8:
        term["matchExpressions"] = chance.sample(expressions, chance.choice((1, 1, 2)))
    if chance.random() < 0.25:
        operator = chance.choice(("In", "NotIn"))
        field = {"key": "metadata.name", "operator": operator, "values": [chance.choice(hosts)]}
        term["matchFields"] = [field]
    return term


def pod_affinity(chance: random.Random, app: str) -> Json:
    """Return one or two required terms."""
    terms = [_pod_term(chance, app) for _ in range(chance.choice((1, 1, 1, 2)))]
    if chance.random() < 0.1:
        return {PREFERRED: [{"weight": 100, "podAffinityTerm": one} for one in terms]}
    return {REQUIRED: terms}


def _pod_term(chance: random.Random, app: str) -> Json:
    term: Json = {"topologyKey": chance.choice(TOPOLOGIES), "labelSelector": pods(chance, app)}
    rare = chance.random()
    if rare < 0.05:
        term["namespaces"] = list(NAMESPACES)
    elif rare < 0.1:
        term["namespaces"] = [NAMESPACES[1]]
    elif rare < 0.15:
        term["namespaceSelector"] = {}
    elif rare < 0.2:
        del term["labelSelector"]
    elif rare < 0.23:
        term["matchLabelKeys"] = ["track"]
    elif rare < 0.26:
        label = {"kubernetes.io/metadata.name": NAMESPACES[1]}
        term["namespaceSelector"] = {"matchLabels": label}
    return term


def spread(chance: random.Random, app: str) -> list[Json]:
    """Return one or two constraints over different topologies."""
    keys = chance.sample(sorted(set(TOPOLOGIES)), chance.choice((1, 1, 2)))
    return [_constraint(chance, app, key) for key in keys]


def _constraint(chance: random.Random, app: str, key: str) -> Json:
    constraint: Json = {
        "topologyKey": key,
        "maxSkew": chance.choice((1, 1, 2)),
        "whenUnsatisfiable": "DoNotSchedule" if chance.random() < 0.9 else "ScheduleAnyway",
        "labelSelector": pods(chance, app),
    }
    if chance.random() < 0.6:
        constraint["labelSelector"] = {"matchLabels": {"app": app}}
    if chance.random() < 0.4 and constraint["whenUnsatisfiable"] == "DoNotSchedule":
        constraint["minDomains"] = chance.choice((1, 2, 3, 4, 5))
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if chance.random() < 0.4:
            constraint[policy] = chance.choice(("Honor", "Ignore"))
    rare = chance.random()
    if rare < 0.25:
        constraint["matchLabelKeys"] = ["track"]
    elif rare < 0.35:
        del constraint["labelSelector"]
    return constraint
