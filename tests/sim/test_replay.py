"""Replay: the load of a history, the simulated variants, and the recommendation."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from core.config.document import parse
from core.config.programs import SCORE_NAMES
from core.config.settings import Config
from core.eligibility.drainability import SAFE_TO_EVICT
from core.model.constraints import (
    ClaimUse,
    DisruptionFacts,
    NodeConstraints,
    Requirement,
    SelectorTerm,
    Toleration,
)
from core.model.errors import ConfigError, InvalidInputError
from core.model.node import Node, Taint
from core.model.pod import Pod
from core.model.resources import Resources
from core.policies.all import POLICIES
from sim import replay, report, trace, variants
from sim.autoscaler import ScaleDown
from sim.cluster import DAEMON_REQUESTS
from sim.history import rows
from sim.history.cluster_history import ClusterHistory, NodeLifetime, PodLifetime
from sim.history.load import load_of
from sim.replay import MetricSummary, Outcome
from sim.scenario import Scenario
from sim.scoring import PACKED
from sim.simulated_load import HOUR_MS, Deployment, SimulatedLoad
from sim.simulator import Simulator, SimulatorOptions
from sim.variants import EMPTY, Variant

GIB = 1024**3
ZONE = "topology.kubernetes.io/zone"
END_MS = 10 * HOUR_MS
EIGHTY_PERCENT = {"thresholds": {"cpu": "80%", "memory": "80%"}}


def node(name: str, *, taints: tuple[Taint, ...] = (), cpu: int = 8000, **labels: str) -> Node:
    named = {key.replace("_", "/"): value for key, value in labels.items()}
    whole = Resources(cpu, 16 * GIB, 0, 58)
    return Node(name=name, allocatable=whole, labels=named, taints=taints)


def stay(of: Node, begins_ms: int = 0, ends_ms: int = END_MS) -> NodeLifetime:
    return NodeLifetime(node=of, begins_ms=begins_ms, ends_ms=ends_ms)


def pod(name: str, owner: str = "Job", cpu: int = 1000, **more: object) -> Pod:
    asked = Resources(cpu, GIB, 0, 1)
    return Pod(namespace="n", name=name, requests=asked, owner_kind=owner, owner_name="o", **more)  # type: ignore[arg-type]


def life(
    of: Pod, begins_ms: int = 0, ends_ms: int | None = None, slack_ms: int = 0
) -> PodLifetime:
    return PodLifetime(
        pod=of, begins_ms=begins_ms, bound_ms=begins_ms, ends_ms=ends_ms, slack_ms=slack_ms
    )


def past(
    *lives: PodLifetime, node_lifetimes: tuple[NodeLifetime, ...] = (stay(node("a")),)
) -> ClusterHistory:
    return ClusterHistory(
        source="s", begins_ms=0, ends_ms=END_MS, node_lifetimes=node_lifetimes, pod_lifetimes=lives
    )


def load(
    *lives: PodLifetime, node_lifetimes: tuple[NodeLifetime, ...] = (stay(node("a")),)
) -> SimulatedLoad:
    return load_of(past(*lives, node_lifetimes=node_lifetimes), Config()).load


class TestPods:
    @pytest.mark.parametrize(
        ("begins", "ends", "at", "runs"),
        [
            (1, 3, 1, 2),
            (-5, 3, 0, 3),
            (2, None, 2, None),
        ],
    )
    def test_job_has_recorded_arrival_and_duration(
        self, begins: int, ends: int | None, at: int, runs: int | None
    ) -> None:
        one = life(pod("p"), begins * HOUR_MS, None if ends is None else ends * HOUR_MS)
        (arrival,) = load(one).arrivals
        assert arrival.at_ms == at * HOUR_MS
        if runs is None:
            assert arrival.at_ms + arrival.life_ms > END_MS
        else:
            assert arrival.life_ms == runs * HOUR_MS

    def test_pods_have_recorded_owners(self) -> None:
        bare = Pod(namespace="n", name="bare", requests=Resources(1000, GIB, 0, 1))
        found = load(life(pod("p")), life(bare), life(pod("s", "StatefulSet"))).arrivals
        owners = {one.name: (one.owner_kind, one.owner_name) for one in found}
        assert owners == {
            "n.p": ("Job", "n.o"),
            "n.bare": ("", ""),
            "n.s": ("StatefulSet", "n.o"),
        }

    def test_pods_outside_of_history_are_ignored(self) -> None:
        found = load(life(pod("a"), -5, -1), life(pod("b"), END_MS, None), life(pod("c")))
        assert [one.name for one in found.arrivals] == ["n.c"]

    def test_pods_with_same_name_get_unique_names(self) -> None:
        found = load(life(pod("a"), 0, 5), life(pod("a"), 10, None))
        assert [one.name for one in found.arrivals] == ["n.a", "n.a.2"]

    def test_pod_that_fits_on_no_empty_node_is_left_out_and_reported(self) -> None:
        found = load_of(past(life(pod("a")), life(pod("b", cpu=8100))), Config())
        assert len(found.load.arrivals) == 1
        assert found.notes == ("pods left out (they fit on no empty node): 1",)

    def test_history_without_usable_pods_is_rejected(self) -> None:
        with pytest.raises(InvalidInputError) as fault:
            load(
                life(pod("a")),
                node_lifetimes=(stay(node("a", taints=(Taint("k", "", "NoSchedule"),))),),
            )
        assert str(fault.value) == (
            "s: has no pods to simulate: of 1 pod, none fits on an empty node of any group"
        )

    def test_pods_of_virtual_nodes_are_left_out_and_reported(self) -> None:
        """The simulation has no virtual nodes that could run them."""
        node_lifetimes = stay(node("a")), stay(replace(node("fargate"), virtual=True))
        lives = (
            life(pod(f"{where}-{owner}", owner, node=where))
            for where in ("a", "fargate")
            for owner in ("Job", "ReplicaSet")
        )
        found = load_of(past(*lives, node_lifetimes=node_lifetimes), Config())
        assert [one.name for one in found.load.arrivals] == ["n.a-Job"]
        assert [one.replicas for one in found.load.deployments] == [((0, 1),)]
        assert found.notes == (
            "nodes left out (control plane, virtual or unreadable): 1",
            "pods left out (they ran on virtual nodes): 2",
        )

    def test_constraints_on_node_name_are_dropped_and_reported(self) -> None:
        term = SelectorTerm((), (Requirement("metadata.name", "In", ("a",)),))
        asks = pod("p", node_constraints=NodeConstraints(affinity=(term,)))
        by_label = pod(
            "q", node_constraints=NodeConstraints((("kubernetes.io/hostname", "a"), ("pool", "x")))
        )
        node_lifetimes = (stay(node("a", pool="x")),)
        found = load_of(past(life(asks), life(by_label), node_lifetimes=node_lifetimes), Config())
        assert {one.node_constraints for one in found.load.arrivals} == {
            NodeConstraints(),
            NodeConstraints((("pool", "x"),)),
        }
        assert found.notes[0].startswith("pods that select a node by name (")
        assert found.notes[0].endswith(": 2")

    def test_facts_against_eviction_are_preserved(self) -> None:
        note = (SAFE_TO_EVICT, "false")
        claim = ClaimUse("data")
        disruption_facts = DisruptionFacts(
            notes=(note,), local_volumes=("cache",), claims=(claim,), started_seconds=9
        )
        found = load(
            life(pod("p", disruption_facts=disruption_facts)),
            life(pod("q", disruption_facts=DisruptionFacts(claims=(claim,)))),
            life(pod("r", "ReplicaSet", disruption_facts=disruption_facts)),
            life(pod("s", "ReplicaSet")),
        )
        played_as = DisruptionFacts(notes=(note,), local_volumes=("cache",))
        assert [one.disruption_facts for one in found.arrivals] == [played_as, None]
        assert [one.disruption_facts for one in found.deployments] == [played_as, None]
        world = Simulator(found, ScaleDown.NEVER, None, 1)
        world.run()
        pods = [one for one in world.state.pods.values() if not one.daemon]
        assert Counter(one.disruption_facts == played_as for one in pods) == {True: 2, False: 2}

    @pytest.mark.parametrize("name", ["nvidia.com/gpu", "nvidia_com_gpu", "amd.com/gpu"])
    def test_gpu_resource_name_is_preserved(self, name: str) -> None:
        whole = Resources(8000, 16 * GIB, 0, 58, ((name, 2),))
        asked = Resources(1000, GIB, 0, 1, ((name, 1),))
        found = load(
            life(Pod(namespace="n", name="p", requests=asked)),
            node_lifetimes=(stay(Node(name="a", allocatable=whole)),),
        )
        assert found.nodes[0].extended == ((name, 2),)
        assert found.arrivals[0].requests.extended == ((name, 1),)


class TestReplicaSets:
    def of(self, *lives: PodLifetime) -> Deployment:
        (found,) = load(*lives).deployments
        return found

    def test_scaling_of_replicaset_becomes_replica_counts(self) -> None:
        web = [pod(f"w{number}", "ReplicaSet") for number in range(3)]
        found = self.of(
            life(web[0], -5),
            life(web[1], 2 * HOUR_MS, 7 * HOUR_MS),
            life(web[2], 2 * HOUR_MS, 9 * HOUR_MS),
        )
        assert found.replicas == (
            (0, 1), (2 * HOUR_MS, 3), (7 * HOUR_MS, 2), (9 * HOUR_MS, 1)
        )  # fmt: skip
        assert found.restarts == ()

    def test_initial_pods_have_their_age_and_are_placed_largest_first(self) -> None:
        """Of two nodes with 8 cores, each fits one large and one small pod."""
        lives = [
            life(pod(f"{owner}-{n}", owner, cpu), begins_ms=-n * HOUR_MS)
            for owner, cpu in (("Job", 2500), ("ReplicaSet", 5000))
            for n in (1, 2)
        ]
        late = life(pod("late", "ReplicaSet", 5000), begins_ms=9 * HOUR_MS)
        found = load(*lives, late, node_lifetimes=(stay(node("a")), stay(node("b"))))
        (web,) = found.deployments
        assert web.ages_ms == (2 * HOUR_MS, HOUR_MS)
        cut = replace(found, duration_ms=HOUR_MS)
        world = Simulator(cut, ScaleDown.NEVER, None, 1, SimulatorOptions(PACKED))
        assert world.run().pending_ms == 0

    @pytest.mark.parametrize(
        ("gap_ms", "slack_ms", "restarts"),
        [(0, 0, 1), (30_000, 0, 1), (31_000, 0, 0), (600_000, 600_000, 1), (-600_000, 0, 0)],
    )
    def test_pod_that_follows_another_is_restart(
        self, gap_ms: int, slack_ms: int, restarts: int
    ) -> None:
        found = self.of(
            life(pod("a", "ReplicaSet"), 0, HOUR_MS, slack_ms),
            life(pod("b", "ReplicaSet"), HOUR_MS + gap_ms),
        )
        assert len(found.restarts) == restarts
        assert found.replicas[0] == (0, 1)
        assert found.replicas[-1][1] == 1

    @given(
        st.lists(
            st.tuples(
                st.integers(-HOUR_MS, END_MS - 1),
                st.none() | st.integers(1, 12 * HOUR_MS),
                st.integers(0, HOUR_MS),
            ),
            min_size=1,
            max_size=12,
        )
    )
    def test_pods_of_replicaset_are_counted_once(
        self, drawn: list[tuple[int, int | None, int]]
    ) -> None:
        lives = [
            life(pod(f"p{n}", "ReplicaSet"), at, None if runs is None else at + runs, slack)
            for n, (at, runs, slack) in enumerate(drawn)
        ]
        seen = [one for one in lives if one.ends_ms is None or one.ends_ms > 0]
        if not seen:
            with pytest.raises(InvalidInputError, match="of 0 pods, none fits"):
                load(*lives)
            return
        found = self.of(*lives)
        counts = [count for _, count in found.replicas]
        assert counts[0] == sum(one.begins_ms <= 0 for one in seen)
        assert counts[-1] == sum(one.ends_ms is None or one.ends_ms >= END_MS for one in seen)
        ups = sum(max(after - before, 0) for before, after in pairwise(counts))
        assert counts[0] + ups + len(found.restarts) <= len(seen)
        assert [at for at, _ in found.replicas] == sorted({at for at, _ in found.replicas})


class TestNodes:
    def test_nodes_with_same_relevant_fields_are_one_group(self) -> None:
        node_lifetimes = (
            stay(node("a", unique="1", topology_kubernetes=".")),
            stay(node("b", unique="2")),
            stay(node("c", cpu=4000)),
        )
        found = load(life(pod("p")), node_lifetimes=node_lifetimes)
        assert len(found.groups) == 2
        assert Counter(one.cpu_millis for one in found.nodes) == {8200: 2, 4200: 1}

    def test_selected_labels_separate_node_groups(self) -> None:
        asks = pod("p", node_constraints=NodeConstraints((("pool", "x"),)))
        node_lifetimes = (stay(node("a", pool="x")), stay(node("b", pool="y")))
        found = load(life(asks), node_lifetimes=node_lifetimes)
        assert sorted(one.labels["pool"] for one in found.groups.values()) == ["x", "y"]
        assert len(set(found.nodes)) == 2

    def test_declared_features_separate_node_groups(self) -> None:
        asks = pod("p", node_constraints=NodeConstraints(features=("F",)))
        node_lifetimes = (stay(replace(node("a"), features=("F",))), stay(node("b")))
        found = load(life(asks), node_lifetimes=node_lifetimes)
        assert sorted(one.features for one in found.groups.values()) == [(), ("F",)]

    def test_pool_label_of_policy_is_preserved(self) -> None:
        pools = {"web": {"enabled": True, "limit": "60%", "required": 2}}
        counted = {"underutilizedCount": {"poolLabel": "pool", "pools": pools}}
        config = parse({**EMPTY, **counted}, "x")
        node_lifetimes = (
            stay(node("a", pool="web", other="1")),
            stay(node("b", pool="batch", other="1")),
        )
        found = load_of(past(life(pod("p")), node_lifetimes=node_lifetimes), config).load
        labels = [dict(one.labels) for one in found.groups.values()]
        assert labels == [{"pool": "batch"}, {"pool": "web"}]

    def test_opted_out_nodes_are_preserved_and_new_nodes_are_not_opted_out(self) -> None:
        keep, disabled = "kube-ebb.io/keep", "cluster-autoscaler.kubernetes.io/scale-down-disabled"
        ours = {disabled: "true", "kube-ebb.io/protection": "unmarked"}
        notes: list[dict[str, str]] = [{}, {keep: "true"}, {disabled: "true"}, ours]
        node_lifetimes = [
            stay(replace(node(str(n)), annotations=one)) for n, one in enumerate(notes)
        ]
        found = load(life(pod("p")), node_lifetimes=tuple(node_lifetimes))
        kept = Counter(tuple(found.template(one).annotations) for one in found.nodes)
        assert kept == {(): 2, (keep,): 1, (disabled,): 1}
        assert [dict(one.annotations) for one in found.templates] == [{}]
        world = Simulator(found, ScaleDown.EMPTY, None, 1)
        world.run()
        left = [dict(one.node.annotations) for one in world.state.places.values()]
        assert {disabled: "true"} in left

    def test_taints_separate_node_groups(self) -> None:
        taints = [Taint(key, "", effect) for key in ("gpu", "spot") for effect in ("a", "b")]
        node_lifetimes = [stay(node(str(n), taints=(one,))) for n, one in enumerate(taints)]
        ways_there = (node_lifetimes, node_lifetimes[::-1])
        found = [
            load(life(pod("p")), node_lifetimes=tuple(there)).groups.values()
            for there in ways_there
        ]
        assert [[group.taints for group in groups] for groups in found] == 2 * [
            [(one,) for one in taints]
        ]

    def test_transient_taints_are_dropped(self) -> None:
        lasting = Taint("gpu", "", "NoSchedule")
        passing = Taint("node.kubernetes.io/not-ready", "", "NoExecute")
        (group,) = load(
            life(pod("p", node_constraints=NodeConstraints(tolerations=()))),
            node_lifetimes=(stay(node("a", taints=(passing,))),),
        ).groups.values()
        assert group.taints == ()
        one = Node(
            name="a", allocatable=Resources(8000, 16 * GIB, 0, 58), taints=(lasting, passing)
        )
        bears = pod(
            "p",
            node_constraints=NodeConstraints(tolerations=(Toleration("gpu", "Exists", "", ""),)),
        )
        found = load_of(past(life(bears), life(pod("q")), node_lifetimes=(stay(one),)), Config())
        assert [group.taints for group in found.load.groups.values()] == [(lasting,)]
        assert [one.name for one in found.load.arrivals] == ["n.p"]

    def test_group_of_later_node_has_no_initial_node(self) -> None:
        found = load(
            life(pod("p")), node_lifetimes=(stay(node("a")), stay(node("b", cpu=4000), 5))
        )
        assert (len(found.nodes), len(found.groups)) == (1, 2)

    def test_requests_of_daemonsets_are_subtracted_from_capacity(self) -> None:
        daemon = pod("d", "DaemonSet", cpu=500, node="a", daemon=True)
        (shape,) = load(life(daemon), life(pod("p"))).nodes
        assert shape.cpu_millis - DAEMON_REQUESTS.cpu_millis == 7500
        assert shape.pods - DAEMON_REQUESTS.pods == 57

    def test_recorded_totals_count_only_time_of_history(self) -> None:
        control = {"node-role.kubernetes.io/control-plane": ""}
        master = Node(name="m", allocatable=Resources(4000, 0, 0, 9), labels=control)
        node_lifetimes = (stay(node("a"), -HOUR_MS), stay(node("b"), 0, HOUR_MS), stay(master))
        found = load_of(past(life(pod("p")), node_lifetimes=node_lifetimes), Config()).recorded
        assert found.node_ms == 11 * HOUR_MS
        agent = DAEMON_REQUESTS  # the simulation adds it to each node for DaemonSets
        assert found.capacity_millis_ms == 11 * (8000 + agent.cpu_millis) * HOUR_MS
        memory = Fraction(16 * GIB + agent.memory_bytes, GIB)
        cores = 8 + Fraction(agent.cpu_millis, 1000)
        assert found.cost_ms == 11 * HOUR_MS * (cores + Fraction(13, 100) * memory)


class TestRows:
    def write(self, tmp_path: Path, pods: str) -> str:
        head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n"
        (tmp_path / trace.PODS_FILE).write_text(head + pods)
        (tmp_path / trace.NODES_FILE).write_text(
            "sn,cpu_milli,memory_mib,gpu,model\nn,8000,16384,0,\n"
        )
        return str(tmp_path)

    def test_rows_of_trace_become_arrivals(self, tmp_path: Path) -> None:
        found = rows.read(self.write(tmp_path, "a,1000,1024,0,0,100,400\nb,1000,1,0,0,400,700\n"))
        whole = load_of(found, Config()).load
        assert [(one.at_ms, one.life_ms) for one in whole.arrivals] == [
            (0, 300_000),
            (300_000, 300_000),
        ]

    def test_trace_is_rejected_when_too_long(self, tmp_path: Path) -> None:
        folder = self.write(tmp_path, f"a,1,1,0,0,0,{61 * 86400}\n")
        with pytest.raises(InvalidInputError, match="covers 61 days; allowed: up to 60"):
            rows.read(folder)


class TestPart:
    @given(st.integers(1, 7))
    def test_parts_of_all_seeds_add_up_to_whole(self, every: int) -> None:
        whole = load(
            *(life(pod(f"p{n}")) for n in range(23)),
            node_lifetimes=tuple(stay(node(f"n{n}")) for n in range(9)),
        )
        parts = [replay.part(whole, every=every, seed=seed) for seed in range(1, every + 1)]
        names = sorted(one.name for cut in parts for one in cut.arrivals)
        assert names == sorted(one.name for one in whole.arrivals)
        assert sum(len(cut.nodes) for cut in parts) == len(whole.nodes)

    @given(
        st.integers(2, 7),
        st.lists(
            st.tuples(
                st.lists(st.integers(0, 40), min_size=1, max_size=4),
                st.lists(st.integers(1, 5), max_size=8),
            ),
            min_size=1,
            max_size=5,
        ),
    )
    def test_parts_divide_each_replicaset_evenly(
        self, every: int, drawn: list[tuple[list[int], list[int]]]
    ) -> None:
        whole = self.sets(
            Deployment(
                f"s{n}",
                Resources(1),
                tuple(enumerate(counts)),
                restarts=tuple(sorted(restarts)),
                ages_ms=tuple(range(counts[0], 0, -1)),
            )
            for n, (counts, restarts) in enumerate(drawn)
        )
        parts = [replay.part(whole, every=every, seed=seed) for seed in range(every)]
        for one in whole.deployments:
            shares = [each for cut in parts for each in cut.deployments if each.name == one.name]
            for at_ms, count in one.replicas:
                counts = [there_at(each, at_ms) for each in shares] or [0]
                assert sum(counts) == count
                assert max(counts) <= -(-count // every)
            ages = sorted((age for each in shares for age in each.ages_ms), reverse=True)
            assert ages == list(one.ages_ms)
            restarts = sorted(at_ms for each in shares for at_ms in each.restarts)
            assert restarts == [at_ms for at_ms in one.restarts if there_at(one, at_ms)]
            assert all(there_at(each, at_ms) for each in shares for at_ms in each.restarts)

    def test_part_has_its_share_of_pods_when_sizes_are_skewed(self) -> None:
        """Sizes are skewed: four ReplicaSets have nine of ten pods."""
        sizes = [400, 200, 100, 50, *[3] * 28]
        whole = self.sets(
            Deployment(f"s{n}", Resources(1), ((0, size),)) for n, size in enumerate(sizes)
        )
        for seed in range(16):
            cut = replay.part(whole, every=16, seed=seed)
            assert abs(sum(one.replicas[0][1] for one in cut.deployments) - sum(sizes) / 16) < 3

    @staticmethod
    def sets(deployments: Iterable[Deployment]) -> SimulatedLoad:
        return replace(load(life(pod("p"))), arrivals=(), deployments=tuple(deployments))


def there_at(of: Deployment, at_ms: int) -> int:
    return [count for begins_ms, count in of.replicas if begins_ms <= at_ms][-1]


class TestVariants:
    def test_columns_contain_every_policy_and_scale_down_mode_once(self) -> None:
        found = list(variants.columns(EMPTY, "built in"))
        assert len({one.name for one in found}) == len(found)
        policies = {one.config.policy for one in found}
        assert policies == POLICIES.keys() - {"UnderutilizedCount"}, "it has no pool"
        assert {ScaleDown.NEVER, ScaleDown.UTILIZATION, ScaleDown.EMPTY} == {
            one.scenario.scale_down for one in found if one.scenario.ebb is None
        }

    def test_all_variants_have_same_prices(self) -> None:
        prices = [{"nodeSelector": {"a": "b"}, "price": "0.25"}]
        document = {**EMPTY, "prices": prices}
        swept = variants.points({"headroom": ["0"]}, document, "x")
        found = [*variants.columns(document, "x"), *swept]
        assert {one.config.prices for one in found} == {parse(document, "x").prices}

    @pytest.mark.parametrize("enabled", [True, False])
    def test_underutilizedcount_is_simulated_only_when_pool_is_enabled(
        self, enabled: bool
    ) -> None:
        pool = {"enabled": enabled, "limit": "50%", "required": 2}
        document = {**EMPTY, "underutilizedCount": {"pools": {"a": pool}}}
        found = variants.columns(document, "x")
        policies = {one.config.policy for one in found}
        assert ("UnderutilizedCount" in policies) is enabled

    def test_sweep_contains_every_combination(self) -> None:
        found = variants.points(
            variants.parse_sweep(["thresholds=70%,90%", "headroom=0,1,2"]), EMPTY, "built in"
        )
        assert len(found) == 6
        last = found[-1]
        assert last.document is not None
        assert last.document["thresholds"] == {"cpu": "90%", "memory": "90%"}
        assert last.config.thresholds.cpu == Fraction(9, 10)
        assert last.config.budgets.headroom == 2
        assert last.settings == (("thresholds", "90%"), ("headroom", "2"))

    def test_every_score_is_simulated(self) -> None:
        document = {**EMPTY, "extender": {"score": "marks"}}
        columns = list(variants.columns(document, "x"))
        points = variants.points({"extender.score": SCORE_NAMES}, document, "x")
        for found in (columns, points):
            extenders = [one.config.extender for one in found if one.scenario.ebb is not None]
            assert {one.score for one in extenders} == {*SCORE_NAMES}

    def test_hysteresis_is_added_to_swept_thresholds(self) -> None:
        document = {**EMPTY, **EIGHTY_PERCENT, "hysteresis": "2%"}
        found = variants.points(variants.parse_sweep(["thresholds=90%,97%"]), document, "x")
        assert [one.config.hysteresis for one in found] == [Fraction(1, 50)] * 2
        assert [one.config.thresholds.cpu for one in found] == [Fraction(9, 10), Fraction(97, 100)]

    def test_sweep_usual_works_with_example_configuration(self) -> None:
        page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
        document = yaml.safe_load(page.split("```yaml")[2].split("```")[0])
        assert len(variants.points(variants.USUAL, document, "page")) == 12

    @pytest.mark.parametrize(
        ("asked", "values"),
        [
            ("balanceZones=true,false", [True, False]),
            ("headroom=0,2", [0, 2]),
            ("clusterAutoscaler.status=own/010", ["own/010"]),
            ("excessNodes.threshold=0.5,1", [0.5, 1]),
            ("extender.score=marks,pack", ["marks", "pack"]),
        ],
    )
    def test_swept_value_is_parsed_like_yaml(self, asked: str, values: list[object]) -> None:
        found = variants.points(variants.parse_sweep([asked]), EMPTY, "built in")
        for one, value in zip(found, values, strict=True):
            assert one.document is not None
            told: Any = one.document
            for name in asked.partition("=")[0].split("."):
                told = told[name]
            assert (told, type(told)) == (value, type(value))

    @pytest.mark.parametrize(
        ("asked", "problem"),
        [
            ("headroom", "--sweep 'headroom': allowed: a setting's path once, '='"),
            ("=1", "--sweep '=1': allowed"),
            ("headroom=1,,2", "--sweep 'headroom=1,,2': allowed"),
            ("headroom=" + ",".join("123456789012345678901"), "21 values; allowed: up to 20"),
            ("headroom=-1", "built in with headroom -1: headroom: -1; allowed"),
            ("headroom=[1", "--sweep headroom: line 1: "),
            ("headroom=\udcff", "--sweep headroom: not UTF-8 (byte 0)"),
            ("hedroom=1", "; did you mean headroom?"),
            ("headroom.x=1", "headroom: {'x': 1}; allowed"),
            ("extender.score=best", "extender.score: 'best'; allowed"),
            ("eviction=enabled", "--sweep eviction: evictions by Ebb are not simulated"),
            (
                "eviction.maxAtOnce=1,2",
                "--sweep eviction.maxAtOnce: evictions by Ebb are not simulated",
            ),
            ("controller.interval=1m", "--sweep controller.interval: not simulated; --interval"),
            ("controller={interval: 5s}", "--sweep controller: not simulated; --interval sets"),
            ("webhook.certDir=a,b", "--sweep webhook.certDir: no setting of the webhook"),
            ("extender.certDir=a", "--sweep extender.certDir: of the section `extender`, only"),
            ("extender={score: marks}", "--sweep extender: of the section `extender`, only"),
            ("mode=observe,enforce", "--sweep mode: the simulated mode is always enforce"),
        ],
    )
    def test_invalid_sweep_is_rejected(self, asked: str, problem: str) -> None:
        with pytest.raises((InvalidInputError, ConfigError)) as caught:
            variants.points(variants.parse_sweep([asked]), EMPTY, "built in")
        assert problem in str(caught.value)

    def test_too_many_combinations_are_rejected(self) -> None:
        twenty = ",".join(map(str, range(20)))
        asked = variants.parse_sweep([f"headroom={twenty}", f"minNodes={twenty}"])
        with pytest.raises(InvalidInputError, match="400 combinations; allowed: up to 200"):
            variants.points(asked, EMPTY, "built in")


def outcome(
    name: str, cost: int, wait: int, *, ebb: bool = True, evicted: int = 0, blamed: int = 0
) -> Outcome:
    scenario = Scenario(name, ScaleDown.EMPTY)
    told = {
        report.COST: cost,
        report.PENDING: wait,
        report.EVICTED: evicted,
        report.BY_MARK: blamed,
    }
    figures = {row: MetricSummary.of([Fraction(value)]) for row, value in told.items()}
    return Outcome(Variant(name, scenario, Config(), EMPTY if ebb else None), figures)


RIVAL = outcome(replay.COMPARED_TO, 10, 10, ebb=False)


class TestChoice:
    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=20))
    def test_pareto_front_contains_undominated_outcomes(
        self, drawn: list[tuple[int, int]]
    ) -> None:
        outcomes = [outcome(f"{n:02}", *one) for n, one in enumerate(drawn)]
        best = {one.variant.name for one in replay.pareto_front(outcomes)}
        assert best == {
            f"{n:02}"
            for n, one in enumerate(drawn)
            if not any(
                other != one and other[0] <= one[0] and other[1] <= one[1] for other in drawn
            )
        }

    @pytest.mark.parametrize(
        ("outcomes", "chosen"),
        [
            ([outcome("cheap", 5, 11), outcome("dear", 9, 10), RIVAL], "dear"),
            ([outcome("a", 9, 9), outcome("b", 8, 10), RIVAL], "b"),
            ([outcome("b", 8, 10), outcome("a", 8, 10), RIVAL], "a"),
            ([outcome("x", 5, 30), outcome("y", 9, 20), RIVAL], "y"),
            ([outcome("evicts", 1, 1, evicted=1), outcome("b", 8, 10), RIVAL], "b"),
            ([outcome("blamed", 1, 1, blamed=1), outcome("b", 8, 10), RIVAL], "b"),
            ([outcome("evicts", 1, 1, evicted=1), RIVAL], None),
            ([outcome("other", 1, 1, ebb=False), RIVAL], None),
        ],
    )
    def test_choice_is_cheapest_variant_without_longer_waits(
        self, outcomes: list[Outcome], chosen: str | None
    ) -> None:
        found = replay.choose(outcomes)
        assert (found.outcome.variant.name if found else None) == chosen
