"""Corrupt trust material: the Secret, the caBundle, and certificate files."""

import base64
import random
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from core.model.errors import ConflictError, InvalidInputError, UnavailableError
from kube.stores.ca_store import REGISTRATIONS, Registration, SecretStore
from serving import tls, tls_contexts
from serving.tls import Pair
from serving.tls_contexts import ServingCertificate
from tests.support.certificates import (
    START,
    Cluster,
    connects,
    mutated,
    pem_of,
    replica,
    signed,
)
from tests.support.clock import FakeClock
from tests.support.fake_api import FakeApi
from tests.support.following import opened
from webhook.authority import OLD_SECONDS, Trust
from webhook.certs import REPLACED

DAY = 24 * 3600
CA, OTHER = tls.make_ca(START), tls.make_ca(START)
LEAF = tls.make_leaf(CA, ["localhost"], START)
GOOD = Trust(CA).encode()
EXPIRED = tls.make_ca(START - 11 * 365 * DAY)
COMING = tls.make_ca(START + 365 * DAY)


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def own(curve: ec.EllipticCurve) -> Pair:
    """Return a self-signed CA of another curve."""
    key = ec.generate_private_key(curve)
    first = signed(CA, key, name="x", days=3650, is_ca=True)
    named = Pair(first.certificate, first.key)
    return signed(named, key, name="x", days=3650, is_ca=True)


def locked() -> bytes:
    return pem_of(ec.generate_private_key(ec.SECP256R1()), b"password")


def secret(crt: bytes, key: bytes) -> dict[str, bytes]:
    return {"ca.crt": crt, "ca.key": key}


UNUSABLE: dict[str, Mapping[str, bytes]] = {
    "empty": secret(b"", b""),
    "no PEM": secret(b"garbage", b"garbage"),
    "not text": secret(bytes(range(256)), bytes(range(256))),
    "zeros": secret(bytes(100_000), bytes(100_000)),
    "base64 twice": secret(base64.b64encode(CA.certificate), base64.b64encode(CA.key)),
    "half a certificate": secret(CA.certificate[:300], CA.key),
    "half a key": secret(CA.certificate, CA.key[:100]),
    "no key": {"ca.crt": CA.certificate},
    "no certificate": {"ca.key": CA.key},
    "certificate and key swapped": secret(CA.key, CA.certificate),
    "key of another CA": secret(CA.certificate, OTHER.key),
    "key with a password": secret(CA.certificate, locked()),
    "RSA": secret(CA.certificate, pem_of(rsa_key())),
    "a leaf": secret(LEAF.certificate, LEAF.key),
    "expired": secret(EXPIRED.certificate, EXPIRED.key),
    "valid in a year": secret(COMING.certificate, COMING.key),
    "uncommon curve": secret(own(ec.SECP256K1()).certificate, own(ec.SECP256K1()).key),
    "an empty PEM": secret(b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", CA.key),
    "many unterminated PEM blocks": secret(b"-----BEGIN CERTIFICATE-----\n" * 30_000, CA.key),
    "only the next CA": {"next.crt": CA.certificate, "next.key": CA.key, "theirs": b"0"},
}


def ready(cluster: Cluster, server: ServingCertificate) -> bool:
    assert cluster.bundle is not None
    return all(connects(server.context, bundle) for bundle in cluster.bundle)


@pytest.mark.parametrize("data", UNUSABLE.values(), ids=UNUSABLE)
async def test_unusable_secret_is_replaced_once(
    data: Mapping[str, bytes],
) -> None:
    cluster, clock = Cluster(), FakeClock(START)
    one, of_one = replica(cluster, clock)
    other, of_other = replica(cluster, clock)
    await one.round()
    await other.round()
    first = one.signed_by
    cluster.tamper_secret({**data, "theirs": b"1"})
    await one.round()
    assert [reason for reason, _ in cluster.told] == [REPLACED]
    version = cluster.version
    await other.round()
    await one.round()
    assert cluster.version == version, "once"
    for certificates, server in ((one, of_one), (other, of_other)):
        assert certificates.signed_by == first, "still trusted, until the new CA has soaked"
        assert certificates.why_not_ready() is None
        assert ready(cluster, server)
    assert cluster.data["theirs"] == b"1"


async def test_other_replicas_remain_trusted_when_replica_starts_with_unusable_secret() -> None:
    cluster, clock = Cluster(data=GOOD), FakeClock(START)
    other, of_other = replica(cluster, clock)
    await other.round()
    cluster.tamper_secret(UNUSABLE["no PEM"])
    one, of_one = replica(cluster, clock)
    await one.round()
    assert one.signed_by != other.signed_by
    assert ready(cluster, of_one)
    assert ready(cluster, of_other)


@pytest.mark.parametrize("data", UNUSABLE.values(), ids=UNUSABLE)
async def test_replica_is_ready_when_it_starts_with_unusable_secret(
    data: Mapping[str, bytes],
) -> None:
    """The caBundle may contain another CA, for example cert-manager's after its removal."""
    cluster = Cluster(data=data, bundle=[STRANGER])
    one, server = replica(cluster, FakeClock(START))
    await one.round()
    assert one.why_not_ready() is None
    assert ready(cluster, server)
    assert cluster.bundle is not None
    assert STRANGER in tls.split(cluster.bundle[0])


STAGE = Trust(CA, OTHER).encode()
AFTER = Trust(CA, old=(OTHER.certificate,), old_until=START + DAY).encode()
SIDE: dict[str, tuple[Mapping[str, bytes], int]] = {
    "next: no certificate": ({**STAGE, "next.crt": b"x"}, 1),
    "next: key of another": ({**STAGE, "next.key": CA.key}, 1),
    "next: no key": ({**GOOD, "next.crt": OTHER.certificate}, 1),
    "next: expired": ({**GOOD, "next.crt": EXPIRED.certificate, "next.key": EXPIRED.key}, 1),
    "old: no certificate": ({**AFTER, "old.crt": b"x"}, 1),
    "old: expired": ({**AFTER, "old.crt": EXPIRED.certificate}, 1),
    "old.until: missing": ({**GOOD, "old.crt": OTHER.certificate}, 2),
    "old.until: no number": ({**AFTER, "old.until": b"x"}, 2),
    "old.until: in 30,000 years": ({**AFTER, "old.until": b"999999999999"}, 2),
    "old.until: in the past": (
        {**AFTER, "old.until": b"1"},
        2,
    ),  # trusted for a while, as our clock may be wrong
}


@pytest.mark.parametrize(("data", "trusted"), SIDE.values(), ids=SIDE)
async def test_valid_ca_remains_when_other_entries_are_invalid(
    data: Mapping[str, bytes], trusted: int
) -> None:
    cluster = Cluster(data={**data, "theirs": b"1"})
    one, server = replica(cluster, FakeClock(START + 1))
    await one.round()
    assert cluster.data["ca.crt"] == CA.certificate
    assert cluster.data["theirs"] == b"1"
    assert cluster.told == []
    assert cluster.bundle is not None
    assert len(tls.split(cluster.bundle[0])) == trusted
    assert ready(cluster, server)
    until = int(cluster.data.get("old.until", START + 1))
    assert until <= START + 1 + OLD_SECONDS


STRANGER = tls.make_leaf(OTHER, ["elsewhere"], START).certificate
UNNAMED = (
    b"-----BEGIN CERTIFICATE-----\n"
    + base64.encodebytes(
        ssl.PEM_cert_to_DER_cert(STRANGER.decode()).replace(b"\x0c\x03ebb", b"\x14\x03e\xfcb")
    )
    + b"-----END CERTIFICATE-----\n"
)
"""A foreign certificate with a name in Latin 1, as older tools write it."""
BUNDLES: dict[str, tuple[bytes, list[bytes]]] = {
    "garbage": (b"garbage", []),
    "not text": (bytes(range(256)), []),
    "a key": (CA.key, []),
    "half a certificate": (STRANGER[:200], []),
    "unterminated PEM blocks": (b"-----BEGIN CERTIFICATE-----\n" * 30_000, []),
    "empty PEM": (b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", []),
    "base64 twice": (base64.b64encode(STRANGER), []),
    "garbage around a foreign certificate": (b"a\xff\n" + STRANGER + b"\x00garbage", [STRANGER]),
    "half a certificate before a foreign one": (STRANGER[:200] + STRANGER, [STRANGER]),
    "a foreign certificate 1,000 times": (STRANGER * 1000, [STRANGER]),
    "expired": (EXPIRED.certificate + STRANGER, [STRANGER]),
    "a foreign name in Latin 1": (UNNAMED + STRANGER, [*tls.split(UNNAMED), STRANGER]),
}


@pytest.mark.parametrize(("bundle", "kept"), BUNDLES.values(), ids=BUNDLES)
async def test_invalid_bundle_is_overwritten(bundle: bytes, kept: list[bytes]) -> None:
    cluster = Cluster(data=GOOD, bundle=[bundle, b""])
    one, server = replica(cluster, FakeClock(START))
    await one.round()
    assert one.why_not_ready() is None
    assert cluster.bundle == [b"".join([CA.certificate, *kept])] * 2
    assert ready(cluster, server)


@pytest.mark.parametrize("seed", range(16))
async def test_next_round_repairs_any_mutation(seed: int) -> None:
    """Mutate the CA, its key, a rotation stage or the bundle, 100 times."""
    chance, clock = random.Random(seed), FakeClock(START)
    cluster = Cluster(data=GOOD, bundle=[b""])
    one, server = replica(cluster, clock)
    for _ in range(100):
        data = dict(chance.choice([GOOD, STAGE, AFTER]))
        broken = chance.choice([*data, "bundle"])
        bundle = CA.certificate + STRANGER
        if broken == "bundle":
            bundle = mutated(CA.certificate, chance) + mutated(STRANGER, chance)
        elif data[broken].startswith(b"-----"):
            data[broken] = mutated(data[broken], chance)
        else:
            data[broken] = chance.randbytes(chance.randrange(1, 20))
        cluster.tamper_secret(data)
        cluster.tamper_bundle(bundle)
        await one.round()
        assert one.why_not_ready() is None
        assert ready(cluster, server)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_pair_is_accepted_or_rejected_with_name(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(250):
        changed = mutated(chance.choice([CA.certificate, CA.key, LEAF.certificate]), chance)
        pair = chance.choice([Pair(changed, CA.key), Pair(CA.certificate, changed)])
        for read in (
            lambda: tls_contexts.check_ca(pair, START),  # noqa: B023 called at once
            lambda: ServingCertificate().load(pair),  # noqa: B023
            lambda: tls.life(changed),  # noqa: B023
            lambda: tls.is_ours(changed),  # noqa: B023
            lambda: tls_contexts.lasts(changed, START),  # noqa: B023
            lambda: tls.split(changed),  # noqa: B023
        ):
            with suppress(InvalidInputError):
                read()


class TestObjects:
    """The Secret and the MutatingWebhookConfiguration as an API server may return them."""

    @pytest.fixture
    async def api(self) -> AsyncIterator[FakeApi]:
        async with FakeApi() as api:
            yield api

    @pytest.mark.parametrize(
        ("found", "data"),
        [
            ({"data": None}, {}),
            ({}, {}),
            ({"data": {"a": None}}, {"a": b""}),
            ({"data": {"a": "not base64"}}, {"a": b"not base64"}),
            ({"data": {"a": "٣"}}, {"a": "٣".encode()}),
            ({"data": {"a": "eA=="}, "metadata": {"annotations": None}}, {"a": b"x"}),
        ],
    )
    async def test_secret_is_read_and_written_when_fields_are_odd(
        self, api: FakeApi, found: dict[str, object], data: dict[str, bytes]
    ) -> None:
        api.put_document("/api/v1/namespaces/ns/secrets/s", found)
        async with opened(api) as client:
            store = SecretStore(client, "ns", "s")
            read = await store.read()
            assert read.data == data
            assert (await store.write(read, {"b": b"y"}, {"c": "1"})).data == {"b": b"y"}

    @pytest.mark.parametrize("raw", [b"", b"[]", b"1", b"null", b'{"metadata":null}', b"\xff"])
    async def test_response_that_is_no_object_is_rejected(self, api: FakeApi, raw: bytes) -> None:
        async with opened(api) as client:
            api.answer_next("get", raw)
            with pytest.raises(UnavailableError, match="not an object"):
                await SecretStore(client, "ns", "s").read()

    @pytest.mark.parametrize(
        "webhook",
        [
            {"name": "w"},
            {"name": "w", "clientConfig": None},
            {"name": "w", "clientConfig": {"caBundle": None}},
            {"name": "w", "clientConfig": {"caBundle": "%%%"}},
        ],
    )
    async def test_webhook_configuration_is_read_and_written_when_fields_are_odd(
        self, api: FakeApi, webhook: dict[str, object]
    ) -> None:
        api.put_document(f"{REGISTRATIONS}/r", {"webhooks": [webhook]})
        async with opened(api) as client:
            registration = Registration(client, "r")
            found = await registration.read()
            assert found is not None
            assert found.bundles[0] in (b"", b"%%%")
            await registration.write(found, CA.certificate)
            after = await registration.read()
            assert after is not None
            assert after.bundles == [CA.certificate]
            with pytest.raises(ConflictError):
                await registration.write(found, b"")
            del api.documents[f"{REGISTRATIONS}/r"]
            with pytest.raises(ConflictError):
                await registration.write(after, b"")
            assert await registration.read() is None


def kinds() -> dict[str, Pair]:
    """Return certificates of one CA with keys of different types."""
    return {"EC": LEAF, "RSA": signed(CA, rsa_key(), name="ebb", days=365)}


FILES: dict[str, tuple[bytes, bytes]] = {
    "key of another": (LEAF.certificate, OTHER.key),
    "certificate of another": (OTHER.certificate, LEAF.key),
    "half a certificate": (LEAF.certificate[:300], LEAF.key),
    "half a key": (LEAF.certificate, LEAF.key[:100]),
    "half a chain": (LEAF.certificate + CA.certificate[:300], LEAF.key),
    "both files empty": (b"", b""),
    "key empty": (LEAF.certificate, b""),
    "garbage": (bytes(range(256)), b"x"),
    "key with password": (LEAF.certificate, locked()),
    "expired": (signed(CA, rsa_key(), days=7).certificate, pem_of(rsa_key())),
    "not yet valid": (COMING.certificate, COMING.key),
    "RSA with the wrong key": (kinds()["RSA"].certificate, LEAF.key),
}


@pytest.mark.parametrize(("crt", "key"), FILES.values(), ids=FILES)
def test_previous_certificate_is_served_when_new_files_are_invalid(
    tmp_path: Path, crt: bytes, key: bytes
) -> None:
    files = str(tmp_path / "tls.crt"), str(tmp_path / "tls.key")
    server = ServingCertificate()
    (tmp_path / "tls.crt").write_bytes(LEAF.certificate)
    (tmp_path / "tls.key").write_bytes(LEAF.key)
    server.load_files(*files, START)
    until = server.valid_until
    (tmp_path / "tls.crt").write_bytes(crt)
    (tmp_path / "tls.key").write_bytes(key)
    with pytest.raises(InvalidInputError, match=r"tls\.crt"):
        server.load_files(*files, START)
    (tmp_path / "tls.key").unlink()
    with pytest.raises(InvalidInputError, match="no such file"):
        server.load_files(*files, START)
    assert server.valid_until == until
    assert connects(server.context, CA.certificate)


@pytest.mark.parametrize("order", [["EC", "RSA", "EC"], ["RSA", "EC", "RSA"]])
def test_previous_certificate_is_not_served_when_key_type_changes(order: list[str]) -> None:
    server = ServingCertificate()
    for kind in order:
        server.load(kinds()[kind])
        assert connects(server.context, CA.certificate)
        server.load(tls.make_leaf(OTHER, ["localhost"], START))
        assert not connects(server.context, CA.certificate), "an old one is still served"
        assert connects(server.context, OTHER.certificate)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_certificate_is_required_with_every_server_certificate(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    (tmp_path / "ca").write_bytes(b"# Gr\xc3\xbc\xc3\x9fe\n" + OTHER.certificate)
    server = ServingCertificate(str(tmp_path / "ca"))
    server.context.maximum_version = version
    for name, ca in (("good", OTHER), ("bad", CA)):
        key = ec.generate_private_key(ec.SECP256R1())
        shown = signed(ca, key, name="caller", days=365)
        (tmp_path / name).write_bytes(shown.certificate + shown.key)
    for pair in kinds().values():
        server.load(pair)
        assert connects(server.context, CA.certificate)
        assert connects(server.context, CA.certificate, tmp_path / "good")
        assert not connects(server.context, CA.certificate, tmp_path / "bad")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_changed_client_ca_applies_when_certificate_is_reloaded(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """An invalid file is reported, and the previous CA remains in use."""
    ca, crt, key = (tmp_path / name for name in ("ca", "tls.crt", "tls.key"))
    crt.write_bytes(LEAF.certificate)
    key.write_bytes(LEAF.key)
    for name, signer in (("old", OTHER), ("new", CA)):
        shown = signed(signer, ec.generate_private_key(ec.SECP256R1()), name="caller", days=365)
        (tmp_path / name).write_bytes(shown.certificate + shown.key)
    ca.write_bytes(OTHER.certificate)
    server = ServingCertificate(str(ca))
    server.context.maximum_version = version

    def gets_through() -> list[str]:
        names = ("old", "new")
        return [n for n in names if connects(server.context, CA.certificate, tmp_path / n)]

    server.load_files(str(crt), str(key), START)
    assert gets_through() == ["old"]
    ca.write_bytes(b"x")
    with pytest.raises(InvalidInputError, match="ca: not PEM certificates"):
        server.load_files(str(crt), str(key), START)
    assert gets_through() == ["old"]
    ca.write_bytes(CA.certificate)
    server.load_files(str(crt), str(key), START)
    assert gets_through() == ["new"]


@pytest.mark.parametrize("content", [b"", b"x", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_invalid_client_ca_is_rejected_with_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ca").write_bytes(content)
    with pytest.raises(InvalidInputError, match="ca: not PEM certificates"):
        ServingCertificate(str(tmp_path / "ca"))


def test_connection_fails_when_server_has_no_certificate() -> None:
    assert not connects(ServingCertificate().context, CA.certificate)


def test_expired_certificate_is_loaded_when_served_certificate_has_expired(
    tmp_path: Path,
) -> None:
    (tmp_path / "tls.crt").write_bytes(LEAF.certificate)
    (tmp_path / "tls.key").write_bytes(LEAF.key)
    server = ServingCertificate()
    files = str(tmp_path / "tls.crt"), str(tmp_path / "tls.key")
    server.load_files(*files, START + 30 * DAY)
    assert server.valid_until < START + 30 * DAY
