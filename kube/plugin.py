"""Run exec plugins, which return credentials: `users[].user.exec` of a kubeconfig.

The protocol: https://kubernetes.io/docs/reference/access-authn-authz/authentication/ The
kubernetes package only logs a plugin's failure and continues without credentials.
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

from core.model.errors import InvalidInputError
from kube.decode.field_decoding import unix_seconds

SECONDS_MAX: Final = 60.0
"""Timeout of a plugin; a user may have to confirm in a browser."""
BYTES_MAX: Final = 1024 * 1024
FIELDS: Final = {
    "token": "token",
    "clientCertificateData": "client-certificate-data",
    "clientKeyData": "client-key-data",
}
"""Fields of a plugin's answer, and the corresponding fields of a kubeconfig."""
CA: Final = "certificate-authority-data"
CLUSTER_FIELDS: Final = (
    "server", "tls-server-name", "insecure-skip-tls-verify", CA, "proxy-url",
    "disable-compression",
)  # fmt: skip
"""Fields of a cluster that are passed to a plugin as in the kubeconfig."""
EXTENSION: Final = "client.authentication.k8s.io/exec"
"""Name of the extension of a cluster that is passed to plugins."""


@dataclass(frozen=True, slots=True)
class PluginRun:
    """The input of an exec plugin, and the credentials that it returned."""

    given: Mapping[str, Any]
    """The plugin's entry in the kubeconfig."""
    spec: Mapping[str, Any]
    """The spec that was passed to the plugin."""
    fields: Mapping[str, str]
    """Credentials, as fields of a user in a kubeconfig."""
    ends_unix_seconds: int | None
    """Unix second at which the credentials expire; None if unknown."""

    @property
    def certificate(self) -> str | None:
        """Return the client certificate (PEM in base64), or None if the plugin returned none."""
        return self.fields.get("client-certificate-data")


def spec_for(given: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of the ExecCredential that a plugin receives.

    *given*: the plugin's entry in the kubeconfig. *cluster*: the entry of the cluster, which the
    spec contains if the plugin asks for it. Raises: InvalidInputError if the CA file of the
    cluster cannot be read.
    """
    interactive = (
        given.get("interactiveMode") != "Never" and sys.stdin is not None and sys.stdin.isatty()
    )
    if not given.get("provideClusterInfo"):
        return {"interactive": interactive}
    passed = {name: cluster[name] for name in CLUSTER_FIELDS if cluster.get(name)}
    file = cluster.get("certificate-authority")
    if file and CA not in passed:
        passed[CA] = base64.b64encode(_content(Path(file))).decode()
    for extension in cluster.get("extensions") or ():
        if extension["name"] == EXTENSION:
            passed["config"] = extension["extension"]
    return {"cluster": passed, "interactive": interactive}


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(BYTES_MAX)
    except OSError as fault:
        raise InvalidInputError(str(file), fault.strerror or str(fault)) from fault


async def run(
    given: Mapping[str, Any], spec: Mapping[str, Any], seconds_max: float = SECONDS_MAX
) -> PluginRun:
    """Run a plugin, and return its credentials.

    *given*: the plugin's entry in the kubeconfig. *spec*: spec of the ExecCredential, from
    `spec_for`. *seconds_max*: timeout. Raises: InvalidInputError with the plugin's name and the
    last line of its standard error.
    """
    where = f"plugin {given['command']}"
    added = {variable["name"]: str(variable["value"]) for variable in given.get("env") or ()}
    credential = {"apiVersion": given["apiVersion"], "kind": "ExecCredential", "spec": spec}
    try:
        process = await asyncio.create_subprocess_exec(
            given["command"],
            *map(str, given.get("args") or ()),
            env={**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(credential)},  # noqa: TID251 a plugin finds its own files by it
            stdin=None if spec["interactive"] else DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )
    except OSError as fault:
        hint = f"; {' '.join(str(given['installHint']).split())}" if "installHint" in given else ""
        raise InvalidInputError(where, f"{fault.strerror}{hint}") from fault
    out, err = await _outputs_of(process, where, seconds_max)
    if process.returncode:
        last = (
            err.decode(errors="replace").strip().splitlines() or ["no output on standard error"]
        )[-1]
        raise InvalidInputError(where, f"exit code {process.returncode}: {last:.300}")
    return PluginRun(given, spec, *_credentials(out, given["apiVersion"], where))


async def _outputs_of(
    process: asyncio.subprocess.Process, where: str, seconds_max: float
) -> tuple[bytes, bytes]:
    try:
        async with asyncio.timeout(seconds_max):
            outputs = await asyncio.gather(_read_all(process.stdout), _read_all(process.stderr))
            await process.wait()
    except TimeoutError as fault:
        raise InvalidInputError(where, f"no answer within {seconds_max:g} s") from fault
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return outputs[0], outputs[1]


async def _read_all(stream: StreamReader | None) -> bytes:
    """Read to the end of the stream; return its first BYTES_MAX bytes."""
    kept = b""
    while stream is not None and (chunk := await stream.read(BYTES_MAX)):
        kept = (kept + chunk)[:BYTES_MAX]
    return kept


def _credentials(raw: bytes, version: str, where: str) -> tuple[dict[str, str], int | None]:
    """Decode a plugin's output; return credentials, and their expiration in Unix seconds.

    The credentials are fields of a kubeconfig's user. The expiration is None if the output has no
    valid one. *version*: the required apiVersion. Raises: InvalidInputError with *where*; it never
    includes the plugin's output, which may be a secret.
    """
    try:
        answer = json.loads(raw)
        status = answer["status"]
        credentials = {
            name: str(status[field]) for field, name in FIELDS.items() if status.get(field)
        }
        ends = unix_seconds(status.get("expirationTimestamp"))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as fault:
        raise InvalidInputError(where, "its output is not an ExecCredential") from fault
    if answer.get("apiVersion") != version:
        raise InvalidInputError(where, f"its output does not have the apiVersion {version}")
    if "token" not in credentials and len(credentials) != len(FIELDS) - 1:
        raise InvalidInputError(
            where, "its output has neither a token nor a client certificate with its key"
        )
    fields = {
        name: value if name == "token" else base64.b64encode(value.encode()).decode()
        for name, value in credentials.items()
    }
    return fields, ends
