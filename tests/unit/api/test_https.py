"""HTTP over TLS: both readers answer, URLs have the scheme of the request, and old connections close."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from api.app import RequestPipeline
from api.connections import aiohttp_reader
from api.connections.http_connections import HttpConnections
from broker.listeners.connection_limit import ConnectionLimit
from broker.listeners.listener import Listener
from broker.listeners.tls import TlsContext, TlsFiles, load
from raftlog.types import NodeId
from tests.helpers.async_tests import on_both_loops
from tests.helpers.certificates import Authority
from tests.helpers.fake_services import FakeCluster, fake_cluster
from tests.helpers.virtual_time import clock_of_loop

GET = b"GET /v1/brokers HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = (
    b"POST /v1/topics/orders/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
)
TOPIC = (
    b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 33\r\n\r\n"
    b'{"name":"orders", "partitions":1}'
)
LARGE_BYTES = 700_000
LARGE_RECORDS = 16  # more than the kernel keeps for a connection
LARGE = (
    b"POST /v1/topics/orders/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
    % (LARGE_BYTES + 25)
    + b'{"records":[{"value":"%s"}]}' % (b"x" * (LARGE_BYTES - 1))
)
FETCH = (
    b"GET /v1/topics/orders/partitions/0/records?offset=0&max_bytes=16777216 HTTP/1.1\r\nHost: localhost\r\n"
    b"Accept: application/vnd.raftlog.batch.v1\r\n\r\n"
)
EVENTS = (
    b"GET /v1/topics/orders/partitions/0/records?offset=earliest&wait=60s HTTP/1.1\r\nHost: localhost\r\n"
    b"Accept: text/event-stream\r\n\r\n"
)


class _NoMetrics:
    def handshake_ended(self, outcome: str, /) -> None:
        pass


@dataclass
class Secured:
    """A listener with TLS, and what its clients trust."""

    cluster: FakeCluster
    pipeline: RequestPipeline
    port: int
    context: ssl.SSLContext

    @property
    def unread_bytes(self) -> int:
        """The size of the responses that clients have not read."""
        return self.pipeline.admission.answers.untaken_bytes

    @asynccontextmanager
    async def connection(
        self, *, slow: bool = False
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection; with ``slow`` little more is received than is read."""
        connected = socket.socket()
        connected.setblocking(False)
        if slow:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(
            sock=connected, ssl=self.context, server_hostname="127.0.0.1", limit=4096 if slow else 65536
        )
        try:
            yield reader, writer
        finally:
            writer.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@asynccontextmanager
async def serve(authority: Authority, *, age_max_s: float = 60.0) -> AsyncIterator[Secured]:
    certificate, key = authority.certificate()
    files = TlsFiles(name="https", certificate_file=certificate, key_file=key)
    cluster = fake_cluster(None, 3, clock_of_loop())
    pipeline = RequestPipeline(cluster.services)
    limit = ConnectionLimit("HTTP", 100, None, pipeline.metrics)
    connections = HttpConnections(pipeline, limit, tls_age_max_s=age_max_s)
    listener = Listener(connections, limit, shutdown_timeout_s=0.1)
    await listener.start_tls("127.0.0.1", 0, TlsContext(files, load(files, datetime.now(UTC))), _NoMetrics())
    try:
        async with asyncio.timeout(30):
            yield Secured(
                cluster, pipeline, listener.tls_port, ssl.create_default_context(cafile=authority.file)
            )
    finally:
        await listener.stop()


async def head_of(reader: asyncio.StreamReader) -> str:
    """Read one response; return its head."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next((line for line in head.splitlines() if line.startswith("content-length:")), "0")
    await reader.readexactly(int(length.rpartition(":")[2]))
    return head


async def _store_large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(TOPIC)
    assert (await head_of(reader)).startswith("http/1.1 201")
    for _ in range(LARGE_RECORDS):
        writer.write(LARGE)
        assert (await head_of(reader)).startswith("http/1.1 200")


@on_both_loops
async def test_urls_of_brokers_have_the_scheme_of_the_request(authority: Authority) -> None:
    async with serve(authority) as served, served.connection() as (reader, writer):
        controller = served.cluster.controller
        brokers = {
            broker: replace(info, https_url=f"https://log{broker}.example:7443")
            for broker, info in controller.image.brokers.items()
            if broker != NodeId(3)
        } | {NodeId(3): controller.image.brokers[NodeId(3)]}
        controller.image = replace(controller.image, brokers=brokers)
        writer.write(GET.replace(b"localhost", b"127.0.0.1"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        body = await reader.readexactly(int(head.lower().split(b"content-length:")[1].split()[0]))
        assert b'"https://log1.example:7443"' in body
        assert b"http://" not in body, body
        assert b'"http":null' in body, "broker 3 has no listener with TLS"


@on_both_loops
async def test_a_connection_that_is_too_old_closes_after_a_response(authority: Authority) -> None:
    async with serve(authority, age_max_s=0.3) as served, served.connection() as (reader, writer):
        writer.write(GET)
        assert "connection: close" not in await head_of(reader)
        await asyncio.sleep(0.4)
        writer.write(GET)
        assert "connection: close" not in await head_of(reader), "the request before ended in time"
        writer.write(GET)
        assert "connection: close" in await head_of(reader)
        assert await reader.read() == b""


@on_both_loops
async def test_aiohttps_reader_closes_old_connections_too(authority: Authority) -> None:
    async with serve(authority, age_max_s=0.3) as served, served.connection() as (reader, writer):
        writer.write(CHUNKED)
        assert (await head_of(reader)).startswith("http/1.1 4")
        assert await reader.read() == b"", "it closes while it waits for a request"


@on_both_loops
async def test_the_last_response_is_whole_for_a_slow_client(authority: Authority) -> None:
    """A connection with TLS closes after all bytes, however slowly its client reads."""
    async with serve(authority) as served:
        async with served.connection() as (reader, writer):
            await _store_large(reader, writer)
        async with served.connection(slow=True) as (slow, asked):
            asked.write(FETCH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            head = (await slow.readuntil(b"\r\n\r\n")).decode().lower()
            await asyncio.sleep(1.5)
            await slow.readexactly(int(head.partition("content-length:")[2].split()[0]))


@on_both_loops
async def test_a_stream_of_an_old_connection_ends(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiohttp_reader, "LINGER_OLD_S", 0.2)
    async with serve(authority, age_max_s=0.3) as served, served.connection() as (reader, writer):
        writer.write(TOPIC)
        assert (await head_of(reader)).startswith("http/1.1 201")
        writer.write(EVENTS)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(ConnectionResetError, ssl.SSLError):
            await reader.read(-1)


@on_both_loops
@pytest.mark.parametrize("more", [b"", b"Accept-Encoding: identity\r\nX: \xe9\r\n"], ids=["plain", "aiohttp"])
async def test_an_unread_response_counts_until_it_is_read(authority: Authority, more: bytes) -> None:
    """The broker's bound for unread responses holds with TLS, too; see ``tls_transport``."""
    async with serve(authority) as served, served.connection() as (reader, writer):
        await _store_large(reader, writer)
        assert served.unread_bytes == 0, "small responses have been read"
        async with served.connection(slow=True) as (slow, asked):
            asked.write(FETCH.replace(b"\r\n\r\n", b"\r\n" + more + b"\r\n"))
            head = (await slow.readuntil(b"\r\n\r\n")).decode().lower()
            while served.unread_bytes < LARGE_RECORDS * LARGE_BYTES:
                await asyncio.sleep(0.01)
            await slow.readexactly(int(head.partition("content-length:")[2].split()[0]))
            while served.unread_bytes:
                await asyncio.sleep(0.01)
