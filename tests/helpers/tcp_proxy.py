"""A TCP proxy between two nodes that a test can make faulty."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

Tamper = Callable[[bytes], Iterator[bytes]]


def unchanged(data: bytes) -> Iterator[bytes]:
    """Forward everything unchanged."""
    yield data


def byte_by_byte(data: bytes) -> Iterator[bytes]:
    """Forward every byte in a separate write."""
    for position in range(len(data)):
        yield data[position : position + 1]


class Passage:
    """One connection through the proxy."""

    def __init__(self, is_silent: bool) -> None:
        self.is_silent = is_silent


class TcpProxy:
    """Listens on loopback; ``tamper`` is applied to the dialler's bytes, from the next read on.

    A silent connection stays open and forwards nothing: no byte and no end, in either direction.
    """

    def __init__(self) -> None:
        self.tamper: Tamper = unchanged
        self.dialler_bytes = 0
        self.accepted = 0  # connections, ever
        self.piece_s = 0.0  # the time of each piece that ``tamper`` makes
        self._is_black_hole = False
        self._passing: set[Passage] = set()
        self._target = ("127.0.0.1", 0)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port to dial."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, target_port: int) -> None:
        """Forward connections to this port."""
        self._target = ("127.0.0.1", target_port)
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)

    def cut(self) -> None:
        """Break all current connections."""
        for writer in self._writers:
            writer.transport.abort()

    def silence(self) -> None:
        """The current connections become silent permanently; new ones work."""
        for passage in self._passing:
            passage.is_silent = True

    def black_hole(self) -> None:
        """All connections are silent, new ones, too. Those from before ``heal`` stay silent."""
        self._is_black_hole = True
        self.silence()

    def heal(self) -> None:
        """New connections work again."""
        self._is_black_hole = False

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.accepted += 1
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            onward_reader, onward_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(onward_writer)
        passage = Passage(self._is_black_hole)
        self._passing.add(passage)
        await asyncio.gather(
            self._to_listener(reader, onward_writer, passage),
            self._to_dialler(onward_reader, writer, passage),
        )
        self._passing.discard(passage)

    async def _to_listener(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passage: Passage
    ) -> None:
        try:
            while data := await reader.read(65536):
                self.dialler_bytes += len(data)
                for piece in () if passage.is_silent else self.tamper(data):
                    if writer.transport.is_closing():
                        break
                    writer.write(piece)
                    await asyncio.sleep(self.piece_s)
        except OSError:
            pass
        if not passage.is_silent:
            writer.transport.abort()

    async def _to_dialler(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passage: Passage
    ) -> None:
        try:
            while data := await reader.read(65536):
                if not passage.is_silent:
                    writer.write(data)
            await writer.drain()
        except OSError:
            pass
        if not passage.is_silent:
            writer.close()
