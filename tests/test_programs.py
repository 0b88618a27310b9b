"""The programs as processes, with a kubeconfig, a configuration and SIGTERM."""

import asyncio
import base64
import json
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controller.names import LEASE as LEASE_NAME
from core.config.settings import API_VERSION, KIND
from core.marks.wellknown import MARK_LABEL, SCALE_DOWN_DISABLED_ANNOTATION, TAINT_KEY
from extender import wire
from kube.stores.ca_store import REGISTRATIONS
from kube.target import NAMESPACE
from tests.support.admission import node_json, patch_of, review_of
from tests.support.fake_api import NODES, PODS, FakeApi
from tests.support.fake_objects import KUBECONFIG, node_object, pod_object
from webhook import names

ROOT = Path(__file__).parents[1]
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{names.SECRET}"
REGISTRATION = f"{REGISTRATIONS}/{names.REGISTRATION}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE_NAME}"
CONFIG = f"""\
apiVersion: {API_VERSION}
kind: {KIND}
mode: MODE
unneededTime: 0s
extender: {{score: pack}}
controller: {{interval: 1s}}
"""
FLAGS = {
    "controller": {"--metrics-listen": "127.0.0.1:0", "--report-port": "0"},
    "extender": {"--listen": "127.0.0.1:0"},
    "webhook": {"--listen": "127.0.0.1:0", "--metrics-listen": "127.0.0.1:0"},
}
"""Flags with which each program takes any free port."""


IMPORTED = "import sys, {}.__main__; print(*sys.modules)"
UNUSED = {"kubernetes.client", "oauthlib", "requests", "websocket"}
"""Modules of the other clients of the kubernetes package."""


@pytest.mark.parametrize(
    ("program", "unused"),
    [
        ("controller", {"cryptography", *UNUSED}),
        ("extender", {"cryptography", *UNUSED}),
        ("webhook", UNUSED),
    ],
)
def test_program_imports_no_library_that_it_does_not_use(program: str, unused: set[str]) -> None:
    """They would take a tenth of the memory of the controller in a large cluster."""
    code = IMPORTED.format(program)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=True)
    assert not unused & set(done.stdout.decode().split())


class Program:
    """A running program and its log."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    async def said(self, message: str) -> dict[str, Any]:
        """Read the log until a message occurs; return its line."""
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            while raw := await self.process.stderr.readline():
                self.lines.append(json.loads(raw))
                if self.lines[-1]["msg"] == message:
                    return self.lines[-1]
        raise AssertionError(f"never said {message!r}: {self.lines}")


async def started(
    module: str, folder: Path, flags: Mapping[str, str]
) -> asyncio.subprocess.Process:
    """Start a program with the files ebb.yaml and kubeconfig of a folder."""
    files = {"--kubeconfig": str(folder / "kubeconfig"), "--config": str(folder / "ebb.yaml")}
    arguments = [f"{name}={value}" for name, value in {**files, **flags}.items()]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )


@asynccontextmanager
async def running(
    module: str, api: FakeApi, folder: Path, mode: str = "enforce"
) -> AsyncIterator[Program]:
    (folder / "kubeconfig").write_text(KUBECONFIG.format(url=api.url))
    (folder / "ebb.yaml").write_text(CONFIG.replace("MODE", mode))
    process = await started(module, folder, FLAGS[module])
    program = Program(process)
    try:
        yield program
        process.terminate()
        await program.said("shutting down")
        async with asyncio.timeout(30):
            assert process.stderr is not None
            await process.stderr.read()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as made:
        for name in ("full", "spare"):
            made.put(NODES, node_object(name))
        for number in range(3):
            made.put(PODS, pod_object(f"p{number}", node="full"))
        made.put(PODS, pod_object("q", node="spare"))
        made.put_document(SECRET, {"metadata": {"name": names.SECRET}})
        webhook = {"name": "nodes", "clientConfig": {"url": "https://127.0.0.1"}}
        made.put_document(REGISTRATION, {"metadata": {}, "webhooks": [webhook]})
        yield made


async def test_extender_scores_watched_nodes(api: FakeApi, tmp_path: Path) -> None:
    async with running("extender", api, tmp_path) as program, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{(await program.said('listening'))['port']}"
        await api.watched(NODES)
        await api.watched(PODS)
        async with session.get(f"{url}/readyz?verbose") as ready:
            assert ready.status == 200, await ready.text()
        async with session.post(f"{url}/prioritize", data=wire.names_body(["full"])) as answer:
            assert wire.scores(await answer.read()) == {"full": 2}


async def test_webhook_taints_marked_node_and_calls_api_only_for_certificates(
    api: FakeApi, tmp_path: Path
) -> None:
    async with running("webhook", api, tmp_path) as program, aiohttp.ClientSession() as session:
        await program.said("listening")  # health and metrics
        port = (await program.said("listening"))["port"]
        await api.until(lambda: "caBundle" in registered(api))
        ca = base64.b64decode(registered(api)["caBundle"])
        trust = ssl.create_default_context(cadata=ca.decode())
        marked = node_json("n")
        marked["metadata"]["labels"][MARK_LABEL] = "PreferNoSchedule"
        url = f"https://127.0.0.1:{port}/mutate-node"
        async with session.post(url, data=review_of(marked), ssl=trust) as answer:
            assert answer.status == 200
            patch = patch_of(await answer.read())
        assert patch is not None
        assert patch[0]["value"][-1]["key"] == TAINT_KEY
    assert {(call.verb, call.path) for call in api.calls} == {
        ("get", SECRET),
        ("put", SECRET),
        ("get", REGISTRATION),
        ("patch", REGISTRATION),
    }


async def test_controller_marks_and_protects_node(api: FakeApi, tmp_path: Path) -> None:
    async with running("controller", api, tmp_path) as program, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{(await program.said('listening'))['port']}"
        async with session.get(f"{url}/readyz?verbose") as ready:
            assert ready.status == 200, await ready.text()
        await api.until(lambda: bool(api.objects[NODES]["spare"]["spec"].get("taints")))
        spare = api.objects[NODES]["spare"]
        assert spare["metadata"]["labels"][MARK_LABEL] == "PreferNoSchedule"
        assert spare["metadata"]["annotations"][SCALE_DOWN_DISABLED_ANNOTATION] == "true"
        assert [taint["key"] for taint in spare["spec"]["taints"]] == [TAINT_KEY]
        assert MARK_LABEL not in api.objects[NODES]["full"]["metadata"]["labels"]


@pytest.mark.parametrize(("mode", "written"), [("enforce", True), ("observe", False)])
async def test_controller_reports_decisions_and_configuration(
    api: FakeApi, tmp_path: Path, mode: str, written: bool
) -> None:
    async with running("controller", api, tmp_path, mode) as program:
        await program.said("listening")
        listening = await program.said("listening")
        assert listening["host"] == "127.0.0.1"
        await program.said("writing a Node" if written else "would write")
        report = await reported(f"http://127.0.0.1:{listening['port']}/report")
    assert report["leader"] == report["identity"]
    assert report["configuration"]["unneededTime"] == "0s"
    assert report["configuration"].get("mode", "observe") == mode
    assert report["facts"]["leadingSinceSeconds"] <= report["facts"]["reconciledAtSeconds"]
    first = report["facts"]["decisions"][-1]
    assert (first["kind"], first["name"], first["written"]) == ("Node", "spare", written)
    assert first["action"] == "NodeMarked"


async def reported(url: str) -> dict[str, Any]:
    """Return the report of the leader once it has made a decision."""
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        while True:
            async with session.get(url) as answer:
                report: dict[str, Any] = await answer.json()
            if (report["facts"] or {}).get("decisions"):
                return report
            await asyncio.sleep(0.1)  # the report has no event to wait for


def registered(api: FakeApi) -> dict[str, Any]:
    found: dict[str, Any] = api.documents[REGISTRATION]["webhooks"][0]["clientConfig"]
    return found


async def test_controller_acquires_and_releases_lease(api: FakeApi, tmp_path: Path) -> None:
    async with running("controller", api, tmp_path) as program:
        await program.said("started leading")
        assert api.documents[LEASE]["spec"]["holderIdentity"]
        assert api.documents[LEASE]["spec"]["leaseDurationSeconds"] == 15
    assert api.documents[LEASE]["spec"]["holderIdentity"] == ""


async def test_controller_writes_nothing_in_mode_observe(api: FakeApi, tmp_path: Path) -> None:
    async with running("controller", api, tmp_path, mode="observe") as program:
        assert (await program.said("would write"))["node"] == "spare"
    marked = [node["metadata"]["labels"].get(MARK_LABEL) for node in api.objects[NODES].values()]
    assert marked == [None, None]


@pytest.mark.parametrize("module", ["controller", "extender", "webhook"])
@pytest.mark.parametrize(
    ("option", "text", "problem"),
    [
        ("--config", "kind: x", r"ebb\.yaml: kind: 'x'; allowed: EbbConfiguration"),
        pytest.param("--kubeconfig", "[", r"ebb\.yaml: ", marks=pytest.mark.nightly),
        pytest.param("--kubeconfig", None, r"ebb\.yaml: ", marks=pytest.mark.nightly),
    ],
)
async def test_program_exits_with_2_and_one_line_when_file_is_invalid(
    module: str, option: str, text: str | None, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "ebb.yaml"
    if text is not None:
        file.write_text(text)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, option, str(file), cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        _, told = await process.communicate()
    assert process.returncode == 2
    assert re.search(rf"^ebb-{module}: .*{problem}", told.decode(), re.MULTILINE), told.decode()
    assert "Traceback" not in told.decode()


@pytest.mark.parametrize(
    ("module", "flag"),
    [
        ("extender", "--listen"),
        ("webhook", "--listen"),
        ("webhook", "--metrics-listen"),
        ("controller", "--metrics-listen"),
    ],
)
@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("127.0.0.1", "address already in use"),
        pytest.param("no..name", None, marks=pytest.mark.nightly),
    ],
)
async def test_program_exits_with_2_and_one_line_when_address_is_unavailable(
    module: str, flag: str, host: str, why: str | None, api: FakeApi, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"{host}:{taken.getsockname()[1]}"
        code, told = await ended(module, api, tmp_path, {**FLAGS[module], flag: listen})
    assert code == 2, told
    (line,) = [line for line in told.splitlines() if not line.startswith("{")]
    assert line.startswith(f"ebb-{module}: {flag}: {listen!r}: {why or ''}"), line
    assert line.endswith("; allowed: a free host:port"), line


@pytest.mark.parametrize(
    ("module", "flag", "value", "problem"),
    [
        (
            "webhook",
            "--metrics-listen",
            "0.0.0.0:8443",
            "--metrics-listen: '0.0.0.0:8443'; allowed: another host:port than --listen",
        ),
        (
            "controller",
            "--lease-duration",
            "2s",
            "argument --lease-duration: '2s'; allowed: a duration of whole seconds, 3s to 720h",
        ),
    ],
)
async def test_program_exits_with_2_and_names_flag_when_value_is_invalid(
    module: str, flag: str, value: str, problem: str, api: FakeApi, tmp_path: Path
) -> None:
    flags = {"--listen": value} if module == "webhook" else {}
    code, told = await ended(module, api, tmp_path, {**flags, flag: value})
    assert code == 2
    assert problem in told.splitlines()[-1]
    assert "Traceback" not in told


async def ended(
    module: str, api: FakeApi, folder: Path, flags: Mapping[str, str]
) -> tuple[int | None, str]:
    """Run a program until it exits; return its exit code and its standard error."""
    (folder / "kubeconfig").write_text(KUBECONFIG.format(url=api.url))
    (folder / "ebb.yaml").write_text(CONFIG.replace("MODE", "observe"))
    process = await started(module, folder, flags)
    async with asyncio.timeout(30):
        _, told = await process.communicate()
    return process.returncode, told.decode()
