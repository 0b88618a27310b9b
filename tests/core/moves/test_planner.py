"""Which pods are moved, in which order, and why others are not: one row for each rule."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from core.config.schedule import Window
from core.config.settings import Config, Mode, UsabilityMode
from core.config.surge import SurgeConfig, SurgeMode
from core.config.thresholds import Thresholds
from core.eligibility.drainability import DO_NOT_DISRUPT, SAFE_TO_EVICT
from core.engine import reconcile
from core.engine.maintenance_gate import ALWAYS, RefusedWrite
from core.engine.plan import Plan
from core.marks.wellknown import REMOVAL_DISABLED
from core.model.cluster import Cluster
from core.model.constraints import (
    DisruptionFacts,
    HostPort,
    PodAffinityTerm,
    PodConstraints,
    QuotaFacts,
)
from core.model.node import Node
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker
from core.moves.objects import CONTROLLER, HorizontalAutoscaler, SurgeObjects, resolved_surge
from core.moves.outcomes import MoveOutcome, note_after
from core.moves.planner import (
    FAILURES_IN_NAMESPACE_MAX,
    MOVES_IN_NAMESPACE_MAX,
    NO_MEMORY,
    MoveMemory,
    MovePlan,
    NewMove,
    SurgeContext,
    SurgeInput,
    plan_moves,
)
from core.moves.quotas import ResourceQuota
from core.moves.reasons import OTHER_CONTROLLER, OWNER_REFERENCES
from tests.support import builders
from tests.support.builders import UNLIMITED, node, select
from tests.support.surge import NOTE, NOW, deployment, detached, make_move, make_pod

CONFIG = Config(
    mode=Mode.ENFORCE,
    thresholds=Thresholds(cpu=1, memory=1),  # type: ignore[arg-type]
    usable_capacity=UsabilityMode.ALL,
    budgets=UNLIMITED,
    surge=SurgeConfig(mode=SurgeMode.ENABLED),
)
POD = make_pod("old")
OTHERS = make_pod("a", "n"), make_pod("b", "n")
HPA = HorizontalAutoscaler(namespace="d", name="hpa", target="web")
OURS = "ebb-system"
QUOTA = ResourceQuota(namespace="d", name="q", hard={"pods": 3}, used={"pods": 3})


def marked_node(name: str) -> Node:
    return builders.marked(node(name), "PreferNoSchedule", NOW - 60, 1, deadline=NOW + 10**6)


def objects(*deployments: Any, **others: Any) -> SurgeObjects:
    found = deployments or (deployment(),)
    return SurgeObjects(
        deployments={one.key: one for one in found},
        owners={(one.namespace, one.replica_set): one.key for one in found}
        | {("d", "web-0"): "d/web"},
        **others,
    )


def chosen(
    pods: Sequence[Pod] = (POD, *OTHERS),
    of: SurgeObjects | None = None,
    *,
    nodes: Sequence[Node] = (marked_node("m"), node("n")),
    memory: MoveMemory = NO_MEMORY,
    plan: Plan | None = None,
    now_seconds: int = NOW,
    **changes: Any,
) -> MovePlan:
    """Return the moves for a cluster with the marked node m and the node n."""
    cluster = Cluster.of(nodes, pods)
    config = changes.pop("config", CONFIG)
    surge_input = SurgeInput(
        cluster=cluster,
        plan=plan or reconcile.plan(cluster, config),
        config=config,
        objects=of or objects(),
        memory=memory,
        own_namespace=OURS,
        now_seconds=now_seconds,
        **changes,
    )
    return plan_moves(SurgeContext(surge_input))


@pytest.mark.parametrize(
    ("name", "leader_pod", "why"),
    [
        ("ebb-webhook", "", None),
        ("ebb-webhook", f"{OURS}/leader", None),
        (CONTROLLER, f"{OURS}/a", None),
        (CONTROLLER, f"{OURS}/old", "is the leader of ebb-controller"),
        (CONTROLLER, "", "may be the leader of ebb-controller"),
    ],
)
def test_own_pods_are_moved_except_for_leader(name: str, leader_pod: str, why: str | None) -> None:
    pods = [replace(pod, namespace=OURS) for pod in (POD, *OTHERS)]
    of = SurgeObjects(
        deployments={f"{OURS}/{name}": deployment(name, namespace=OURS, replica_set="web-1")},
        owners={(OURS, "web-1"): f"{OURS}/{name}"},
    )
    found = chosen(pods, of, leader_pod=leader_pod)
    assert len(found.begin) == (why is None)
    assert [(wait.code, wait.message) for wait in found.waits] == (
        [("surge-own", why)] if why else []
    )


@pytest.mark.parametrize("leaving", [{"deleting": True}, {"unschedulable": True}], ids=str)
def test_no_move_begins_on_leaving_node(leaving: Mapping[str, Any]) -> None:
    """Whoever drains it must find the pods in their ReplicaSets."""
    node_m = replace(marked_node("m"), **leaving)
    assert chosen(nodes=[node_m, node("n")]) == MovePlan((), ())


def codes(found: MovePlan) -> set[str]:
    assert not found.begin
    return {blocker.code for blocker in found.waits}


def test_pod_on_marked_node_is_moved() -> None:
    (begun,) = chosen().begin
    assert begun == NewMove(make_move(), POD, ALWAYS)
    assert begun.move.others == frozenset({"uid-old", "uid-a", "uid-b"})


@pytest.mark.parametrize(
    ("progress_seconds", "seconds"),
    [(0, 30), (1, 30), (31, 31), (120, 120), (600, 600), (9999, 600)],
)
def test_deadline_is_progress_deadline_of_deployment_within_limits(
    progress_seconds: int, seconds: int
) -> None:
    (begun,) = chosen(of=objects(deployment(progress_deadline_seconds=progress_seconds))).begin
    assert begun.move.note == NOTE._replace(deadline=NOW + seconds)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"strategy": "Recreate"}, "surge-strategy"),
        ({"max_surge": 0}, "surge-strategy"),
        ({"paused": True}, "surge-paused"),
        ({"keep": True}, "surge-keep"),
        ({"generation": 2}, "surge-rollout"),
        ({"updated": 2}, "surge-rollout"),
        ({"pods": 4}, "surge-rollout"),
        ({"available": 2}, "surge-unavailable"),
        ({"replica_failure": "exceeded quota"}, "surge-quota"),
    ],
)
def test_pod_stays_when_deployment_must_not_get_another_pod(
    changes: Mapping[str, Any], code: str
) -> None:
    assert codes(chosen(of=objects(deployment(**changes)))) == {code}


@pytest.mark.parametrize(
    ("ready_seconds", "hpa", "code"),
    [(14, True, set()), (15, True, {"surge-hpa"}), (15, False, set())],
)
def test_pod_stays_when_hpa_would_count_the_new_pod(
    ready_seconds: int, code: set[str], *, hpa: bool
) -> None:
    slow = deployment(min_ready_seconds=ready_seconds)
    found = chosen(of=objects(slow, autoscalers={"d/web": HPA} if hpa else {}))
    assert {blocker.code for blocker in found.waits} == code
    assert bool(found.begin) is not bool(code)


@pytest.mark.parametrize(
    ("ready_seconds", "progress_seconds", "code"),
    [
        (599, 600, set()),
        (599, 1800, set()),
        (600, 1800, {"surge-min-ready"}),
        (120, 120, {"surge-min-ready"}),
        (119, 120, set()),
        (29, 1, set()),
        (30, 1, {"surge-min-ready"}),
    ],
)
def test_pod_stays_when_new_pod_would_be_available_too_late(
    ready_seconds: int, progress_seconds: int, code: set[str]
) -> None:
    found = chosen(
        of=objects(
            deployment(min_ready_seconds=ready_seconds, progress_deadline_seconds=progress_seconds)
        )
    )
    assert {blocker.code for blocker in found.waits} == code
    assert bool(found.begin) is not bool(code)


@pytest.mark.parametrize(
    ("hard", "used", "code"),
    [
        ({"pods": 3}, {"pods": 3}, {"surge-quota"}),
        ({"requests.cpu": 1000}, {"requests.cpu": 950}, {"surge-quota"}),
        ({"requests.cpu": 1000}, {"requests.cpu": 900}, set()),
        ({"limits.cpu": 1}, {"limits.cpu": 1}, set()),
        ({"limits.memory": 99}, {"limits.memory": 0}, {"surge-quota"}),
    ],
)
def test_pod_stays_when_quota_has_no_room(hard: Any, used: Any, code: set[str]) -> None:
    quota = replace(QUOTA, hard=hard, used=used)
    facts = QuotaFacts(unset=("limits.memory",))
    pods = [replace(pod, quota_facts=facts) for pod in (POD, *OTHERS)]
    found = chosen(pods, of=objects(quotas={"d": (quota,)}))
    assert {blocker.code for blocker in found.waits} == code
    assert bool(found.begin) is not bool(code)


def noted(key: str, value: str) -> dict[str, DisruptionFacts]:
    return {"disruption_facts": DisruptionFacts(notes=((key, value),), started_seconds=NOW)}


PORTS = PodConstraints(host_ports=(HostPort(80),))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"owner_kind": "Job", "owner_name": "job"}, "surge-no-deployment"),
        ({"owner_name": "unknown"}, "surge-no-deployment"),
        ({"owner_name": "web-0"}, "surge-rollout"),
        ({"ready": False}, "surge-not-ready"),
        ({"terminating": True}, "pod-terminating"),
        ({"created_seconds": NOW - 599}, "surge-young"),
        ({"deletion_cost": "5"}, "pod-foreign-cost"),
        ({"disruption_facts": DisruptionFacts(one_node_volumes=("data",))}, "surge-volume"),
        ({"disruption_facts": DisruptionFacts(local_volumes=("cache",))}, "pod-local-storage"),
        ({"disruption_facts": DisruptionFacts(gang="group")}, "pod-gang"),
        (noted(SAFE_TO_EVICT, "false"), "pod-not-safe-to-evict"),
        (noted(DO_NOT_DISRUPT, "true"), "pod-do-not-disrupt"),
        (noted(REMOVAL_DISABLED, "true"), "pod-removal-disabled"),
    ],
)
def test_pod_stays_when_it_must_not_be_replaced(changes: Mapping[str, Any], code: str) -> None:
    assert codes(chosen((replace(POD, **changes), *OTHERS))) == {code}


def test_pod_with_local_storage_is_moved_when_settings_allow_it() -> None:
    pod = replace(POD, disruption_facts=DisruptionFacts(local_volumes=("cache",)))
    surge = replace(CONFIG.surge, keep_local_storage=False)
    assert chosen((pod, *OTHERS), config=replace(CONFIG, surge=surge)).begin


def test_pod_stays_when_another_would_be_deleted_first() -> None:
    cheap = replace(OTHERS[0], deletion_cost="-200000000")
    assert codes(chosen((POD, cheap, OTHERS[1]))) == {"surge-other-first"}


@pytest.mark.parametrize(
    ("changes", "code"), [({}, "surge-no-place"), ({"pod_constraints": PORTS}, "surge-host-port")]
)
def test_pod_stays_when_no_node_that_stays_has_room(changes: Any, code: str) -> None:
    full = make_pod("full", "n", of="other", requests=replace(POD.requests, cpu_millis=3800))
    assert codes(chosen((replace(POD, **changes), *OTHERS, full))) == {code}


ZONE = "topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("zones", "on", "code"),
    [("aab", ("m", "o"), {"surge-beside"}), ("acba", ("m", "o"), set())],
    ids=["a pod in each zone", "a free zone"],
)
def test_pod_stays_when_new_pod_has_no_place_beside_it(
    zones: str, on: Sequence[str], code: set[str]
) -> None:
    nodes = [
        replace(one, labels={**one.labels, ZONE: zone})
        for one, zone in zip([marked_node("m"), *map(node, "nop")], zones, strict=False)
    ]
    labels = {"app": "web", "pod-template-hash": "1"}
    apart = PodConstraints(apart=(PodAffinityTerm(select("web"), ZONE),))
    pods = [
        replace(make_pod(name, where), labels=labels, pod_constraints=apart)
        for name, where in zip(("old", "a"), on, strict=True)
    ]
    of = objects(deployment(replicas=2, pods=2, updated=2, available=2))
    found = chosen(pods, of, nodes=nodes)
    assert {blocker.code for blocker in found.waits} == code
    assert bool(found.begin) is not bool(code)


FAILED = NOTE._replace(begun=NOW - 900, deadline=NOW - 300, failures=2, outcome="timed_out")


@pytest.mark.parametrize("at", range(3), ids=["pod to move", "sibling", "another sibling"])
def test_deployment_is_left_alone_until_the_pause_on_one_of_its_pods_ends(at: int) -> None:
    def pods(until: int) -> list[Pod]:
        found = [POD, *OTHERS]
        found[at] = replace(found[at], move=FAILED._replace(until=until).encode())
        return found

    found = chosen(pods(NOW + 5))
    assert codes(found) == {"surge-left-alone"}
    assert [blocker.until for blocker in found.waits] == [NOW + 5]
    (begun,) = chosen(pods(NOW)).begin
    assert begun.move.note == NOTE._replace(failures=2), "the next pause is longer"
    far = NOW + 10 * 86_400
    assert chosen(pods(far)).begin, "no leader writes such a pause"


def test_deployment_settles_for_a_minute_after_a_move() -> None:
    found = chosen(memory=MoveMemory(ended={("d", "web-1"): NOW - 59}))
    assert codes(found) == {"surge-settling"}
    assert [blocker.until for blocker in found.waits] == [NOW + 1]
    assert chosen(memory=MoveMemory(ended={("d", "web-1"): NOW - 60})).begin
    assert chosen(memory=MoveMemory(ended={("d", "db-1"): NOW})).begin


@pytest.mark.parametrize(
    ("replicas", "seconds"), [(0, 60), (1, 60), (50, 60), (51, 58), (100, 30), (500, 6), (9999, 0)]
)
def test_large_deployment_settles_sooner(replicas: int, seconds: int) -> None:
    of = objects(
        deployment(replicas=replicas, pods=replicas, updated=replicas, available=replicas)
    )
    found = chosen(of=of, memory=MoveMemory(ended={("d", "web-1"): NOW}))
    waits = [one.until for one in found.waits if one.code == "surge-settling"]
    assert waits == [NOW + seconds] * bool(seconds)


def test_namespace_is_left_alone_after_many_failures_within_an_hour() -> None:
    many = FAILURES_IN_NAMESPACE_MAX
    assert codes(chosen(memory=MoveMemory(failures={"d": many}))) == {"surge-left-alone"}
    assert chosen(memory=MoveMemory(failures={"d": many - 1, "e": many})).begin


@pytest.mark.parametrize("reason", [OTHER_CONTROLLER, OWNER_REFERENCES], ids=lambda one: one.code)
def test_pod_stays_when_pods_of_its_replica_set_cannot_be_detached(reason: Any) -> None:
    refused = {("d", "web-1"): [Blocker(reason, "so it is", "d/another", "agent")]}
    found = chosen(memory=MoveMemory(refused=refused))
    assert found.waits == (Blocker(reason, "so it is", "d/old", "agent"),)
    elsewhere = {("d", "db-1"): refused["d", "web-1"]}
    assert chosen(memory=MoveMemory(refused=elsewhere)).begin


TWO = (POD, make_pod("z"), OTHERS[0])


def test_deployment_has_one_move_at_a_time() -> None:
    found = chosen(TWO)
    assert [begun.move.pod for begun in found.begin] == ["old"]
    assert [blocker.code for blocker in found.waits] == ["surge-under-way"]
    own = {"uid-z": make_move(pod="z", uid="uid-z")}
    assert codes(chosen(TWO, memory=MoveMemory(own=own))) == {"surge-under-way"}


@pytest.mark.parametrize("note", [NOTE, None], ids=["of another leader", "labeled by anybody"])
def test_deployment_with_a_detached_pod_has_a_move(note: Any) -> None:
    assert codes(chosen((POD, detached(make_pod("z"), note), OTHERS[0]))) == {"surge-under-way"}


def test_no_move_begins_when_pods_are_pending() -> None:
    waiting = make_pod("waits", None, of="other", unschedulable=True, ready=False)
    big = replace(waiting, requests=replace(POD.requests, cpu_millis=3800))
    assert "surge-pending" in codes(chosen((POD, big)))


@pytest.mark.parametrize(
    "changes",
    [
        {"config": replace(CONFIG, mode=Mode.OBSERVE)},
        {"config": replace(CONFIG, surge=SurgeConfig())},
        {"nodes": (node("m"), node("n"))},
    ],
    ids=["observe", "disabled", "no mark"],
)
def test_no_move_begins_when_moves_are_off(changes: Mapping[str, Any]) -> None:
    assert chosen(**changes) == MovePlan((), ())


DEPLOYMENTS = [deployment(f"d{n}", replicas=1, pods=1, updated=1, available=1) for n in range(6)]


def of_each(*nodes: str) -> list[Pod]:
    """Return a pod of another Deployment on each of these nodes."""
    return [make_pod(f"p{number}", name, of=f"d{number}-1") for number, name in enumerate(nodes)]


def own_moves(count: int, namespace: str = "d") -> dict[str, Any]:
    """Return moves of other Deployments that this leader has begun."""
    uids = [f"uid-{namespace}-{number}" for number in range(count)]
    return {uid: make_move(namespace=namespace, uid=uid, deployment_uid=uid) for uid in uids}


@pytest.mark.parametrize(
    ("limits", "memory", "moves"),
    [
        ({}, NO_MEMORY, 4),
        ({"max_at_once": 3}, NO_MEMORY, 3),
        ({"max_at_once": 3}, MoveMemory(own=own_moves(1, "e")), 2),
        ({"max_per_hour": 3}, MoveMemory(begun_within_hour=2), 1),
        ({"max_per_hour": 3}, MoveMemory(begun_within_hour=9), 0),
    ],
)
def test_moves_keep_limits(limits: Any, memory: MoveMemory, moves: int) -> None:
    config = replace(CONFIG, surge=replace(CONFIG.surge, **limits))
    found = chosen(
        of_each("m", "m", "m", "m"), objects(*DEPLOYMENTS), config=config, memory=memory
    )
    assert len(found.begin) == moves
    assert [blocker.code for blocker in found.waits] == ["surge-turn"] * (4 - moves)


@pytest.mark.parametrize(
    ("memory", "moves"),
    [(NO_MEMORY, 2), (MoveMemory(own=own_moves(1)), 1), (MoveMemory(own=own_moves(1, "e")), 2)],
)
def test_moves_of_a_namespace_are_limited(memory: MoveMemory, moves: int) -> None:
    found = chosen(
        of_each("m", "m", "m", "m"), objects(*DEPLOYMENTS), memory=memory, in_namespace_max=2
    )
    assert len(found.begin) == moves


def forged(namespace: str, count: int, note: Any = NOTE) -> list[Pod]:
    """Return detached pods that nobody's leader has detached."""
    pods = [make_pod(f"forged-{number}", "n", of="forged-1") for number in range(count)]
    return [replace(detached(pod, note), namespace=namespace) for pod in pods]


@pytest.mark.parametrize(
    ("pods", "moves"),
    [
        pytest.param(forged("evil", 20), 2, id="as many as maxAtOnce elsewhere"),
        pytest.param(forged("d", 9), 1, id="plausible in its namespace"),
        pytest.param(forged("d", 20), 0, id="plausible in its namespace, more than allowed"),
        pytest.param(forged("d", 20, None), 2, id="no note"),
        pytest.param(
            forged("d", 20, NOTE._replace(deadline=NOW + 601)), 2, id="deadline too late"
        ),
        pytest.param(
            forged("d", 20, NOTE._replace(begun=NOW + 400, deadline=NOW + 500)), 2, id="in future"
        ),
    ],
)
def test_pods_that_anybody_labeled_count_in_their_own_namespace(
    pods: list[Pod], moves: int
) -> None:
    found = chosen([*of_each("m", "m"), *pods], objects(*DEPLOYMENTS))
    assert len(found.begin) == moves


def test_one_move_at_once_begins_in_namespace_with_quota() -> None:
    quota = replace(QUOTA, hard={"pods": 100})
    found = chosen(of_each("m", "m"), objects(*DEPLOYMENTS, quotas={"d": (quota,)}))
    assert len(found.begin) == 1


def test_nodes_that_are_empty_soonest_come_first() -> None:
    """Node a has a pod that stays, c fewer pods than b."""
    nodes = [*map(marked_node, "abc"), node("n"), node("o")]
    pods = [*of_each("a", "b", "b", "c"), make_pod("job", "a", of="job", owner_kind="Job")]
    found = chosen(pods, objects(*DEPLOYMENTS), nodes=nodes)
    assert [begun.move.node for begun in found.begin] == ["c", "b", "b", "a"]


def test_namespaces_take_turns() -> None:
    """Otherwise the pods of one tenant would be first for as long as it likes."""
    many = [make_pod(f"p{number}", of=f"d{number}-1") for number in range(6)]
    other = replace(make_pod("q", of="web-1"), namespace="z")
    of = objects(
        *DEPLOYMENTS, deployment(namespace="z", replicas=1, pods=1, updated=1, available=1)
    )
    config = replace(CONFIG, surge=replace(CONFIG.surge, max_at_once=2))
    found = chosen([*many, other], of, config=config)
    assert [begun.move.key for begun in found.begin] == ["d/p0", "z/q"]


def test_tenant_whose_moves_all_fail_takes_few_moves_of_an_hour() -> None:
    """It has 300 Deployments with `progressDeadlineSeconds: 1`, whose new pods never start."""
    of = [
        deployment(
            f"d{n}", replicas=1, pods=1, updated=1, available=1, progress_deadline_seconds=1
        )
        for n in range(300)
    ]
    pods = {f"uid-p{n}": make_pod(f"p{n}", "m", of=f"d{n}-1") for n in range(300)}
    nodes = marked_node("m"), node("n", 40_000, 40_000, pods=400)
    plan = reconcile.plan(Cluster.of(nodes, list(pods.values())), CONFIG)
    failed: list[int] = []
    own: dict[str, Any] = {}
    begun = 0
    for now in range(NOW, NOW + 3600, 60):
        for uid in [uid for uid, move in own.items() if move.note.deadline <= now]:
            note = note_after(own.pop(uid).note, MoveOutcome.TIMED_OUT, Now(now))
            pods[uid] = replace(pods[uid], move=note and note.encode())
            failed.append(now)
        memory = MoveMemory(own=own, begun_within_hour=begun, failures={"d": len(failed)})
        waiting = [pod for uid, pod in pods.items() if uid not in own]
        found = chosen(
            waiting, objects(*of), nodes=nodes, memory=memory, plan=plan, now_seconds=now
        )
        own |= {one.move.uid: one.move for one in found.begin}
        begun += len(found.begin)
    assert 0 < begun <= MOVES_IN_NAMESPACE_MAX + FAILURES_IN_NAMESPACE_MAX


@pytest.mark.parametrize(
    ("max_surge", "replicas", "pods"),
    [("25%", 1, 1), ("25%", 4, 1), ("25%", 5, 2), ("0%", 5, 0), (2, 5, 2), (0, 5, 0), ("x", 5, 0)],
)
def test_max_surge_is_rounded_up(max_surge: int | str, replicas: int, pods: int) -> None:
    assert resolved_surge(max_surge, replicas) == pods


def test_no_move_begins_while_nothing_may_begin() -> None:
    window = Window(start="30 0 * * *", duration_seconds=60)
    found = chosen(config=replace(CONFIG, schedule=(window,)))
    assert not found.begin
    assert [(one.code, one.until) for one in found.waits] == [("schedule", NOW + 1800)]
    found = chosen(config=replace(CONFIG, pause_until_seconds=NOW + 1))
    assert [(one.code, one.until) for one in found.waits] == [("paused", NOW + 1)]
    assert chosen(config=replace(CONFIG, pause_until_seconds=NOW)).begin


def test_no_move_begins_until_refused_write_may_be_tried_again() -> None:
    refused = RefusedWrite("a-policy", "metadata.labels: a", NOW + 60)
    found = chosen(refused_write=refused)
    assert not found.begin
    assert [(one.code, one.until) for one in found.waits] == [("writes-refused", NOW + 60)]
    assert chosen(refused_write=refused, now_seconds=NOW + 60).begin


def test_permit_of_move_ends_with_its_window() -> None:
    window = Window(start="0 0 * * *", duration_seconds=60)
    (move,) = chosen(config=replace(CONFIG, schedule=(window,))).begin
    assert move.permit.until == NOW + 60
