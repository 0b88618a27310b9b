"""`ebb plan` says what would empty each removable node, for a dump and for a live cluster."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from cli.__main__ import main
from core.marks.mark import Details, encode_details
from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL
from tests.cli.test_source import run
from tests.support.fake_api import FakeApi
from tests.support.fake_deployments import FakeDeployments
from tests.support.fake_objects import KUBECONFIG, node_object
from tests.support.plan_cli import Json, dump, node, on_terminal, plan_of, pod

DETAILS = Details(since=1, deadline=2**40, owner="me", policy="p", reason="r")
SURGE = """\
apiVersion: kube-ebb.io/v1alpha1
kind: EbbConfiguration
headroom: 0
thresholds: {cpu: 100%, memory: 100%}
surge: {mode: enabled}
"""


def owned(name: str, on: str, kind: str, owner: str, **spec: Any) -> Json:
    made = pod(name, on, "100m", **spec)
    made["metadata"]["ownerReferences"] = [{"kind": kind, "name": owner, "controller": True}]
    return made


def deployment(**spec: Any) -> list[Json]:
    """Return a Deployment with its ReplicaSet web-1."""
    revision = {"deployment.kubernetes.io/revision": "1"}
    meta = {"namespace": "shop", "annotations": revision}
    owner = {"kind": "Deployment", "name": "web", "uid": "u", "controller": True}
    return [
        {
            "kind": "Deployment",
            "metadata": {**meta, "name": "web", "uid": "u", "generation": 1},
            "spec": {"replicas": 2, **spec},
            "status": {"observedGeneration": 1, "replicas": 2},
        },
        {
            "kind": "ReplicaSet",
            "metadata": {**meta, "name": "web-1", "ownerReferences": [owner]},
            "spec": {"replicas": 2},
        },
    ]


CLUSTER = [
    *map(node, "abcdef"),
    pod("bare", "f", "3"),
    owned("w1", "a", "ReplicaSet", "web-1"),
    owned("w2", "b", "ReplicaSet", "web-1"),
    owned("j", "b", "Job", "job", restartPolicy="Never"),
    owned("s", "c", "StatefulSet", "db"),
]


@pytest.mark.parametrize(
    ("more", "surge", "expected"),
    [
        pytest.param(
            deployment(),
            True,
            {"a": "moves (1)", "b": "moves (1), completion (1)"},
            id="surge moves",
        ),
        pytest.param(
            deployment(strategy={"type": "Recreate"}),
            True,
            {"a": "turnover (1)", "b": "completion (1), turnover (1)"},
            id="strategy forbids moves",
        ),
        pytest.param(
            [],
            True,
            {"a": "turnover (1)", "b": "completion (1), turnover (1)"},
            id="no Deployments in the dump",
        ),
        pytest.param(
            deployment(),
            False,
            {"a": "turnover (1)", "b": "completion (1), turnover (1)"},
            id="surge moves disabled",
        ),
    ],
)
def test_plan_of_dump_says_what_empties_each_node(
    more: list[Json],
    surge: bool,
    expected: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dumped, config = tmp_path / "dump.json", tmp_path / "ebb.yaml"
    dumped.write_bytes(dump(*CLUSTER, *more))
    config.write_text(SURGE if surge else SURGE.replace("enabled", "disabled"))
    given = ("--from-file", str(dumped), "--config", str(config))
    assert main(["plan", *given]) == 0
    text = capsys.readouterr().out
    expected = {"c": "nothing: pod-stateful-set (1)", "d": "-", **expected}
    for name, by in expected.items():
        assert any(f" {name} " in line and f" {by} " in line for line in text.splitlines())
    unknown = "Surge moves are unknown, because Deployments and ReplicaSets were not read."
    assert (unknown in text) is (surge and not more)
    found = {one["node"]: one["emptiedBy"] for one in plan_of(capsys, *given)["removals"]}
    assert found["c"]["staying"][0]["code"] == "pod-stateful-set"
    assert (found["a"]["moves"] is None) is not (surge and bool(more))


def test_narrow_table_has_what_empties_a_node_below_it(tmp_path: Path) -> None:
    dumped, long = tmp_path / "dump.json", "a" * 60
    items = [node(long), node("b"), owned("w", long, "Job", "j"), pod("p", "b", "1")]
    dumped.write_bytes(dump(*items))
    text = on_terminal("plan", "--from-file", str(dumped), COLUMNS="80", TERM="xterm")
    assert " by completion (1)" in text


async def test_plan_of_live_cluster_counts_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig, config = tmp_path / "kubeconfig", tmp_path / "config.yaml"
    config.write_text(SURGE)
    async with FakeApi() as api:
        kubeconfig.write_text(KUBECONFIG.format(url=api.url))
        marked = node_object("n1", labels={MARK_LABEL: "PreferNoSchedule"})
        marked["metadata"]["annotations"] = {DETAILS_ANNOTATION: encode_details(DETAILS)}
        api.put("nodes", marked)
        api.put("nodes", node_object("n2"))
        deployments = FakeDeployments(api)
        deployments.create("web", "n1")
        deployments.create("db", "n1", strategy={"type": "Recreate"})
        options = ("--kubeconfig", str(kubeconfig), "--config", str(config), "-o", "json")
        status, out, _ = await run(capsys, "plan", *options)
    assert status == 0
    (removal,) = orjson.loads(out)["removals"]
    assert removal["node"] == "n1"
    expected = {"moves": 1, "completion": 0, "turnover": 1, "staying": []}
    assert removal["emptiedBy"] == expected


def test_plan_names_own_pods_on_removable_nodes_with_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [
        owned("ebb-controller-5f-x", "a", "ReplicaSet", "ebb-controller-5f"),
        owned("ebb-webhook-6c-y", "b", "ReplicaSet", "ebb-webhook-6c"),
    ]
    for one in own:
        one["metadata"]["namespace"] = "ebb-system"
    file = tmp_path / "dump.json"
    file.write_bytes(dump(*map(node, "abcd"), *own, pod("p", "c", "1")))
    assert main(["plan", "--from-file", str(file)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Ebb's own pods on removable nodes: " in told
    assert "ebb-controller-5f-x (a)" in told
    assert "kubectl -n ebb-system rollout restart deployment ebb-controller ebb-webhook" in told
    assert main(["plan", "--from-file", str(file), "--ebb-namespace", "elsewhere"]) == 0
    assert "Ebb's own pods" not in capsys.readouterr().out
