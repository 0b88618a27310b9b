"""`ebb unmark` and `ebb cleanup`, the commands that write, over a real socket."""

import asyncio
import os
import pty
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from controller.names import HISTORY, TODAY
from core.marks.mark import backoff_of
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    BUFFER_OURS_LABEL,
    COST_ANNOTATION,
    COST_OURS_ANNOTATION,
    DETAILS_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
    MOVE_ANNOTATION,
    OLD_PROTECTION_ANNOTATION,
    OUR_PREFIXES,
    PROTECTION_ANNOTATION,
    PROTECTION_KEYS,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.model.humanize import timestamp
from core.model.pod import DETACHED_LABEL, TEMPLATE_LABEL
from core.moves.note import MoveNote
from core.writes.costs import MOVE_COST, UNDO_COST
from kube.decode.kinds import BUFFERS
from kube.stores.objects import FORBIDDEN_MAX, TRIES_MAX
from kube.stores.packed_config_map import KEY
from kube.target import NAMESPACE
from tests.cli.test_source import run as run_any
from tests.support.fake_api import FakeApi
from tests.support.fake_deployments import deployment_object
from tests.support.fake_objects import KUBECONFIG, key_of, node_object, pod_object
from tests.support.plan_cli import COMMAND, ROOT, ebb

pytestmark = pytest.mark.mutate

RECORDED = Path(__file__).parent / "recorded" / "by_one_program.json"
OLD_KEYS = (
    "kube-ebb.node-restriction.kubernetes.io/drain",
    "kube-ebb.io/drain",
    "kube-ebb.io/guard",
    "kube-ebb.io/backoff",
    "kube-ebb.io/reserve",
)
"""Labels and annotations of Nodes that development versions wrote."""
POD_PATH = "/api/v1/namespaces/default/pods/{}"


async def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run `ebb` as a script does; return its output without the first line, the cluster."""
    code, out, err = await run_any(capsys, *arguments, "--yes")
    first, _, rest = out.partition("\n")
    assert first.startswith("cluster it, http://127.0.0.1:")
    return code, rest, err


def typed(answer: bytes, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `ebb` with a terminal as standard input, on which a user types *answer*."""
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    try:
        return subprocess.run(
            [*COMMAND, *arguments],
            stdin=theirs,
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
            timeout=60,
        )
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("answer", "code", "problem"),
    [
        (b"y\n", 0, ""),
        (b"n\n", 2, "ebb: cleanup: not confirmed; nothing was removed\n"),
        (b"\x04", 2, "ebb: not confirmed; nothing was changed\n"),
    ],
)
async def test_cleanup_lists_objects_and_asks(
    api: FakeApi, kubeconfig: str, answer: bytes, code: int, problem: str
) -> None:
    arguments = ("cleanup", "--all", "--kubeconfig", kubeconfig)
    done = await asyncio.to_thread(typed, answer, *arguments)
    listed = done.stdout.splitlines()
    assert listed[0] == f"cluster it, {api.url}"
    assert listed[1].startswith("node n1  would be cleaned up: ")
    assert done.returncode == code
    assert done.stderr.startswith("Clean up these objects in it? [y/N]: ")
    assert done.stderr.endswith(problem)
    assert is_clean(api, "n1") is (code == 0)
    assert ("node n1  cleaned up: " in done.stdout) is (code == 0)


async def test_cleanup_does_not_ask_when_there_is_nothing_to_remove(
    api: FakeApi, kubeconfig: str
) -> None:
    done = await asyncio.to_thread(typed, b"", "unmark", "n3", "--kubeconfig", kubeconfig)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"cluster it, {api.url}\n0 nodes and 0 pods would be cleaned up\n"


async def test_cleanup_refuses_to_run_unasked_without_terminal(
    api: FakeApi, kubeconfig: str
) -> None:
    done = await asyncio.to_thread(ebb, "cleanup", "--all", "--kubeconfig", kubeconfig)
    problem = b"standard input is no terminal, so the command cannot ask; use --yes"
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"ebb: cleanup: " + problem + b"\n"
    assert not api.calls


def forbid(api: FakeApi, words: str, *, times: int, status: int = 403) -> None:
    for _ in range(times):
        api.answer_next("patch", orjson.dumps({"message": words, "code": status}), status=status)


def marked(name: str) -> dict[str, Any]:
    found = node_object(name)
    found["metadata"]["labels"] = {MARK_LABEL: "PreferNoSchedule", "theirs": "1"}
    found["metadata"]["annotations"] = {
        DETAILS_ANNOTATION: "{}",
        SCALE_DOWN_DISABLED_ANNOTATION: "true",
        PROTECTION_ANNOTATION: "marked",
        "theirs": "2",
    }
    found.setdefault("spec", {})["taints"] = [
        {"key": "theirs", "effect": "NoSchedule"},
        {"key": TAINT_KEY, "value": "7", "effect": "PreferNoSchedule"},
    ]
    return found


def costly(name: str, node: str, ours: str) -> dict[str, Any]:
    found = pod_object(name, node=node)
    found["metadata"]["ownerReferences"] = [
        {
            "kind": "ReplicaSet",
            "name": "r",
            "controller": True,
            "apiVersion": "apps/v1",
            "uid": "u",
        }
    ]
    found["metadata"]["annotations"] = {COST_ANNOTATION: "-7", COST_OURS_ANNOTATION: ours}
    return found


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        for name in ("n1", "n2"):
            api.put("nodes", marked(name))
        api.put("nodes", node_object("n3"))
        for name, node, ours in (("p1", "n1", "-7"), ("p2", "n2", "-9")):
            pod = api.put("pods", costly(name, node, ours))
            api.documents[POD_PATH.format(name)] = pod
        yield api


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path) -> str:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG.format(url=api.url))
    return str(file)


@pytest.fixture(params=[(NAMESPACE, ()), ("elsewhere", ("--ebb-namespace", "elsewhere"))])
def installed(request: pytest.FixtureRequest, kubeconfig: str) -> tuple[str, tuple[str, ...]]:
    """Return Ebb's namespace, and the options that name the cluster and the namespace."""
    home, told = request.param
    return home, ("--kubeconfig", kubeconfig, *told)


async def test_cleanup_deletes_only_buffers_and_templates_of_ebb(
    api: FakeApi, capsys: pytest.CaptureFixture[str], installed: tuple[str, tuple[str, ...]]
) -> None:
    home, where = installed
    ours = {"name": "ebb-reserve-a", "namespace": home, "labels": {BUFFER_OURS_LABEL: ""}}
    theirs = {"name": "theirs", "namespace": home}
    kinds = ("capacitybuffers", "podtemplates")
    for kind in kinds:
        for metadata in (ours, theirs):
            api.put(kind, {"metadata": metadata})
    for arguments in (("unmark", "n1"), ("cleanup", "--all", "--dry-run")):
        assert (await run(capsys, *arguments, *where))[0] == 0
        assert [len(api.objects[kind]) for kind in kinds] == [2, 2]
    code, out, _ = await run(capsys, "cleanup", "--all", *where)
    assert code == 0
    assert f"buffer {home}/ebb-reserve-a  cleaned up: drop buffer" in out
    assert [list(api.objects[kind]) for kind in kinds] == [[f"{home}/theirs"]] * 2


async def test_cleanup_empties_the_history(
    api: FakeApi, capsys: pytest.CaptureFixture[str], installed: tuple[str, tuple[str, ...]]
) -> None:
    home, where = installed
    metadata = {"name": TODAY, "namespace": home, "labels": {"mine": ""}}
    api.put("configmaps", {"metadata": metadata, "binaryData": {KEY: "eA=="}})
    api.put("configmaps", {"metadata": {"name": HISTORY, "namespace": home}})
    for arguments in (("unmark", "n1"), ("cleanup", "--all", "--dry-run")):
        assert (await run(capsys, *arguments, *where))[0] == 0
        assert api.objects["configmaps"][f"{home}/{TODAY}"]["binaryData"] == {KEY: "eA=="}
    code, out, _ = await run(capsys, "cleanup", "--all", *where)
    assert code == 0
    assert f"configmap {home}/{TODAY}  cleaned up: history" in out
    assert HISTORY not in out
    emptied = api.objects["configmaps"][f"{home}/{TODAY}"]
    assert not emptied["binaryData"]
    assert emptied["metadata"]["labels"] == {"mine": ""}


async def test_cleanup_deletes_templates_when_capacitybuffer_crd_is_missing(
    api: FakeApi, capsys: pytest.CaptureFixture[str], installed: tuple[str, tuple[str, ...]]
) -> None:
    home, where = installed
    ours = {"name": "ebb-reserve-a", "namespace": home, "labels": {BUFFER_OURS_LABEL: ""}}
    api.put("podtemplates", {"metadata": ours})
    api.served -= set(BUFFERS.paths)
    code, out, _ = await run(capsys, "cleanup", "--all", *where)
    assert code == 0
    assert f"buffer {home}/ebb-reserve-a  cleaned up: drop template" in out
    assert not api.objects["podtemplates"]


def is_clean(api: FakeApi, name: str) -> bool:
    found = api.objects["nodes"][name]
    return (
        found["metadata"]["labels"] == {"theirs": "1"}
        and found["metadata"]["annotations"] == {"theirs": "2"}
        and [taint["key"] for taint in found["spec"]["taints"]] == ["theirs"]
    )


def has_backoff(api: FakeApi, name: str) -> bool:
    """Return whether the node is clean but for the backoff of `ebb unmark`, and remove that."""
    annotations = api.objects["nodes"][name]["metadata"]["annotations"]
    begun: bool = annotations.pop(BACKOFF_ANNOTATION, "").endswith(" unmarked")
    return begun and is_clean(api, name)


def costs(api: FakeApi, name: str) -> dict[str, str]:
    found: dict[str, str] = api.documents[POD_PATH.format(name)]["metadata"]["annotations"]
    return found


async def test_cleanup_removes_only_keys_of_ebb(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = await run(capsys, "cleanup", "--all", "--kubeconfig", kubeconfig)
    assert (code, err) == (0, "")
    assert is_clean(api, "n1")
    assert is_clean(api, "n2")
    assert costs(api, "p1") == {}
    assert costs(api, "p2") == {COST_ANNOTATION: "-7"}
    assert out.splitlines()[-1] == "2 nodes and 2 pods cleaned up"
    code, out, _ = await run(capsys, "cleanup", "--all", "--kubeconfig", kubeconfig, "--dry-run")
    assert "n1" not in out


@pytest.mark.parametrize("told", [("cleanup", "--all"), ("unmark", "n1")])
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_cleanup_removes_deletion_cost_of_finished_pod(
    api: FakeApi,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    told: tuple[str, ...],
    phase: str,
) -> None:
    over = {"ours": costly("ours", "n1", "-7"), "theirs": costly("theirs", "n1", "-7")}
    del over["theirs"]["metadata"]["annotations"][COST_OURS_ANNOTATION]
    for name, pod in over.items():
        pod["status"]["phase"] = phase
        api.documents[POD_PATH.format(name)] = api.put("pods", pod)
    code, out, err = await run(capsys, *told, "--kubeconfig", kubeconfig)
    assert (code, err) == (0, "")
    assert "pod default/ours  cleaned up: deletion cost\n" in out
    assert costs(api, "ours") == {}
    assert costs(api, "theirs") == {COST_ANNOTATION: "-7"}


async def test_cleanup_removes_everything_that_earlier_version_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The objects are recorded from a real API server, when one program did all the work."""
    text = RECORDED.read_text()
    assert all(key in text for key in (*OLD_KEYS, *PROTECTION_KEYS, COST_OURS_ANNOTATION))
    recorded: dict[str, list[dict[str, Any]]] = orjson.loads(text)
    async with FakeApi() as api:
        for resource, objects in recorded.items():
            for one in objects:
                api.put(resource, one)
        for pod in recorded["pods"]:
            path = POD_PATH.format(pod["metadata"]["name"])
            api.documents[path] = api.objects["pods"][key_of(pod)]
        file = tmp_path / "kubeconfig"
        file.write_text(KUBECONFIG.format(url=api.url))
        code, _, err = await run(capsys, "cleanup", "--all", "--kubeconfig", str(file))
        assert (code, err) == (0, "")
        assert not api.objects["capacitybuffers"]
        assert not api.objects["podtemplates"]
        assert not any(
            api.documents[POD_PATH.format(pod["metadata"]["name"])]["metadata"].get("annotations")
            for pod in recorded["pods"]
        )
        for before in recorded["nodes"]:
            name = before["metadata"]["name"]
            assert without_ours(before) == without_ours(api.objects["nodes"][name])
            assert is_without_ours(api.objects["nodes"][name])


def without_ours(node: dict[str, Any]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return a Node's labels, annotations and taints without the keys that Ebb may write."""
    metadata = node["metadata"]
    annotations = metadata.get("annotations", {})
    protected = {PROTECTION_ANNOTATION, OLD_PROTECTION_ANNOTATION} & annotations.keys()
    keys = set(PROTECTION_KEYS if protected else ())
    keys |= {key for key in annotations if key.startswith(OUR_PREFIXES) and key != KEEP_ANNOTATION}
    taints = [taint["key"] for taint in node["spec"].get("taints") or ()]
    return (
        {
            key: value
            for key, value in metadata["labels"].items()
            if not key.startswith(OUR_PREFIXES)
        },
        {key: value for key, value in annotations.items() if key not in keys},
        [key for key in taints if key != TAINT_KEY],
    )


def is_without_ours(node: dict[str, Any]) -> bool:
    metadata = node["metadata"]
    taints = [taint["key"] for taint in node["spec"].get("taints") or ()]
    found = (metadata["labels"], metadata.get("annotations", {}), taints)
    return without_ours(node) == found


async def test_dry_run_writes_nothing(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = await run(capsys, "cleanup", "--all", "--dry-run", "--kubeconfig", kubeconfig)
    assert code == 0
    assert api.count("patch") == 0
    assert "node n1  would be cleaned up: " in out
    assert out.splitlines()[-1] == "2 nodes and 2 pods would be cleaned up"


async def test_cleanup_of_node_leaves_other_nodes_unchanged(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = await run(capsys, "unmark", "node/n1", "--kubeconfig", kubeconfig)
    assert code == 0
    assert out.splitlines()[-1] == "1 node and 1 pod cleaned up"
    assert has_backoff(api, "n1")
    assert not is_clean(api, "n2")
    assert costs(api, "p2") != {COST_ANNOTATION: "-7"}


async def test_unmark_writes_event_and_says_until_when_node_is_not_marked_again(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, err = await run(capsys, "unmark", "n1", "n3", "--kubeconfig", kubeconfig)
    assert err == ""
    backoff = backoff_of(api.objects["nodes"]["n1"]["metadata"]["annotations"])
    assert backoff is not None
    end = f"not marked again before {timestamp(backoff.until)}\n"
    assert end in out
    assert "node n3" not in out, "it had no mark"
    (event,) = (one for path, one in api.documents.items() if "/events/" in path)
    assert (event["reason"], event["regarding"]["name"]) == ("NodeUnmarked", "n1")
    for text in (timestamp(backoff.until), f"annotation {KEEP_ANNOTATION}=true"):
        assert text in event["note"]
    code, out, _ = await run(capsys, "unmark", "n1", "--kubeconfig", kubeconfig)
    assert code == 0
    assert "node n1" not in out, "the backoff remains"
    assert has_backoff(api, "n1")


async def test_unmark_warns_when_event_is_forbidden(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.fail_next("post", 403)
    code, out, err = await run(capsys, "unmark", "n1", "--kubeconfig", kubeconfig)
    assert code == 0
    assert err.startswith("ebb: node n1: it is unmarked, but its Event cannot be written: ")
    assert out.splitlines()[-1] == "1 node and 1 pod cleaned up"
    assert has_backoff(api, "n1")


async def test_cleanup_leaves_taints_of_others(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = marked("n3")
    odd["spec"]["taints"] = [
        {"key": key, "value": "1700000000", "effect": "NoSchedule"}
        for key in ("theirs", TAINT_KEY)
    ]
    api.put("nodes", odd)
    code, _, _ = await run(capsys, "cleanup", "--all", "--kubeconfig", kubeconfig)
    assert code == 0
    assert [one["key"] for one in api.objects["nodes"]["n3"]["spec"]["taints"]] == ["theirs"]


async def test_cleanup_retries_node_when_write_conflicts(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.fail_next("patch", 409)
    code, _, _ = await run(capsys, "unmark", "n1", "--kubeconfig", kubeconfig)
    assert code == 0
    assert has_backoff(api, "n1")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("cleanup",), "ebb: cleanup: use --all, or `ebb unmark NODE` for single nodes\n"),
        (("unmark", "n9"), "ebb: node n9: not found\n"),
    ],
)
async def test_cleanup_rejects_invalid_arguments(
    api: FakeApi,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    problem: str,
) -> None:
    given = (*arguments, "--yes", "--kubeconfig", kubeconfig)
    code, out, err = await run_any(capsys, *given)
    assert (code, err) == (2, problem)
    assert out in ("", f"cluster it, {api.url}\n")
    assert api.count("patch") == 0


@pytest.mark.parametrize("status", [400, 403, 413, 422])
@pytest.mark.parametrize(("turn", "name"), [(0, "node n1"), (2, "node n2"), (4, "pod default/p1")])
async def test_cleanup_continues_when_write_of_one_object_is_rejected(
    api: FakeApi,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    turn: int,
    name: str,
    status: int,
) -> None:
    for _ in range(turn):
        api.pass_next("patch")
    api.fail_next("patch", status)
    code, out, err = await run(capsys, "cleanup", "--all", "--kubeconfig", kubeconfig)
    told, summary = err.splitlines()
    assert code == 2
    assert told.startswith(f"ebb: {name}: API server answered {status}: ")
    assert (
        summary == "ebb: 1 object could not be changed, as listed above; all others are cleaned up"
    )
    cleaned = {line.partition("  ")[0] for line in out.splitlines()}
    all_of_ours = {"node n1", "node n2", "pod default/p1", "pod default/p2"}
    assert cleaned == all_of_ours - {name}


async def test_cleanup_continues_when_node_conflicts_on_every_try(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.fail_next("patch", 409, times=TRIES_MAX)
    code, _, err = await run(capsys, "cleanup", "--all", "--kubeconfig", kubeconfig)
    assert code == 2
    assert err.startswith("ebb: node n1: another client keeps changing the object")
    assert is_clean(api, "n2")


async def test_cleanup_continues_with_pods_when_deletion_of_buffer_is_forbidden(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = {"name": "b", "namespace": NAMESPACE, "labels": {BUFFER_OURS_LABEL: ""}}
    api.put("capacitybuffers", {"metadata": metadata})
    api.fail_next("delete", 403)
    code, _, err = await run(capsys, "cleanup", "--all", "--kubeconfig", kubeconfig)
    assert code == 2
    assert err.startswith(f"ebb: buffer {NAMESPACE}/b: API server answered 403: ")
    assert costs(api, "p1") == {}


@pytest.mark.parametrize(
    "words",
    [
        'admission webhook "keep.example.com" denied the request: no',
        'admission webhook "keep.example.com" denied the request without explanation',
        'nodes "m" is forbidden: ValidatingAdmissionPolicy "keep" denied request: User "x" may',
        f"nodes \"{'n' * 250}\" is forbidden: ValidatingAdmissionPolicy 'keep' denied request: no",
        'nodes "m" is forbidden: is not allowed to modify taints',
    ],
)
async def test_cleanup_continues_when_admission_denies_many_nodes(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    denied = 2 * FORBIDDEN_MAX
    for number in range(denied):
        api.put("nodes", marked(f"a-{number}"))
    forbid(api, words, times=denied)
    code, _, err = await run(capsys, "cleanup", "--all", "--kubeconfig", kubeconfig)
    *told, summary = err.splitlines()
    assert (code, len(told)) == (2, denied)
    assert (
        summary == f"ebb: {denied} objects could not be changed, as listed above; "
        "all others are cleaned up"
    )
    assert is_clean(api, "n1")
    assert costs(api, "p1") == {}


DENIED = "denied request: no"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            401,
            f"nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'k' with binding 'b' {DENIED}",
        ),
        (
            413,
            f"nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'k' with binding 'b' {DENIED}",
        ),
        (
            422,
            f"nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'k' with binding 'b' {DENIED}",
        ),
        (401, 'admission webhook "keep.example.com" denied the request: who are you?'),
        (500, 'admission webhook "keep.example.com" denied the request: no'),
    ],
)
async def test_cleanup_continues_when_admission_denies_node_with_any_status(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str], status: int, words: str
) -> None:
    api.put("nodes", marked("n2"))
    forbid(api, words, times=1, status=status)
    code, _, err = await run(capsys, "cleanup", "--all", "--kubeconfig", kubeconfig)
    told, summary = err.splitlines()
    assert code == 2
    assert told.startswith(f"ebb: node n1: API server answered {status}: {words[:60]}")
    assert (
        summary == "ebb: 1 object could not be changed, as listed above; all others are cleaned up"
    )
    assert (is_clean(api, "n1"), is_clean(api, "n2")) == (False, True)
    assert costs(api, "p1") == {}


@pytest.mark.parametrize(
    "words", ["Unauthorized", 'nodes "n1" is forbidden: User "x" cannot patch resource "nodes"']
)
async def test_cleanup_stops_when_token_is_invalid(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    forbid(api, words, times=2, status=401)
    code, out, err = await run(capsys, "cleanup", "--all", "--kubeconfig", kubeconfig)
    assert (code, out) == (2, "")
    told = f"ebb: node n1: API server answered 401: {words}"
    assert err == f"{told}; the remaining objects were not tried\n"
    assert api.count("patch") == 1


@pytest.mark.parametrize("status", [401, 500])
async def test_cleanup_stops_when_error_applies_to_all_objects(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    api.fail_next("patch", status)
    code, out, err = await run(capsys, "cleanup", "--all", "--kubeconfig", kubeconfig)
    assert (code, out) == (2, "")
    assert err.startswith(f"ebb: node n1: API server answered {status}: ")
    assert err.endswith("; the remaining objects were not tried\n")
    assert api.count("patch") == 1


@pytest.mark.parametrize(
    "words",
    [
        'nodes "m" is forbidden: User "x" cannot patch resource "nodes" in API group ""',
        'nodes is forbidden: User "admission webhook \\"keep\\" denied" cannot patch',
        "what a proxy on the way says",
    ],
)
async def test_cleanup_stops_when_permission_is_missing(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    for number in range(FORBIDDEN_MAX):
        api.put("nodes", marked(f"more-{number}"))
    forbid(api, words, times=2 * FORBIDDEN_MAX)
    code, out, err = await run(capsys, "cleanup", "--all", "--kubeconfig", kubeconfig)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith("; the remaining objects were not tried")
    assert api.count("patch") == FORBIDDEN_MAX


BEGUN = 1_767_225_600
NOTE = MoveNote(BEGUN, BEGUN + 600)


def of_replica_set(
    api: FakeApi, name: str, labels: dict[str, str], *, second: int, ready: bool, **meta: Any
) -> None:
    """Add a pod of ReplicaSet web-h that was created *second* seconds after the move began."""
    found = pod_object(name, node="n3", phase="Running" if ready else "Pending")
    controller = {"kind": "ReplicaSet", "name": "web-h", "uid": "u", "controller": True}
    created = datetime.fromtimestamp(BEGUN + second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found["metadata"] |= {
        "uid": f"uid-{name}",
        "labels": {"app": "web", **labels},
        "ownerReferences": [controller],
        "creationTimestamp": created,
        **meta,
    }
    found["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]
    api.put("pods", found)


def detach(
    api: FakeApi, *, new_ready: bool = True, cost: int = MOVE_COST, by_hand: bool = False
) -> None:
    """Add a detached pod, a pod that has replaced it, and one that was there before."""
    of_replica_set(
        api,
        "old",
        {DETACHED_LABEL: "h", **({TEMPLATE_LABEL: "h"} if by_hand else {})},
        second=-600,
        ready=True,
        annotations={
            COST_ANNOTATION: str(cost),
            COST_OURS_ANNOTATION: str(MOVE_COST),
            MOVE_ANNOTATION: NOTE.encode(),
        },
        ownerReferences=[{"kind": "ReplicaSet", "name": "web-h", "uid": "u", "controller": False}],
    )
    of_replica_set(api, "other", {TEMPLATE_LABEL: "h"}, second=-600, ready=True)
    of_replica_set(api, "new", {TEMPLATE_LABEL: "h"}, second=1, ready=new_ready)


def metadata(api: FakeApi, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations of a pod."""
    found = api.objects["pods"][f"default/{name}"]["metadata"]
    return found["labels"], found.get("annotations", {})


ATTACHED = {"app": "web", TEMPLATE_LABEL: "h"}
LOWEST = {COST_ANNOTATION: str(UNDO_COST), COST_OURS_ANNOTATION: str(UNDO_COST)}


@pytest.mark.parametrize("new_ready", [True, False])
async def test_cleanup_attaches_pod_after_lowering_cost_of_ready_new_pod(
    api: FakeApi,
    capsys: pytest.CaptureFixture[str],
    installed: tuple[str, tuple[str, ...]],
    *,
    new_ready: bool,
) -> None:
    detach(api, new_ready=new_ready)
    before = metadata(api, "old")
    assert (await run(capsys, "unmark", "n3", *installed[1]))[0] == 0
    assert metadata(api, "old") == before, "nothing else has the hash"
    told = "surge move ended, pod attached to its ReplicaSet"
    code, out, _ = await run(capsys, "cleanup", "--all", "--dry-run", *installed[1])
    assert (code, metadata(api, "old")) == (0, before)
    assert out.splitlines()[0] == f"pod default/old  would be cleaned up: {told}"
    api.history.clear()
    code, out, _ = await run(capsys, "cleanup", "--all", *installed[1])
    assert code == 0
    assert out.splitlines()[0] == f"pod default/old  cleaned up: {told}"
    assert metadata(api, "old") == (ATTACHED, {})
    assert metadata(api, "new")[1] == (LOWEST if new_ready else {})
    assert metadata(api, "other") == (ATTACHED, {})
    order = [obj["metadata"]["name"] for _, kind, _, obj in api.history if kind == "pods"]
    assert order == (["new", "old"] if new_ready else ["old"])


async def test_cleanup_attaches_failed_pod_and_leaves_new_pod_alone(
    api: FakeApi, capsys: pytest.CaptureFixture[str], installed: tuple[str, tuple[str, ...]]
) -> None:
    detach(api)
    failed = api.objects["pods"]["default/old"]
    failed["status"] = {"phase": "Failed"}
    assert (await run(capsys, "cleanup", "--all", *installed[1]))[0] == 0
    assert metadata(api, "old") == (ATTACHED, {})
    assert metadata(api, "new") == (ATTACHED, {})


async def test_cleanup_removes_label_of_pod_that_was_attached_by_hand(
    api: FakeApi, capsys: pytest.CaptureFixture[str], installed: tuple[str, tuple[str, ...]]
) -> None:
    detach(api, by_hand=True)
    assert (await run(capsys, "cleanup", "--all", *installed[1]))[0] == 0
    assert metadata(api, "old") == (ATTACHED, {})
    assert metadata(api, "new") == (ATTACHED, {})


async def test_cleanup_keeps_cost_of_others_on_attached_pod(
    api: FakeApi, capsys: pytest.CaptureFixture[str], installed: tuple[str, tuple[str, ...]]
) -> None:
    detach(api, cost=7)
    assert (await run(capsys, "cleanup", "--all", *installed[1]))[0] == 0
    assert metadata(api, "old") == (ATTACHED, {COST_ANNOTATION: "7"})


@pytest.mark.parametrize("refused", ["cost of the new pod", "old pod"])
async def test_cleanup_continues_when_one_write_of_a_move_is_refused(
    api: FakeApi,
    capsys: pytest.CaptureFixture[str],
    installed: tuple[str, tuple[str, ...]],
    refused: str,
) -> None:
    detach(api)
    of_replica_set(api, "second", {DETACHED_LABEL: "g"}, second=-600, ready=True)
    before = metadata(api, "old")
    if refused == "old pod":
        api.pass_next("patch")
    forbid(api, "the policy says no", times=1)
    code, out, err = await run(capsys, "cleanup", "--all", *installed[1])
    if refused == "old pod":
        assert (code, metadata(api, "old")) == (2, before)
        assert "pod default/old: API server answered 403" in err
        assert "pod default/old" not in out
    else:
        assert (code, metadata(api, "old")) == (0, (ATTACHED, {}))
    assert metadata(api, "second")[0] == {"app": "web", TEMPLATE_LABEL: "g"}
    assert is_clean(api, "n1")


@pytest.mark.parametrize(
    ("data", "warned"),
    [
        (None, False),
        ({}, False),
        ({"pause.a": "{}", "begun": "{}"}, False),
        ({"move.a": "{}", "move.b": "{}"}, True),
    ],
)
async def test_cleanup_warns_of_records_of_older_version(
    api: FakeApi,
    capsys: pytest.CaptureFixture[str],
    installed: tuple[str, tuple[str, ...]],
    data: dict[str, str] | None,
    *,
    warned: bool,
) -> None:
    home, where = installed
    if data is not None:
        api.put("configmaps", {"metadata": {"name": "ebb-moves", "namespace": home}, "data": data})
    code, _, err = await run(capsys, "cleanup", "--all", *where)
    assert code == 0
    command = f"kubectl -n {home} delete configmap ebb-moves"
    assert (
        f"configmap {home}/ebb-moves: an older version of Ebb has recorded 2 surge moves" in err
    ) is (warned)
    assert (command in err) is warned
    api.denied.add("configmaps")
    assert (await run(capsys, "cleanup", "--all", *where))[::2] == (0, "")


@pytest.mark.parametrize(("dry_run", "left"), [((), 0), (("--dry-run",), 2)])
async def test_cleanup_stops_controller_first(
    api: FakeApi,
    capsys: pytest.CaptureFixture[str],
    installed: tuple[str, tuple[str, ...]],
    dry_run: tuple[str, ...],
    left: int,
) -> None:
    home, where = installed
    found = deployment_object("ebb-controller", 2)
    found["metadata"]["namespace"] = home
    api.put("deployments", found)  # without a Lease, nobody leads
    code, out, _ = await run(capsys, "cleanup", "--all", "--stop-controller", *dry_run, *where)
    assert code == 0
    first = (
        f"deployment {home}/ebb-controller  {'would be ' * bool(dry_run)}cleaned up: scaled to 0"
    )
    assert out.splitlines()[0] == first
    assert api.objects["deployments"][f"{home}/ebb-controller"]["spec"]["replicas"] == left
    assert is_clean(api, "n1") is not bool(dry_run)


async def test_cleanup_removes_nothing_when_controller_cannot_be_stopped(
    api: FakeApi, capsys: pytest.CaptureFixture[str], installed: tuple[str, tuple[str, ...]]
) -> None:
    api.denied.add("deployments/scale")
    code, _, err = await run(capsys, "cleanup", "--all", "--stop-controller", *installed[1])
    assert code == 2
    assert "/ebb-controller: API server answered 403" in err
    assert "Nothing was cleaned up" in err
    assert not is_clean(api, "n1")


@pytest.mark.parametrize(
    ("holder", "code", "said"),
    [
        ("laptop", 2, "the Deployment does not exist, but the controller laptop holds the Lease"),
        ("", 0, "does not exist, and nobody holds the Lease"),
    ],
)
async def test_cleanup_says_at_once_when_deployment_does_not_exist(
    api: FakeApi,
    capsys: pytest.CaptureFixture[str],
    installed: tuple[str, tuple[str, ...]],
    holder: str,
    code: int,
    said: str,
) -> None:
    home, where = installed
    path = f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases/ebb-controller"
    api.documents[path] = {
        "metadata": {"name": "ebb-controller", "namespace": home, "resourceVersion": "1"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    }
    arguments = ("cleanup", "--all", "--stop-controller", "--dry-run", *where)
    found, _, err = await run(capsys, *arguments)
    assert found == code
    assert f"deployment {home}/ebb-controller" in err
    assert said in err
    assert not is_clean(api, "n1")
