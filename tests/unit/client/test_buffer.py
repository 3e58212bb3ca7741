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
