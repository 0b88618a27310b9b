"""The input of a command: how it finds a cluster, and reads it over a real socket."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import ebb as ebb_command
from cli.__main__ import main
from cli.input.cluster_options import kubeconfig_of
from cli.input.live import progress_shown
from controller.names import LEASE as LEASE_NAME
from core.model.errors import InvalidInputError
from kube.client import PAGE_OBJECTS
from kube.cluster_kinds import CLUSTER_KINDS
from kube.decode.kinds import BUFFERS, NODES, PODS, STATUSES, AnyKind, Kind
from kube.listing import Listed
from kube.target import NAMESPACE
from runtime.clock import micro_time
from tests.core.engine.test_buffers import TEMPLATE, written
from tests.platforms.objects import autoscaler_status
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import KUBECONFIG, node_object, pod_object
from tests.support.plan_cli import ebb

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE_NAME}"
DENIED = "API server answered 403: the fake API says 403"
NO_REPORT = (
    "Warning: the pod pod-a of the leader does not exist in namespace ebb-system, so delays, "
    "peak demand, cooldowns, surge moves and decisions are unknown\n"
)
PODS_COUNT = 2 * PAGE_OBJECTS + 3


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as made:
        for number in range(12):
            made.put("nodes", node_object(f"n{number:02}"))
        for number in range(PODS_COUNT):
            pod = pod_object(f"p{number:04}", node=f"n{number % 12:02}")
            pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1m", "memory": "1Mi"}
            made.put("pods", pod)
        made.put(STATUSES.resource, autoscaler_status({}))  # else plan and status warn
        yield made


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path) -> str:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG.format(url=api.url))
    return str(file)


async def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = await asyncio.to_thread(main, arguments)
    return status, *capsys.readouterr()


async def seen(capsys: pytest.CaptureFixture[str], kubeconfig: str, *arguments: str) -> Any:
    status, out, err = await run(capsys, *arguments, "--kubeconfig", kubeconfig, "-o", "json")
    assert (status, err) == (0, "")
    return json.loads(out)


class TestLive:
    async def test_commands_read_all_pages_of_list(
        self, api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = await seen(capsys, kubeconfig, "plan")
        assert plan["before"]["nodes"] == 12
        assert plan["before"]["requests"]["cpu"] == PODS_COUNT
        pages = [call for call in api.calls if call.resource == "pods"]
        assert len(pages) == 3
        assert {call.verb for call in api.calls} == {"get", "list"}
        found = await seen(capsys, kubeconfig, "explain", "pod", f"default/p{PODS_COUNT - 1:04}")
        assert found["node"] == f"n{(PODS_COUNT - 1) % 12:02}"
        found = await seen(capsys, kubeconfig, "explain", "node", "n03")
        assert found["pods"]["all"] == len(range(3, PODS_COUNT, 12))

    async def test_status_shows_leader(
        self, api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        renewed = 1_700_000_000
        spec = {
            "holderIdentity": "pod-a_12",
            "leaseDurationSeconds": 15,
            "renewTime": micro_time(renewed),
        }
        api.put_document(LEASE, {"metadata": {"name": LEASE_NAME}, "spec": spec})
        status, out, err = await run(capsys, "status", "--kubeconfig", kubeconfig, "-o", "json")
        assert (status, err) == (0, NO_REPORT)
        assert json.loads(out)["leader"] == {
            "lease": f"{NAMESPACE}/{LEASE_NAME}",
            "holder": "pod-a_12",
            "renewed": renewed,
            "durationSeconds": 15,
            "problem": None,
        }

    async def test_status_reports_problem_when_lease_is_missing_or_forbidden(
        self, api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        leader = (await seen(capsys, kubeconfig, "status"))["leader"]
        assert leader["problem"] == "not found, as no controller has run yet"
        api.fail_next("get", 403)
        told = ["status", "--ebb-namespace", "other", "--kubeconfig", kubeconfig, "-o", "json"]
        status, out, err = await run(capsys, *told)
        leader = json.loads(out)["leader"]
        assert leader["lease"] == f"other/{LEASE_NAME}"
        assert "403" in leader["problem"]
        assert (status, err) == (
            0,
            f"Warning: cannot read the Lease other/{LEASE_NAME}: {DENIED}\n",
        )

    async def test_list_is_restarted_when_continue_token_expires(
        self, api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for _ in range(2):  # nodes, and the first page of pods
            api.pass_next("list")
        api.fail_next("list", 410)
        plan = await seen(capsys, kubeconfig, "plan")
        assert plan["before"]["requests"]["cpu"] == PODS_COUNT

    @pytest.mark.parametrize("status", [403, 410])
    async def test_rejected_list_is_reported_in_one_line_with_exit_code_2(
        self,
        api: FakeApi,
        kubeconfig: str,
        capsys: pytest.CaptureFixture[str],
        status: int,
    ) -> None:
        api.fail_next("list", status, times=3)
        code, out, err = await run(capsys, "plan", "--kubeconfig", kubeconfig)
        assert (code, out) == (2, "")
        assert err == f"ebb: API server answered {status}: the fake API says {status}\n"

    async def test_plan_reads_capacitybuffers_when_kind_exists(
        self, api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        api.put("podtemplates", TEMPLATE)
        api.put("capacitybuffers", written())
        plan = await seen(capsys, kubeconfig, "plan")
        assert [one["buffer"] for one in plan["buffers"]] == ["shop/b"]
        api.served -= set(BUFFERS.paths)
        code, _, err = await run(capsys, "plan", "--kubeconfig", kubeconfig)
        assert (code, err) == (0, ""), "most clusters have no such kind"

    async def test_plan_reports_forbidden_capacitybuffers_and_continues(
        self, api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        api.denied.add("capacitybuffers")
        code, _, err = await run(capsys, "plan", "--kubeconfig", kubeconfig)
        assert code == 0
        assert err == f"Warning: cannot read capacitybuffers: {DENIED}\n"

    @pytest.mark.parametrize("status", [403, 404])
    async def test_only_nodes_and_pods_are_required(
        self, api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str], status: int
    ) -> None:
        required = {NODES.resource, PODS.resource}
        others = [kind for kind in CLUSTER_KINDS if kind.resource not in required]
        if status == 403:
            api.denied = {kind.resource for kind in others}
        else:
            api.served = {kind.path for kind in (NODES, PODS)}
        given = ("plan", "--kubeconfig", kubeconfig, "-o", "json")
        code, out, err = await run(capsys, *given)
        assert code == 0
        found = json.loads(out)
        assert found["before"]["nodes"] == 12
        told = [line.removeprefix("Warning: ") for line in err.splitlines()]
        assert told == found["notRead"]
        config_unread = any(line.startswith("cannot read the ConfigMap ") for line in told)
        assert config_unread == (status == 403)
        assert found["headline"]["mode"] == (None if config_unread else "observe")
        told = [line for line in told if not line.startswith("cannot read the ConfigMap ")]
        named = [line.split()[2].rstrip(",:") for line in told]
        expected = [one for one in others if status == 403 or not one.optional]
        assert named == [one.resource for one in expected]
        assert "cannot read poddisruptionbudgets, so pods that a PodDisruptionBudget prot" in err

    async def test_mode_is_unknown_when_configuration_cannot_be_read(
        self, api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        api.denied = {"configmaps", "leases"}
        _, out, _ = await run(capsys, "status", "--kubeconfig", kubeconfig)
        assert "(if the mode is enforce, which is unknown)" in out

    @pytest.mark.parametrize("kind", [NODES, PODS])
    async def test_forbidden_nodes_or_pods_are_error(
        self, api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str], kind: AnyKind
    ) -> None:
        api.denied.add(kind.resource)
        code, out, err = await run(capsys, "plan", "--kubeconfig", kubeconfig)
        assert (code, out, err) == (2, "", f"ebb: {DENIED}\n")

    async def test_lists_outside_cluster_are_compressed(
        self, api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        await seen(capsys, kubeconfig, "plan")
        asked = {(call.verb, call.headers["Accept-Encoding"]) for call in api.calls}
        assert asked == {("list", "gzip"), ("get", "identity")}

    async def test_unreadable_pods_are_reported_and_block_removal_of_their_node(
        self, api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for number in range(7):
            odd = pod_object(f"odd{number}", node="n00")
            odd["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "much"}
            api.put("pods", odd)
        code, out, err = await run(capsys, "plan", "--kubeconfig", kubeconfig)
        assert code == 0
        assert err.startswith("ebb: cannot read: pods odd0: Pod default/odd0: ")
        assert "'much'" in err
        assert err.endswith("ebb: cannot read 2 more objects\n")
        assert err.count("\n") == 6
        assert "pod-unreadable" in out

    async def test_unreachable_api_server_is_reported_in_one_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "kubeconfig"
        file.write_text(KUBECONFIG.format(url="http://127.0.0.1:9"))
        code, _, err = await run(capsys, "status", "--kubeconfig", str(file))
        assert code == 2
        assert err.startswith("ebb: API server: ")
        assert err.count("\n") == 1

    async def test_kubeconfig_is_read_from_environment(
        self, api: FakeApi, kubeconfig: str
    ) -> None:
        done = await asyncio.to_thread(ebb, "status", "-o", "json", KUBECONFIG=kubeconfig)
        assert (done.returncode, done.stderr) == (0, b"")
        assert json.loads(done.stdout)["source"] == f"live cluster, {kubeconfig}"
        assert api.count("list")

    async def test_user_and_group_of_command_line_are_impersonated(
        self, api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given = ("--as", "ann", "--as-group", "dev", "--request-timeout", "30s")
        await seen(capsys, kubeconfig, "plan", *given)
        headers = ("Impersonate-User", "Impersonate-Group")
        asked = {tuple(call.headers[name] for name in headers) for call in api.calls}
        assert asked == {("ann", "dev")}

    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            (["--as-group", "dev"], "--as-group: needs --as"),
            (["--user", "me"], "--user: 'me'; allowed: one of the users: it"),
            (["--request-timeout", "soon"], "'soon'; allowed: a duration such as 30s or 1m30s"),
        ],
    )
    async def test_invalid_connection_option_is_rejected(
        self,
        kubeconfig: str,
        capsys: pytest.CaptureFixture[str],
        given: list[str],
        problem: str,
    ) -> None:
        code, _, err = await run(capsys, "plan", "--kubeconfig", kubeconfig, *given)
        assert code == 2
        assert err.rstrip().endswith(problem)


class TestContexts:
    @pytest.fixture
    def two(self, kubeconfig: str, tmp_path: Path) -> str:
        """Return two files; the first has the current context, whose server is unreachable."""
        other = tmp_path / "other"
        nobody = KUBECONFIG.format(url="http://127.0.0.1:9").replace("name: it", "name: nobody")
        other.write_text(nobody.replace(": it", ": nobody"))
        return f"{other}:{kubeconfig}"

    @pytest.mark.parametrize(
        "command",
        [["plan"], ["status"], ["explain", "node", "n03"], ["cleanup", "--all", "--yes"]],
    )
    async def test_context_option_selects_context_of_several_files(
        self, api: FakeApi, two: str, command: list[str]
    ) -> None:
        done = await asyncio.to_thread(ebb, *command, KUBECONFIG=two)
        assert done.returncode == 2
        assert done.stderr.startswith(b"ebb: API server: ")
        done = await asyncio.to_thread(ebb, *command, "--context", "it", KUBECONFIG=two)
        assert (done.returncode, done.stderr) == (0, b"")
        assert api.count("list")

    async def test_cluster_and_user_options_replace_those_of_context(
        self, api: FakeApi, two: str
    ) -> None:
        given = "status", "-o", "json", "--cluster", "it", "--user", "it"
        done = await asyncio.to_thread(ebb, *given, KUBECONFIG=two)
        found = json.loads(done.stdout)["cluster"]
        assert found == {"server": api.url, "context": "nobody", "cluster": "it"}
        assert {call.headers["Authorization"] for call in api.calls} == {"Bearer a-token"}

    async def test_source_names_context(self, api: FakeApi, two: str) -> None:
        done = await asyncio.to_thread(
            ebb, "status", "-o", "json", "--context", "it", KUBECONFIG=two
        )
        found = json.loads(done.stdout)
        assert found["source"] == f"live cluster, {two}"
        assert found["cluster"] == {"server": api.url, "context": "it", "cluster": "it"}
        assert api.count("list")

    async def test_unknown_context_is_reported_in_one_line(self, two: str) -> None:
        done = await asyncio.to_thread(ebb, "plan", "--context", "no", KUBECONFIG=two)
        told = f"ebb: {two}: no context 'no'; there are: nobody, it\n"
        assert (done.returncode, done.stderr.decode()) == (2, told)

    @pytest.mark.parametrize("command", ["missing-plugin", "false", "echo"])
    async def test_failing_credential_plugin_is_reported_in_one_line(
        self, api: FakeApi, tmp_path: Path, command: str
    ) -> None:
        user = f'{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: "{command}"}}}}'
        file = tmp_path / "with-a-plugin"
        file.write_text(KUBECONFIG.format(url=api.url).replace("{token: a-token}", user))
        done = await asyncio.to_thread(ebb, "plan", "--kubeconfig", str(file))
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.startswith(f"ebb: plugin {command}: ".encode())
        assert done.stderr.count(b"\n") == 1
        assert not api.calls


class _Terminal(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


class TestProgress:
    @pytest.mark.parametrize(
        ("found", "shown"),
        [
            ({NODES: 0, PODS: 0}, "reading the cluster: no answer yet"),
            ({NODES: 1, PODS: 1500}, "reading the cluster: 1 nodes, 1,500 pods"),
        ],
    )
    async def test_progress_is_shown_on_terminal_and_erased(
        self, found: dict[Kind[Any, Any], int], shown: str
    ) -> None:
        terminal = _Terminal()
        lists = {kind: Listed([None] * count) for kind, count in found.items()}
        async with progress_shown(lists, terminal, 0.0):
            await terminal.written.wait()
        assert terminal.getvalue().startswith(f"\r\x1b[K{shown}")
        assert terminal.getvalue().endswith("\r\x1b[K")

    async def test_progress_is_not_written_to_pipe(self) -> None:
        pipe = io.StringIO()
        async with progress_shown({NODES: Listed()}, pipe, 0.0):
            await asyncio.sleep(0)
        assert pipe.getvalue() == ""


class TestKubeconfig:
    def test_kubeconfig_is_found_by_rules_of_kubectl(self, tmp_path: Path) -> None:
        home = tmp_path / "home"
        usual = home / ".kube" / "config"
        in_pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOME": str(home)}
        assert kubeconfig_of(None, in_pod) is None
        usual.parent.mkdir(parents=True)
        usual.touch()
        assert kubeconfig_of(None, in_pod) == str(usual)
        assert kubeconfig_of(None, {**in_pod, "KUBECONFIG": "other"}) == "other"
        assert kubeconfig_of("given", {**in_pod, "KUBECONFIG": "other"}) == "given"

    @pytest.mark.parametrize(
        ("environment", "told_"),
        [
            ({}, "no cluster: there is no --kubeconfig, no \\$KUBECONFIG, no "),
        ],
    )
    def test_missing_kubeconfig_is_rejected(self, environment: dict[str, str], told_: str) -> None:
        with pytest.raises(InvalidInputError, match=f"^{told_}"):
            kubeconfig_of(None, environment)

    @pytest.mark.parametrize(
        ("arguments", "dump"), [(["plan"], True), (["cleanup", "--all", "--yes"], False)]
    )
    def test_error_suggests_dump_when_command_accepts_dump(
        self, arguments: list[str], dump: bool, tmp_path: Path
    ) -> None:
        nowhere = ebb_command.make_context("ebb", arguments, obj={"HOME": str(tmp_path)})
        with nowhere, pytest.raises(InvalidInputError, match="no cluster: there is no") as caught:
            ebb_command.invoke(nowhere)
        assert ("--from-file" in str(caught.value)) is dump
