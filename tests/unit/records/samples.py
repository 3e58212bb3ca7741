"""The records that the golden files hold, and the other implementation that reads and writes them."""

from __future__ import annotations

import warnings
from pathlib import Path

from raftlog.records.batch import Batch, Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.reader import read_records

with warnings.catch_warnings():  # kafka-python reads its schemas in a way that Python has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as kafka_murmur2
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

__all__ = [
    "DefaultRecordBatch",
    "golden_bytes",
    "kafka_murmur2",
    "one_batch",
    "ours",
    "read_by_them",
    "read_by_us",
    "theirs",
]

GOLDEN = Path(__file__).parent / "golden"

RECORDS = [
    Record(b"plain", timestamp_ms=1_700_000_000_000),
    Record(None, key=b"tombstone", timestamp_ms=1_700_000_000_001),
    Record(b"", key=b"", timestamp_ms=1_699_999_999_000),  # earlier than the first: a negative delta
    Record(b"late" * 40, key="schlüssel".encode(), timestamp_ms=1_700_009_999_999),
    Record(
        b"tagged",
        headers=(("trace", b"\x00\xff"), ("none", None), ("trace", b""), ("größe", b"1")),
        timestamp_ms=1_700_000_000_002,
    ),
    Record(bytes(range(256)) * 4, key=b"k" * 70, timestamp_ms=1_700_000_000_003),
]
PRODUCER = (4711, 3, 2**31 - 2)


def golden_bytes(name: str) -> bytes:
    """A file of the golden folder."""
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())


def one_batch(data: bytes) -> Batch:
    """The only batch in some bytes."""
    (batch,) = split_batches(data)
    return batch


def ours(codec: Codec, records: list[Record] = RECORDS) -> bytes:
    """A batch that we built."""
    producer_id, producer_epoch, base_sequence = PRODUCER
    return build_batch(
        records,
        codec=codec,
        timestamp_ms=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def theirs(codec: Codec, records: list[Record] = RECORDS) -> bytes:
    """The same batch, built by kafka-python."""
    builder = DefaultRecordBatchBuilder(2, int(codec), False, *PRODUCER, 1 << 30)
    for position, record in enumerate(records):
        builder.append(position, record.timestamp_ms, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def read_by_us(data: bytes) -> list[Record]:
    """What we find in a batch."""
    found = read_records(one_batch(data))
    assert [record.offset for record in found] == list(range(len(found)))
    return [Record(record.value, record.key, record.headers, record.timestamp_ms) for record in found]


def read_by_them(data: bytes) -> list[Record]:
    """What kafka-python finds in a batch."""
    batch = DefaultRecordBatch(data)
    assert batch.validate_crc()
    return [Record(found.value, found.key, tuple(found.headers), found.timestamp) for found in batch]
