"""Runs the baseline: a log on the unmodified pysyncobj, a Raft engine in pure Python, with its own journal.

There are three processes, and a batch of bytes is one replicated call. Clients send frames (``frames``) to
the node that leads. ``python -m bench.pysyncobj_log FIRST_PORT NODE DIRECTORY`` runs one node.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pysyncobj import SyncObj, SyncObjConf, replicated

from bench.frames import DONE, WHO_LEADS, FrameClient, Frames, dial
from chaos.ports import free_ports

NODES = 3
START_S = 30


class ReplicatedLog(SyncObj):  # type: ignore[misc]
    """A replicated object that only counts records: the engine's journal stores the records."""

    def __init__(self, own: str, others: list[str], journal: Path) -> None:
        super().__init__(own, others, SyncObjConf(journalFile=str(journal)))
        self._length = 0

    @replicated  # type: ignore[untyped-decorator]
    def append(self, batch: bytes) -> int:
        self._length += 1
        return self._length


class Accepted(Frames):
    """A client's connection."""

    def __init__(self, log: ReplicatedLog, addresses: list[str]) -> None:
        super().__init__()
        self._log = log
        self._addresses = addresses
        self._loop = asyncio.get_running_loop()

    def frame(self, kind: int, stream: int, payload: memoryview) -> None:
        """Handle a batch, or a request for the leader."""
        if kind == WHO_LEADS:
            leader = str(self._log._getLeader() or "")
            known = self._addresses.index(leader) if leader in self._addresses else 255
            self.write(WHO_LEADS, stream, bytes([known]))
            return
        self._log.append(bytes(payload), callback=self._answer(stream))

    def _answer(self, stream: int) -> Callable[[object, object], None]:
        def answer(result: object, error: object) -> None:
            # Called on the engine's thread.
            self._loop.call_soon_threadsafe(self.write, DONE, stream, b"")

        return answer


class PySyncObjLog:
    """The system under load: three processes with one log."""

    name = "log on pysyncobj (its own journal)"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._first_port = 0
        self._leader = 0

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    async def start(self, streams: int) -> None:
        """Start the processes and wait for a leader."""
        self._first_port = free_ports(2 * NODES)
        self._directory.mkdir(parents=True)
        for node in range(NODES):
            self._spawn(node)
        client = await dial(self._first_port, 0, b"")
        for _ in range(START_S * 10):
            self._leader = (await client.ask(WHO_LEADS, b""))[0]
            if self._leader < NODES:
                break
            await asyncio.sleep(0.1)
        await client.close()
        if self._leader >= NODES:
            raise RuntimeError("pysyncobj elected no leader")

    async def connect(self, stream: int, records: int, record_bytes: int) -> FrameClient:
        """A connection to the leader."""
        return await dial(self._first_port + self._leader, 0, b"x" * (records * record_bytes))

    async def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(10)

    def _spawn(self, node: int) -> None:
        command = [sys.executable, "-m", __name__, str(self._first_port), str(node), str(self._directory)]
        self._processes.append(subprocess.Popen(command))


async def _serve(first_port: int, node: int, directory: Path) -> None:
    addresses = [f"127.0.0.1:{first_port + NODES + n}" for n in range(NODES)]
    others = [address for n, address in enumerate(addresses) if n != node]
    log = ReplicatedLog(addresses[node], others, directory / f"journal-{node}")
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Accepted(log, addresses), "127.0.0.1", first_port + node)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
