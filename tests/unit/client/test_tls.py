"""The files of a client for ``https://`` URLs, and that such a client stays with TLS."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from raftlog import NotSent, Tls
from raftlog.aio import Client
from raftlog.client.options import broker_urls
from raftlog.client.tls import LOOK_S, ClientContext, load
from tests.helpers.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


class Now:
    """A monotonic clock that a test sets, in seconds."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def test_a_certificate_and_its_key_come_together() -> None:
    with pytest.raises(ValueError, match="cert is given without key"):
        Tls(cert="me.pem")
    with pytest.raises(ValueError, match="key is given without cert"):
        Tls(key="me.key")


def test_the_environment_names_files() -> None:
    given = {"RAFTLOG_CA_FILE": "ca.pem", "RAFTLOG_CERT_FILE": "me.pem", "RAFTLOG_KEY_FILE": "me.key"}
    assert Tls.from_env(given) == Tls("ca.pem", "me.pem", "me.key")
    assert Tls.from_env({"RAFTLOG_CA_FILE": " "}) == Tls()


def test_a_file_that_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(NotSent, match=r"nothing\.pem' cannot be used: No such file"):
        load(Tls(ca=tmp_path / "nothing.pem"))
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    with pytest.raises(NotSent, match=r"empty\.pem' cannot be used"):
        load(Tls(ca=empty))
    (first, _), (_, second) = authority.certificate(file="one"), authority.certificate(file="two")
    with pytest.raises(NotSent, match=r"one\.pem' cannot be used: KEY_VALUES_MISMATCH"):
        load(Tls(ca=authority.file, cert=first, key=second))


def test_replaced_files_are_used_after_the_interval(authority: Authority, tmp_path: Path) -> None:
    file, now = tmp_path / "ca.pem", Now()
    file.write_bytes(authority.file.read_bytes())
    context = ClientContext(Tls(ca=file), now)
    before = context.current()
    file.write_bytes(authority.file.read_bytes() * 2)
    now.s += LOOK_S / 2
    assert context.current() is before
    now.s += LOOK_S
    after = context.current()
    assert after is not before
    now.s += LOOK_S
    assert context.current() is after, "no file has changed"


def test_files_that_cannot_be_used_leave_those_in_use(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, now = tmp_path / "ca.pem", Now()
    file.write_bytes(authority.file.read_bytes())
    context = ClientContext(Tls(ca=file), now)
    before = context.current()
    file.unlink()
    for _ in range(3):
        now.s += LOOK_S
        assert context.current() is before
    assert caplog.text.count("stay in use") == 1
    file.write_bytes(authority.file.read_bytes())
    now.s += LOOK_S
    assert context.current() is not before


def test_urls_with_and_without_tls_do_not_mix() -> None:
    assert broker_urls("https://a:1,b:2") == ("https://a:1", "https://b:2")
    with pytest.raises(ValueError, match="give all of them https://, or none"):
        broker_urls(["https://a:1", "http://b:2"])


# requirement: X3
def test_an_advertised_url_without_tls_is_never_asked(authority: Authority) -> None:
    async def main() -> None:
        async with Client("https://127.0.0.1:9", tls=Tls(ca=authority.file)) as client:
            session = client._session
            assert session.url_of("https://a:1/") == "https://a:1"
            assert session.url_of("http://a:1") is None
            assert session.url_of(None) is None
            with pytest.raises(NotSent, match="sends no request without TLS"):
                await session.ask("GET", "http://127.0.0.1:9/v1/topics")

    asyncio.run(main())


def test_a_client_without_tls_may_ask_with_tls() -> None:
    async def main() -> None:
        async with Client("http://127.0.0.1:9") as client:
            assert client._session.url_of("https://a:1") == "https://a:1"

    asyncio.run(main())


def test_no_file_is_read_for_plain_urls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAFTLOG_CA_FILE", os.fspath(tmp_path / "nothing.pem"))

    async def main() -> None:
        async with Client("http://127.0.0.1:9") as client:
            with pytest.raises(NotSent, match="refused"):
                await client.topics.list()

    asyncio.run(main())
