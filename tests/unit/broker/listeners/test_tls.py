"""TLS of a listener: which files it refuses, and which context serves after a reload."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.listeners.tls import TlsContext, TlsFiles, load
from raftlog.errors import InvalidRequest
from tests.helpers.certificates import Authority

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def files_of(authority: Authority, **changed: object) -> TlsFiles:
    certificate, key = authority.certificate()
    return TlsFiles(name="https", certificate_file=certificate, key_file=key, **changed)  # type: ignore[arg-type]


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Shake hands in memory; return the server's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    for end in ends:  # what comes after the handshake, such as a refusal of the client's certificate
        with pytest.raises(ssl.SSLWantReadError):
            end.read(1)
    return ends[1]


def client_of(authority: Authority, *certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.file)
    if certificate:
        context.load_cert_chain(*certificate)
    return context


def test_a_client_that_trusts_the_authority_connects_with_tls_1_3(authority: Authority) -> None:
    loaded = load(files_of(authority), NOW)
    assert handshake(loaded.context, client_of(authority)).version() == "TLSv1.3"


@pytest.mark.parametrize(("minimum", "is_served"), [("1.2", True), ("1.3", False)])
def test_tls_1_2_is_served_only_by_setting(authority: Authority, minimum: str, is_served: bool) -> None:
    loaded = load(files_of(authority, minimum_version=minimum), NOW)
    old = client_of(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    if is_served:
        assert handshake(loaded.context, old).version() == "TLSv1.2"
    else:
        with pytest.raises(ssl.SSLError):
            handshake(loaded.context, old)


def test_the_earliest_end_of_the_chain_counts(authority: Authority) -> None:
    certificate, key = authority.certificate(not_after=NOW + 3 * DAY)
    loaded = load(TlsFiles(name="https", certificate_file=certificate, key_file=key), NOW)
    assert abs(loaded.expires_at - (NOW + 3 * DAY)) < timedelta(seconds=2)


def _other_key(authority: Authority) -> dict[str, Path]:
    return {
        "certificate_file": authority.certificate()[0],
        "key_file": authority.certificate(file="other")[1],
    }


def _expired(authority: Authority) -> dict[str, Path]:
    return _pair(authority.certificate(not_before=NOW - 2 * DAY, not_after=NOW - DAY))


def _early(authority: Authority) -> dict[str, Path]:
    return _pair(authority.certificate(not_before=NOW + DAY, not_after=NOW + 2 * DAY))


def _disordered(authority: Authority) -> dict[str, Path]:
    certificate, key = authority.certificate()
    stranger = Authority(authority.directory, "stranger")
    certificate.write_bytes(certificate.read_bytes() + stranger.file.read_bytes())
    return _pair((certificate, key))


def _missing(authority: Authority) -> dict[str, Path]:
    certificate, key = authority.certificate()
    key.unlink()
    return _pair((certificate, key))


def _text(authority: Authority) -> dict[str, Path]:
    certificate, key = authority.certificate()
    certificate.write_text("hello")
    return _pair((certificate, key))


def _encrypted(authority: Authority) -> dict[str, Path]:
    from cryptography.hazmat.primitives import serialization

    certificate, key = authority.certificate()
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    return _pair((certificate, key))


def _no_authority(authority: Authority) -> dict[str, Path]:
    certificate, key = authority.certificate()
    return {**_pair((certificate, key)), "client_ca_file": key}


def _no_list(authority: Authority) -> dict[str, Path]:
    return {
        **_pair(authority.certificate()),
        "client_ca_file": authority.file,
        "crl_file": authority.file,
    }


def _pair(files: tuple[Path, Path]) -> dict[str, Path]:
    return {"certificate_file": files[0], "key_file": files[1]}


def _damaged(authority: Authority) -> dict[str, Path]:
    made = _pair(authority.certificate())
    text = b"-----BEGIN CERTIFICATE-----\nMAMCAQI=\n-----END CERTIFICATE-----\n"
    made["certificate_file"].write_bytes(text)
    return made


def _one_list_of_two(authority: Authority) -> dict[str, Path]:
    other = Authority(authority.directory, f"clients-{len(list(authority.directory.iterdir()))}")
    both = authority.directory / "both.pem"
    both.write_bytes(authority.file.read_bytes() + other.file.read_bytes())
    return {**_pair(authority.certificate()), "client_ca_file": both, "crl_file": authority.revocation_list()}


def _old_list(authority: Authority) -> dict[str, Path]:
    expired = authority.revocation_list(expires_at=NOW - timedelta(hours=1))
    return {**_pair(authority.certificate()), "client_ca_file": authority.file, "crl_file": expired}


@pytest.mark.parametrize(
    ("make", "setting", "why"),
    [
        (_other_key, "key_file", "key of another certificate"),
        (_expired, "certificate_file", "expired at"),
        (_early, "certificate_file", "is not valid before"),
        (_disordered, "certificate_file", "did not sign"),
        (_missing, "key_file", "cannot be read: No such file"),
        (_text, "certificate_file", "no certificate in PEM"),
        (_encrypted, "key_file", "without one"),
        (_no_authority, "client_ca_file", "PEM"),
        (_damaged, "certificate_file", "PEM"),
        (_no_list, "crl_file", "no revocation list"),
        (_one_list_of_two, "crl_file", "no revocation list of the authority .* of client_ca_file"),
        (_old_list, "crl_file", "the revocation list of the authority .* expired at"),
    ],
)
def test_bad_files_are_refused_with_their_setting(
    authority: Authority, make: Callable[[Authority], dict[str, Path]], setting: str, why: str
) -> None:
    with pytest.raises(InvalidRequest, match=why) as refused:
        load(TlsFiles(name="https", **make(authority)), NOW)  # type: ignore[arg-type]
    assert refused.value.details["field"] == f"https.{setting}"
    assert f"https.{setting}" in str(refused.value)


def test_a_reload_serves_the_new_certificate_and_keeps_the_old_one_where_it_is_bad(
    authority: Authority,
) -> None:
    files = files_of(authority)
    tls = TlsContext(files, load(files, NOW))
    first = tls.context
    assert not tls.reload(NOW)
    assert tls.context is first
    _expired(authority)
    with pytest.raises(InvalidRequest, match="expired"):
        tls.reload(NOW)
    assert tls.context is first
    assert tls.failure is not None
    assert "expired" in tls.failure
    authority.certificate()
    assert tls.reload(NOW)
    assert tls.context is not first
    assert tls.failure is None


def test_an_authority_that_a_reload_removes_is_trusted_no_longer(authority: Authority) -> None:
    files = files_of(authority, client_ca_file=authority.directory / "clients.pem")
    assert files.client_ca_file is not None
    clients = Authority(authority.directory, "clients")
    files.client_ca_file.write_bytes(clients.file.read_bytes())
    tls = TlsContext(files, load(files, NOW))
    alice = client_of(authority, *clients.certificate("alice.example", file="alice"))
    assert handshake(tls.context, alice).getpeercert()
    files.client_ca_file.write_bytes(authority.file.read_bytes())
    assert tls.reload(NOW)
    with pytest.raises(ssl.SSLError, match=r"certificate verify failed|unknown ca"):
        handshake(tls.context, alice)


def test_a_revoked_certificate_is_refused(authority: Authority) -> None:
    alice = authority.certificate("alice.example", file="alice")
    bob = authority.certificate("bob.example", file="bob")
    files = files_of(authority, client_ca_file=authority.file, crl_file=authority.revocation_list(alice[0]))
    loaded = load(files, NOW)
    assert handshake(loaded.context, client_of(authority, *bob)).getpeercert()
    with pytest.raises(ssl.SSLError, match="revoked"):
        handshake(loaded.context, client_of(authority, *alice))
