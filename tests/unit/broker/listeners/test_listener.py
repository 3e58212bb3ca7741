"""Listeners of any protocol accept, refuse and stop in the same way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from broker.listeners.connection_limit import ConnectionLimit
from broker.listeners.listener import Listener
from tests.helpers.async_tests import on_both_loops
from tests.helpers.line_protocol import CountedConnections, LineConnections

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def listening(
    limit: ConnectionLimit, keepalive_s: float = 75.0
) -> AsyncIterator[tuple[Listener, AsyncExitStack]]:
    """A listener, and the connections to it that end before it."""
    listener = Listener(LineConnections(limit, keepalive_s), limit, shutdown_timeout_s=0.1)
    await listener.start("127.0.0.1", 0)
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        stack.push_async_callback(listener.stop)
        yield listener, stack


def limit_of(count_max: int) -> ConnectionLimit:
    return ConnectionLimit("line", count_max, count_max, CountedConnections())


async def ask(listener: Listener, stack: AsyncExitStack, line: bytes = b"") -> Connection:
    """A connection that has sent a line."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    stack.callback(writer.close)
    writer.write(line)
    return reader, writer


@on_both_loops
async def test_two_listeners_share_one_limit() -> None:
    limit = limit_of(2)
    async with listening(limit) as (one, stack), listening(limit) as (two, more):
        assert await (await ask(one, stack, b"a\n"))[0].readline() == b"a\n"
        reader, writer = await ask(two, more, b"b\n")
        assert await reader.readline() == b"b\n"
        for listener, each in ((one, stack), (two, more)):
            assert await (await ask(listener, each, b"c\n"))[0].read() == b"overloaded\n"
        writer.close()
        while await (await ask(one, stack, b"d\n"))[0].readline() != b"d\n":
            pass


@on_both_loops
async def test_a_listener_that_stops_completes_its_requests_within_the_time() -> None:
    async with listening(limit_of(4)) as (listener, stack):
        idle, _ = await ask(listener, stack, b"a\n")
        assert await idle.readline() == b"a\n"
        waiting, _ = await ask(listener, stack, b"wait\n")
        hanging, _ = await ask(listener, stack, b"hang\n")
        last, _ = await ask(listener, stack, b"b\n")
        assert await last.readline() == b"b\n"  # the requests before it have arrived
        silent, _ = await ask(listener, stack)  # beyond the limit
        port = listener.port
        await listener.stop()
        assert await waiting.read() == b"wait\n"
        for reader in (idle, hanging, silent):
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                assert reader is not idle
        try:
            await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return
        raise AssertionError("the port still accepts")


async def test_a_listener_that_has_not_started_can_stop() -> None:
    limit = limit_of(1)
    await Listener(LineConnections(limit), limit, shutdown_timeout_s=1.0).stop()


async def test_an_idle_connection_is_closed() -> None:
    async with listening(limit_of(1), keepalive_s=10) as (listener, stack):
        reader, _ = await ask(listener, stack, b"a\n")
        assert await reader.read() == b"a\n"
