"""Connections with TLS count from their acceptance, and their handshakes are bounded in number and time."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

import pytest

from broker.listeners import tls_accepts
from broker.listeners.connection_limit import ConnectionLimit
from broker.listeners.listener import Listener
from broker.listeners.tls import TlsContext, TlsFiles, load
from tests.helpers.async_tests import on_both_loops
from tests.helpers.certificates import Authority
from tests.helpers.line_protocol import CountedConnections, LineConnections

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Handshakes:
    """The ended handshakes by outcome."""

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        self.changed = asyncio.Condition()

    def handshake_ended(self, outcome: str, /) -> None:
        self.ended[outcome] += 1

    async def reached(self, outcome: str, count: int) -> None:
        """Wait until so many have ended."""
        while self.ended[outcome] < count:
            await asyncio.sleep(0.01)


class Served:
    """A listener with TLS of the line protocol."""

    def __init__(self, authority: Authority, count_max: int, client_max: int | None = None) -> None:
        certificate, key = authority.certificate()
        files = TlsFiles(name="https", certificate_file=certificate, key_file=key)
        self.now = datetime.now(UTC)
        self.tls = TlsContext(files, load(files, self.now))
        self.metrics = CountedConnections()
        self.limit = ConnectionLimit("line", count_max, client_max or count_max, self.metrics)
        self.listener = Listener(LineConnections(self.limit, 75.0), self.limit, shutdown_timeout_s=0.1)
        self.handshakes = Handshakes()
        self._client = ssl.create_default_context(cafile=authority.file)
        self._stack: AsyncExitStack
        self._writers: dict[asyncio.StreamReader, asyncio.StreamWriter] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.listener.start_tls("127.0.0.1", 0, self.tls, self.handshakes)
        async with asyncio.timeout(30), AsyncExitStack() as self._stack:
            self._stack.push_async_callback(self.listener.stop)
            yield

    async def ask(self, line: bytes) -> asyncio.StreamReader:
        """Send a line on a new connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.tls_port, ssl=self._client)
        self._stack.callback(writer.close)
        writer.write(line)
        return reader

    async def silent(self) -> asyncio.StreamReader:
        """Open a connection that never begins its handshake."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.tls_port)
        self._stack.callback(writer.close)
        self._writers[reader] = writer
        return reader

    def close(self, silent: asyncio.StreamReader) -> None:
        """Close a connection that has sent nothing."""
        self._writers[silent].close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


async def ended(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    return True


@on_both_loops
async def test_a_line_is_answered_with_tls(authority: Authority) -> None:
    served = Served(authority, 4)
    async with served.running():
        assert await (await served.ask(b"a\n")).readline() == b"a\n"
        assert served.handshakes.ended == {"done": 1}


@on_both_loops
async def test_a_connection_in_its_handshake_counts(authority: Authority) -> None:
    served = Served(authority, 2)
    async with served.running():
        assert await (await served.ask(b"a\n")).readline() == b"a\n"
        await served.silent()
        reader = await served.ask(b"b\n")
        assert await reader.read() == b"overloaded\n"


@on_both_loops
async def test_connections_beyond_the_limit_take_no_place(authority: Authority) -> None:
    """A connection that began its handshake within the limit is served after it."""
    served = Served(authority, 2)
    async with served.running():
        assert await (await served.ask(b"a\n")).readline() == b"a\n"
        within = await served.silent()
        beyond = [await served.silent() for _ in range(3)]
        await asyncio.sleep(0.05)  # all of them are accepted
        served.close(within)
        await served.handshakes.reached("failed", 1)
        assert await (await served.ask(b"b\n")).readline() == b"b\n"
        assert not any(reader.at_eof() for reader in beyond)


@on_both_loops
async def test_a_failed_handshake_counts_no_longer(authority: Authority) -> None:
    served = Served(authority, 1)
    async with served.running():
        _, writer = await asyncio.open_connection("127.0.0.1", served.listener.tls_port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await served.handshakes.reached("failed", 1)
        writer.transport.abort()
        assert await (await served.ask(b"a\n")).readline() == b"a\n"


@on_both_loops
async def test_a_handshake_that_does_not_begin_ends(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_accepts, "HANDSHAKE_S", 0.2)
    served = Served(authority, 4)
    async with served.running():
        assert await ended(await served.silent())
        assert served.handshakes.ended == {"failed": 1}


@on_both_loops
async def test_an_address_has_a_share_of_the_handshakes(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_accepts, "HANDSHAKES_CLIENT_MAX", 3)
    served = Served(authority, 100)
    async with served.running():
        waiting = [await served.silent() for _ in range(3)]
        assert await ended(await served.silent())
        assert served.handshakes.ended == {"refused": 1}
        assert not any(reader.at_eof() for reader in waiting)


@on_both_loops
async def test_new_connections_get_the_reloaded_certificate(authority: Authority) -> None:
    served = Served(authority, 4)
    async with served.running():
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", served.listener.tls_port, ssl=ssl.create_default_context(cafile=authority.file)
        )
        other = Authority(authority.directory, f"other-{id(served)}")
        certificate, key = other.certificate()
        authority.certificate()  # the files of the first authority, which then have the other's contents
        for name, source in (("broker.pem", certificate), ("broker.key", key)):
            (authority.directory / name).write_bytes(source.read_bytes())
        assert served.tls.reload(served.now)
        writer.write(b"a\n")
        assert await reader.readline() == b"a\n"
        writer.close()
        with pytest.raises(ssl.SSLError):
            await served.ask(b"b\n")


@on_both_loops
async def test_a_listener_that_stops_ends_its_handshakes(authority: Authority) -> None:
    served = Served(authority, 4)
    async with served.running():
        silent = await served.silent()
        answered = await served.ask(b"a\n")
        assert await answered.readline() == b"a\n"
        await served.listener.stop()
        assert await ended(silent)
        assert await ended(answered)
