"""Large binary fetches over a socket: read, checked and sent piece by piece, by one thread."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

from raftlog.node.reading import PIECE_BYTES, READ_THREADS
from raftlog.records.batch import Codec, parse_header, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.wire import media_types, records
from tests.helpers.async_tests import on_both_loops_with
from tests.helpers.waiting import limited, until
from tests.helpers.whole_broker import TOPIC, WholeBroker, whole_broker

FETCH_BYTES = 16 << 20
BATCH = build_batch([Record(bytes(1024))] * 100, codec=Codec.NONE, timestamp_ms=0)
RECORDS = records.FETCH.at(topic=TOPIC, partition=0)


def request(method: str, path: str, **headers: str) -> str:
    """A head; headers are named with underscores."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: a", *lines, "", ""])


WHOLE = request("GET", f"{RECORDS}?offset=0&max_bytes={FETCH_BYTES}", accept=media_types.BATCH)


class Reader:
    """A client of one connection that waits on a thread, with one piece of memory for all that it reads."""

    def __init__(self, port: int, *, window_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if window_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
        self.socket.connect(("127.0.0.1", port))
        self._memory = memoryview(bytearray(1 << 20))

    def ask(self, request: str) -> None:
        self.socket.sendall(request.encode())

    async def head(self) -> dict[str, str]:
        return await asyncio.to_thread(self._head)

    async def matches(self, expected: memoryview) -> bool:
        """Whether exactly these bytes come next."""
        return await asyncio.to_thread(self._matches, expected)

    async def until_closed(self) -> bytes:
        return await asyncio.to_thread(self._until_closed)

    def _head(self) -> dict[str, str]:
        head = bytearray()
        while not head.endswith(b"\r\n\r\n"):
            found = self.socket.recv(1)
            assert found, bytes(head)
            head += found
        first, *lines = head[:-4].decode().split("\r\n")
        named = dict(line.lower().split(": ", 1) for line in lines)
        return {"status": first.split()[1], **named}

    def _until_closed(self) -> bytes:
        got = b""
        with suppress(ConnectionResetError):
            while piece := self.socket.recv(1 << 20):
                got += piece
        return got

    def _matches(self, expected: memoryview) -> bool:
        at = 0
        while at < len(expected):
            count = self.socket.recv_into(self._memory, min(len(self._memory), len(expected) - at))
            if not count or self._memory[:count] != expected[at : at + count]:
                return False
            at += count
        return True


class Stored:
    """A broker with 20 MB in a partition."""

    def __init__(self, broker: WholeBroker, directory: Path) -> None:
        self.listener = broker.listener
        self._answers = broker.request_pipeline.admission.answers
        self._directory = directory
        self._readers: list[Reader] = []

    @property
    def file(self) -> Path:
        (found,) = self._directory.glob(f"{TOPIC}-*/Partition-0/*.log")
        return found

    @property
    def data(self) -> memoryview:
        """What a fetch of 16 MiB has: the whole batches at the beginning of the file."""
        data, end = memoryview(self.file.read_bytes()), 0
        while (following := end + parse_header(data, end).size_bytes) <= FETCH_BYTES:
            end = following
        return data[:end]

    @property
    def waiting_bytes(self) -> int:
        """Memory of the responses whose clients do not read."""
        return self._answers.untaken_bytes

    def connect(self, *, window_bytes: int | None = None) -> Reader:
        self._readers.append(Reader(self.listener.port, window_bytes=window_bytes))
        return self._readers[-1]

    async def stalled(self, count: int) -> list[Reader]:
        """Clients that have read the head of a response, until the broker waits for each of them."""
        readers = [self.connect(window_bytes=4096) for _ in range(count)]
        for reader in readers:
            reader.ask(WHOLE)
            await reader.head()
        await until(lambda: self.waiting_bytes == count * PIECE_BYTES, what="waiting for the clients")
        return readers

    async def fill(self) -> None:
        connection, body = self.connect(), BATCH * 40
        length = str(len(body))
        for _ in range(5):
            connection.ask(request("POST", RECORDS, content_type=media_types.BATCH, content_length=length))
            await asyncio.to_thread(connection.socket.sendall, body)
            answer = await connection.head()
            assert answer["status"] == "200"
            await asyncio.to_thread(connection.socket.recv, int(answer["content-length"]), socket.MSG_WAITALL)

    def close(self) -> None:
        for reader in self._readers:
            reader.socket.close()


@asynccontextmanager
async def stored(tmp_path: Path) -> AsyncIterator[Stored]:
    directory = tmp_path / type(asyncio.get_running_loop()).__module__
    async with limited("the test"), whole_broker(partitions=1, directory=directory) as broker:
        with closing(Stored(broker, directory)) as found:
            await found.fill()
            yield found


# requirement: L7
@on_both_loops_with(stored)
async def test_16_mib_are_the_bytes_of_the_file_and_take_little_memory(stored: Stored) -> None:
    data, reader = stored.data, stored.connect()
    tracemalloc.start()
    try:
        reader.ask(WHOLE + WHOLE)  # the second one waits for the end of the first response
        for _ in range(2):
            head = await reader.head()
            assert (head["status"], int(head["content-length"])) == ("200", len(data))
            assert await reader.matches(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(data) > 15 << 20
    assert peak_bytes < 2 * PIECE_BYTES + (1 << 20)


# requirement: L7
@on_both_loops_with(stored)
async def test_a_client_that_does_not_read_holds_no_thread_and_gets_everything(stored: Stored) -> None:
    data = stored.data
    stalled = await stored.stalled(READ_THREADS + 1)
    reader = stored.connect()
    reader.ask(WHOLE)
    await reader.head()
    assert await reader.matches(data)
    stored.file.unlink()  # as retention does
    assert all(await asyncio.gather(*(each.matches(data) for each in stalled)))
    await until(lambda: stored.waiting_bytes == 0, what="the end of all responses")


# requirement: M3
@on_both_loops_with(stored)
async def test_damage_behind_the_first_piece_ends_the_connection_before_it(stored: Stored) -> None:
    data = bytes(stored.data)
    batches = [len(batch.data) for batch in split_batches(data)]
    before = sum(batches[: len(batches) // 2])
    with stored.file.open("r+b") as file:
        file.seek(before + 1000)
        file.write(b"damage")
    reader = stored.connect()
    reader.ask(WHOLE)
    assert int((await reader.head())["content-length"]) == len(data)
    assert await reader.until_closed() == data[:before]
    again = stored.connect()
    again.ask(WHOLE)
    head = await again.head()
    assert (head["status"], head["content-type"]) == ("503", "application/problem+json")


@on_both_loops_with(stored)
async def test_a_reset_in_the_middle_leaves_nothing_behind(stored: Stored) -> None:
    (reader,) = await stored.stalled(1)
    descriptors = len(os.listdir("/proc/self/fd"))
    reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    reader.socket.close()
    await until(lambda: stored.waiting_bytes == 0, what="the end of the response")
    await until(  # ours, the transport's, the sender's, and that of the file
        lambda: len(os.listdir("/proc/self/fd")) == descriptors - 4, what="closed descriptors"
    )


@on_both_loops_with(stored)
async def test_a_stop_does_not_wait_for_a_client_that_does_not_read(stored: Stored) -> None:
    data = stored.data
    (reader,) = await stored.stalled(1)
    await stored.listener.stop()
    got = await reader.until_closed()
    assert len(got) < len(data)
    assert data[: len(got)] == got
