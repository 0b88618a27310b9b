"""Token files that are renewed while the program runs, with servers that check the token."""

import time
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client as package
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

from core.model.errors import UnavailableError
from kube.client import Client
from kube.credentials import BEARER, use_token_file
from kube.kubeconfig import load
from kube.stores.objects import nodes
from serving import tls
from serving.tls_contexts import server_context
from tests.support.fake_api import NODES, FakeApi
from tests.support.fake_objects import KUBECONFIG, node_object


async def test_current_token_of_file_is_sent(tmp_path: Path) -> None:
    file, kubeconfig = tmp_path / "token", tmp_path / "kubeconfig"
    file.write_text("first\n")
    wanted = "first"

    async def node(request: web.Request) -> web.Response:
        good = request.headers["Authorization"] == f"Bearer {wanted}"
        return web.json_response(node_object("n")) if good else web.Response(status=401)

    app = web.Application()
    app.router.add_get("/api/v1/nodes/n", node)
    async with TestServer(app) as server:
        text = KUBECONFIG.format(url=server.make_url("/")).replace("token: a-", "tokenFile: ")
        kubeconfig.write_text(text)
        async with await Client.connect(str(kubeconfig)) as client:
            await nodes(client).get("n")
            wanted = "second"
            with pytest.raises(UnavailableError, match="401"):
                await nodes(client).get("n")
            swapped = tmp_path / "new"
            swapped.write_text(wanted)
            swapped.rename(file)
            await nodes(client).get("n")
            file.write_text("")  # being written
            await nodes(client).get("n")
            file.unlink()  # and gone
            await nodes(client).get("n")


async def test_inline_token_is_sent_while_token_file_is_missing(tmp_path: Path) -> None:
    file, kubeconfig = tmp_path / "token", tmp_path / "kubeconfig"
    async with FakeApi() as api:
        api.put(NODES, node_object("n"))
        text = KUBECONFIG.format(url=api.url)
        kubeconfig.write_text(text.replace("a-token", f"stale, tokenFile: {file}"))
        async with await Client.connect(str(kubeconfig)) as client:
            await nodes(client).get("n")
            file.write_text("fresh")
            await nodes(client).get("n")
        assert [call.headers["Authorization"] for call in api.calls] == [
            "Bearer stale", "Bearer fresh",
        ]  # fmt: skip


@pytest.mark.parametrize("found", [b"", b"\n", b"\xff\xfe", b"a\nb", b"a\x00"])
def test_previous_token_is_used_when_file_has_no_valid_token(tmp_path: Path, found: bytes) -> None:
    (tmp_path / "token").write_bytes(found)
    settings = package.Configuration(api_key={BEARER: "before"})
    use_token_file(tmp_path / "token", settings)
    settings.refresh_api_key_hook(settings)  # type: ignore[misc]
    assert settings.api_key == {BEARER: "before"}


@pytest.mark.parametrize(
    ("user", "file"),
    [
        ("{tokenFile: /run/t}", "/run/t"),
        ("{tokenFile: t}", "{folder}/t"),
        ("{tokenFile: t, token: x}", "{folder}/t"),
        ("{tokenFile: t, exec: {command: 'true', apiVersion: v}, auth-provider: {}}", None),
        ("{token: x}", None),
        ("{}", None),
        ("", None),
    ],
)
async def test_token_file_is_used_unless_another_method_has_precedence(
    tmp_path: Path, user: str, file: str | None
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    text = KUBECONFIG.format(url="http://localhost").replace("{token: a-token}", user)
    kubeconfig.write_text(text)
    wanted = Path(file.format(folder=tmp_path)) if file else None
    assert (await load(str(kubeconfig), None)).token_file == wanted


async def test_in_cluster_token_is_renewed_over_tls(tmp_path: Path) -> None:
    """In a pod the package insists on TLS."""
    pair = tls.make_pair(["127.0.0.1"], int(time.time()))
    (tmp_path / "ca").write_bytes(pair.ca)
    (tmp_path / "token").write_text("first")
    api = FakeApi()
    await api.start(tls=server_context(pair))
    api.put(NODES, node_object("n"))
    loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        token_filename=str(tmp_path / "token"),
        cert_filename=str(tmp_path / "ca"),
        environ={"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)},
    )
    settings = package.Configuration()
    loader.load_and_set(settings)  # type: ignore[no-untyped-call]
    use_token_file(tmp_path / "token", settings)
    async with Client(package.ApiClient(settings)) as client:
        await nodes(client).get("n")
        (tmp_path / "token").write_text("second")
        await nodes(client).get("n")
    await api.stop()
    sent = [call.headers["Authorization"] for call in api.calls]
    assert sent == ["Bearer first", "Bearer second"]
