"""Users of a fake API server: exec plugins, and client certificates."""

import json
import ssl
from pathlib import Path
from typing import Any, ClassVar

import yaml

from tests.e2e.pki import Authority, Signed
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import KUBECONFIG

VERSION = "client.authentication.k8s.io/v1"


def tls_for_users(authority: Authority) -> ssl.SSLContext:
    """Return the TLS context of a server that requires client certificates."""
    server = authority.sign("server", "server", hosts=("127.0.0.1",))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.certificate)
    context.load_cert_chain(server.certificate, server.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def kubeconfig(folder: Path, api: FakeApi, user: Any, ca: Path | None = None) -> str:
    """Write a kubeconfig of the server with a user; return its path."""
    document: dict[str, Any] = yaml.safe_load(KUBECONFIG.format(url=api.url))
    document["users"][0]["user"] = user
    if ca is not None:
        document["clusters"][0]["cluster"]["certificate-authority"] = str(ca)
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return str(file)


class Plugin:
    """A plugin that prints the contents of a file and counts its runs."""

    user: ClassVar = {"exec": {"command": "./plugin", "apiVersion": VERSION}}
    """The user of a kubeconfig."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        script = f"#!/bin/sh\necho asked >> {folder}/asked\ncat {folder}/answer || exit 3\n"
        (folder / "plugin").write_text(script)
        (folder / "plugin").chmod(0o755)

    def answers(self, **status: str) -> None:
        document = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}
        (self.folder / "answer").write_text(json.dumps(document))

    def answers_certificate(self, signed: Signed, **status: str) -> None:
        """Answer with a client certificate and its key."""
        certificate, key = signed.certificate.read_text(), signed.key.read_text()
        self.answers(clientCertificateData=certificate, clientKeyData=key, **status)

    @property
    def runs(self) -> int:
        return len((self.folder / "asked").read_text().splitlines())

    def kubeconfig(self, api: FakeApi, ca: Path | None = None) -> str:
        return kubeconfig(self.folder, api, self.user, ca)
