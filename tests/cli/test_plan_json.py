"""`ebb plan -o json`: the fields that scripts rely on."""

import os
from pathlib import Path

import orjson
import pytest

from cli.__main__ import main
from tests.support.plan_cli import ITEMS, A, B, C, D, dump, plan_of, pod, without_source

pytestmark = pytest.mark.mutate


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "dump.json"
    file.write_bytes(dump(*ITEMS))
    return str(file)


@pytest.fixture
def bold(tmp_path: Path) -> str:
    """Return a configuration without headroom, with thresholds of 100%."""
    file = tmp_path / "bold.yaml"
    file.write_text(
        "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\nheadroom: 0\n"
        "thresholds: {cpu: 100%, memory: 100%}\n"
    )
    return str(file)


class TestPolicy:
    def test_policy_option_selects_policy_with_its_defaults(
        self, path: str, bold: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for given in ((), ("--config", bold)):
            plan = plan_of(capsys, "--from-file", path, "--policy", "ExcessNodes", *given)
            assert (plan["policy"], plan["thresholds"], plan["reaches"]) == (
                "ExcessNodes",
                None,
                [],
            )
            assert [one["name"] for one in plan["metrics"]] == ["ebb_excess_nodes"]
            codes = {reason["code"] for kept in plan["unremovable"] for reason in kept["reasons"]}
            assert "no-excess" in codes
            assert "threshold" not in codes

    def test_policy_option_reads_configuration_from_pipe(
        self, path: str, bold: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A pipe can be read once; a shell passes one for `--config <(command)`."""
        given = ("--from-file", path, "--policy", "ExcessNodes", "--config")
        plain = plan_of(capsys, *given, bold)
        pipe, end = os.pipe()
        os.write(end, Path(bold).read_bytes())
        os.close(end)
        piped = plan_of(capsys, *given, f"/dev/fd/{pipe}")
        os.close(pipe)
        assert without_source(piped) == without_source(plain)

    def test_policy_option_accepts_configured_policy(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        named = plan_of(capsys, "--from-file", path, "--policy", "ClusterThreshold")
        assert named == plan_of(capsys, "--from-file", path)

    def test_table_shows_metrics_of_policy_by_pool(
        self, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The nodes of the dump have no label, so they are in the pool with the empty name."""
        file = tmp_path / "counted.yaml"
        file.write_text(
            "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\n"
            "policy: UnderutilizedCount\nunderutilizedCount:\n  pools:\n"
            "    '': {enabled: true, limit: 37.5%, required: 3}\n    web: {}\n"
        )
        assert main(["plan", "--from-file", path, "--config", str(file)]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ['""', "4", "0", "1", "2", "0.25", "0.07812"] in lines
        assert ["web", "0", "0", "0", "0", "0", "0"] in lines


class TestJson:
    def test_plan_has_documented_fields(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = plan_of(capsys, "--from-file", path)
        assert plan["apiVersion"] == "kube-ebb.io/v1alpha1"
        assert plan["kind"] == "Plan"
        assert plan["policy"] == "ClusterThreshold"
        assert plan["mode"] == "offline"
        assert plan["before"] == {
            "nodes": 3,
            # The cordoned node provides no capacity, and its pod must be placed elsewhere.
            "capacity": {"cpu": 12000, "memory": 48 * 2**30},
            "requests": {"cpu": 4000, "memory": 5 * 2**30},
            "usable": {"cpu": 12000, "memory": 21 * 2**30},
            "utilization": {"cpu": 0.333333, "memory": 0.104167},
            "usableUtilization": {"cpu": 0.333333, "memory": 0.238095},
        }
        placements = [{"pod": "shop/c1", "node": A}]
        bare = {
            "code": "pod-bare",
            "message": "has no controller that would recreate it",
            "pod": "shop/c1",
        }
        by = {"moves": None, "completion": 0, "turnover": 0, "staying": [bare]}
        unknown = dict.fromkeys(("price", "ageSeconds", "pool", "zone", "instanceType"))
        gone = {"node": C, "order": 1, "pods": 1, "requested": 0.125, **unknown,
                "placements": placements, "emptiedBy": by}  # fmt: skip
        assert plan["removals"] == [gone]
        assert plan["after"]["nodes"] == 2
        assert plan["after"]["requests"] == plan["before"]["requests"]
        assert [entry["node"] for entry in plan["unremovable"]] == [A, B, D]

    def test_usable_capacity_equals_capacity_when_usability_is_none(
        self, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = tmp_path / "ebb.yaml"
        config.write_text(
            "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\nusableCapacity: all\n"
        )
        plan = plan_of(capsys, "--from-file", path, "--config", str(config))
        assert plan["usableCapacity"] is None
        usable = {"cpu": 12000, "memory": 48 * 2**30}
        assert plan["before"]["usable"] == usable
        share = plan["before"]["usableUtilization"]
        assert share == {"cpu": round(4 / 12, 6), "memory": round(5 / 48, 6)}

    def test_plan_has_derived_usability(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        usability = plan_of(capsys, "--from-file", path)["usableCapacity"]
        assert usability["derived"] is True
        assert usability["minCPU"] == 450

    def test_every_node_is_removable_or_has_reason(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = plan_of(capsys, "--from-file", path)
        going = [removal["node"] for removal in plan["removals"]]
        kept = {entry["node"]: entry["reasons"] for entry in plan["unremovable"]}
        assert sorted([*going, *kept]) == [A, B, C, D]
        assert going
        assert all(kept.values())
        assert {reason["code"] for reason in kept[D]} >= {"cordoned", "pod-volumes"}
        (about_pod,) = (one for one in kept[D] if one["code"] == "pod-volumes")
        assert about_pod["pod"] == "shop/d1"
        assert all(set(one) <= {"code", "message", "pod"} for one in kept[D])

    def test_moved_pod_is_placed_again_when_its_new_node_is_removed(
        self, path: str, bold: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """After all placements, every pod is on a node that the plan keeps."""
        plan = plan_of(capsys, "--from-file", path, "--config", bold)
        assert len(plan["removals"]) == 2
        where = {"shop/a1": A, "shop/b1": B, "shop/b2": B, "shop/c1": C, "shop/d1": D}
        for removal in plan["removals"]:
            on_it = {name for name, at in where.items() if at == removal["node"]}
            assert {one["pod"] for one in removal["placements"]} == on_it
            where.update({one["pod"]: one["node"] for one in removal["placements"]})
        assert set(where.values()) <= {entry["node"] for entry in plan["unremovable"]}

    def test_plan_does_not_depend_on_order_of_input(
        self, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        other = tmp_path / "other.json"
        other.write_bytes(dump(*reversed(ITEMS)))
        first, second = (
            without_source(plan_of(capsys, "--from-file", file)) for file in (path, str(other))
        )
        assert orjson.dumps(first) == orjson.dumps(second), "the order of fields is the same too"

    def test_options_limit_removals_and_thresholds(
        self, path: str, bold: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert not plan_of(capsys, "--from-file", path, "--max-removals", "0")["removals"]
        full = ("--config", bold)
        assert len(plan_of(capsys, "--from-file", path, *full)["removals"]) == 2
        one = plan_of(capsys, "--from-file", path, "--max-removals", "1", *full)
        assert len(one["removals"]) == 1
        assert "limit" in {r["code"] for entry in one["unremovable"] for r in entry["reasons"]}
        strict = plan_of(capsys, "--from-file", path, "--max-memory", "0.5%")
        assert not strict["removals"]
        assert strict["thresholds"] == {"cpu": 0.95, "memory": 0.005}

    def test_pending_pod_is_placed_first(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "dump.json"
        file.write_bytes(dump(*ITEMS, pod("waits", None)))
        (pending,) = plan_of(capsys, "--from-file", str(file))["pending"]
        assert pending["pod"] == "shop/waits"
