"""Builds batches from records that were stored before, such as the records of an archive.

Decides: which records share a batch. Leaves to others: where the records come from. The batches follow one
another without holes: offsets without records lie inside a batch, as after compaction, or in a gap batch.
Records whose timestamps producers set may share a batch; records whose timestamps a leader set share a batch
only if these timestamps are equal.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raftlog.records.batch import APPEND_TIME_BIT, HEADER_BYTES, MAGIC, NO_EPOCH, BatchHeader, encode_batch
from raftlog.records.builder import encoder
from raftlog.records.compaction import GAP_OFFSETS_MAX, gap_batch

BATCH_BYTES: Final = 512 << 10
BATCH_RECORDS: Final = 10_000


class PlacedRecord(NamedTuple):
    """A stored record and its offset. ``is_append_time``: a leader has set the timestamp."""

    offset: int
    timestamp_ms: int
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class RestoredBatches:
    """Collects records in the order of their offsets, from the offset ``first`` on, and encodes them as
    batches.
    """

    def __init__(self, first: int, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size_bytes = 0  # of the finished batches
        self._base = first  # of the current batch
        self._begin()

    def _begin(self) -> None:
        self._encoder = encoder()
        self._count = 0
        self._base_ms = self._max_ms = 0
        self._is_append_time = False

    @property
    def is_full(self) -> bool:
        """Whether the encoded batches have reached ``bytes_max``."""
        return self._size_bytes + (int(self._encoder.size()) if self._count else 0) >= self._bytes_max

    def add(self, record: PlacedRecord) -> None:
        """Add a record; its offset must be above the offset of the previous record."""
        offset, timestamp_ms, is_append_time, key, value, headers = record
        if self._is_ended_by(record):
            self._finish(offset)
        if not self._count:
            self._base_ms = self._max_ms = timestamp_ms
            self._is_append_time = is_append_time
        self._max_ms = max(self._max_ms, timestamp_ms)
        self._encoder.append(offset - self._base, timestamp_ms - self._base_ms, key, value, [*headers])
        self._count += 1

    def taken(self, end: int) -> bytes:
        """The batches that cover all offsets below ``end``."""
        self._finish(end)
        return b"".join(self._parts)

    def _is_ended_by(self, record: PlacedRecord) -> bool:
        """Whether the current batch must end before this record."""
        if record.offset - self._base >= GAP_OFFSETS_MAX:
            return True
        return self._count > 0 and (
            record.is_append_time != self._is_append_time
            or (record.is_append_time and record.timestamp_ms != self._max_ms)
            or self._count >= BATCH_RECORDS
            or self._encoder.size() >= BATCH_BYTES
        )

    def _finish(self, end: int) -> None:
        """End the batch before the offset ``end``; gap batches cover a distance that is too large for the
        batch.
        """
        while self._base < end:
            last = min(end, self._base + GAP_OFFSETS_MAX) - 1
            batch = self._built(last) if self._count else gap_batch(self._base, last, NO_EPOCH, None).data
            self._parts.append(bytes(batch))
            self._size_bytes += len(batch)
            self._base = last + 1
            self._begin()

    def _built(self, last: int) -> bytes:
        header = BatchHeader(
            base_offset=self._base,
            batch_length=0,
            leader_epoch=NO_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=APPEND_TIME_BIT if self._is_append_time else 0,
            last_offset_delta=last - self._base,
            base_timestamp=self._base_ms,
            max_timestamp=self._max_ms,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=self._count,
        )
        return encode_batch(header, memoryview(self._encoder.build())[HEADER_BYTES:])
