"""Kubeconfigs are read by the rules of kubectl, with the exec plugins that they name."""

import asyncio
import base64
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from core.model.errors import InvalidInputError
from kube import plugin
from kube.client import Client
from kube.kubeconfig import load
from kube.stores.objects import nodes
from kube.target import Overrides, Target
from tests.support.fake_api import NODES, FakeApi
from tests.support.fake_objects import KUBECONFIG, node_object

ROOT = Path(__file__).parents[2]
ALONE = {"interactive": False}
VERSION = "client.authentication.k8s.io/v1"


def config(name: str, server: str, *, current: str | None = None, user: Any = None) -> str:
    """Return a kubeconfig with one cluster, user and context, all of one name."""
    document: dict[str, Any] = {
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": user or {"token": f"of-{name}"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    return yaml.safe_dump(document | ({"current-context": current} if current else {}))


def files(folder: Path, *texts: str) -> str:
    for number, text in enumerate(texts):
        (folder / str(number)).write_text(text)
    return ":".join(str(folder / str(number)) for number in range(len(texts)))


class TestSeveralFiles:
    async def test_first_file_with_value_wins(self, tmp_path: Path) -> None:
        paths = files(
            tmp_path,
            config("a", "http://a1"),
            config("a", "http://a2", current="a") + "\n",
            config("b", "http://b", current="b"),
        )
        whole = (await load(f":{tmp_path / 'absent'}:{paths}", None)).document
        assert whole["current-context"] == "a"
        servers = [(one["name"], one["cluster"]["server"]) for one in whole["clusters"]]
        assert servers == [("a", "http://a1"), ("b", "http://b")]

    async def test_context_is_selected_by_name(self, tmp_path: Path) -> None:
        paths = files(tmp_path, config("a", "http://a", current="a"), config("b", "http://b"))
        assert (await load(paths, "b")).document["current-context"] == "b"
        with pytest.raises(InvalidInputError, match=r"no context 'c'; there are: a, b$"):
            await load(paths, "c")

    async def test_options_replace_cluster_and_user_of_context(self, tmp_path: Path) -> None:
        paths = files(tmp_path, config("a", "http://a", current="a"), config("b", "http://b"))
        access = await load(paths, None, Overrides(cluster_entry="b", user_entry="b"))
        assert access.target == Target("http://b", "a", "b")
        contexts = {one["name"]: one["context"] for one in access.document["contexts"]}
        assert contexts["a"] == contexts["b"] == {"cluster": "b", "user": "b"}

    @pytest.mark.parametrize(
        ("overrides", "problem"),
        [
            (Overrides(cluster_entry="c"), "--cluster: 'c'; allowed: one of the clusters: a, b"),
            (Overrides(user_entry="c"), "--user: 'c'; allowed: one of the users: a, b"),
        ],
    )
    async def test_unknown_cluster_or_user_is_rejected(
        self, tmp_path: Path, overrides: Overrides, problem: str
    ) -> None:
        paths = files(tmp_path, config("a", "http://a", current="a"), config("b", "http://b"))
        with pytest.raises(InvalidInputError) as caught:
            await load(paths, None, overrides)
        assert str(caught.value).endswith(problem)

    async def test_relative_path_is_resolved_from_its_own_kubeconfig(self, tmp_path: Path) -> None:
        for name in ("x", "y"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "config").write_text(
                config(name, "http://s", user={"tokenFile": "token", "client-key": "/abs"})
            )
        paths = f"{tmp_path / 'x' / 'config'}:{tmp_path / 'y' / 'config'}"
        access = await load(paths, "y")
        assert access.token_file == tmp_path / "y" / "token"
        assert [one["user"]["tokenFile"] for one in access.document["users"]] == [
            str(tmp_path / name / "token") for name in ("x", "y")
        ]
        assert {one["user"]["client-key"] for one in access.document["users"]} == {"/abs"}

    async def test_server_of_selected_context_is_called(self, tmp_path: Path) -> None:
        async with FakeApi() as api:
            api.put(NODES, node_object("n"))
            paths = files(tmp_path, config("a", "http://127.0.0.1:9", current="a"),
                          config("b", api.url))  # fmt: skip
            async with await Client.connect(paths, "b") as client:
                await nodes(client).get("n")
            assert api.calls[-1].headers["Authorization"] == "Bearer of-b"


class TestImpersonation:
    async def test_impersonation_headers_are_sent_with_every_call(self, tmp_path: Path) -> None:
        seen: list[list[tuple[str, str]]] = []

        async def node(request: web.Request) -> web.Response:
            sent = [(name.decode(), value.decode()) for name, value in request.raw_headers]
            seen.append([header for header in sent if header[0].startswith("Impersonate-")])
            return web.json_response(node_object("n"))

        app = web.Application()
        app.router.add_route("*", "/api/v1/nodes/n", node)
        user = {
            "token": "t",
            "as": "jane",
            "as-uid": "7",
            "as-groups": ["readers", "writers"],
            "as-user-extra": {"example.org/Scope%": ["a", "b ü"]},
        }
        async with TestServer(app) as server:
            paths = files(tmp_path, config("a", str(server.make_url("/")), current="a", user=user))
            async with await Client.connect(paths) as client:
                await nodes(client).get("n")
                await client.ask("PATCH", "/api/v1/nodes/n", {})
        meant = [
            ("Impersonate-User", "jane"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Group", "readers"),
            ("Impersonate-Group", "writers"),
            ("Impersonate-Extra-example.org%2FScope%25", "a"),
            ("Impersonate-Extra-example.org%2FScope%25", "b ü"),
        ]
        assert seen == [meant, meant]

    @pytest.mark.parametrize("user", [{}, {"as": "", "as-groups": [], "as-user-extra": None}])
    async def test_impersonation_headers_are_not_sent_when_user_is_unset(
        self, tmp_path: Path, user: Any
    ) -> None:
        paths = files(tmp_path, config("a", "http://a", current="a", user={"token": "t", **user}))
        assert (await load(paths, None)).impersonation == []

    @pytest.mark.parametrize(
        ("user", "problem"),
        [
            ({"as": 7}, "as: 7; allowed: a text of one line"),
            ({"as": "a\nb"}, r"as: 'a\nb'; allowed: a text of one line"),
            ({"as": "a", "as-uid": 7}, "as-uid: 7; allowed: a text of one line"),
            ({"as": "a", "as-groups": "b"}, "as-groups: 'b'; allowed: a list of texts of one"),
            ({"as": "a", "as-groups": [7]}, "as-groups: [7]; allowed: a list of texts of one"),
            ({"as": "a", "as-user-extra": ["b"]}, "as-user-extra: ['b']; allowed: a mapping of"),
            ({"as": "a", "as-user-extra": {"b": "c"}}, "as-user-extra: {'b': 'c'}; allowed: a m"),
            ({"as-uid": "7"}, "as: missing; allowed: a user name, because as-uid, as-groups "),
            (
                {"as-groups": ["b"], "as": ""},
                "as: missing; allowed: a user name, because as-uid, as-",
            ),
            (
                {"as-user-extra": {"b": []}},
                "as: missing; allowed: a user name, because as-uid, as-g",
            ),
        ],
    )
    async def test_invalid_impersonation_is_rejected(
        self, tmp_path: Path, user: Any, problem: str
    ) -> None:
        """If it were ignored, the caller would have more rights than the context grants."""
        paths = files(tmp_path, config("a", "http://a", current="a", user={"token": "t", **user}))
        with pytest.raises(InvalidInputError) as caught:
            await Client.connect(paths)
        assert str(caught.value).startswith(f"{paths}: users[a].user.{problem}")


def script(folder: Path, text: str) -> str:
    file = folder / "plugin"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def credential(**status: object) -> str:
    return json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})


def exec_entry(command: str, **others: Any) -> dict[str, Any]:
    return {"command": command, "apiVersion": VERSION, **others}


class TestPlugin:
    async def test_token_of_plugin_is_sent_with_every_call(self, tmp_path: Path) -> None:
        script(tmp_path, f"test \"$1$EXTRA\" = onetwo && echo '{credential(token='mine')}'")
        user = {
            "exec": exec_entry("./plugin", args=["one"], env=[{"name": "EXTRA", "value": "two"}]),
            "tokenFile": "weaker",
        }
        async with FakeApi() as api:
            api.put(NODES, node_object("n"))
            paths = files(tmp_path, config("a", api.url, current="a", user=user))
            async with await Client.connect(paths) as client:
                await nodes(client).get("n")
            assert api.calls[-1].headers["Authorization"] == "Bearer mine"

    async def test_plugin_gets_exec_info(self, tmp_path: Path) -> None:
        assert await self.exec_info(tmp_path) == {"interactive": False}

    async def test_plugin_gets_cluster_info_when_it_requests_it(self, tmp_path: Path) -> None:
        (tmp_path / "ca").write_bytes(b"PEM")
        cluster_fields = {
            "server": "http://a",
            "tls-server-name": "name",
            "insecure-skip-tls-verify": True,
            "proxy-url": "http://proxy",
        }
        extensions = [
            {"name": "another", "extension": {"a": 1}},
            {"name": "client.authentication.k8s.io/exec", "extension": {"shoot": {"name": "s"}}},
        ]
        cluster = {**cluster_fields, "certificate-authority": "ca", "extensions": extensions}
        wanted = {
            **cluster_fields,
            "certificate-authority-data": base64.b64encode(b"PEM").decode(),
            "config": {"shoot": {"name": "s"}},
        }
        spec = await self.exec_info(tmp_path, cluster, provideClusterInfo=True)
        assert spec == {"cluster": wanted, "interactive": False}
        both = {**cluster, "certificate-authority-data": "REFUQQ=="}
        spec = await self.exec_info(tmp_path, both, provideClusterInfo=True)
        assert spec["cluster"]["certificate-authority-data"] == "REFUQQ=="

    async def test_missing_certificate_authority_file_is_reported(self, tmp_path: Path) -> None:
        cluster = {"certificate-authority": "absent"}
        with pytest.raises(InvalidInputError, match=f"^{tmp_path}/absent: No such file"):
            await self.exec_info(tmp_path, cluster, provideClusterInfo=True)

    async def exec_info(self, folder: Path, cluster: Any = None, **others: Any) -> Any:
        """Return the spec that a plugin gets when a kubeconfig is read."""
        answer = credential(token="t")
        command = script(
            folder, f"echo \"$KUBERNETES_EXEC_INFO\" > {folder}/told\necho '{answer}'"
        )
        text = config("a", "http://a", current="a", user={"exec": exec_entry(command, **others)})
        document = yaml.safe_load(text)
        document["clusters"][0]["cluster"] |= cluster or {}
        await load(files(folder, yaml.safe_dump(document)), None)
        output = json.loads((folder / "told").read_text())
        assert (output["apiVersion"], output["kind"]) == (VERSION, "ExecCredential")
        return output["spec"]

    @pytest.mark.parametrize(
        ("mode", "interactive"), [("IfAvailable", True), ("Always", True), ("Never", False)]
    )
    def test_plugin_is_interactive_when_terminal_and_mode_allow(
        self, mode: str, interactive: bool
    ) -> None:
        leader, follower = pty.openpty()
        code = "import sys; from kube import plugin; "
        code += "print(plugin.spec_for({'interactiveMode': sys.argv[1]}, {}))"
        command = [sys.executable, "-c", code, mode]
        output = subprocess.check_output(command, stdin=follower, cwd=ROOT, text=True)
        os.close(leader)
        os.close(follower)
        assert output.strip() == str({"interactive": interactive})

    async def test_plugin_has_empty_stdin_when_not_interactive(self, tmp_path: Path) -> None:
        command = script(tmp_path, f"cat > {tmp_path}/read\necho '{credential(token='t')}'")
        await plugin.run(exec_entry(command), ALONE)
        assert not (tmp_path / "read").read_text()

    async def test_certificate_of_plugin_is_encoded_as_in_kubeconfig(self, tmp_path: Path) -> None:
        answer = credential(clientCertificateData="PEM", clientKeyData="KEY")
        credentials = await plugin.run(exec_entry(script(tmp_path, f"echo '{answer}'")), ALONE)
        assert {name: base64.b64decode(text) for name, text in credentials.fields.items()} == {
            "client-certificate-data": b"PEM",
            "client-key-data": b"KEY",
        }

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("echo first >&2; echo 'log in first' >&2; exit 3", "exit code 3: log in first"),
            ("exit 1", "exit code 1: no output on standard error"),
            ("kill -9 $$", "exit code -9: no output on standard error"),
            ("echo garbage", "its output is not an ExecCredential"),
            ("echo '[]'", "its output is not an ExecCredential"),
            ("printf '\\377'", "its output is not an ExecCredential"),
            ("true", "its output is not an ExecCredential"),
            ("yes '[' | tr -d '\\n' | head -c 3000000", "its output is not an ExecCredential"),
            (
                f"echo '{credential(token='t', expirationTimestamp=7)}'",
                "its output is not an ExecCredential",
            ),
            (f"echo '{credential(clientKeyData='k')}'", "its output has neither a token nor a "),
            (
                'echo \'{"status":{"token":"t"}}\'',
                f"its output does not have the apiVersion {VERSION}",
            ),
        ],
    )
    async def test_plugin_failure_is_reported_with_its_name(
        self, tmp_path: Path, text: str, problem: str
    ) -> None:
        command = script(tmp_path, text)
        with pytest.raises(InvalidInputError) as caught:
            await plugin.run(exec_entry(command), ALONE)
        assert str(caught.value).startswith(f"plugin {command}: {problem}")
        assert "\n" not in str(caught.value)

    async def test_missing_plugin_is_reported_with_install_hint(self) -> None:
        hint = "Install it:\n  see the\n  manual"
        with pytest.raises(InvalidInputError, match=r"^plugin no-such-plugin: No such file .*; "
                           r"Install it: see the manual$"):  # fmt: skip
            await plugin.run(exec_entry("no-such-plugin", installHint=hint), ALONE)

    async def test_plugin_is_stopped_when_it_does_not_end(self, tmp_path: Path) -> None:
        command = script(tmp_path, "exec sleep 1000")
        async with asyncio.timeout(30):
            with pytest.raises(InvalidInputError, match=r"no answer within 0\.05 s$"):
                await plugin.run(exec_entry(command), ALONE, 0.05)

    async def test_plugin_without_api_version_is_rejected(self, tmp_path: Path) -> None:
        user = {"exec": {"command": "p"}}
        paths = files(tmp_path, config("a", "http://a", current="a", user=user))
        message = r"users\[a\]\.user\.exec\.apiVersion: missing; allowed: a version"
        with pytest.raises(InvalidInputError, match=message):
            await Client.connect(paths)


GOOD: dict[str, Any] = yaml.safe_load(KUBECONFIG.format(url="http://a"))
NO_SERVER = [{"name": "it", "cluster": {"certificate-authority": "ca"}}]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (
            None,
            ("the file is empty; allowed: a kubeconfig, a mapping of clusters, contexts, users"),
        ),
        (["x"], "document: ['x']; allowed: a kubeconfig, a mapping of clusters, contexts, users"),
        ({"kind": "List", "items": []}, "kind: 'List'; allowed: Config"),
        (
            {},
            "current-context: missing; allowed: one of the contexts, but the kubeconfig has none",
        ),
        ({**GOOD, "current-context": None}, "current-context: missing; allowed: one of the c"),
        ({**GOOD, "current-context": "no"}, "current-context: 'no'; allowed: one of the conte"),
        ({**GOOD, "current-context": 7}, "current-context: 7; allowed: the name of a context"),
        ({**GOOD, "clusters": 7}, "clusters: 7; allowed: a list"),
        ({**GOOD, "clusters": ["x"]}, "clusters[0]: 'x'; allowed: a mapping of name and cluster"),
        ({**GOOD, "users": [{"name": 7}]}, "users[0].name: 7; allowed: a name"),
        ({**GOOD, "users": [{"name": "a"}] * 2}, "users[1].name: 'a'; allowed: a unique name"),
        ({**GOOD, "users": [{"name": "a", "user": "b"}]}, "users[0].user: 'b'; allowed: a mapp"),
        ({**GOOD, "clusters": []}, "contexts[it].context.cluster: 'it'; allowed: one of the cl"),
        (
            {**GOOD, "clusters": NO_SERVER},
            "clusters[it].cluster.server: missing; allowed: https://host:port",
        ),
        (
            {**GOOD, "clusters": [{"name": "it", "cluster": {"server": "host:6443"}}]},
            "clusters[it].cluster.server: 'host:6443'; allowed: https://host:port",
        ),
        (
            {**GOOD, "users": [{"name": "it", "user": {"tokenFile": 7}}]},
            "users[0].user.tokenFile: 7; allowed: a text",
        ),
        (
            {**GOOD, "users": [{"name": "it", "user": {"exec": "x"}}]},
            "users[0].user.exec: 'x'; allowed: a mapping of command, apiVersion and more",
        ),
        (
            {**GOOD, "users": [{"name": "it", "user": {"exec": {}}}]},
            "users[0].user.exec.command: missing; allowed: the command of the plugin",
        ),
    ],
)
async def test_invalid_kubeconfig_is_reported_by_field_and_value(
    document: object, problem: str, tmp_path: Path
) -> None:
    path = files(tmp_path, "" if document is None else yaml.safe_dump(document))
    with pytest.raises(InvalidInputError) as caught:
        await Client.connect(path)
    assert str(caught.value).startswith(f"{path}: {problem}")
    assert len(str(caught.value)) < len(path) + 200


async def test_unreadable_kubeconfig_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=f"^{tmp_path}: Is a directory$"):
        await Client.connect(str(tmp_path))
    with pytest.raises(InvalidInputError, match=f"^{tmp_path}/0: not YAML: .* line 1, column 2"):
        await Client.connect(files(tmp_path, "["))
    with pytest.raises(InvalidInputError, match=r"^/no/such: no such file$"):
        await Client.connect("/no/such")


@pytest.mark.skipif("KUBERNETES_SERVICE_HOST" in os.environ, reason="this is a pod of a cluster")
async def test_missing_in_cluster_config_is_reported_with_option() -> None:
    with pytest.raises(InvalidInputError, match=r"^in-cluster .* give --kubeconfig FILE$"):
        await Client.connect(None)


ODD = [7, True, ["a"], {"a": 1}, "\x1b", "a b", "a..b", ".a", "a\nb"]


@pytest.mark.parametrize("value", ODD, ids=repr)
@pytest.mark.parametrize("field", ["server", "proxy-url", "tls-server-name"])
async def test_connection_to_server_is_rejected_when_it_is_no_host(
    tmp_path: Path, field: str, value: object
) -> None:
    """aiohttp would end the command with a traceback."""
    document = yaml.safe_load(config("a", "https://a", current="a"))
    if isinstance(value, str) and field != "tls-server-name":
        value = f"http://{value}"
    document["clusters"][0]["cluster"][field] = value
    with pytest.raises(InvalidInputError, match=rf"cluster\.{field}: .*; allowed: "):
        await load(files(tmp_path, yaml.safe_dump(document)), None)


@pytest.mark.parametrize("url", ["https://u:secret@a", "http://u:secret@", "https://u:secret@a:x"])
@pytest.mark.parametrize("field", ["server", "proxy-url"])
async def test_password_in_url_is_not_shown(tmp_path: Path, field: str, url: str) -> None:
    document = yaml.safe_load(config("a", "https://a", current="a"))
    document["clusters"][0]["cluster"][field] = url
    path = files(tmp_path, yaml.safe_dump(document))
    if field == "proxy-url" and url == "https://u:secret@a":
        assert (await load(path, None)).target.server == "https://a", "as kubectl allows"
        return
    with pytest.raises(InvalidInputError, match=rf"cluster\.{field}: 'a URL with @'") as raised:
        await load(path, None)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("server", "https://[fe80::1]:6443/k8s/clusters/c-1"),
        ("server", "http://ä.example"),
        ("proxy-url", "socks5://127.0.0.1:1080"),
        ("proxy-url", ""),
        ("proxy-url", None),
        ("tls-server-name", "kubernetes.default"),
        ("tls-server-name", "10.0.0.1"),
        ("tls-server-name", ""),
    ],
)
async def test_connection_to_server_is_accepted(
    tmp_path: Path, field: str, value: str | None
) -> None:
    document = yaml.safe_load(config("a", "https://a", current="a"))
    document["clusters"][0]["cluster"][field] = value
    access = await load(files(tmp_path, yaml.safe_dump(document)), None)
    assert access.document["clusters"][0]["cluster"][field] == value
