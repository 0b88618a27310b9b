"""`ebb explain`, run as a command for one node or one pod."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from cli.__main__ import main
from core.config.settings import API_VERSION, KIND
from core.marks.mark import Details, encode_details
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    COST_ANNOTATION,
    COST_OURS_ANNOTATION,
    DETAILS_ANNOTATION,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    RESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from tests.support.plan_cli import (
    ITEMS,
    A,
    B,
    C,
    D,
    Json,
    dump,
    ebb,
    many_reaches,
    node,
    on_terminal,
    plan_of,
    pod,
)

pytestmark = pytest.mark.mutate

SINCE = 1_700_000_000
DETAILS = Details(since=SINCE, deadline=SINCE + 60, owner="me", policy="P", reason="r")
OWNER = {"kind": "ReplicaSet", "name": "web", "controller": True}
SOFT_TAINT = {"key": TAINT_KEY, "value": str(SINCE), "effect": "PreferNoSchedule"}


def marked(name: str, mark: str = "PreferNoSchedule", **annotations: str) -> Json:
    found = {DETAILS_ANNOTATION: encode_details(DETAILS), **annotations}
    metadata = {"name": name, "labels": {MARK_LABEL: mark}, "annotations": found}
    return node(name, metadata=metadata, spec={"taints": [SOFT_TAINT]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "dump.json"
    file.write_bytes(dump(*ITEMS))
    return str(file)


def explained(capsys: pytest.CaptureFixture[str], file: object, *what: str) -> Any:
    assert main(["explain", *what, "--from-file", str(file), "-o", "json"]) == 0
    return orjson.loads(capsys.readouterr().out)


def table(capsys: pytest.CaptureFixture[str], file: object, *what: str) -> str:
    """Return the table with one space between its cells."""
    assert main(["explain", *what, "--from-file", str(file)]) == 0
    return re.sub(" +", " ", capsys.readouterr().out)


def of(tmp_path: Path, *items: Json) -> Path:
    file = tmp_path / "made.json"
    file.write_bytes(dump(*items))
    return file


def without_thresholds(tmp_path: Path, headroom: int) -> tuple[str, str]:
    """Return the option --config with a file without thresholds."""
    file = tmp_path / "without-thresholds.yaml"
    head, thresholds = f"apiVersion: {API_VERSION}\nkind: {KIND}\n", "{cpu: 100%, memory: 100%}"
    file.write_text(f"{head}thresholds: {thresholds}\nheadroom: {headroom}\n")
    return "--config", str(file)


class TestNode:
    def test_removable_node_is_explained_with_placements(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = explained(capsys, path, "node", C)
        assert found["kind"] == "NodeExplanation"
        assert found["verdict"] == {"removable": True, "order": 1}
        assert found["reasons"] == []
        assert (
            found["placements"]
            == plan_of(capsys, "--from-file", path)["removals"][0]["placements"]
        )
        assert [place["pod"] for place in found["placements"]] == ["shop/c1"]
        assert found["unplaced"] == []
        assert found["mark"]["value"] is None
        assert found["rank"] == {"price": 0.0, "requested": 0.125}

    def test_unremovable_node_is_explained_with_all_reasons_and_fixes(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = explained(capsys, path, "node", D)
        assert found["verdict"] == {"removable": False, "order": None}
        reasons = {reason["code"]: reason for reason in found["reasons"]}
        assert reasons.keys() >= {"cordoned"}
        assert len(reasons) >= 2
        assert reasons["cordoned"]["fix"] == f"uncordon the node: kubectl uncordon {D}"
        assert all(
            set(reason) == {"code", "message", "pod", "meaning", "fix", "endsWhen"}
            and all(reason[key] for key in ("code", "message", "meaning", "fix", "endsWhen"))
            for reason in found["reasons"]
        )

    def test_reasons_match_plan(self, path: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["plan", "--from-file", path, "-o", "json"]) == 0
        plan = orjson.loads(capsys.readouterr().out)
        for kept in plan["unremovable"]:
            found = explained(capsys, path, "node", kept["node"])
            codes = [(one["code"], one["message"]) for one in found["reasons"]]
            assert codes == [(one["code"], one["message"]) for one in kept["reasons"]]

    def test_pods_that_plan_places_on_node_are_named_with_their_own_node(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        moved = [node("a"), node("b"), node("c"), pod("z", "a"), pod("q", "b", "3300m")]
        file = of(tmp_path, *moved, pod("r", "c", "3600m"), pod("w", None, "400m"))
        full = without_thresholds(tmp_path, headroom=0)
        why = "no other remaining node admits it and has room"
        reasons = explained(capsys, file, "node", "b", *full)["reasons"]
        assert {one["pod"]: one["message"] for one in reasons if one["pod"]} == {
            "shop/q": why,
            "shop/z": f"planned here from a: {why}",
        }
        found = explained(capsys, file, "node", "c", *full)
        assert found["plannedHere"] == [{"pod": "shop/w", "runsOn": None}]
        text = table(capsys, file, "node", "c", *full)
        assert "shop/w (planned here, now Pending) b\n" in text
        plan = plan_of(capsys, "--from-file", str(file), *full)
        assert [removal["node"] for removal in plan["removals"]] == ["a"]

    def test_table_agrees_with_reason_when_room_is_reserved(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        items = [node(name) for name in "abc"]
        pods = [pod("big", "a", "3"), pod("p", "b", "2"), pod("q", "c", "1m")]
        config = without_thresholds(tmp_path, headroom=1)
        found = explained(capsys, of(tmp_path, *items, *pods), "node", "b", *config)
        (reason,) = found["reasons"]
        assert reason["message"].startswith("the only room for it is reserved for pods as large")
        assert found["unplaced"] == [{"pod": "shop/p", "reason": reason["message"]}]

    def test_table_shows_verdict_reasons_and_placements(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = table(capsys, path, "node", D)
        for part in (
            "verdict not removable: ",
            "cordoned",
            "because ",
            "fix ",
            "ends when ",
            path,
        ):
            assert part in text
        assert f"kubectl uncordon {D}\n" in text
        text = table(capsys, path, "node", C)
        assert "removable, number 1 in the plan" in text
        assert re.search(rf"^shop/c1 ({A}|{B})$", text, re.MULTILINE)

    def test_marked_node_is_explained_with_details_of_its_mark(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        guarded = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "marked"}
        file = of(tmp_path, marked("m", **guarded), node("n"), pod("p", "m"))
        assert explained(capsys, file, "node", "m")["mark"] == {
            "value": "PreferNoSchedule",
            "since": SINCE,
            "deadline": SINCE + 60,
            "owner": "me",
            "policy": "P",
            "reason": "r",
            "overdue": True,
            "empty": False,
            "scaleDownProtection": "marked",
            "taintsCorrect": True,
            "leaving": False,
            "beingDeleted": False,
            "skippedUntil": None,
        }
        text = table(capsys, file, "node", "m")
        assert "since 2023-11-14 22:13:20 UTC (" in text
        assert "overdue: the controller unmarks the node" in text
        assert "taint matches the mark\n" in text
        assert "pods left 1 pod\n" in text
        empty = of(tmp_path, marked("m", **guarded), node("n"), pod("p", "n"))
        assert "overdue: the controller extends the deadline, as the node is empty" in table(
            capsys, empty, "node", "m"
        )

    @pytest.mark.parametrize(
        ("one", "told"),
        [
            (marked("m"), "scale-ins delete 2 pods of this node first\n"),
            (node("m"), "scale-ins delete 2 pods of this node after the pods of marked nodes\n"),
        ],
    )
    def test_table_counts_pods_with_deletion_cost(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], one: Json, told: str
    ) -> None:
        pods = [pod(name, "m") for name in "abc"]
        for each, cost in zip(pods, ("-7", "-7", "-8"), strict=True):
            ours = {COST_ANNOTATION: cost, COST_OURS_ANNOTATION: "-7"}
            each["metadata"]["annotations"] = ours
        file = of(tmp_path, one, node("n"), *pods, pod("p", "n"))
        assert explained(capsys, file, "node", "m")["pods"]["scaleInFirst"] == 2
        assert told in table(capsys, file, "node", "m")
        assert "scale-ins" not in table(capsys, file, "node", "n")

    @pytest.mark.parametrize(
        ("taint", "deleted"),
        [
            ("ToBeDeletedByClusterAutoscaler", True),
            ("aws-node-termination-handler/spot-itn", False),
        ],
    )
    def test_leaving_node_counts_as_being_deleted_only_when_autoscaler_taints_it(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], taint: str, deleted: bool
    ) -> None:
        leaves = node("m", spec={"taints": [{"key": taint, "effect": "NoSchedule"}]})
        file = of(tmp_path, leaves, node("n"), pod("p", "n"))
        mark = explained(capsys, file, "node", "m")["mark"]
        assert (mark["leaving"], mark["beingDeleted"]) == (True, deleted)

    def test_empty_node_is_explained_with_its_reserve(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        told = "the node is reserved for 3 pods: 2 of 1 + 2Gi, 1 of 500m + 1Gi"
        protected = {
            SCALE_DOWN_DISABLED_ANNOTATION: "true",
            PROTECTION_ANNOTATION: "unmarked",
            RESERVE_ANNOTATION: told,
        }
        kept = node("m", metadata={"name": "m", "annotations": protected})
        file = of(tmp_path, kept, node("n"), pod("p", "n"))
        (reason,) = explained(capsys, file, "node", "m")["reservedFor"]
        assert (reason["code"], reason["message"]) == ("reserve", told)
        text = table(capsys, file, "node", "m")
        assert "scale-down protection by Ebb, until it allows scale-down\n" in text
        assert f"reserve because {told}\n" in text
        assert explained(capsys, file, "node", "n")["reservedFor"] == []
        filled = of(tmp_path, kept, node("n"), pod("p", "m"))
        assert explained(capsys, filled, "node", "m")["reservedFor"] == []

    def test_marked_node_is_explained_when_taint_and_details_are_missing(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        bare = node("m", metadata={"name": "m", "labels": {MARK_LABEL: "NoSchedule"}})
        text = table(capsys, of(tmp_path, bare, node("n"), pod("p", "n")), "node", "m")
        assert "taint does not match the mark: the controller corrects the taint\n" in text
        assert "details of the mark the annotation is missing or invalid" in text
        assert "since unknown\n" in text
        assert "pods left none: the node is empty\n" in text

    @pytest.mark.parametrize(
        ("until", "mark", "left_alone"),
        [
            (SINCE, "", False),
            (SINCE + 1, "", True),
            (SINCE + 1, "PreferNoSchedule", False),
            (SINCE + 2 * 86_400, "", True),
            (SINCE + 400 * 86_400, "", False),
        ],
    )
    def test_backoff_is_shown_only_when_engine_applies_it(
        self,
        until: int,
        mark: str,
        left_alone: bool,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """A backoff ends; it is ignored on a marked node, and if longer than allowed."""
        annotations = {BACKOFF_ANNOTATION: f"2 {until}", SCALE_DOWN_DISABLED_ANNOTATION: "true"}
        labels = {MARK_LABEL: mark} if mark else {}
        metadata = {"name": "m", "labels": labels, "annotations": annotations}
        last = pod("p", "m")
        last["metadata"]["creationTimestamp"] = "2023-11-14T22:13:20Z"
        file = of(tmp_path, node("m", metadata=metadata), node("n"), last)
        found = explained(capsys, file, "node", "m")["mark"]["skippedUntil"]
        assert found == (until if left_alone else None)
        text = table(capsys, file, "node", "m")
        assert ("\nnot marked again before 2023-11-1" in text) is left_alone
        assert "scale-down protection not by Ebb\n" in text

    def test_pod_is_planned_elsewhere_when_its_node_is_being_deleted(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
        file = of(tmp_path, node("m", spec={"taints": [taint]}), node("n"), pod("p", "m"))
        text = table(capsys, file, "node", "m")
        assert f"already leaving: taint {taint['key']} announces" in text
        assert explained(capsys, file, "pod", "shop/p")["target"] == "n"


class TestPod:
    def test_pod_of_removable_node_is_explained_with_planned_node(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = explained(capsys, path, "pod", "shop/c1")
        assert found["kind"] == "PodExplanation"
        assert (found["node"], found["pending"], found["movable"]) == (C, False, True)
        assert found["nodeVerdict"] == {"removable": True, "order": 1}
        (removal,) = plan_of(capsys, "--from-file", path)["removals"]
        assert removal["placements"] == [{"pod": "shop/c1", "node": found["target"]}]
        assert found["whyNoTarget"] is None
        assert set(found["couldRunOn"]) == {A, B}
        assert found["rejectedBy"] == [{"rule": "cordoned", "nodes": 1}]

    def test_pod_is_explained_with_refusing_filter_when_no_node_admits_it(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pinned = pod("p", "m", nodeSelector={"disk": "nvme"})
        file = of(tmp_path, node("m"), node("n"), node("o"), pinned, pod("q", "n", "3800m"))
        found = explained(capsys, file, "pod", "shop/p")
        assert found["movable"] is True
        assert found["target"] is None
        assert found["whyNoTarget"].startswith("no other node admits it")
        assert found["couldRunOn"] == []
        assert found["rejectedBy"] == [{"rule": "node-selector", "nodes": 2}]
        text = table(capsys, file, "pod", "shop/p")
        assert "could run on no node\n" in text
        assert "node-selector 2\n" in text

    def test_pending_pod_is_explained_with_marked_nodes_that_have_room(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        items = [marked("m"), node("n"), pod("p", "n", "3"), pod("w", None, "2")]
        found = explained(capsys, of(tmp_path, *items), "pod", "shop/w")
        assert (found["pending"], found["node"], found["target"]) == (True, None, "m")
        assert (found["couldRunOn"], found["couldRunOnMarked"]) == ([], ["m"])
        assert found["rejectedBy"] == [{"rule": "insufficient cpu", "nodes": 1}]
        text = table(capsys, of(tmp_path, *items), "pod", "shop/w")
        assert "node none: the pod is Pending\n" in text
        assert "could run on marked nodes m\n" in text

    def test_pending_pod_is_explained_when_no_node_has_enough_capacity(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = of(tmp_path, node("n"), pod("p", "n"), pod("w", None, "9"))
        found = explained(capsys, file, "pod", "shop/w")
        why = "no node that admits the pod has enough free capacity beside the pods that are "
        why += "placed before it"
        assert (found["target"], found["whyNoTarget"]) == (None, why)

    @pytest.mark.parametrize(("name", "on"), [("p299", "n24"), ("p300", None)])
    def test_pod_is_not_movable_when_cluster_has_too_many_reaches(
        self, name: str, on: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The reasons of its node include the code too. A Pending pod is not placed."""
        file = of(tmp_path, *many_reaches())
        found = explained(capsys, file, "pod", f"shop/{name}")
        (reason,) = found["reasons"]
        assert (reason["code"], reason["pod"]) == ("asks-too-much", f"shop/{name}")
        assert (found["node"], found["movable"], found["whyNoTarget"]) == (on, False, None)
        assert ("asks-too-much" in found["nodeReasons"]) is (on is not None)
        assert "movable no: asks-too-much\n" in table(capsys, file, "pod", f"shop/{name}")

    def test_pending_pod_is_explained_with_last_node_when_plan_moves_it_twice(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The plan places it on the fullest node, and then removes that node."""
        items = [node("x"), node("y"), node("z"), pod("big", "x", "1500m"), pod("w", None, "100m")]
        for number in range(5):
            items += [pod(f"y{number}", "y", "250m"), pod(f"z{number}", "z", "200m")]
        file = of(tmp_path, *items)
        plan = plan_of(capsys, "--from-file", str(file))
        (first,), (removal,) = plan["pending"], plan["removals"]
        assert (first["node"], removal["node"]) == ("x", "x")
        last = {one["pod"]: one["node"] for one in removal["placements"]}
        found = explained(capsys, file, "pod", "shop/w")
        assert found["target"] == last["shop/w"] != "x"

    @pytest.mark.parametrize("asked", [{"pool": "a"}, {"pool": "b"}])
    def test_pod_without_reach_is_explained_with_number_of_admitting_nodes(
        self, asked: Json, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        nodes = [
            node(name, metadata={"name": name, "labels": {"pool": pool}})
            for name, pool in (("n", "a"), ("o", "a"), ("p", "b"))
        ]
        waits = pod("w", None, "9", nodeSelector=asked)
        found = explained(capsys, of(tmp_path, *nodes, pod("q", "n"), waits), "pod", "shop/w")
        assert found["admittedBy"] == (2 if asked["pool"] == "a" else 1)
        assert found["reach"] is None, "it makes none"

    @pytest.mark.parametrize(("owner", "place"), [([], None), ([OWNER], "n")])
    def test_pod_is_explained_when_its_node_no_longer_exists(
        self,
        owner: list[Json],
        place: str | None,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """A controller recreates its pod, so the plan places it. Nothing recreates a bare pod."""
        left = pod("left", "gone")
        left["metadata"]["ownerReferences"] = owner
        file = of(tmp_path, node("n"), pod("p", "n"), left)
        found = explained(capsys, file, "pod", "shop/left")
        assert (found["node"], found["pending"], found["nodeVerdict"]) == ("gone", False, None)
        assert (found["target"], found["whyNoTarget"], found["couldRunOn"]) == (place, None, [])
        told = table(capsys, file, "pod", "shop/left")
        assert "movable no move needed: its node no longer exists" in told
        assert ("planned node n" in told) == bool(place)

    def test_daemonset_pod_is_explained_as_removed_with_its_node(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        owned = pod("p", "n")
        owner = {"kind": "DaemonSet", "name": "logs", "controller": True}
        owned["metadata"]["ownerReferences"] = [owner]
        file = of(tmp_path, node("n"), owned)
        found = explained(capsys, file, "pod", "shop/p")
        assert (found["removedWithNode"], found["movable"], found["couldRunOn"]) == (
            True,
            False,
            [],
        )
        assert "no move needed: a DaemonSet pod is removed with its node" in table(
            capsys, file, "pod", "shop/p"
        )

    def test_pod_with_resource_claims_is_explained_as_not_movable(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with_claim = pod("p", "n", resourceClaims=[{"name": "gpu"}])
        file = of(tmp_path, node("n"), node("m"), with_claim)
        found = explained(capsys, file, "pod", "shop/p")
        assert found["movable"] is False
        (reason,) = found["reasons"]
        assert reason["code"] == "pod-resource-claims"
        assert "kubectl -n shop delete pod p" in reason["fix"]
        text = table(capsys, file, "pod", "shop/p")
        assert "no: pod-resource-claims" in text


class TestNames:
    @pytest.mark.parametrize(
        ("named", "names"),
        [
            (["node", A, C], [A, C]),
            (["nodes", A], [A]),
            ([f"node/{A}", f"no/{C}"], [A, C]),
            (["pod/shop/a1", "po/shop/c1"], ["shop/a1", "shop/c1"]),
            (["pod/a1", "-n", "shop"], ["shop/a1"]),
            (["pods", "a1", "c1", "-A"], ["shop/a1", "shop/c1"]),
        ],
    )
    def test_several_objects_are_named_as_for_kubectl(
        self, named: list[str], names: list[str], path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        kind = "pod" if named[0].startswith("po") else "node"
        assert main(["explain", "--from-file", path, "-o", "json", *named]) == 0
        found = orjson.loads(capsys.readouterr().out)
        items = found["items"] if len(names) > 1 else [found]
        assert [item[kind] for item in items] == names
        assert main(["explain", "--from-file", path, *named]) == 0
        told = [line.split()[1] for line in capsys.readouterr().out.splitlines()
                if line.split()[:1] == [kind]]  # fmt: skip
        assert [name for name in told if name in names] == names

    @pytest.mark.parametrize(
        ("what", "name", "told"),
        [
            ("node", "10-0-0-3", f"not found; similar names: {C}"),
            ("node", A.replace("central", "centrul"), f"similar names: {A}, "),
            ("node", "zzz", "none of the 4 nodes has a similar name"),
            (
                "pod",
                "c1",
                "namespace is missing; use NAMESPACE/NAME, or -n; did you mean shop/c1?",
            ),
            (
                "pod",
                "shop/cc1",
                "not found (completed and scheduling-gated pods are not considered); similar ",
            ),
            ("pod", "shop/c9", "similar names: shop/c1"),
        ],
    )
    def test_unknown_name_is_reported_in_one_line_with_similar_names(
        self, what: str, name: str, told: str, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["explain", what, name, "--from-file", path]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"ebb: {what} {name}: ")
        assert told in err
        assert err.count("\n") == 1

    @pytest.mark.parametrize(
        "arguments",
        [
            ["explain"],
            ["explain", "node"],
            ["explain", "job", "x", "--from-file", "f"],
            ["explain", "node", "x", "--from-file", "f", "--kubeconfig", "k"],
        ],
    )
    def test_invalid_command_line_is_rejected_with_usage(
        self, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(arguments) == 2
        assert "Usage: ebb explain" in capsys.readouterr().err


class TestOutput:
    def test_pipe_receives_plain_lines_without_wrapping(self, path: str) -> None:
        done = ebb("explain", "node", D, "--from-file", path, COLUMNS="40", FORCE_COLOR="1")
        text = done.stdout.decode()
        assert (done.returncode, done.stderr) == (0, b"")
        assert "\x1b" not in text
        assert f"kubectl uncordon {D}\n" in text
        assert all(line == line.rstrip() for line in text.splitlines())

    def test_terminal_receives_styled_lines_of_its_width(self, path: str) -> None:
        text = on_terminal("explain", "node", D, "--from-file", path, COLUMNS="80", TERM="xterm")
        assert "\x1b[1m" in text
        lines = [line for line in text.split("\r\n") if "\x1b" not in line]
        assert max(len(line) for line in lines if path not in line) <= 80

    def test_pod_is_printed_above_its_node_when_line_is_too_wide(self, tmp_path: Path) -> None:
        one, two = ("n" * 50 + end for end in "ab")
        file = tmp_path / "dump.json"
        file.write_bytes(dump(node(one), node(two), pod("p" * 40, one)))
        text = on_terminal(
            "explain", "node", one, "--from-file", str(file), COLUMNS="80", TERM="xterm"
        )
        lines = [line.rstrip() for line in text.split("\r\n")]
        at = lines.index(f"shop/{'p' * 40}")
        assert lines[at + 1].split() == [two]
        assert len(lines[at + 1]) <= 80


GPU = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
POOLS = [
    node("w1"),
    node("w2"),
    node("w3"),
    node("g1", metadata={"name": "g1", "labels": {"pool": "gpu"}}, spec={"taints": [GPU]}),
    node("g2", metadata={"name": "g2", "labels": {"pool": "gpu"}}, spec={"taints": [GPU]}),
    node("lone", spec={"taints": [{"key": "x", "effect": "NoSchedule"}]}),
    node("fargate", metadata={"name": "fargate", "labels": {"type": "virtual-kubelet"}}),
    *(pod(name, on, "1") for on in ("w1", "w2") for name in (f"{on}-1", f"{on}-2", f"{on}-3")),
    pod("a", "w3", "1"),
    pod("t", "g1", "1", tolerations=[GPU], nodeSelector={"pool": "gpu"}),
]
NAME = "pool=gpu, tolerates gpu=yes:NoSchedule"


class TestReaches:
    @pytest.mark.parametrize(
        ("name", "reaches", "told"),
        [
            ("w1", [("general", 3)], "general (3 nodes)"),
            ("g2", [(NAME, 2)], f"{NAME} (2 nodes)"),
            (
                "lone",
                [],
                "none: no pod that Ebb may move could run here, so no threshold applies",
            ),
            (
                "fargate",
                [],
                "none: no pod that Ebb may move could run here, so no threshold applies",
            ),
        ],
    )
    def test_node_is_explained_with_its_reaches(
        self,
        name: str,
        reaches: list[tuple[str, int]],
        told: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        file = of(tmp_path, *POOLS)
        found = explained(capsys, file, "node", name)
        assert [(one["name"], one["nodes"]) for one in found["reaches"]] == reaches
        assert found["reached"] == bool(reaches)
        assert f"\nreaches {told}\n" in table(capsys, file, "node", name)

    def test_reason_names_reach_that_exceeds_threshold(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Pods request 8 of 20 cores in all reaches, and 7 of the 12 in reach `general`."""
        file, config = of(tmp_path, *POOLS), tmp_path / "ebb.yaml"
        config.write_text(
            "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\n"
            "thresholds: {cpu: 80%, memory: 80%}\n"
        )
        found = explained(capsys, file, "node", "w3", "--config", str(config))
        reasons = {one["code"]: one["message"] for one in found["reasons"]}
        assert reasons["reach-threshold"].startswith(
            "without the node, reach general would have cpu at 87.5%, over 80%"
        )

    @pytest.mark.parametrize(
        ("name", "reach", "admitted", "told"),
        [
            ("a", "general", 3, "general (3 nodes)"),
            ("t", NAME, 2, f"{NAME} (2 nodes)"),
        ],
    )
    def test_pod_is_explained_with_its_reach(
        self,
        name: str,
        reach: str,
        admitted: int,
        told: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        file = of(tmp_path, *POOLS)
        found = explained(capsys, file, "pod", f"shop/{name}")
        assert found["reach"]["name"] == reach
        assert found["admittedBy"] == admitted
        assert f"\nreach {told}\n" in table(capsys, file, "pod", f"shop/{name}")

    def test_virtual_node_refuses_pod_by_rule_virtual_node(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = explained(capsys, of(tmp_path, *POOLS), "pod", "shop/a")
        assert {"rule": "virtual-node", "nodes": 1} in found["rejectedBy"]


class TestFixes:
    """A fix is a command to copy: it contains the names of the node, the pod, the key or owner."""

    @pytest.mark.parametrize(
        ("changed", "code", "fix"),
        [
            (
                {"annotations": {"kube-ebb.io/keep": "true"}},
                "opted-out",
                "kubectl annotate node n kube-ebb.io/keep-",
            ),
            (
                {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
                "opted-out",
                "kubectl annotate node n karpenter.sh/do-not-disrupt-",
            ),
            (
                {"labels": {"node-role.kubernetes.io/etcd": ""}},
                "control-plane",
                "kubectl label node n node-role.kubernetes.io/etcd-",
            ),
            (
                {"labels": {"kubernetes.io/role": "master"}},
                "control-plane",
                "kubectl label node n kubernetes.io/role-",
            ),
        ],
    )
    def test_fix_removes_annotation_or_label_that_protects_node(
        self,
        changed: Json,
        code: str,
        fix: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        file = of(tmp_path, node("n", metadata={"name": "n", **changed}), node("m"), pod("p", "n"))
        (told,) = (
            one for one in explained(capsys, file, "node", "n")["reasons"] if one["code"] == code
        )
        assert told["fix"].endswith(fix)
        assert fix in table(capsys, file, "node", "n")

    def test_fix_restarts_statefulset(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        owned = pod("db-0", "n")
        owner = {"kind": "StatefulSet", "name": "db", "controller": True}
        owned["metadata"]["ownerReferences"] = [owner]
        file = of(tmp_path, node("n"), node("m"), owned)
        for what, field in ((("pod", "shop/db-0"), "remarks"), (("node", "n"), "emptiesLate")):
            (told,) = explained(capsys, file, *what)[field]
            assert told["fix"].endswith("kubectl -n shop rollout restart statefulset db")

    def test_pods_that_cannot_be_evicted_are_listed_when_eviction_is_enabled(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        owned = pod("db-0", "n")
        owned["metadata"] |= {
            "labels": {"app": "db"},
            "ownerReferences": [{"kind": "StatefulSet", "name": "db", "controller": True}],
        }
        budget = {
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "db", "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "db"}}},
            "status": {"disruptionsAllowed": 0, "desiredHealthy": 1, "expectedPods": 2},
        }
        file = of(tmp_path, node("n"), node("m"), owned, pod("bare", "n"), budget)
        assert explained(capsys, file, "node", "n")["notEvicted"] == []
        config = tmp_path / "ebb.yaml"
        head = "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\n"
        config.write_text(f"{head}eviction: {{mode: enabled}}\n")
        told = explained(capsys, file, "node", "n", "--config", str(config))["notEvicted"]
        assert [(one["code"], one["pod"]) for one in told] == [
            ("pod-bare", "shop/bare"),
            ("evict-budget", "shop/db-0"),
        ]
        home = ("--config", str(config), "--ebb-namespace", "shop")
        told = explained(capsys, file, "node", "n", *home)["notEvicted"]
        assert {one["code"] for one in told} == {"evict-own"}
        text = table(capsys, file, "node", "n", "--config", str(config))
        assert "pods not evicted because" in text
        assert "PodDisruptionBudget db allows 0" in text

    @pytest.mark.parametrize("name", ["m", "n"])
    def test_pod_is_not_evicted_when_another_pod_of_its_controller_is_not_ready(
        self, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The answer is the same for a node without a mark, whose pods Ebb does not evict yet."""
        making, *serving = (pod(f"web-{on}", on) for on in ("o", "m", "n"))
        for one in (making, *serving):
            one["metadata"]["ownerReferences"] = [OWNER]
        for one in serving:
            one["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        file = of(tmp_path, marked("m", "NoSchedule"), node("n"), node("o"), making, *serving)
        config = tmp_path / "ebb.yaml"
        head = "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\n"
        config.write_text(f"{head}eviction: {{mode: enabled}}\n")
        asked = (file, "node", name, "--config", str(config))
        (told,) = explained(capsys, *asked)["notEvicted"]
        assert (told["code"], told["pod"]) == ("evict-unsettled", f"shop/web-{name}")
        assert told["message"] == "pod web-o of ReplicaSet web is not Ready"

    def test_fix_quotes_owner_name_for_shell(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The API server accepts any text as the name of an owner."""
        owned = pod("db-0", "n")
        owner = {"kind": "StatefulSet", "name": "x; reboot $(id)", "controller": True}
        owned["metadata"]["ownerReferences"] = [owner]
        file = of(tmp_path, node("n"), node("m"), owned)
        (told,) = explained(capsys, file, "pod", "shop/db-0")["remarks"]
        assert told["fix"].endswith("rollout restart statefulset 'x; reboot $(id)'")

    def test_fix_adds_toleration_when_daemonset_does_not_tolerate_taint(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        owned = pod("logs", "m")
        owner = {"kind": "DaemonSet", "name": "logs", "controller": True}
        owned["metadata"]["ownerReferences"] = [owner]
        config = tmp_path / "ebb.yaml"
        config.write_text(
            "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\nnoScheduleAfter: 30m\n"
        )
        file = of(tmp_path, marked("m"), node("n"), owned)
        assert main(
            ["explain", "node", "m", "--from-file", str(file), "--config", str(config)]
        ) == 0  # fmt: skip
        told = re.sub(" +", " ", capsys.readouterr().out)
        assert f"add a toleration for {TAINT_KEY} to the DaemonSet of pod logs in shop;" in told


def test_pod_name_without_namespace_is_rejected_with_suggestion(path: str) -> None:
    done = ebb("explain", "pod", "a1", "--from-file", path)
    told = b"ebb: pod a1: the namespace is missing; use NAMESPACE/NAME, or -n; "
    told += b"did you mean shop/a1?\n"
    assert (done.returncode, done.stderr) == (2, told)
    done = ebb("explain", "pod", "no-such", "--from-file", path)
    assert (
        done.stderr == b"ebb: pod no-such: the namespace is missing; use NAMESPACE/NAME, or -n\n"
    )
