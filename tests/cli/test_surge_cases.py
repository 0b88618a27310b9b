"""Small clusters of which it is known what surge moves can and cannot do, each with siblings."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from cli.__main__ import main
from core.marks.mark import Details, encode_details
from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL
from tests.support.plan_cli import Json, dump, node, plan_of, pod

DETAILS = Details(since=1, deadline=2**40, owner="me", policy="p", reason="r")
SETTINGS = """\
apiVersion: kube-ebb.io/v1alpha1
kind: EbbConfiguration
headroom: 0
thresholds: {cpu: 100%, memory: 100%}
surge: {mode: enabled}
"""


def deployment(replicas: int, **spec: Any) -> list[Json]:
    """Return the Deployment web with its ReplicaSet web-1; all its pods are available."""
    meta = {"namespace": "shop", "annotations": {"deployment.kubernetes.io/revision": "1"}}
    owner = {"kind": "Deployment", "name": "web", "uid": "d-web", "controller": True}
    status = {
        "observedGeneration": 1,
        **dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), replicas),
    }
    return [
        {
            "kind": "Deployment",
            "metadata": {**meta, "name": "web", "uid": "d-web", "generation": 1},
            "spec": {"replicas": replicas, **spec},
            "status": status,
        },
        {
            "kind": "ReplicaSet",
            "metadata": {**meta, "name": "web-1", "ownerReferences": [owner]},
            "spec": {"replicas": replicas},
        },
    ]


def web(name: str, on: str, cpu: str = "500m", **spec: Any) -> Json:
    """Return a Ready pod of the Deployment web."""
    made = pod(name, on, cpu, **spec)
    owner = {"kind": "ReplicaSet", "name": "web-1", "uid": "r", "controller": True}
    made["metadata"] |= {
        "labels": {"app": "web", "pod-template-hash": "1"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [owner],
    }
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return made


def bare(name: str, on: str, cpu: str = "500m") -> Json:
    """Return a pod that nothing replaces, so that its node is removed last."""
    return pod(name, on, cpu)


def given(folder: Path, *items: Json) -> tuple[str, ...]:
    """Write a dump and a configuration with surge moves; return the arguments that read them."""
    dumped, config = folder / "dump.json", folder / "ebb.yaml"
    dumped.write_bytes(dump(*items))
    config.write_text(SETTINGS)
    return "--from-file", str(dumped), "--config", str(config)


def emptied_by(capsys: pytest.CaptureFixture[str], name: str, *arguments: str) -> Json:
    """Return what empties the node, which the plan removes."""
    found = {one["node"]: one["emptiedBy"] for one in plan_of(capsys, *arguments)["removals"]}
    by: Json = found[name]
    return by


def moves_and_turnover(by: Json) -> tuple[int, int]:
    return by["moves"], by["turnover"]


class TestMinReadySeconds:
    """A move waits for minReadySeconds, and ends after at most ten minutes."""

    @pytest.mark.parametrize(
        ("spec", "moves"),
        [
            ({"minReadySeconds": 900, "progressDeadlineSeconds": 1800}, 0),
            ({"minReadySeconds": 600, "progressDeadlineSeconds": 1800}, 0),
            ({"minReadySeconds": 599, "progressDeadlineSeconds": 1800}, 1),
            ({"minReadySeconds": 100, "progressDeadlineSeconds": 101}, 1),
            ({"minReadySeconds": 101, "progressDeadlineSeconds": 101}, 0),
            ({"minReadySeconds": 20, "progressDeadlineSeconds": 21}, 1),
            ({}, 1),
        ],
    )
    def test_pod_is_moved_when_it_can_become_available_in_time(
        self, spec: Json, moves: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        items = [*map(node, ("n1", "n2")), web("w0", "n1"), web("w1", "n2"), bare("b", "n2")]
        arguments = given(tmp_path, *items, *deployment(2, **spec))
        by = emptied_by(capsys, "n1", *arguments, "--max-removals", "1")
        assert moves_and_turnover(by) == (moves, 1 - moves)

    @pytest.mark.parametrize(("seconds", "moves"), [(14, 1), (15, 0)])
    def test_pod_is_moved_when_no_hpa_counts_the_new_one(
        self, seconds: int, moves: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        items = [*map(node, ("n1", "n2")), web("w0", "n1"), web("w1", "n2"), bare("b", "n2")]
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        hpa = {
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "namespace": "shop"},
            "spec": {"scaleTargetRef": target, "maxReplicas": 9},
        }
        arguments = given(tmp_path, *items, hpa, *deployment(2, minReadySeconds=seconds))
        by = emptied_by(capsys, "n1", *arguments, "--max-removals", "1")
        assert moves_and_turnover(by) == (moves, 1 - moves)


ZONE = "topology.kubernetes.io/zone"


def in_zone(name: str) -> Json:
    """Return a node in the zone that the first letter of its name is."""
    made = node(name)
    made["metadata"]["labels"] = {ZONE: name[0], "kubernetes.io/hostname": name}
    return made


def anti_affinity(key: str = ZONE, **more: Any) -> Json:
    """Return the required anti-affinity to other pods of the Deployment web."""
    term = {"labelSelector": {"matchLabels": {"app": "web"}, **more}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def near(key: str = ZONE) -> Json:
    terms = anti_affinity(key)["podAntiAffinity"]
    return {"podAffinity": terms}


def spread(**more: Any) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }


class TestBeside:
    """Node a1 goes; the new pod needs a place while the old one still runs there."""

    def by(
        self,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        nodes: str,
        on: str,
        full: str = "",
        **spec: Any,
    ) -> tuple[int, int]:
        """Return the numbers of moves and of turnover on node a1."""
        names, places = nodes.split(), on.split()
        items = [*map(in_zone, names)]
        items += [web(f"w{n}", place, **spec) for n, place in enumerate(places)]
        # The others cannot leave their nodes, so that a1 goes first.
        items += [
            pod(f"o-{name}", name, "3600m" if name in full.split() else "1500m",
                nodeSelector={"kubernetes.io/hostname": name})
            for name in names
            if name != "a1"
        ]  # fmt: skip
        arguments = given(folder, *items, *deployment(len(places)))
        found = emptied_by(capsys, "a1", *arguments, "--max-removals", "1")
        return moves_and_turnover(found)

    @pytest.mark.parametrize(
        ("nodes", "affinity", "expected"),
        [
            ("a1 a2 b1 c1", anti_affinity(), (0, 1)),
            ("a1 a2 b1 c1 d1", anti_affinity(), (1, 0)),
            ("a1 a2 b1 c1", anti_affinity("kubernetes.io/hostname"), (1, 0)),
            ("a1 a2 b1 c1", {}, (1, 0)),
        ],
        ids=["a pod in each zone", "a free zone", "a pod on each node", "no anti-affinity"],
    )
    def test_pod_is_moved_when_anti_affinity_admits_both(
        self,
        nodes: str,
        affinity: Json,
        expected: tuple[int, int],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        assert self.by(tmp_path, capsys, nodes, "a1 b1 c1", affinity=affinity) == expected

    def test_hash_in_anti_affinity_does_not_help(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The anti-affinity of the old pod, which lost its hash, still selects the new pod."""
        one = {"key": "pod-template-hash", "operator": "In", "values": ["1"]}
        affinity = anti_affinity(matchExpressions=[one])
        found = self.by(tmp_path, capsys, "a1 a2 b1 c1", "a1 b1 c1", affinity=affinity)
        assert found == (0, 1)

    @pytest.mark.parametrize(
        ("constraint", "full", "expected"),
        [
            (spread(), "b1 c1", (0, 1)),
            (spread(), "b1", (1, 0)),
            (spread(maxSkew=2), "b1 c1", (1, 0)),
            (spread(whenUnsatisfiable="ScheduleAnyway"), "b1 c1", (1, 0)),
            (spread(matchLabelKeys=["pod-template-hash"]), "b1 c1", (1, 0)),
            (spread(matchLabelKeys=["other"]), "b1 c1", (0, 1)),
        ],
        ids=["full zones", "room in zone c", "more skew", "soft", "hash", "another label"],
    )
    def test_pod_is_moved_when_topology_spread_admits_both(
        self,
        constraint: Json,
        full: str,
        expected: tuple[int, int],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        spec = {"topologySpreadConstraints": [constraint]}
        found = self.by(tmp_path, capsys, "a1 a2 b1 c1", "a1 a2 b1 c1", full, **spec)
        assert found == expected

    @pytest.mark.parametrize(
        ("full", "expected"), [("a2", (0, 1)), ("", (1, 0))], ids=["full zone", "room in zone"]
    )
    def test_pod_is_moved_when_its_own_zone_has_room_and_affinity_needs_it(
        self,
        full: str,
        expected: tuple[int, int],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        found = self.by(tmp_path, capsys, "a1 a2 b1", "a1", full, affinity=near())
        assert found == expected

    def test_reason_is_explained(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        nodes = [marked("a1"), *map(in_zone, ("a2", "b1"))]
        nodes[0]["metadata"]["labels"] |= in_zone("a1")["metadata"]["labels"]
        pods = [web(f"w-{on}", on, affinity=anti_affinity()) for on in ("a1", "b1")]
        arguments = given(tmp_path, *nodes, *pods, *deployment(2))
        assert main(["explain", "node", "a1", "-o", "json", *arguments]) == 0
        told = orjson.loads(capsys.readouterr().out)
        assert told["surgeMoves"] == 0
        assert [one["code"] for one in told["notMoved"]] == ["surge-beside"]


def marked(name: str) -> Json:
    """Return a marked node whose heartbeat, a day after all pods were created, is the time now."""
    made = node(name)
    made["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-02T00:00:00Z"
    annotations = {DETAILS_ANNOTATION: encode_details(DETAILS)}
    made["metadata"] |= {"labels": {MARK_LABEL: "PreferNoSchedule"}, "annotations": annotations}
    return made


def quota(hard: Json, used: Json, **spec: Any) -> Json:
    return {
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "shop"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used},
    }


def priority(operator: str, *values: str) -> Json:
    one = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    return {"scopeSelector": {"matchExpressions": [one]}}


LIMITED = {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}}}


class TestQuota:
    """A quota counts the pods in all its scopes, and limits what they may use together."""

    def answer(
        self,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        found: Json,
        **spec: Any,
    ) -> tuple[int, list[str]]:
        """Return how many pods of node n1 would be moved, and why others would not."""
        items = [marked("n1"), node("n2"), web("w0", "n1", **spec), web("w1", "n2", **spec)]
        arguments = given(folder, *items, found, *deployment(2))
        assert main(["explain", "node", "n1", "-o", "json", *arguments]) == 0
        told = orjson.loads(capsys.readouterr().out)
        return told["surgeMoves"], [one["code"] for one in told["notMoved"]]

    @pytest.mark.parametrize(
        ("scopes", "spec", "counted"),
        [
            ({}, {}, True),
            (priority("In", "high"), {}, False),
            (priority("In", "high"), {"priorityClassName": "high"}, True),
            (priority("NotIn", "high"), {}, True),
            (priority("NotIn", "high"), {"priorityClassName": "high"}, False),
            (priority("Exists"), {"priorityClassName": "low"}, True),
            ({"scopes": ["PriorityClass"]}, {}, False),
            (priority("DoesNotExist"), {}, True),
            ({"scopes": ["BestEffort"]}, {}, False),
            ({"scopes": ["BestEffort"]}, {"containers": [{"name": "main"}]}, True),
            ({"scopes": ["NotBestEffort"]}, {}, True),
            ({"scopes": ["Terminating"]}, {}, False),
            ({"scopes": ["NotTerminating"]}, {}, True),
            ({"scopes": ["NotTerminating", "BestEffort"]}, {}, False),
            ({"scopes": ["CrossNamespacePodAffinity"]}, {}, False),
            ({"scopes": ["VolumeAttributesClass"]}, {}, False),
        ],
    )
    def test_pod_is_moved_when_no_full_quota_counts_it(
        self,
        scopes: Json,
        spec: Json,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        *,
        counted: bool,
    ) -> None:
        full = quota({"pods": "0"}, {"pods": "0"}, **scopes)
        expected = (0, ["surge-quota"]) if counted else (1, [])
        assert self.answer(tmp_path, capsys, full, **spec) == expected

    @pytest.mark.parametrize(
        ("hard", "used", "containers", "refused"),
        [
            ({"limits.cpu": "9"}, {"limits.cpu": "9"}, None, True),
            ({"limits.cpu": "9"}, {"limits.cpu": "0"}, None, True),
            ({"limits.cpu": "9"}, {"limits.cpu": "9"}, [LIMITED], True),
            ({"limits.cpu": "9"}, {"limits.cpu": "8"}, [LIMITED], False),
            ({"limits.memory": "3Gi"}, {"limits.memory": "2Gi"}, [LIMITED], False),
            ({"limits.memory": "3Gi"}, {"limits.memory": "2049Mi"}, [LIMITED], True),
            ({"limits.ephemeral-storage": "1"}, {"limits.ephemeral-storage": "1"}, None, False),
            ({"requests.memory": "1Ti"}, {"requests.memory": "0"}, [LIMITED], True),
        ],
    )
    def test_pod_is_moved_when_quota_has_room_for_its_limits(
        self,
        hard: Json,
        used: Json,
        containers: list[Json] | None,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        *,
        refused: bool,
    ) -> None:
        spec = {"containers": containers} if containers else {}
        found = self.answer(tmp_path, capsys, quota(hard, used), **spec)
        assert found == ((0, ["surge-quota"]) if refused else (1, []))
