"""HTTP connections beyond the share of their address are refused with a response."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import api
from api.app import RequestPipeline
from broker.listeners.connection_limit import ANSWERED_AT_ONCE_MAX
from broker.listeners.listener import Listener
from tests.helpers.http_server import fake_cluster, http_listener

GET = b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n"
NOT_PLAIN = b"TE: trailers\r\n"  # sends a connection the long way, through aiohttp
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def listening(
    connections_max: int, client_max: int | None = None
) -> AsyncIterator[tuple[Listener, AsyncExitStack]]:
    """A listener, and what is closed before it."""
    request_pipeline = RequestPipeline(fake_cluster(None, 3).services)
    listener = http_listener(request_pipeline, connections_max, client_max or connections_max)
    await listener.start("127.0.0.1", 0)
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        stack.push_async_callback(listener.stop)
        yield listener, stack


async def connect(listener: Listener, stack: AsyncExitStack) -> Connection:
    """A connection that is closed after the scenario."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    stack.callback(writer.close)
    return reader, writer


async def ask(connection: Connection, more: bytes = b"") -> bytes:
    """One request, and what came back first."""
    reader, writer = connection
    writer.write(GET + more + b"\r\n")
    return await reader.read(65536)


async def test_connection_beyond_the_limit_is_answered_and_closed() -> None:
    async with listening(2) as (listener, stack):
        plain, long = await connect(listener, stack), await connect(listener, stack)
        assert (await ask(plain)).startswith(b"HTTP/1.1 200")
        assert (await ask(long, NOT_PLAIN)).startswith(b"HTTP/1.1 200")
        third = await connect(listener, stack)
        refusal = await ask(third)
        assert refusal.startswith(b"HTTP/1.1 503")
        assert b"Connection: close" in refusal
        assert b"Retry-After: 1" in refusal
        assert b'"code":"overloaded"' in refusal
        assert b"limits.connections_max" in refusal
        assert await third[0].read() == b""
        assert (await ask(plain)).startswith(b"HTTP/1.1 200")
        assert (await ask(long, NOT_PLAIN)).startswith(b"HTTP/1.1 200")
        long[1].close()
        while True:
            if (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 200"):
                return


async def test_one_address_has_a_share_of_the_connections() -> None:
    # requirement: N2
    async with listening(6, client_max=2) as (listener, stack):
        plain, long = await connect(listener, stack), await connect(listener, stack)
        assert (await ask(plain)).startswith(b"HTTP/1.1 200")
        assert (await ask(long, NOT_PLAIN)).startswith(b"HTTP/1.1 200")  # counted once, by either reader
        refusal = await ask(await connect(listener, stack))
        assert refusal.startswith(b"HTTP/1.1 429")
        assert b"Retry-After: 1" in refusal
        assert b"limits.connections_client_max" in refusal
        long[1].close()
        while True:
            if (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 200"):
                return


# requirement: N2
def test_only_members_that_join_are_known_by_their_whole_address() -> None:
    """All else takes ``client_of``: a share by whole addresses would be none."""
    sources = [(path, path.read_text()) for path in Path(api.__file__).parent.rglob("*.py")]
    whole = sorted(path.name for path, source in sources for _ in range(source.count("request.remote or")))
    assert whole == ["group_members.py", "group_poll.py", "requests.py"]


async def test_the_share_of_an_address_is_a_quarter() -> None:
    listener = http_listener(RequestPipeline(fake_cluster(None, 3).services), 8)
    await listener.start("127.0.0.1", 0)
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        stack.push_async_callback(listener.stop)
        answers = [await ask(await connect(listener, stack)) for _ in range(3)]
    assert [answer.split()[1] for answer in answers] == [b"200", b"200", b"429"]


async def test_few_connections_beyond_the_limit_are_kept_for_an_answer() -> None:
    async with listening(1) as (listener, stack):
        assert (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 200")
        silent = [await connect(listener, stack) for _ in range(ANSWERED_AT_ONCE_MAX)]
        newest = await connect(listener, stack)
        with contextlib.suppress(ConnectionResetError):
            assert await silent[0][0].read() == b""  # while all others are kept
        assert (await ask(newest)).startswith(b"HTTP/1.1 503")
        for reader, _ in silent[1:]:  # the deadline ends those that ask nothing
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""


async def test_a_flood_of_silent_connections_does_not_hide_health() -> None:
    async with listening(1) as (listener, stack):
        assert (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 200")
        for _ in range(5):
            for _ in range(2 * ANSWERED_AT_ONCE_MAX):
                await connect(listener, stack)
            reader, writer = await connect(listener, stack)
            writer.write(b"GET /healthz/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.read(65536)).startswith(b"HTTP/1.1 200")


async def test_health_and_metrics_are_served_beyond_the_limit() -> None:
    async with listening(1) as (listener, stack):
        assert (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 200")
        for path in (b"/healthz/live", b"/healthz/ready", b"/metrics"):
            reader, writer = await connect(listener, stack)
            writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
            assert (await reader.read(65536)).startswith(b"HTTP/1.1 200")
            with contextlib.suppress(ConnectionResetError):  # and the deadline ends the connection
                while await reader.read(65536):
                    pass


async def test_refusals_are_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(1) as (listener, stack):
        assert (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 200")
        for _ in range(5):
            assert (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 503")
    assert caplog.text.count("limits.connections_max") == 1
