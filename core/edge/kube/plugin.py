"""Programs that say who is calling: `users[].user.exec` of a kubeconfig.

The contract: https://kubernetes.io/docs/reference/access-authn-authz/authentication/
The package logs a plugin's failure and goes on without credentials.
"""

import asyncio
import base64
import json
import os
import sys
from asyncio import StreamReader
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from core.edge.decode.fields import unix_seconds
from core.model.errors import InvalidInputError

SECONDS_MAX: Final = 60.0
"""A person may have to say yes in a browser."""
BYTES_MAX: Final = 1024 * 1024
FIELDS: Final = {
    "token": "token",
    "clientCertificateData": "client-certificate-data",
    "clientKeyData": "client-key-data",
}
"""What a plugin answers, and where it stands in a kubeconfig."""
CA: Final = "certificate-authority-data"
TOLD: Final = (
    "server", "tls-server-name", "insecure-skip-tls-verify", CA, "proxy-url",
    "disable-compression",
)  # fmt: skip
"""What a plugin is told of a cluster as it stands in the kubeconfig."""
EXTENSION: Final = "client.authentication.k8s.io/exec"
"""Of a cluster: what is meant for plugins."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to a plugin, and its answer."""

    given: Mapping[str, Any]
    """The plugin as the kubeconfig has it."""
    spec: Mapping[str, Any]
    """What it was told."""
    fields: Mapping[str, str]
    """Its answer, as a user's fields in a kubeconfig."""
    ends_unix_seconds: int | None
    """When that ends; None: it does not say so, or cannot be read."""

    @property
    def certificate(self) -> str | None:
        """Return the certificate that it answers, if it does."""
        return self.fields.get("client-certificate-data")


def told_of(given: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return an ExecCredential's spec for a plugin; *cluster* is that of the kubeconfig.

    Raises: InvalidInputError for a file of the cluster that cannot be read.
    """
    interactive = (
        given.get("interactiveMode") != "Never" and sys.stdin is not None and sys.stdin.isatty()
    )
    if not given.get("provideClusterInfo"):
        return {"interactive": interactive}
    told = {name: cluster[name] for name in TOLD if cluster.get(name)}
    file = cluster.get("certificate-authority")
    if file and CA not in told:
        told[CA] = base64.b64encode(_content(Path(file))).decode()
    for one in cluster.get("extensions") or ():
        if one["name"] == EXTENSION:
            told["config"] = one["extension"]
    return {"cluster": told, "interactive": interactive}


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(BYTES_MAX)
    except OSError as fault:
        raise InvalidInputError(str(file), fault.strerror or str(fault)) from fault


async def ask(
    given: Mapping[str, Any], spec: Mapping[str, Any], seconds_max: float = SECONDS_MAX
) -> Asked:
    """Run a plugin.

    *spec*: what it is told. Raises: InvalidInputError that names the plugin and the last line of
    its standard error.
    """
    where = f"plugin {given['command']}"
    added = {one["name"]: str(one["value"]) for one in given.get("env") or ()}
    told = {"apiVersion": given["apiVersion"], "kind": "ExecCredential", "spec": spec}
    try:
        process = await asyncio.create_subprocess_exec(
            given["command"],
            *map(str, given.get("args") or ()),
            env={**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(told)},  # noqa: TID251 a plugin finds its own files by it
            stdin=None if spec["interactive"] else DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )
    except OSError as fault:
        hint = f"; {' '.join(str(given['installHint']).split())}" if "installHint" in given else ""
        raise InvalidInputError(where, f"{fault.strerror}{hint}") from fault
    out, err = await _finished(process, where, seconds_max)
    if process.returncode:
        last = (err.decode(errors="replace").strip().splitlines() or ["it says nothing"])[-1]
        raise InvalidInputError(where, f"exit code {process.returncode}: {last:.300}")
    return Asked(given, spec, *_credentials(out, given["apiVersion"], where))


async def _finished(
    process: asyncio.subprocess.Process, where: str, seconds_max: float
) -> tuple[bytes, bytes]:
    try:
        async with asyncio.timeout(seconds_max):
            found = await asyncio.gather(_whole(process.stdout), _whole(process.stderr))
            await process.wait()
    except TimeoutError as fault:
        raise InvalidInputError(where, f"no answer within {seconds_max:g} s") from fault
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return found[0], found[1]


async def _whole(stream: StreamReader | None) -> bytes:
    """Read to the end, and keep what is within bounds."""
    kept = b""
    while stream is not None and (chunk := await stream.read(BYTES_MAX)):
        kept = (kept + chunk)[:BYTES_MAX]
    return kept


def _credentials(raw: bytes, version: str, where: str) -> tuple[dict[str, str], int | None]:
    """Read an ExecCredential: the fields, and when they end, in unix seconds.

    What a plugin printed is never told, as it may be a secret.
    """
    try:
        answer = json.loads(raw)
        status = answer["status"]
        found = {name: str(status[field]) for field, name in FIELDS.items() if status.get(field)}
        ends = unix_seconds(status.get("expirationTimestamp"))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as fault:
        raise InvalidInputError(where, "what it printed is no ExecCredential") from fault
    if answer.get("apiVersion") != version:
        raise InvalidInputError(where, f"its answer is not of apiVersion {version}")
    if "token" not in found and len(found) != len(FIELDS) - 1:
        raise InvalidInputError(where, "its answer has neither a token nor a certificate with key")
    fields = {
        name: one if name == "token" else base64.b64encode(one.encode()).decode()
        for name, one in found.items()
    }
    return fields, ends
