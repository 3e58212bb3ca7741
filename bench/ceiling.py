"""The system ``ceiling``: three processes with only the work that a replicated, fsynced log needs in Python.

Each node checks a batch's checksum, appends it, forwards it, and replies once the leader and one follower
have synced it; one sync serves all waiting batches. There are no elections, no terms, no recovery and no
HTTP: a real broker is slower by the cost of these.

``python -m bench.ceiling FIRST_PORT NODE DIRECTORY`` runs one node.
"""

from __future__ import annotations

import asyncio
import functools
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

import crc32c

from bench.frames import APPEND, APPENDED, DONE, PRODUCE, FrameClient, Frames, dial
from chaos.ports import free_ports

NODES = 3
FILE_BYTES_MAX = 256 << 20  # then a stream's file restarts, as other systems delete old segments
BATCH_HEADER_BYTES = 61

_Waiting = tuple[int, int, Frames]  # kind, stream, receiver of the reply


class Node:
    """A node of the three. It leads the streams whose clients connect to it."""

    def __init__(self, node: int, directory: Path) -> None:
        self._node = node
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._files: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._followers: list[Frames] = []
        self._waiting: list[_Waiting] = []
        self._is_syncing = False
        self._rounds: queue.SimpleQueue[tuple[list[int], list[_Waiting]]] = queue.SimpleQueue()
        self._synced: dict[int, list[int]] = {}  # per stream: the number of batches that each node has synced
        self._clients: dict[int, deque[Frames]] = {}  # waiting clients, in the order of their batches
        threading.Thread(target=self._sync_rounds, daemon=True).start()

    def produce(self, stream: int, payload: memoryview, client: Frames) -> None:
        """Check, append and forward a batch from a client."""
        crc32c.crc32c(payload)
        for follower in self._followers:
            follower.write(APPEND, stream, payload)
        self._append(stream, payload)
        self._clients.setdefault(stream, deque()).append(client)
        self._wait(DONE, stream, client)

    def append(self, stream: int, payload: memoryview, leader: Frames) -> None:
        """Check and append a batch from the leader."""
        crc32c.crc32c(payload)
        self._append(stream, payload)
        self._wait(APPENDED, stream, leader)

    def count(self, stream: int, node: int) -> None:
        """Count a batch that a node has synced; acknowledge batches that two nodes have synced."""
        counts = self._synced.setdefault(stream, [0] * (NODES + 1))
        counts[node] += 1
        others = max(n for number, n in enumerate(counts[:NODES]) if number != self._node)
        committed = min(counts[self._node], others)
        while counts[NODES] < committed:
            counts[NODES] += 1
            self._clients[stream].popleft().write(DONE, stream)

    async def connect(self, first_port: int) -> None:
        """Connect to the two other nodes."""
        for number in range(NODES):
            if number != self._node:
                make = functools.partial(Link, self, number)
                self._followers.append(await _dial(make, first_port + number))

    def _append(self, stream: int, payload: memoryview) -> None:
        file = self._files.get(stream)
        if file is None:
            path = self._directory / f"{self._node}-{stream}.log"
            self._files[stream] = file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            self._sizes[stream] = 0
        if self._sizes[stream] > FILE_BYTES_MAX:
            os.ftruncate(file, 0)
            self._sizes[stream] = 0
        self._sizes[stream] += os.write(file, payload)

    def _wait(self, kind: int, stream: int, receiver: Frames) -> None:
        self._waiting.append((kind, stream, receiver))
        if not self._is_syncing:
            self._is_syncing = True
            self._loop.call_soon(self._begin_round)

    def _begin_round(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._rounds.put(([self._files[stream] for stream in {stream for _, stream, _ in waiting}], waiting))

    def _sync_rounds(self) -> None:
        while True:
            files, waiting = self._rounds.get()
            for file in files:
                os.fdatasync(file)
            self._loop.call_soon_threadsafe(self._end_round, waiting)

    def _end_round(self, waiting: list[_Waiting]) -> None:
        if self._waiting:
            self._begin_round()
        else:
            self._is_syncing = False
        for kind, stream, receiver in waiting:
            if kind == APPENDED:
                receiver.write(APPENDED, stream)
            else:
                self.count(stream, self._node)


class Link(Frames):
    """A connection from a node to another node, which sends batches and receives acknowledgements."""

    def __init__(self, node: Node, peer: int) -> None:
        super().__init__()
        self._owner = node
        self._peer = peer

    def frame(self, kind: int, stream: int, payload: memoryview) -> None:
        """Count an acknowledgement of the peer."""
        self._owner.count(stream, self._peer)


class Accepted(Frames):
    """A connection from a client or another node."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._owner = node

    def frame(self, kind: int, stream: int, payload: memoryview) -> None:
        """Handle a batch of a client or of a leader."""
        if kind == PRODUCE:
            self._owner.produce(stream, payload, self)
        else:
            self._owner.append(stream, payload, self)


class Ceiling:
    """The system under load: the three processes."""

    name = "ceiling (append, replicate, group fsync, nothing else)"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._first_port = 0

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    async def start(self, streams: int) -> None:
        """Start the processes and wait until they listen."""
        self._first_port = free_ports(2 * NODES)
        self._directory.mkdir(parents=True, exist_ok=True)
        for node in range(NODES):
            self._spawn(node)
        for node in range(NODES):
            await (await dial(self._first_port + node, 0, b"")).close()

    async def connect(self, stream: int, records: int, record_bytes: int) -> FrameClient:
        """A connection to the node that leads the stream."""
        payload = b"x" * (records * record_bytes + BATCH_HEADER_BYTES)
        return await dial(self._first_port + stream % NODES, stream, payload)

    async def stop(self) -> None:
        for process in self._processes:
            process.terminate()
            process.wait(10)

    def _spawn(self, node: int) -> None:
        command = [sys.executable, "-m", __name__, str(self._first_port), str(node), str(self._directory)]
        self._processes.append(subprocess.Popen(command))


async def _dial(make: functools.partial[Link], port: int) -> Link:
    loop = asyncio.get_running_loop()
    while True:
        try:
            _, link = await loop.create_connection(make, "127.0.0.1", port)
            return link
        except OSError:
            await asyncio.sleep(0.02)


async def _serve(first_port: int, node: int, directory: Path) -> None:
    owner = Node(node, directory)
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Accepted(owner), "127.0.0.1", first_port + NODES + node)
    await owner.connect(first_port + NODES)
    # Clients can connect only when the node can replicate.
    await loop.create_server(lambda: Accepted(owner), "127.0.0.1", first_port + node)
    await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
