"""Where to produce over HTTP, and a batch to send."""

from __future__ import annotations

from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.types import TopicPartition
from raftlog.wire import media_types

TOPIC = "/v1/topics/orders/records"


PARTITION = "/v1/topics/orders/partitions/0/records"


BINARY = {"Content-Type": media_types.BATCH}


ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def one_batch(
    *values: bytes, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1
) -> bytes:
    """A batch as a client sends it."""
    return build_batch(
        [Record(value) for value in values],
        codec=Codec.NONE,
        timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
