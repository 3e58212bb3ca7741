"""The topic of most tests, ``orders``: batches for it, reads of it, and what was read."""

from __future__ import annotations

from partitions.values import FetchRequest
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.reader import read_records
from raftlog.types import Offset, TopicPartition

ORDERS = TopicPartition("orders", 0)


def batch_of(
    *values: bytes,
    producer: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    timestamp_ms: int = 1_000,
    key: bytes | None = None,
) -> bytes:
    """One produced batch; with a producer id it has a sequence."""
    return build_batch(
        [Record(value=value, key=key) for value in values],
        codec=Codec.NONE,
        timestamp_ms=timestamp_ms,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 and epoch < 0 else epoch,
        base_sequence=sequence,
    )


def fetch_from(
    position: int,
    *,
    committed_only: bool = False,
    tags: tuple[str, ...] = (),
    bytes_max: int = 1 << 20,
    bytes_min: int = 1,
    wait_ms: int = 0,
) -> FetchRequest:
    """A read from an offset on."""
    return FetchRequest(
        position=Offset(position),
        committed_only=committed_only,
        tags=tags,
        bytes_max=bytes_max,
        bytes_min=bytes_min,
        wait_ms=wait_ms,
    )


def values_of(data: bytes | memoryview) -> list[bytes | None]:
    """The values of all fetched records."""
    return [record.value for batch in split_batches(data) for record in read_records(batch)]
