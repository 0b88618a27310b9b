"""Create and read certificates and keys; the only module that imports `cryptography`."""

import datetime as dt
import ipaddress
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from core.model.errors import InvalidInputError

CA_DAYS: Final = 3650
LEAF_DAYS: Final = 7
BACKDATE_SECONDS: Final = 3600
"""Time before its creation from which a certificate is valid, because clocks differ."""
BUNDLE_CERTIFICATES_MAX: Final = 100
"""Maximum number of certificates of a bundle that are read."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its private key, and the CA that signed it, each as PEM.

    `ca` is empty for CAs, and for pairs whose CA is not known.
    """

    certificate: bytes
    key: bytes
    ca: bytes = b""


def make_ca(unix_seconds: int) -> Pair:
    """Create a self-signed CA with a new key, valid for CA_DAYS from *unix_seconds*.

    All CAs of Ebb have the same subject name, but each has its own key ID.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_CA_NAME, _CA_NAME, key.public_key(), unix_seconds, CA_DAYS)
        .add_extension(_CA_LIMITS, critical=True)
        .add_extension(_CA_USAGE, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def make_leaf(ca: Pair, names: Sequence[str], unix_seconds: int) -> Pair:
    """Create a key and a serving certificate for it, signed by *ca*.

    *names*: DNS names and IP addresses of the server. The certificate is valid for LEAF_DAYS from
    *unix_seconds*. Raises: InvalidInputError if the CA cannot be read.
    """
    issuer_key = _key(ca.key)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ebb")])
    with reading("CA"):
        issuer = _certificate(ca.certificate).subject
        certificate = (
            _builder(subject, issuer, key.public_key(), unix_seconds, LEAF_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([*map(_name, names)]), critical=False)
            .add_extension(_SERVER, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
                critical=False,
            )
            .sign(issuer_key, hashes.SHA256())
        )
    return replace(_pair(certificate, key), ca=ca.certificate)


def make_pair(names: Sequence[str], unix_seconds: int) -> Pair:
    """Create a serving certificate for DNS names and IP addresses, signed by a new CA.

    It suits one run of a program, because the key of the CA is not kept. *unix_seconds*: begin of
    the validity. Raises: InvalidInputError.
    """
    return make_leaf(make_ca(unix_seconds), names, unix_seconds)


def life(certificate: bytes) -> tuple[int, int]:
    """Return the start and end of a certificate's validity, in Unix seconds.

    Raises: InvalidInputError if *certificate* is not a certificate as PEM.
    """
    parsed = _certificate(certificate)
    with reading("certificate"):
        since, until = parsed.not_valid_before_utc, parsed.not_valid_after_utc
    return int(since.timestamp()), int(until.timestamp())


def split(bundle: bytes) -> list[bytes]:
    """Return the certificates of a PEM bundle, each in canonical PEM, without invalid ones.

    At most BUNDLE_CERTIFICATES_MAX are read. The API server also ignores invalid certificates in a
    caBundle.
    """
    certificates = []
    for _, block in zip(range(BUNDLE_CERTIFICATES_MAX), _BLOCK.finditer(bundle), strict=False):
        try:
            certificates.append(_certificate(block[0]).public_bytes(_PEM))
        except InvalidInputError:
            continue
    return certificates


def signs_itself(certificate: bytes) -> None:
    """Check that the certificate is intact and self-signed.

    Raises: InvalidInputError if it is not.
    """
    parsed = _certificate(certificate)
    with reading("CA"):
        parsed.verify_directly_issued_by(parsed)


def is_ours(certificate: bytes) -> bool:
    """Return whether the certificate is a CA that `make_ca` created; False if it cannot be read.

    A CA of others may be unreadable here: OpenSSL and Go accept names that `cryptography` rejects,
    such as Latin 1 in a TeletexString.
    """
    try:
        with reading("certificate"):
            parsed = _certificate(certificate)
            limits = parsed.extensions.get_extension_for_class(x509.BasicConstraints).value
            # The CA of the component cert-manager has the same name, but may sign other CAs.
            return parsed.subject == _CA_NAME and limits == _CA_LIMITS
    except InvalidInputError:
        return False


@contextmanager
def reading(item: str) -> Iterator[None]:
    """Raise InvalidInputError about *item* if a library rejects its bytes in the `with` block."""
    try:
        yield
    except _REFUSALS as fault:
        raise InvalidInputError(item, f"{type(fault).__name__} {fault}".strip()) from fault
    except BaseException as fault:
        if (
            type(fault).__name__ != "PanicException"
        ):  # an exception from Rust; the class is not importable
            raise
        raise InvalidInputError(item, "cannot be read") from fault


def _certificate(pem: bytes) -> x509.Certificate:
    with reading("certificate"):
        return x509.load_pem_x509_certificate(pem)


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    with reading("key"):
        key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, _CURVES):
        raise InvalidInputError(
            "key", "is not an ECDSA key with a curve that the API server supports"
        )
    return key


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    written = key.private_bytes(
        _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate.public_bytes(_PEM), written)


_PEM: Final = serialization.Encoding.PEM
_BLOCK: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----"
)
_REFUSALS: Final = (
    CryptographyDeprecationWarning,  # if warnings are errors
    InvalidSignature,
    OSError,  # includes ssl.SSLError
    OverflowError,
    TypeError,
    UnsupportedAlgorithm,
    ValueError,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
_CURVES: Final = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_SERVER: Final = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
_CA_NAME: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ebb-ca")])
_CA_LIMITS: Final = x509.BasicConstraints(ca=True, path_length=0)
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
