"""Webhook replicas on an in-memory Secret and MutatingWebhookConfiguration, and TLS clients."""

import asyncio
import base64
import datetime as dt
import random
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from core.model.errors import ConflictError, UnavailableError
from kube.stores.ca_store import Registered, Registration, Secret, SecretStore
from runtime.clock import Clock
from serving.tls import Pair
from serving.tls_contexts import ServingCertificate
from webhook.certs import Certificates

START = int(time.time()) - 3600
"""Start of the tests' time. TLS checks the real time, and tests last less than an hour."""
SOAK = 300
_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_PEM = serialization.Encoding.PEM
_OPEN = serialization.NoEncryption()


@dataclass
class Cluster:
    """A Secret and a configuration with two webhooks in memory, with resource versions."""

    data: Mapping[str, bytes] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    bundle: list[bytes] | None = field(default_factory=lambda: [b"", b""])
    version: int = 1
    bundle_version: int = 1
    writes: int = 0
    """Number of writes of the caBundles by replicas."""
    told: list[tuple[str, str]] = field(default_factory=list)
    refused: str = ""
    """Operation on the configuration that the API server forbids: "read" or "write"."""
    on_write: Callable[[bytes], None] = lambda _: None
    """Called with each caBundle that a replica writes."""

    def tamper_secret(self, data: Mapping[str, bytes]) -> None:
        """Replace the data of the Secret as another client."""
        self.data, self.version = dict(data), self.version + 1

    def tamper_bundle(self, bundle: bytes) -> None:
        """Replace every caBundle as another client."""
        self.bundle = [bundle for _ in self.bundle or ()]
        self.bundle_version += 1

    async def read(self) -> Secret:
        await asyncio.sleep(0)  # other replicas run in between
        return Secret(self.data, self.annotations, {"version": self.version})

    async def write_secret(
        self, read: Secret, data: Mapping[str, bytes], annotations: Mapping[str, str]
    ) -> Secret:
        await asyncio.sleep(0)
        if read.whole["version"] != self.version:
            raise ConflictError("409")
        self.version += 1
        self.data, self.annotations = dict(data), dict(annotations)
        return await self.read()


class KilledError(Exception):
    """The replica was killed."""


@dataclass
class Way:
    """The connection of one replica to the API server, with faults that a test injects."""

    down: bool = False
    blind: bool = False
    """Whether access to the configuration fails."""
    dies: bool = False
    """Whether the replica is killed before its next write of the caBundles."""

    def go(self) -> None:
        if self.down:
            raise UnavailableError("no answer")


class _Secrets(SecretStore):
    def __init__(self, cluster: Cluster, way: Way) -> None:
        self._cluster, self._way = cluster, way

    async def read(self) -> Secret:
        self._way.go()
        return await self._cluster.read()

    async def write(
        self, read: Secret, data: Mapping[str, bytes], annotations: Mapping[str, str]
    ) -> Secret:
        self._way.go()
        return await self._cluster.write_secret(read, data, annotations)


class _Registration(Registration):
    def __init__(self, cluster: Cluster, way: Way) -> None:
        self._cluster, self._way = cluster, way

    async def read(self) -> Registered | None:
        self._check("read")
        await asyncio.sleep(0)
        found = self._cluster.bundle
        if found is None:
            return None
        return Registered([*found], {"version": self._cluster.bundle_version})

    def _check(self, what: str) -> None:
        self._way.go()
        if self._way.blind or self._cluster.refused == what:
            raise UnavailableError("403")

    async def write(self, read: Registered, wanted: bytes) -> None:
        self._check("write")
        if self._way.dies:
            raise KilledError
        await asyncio.sleep(0)
        if read.whole["version"] != self._cluster.bundle_version:
            raise ConflictError("409")
        self._cluster.on_write(wanted)
        self._cluster.writes += 1
        self._cluster.bundle_version += 1
        self._cluster.bundle = [wanted for _ in read.bundles]


def replica(
    cluster: Cluster,
    clock: Clock,
    way: Way | None = None,
    *,
    count_repair: Callable[[], None] = lambda: None,
) -> tuple[Certificates, ServingCertificate]:
    serving, way = ServingCertificate(), way or Way()
    made = Certificates(
        _Secrets(cluster, way),
        _Registration(cluster, way),
        serving,
        names=["localhost", "127.0.0.1"],
        clock=clock,
        soak_seconds=SOAK,
        record_event=lambda reason, note: cluster.told.append((reason, note)),
        count_repair=count_repair,
    )
    return made, serving


async def trusted(serving: ServingCertificate, bundle: bytes) -> None:
    """Connect to the server as a client that trusts the bundle. Raises: ssl.SSLError."""
    app = web.Application()
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving.context).start()
    port = runner.addresses[0][1]
    try:
        trust = ssl.create_default_context(cadata=bundle.decode())
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trust, server_hostname="localhost"
        )
        writer.close()
    finally:
        await runner.cleanup()


def connects(context: ssl.SSLContext, bundle: bytes, shown: Path | None = None) -> bool:
    """Return whether a client that trusts only the bundle can connect to a server, in memory.

    *shown* is a file with the certificate and key of the client.
    """
    trust = ssl.create_default_context(cadata=bundle.decode())
    if shown:
        trust.load_cert_chain(shown)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        trust.wrap_bio(to_client, to_server, server_hostname="localhost"),
        context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for end in (*ends, *ends, *ends):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            return False
    return ends[0].version() is not None


def signed(
    ca: Pair, key: _Key, *, name: str = "ebb-ca", days: int = 7, is_ca: bool = False
) -> Pair:
    """Sign a certificate for any type of key, by a CA, or by itself if the key is the same."""
    issuer = x509.load_pem_x509_certificate(ca.certificate).subject
    signer = serialization.load_pem_private_key(ca.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    begun = dt.datetime.fromtimestamp(START - 30 * 24 * 3600, dt.UTC)
    made = (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begun)
        .not_valid_after(begun + dt.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    return Pair(made.public_bytes(_PEM), pem_of(key), ca.certificate)


def pem_of(key: _Key, password: bytes | None = None) -> bytes:
    """Return a key as PEM."""
    how = serialization.BestAvailableEncryption(password) if password else _OPEN
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, how)


def mutated(pem: bytes, chance: random.Random) -> bytes:
    """Change some bytes of the PEM text or of its decoded content."""
    if chance.random() < 0.3:
        return _changed(pem, chance)
    lines = pem.strip().split(b"\n")
    held = _changed(base64.b64decode(b"".join(lines[1:-1])), chance)
    return b"\n".join([lines[0], base64.encodebytes(held).strip(), lines[-1], b""])


def _changed(data: bytes, chance: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        place, length = chance.randrange(len(found)), chance.randrange(1, 5)
        match chance.randrange(4):
            case 0:
                found[place] ^= 1 << chance.randrange(8)
            case 1:
                found[place] = chance.randrange(256)
            case 2:
                del found[place : place + length]
            case _:
                found[place:place] = chance.randbytes(length)
    return bytes(found)
