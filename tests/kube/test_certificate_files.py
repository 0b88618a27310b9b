"""Client certificates in files that change while the program runs."""

import shutil
from pathlib import Path

import pytest

from kube.client import Client
from kube.kubeconfig import load
from kube.stores.objects import nodes
from tests.e2e.pki import Authority
from tests.support.fake_api import NODES, FakeApi
from tests.support.fake_objects import node_object
from tests.support.users import kubeconfig, tls_for_users


async def test_changed_certificate_is_used_when_its_key_matches(tmp_path: Path) -> None:
    authority, api = Authority(tmp_path), FakeApi()
    await api.start(tls=tls_for_users(authority))
    api.put(NODES, node_object("n"))
    used, other = authority.sign("used", "first"), authority.sign("other", "second")
    user = {"client-certificate": "used.crt", "client-key": "used.key"}
    file = kubeconfig(tmp_path, api, user, authority.certificate)
    try:
        async with await Client.connect(file) as client:
            await nodes(client).get("n")
            shutil.copy(other.certificate, used.certificate)
            await nodes(client).get("n")
            shutil.copy(other.key, used.key)
            await nodes(client).get("n")
            used.key.unlink()
            await nodes(client).get("n")
        assert [call.user for call in api.calls] == ["first", "first", "second", "second"]
    finally:
        await api.stop()


FILES = {"client-certificate": "a.crt", "client-key": "a.key"}


@pytest.mark.parametrize(
    ("user", "followed"),
    [
        (FILES, True),
        ({**FILES, "client-key-data": "eA=="}, False),
        ({"client-certificate": "a.crt"}, False),
        ({}, False),
    ],
)
async def test_certificate_files_are_followed_unless_data_has_precedence(
    tmp_path: Path, user: dict[str, str], followed: bool
) -> None:
    async with FakeApi() as api:
        access = await load(kubeconfig(tmp_path, api, user), None)
    wanted = (tmp_path / "a.crt", tmp_path / "a.key") if followed else None
    assert access.certificate_files == wanted
