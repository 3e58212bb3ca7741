"""Encodes the four Kafka requests that benchmarks need, and decodes their responses.

The requests are Produce 8, Fetch 4, ListOffsets 1 and CreateTopics 4: versions with a simple layout. A frame
is a length, then api key, version, correlation id and client id, then the request's own fields. All numbers
are big-endian.
"""

from __future__ import annotations

import asyncio
import struct
from typing import cast

FETCH_BYTES_MAX = 8 << 20
_HEAD = struct.Struct(">ihhi")
_NONE = 0


class KafkaConnection(asyncio.Protocol):
    """One connection to a broker, for one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._request = b""
        self._error_at = 0
        self._parts: list[bytes] = []
        self._missing = 0
        self._done: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods without being subclasses.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Collect the bytes of one response; complete the waiting request once the response is complete."""
        if not self._parts:
            if len(data) < 4:
                raise ConnectionError("Kafka sent less than a length")
            self._missing = int.from_bytes(data[:4], "big") + 4
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing == 0 and self._done is not None:
            answer, self._parts = b"".join(self._parts), []
            if not self._done.done():
                self._done.set_result(answer[8:])

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the waiting request."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("Kafka closed the connection"))

    def prepare(self, key: int, version: int, body: bytes, *, answer_error_at: int) -> None:
        """Build the request for ``send``, and store where its response has the error code."""
        self._request = _frame(key, version, body)
        self._error_at = answer_error_at

    async def send(self) -> None:
        """Send the prepared request, and wait for its response. Raises ``RuntimeError`` for an error code."""
        answer = await self._exchange(self._request)
        (error,) = struct.unpack_from(">h", answer, self._error_at)
        if error != _NONE:
            raise RuntimeError(f"Kafka answered error {error}")

    async def ask(self, key: int, version: int, body: bytes) -> bytes:
        """Send any request, and return the response without its head."""
        return await self._exchange(_frame(key, version, body))

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def _exchange(self, request: bytes) -> bytes:
        assert self._transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._done


class KafkaReader:
    """A consumer of one partition, which reads from a position on."""

    def __init__(self, connection: KafkaConnection, topic: str, partition: int) -> None:
        self._connection = connection
        self._topic = topic
        self._partition = partition
        self._offset = 0

    async def seek_end(self) -> None:
        """Continue after the newest record."""
        self._offset = await self._find(-1)

    async def seek_start(self) -> None:
        """Continue at the oldest record."""
        self._offset = await self._find(-2)

    async def read(self) -> tuple[int, int]:
        """Wait for the next records; return the numbers of records and bytes."""
        answer = await self._connection.ask(
            1,
            4,
            struct.pack(">iiiib", -1, 5_000, 1, FETCH_BYTES_MAX, 0)
            + struct.pack(">i", 1)
            + text(self._topic)
            + struct.pack(">iiqi", 1, self._partition, self._offset, FETCH_BYTES_MAX),
        )
        at = 4 + 4 + 2 + len(self._topic) + 4  # throttle time, one topic, one partition
        _, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
        if error == 1:  # retention has deleted the position
            await self.seek_start()
            return 0, 0
        if error != _NONE:
            raise RuntimeError(f"Kafka answered error {error} to a fetch")
        at += 26 + 16 * max(aborted, 0)
        (size,) = struct.unpack_from(">i", answer, at)
        following, size_read = _end_of_batches(answer, at + 4, at + 4 + max(size, 0), self._offset)
        count, self._offset = following - self._offset, following
        return count, size_read

    async def close(self) -> None:
        await self._connection.close()

    async def _find(self, timestamp: int) -> int:
        body = (
            struct.pack(">ii", -1, 1) + text(self._topic) + struct.pack(">iiq", 1, self._partition, timestamp)
        )
        answer = await self._connection.ask(2, 1, body)
        _, error, _, offset = struct.unpack_from(">ihqq", answer, 4 + 2 + len(self._topic) + 4)
        if error != _NONE:
            raise RuntimeError(f"Kafka answered error {error} when asked for an offset")
        return int(offset)


async def create_topic(
    connection: KafkaConnection, name: str, partitions: int, nodes: int, config: dict[str, str]
) -> bool:
    """Create a topic whose partition n is led by broker n % nodes + 1; return whether it exists."""
    body = struct.pack(">i", 1) + text(name) + struct.pack(">ihi", -1, -1, partitions)
    for partition in range(partitions):
        brokers = [(partition + n) % nodes + 1 for n in range(nodes)]
        body += struct.pack(f">ii{nodes}i", partition, nodes, *brokers)
    body += struct.pack(">i", len(config))
    for key, value in config.items():
        body += text(key) + text(value)
    answer = await connection.ask(19, 4, body + struct.pack(">i?", 20_000, False))
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(name))
    return error in (_NONE, 36)  # 36: it exists


def text(value: str) -> bytes:
    """A string in Kafka's encoding."""
    return struct.pack(">h", len(value)) + value.encode()


def _frame(key: int, version: int, body: bytes) -> bytes:
    client = text("benchmark")
    return _HEAD.pack(8 + len(client) + len(body), key, version, 1) + client + body


def _end_of_batches(answer: bytes, at: int, end: int, offset: int) -> tuple[int, int]:
    """The offset after the last complete batch, and the bytes of complete batches."""
    size_bytes = 0
    while end - at >= 61:
        base, length = struct.unpack_from(">qi", answer, at)
        if at + 12 + length > end:
            break
        (last_delta,) = struct.unpack_from(">i", answer, at + 23)
        offset = base + last_delta + 1
        at += 12 + length
        size_bytes += 12 + length
    return offset, size_bytes
