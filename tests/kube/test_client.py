"""Calls to the API server, and the kubeconfig that the official package reads."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.model.errors import ConflictError, InvalidInputError, UnavailableError
from kube.client import CALL_TRIES_MAX, ApiError, Client, PolicyRefusedError
from kube.decode import kinds
from kube.stores.objects import nodes
from kube.write_policies import WRITE_POLICIES
from tests.support.fake_api import NODES, FakeApi
from tests.support.fake_objects import KUBECONFIG, node_object
from tests.support.following import Waits, opened


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


async def test_throttled_call_is_retried_within_bounds(api: FakeApi) -> None:
    api.put(NODES, node_object("n"))
    waits = Waits()
    async with opened(api, waits=waits) as client:
        api.fail_next("patch", 429, headers={"Retry-After": "3"})
        api.fail_next("patch", 429, headers={"Retry-After": "3600"})
        await client.ask("PATCH", f"{kinds.NODES.path}/n", {"metadata": {"labels": {"a": "b"}}})
        assert waits.seconds == [3, 10]
        api.fail_next("get", 429, times=CALL_TRIES_MAX)
        with pytest.raises(UnavailableError, match="answered 429"):
            await nodes(client).get("n")
        assert api.count("get") == CALL_TRIES_MAX


@pytest.mark.parametrize("status", [401, 403, 404, 409, 500, 503])
async def test_error_answer_is_one_line_with_status_and_reason(api: FakeApi, status: int) -> None:
    async with opened(api) as client:
        api.fail_next("patch", status)
        with pytest.raises(UnavailableError) as caught:
            await client.ask("PATCH", f"{kinds.NODES.path}/n", {})
        assert str(caught.value) == f"API server answered {status}: the fake API says {status}"
        assert isinstance(caught.value, ConflictError) == (status == 409)


DENIED = (
    "nodes \"n\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding 'b' denied "
    "request: metadata.labels: example.org/a, example.org/b"
)


@pytest.mark.parametrize("status", [401, 403, 413, 422])
async def test_refusal_by_own_policy_names_policy_and_change(api: FakeApi, status: int) -> None:
    api.put(NODES, node_object("n"))
    path, seen = f"{kinds.NODES.path}/n", list[tuple[str, PolicyRefusedError | None]]()
    async with opened(api) as client:
        client.observe_patch = lambda *one: seen.append(one)
        text = DENIED.format(policy=WRITE_POLICIES[0])
        api.answer_next("patch", json.dumps({"message": text}).encode(), status=status)
        with pytest.raises(PolicyRefusedError) as caught:
            await client.ask("PATCH", path, {})
        found = caught.value
        assert (found.policy, found.change) == (
            "ebb-controller-nodes",
            "metadata.labels: example.org/a, example.org/b",
        )
        assert (found.status, found.denied, found.forbidden) == (status, True, False)
        await client.ask("PATCH", path, {"metadata": {"labels": {"a": "b"}}})
        assert seen == [(path, found), (path, None)]


async def test_refusal_by_policy_of_somebody_else_is_no_refusal_by_own_one(api: FakeApi) -> None:
    seen: list[str] = []
    async with opened(api) as client:
        client.observe_patch = lambda path, _: seen.append(path)
        text = DENIED.format(policy="keep-nodes")
        api.answer_next("patch", json.dumps({"message": text}).encode(), status=403)
        with pytest.raises(ApiError) as caught:
            await client.ask("PATCH", f"{kinds.NODES.path}/n", {})
    assert (type(caught.value), caught.value.denied, seen) == (ApiError, True, [])


async def test_error_page_of_proxy_is_cut_to_one_line(api: FakeApi) -> None:
    async with opened(api) as client:
        api.answer_next("get", b"<html>\n<h1>Bad\n gateway</h1>" + b"x" * 5000, status=502)
        with pytest.raises(UnavailableError) as caught:
            await nodes(client).get("n")
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b"[" * 5000, b'{"metadata":{}}'])
async def test_call_fails_when_answer_is_not_node(api: FakeApi, body: bytes) -> None:
    async with opened(api) as client:
        api.answer_next("get", body)
        with pytest.raises(UnavailableError, match="not a Node"):
            await nodes(client).get("n")


async def test_call_fails_when_server_does_not_listen(api: FakeApi) -> None:
    async with opened(api) as client:
        await api.stop()
        with pytest.raises(UnavailableError, match=r"API server: ClientConnector"):
            await nodes(client).get("n")
        await api.start(api.port)


async def test_token_of_kubeconfig_is_sent(api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG.format(url=api.url))
    api.put(NODES, node_object("n"))
    async with await Client.connect(str(file)) as client:
        await nodes(client).get("n")
    assert api.calls[-1].headers["Authorization"].lower() == "bearer a-token"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "words",
        "a: [",
        "\ufeff\x00",
        "apiVersion: v1\nkind: Config\n",
        KUBECONFIG.replace("current-context: it", "current-context: other"),
        KUBECONFIG.replace("server:", 'certificate-authority-data: "aGVsbG8=", server:').replace(
            "{url}", "https://127.0.0.1:1"
        ),
    ],
)
async def test_invalid_kubeconfig_is_reported_in_one_line_with_its_name(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text.replace("{{", "{").replace("}}", "}"))
    with pytest.raises(InvalidInputError) as caught:
        await Client.connect(str(file))
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


async def test_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="absent: no such file"):
        await Client.connect(str(tmp_path / "absent"))
