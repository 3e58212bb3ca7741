"""Links between nodes: TCP relays that pass bytes in order, pass them slowly and with a delay, or pass no
bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final

CHUNK_BYTES: Final = 4096
UNDER_WAY_MAX: Final = 64  # chunks of one direction; then its sender waits
BUFFER_BYTES: Final = 16 * 1024

_UnderWay = asyncio.Queue[tuple[float, bytes]]  # time of arrival; empty bytes are the end


class Link:
    """A relay in front of a node, which treats both directions equally.

    While a link is cut, no node can connect. A cut ends all connections, and the bytes on their way are lost.
    """

    def __init__(self, port: int, target_port: int) -> None:
        self._port = port
        self._target_port = target_port
        self._delay_s = 0.0
        self._bytes_per_s: float | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Accept connections, as before a ``cut``."""
        if self._server is not None:
            return
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        listening.bind(("127.0.0.1", self._port))
        self._server = await asyncio.start_server(self._accept, sock=listening, limit=CHUNK_BYTES)

    async def cut(self) -> None:
        """End all connections, and accept no new connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def be_slow(self, delay_s: float, bytes_per_s: float) -> None:
        """Delay bytes that are sent from now on, and limit their rate."""
        self._delay_s, self._bytes_per_s = delay_s, bytes_per_s

    def be_fast(self) -> None:
        """Pass bytes that are sent from now on as soon as earlier bytes have arrived."""
        self._delay_s, self._bytes_per_s = 0.0, None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(writer):
            source, target = await asyncio.open_connection("127.0.0.1", self._target_port, limit=CHUNK_BYTES)
            with contextlib.closing(target):
                async with asyncio.TaskGroup() as group:
                    for ends in (reader, target), (source, writer):
                        under_way = _UnderWay(UNDER_WAY_MAX)
                        group.create_task(self._take(ends[0], under_way))
                        group.create_task(_give(under_way, ends[1]))
        self._connections.discard(task)

    async def _take(self, reader: asyncio.StreamReader, under_way: _UnderWay) -> None:
        loop = asyncio.get_running_loop()
        data = b"first"
        while data:
            try:
                data = await reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            if self._bytes_per_s is not None:
                await asyncio.sleep(len(data) / self._bytes_per_s)
            await under_way.put((loop.time() + self._delay_s, data))


async def _give(under_way: _UnderWay, writer: asyncio.StreamWriter) -> None:
    loop = asyncio.get_running_loop()
    is_there = True  # whether the receiver is connected
    while True:
        due_s, data = await under_way.get()
        await asyncio.sleep(due_s - loop.time())
        if not data:
            break
        if is_there:
            try:
                writer.write(data)
                await writer.drain()
            except OSError:
                is_there = False
    writer.close()
