"""`ebb unmark` and `ebb cleanup`, the commands that write, over a real socket."""

import asyncio
import os
import pty
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from controller.taint_key import KEY_ANNOTATION
from core.marks.mark import Details, encode_details
from core.marks.wellknown import (
    BUFFER_OURS_LABEL,
    COST_ANNOTATION,
    COST_OURS_ANNOTATION,
    DETAILS_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
    OLD_PROTECTION_ANNOTATION,
    OUR_PREFIXES,
    PROTECTION_ANNOTATION,
    PROTECTION_KEYS,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.moves.records import CONFIG_MAP, MoveRecords, MoveStep, encode
from kube.decode.kinds import BUFFERS
from kube.stores.objects import FORBIDDEN_MAX, TRIES_MAX
from kube.target import NAMESPACE
from tests.cli.test_source import run as run_any
from tests.support.fake_api import FakeApi
from tests.support.fake_deployments import NAMESPACE as MOVING
from tests.support.fake_deployments import FakeDeployments, deployment_object, nodes_of
from tests.support.fake_objects import KUBECONFIG, key_of, node_object, pod_object
from tests.support.plan_cli import COMMAND, ROOT, ebb
from tests.support.surge import make_record

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
    code, out, _ = await run(capsys, "unmark", "n1", "--kubeconfig", kubeconfig)
    assert code == 0
    assert out.splitlines()[-1] == "1 node and 1 pod cleaned up"
    assert is_clean(api, "n1")
    assert not is_clean(api, "n2")
    assert costs(api, "p2") != {COST_ANNOTATION: "-7"}


def record(api: FakeApi, home: str, key: str) -> str:
    """Create a Lease that records a taint key; return its path."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases/ebb-controller"
    spec = {"holderIdentity": "", "leaseTransitions": 7}
    metadata = {"annotations": {KEY_ANNOTATION: key, "theirs": "1"}}
    api.put_document(path, {"metadata": metadata, "spec": spec})
    return path


def tainted(api: FakeApi, *keys: str) -> None:
    """Add a marked node with taints of these keys."""
    odd = marked("n3")
    odd["spec"]["taints"] = [
        {"key": key, "value": "1700000000", "effect": "NoSchedule"} for key in keys
    ]
    api.put("nodes", odd)


def keys_left(api: FakeApi) -> list[str]:
    return [one["key"] for one in api.objects["nodes"]["n3"]["spec"]["taints"]]


async def test_cleanup_removes_taints_of_recorded_key(
    api: FakeApi, capsys: pytest.CaptureFixture[str], installed: tuple[str, tuple[str, ...]]
) -> None:
    home, where = installed
    path = record(api, home, "old")
    tainted(api, "theirs", "old", "older")
    code, out, _ = await run(capsys, "cleanup", "--all", *where)
    assert code == 0
    assert keys_left(api) == ["theirs", "older"]
    assert "\nlease " not in out
    assert api.documents[path]["metadata"]["annotations"][KEY_ANNOTATION] == "old", "still in use"


async def test_cleanup_removes_given_taint_key_from_nodes_and_lease(
    api: FakeApi, capsys: pytest.CaptureFixture[str], installed: tuple[str, tuple[str, ...]]
) -> None:
    home, where = installed
    path = record(api, home, "old")
    tainted(api, "theirs", "old", "older")
    dry = await run(capsys, "cleanup", "--all", "--taint-key", "old", "--dry-run", *where)
    told = f"lease {home}/ebb-controller  would be cleaned up: taint key old\n"
    assert (dry[0], told in dry[1]) == (0, True)
    assert api.documents[path]["metadata"]["annotations"][KEY_ANNOTATION] == "old"
    code, out, _ = await run(capsys, "cleanup", "--all", "--taint-key", "old", *where)
    assert code == 0
    assert f"lease {home}/ebb-controller  cleaned up: taint key old\n" in out
    assert keys_left(api) == ["theirs", "older"]
    assert api.documents[path]["metadata"]["annotations"] == {"theirs": "1"}
    assert api.documents[path]["spec"]["leaseTransitions"] == 7


async def test_cleanup_leaves_other_recorded_key_unchanged(
    api: FakeApi, capsys: pytest.CaptureFixture[str], installed: tuple[str, tuple[str, ...]]
) -> None:
    home, where = installed
    path = record(api, home, "new")
    tainted(api, "theirs", "old", "new")
    code, out, _ = await run(capsys, "cleanup", "--all", "--taint-key", "old", *where)
    assert (code, "\nlease " in out) == (0, False)
    assert keys_left(api) == ["theirs", "new"]
    assert api.documents[path]["metadata"]["annotations"][KEY_ANNOTATION] == "new"


async def test_taint_key_remains_recorded_when_node_is_not_cleaned_up(
    api: FakeApi, capsys: pytest.CaptureFixture[str], installed: tuple[str, tuple[str, ...]]
) -> None:
    home, where = installed
    path = record(api, home, "old")
    tainted(api, "old")
    api.fail_next("patch", 403)
    code, out, _ = await run(capsys, "cleanup", "--all", "--taint-key", "old", *where)
    assert (code, "\nlease " in out) == (2, False)
    assert api.documents[path]["metadata"]["annotations"][KEY_ANNOTATION] == "old"


OWN_KEY = "own.example/key"


def marked_under_another_key(name: str) -> dict[str, Any]:
    found = marked(name)
    details = Details(since=1700000000, deadline=1700009000, owner="o", policy="p", reason="r")
    found["metadata"]["annotations"][DETAILS_ANNOTATION] = encode_details(details)
    found["spec"]["taints"][1] |= {"key": OWN_KEY, "value": "1700000000"}
    return found


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
async def test_cleanup_reports_taint_of_unknown_key_that_may_be_of_ebb(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str], dry_run: tuple[str, ...]
) -> None:
    """The Lease that records the key is deleted together with the manifests."""
    api.put("nodes", marked_under_another_key("n3"))
    code, _, err = await run(capsys, "cleanup", "--all", "--kubeconfig", kubeconfig, *dry_run)
    assert code == 0
    assert err == (
        f"ebb: node n3: the taint {OWN_KEY} may be Ebb's, and was not removed. "
        "If it is the taintKey of the installed configuration, use --config with that file, or "
        "--taint-key\n"
    )
    left = [one["key"] for one in api.objects["nodes"]["n3"]["spec"]["taints"]]
    assert left == ["theirs", OWN_KEY]


async def test_cleanup_reads_taint_key_from_configuration(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    api.put("nodes", marked_under_another_key("n3"))
    file = tmp_path / "ebb.yaml"
    file.write_text(
        f"apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\ntaintKey: {OWN_KEY}\n"
    )
    told = ("--kubeconfig", kubeconfig, "--config", str(file))
    code, _, err = await run(capsys, "unmark", "n3", *told)
    assert (code, err) == (0, "")
    assert is_clean(api, "n3")


async def test_cleanup_retries_node_when_write_conflicts(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.fail_next("patch", 409)
    code, _, _ = await run(capsys, "unmark", "n1", "--kubeconfig", kubeconfig)
    assert code == 0
    assert is_clean(api, "n1")


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
    assert err.startswith("ebb: node n1: n1: others changed the object during 5 attempts")
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


def moving(
    api: FakeApi, home: str, *, manager: str = "kube-ebb", replicas: int = 3, pod_uid: str = "old"
) -> str:
    """Add a Deployment whose replicas a surge move has raised from 2 to 3; return its key."""
    found = deployment_object("web", replicas)
    owned: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
    found["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": owned}]
    api.put("deployments", found)
    api.documents[f"/apis/apps/v1/namespaces/{MOVING}/deployments/web"] = found
    record = make_record(
        namespace=MOVING,
        uid="uid-web",
        original=2,
        raised=3,
        step=MoveStep.RAISED,
        pod_uid=pod_uid,
    )
    data = encode(MoveRecords(moves={"uid-web": record}))
    api.put("configmaps", {"metadata": {"name": CONFIG_MAP, "namespace": home}, "data": data})
    return f"{MOVING}/web"


@pytest.mark.parametrize(
    ("manager", "replicas", "after"), [("kube-ebb", 3, 2), ("kubectl", 3, 3), ("kubectl", 7, 7)]
)
async def test_cleanup_ends_surge_moves(
    api: FakeApi,
    capsys: pytest.CaptureFixture[str],
    installed: tuple[str, tuple[str, ...]],
    manager: str,
    replicas: int,
    after: int,
) -> None:
    home, where = installed
    key = moving(api, home, manager=manager, replicas=replicas)
    for arguments in (("unmark", "n1"), ("cleanup", "--all", "--dry-run")):
        assert (await run(capsys, *arguments, *where))[0] == 0
        assert api.objects["deployments"][key]["spec"]["replicas"] == replicas
    code, out, _ = await run(capsys, "cleanup", "--all", *where)
    assert code == 0
    assert f"deployment {key}  cleaned up: replicas of a surge move set back from 3 to 2" in out
    assert api.objects["deployments"][key]["spec"]["replicas"] == after
    assert api.objects["configmaps"][f"{home}/{CONFIG_MAP}"]["data"] == {}


async def test_cleanup_lets_new_pod_of_move_be_deleted(
    api: FakeApi, capsys: pytest.CaptureFixture[str], installed: tuple[str, tuple[str, ...]]
) -> None:
    home, where = installed
    deployments = FakeDeployments(api)
    deployments.create("web", "n1", "n2", "n2")
    moving(api, home, pod_uid="uid-pod-1")
    assert (await run(capsys, "cleanup", "--all", *where))[0] == 0
    deployments.step()
    assert nodes_of(deployments.pods("web")) == ["n1", "n2"]


@pytest.mark.parametrize("resource", ["configmaps", "deployments/scale"])
async def test_cleanup_names_moves_that_rbac_does_not_let_it_end(
    api: FakeApi,
    capsys: pytest.CaptureFixture[str],
    installed: tuple[str, tuple[str, ...]],
    resource: str,
) -> None:
    home, where = installed
    key = moving(api, home)
    api.denied.add(resource)
    code, out, err = await run(capsys, "cleanup", "--all", *where)
    assert code == 2
    assert "pod default/p1" in out, "all others are cleaned up"
    assert ("deployment shop/web: API server answered 403" in err) is (resource != "configmaps")
    assert ("replicas of these Deployments remain raised" in err) is (resource == "configmaps")
    assert api.objects["deployments"][key]["spec"]["replicas"] == 3
    assert api.objects["configmaps"][f"{home}/{CONFIG_MAP}"]["data"], "the record remains"


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
    assert "nothing was cleaned up" in err
    assert not is_clean(api, "n1")


@pytest.mark.parametrize(
    ("holder", "code", "said"),
    [
        ("laptop", 2, "it does not exist, but laptop holds the Lease"),
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
