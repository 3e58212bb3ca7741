"""Connections of virtual time behave like TCP on the event loops of production."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import aiohttp
import pytest
import uvloop
from aiohttp import web

from tests.helpers.virtual_time import run_virtual

Run = Callable[[Coroutine[object, object, None]], None]
End = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LARGE = bytes(range(256)) * (1 << 16)  # more than all buffers of one connection

each_loop = pytest.mark.parametrize("run", [asyncio.run, uvloop.run, run_virtual])


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[End, End, asyncio.AbstractServer]]:
    """Both ends of one connection, first the one that has called."""
    accepted: asyncio.Queue[End] = asyncio.Queue()
    server = await asyncio.start_server(lambda *end: accepted.put_nowait(end), "127.0.0.1", 0, limit=1024)
    called = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1024)
    answering = await accepted.get()
    try:
        yield called, answering, server
    finally:
        server.close()
        for _, writer in (called, answering):
            writer.close()


@each_loop
def test_bytes_arrive_in_order_and_the_end_after_them(run: Run) -> None:
    async def main() -> None:
        async with connected() as ((reader, _), (_, writer), _):
            for number in range(100):
                writer.write(b"%d " % number)
            writer.close()
            assert await reader.read(-1) == b"".join(b"%d " % number for number in range(100))

    run(main())


@each_loop
def test_a_writer_waits_for_a_reader(run: Run) -> None:
    async def main() -> None:
        async with connected() as ((reader, _), (_, writer), _):
            writer.write(LARGE)
            drained = asyncio.create_task(writer.drain())
            await asyncio.sleep(0)
            assert writer.transport.get_write_buffer_size() > 0
            assert not drained.done()
            assert await reader.readexactly(len(LARGE)) == LARGE
            await drained

    run(main())


@each_loop
def test_a_half_closed_connection_answers(run: Run) -> None:
    async def main() -> None:
        async with connected() as ((reader, asking), (served, writer), _):
            asking.write(b"question")
            asking.write_eof()
            assert await served.read(-1) == b"question"
            writer.write(b"answer")
            writer.close()
            assert await reader.read(-1) == b"answer"

    run(main())


@each_loop
def test_unread_bytes_make_a_close_a_reset(run: Run) -> None:
    async def main() -> None:
        async with connected() as ((reader, asking), (served, writer), _):
            asking.write(LARGE)
            await served.readexactly(1)  # and no further one
            writer.transport.abort()
            with pytest.raises(ConnectionError):
                await reader.read(-1)

    run(main())


@each_loop
def test_a_closed_server_refuses_and_open_connections_continue(run: Run) -> None:
    async def main() -> None:
        async with connected() as ((reader, _), (_, writer), server):
            address = server.sockets[0].getsockname()
            server.close()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*address)
            writer.write(b"still")
            assert await reader.readexactly(5) == b"still"

    run(main())


@each_loop
def test_a_port_may_be_used_again_and_by_one_server_at_a_time(run: Run) -> None:
    async def main() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        with pytest.raises(OSError, match="in use"):
            await asyncio.start_server(lambda reader, writer: None, *address)
        server.close()
        await server.wait_closed()
        again = await asyncio.start_server(lambda reader, writer: None, *address)
        assert again.sockets[0].getsockname() == address
        again.close()

    run(main())


@each_loop
def test_http_of_aiohttp(run: Run) -> None:
    async def main() -> None:
        async def answer(request: web.BaseRequest) -> web.Response:
            return web.Response(text=f"{request.remote} {await request.text()}")

        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as session:
            for _ in range(2):
                async with session.post(url, data="x") as response:
                    assert await response.text() == "127.0.0.1 x"
        await runner.cleanup()
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectorError, match=r"refused|Connect call failed"):
                await session.post(url, data="x")

    run(main())
