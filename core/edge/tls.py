"""Certificates: files, or a CA and a leaf made in memory; the only importer of `cryptography`."""

import datetime as dt
import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from core.errors import InvalidInputError

CA_DAYS: Final = 3650
LEAF_DAYS: Final = 365
BACKDATE_SECONDS: Final = 3600
"""Clocks differ: a certificate is valid from a little before it was made."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A serving certificate with its key, and the CA that signed it; PEM."""

    ca: bytes
    certificate: bytes
    key: bytes


def make_pair(names: Sequence[str], unix_seconds: int) -> Pair:
    """Make a CA and a leaf for DNS names and IP addresses, valid from *unix_seconds*."""
    start = dt.datetime.fromtimestamp(unix_seconds - BACKDATE_SECONDS, dt.UTC)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ebb-ca")])
    ca = (
        _builder(issuer, issuer, ca_key.public_key(), start, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_CA_USAGE, critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ebb")])
    leaf = (
        _builder(subject, issuer, key.public_key(), start, LEAF_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([_name(name) for name in names]), critical=False
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return Pair(
        ca=ca.public_bytes(pem),
        certificate=leaf.public_bytes(pem),
        key=key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def serving(pair: Pair) -> ssl.SSLContext:
    """Return a server's context; the ssl module wants a file, which is gone at once."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.certificate + pair.key)
        file.flush()
        return serving_files(file.name, file.name)


def serving_files(certificate: str, key: str) -> ssl.SSLContext:
    """Return a server's context from PEM files. Raises: InvalidInputError that names them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (certificate, key):
        if not Path(path).is_file():
            raise InvalidInputError(path, "no such file")
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as fault:
        raise InvalidInputError(f"{certificate}, {key}", f"not a PEM pair: {fault}") from fault
    return context


def trusting(ca: bytes) -> ssl.SSLContext:
    """Return a client's context that trusts this CA alone."""
    return ssl.create_default_context(cadata=ca.decode())


_CA_USAGE: Final = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    start: dt.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=days))
    )


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
