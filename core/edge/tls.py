"""Certificates and TLS contexts; the one importer of `cryptography`.

The generated pair lives in memory: a certificate authority of its own and one leaf that it signed,
EC P-256. Whoever calls must trust `Pair.ca_pem` (for the API server: caBundle).
"""

import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from core.errors import InvalidInputError

CA_LIFETIME: Final = timedelta(days=3650)
LEAF_LIFETIME: Final = timedelta(days=365)
"""Nothing renews the leaf while the program runs; a restart makes a new pair."""
BACKDATE: Final = timedelta(hours=1)
"""Callers' clocks may be late."""
NAMES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Pair:
    """A serving certificate with its key, and the authority that signed it; all PEM."""

    ca_pem: bytes
    cert_pem: bytes
    key_pem: bytes


def generate(names: Sequence[str], now_seconds: int) -> Pair:
    """Make an authority and a leaf for *names*: DNS names and IP addresses, as they are called.

    *now_seconds* is unix time; lifetimes are CA_LIFETIME and LEAF_LIFETIME.
    Raises: InvalidInputError when there is no name, too many, or one that is not a DNS name.
    """
    if not 0 < len(names) <= NAMES_MAX:
        raise InvalidInputError("certificate", f"{len(names)} names; 1 to {NAMES_MAX} are allowed")
    now = datetime.fromtimestamp(now_seconds, UTC)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    ca = _authority(ca_key, now)
    leaf = _leaf(key.public_key(), ca, ca_key, [_alternative(name) for name in names], now)
    return Pair(
        ca.public_bytes(Encoding.PEM),
        leaf.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def server_context(pair: Pair) -> ssl.SSLContext:
    """Make a server's context from a generated pair."""
    with tempfile.TemporaryDirectory(prefix="ebb-tls-") as folder:  # mode 0700; ssl wants files
        cert, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        cert.write_bytes(pair.cert_pem)
        key.write_bytes(pair.key_pem)
        return server_context_from_files(str(cert), str(key))


def server_context_from_files(cert_file: str, key_file: str) -> ssl.SSLContext:
    """Make a server's context from PEM files (chain, key).

    Raises: InvalidInputError when they cannot be read or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert_file, key_file)
    except (OSError, ValueError) as fault:  # SSLError is an OSError
        raise InvalidInputError(f"certificate {cert_file}, key {key_file}", str(fault)) from fault
    return context


def client_context(ca_pem: bytes) -> ssl.SSLContext:
    """Make a client's context that trusts this authority alone and checks names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=ca_pem.decode("ascii"))
    return context


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name.encode("idna").decode("ascii"))
    except (UnicodeError, ValueError) as fault:
        raise InvalidInputError("certificate", f"{name!r} is not a DNS name") from fault


def _builder(now: datetime, lifetime: timedelta) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + lifetime)
    )


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-ebb authority")])
    public = key.public_key()
    return (
        _builder(now, CA_LIFETIME)
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, SHA256())
    )


def _leaf(
    public: ec.EllipticCurvePublicKey,
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    alternatives: Sequence[x509.GeneralName],
    now: datetime,
) -> x509.Certificate:
    # The subject is a fixed word: names count as alternative names only, and may exceed 64 bytes.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-ebb")])
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _builder(now, LEAF_LIFETIME)
        .subject_name(subject)
        .issuer_name(ca.subject)
        .public_key(public)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, SHA256())
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
