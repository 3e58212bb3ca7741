"""What a record costs in the client, counted in calls of Python functions."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from raftlog import Client
from raftlog.client.messages import read_messages
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.reader import read_records
from tests.helpers.async_tests import beside
from tests.helpers.fake_broker import fake_cluster
from tests.helpers.profiled import profiled
from tests.helpers.virtual_client import VirtualClient

RECORDS = 10_000
CALLS_PER_BATCH_MAX = 100
CALLS_PER_RECORD_MAX = 8  # of Python code, in the thread of the user
CALLS_PER_SEND_MAX = 4  # send, append, route, and the append of the buffer
HAND_OVERS_MAX = 2 * RECORDS // 500


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Calls of Python functions in this thread, by name."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            found[frame.f_code.co_qualname] += 1

    with profiled(note):
        yield found


def batch_of(count: int, codec: Codec = Codec.NONE) -> bytes:
    """Records with keys."""
    return build_batch([Record(b"v" * 100, b"k")] * count, codec=codec, timestamp_ms=1)


READERS: dict[str, Callable[[bytes], object]] = {
    "messages": lambda data: read_messages("orders", 0, data, first_offset=0, next_offset=RECORDS),
    "records": lambda data: read_records(split_batches(data)[0]),
}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("reader", READERS)
def test_no_python_code_runs_for_a_record_that_is_decoded(reader: str, codec: Codec) -> None:
    data = batch_of(RECORDS, codec)
    READERS[reader](data)
    with counted_calls() as calls:
        READERS[reader](data)
    assert calls.total() <= CALLS_PER_BATCH_MAX


def test_the_garbage_collector_tracks_no_message() -> None:
    messages = read_messages("orders", 0, batch_of(1000), first_offset=0, next_offset=1000).messages
    assert not any(map(gc.is_tracked, messages))


@pytest.mark.parametrize("key", [None, b"k"])
async def test_a_producer_makes_few_calls_for_a_record(key: bytes | None) -> None:
    async with (
        fake_cluster() as cluster,
        VirtualClient(cluster.urls) as client,
        client.producer("orders", batch_bytes=1 << 20, linger="10s") as producer,
    ):
        await producer.send(b"v" * 100, key=key)
        with counted_calls() as calls:
            for _ in range(1000):
                await producer.send(b"v" * 100, key=key)
    assert calls.total() <= CALLS_PER_SEND_MAX * 1000 + CALLS_PER_BATCH_MAX


def test_no_python_code_runs_for_a_record_that_is_encoded() -> None:
    records = [Record(b"v" * 100, b"k")] * RECORDS
    build_batch(records, codec=Codec.NONE, timestamp_ms=1)
    with counted_calls() as calls:
        build_batch(records, codec=Codec.NONE, timestamp_ms=1)
    assert calls.total() <= CALLS_PER_BATCH_MAX


def test_a_consumer_makes_few_calls_for_a_record() -> None:
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
        cluster.partition(0).append(batch_of(RECORDS))
        with client.consumer(None, assign=[("orders", 0)]) as consumer:
            assert consumer.poll("60s") is not None
            records = iter(consumer)
            with counted_calls() as calls:
                for _ in range(RECORDS - 1):
                    next(records)
    assert calls.total() <= CALLS_PER_RECORD_MAX * RECORDS
    assert calls["Portal.call"] <= HAND_OVERS_MAX
