"""The ceiling: the least that three processes must do for a replicated, fsynced log in Python.

Each node checks a batch's checksum, appends it, passes it on, and answers once the leader and
one follower have synced it; one sync serves all that wait. There are no elections, no terms, no
recovery, no HTTP: what a real broker costs on top of this is the price of being one.

Frames: u32 length, u8 kind, u8 stream, payload. ``python -m chaos.benchmarks.ceiling PORT NODE DIR
FIRST_PORT`` runs one node.
"""

from __future__ import annotations

import asyncio
import functools
import os
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import crc32c

from chaos.cluster import free_ports

FRAME = struct.Struct(">IBB")
PRODUCE, APPEND, APPENDED, DONE = range(4)
NODES = 3


class Frames(asyncio.Protocol):
    """Cuts a byte stream into frames and joins what is written in one loop turn."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._out: list[bytes] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports have the methods without being of the class.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand over every whole frame."""
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= FRAME.size:
            length, kind, stream = FRAME.unpack_from(buffer, at)
            if len(buffer) - at < FRAME.size + length:
                break
            at += FRAME.size
            self.frame(kind, stream, bytes(memoryview(buffer)[at : at + length]))
            at += length
        del buffer[:at]

    def frame(self, kind: int, stream: int, payload: bytes) -> None:
        """One frame came in."""
        raise NotImplementedError

    def write(self, kind: int, stream: int, payload: bytes) -> None:
        """Send a frame with all others of this loop turn."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out += [FRAME.pack(len(payload), kind, stream), payload]

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self.transport is not None:
            self.transport.writelines(out)


class Node:
    """One of the three processes: leads the streams whose number leaves its rest."""

    def __init__(self, node: int, directory: Path) -> None:
        self._node = node
        self._directory = directory
        self._files: dict[int, int] = {}
        self._followers: list[Frames] = []
        self._waiting: list[tuple[int, int, Frames]] = []  # (kind, stream, whom to answer)
        self._syncing = False
        self._pool = ThreadPoolExecutor(1)
        self._acknowledged: dict[int, list[int]] = {}  # a stream's answers: its own syncs, its followers'
        self._clients: dict[int, list[Frames]] = {}  # producers in the order of their batches

    def produce(self, stream: int, payload: bytes, client: Frames) -> None:
        """A batch from a client: check, append, pass on."""
        crc32c.crc32c(payload)
        self._append(stream, payload)
        self._clients.setdefault(stream, []).append(client)
        for follower in self._followers:
            follower.write(APPEND, stream, payload)
        self._wait(DONE, stream, client)

    def append(self, stream: int, payload: bytes, leader: Frames) -> None:
        """A batch from the leader."""
        crc32c.crc32c(payload)
        self._append(stream, payload)
        self._wait(APPENDED, stream, leader)

    def appended(self, stream: int, follower: int) -> None:
        """A follower has synced one more batch of a stream."""
        self._count(stream, follower)

    async def connect(self, ports: list[int]) -> None:
        """Dial the two others."""
        loop = asyncio.get_running_loop()
        for number, port in enumerate(ports):
            if number != self._node:
                for _ in range(200):
                    try:
                        make = functools.partial(Link, self, number)
                        _, link = await loop.create_connection(make, "127.0.0.1", port)
                        self._followers.append(link)
                        break
                    except OSError:
                        await asyncio.sleep(0.05)

    def _append(self, stream: int, payload: bytes) -> None:
        if stream not in self._files:
            path = self._directory / f"{self._node}-{stream}.log"
            self._files[stream] = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.write(self._files[stream], payload)

    def _wait(self, kind: int, stream: int, whom: Frames) -> None:
        self._waiting.append((kind, stream, whom))
        if not self._syncing:
            self._syncing = True
            asyncio.get_running_loop().create_task(self._sync())

    async def _sync(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            files = [self._files[stream] for stream in {stream for _, stream, _ in waiting}]
            await loop.run_in_executor(self._pool, _sync_all, files)
            for kind, stream, whom in waiting:
                if kind == APPENDED:
                    whom.write(APPENDED, stream, b"")
                else:
                    self._count(stream, self._node)
        self._syncing = False

    def _count(self, stream: int, node: int) -> None:
        counts = self._acknowledged.setdefault(stream, [0] * (NODES + 1))
        counts[node] += 1
        committed = min(counts[self._node], max(c for n, c in enumerate(counts[:NODES]) if n != self._node))
        while counts[NODES] < committed:
            counts[NODES] += 1
            self._clients[stream].pop(0).write(DONE, stream, b"")


def _sync_all(files: list[int]) -> None:
    for file in files:
        os.fdatasync(file)


class Link(Frames):
    """A connection that a node has dialled: batches out, acknowledgements in."""

    def __init__(self, node: Node, peer: int) -> None:
        super().__init__()
        self._owner = node
        self._peer = peer

    def frame(self, kind: int, stream: int, payload: bytes) -> None:
        """An acknowledgement."""
        self._owner.appended(stream, self._peer)


class Accepted(Frames):
    """A connection from a client or another node."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._owner = node

    def frame(self, kind: int, stream: int, payload: bytes) -> None:
        """A batch."""
        if kind == PRODUCE:
            self._owner.produce(stream, payload, self)
        else:
            self._owner.append(stream, payload, self)


class CeilingConnection(Frames):
    """A client's connection: one batch at a time."""

    def __init__(self, stream: int, payload: bytes) -> None:
        super().__init__()
        self._stream = stream
        self._payload = payload
        self._done: asyncio.Future[None] | None = None

    def frame(self, kind: int, stream: int, payload: bytes) -> None:
        """The acknowledgement."""
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def send(self) -> None:
        """Send the batch and wait for its acknowledgement."""
        self._done = asyncio.get_running_loop().create_future()
        self.write(PRODUCE, self._stream, self._payload)
        await self._done

    async def close(self) -> None:
        """Close the connection."""
        if self.transport is not None:
            self.transport.close()


class Ceiling:
    """Three bare processes."""

    name = "ceiling (append, replicate, group fsync; nothing else)"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._first_port = 0

    async def start(self, streams: int) -> None:
        """Start the processes and wait until they listen."""
        self._first_port = free_ports(NODES)
        self._directory.mkdir(parents=True, exist_ok=True)
        for node in range(NODES):
            self._spawn(node)
        for node in range(NODES):
            await self._open(node, 0, b"")

    async def connect(self, stream: int, records: int, record_bytes: int) -> CeilingConnection:
        """A connection to the node that leads the stream."""
        return await self._open(stream % NODES, stream, b"x" * (records * record_bytes + 61))

    async def stop(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
            process.wait(10)

    def _spawn(self, node: int) -> None:
        command = [sys.executable, "-m", __name__, str(self._first_port), str(node), str(self._directory)]
        self._processes.append(subprocess.Popen(command))

    async def _open(self, node: int, stream: int, payload: bytes) -> CeilingConnection:
        loop = asyncio.get_running_loop()
        for _ in range(200):
            try:
                _, connection = await loop.create_connection(
                    lambda: CeilingConnection(stream, payload), "127.0.0.1", self._first_port + node
                )
                return connection
            except OSError:
                await asyncio.sleep(0.05)
        raise RuntimeError("the bare processes did not start")


async def _serve(first_port: int, node: int, directory: Path) -> None:
    owner = Node(node, directory)
    await asyncio.get_running_loop().create_server(lambda: Accepted(owner), "127.0.0.1", first_port + node)
    await owner.connect([first_port + n for n in range(NODES)])
    await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
