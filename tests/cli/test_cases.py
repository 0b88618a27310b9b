"""Small clusters in which kube-scheduler was right and Ebb was not, each with the right answer."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from cli.__main__ import main

CASES = Path(__file__).parent / "recorded"
ATTACHMENTS = CASES / "volume-attachments.json"


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "-o", "json"]) == 0
    return orjson.loads(capsys.readouterr().out)


def test_volume_attached_without_pod_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = asked(capsys, "plan", "--from-file", str(ATTACHMENTS))
    assert [one["node"] for one in found["removals"]] == ["n1"]
    assert [one["node"] for one in found["unremovable"]] == ["n2"]
    pod = asked(capsys, "explain", "pod", "shop/db-2", "--from-file", str(ATTACHMENTS))
    assert pod["couldRunOn"] == []
    assert pod["rejectedBy"] == [{"rule": "attach limit of ebs.csi.aws.com", "nodes": 1}]


def test_dump_without_attachments_is_reported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    whole = orjson.loads(ATTACHMENTS.read_bytes())
    whole["items"] = [one for one in whole["items"] if one["kind"] != "VolumeAttachment"]
    path = tmp_path / "dump.json"
    path.write_bytes(orjson.dumps(whole))
    found = asked(capsys, "plan", "--from-file", str(path))
    assert "no-attachments" in {one["code"] for one in found["warnings"]}


def test_explain_says_whether_an_autoscaler_removes_the_node(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    label = "kubernetes.azure.com/mode"
    system = {"kind": "Node", "metadata": {"name": "s", "labels": {label: "system"}}}
    user = {"kind": "Node", "metadata": {"name": "u"}}
    room = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "d"},
        "spec": {"nodeName": "u", "containers": []},
    }
    path = tmp_path / "dump.json"
    path.write_bytes(orjson.dumps({"kind": "List", "items": [system | room, user | room, pod]}))
    for name, state in (("s", "not-scalable"), ("u", "unknown")):
        found = asked(capsys, "explain", "node", name, "--from-file", str(path))
        assert found["scalability"]["state"] == state
    assert main(["explain", "node", "s", "--from-file", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"not scalable: label {label}=system says that the node is in a system pool" in out
