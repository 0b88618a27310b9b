"""Certificates: from files, or a CA and leaves of our own; the only importer of `cryptography`."""

import datetime as dt
import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from core.errors import InvalidInputError

CA_DAYS: Final = 3650
LEAF_DAYS: Final = 7
BACKDATE_SECONDS: Final = 3600
"""Clocks differ: a certificate is valid from a little before it was made."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its key, and the CA that signed it; PEM."""

    certificate: bytes
    key: bytes
    ca: bytes = b""


def make_ca(unix_seconds: int) -> Pair:
    """Make a CA that is valid from *unix_seconds*; equal names are told apart by key ids."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_CA_NAME, _CA_NAME, key.public_key(), unix_seconds, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_CA_USAGE, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def make_leaf(ca: Pair, names: Sequence[str], unix_seconds: int) -> Pair:
    """Sign a serving certificate for DNS names and IP addresses. Raises: InvalidInputError."""
    issuer = _certificate(ca.certificate)
    issuer_key = _key(ca.key)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ebb")])
    certificate = (
        _builder(subject, issuer.subject, key.public_key(), unix_seconds, LEAF_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([_name(name) for name in names]), critical=False
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return replace(_pair(certificate, key), ca=ca.certificate)


def make_pair(names: Sequence[str], unix_seconds: int) -> Pair:
    """Make a leaf of a CA that signs nothing else, for one run. Raises: InvalidInputError."""
    return make_leaf(make_ca(unix_seconds), names, unix_seconds)


def life(certificate: bytes) -> tuple[int, int]:
    """Return from and until when it is valid, unix seconds. Raises: InvalidInputError."""
    found = _certificate(certificate)
    return int(found.not_valid_before_utc.timestamp()), int(found.not_valid_after_utc.timestamp())


def split(bundle: bytes) -> list[bytes]:
    """Return a bundle's certificates, each in canonical PEM. Raises: InvalidInputError."""
    try:
        found = x509.load_pem_x509_certificates(bundle) if bundle.strip() else []
    except ValueError as fault:
        raise InvalidInputError("certificates", f"not PEM: {fault}") from fault
    return [certificate.public_bytes(_PEM) for certificate in found]


def is_ours(certificate: bytes) -> bool:
    """Say whether it is a CA that `make_ca` made. Raises: InvalidInputError."""
    return _certificate(certificate).subject == _CA_NAME


class Serving:
    """A server's TLS whose certificate can change while it listens.

    New handshakes see the new one; connections that are open go on.
    """

    def __init__(self, client_ca: str | None = None) -> None:
        """*client_ca*: a PEM file; a certificate that a caller shows must be of it."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.valid_until = 0
        """Unix seconds; 0 as long as nothing has been loaded."""
        if client_ca is not None:
            try:
                self.context.load_verify_locations(client_ca)
            except (ssl.SSLError, OSError) as fault:
                raise InvalidInputError(client_ca, f"not PEM certificates: {fault}") from fault
            self.context.verify_mode = ssl.CERT_OPTIONAL

    def load(self, pair: Pair) -> None:
        """Serve this certificate; the ssl module wants a file, which is gone at once."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(pair.certificate + pair.key)
            file.flush()
            self.context.load_cert_chain(file.name)
        self.valid_until = life(pair.certificate)[1]

    def load_files(self, certificate: str, key: str) -> None:
        """Serve what stands in PEM files. Raises: InvalidInputError that names them."""
        for path in (certificate, key):
            if not Path(path).is_file():
                raise InvalidInputError(path, "no such file")
        try:
            self.context.load_cert_chain(certificate, key)
            self.valid_until = life(Path(certificate).read_bytes())[1]
        except (ssl.SSLError, OSError) as fault:
            raise InvalidInputError(f"{certificate}, {key}", f"not a PEM pair: {fault}") from fault


def serving(pair: Pair) -> ssl.SSLContext:
    """Return a server's context for a certificate that does not change."""
    server = Serving()
    server.load(pair)
    return server.context


def trusting(ca: bytes) -> ssl.SSLContext:
    """Return a client's context that trusts this CA alone."""
    return ssl.create_default_context(cadata=ca.decode())


def _certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as fault:
        raise InvalidInputError("certificate", f"not PEM: {fault}") from fault


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as fault:
        raise InvalidInputError("key", f"not PEM without a password: {fault}") from fault
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidInputError("key", "is not of an elliptic curve")
    return key


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    written = key.private_bytes(
        _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate.public_bytes(_PEM), written)


_PEM: Final = serialization.Encoding.PEM
_CA_NAME: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ebb-ca")])
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
    unix_seconds: int,
    days: int,
) -> x509.CertificateBuilder:
    start = dt.datetime.fromtimestamp(unix_seconds - BACKDATE_SECONDS, dt.UTC)
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
