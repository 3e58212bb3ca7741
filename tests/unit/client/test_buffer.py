"""Which batch a record joins, and which batch the sender takes."""

from __future__ import annotations

from raftlog.client.buffer import Buffer, PartitionQueue
from raftlog.client.options import producer_options
from raftlog.clock import SystemClock
from raftlog.records.builder import Record


def test_a_batch_that_was_taken_is_no_longer_open() -> None:
    # requirement: P1
    buffer, queue = Buffer(producer_options(), SystemClock()), PartitionQueue("orders", 0)
    sent = buffer.append(queue, Record(b"first"), 37, None)
    assert sent is not None
    buffer.make_due(queue)
    assert buffer.take(queue, now=1.0) is sent[0]
    assert buffer.take(queue, now=1.0) is None
    later = buffer.append(queue, Record(b"second"), 38, None)
    assert later is not None
    assert later[0] is not sent[0]
    assert [record.value for record in sent[0].records] == [b"first"]


def test_a_buffer_is_full_from_a_refusal_until_half_of_it_is_free() -> None:
    # requirement: P6
    buffer, queue = Buffer(producer_options(buffer_bytes=1_000), SystemClock()), PartitionQueue("orders", 0)
    small, large = Record(b"small"), Record(b"large")
    first = buffer.append(queue, small, 400, None)
    assert not buffer.is_full
    assert buffer.append(queue, large, 700, None) is None
    assert buffer.is_full
    assert first is not None
    buffer.release(first[0])
    assert not buffer.is_full
    queue.open = None
    assert buffer.append_all(queue, [small, large], [400, 700]) == 1
    assert buffer.is_full
