"""Pod deletion costs on a real controller manager: scale-ins empty marked nodes first."""

import random
import signal
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from core.config.settings import Mode
from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION, KEEP_ANNOTATION, MARK_LABEL
from core.writes.costs import NEXT_MIN
from kube.target import NAMESPACE
from tests.e2e.api import Api, Json
from tests.e2e.install import (
    CONTROLLER_ACCOUNT,
    Start,
    apply,
    overlay,
    remove,
    starting,
)
from tests.e2e.objects import DEPLOYMENTS, NODES, PODS, add_nodes, pod
from tests.e2e.plane import Plane, until
from tests.e2e.test_manifests import asked_by, granted, rights_of
from tests.support.replica_set import place, read_cost

NAMES = ("a", "b", "c", "d")
EACH = 5
APP = {"app": "web"}
SETTINGS = {
    "mode": Mode.ENFORCE,
    "usableCapacity": "all",
}
"""Settings without `podDeletionCost`: the default enables it if the component is installed."""
SET = 'ebb_pod_writes_total{operation="set_deletion_cost",result="success"}'
OURS = f"system:serviceaccount:{NAMESPACE}:{CONTROLLER_ACCOUNT}"


@pytest.fixture(scope="module", autouse=True)
def folder(plane: Plane) -> Iterator[Path]:
    """Install Ebb with the component; each test starts the programs."""
    made = plane.folder / "scale-in"
    overlay(made, "components/pod-deletion-cost")
    apply(plane, str(made))
    yield made
    plane.kubectl("delete", "clusterrole,clusterrolebinding", "ebb-controller-scale-in")
    remove(plane)


@pytest.fixture
def start(plane: Plane) -> Iterator[Start]:
    """Run a webhook; yield a function that starts controllers with these settings."""
    with starting(plane, SETTINGS) as start:
        yield start


def cost(found: Json) -> str | None:
    value: str | None = annotations(found).get(COST_ANNOTATION)
    return value


def of_a_mark(found: Json) -> bool:
    """Return whether the pod has Ebb's cost for pods of marked nodes."""
    return ours(found) and int(cost(found) or 0) < NEXT_MIN


def is_next(found: Json) -> bool:
    """Return whether the pod has Ebb's cost for pods of scale-in targets."""
    return ours(found) and NEXT_MIN <= int(cost(found) or 0) < 0


def ours(found: Json) -> bool:
    return COST_OURS_ANNOTATION in annotations(found)


def annotations(found: Json) -> Json:
    return found["metadata"].get("annotations") or {}


def living(pods: Mapping[str, Json]) -> dict[str, Json]:
    return {n: one for n, one in pods.items() if "deletionTimestamp" not in one["metadata"]}


def by_node(pods: Mapping[str, Json]) -> Counter[str]:
    return Counter(one["spec"].get("nodeName", "") for one in pods.values())


def deploy(api: Api) -> dict[str, Json]:
    """Run 20 replicas, five on each of four nodes; return the running pods.

    No scheduler runs; the test binds the pods itself.
    """
    add_nodes(api, *NAMES)
    count = EACH * len(NAMES)
    deployment(api, "web", count)
    for number, name in enumerate(sorted(api.wait(PODS, lambda found: len(found) == count))):
        bind(api, name, NAMES[number % len(NAMES)])
    return api.wait(PODS, all_run)


def deployment(api: Api, name: str, count: int, **pod_spec: Any) -> None:
    """Create a Deployment whose pods have the label app with its name."""
    labels = {"app": name}
    requests = {"requests": {"cpu": "300m"}}
    container = {"name": "main", "image": "none", "resources": requests}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **pod_spec}}
    spec = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
    api.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec})


def bind(api: Api, name: str, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    api.create(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})


def all_run(pods: Mapping[str, Json]) -> bool:
    return all(one["status"].get("phase") == "Running" for one in pods.values())


def scale(api: Api, replicas: int) -> dict[str, Json]:
    """Scale as an HPA does, and wait for the new number of pods."""
    api.merge(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": replicas}})
    return api.wait(PODS, lambda found: len(found) == replicas)


def marked(api: Api, count: int) -> set[str]:
    """Wait until *count* nodes are marked; return their names."""

    def names(found: Mapping[str, Json]) -> set[str]:
        return {n for n, one in found.items() if MARK_LABEL in one["metadata"]["labels"]}

    return names(api.wait(NODES, lambda found: len(names(found)) == count))


def priced(api: Api, nodes: set[str], theirs: Collection[str] = ()) -> dict[str, Json]:
    """Wait until the pods of marked nodes and of one scale-in target have their costs.

    *theirs* are pods that had a cost before. With so few nodes there is one scale-in target.
    """

    def reached(found: Mapping[str, Json]) -> bool:
        own = {name: one for name, one in found.items() if name not in theirs}
        at = {name: one["spec"].get("nodeName") for name, one in own.items()}
        following = {at[name] for name, one in own.items() if is_next(one)}
        return len(following) == 1 and all(
            of_a_mark(one) == (at[name] in nodes) and is_next(one) == (at[name] in following)
            for name, one in own.items()
        )

    return api.wait(PODS, reached)


def begun(api: Api, start: Start) -> set[str]:
    """Run the replicas and Ebb; return the two marked nodes when all costs are set."""
    deploy(api)
    start()
    nodes = marked(api, 2)
    priced(api, nodes)
    return nodes


def our_pod_writes(plane: Plane, offset: int) -> Counter[str]:
    """Count Ebb's patches of pods since *offset*, by pod, from the audit log."""
    return Counter(
        event["objectRef"]["name"]
        for event in plane.audited(offset)
        if event["user"]["username"] == OURS
        and (event["verb"], event["objectRef"]["resource"]) == ("patch", "pods")
    )


def test_scale_in_leaves_pods_on_more_nodes_than_needed_without_deletion_cost(api: Api) -> None:
    """This is the control experiment: among equal pods the controller chooses by UID.

    By chance one node is emptied in one of 15 runs, two nodes in one of 30,000.
    """
    deploy(api)
    left = by_node(living(scale(api, 10)))
    assert len(left) > 2


def test_scale_in_deletes_only_pods_of_marked_nodes(plane: Plane, api: Api, start: Start) -> None:
    offset = len(plane.audit.read_bytes())
    before = deploy(api)
    ebb = start()
    nodes = marked(api, 2)
    there = priced(api, nodes)
    on_marked = {n for n, one in before.items() if one["spec"]["nodeName"] in nodes}
    assert len(on_marked) == 10
    for name in on_marked:
        found = annotations(there[name])
        assert found[COST_ANNOTATION] == found[COST_OURS_ANNOTATION]
        assert int(found[COST_ANNOTATION]) < 0
    left = scale(api, 10)
    assert set(left) == set(before) - on_marked
    assert by_node(left) == {name: EACH for name in NAMES if name not in nodes}
    until(
        lambda: ebb.metric(SET) == our_pod_writes(plane, offset).total(),
        "each write is counted and in the audit log",
    )
    written = our_pod_writes(plane, offset)
    following = {name for name, one in there.items() if is_next(one)}
    assert written.keys() == on_marked | following, "not those of the fourth node"
    assert max(written.values()) <= 2, "once for being next, once for the mark"
    assert ebb.metric_sum("ebb_pod_writes_total", 'result="error"') == 0


def test_scale_in_continues_on_one_node_after_marked_nodes_are_empty(
    api: Api, start: Start
) -> None:
    nodes = begun(api, start)
    left = by_node(living(scale(api, 6)))
    assert sorted(left[name] for name in set(NAMES) - nodes) == [1, EACH]


def test_scale_ins_empty_one_node_after_another_when_no_node_is_marked(
    api: Api, start: Start
) -> None:
    deploy(api)
    start(thresholds={"cpu": "10%", "memory": "80%"})
    for empty in (1, 2):
        priced(api, set())
        left = by_node(living(scale(api, EACH * (len(NAMES) - empty))))
        assert sorted(left[name] for name in NAMES) == [0] * empty + [EACH] * (4 - empty)


def test_small_scale_in_empties_one_of_two_marked_nodes(api: Api, start: Start) -> None:
    nodes = begun(api, start)
    left = by_node(living(scale(api, 15)))
    assert sorted(left[name] for name in nodes) == [0, EACH]
    assert all(left[name] == EACH for name in set(NAMES) - nodes)


def test_rollout_deletes_old_pods_of_marked_nodes_first(api: Api, start: Start) -> None:
    """No scheduler runs, so the new pods are Pending, and the rollout stops halfway."""
    before = deploy(api)
    start()
    nodes = marked(api, 2)
    priced(api, nodes)
    on_marked = {n for n, one in before.items() if one["spec"]["nodeName"] in nodes}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 10}}
    template = {"metadata": {"labels": {**APP, "version": "2"}}}
    api.merge(f"{DEPLOYMENTS}/web", {"spec": {"strategy": strategy, "template": template}})
    after = living(api.wait(PODS, lambda found: len(set(before) & set(living(found))) == 10))
    assert set(before) - set(after) == on_marked


def test_cleanup_removes_only_deletion_costs_of_ebb(
    plane: Plane, api: Api, folder: Path, start: Start
) -> None:
    offset = len(plane.audit.read_bytes())
    pods = deploy(api)
    mine = {next(n for n, p in pods.items() if p["spec"]["nodeName"] == on): on for on in NAMES}
    for name in mine:
        api.merge(f"{PODS}/{name}", {"metadata": {"annotations": {COST_ANNOTATION: "5"}}})
    ebb = start()
    nodes = marked(api, 2)
    there = priced(api, nodes, mine)
    over = next(n for n, p in there.items() if n not in mine and cost(p) is not None)
    api.merge(f"{PODS}/{over}", {"metadata": {"annotations": {COST_ANNOTATION: "6"}}})
    for name in NAMES:
        api.merge(f"{NODES}/{name}", {"metadata": {"annotations": {KEEP_ANNOTATION: "true"}}})
    marked(api, 0)
    after = api.wait(PODS, lambda found: not any(ours(p) for p in found.values()))
    costs = {name: cost(p) for name, p in after.items() if cost(p) is not None}
    assert costs == {**dict.fromkeys(mine, "5"), over: "6"}
    assert not set(mine) & set(our_pod_writes(plane, offset))
    assert ebb.metric_sum("ebb_pod_writes_total", 'result="error"') == 0
    used = rights_of(asked_by(plane, CONTROLLER_ACCOUNT, offset))
    pod_actions = {
        right for right in granted(plane, str(folder), CONTROLLER_ACCOUNT) if right[1] == "pods"
    }
    assert {right for right in used if right[1] == "pods"} == pod_actions


def test_deletion_costs_of_killed_controller_are_removed_when_option_is_disabled(
    api: Api, start: Start
) -> None:
    deploy(api)
    ebb = start()
    nodes = marked(api, 2)
    priced(api, nodes)
    ebb.stop(signal.SIGKILL)
    start(podDeletionCost="disabled")
    api.wait(PODS, lambda found: not any(cost(p) or ours(p) for p in found.values()))
    assert marked(api, 2) == nodes, "the marks stay"


def test_new_pod_on_marked_node_gets_deletion_cost_unless_it_is_bare(
    api: Api, start: Start
) -> None:
    nodes = begun(api, start)
    on = min(nodes)
    api.create(PODS, pod("bare", node_name=on, cpu="10m"))
    api.merge(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 21}})
    pending = api.wait(PODS, lambda found: by_node(found)[""] == 1)
    late = next(n for n, p in pending.items() if not p["spec"].get("nodeName"))
    bind(api, late, on)
    found = api.wait(PODS, lambda found: cost(found[late]) is not None)
    assert cost(found["bare"]) is None
    in_step = {cost(p) for n, p in found.items() if n != "bare" and p["spec"]["nodeName"] == on}
    assert in_step == {cost(found[late])}


ZONE = "topology.kubernetes.io/zone"
ZONES = "xyz"
SPREAD_NODES = tuple(f"{zone}{number}" for zone in ZONES for number in (1, 2))


def test_plain_model_deletes_the_same_pods_as_the_controller_manager(api: Api) -> None:
    """Pods are unassigned, not Ready or Ready, with random costs, in 12 ReplicaSets."""
    chance = random.Random(51)
    add_nodes(api, *NAMES)
    sizes = {f"web-{index}": chance.randint(4, 10) for index in range(12)}
    for name, count in sizes.items():
        deployment(api, name, count)
    for name in sorted(api.wait(PODS, lambda found: len(found) == sum(sizes.values()))):
        if chance.random() < 0.8:
            bind(api, name, chance.choice(NAMES))
    bound = api.wait(
        PODS, lambda found: all_run({n: p for n, p in found.items() if p["spec"].get("nodeName")})
    )
    for name, found in bound.items():
        value = chance.choice((None, "-5", "-5", "3", "-70", "0", "-2147483648"))
        api.merge(f"{PODS}/{name}", {"metadata": {"annotations": {COST_ANNOTATION: value}}})
        if found["spec"].get("nodeName") and chance.random() < 0.3:
            not_ready = [{"type": "Ready", "status": "False"}]
            api.merge(f"{PODS}/{name}/status", {"status": {"conditions": not_ready}})
    before = api.wait(PODS, lambda found: len(found) == sum(sizes.values()))
    after = {name: chance.randint(1, count - 1) for name, count in sizes.items()}
    for name, count in after.items():
        api.merge(f"{DEPLOYMENTS}/{name}/scale", {"spec": {"replicas": count}})
    left = api.wait(PODS, lambda found: len(living(found)) == sum(after.values()))
    for name in sizes:
        places = {
            n: placed(p) for n, p in before.items() if p["metadata"]["labels"]["app"] == name
        }
        deleted = max(at for n, at in places.items() if n not in living(left))
        assert deleted <= min(at for n, at in places.items() if n in living(left)), places


def placed(found: Json) -> tuple[bool, bool, int]:
    conditions = {one["type"]: one["status"] for one in found["status"].get("conditions") or ()}
    return place(
        assigned="nodeName" in found["spec"],
        ready=conditions.get("Ready") == "True",
        cost=read_cost(cost(found)),
    )


def test_scale_ins_keep_zones_balanced_and_empty_marked_nodes(
    plane: Plane, api: Api, start: Start
) -> None:
    """One node of each zone is marked; each scale-in takes its pods, in turns of the zones."""
    for name in SPREAD_NODES:
        add_nodes(api, name, labels={ZONE: name[0]})
    constraint = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": APP},
    }
    count = EACH * len(SPREAD_NODES)
    deployment(api, "web", count, topologySpreadConstraints=[constraint])
    for index, name in enumerate(sorted(api.wait(PODS, lambda found: len(found) == count))):
        bind(api, name, SPREAD_NODES[index % len(SPREAD_NODES)])
    api.wait(PODS, all_run)
    start()
    nodes = marked(api, 3)
    assert {name[0] for name in nodes} == set(ZONES)
    api.wait(PODS, lambda found: in_order(found, nodes))
    offset = len(plane.audit.read_bytes())
    for replicas in (28, 23, 19, 15):
        left = living(scale(api, replicas))
        zones = Counter(one["spec"]["nodeName"][0] for one in left.values())
        assert max(zones.values()) - min(zones.values()) <= 1
        assert by_node(left).total() - sum(by_node(left)[name] for name in nodes) == 15
    assert our_pod_writes(plane, offset).total() <= EACH, "those of a new scale-in target"


def in_order(found: Mapping[str, Json], nodes: Collection[str]) -> bool:
    """Return whether the pods of marked nodes have the lowest costs, and nearly all have one."""
    with_cost = {name: one for name, one in found.items() if ours(one)}
    first = sorted(with_cost.values(), key=lambda one: int(cost(one) or 0))[: 3 * EACH]
    return len(with_cost) >= len(found) - len(ZONES) and {
        one["spec"]["nodeName"] for one in first
    } == set(nodes)
