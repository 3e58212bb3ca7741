"""What a body costs while it is read, checked and stored: not much more than the bytes that are counted."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.reader import check_records
from raftlog.wire import media_types
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.http_server import serve

PATH = "/v1/topics/orders/partitions/0/records"
BODY_BYTES = 12 << 20


@contextmanager
def _peak_mib() -> Iterator[list[float]]:
    """Gives how much memory was taken at most, once the block has ended."""
    found: list[float] = []
    tracemalloc.start()
    try:
        yield found
        found.append(tracemalloc.get_traced_memory()[1] / (1 << 20))
    finally:
        tracemalloc.stop()


def test_a_batch_is_checked_with_two_copies_of_its_records() -> None:
    bomb = build_batch([Record(bytes(BODY_BYTES))], codec=Codec.ZSTD, timestamp_ms=1)
    with _peak_mib() as peak:
        check_records(split_batches(bomb)[0])
    assert peak[0] < 2 * 16


@in_virtual_time
async def test_a_body_is_held_once_while_it_is_inflated() -> None:
    body = b'{"records":[' + b",".join([b'{"value":1}'] * (BODY_BYTES // 12)) + b"]}"
    packed = zlib.compress(body, 9)
    sent = {"Content-Type": media_types.JSON, "Content-Encoding": "deflate"}
    async with serve() as server:
        await server.topic(partitions=1)
        with _peak_mib() as peak:
            answer = await server.call("POST", PATH, packed, sent)
        assert answer.code == "record_too_large"
        assert peak[0] < 12 + 8


@in_virtual_time
async def test_records_are_held_once_when_they_wait_to_be_stored() -> None:
    value = "v" * (1000 << 10)
    async with serve() as server:
        await server.topic(partitions=1)
        body = msgspec.json.encode({"records": [{"value": value}] * 12})
        with _peak_mib() as peak:
            answer = await server.call("POST", PATH, body, {"Content-Type": media_types.JSON})
        assert answer.status == 200
        assert peak[0] < 4 * 12


@in_virtual_time
async def test_what_follows_a_request_and_is_no_http_is_not_kept() -> None:
    # requirement: C4
    junk = b"x" * (240 << 10)
    async with serve() as server:
        await server.topic(partitions=1)
        asked = f"GET {PATH}?offset=latest HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\n\r\n".encode()
        gc.disable()  # it may come late
        tracemalloc.start()
        try:
            for _ in range(10):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)
                writer.write(asked + junk)
                with contextlib.suppress(ConnectionError):
                    while await reader.read(1000):
                        pass
                writer.close()
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
            gc.enable()
    assert held < 10 * len(junk) / 2
