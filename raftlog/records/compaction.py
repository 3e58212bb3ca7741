"""Removes records from a stored batch, and builds batches that cover the offsets of removed records.

Decides: what remains of a batch. Leaves to others: which records are removed
(``raftlog.storage.compaction``).

A batch from which records were removed keeps base offset, last offset delta, leader epoch and producer; an
*emptied* batch keeps nothing else. If a whole batch is removed, or several in a row with one leader epoch, a
*gap batch* covers their offsets: a header of 61 bytes without records and without a producer. So the batches
of a log follow one another without holes, and code that reads, copies and verifies logs needs no special case
for compacted logs. A gap batch may be cut at any offset.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from raftlog.records.batch import (
    APPEND_TIME_BIT,
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    TAGS_KNOWN_BIT,
    Batch,
    BatchHeader,
    encode_batch,
    parse_header,
    split_batches,
)
from raftlog.records.compression import compress
from raftlog.records.reader import encoded_records, iter_opened, open_batch
from raftlog.records.tag_directory import Run, tagged_body
from raftlog.records.tags import tag_set

GAP_OFFSETS_MAX = 1 << 31  # of one gap batch: the last offset delta is a signed number of four bytes


class KeyedRecord(NamedTuple):
    """The fields of a stored record that compaction needs."""

    offset: int
    key: bytes | None
    is_tombstone: bool  # the record has no value: it deletes its key


def keyed_records(batch: Batch) -> list[KeyedRecord]:
    """The offset and the key of each record in a batch. Raises ``CorruptBatch``."""
    opened = open_batch(batch)
    return [
        KeyedRecord(record.offset, record.key, record.value is None)
        for record in iter_opened(batch.header, opened)
    ]


def retain(batch: Batch, offsets: Container[int]) -> Batch:
    """The batch with only the records at these offsets, of which there must be one.

    Raises ``CorruptBatch``.
    """
    header = batch.header
    opened = open_batch(batch)
    parts: list[tuple[bytes, memoryview]] = []  # tags and encoded bytes of the kept records
    newest_ms = NO_TIMESTAMP
    records = zip(iter_opened(header, opened), encoded_records(header, opened), strict=True)
    for record, encoded in records:
        if record.offset in offsets:
            parts.append((tag_set(record.headers) or b"", encoded))
            newest_ms = max(newest_ms, record.timestamp_ms)
    # The stored state of a producer contains the timestamp of its batch, which must not change.
    keeps_time = header.is_append_time or header.has_producer
    kept = header._replace(
        record_count=len(parts), max_timestamp=header.max_timestamp if keeps_time else newest_ms
    )
    if header.attributes & TAGS_KNOWN_BIT and any(tags for tags, _ in parts):
        return _with_directory(kept, parts)
    return _encoded(kept, compress(header.codec, b"".join(encoded for _, encoded in parts)))


def _with_directory(header: BatchHeader, parts: Sequence[tuple[bytes, memoryview]]) -> Batch:
    """A batch of the kept records, which have tags, with a new directory of their tags."""
    runs = [
        Run(tags, len(some), b"".join(some))
        for tags, group in groupby(parts, key=itemgetter(0))
        if (some := [encoded for _, encoded in group])
    ]
    body = tagged_body(runs, is_compressed=True)
    if body is not None:
        return _encoded(header, body)
    plain = b"".join(encoded for _, encoded in parts)
    attributes = header.attributes & ~TAGS_KNOWN_BIT
    return _encoded(header._replace(attributes=attributes), compress(header.codec, plain))


def emptied(batch: Batch) -> Batch:
    """The batch without any of its records; the body is not read."""
    return _encoded(batch.header._replace(record_count=0), b"")


def gap_batch(first: int, last: int, leader_epoch: int, stamped_ms: int | None) -> Batch:
    """A batch that covers the offsets ``first..last`` of removed records of one leader epoch.

    ``stamped_ms`` is the newest time at which a leader stamped a removed batch; None if no leader did.
    """
    header = BatchHeader(
        base_offset=first,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=0 if stamped_ms is None else APPEND_TIME_BIT,
        last_offset_delta=last - first,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP if stamped_ms is None else stamped_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    return _encoded(header, b"")


def cut_gap(batch: Batch, first: int, last: int) -> Batch:
    """The part of a gap batch that lies in ``first..last``; every other batch is returned unchanged."""
    header = batch.header
    if header.record_count:
        return batch  # the usual case
    start, end = max(first, header.base_offset), min(last, header.last_offset)
    if not header.is_gap or start > end or (start, end) == (header.base_offset, header.last_offset):
        return batch
    return gap_batch(start, end, header.leader_epoch, header.stamped_ms)


def starting_at(data: bytes | memoryview, first: int) -> bytes | memoryview:
    """Stored batches from ``first`` on: a gap batch at their beginning is cut to start at ``first``."""
    if len(data) < HEADER_BYTES:
        return data
    header = parse_header(data)
    if not header.base_offset < first <= header.last_offset or not header.is_gap:
        return data
    cut = cut_gap(Batch(data[: header.size_bytes], header), first, header.last_offset)
    return b"".join((cut.data, data[header.size_bytes :]))


def ending_at(data: bytes | memoryview, last: int) -> bytes:
    """Stored batches up to ``last``: a gap batch at their end is cut to end at ``last``."""
    *others, newest = split_batches(data)
    return b"".join([*(batch.data for batch in others), cut_gap(newest, newest.base_offset, last).data])


def _encoded(header: BatchHeader, body: bytes) -> Batch:
    data = encode_batch(header, body)
    return Batch(data, parse_header(data))
