"""Throw-away certificates of a test cluster."""

import base64
import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Signed:
    """Files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """A CA in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = rsa.generate_private_key(65537, 2048)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "e2e-ca")])
        certificate = (
            self._begun(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(certificate.public_bytes(PEM))
        write_key(folder / "ca.key", self._key)
        self.key = folder / "ca.key"

    def sign(
        self, file: str, name: str, *, group: str = "", hosts: tuple[str, ...] = ()
    ) -> Signed:
        """Create a certificate for a user with a group, or for a server with its host names."""
        key = rsa.generate_private_key(65537, 2048)
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if group:
            parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        begun = self._begun(x509.Name(parts), key).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            begun = begun.add_extension(names, critical=False)
        signed = Signed(self.folder / f"{file}.crt", self.folder / f"{file}.key")
        signed.certificate.write_bytes(begun.sign(self._key, hashes.SHA256()).public_bytes(PEM))
        write_key(signed.key, key)
        return signed

    def _begun(self, subject: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=2))
        )


def write_key(path: Path, key: rsa.RSAPrivateKey) -> None:
    """Write a private key that only its owner can read."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def write_kubeconfig(
    path: Path, url: str, ca: Path, user: Signed | None = None, token: str = ""
) -> Path:
    """Write a self-contained kubeconfig."""

    def inside(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    if user is None:
        credential = {"token": token}
    else:
        credential = {
            "client-certificate-data": inside(user.certificate),
            "client-key-data": inside(user.key),
        }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "e2e",
        "clusters": [
            {"name": "e2e", "cluster": {"server": url, "certificate-authority-data": inside(ca)}}
        ],
        "users": [{"name": "e2e", "user": credential}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
