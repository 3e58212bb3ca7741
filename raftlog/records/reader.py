"""Decodes the records of a batch, as a consumer does.

Decides: which bodies are valid. Leaves to others: the checksum (``check_batch``
must run first), the requested offsets, and the meaning of control records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, repeat, tee
from operator import attrgetter, lt
from typing import NoReturn, Protocol, TypeVar

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecord, DefaultRecordBatch
from msgspec import Struct

from raftlog.errors import CorruptBatch, InvalidRecord
from raftlog.records.batch import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    HEADER_BYTES,
    NO_TIMESTAMP,
    RECORD_COUNT_MAX,
    Batch,
    BatchHeader,
    Buffer,
    pack_header,
)
from raftlog.records.compression import decompress

DECOMPRESSED_BYTES_MAX = 16 << 20  # of the records of one batch
RECORD_MEMORY_BYTES = 300  # approximate memory of a decoded record beside its contents
_FAST_BYTES_MAX = 1 << 20
_FEW_RECORDS = 4  # so few or such large records are checked faster in Python than copied for compiled code
_LARGE_RECORD_BYTES = 16 << 10
_USUAL_MS_MAX = 1 << 48
_RECORD_BYTES_MIN = 7  # each of the seven fields takes at least a byte
# A header of two bytes becomes a tuple of sixty. A body with room for more headers than this has its headers
# counted first, so that a few kilobytes of compressed data cannot claim gigabytes of memory. Producers stay
# far below.
_HEADERS_MAX = 1 << 19
_HEADER_BYTES_MIN = 2
_OFFSET = attrgetter("offset")
_OFFSET_AND_KEY = attrgetter("offset", "key")
_TIMESTAMP = attrgetter("timestamp")
_KEY = attrgetter("key")
_VALUE = attrgetter("value")
_HEADERS = attrgetter("headers")
_PREFIX = str(CorruptRecordException(""))  # an error number and a class name, of no use to users
_UNREADABLE = (CorruptRecordException, UnicodeDecodeError, OverflowError)

# The compiled parser checks for the end of the buffer before it reads a number, not within the number. So in
# a body that ends inside a number it reads up to 20 bytes too far. An additional record at the end, the
# sentinel, receives these reads. Since it must be decoded completely and last, it also proves that the
# records before it fill the body exactly.
_SENTINEL_VALUE = bytes(48)
_SENTINEL = b"\x6c\x00\x00\x01\x01\x60" + _SENTINEL_VALUE + b"\x00"
_SENTINEL_DELTA = -1


class StoredRecord(Struct, frozen=True):
    """A record in a partition.

    A msgspec struct: compiled code creates it, and the garbage collector skips it.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def size_bytes(self) -> int:
        """The total size in bytes of key, value and headers, without the bytes that their encoding adds."""
        size = len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += len(name.encode()) + len(value or b"")
        return size


Row = TypeVar("Row", bound="AnyRecord")


class AnyRecord(Protocol):
    """The interface of a record as the caller of ``read_rows`` creates it."""

    @property
    def offset(self) -> int:
        """The offset of the record in its partition."""

    @property
    def value(self) -> bytes | None:
        """The value of the record; None for a tombstone."""

    @property
    def headers(self) -> Sequence[object]:
        """The headers of the record, in their stored order."""


def read_records(batch: Batch, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> list[StoredRecord]:
    """Decode all records of a batch, also control records, in order of offset.

    Raises the errors of ``read_rows``.
    """
    return read_rows(StoredRecord, batch, decompressed_bytes_max=decompressed_bytes_max)


def read_rows(
    make: Callable[..., Row],
    batch: Batch,
    *,
    before: tuple[object, ...] = (),
    after: tuple[object, ...] = (),
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[Row]:
    """Call ``make(*before, offset, timestamp_ms, key, value, headers, *after)`` for each record of a batch.

    Offsets have gaps after compaction. Raises only ``CorruptBatch`` for bytes that contradict the header, or
    that decompress to more than ``decompressed_bytes_max``; raises ``MemoryError`` if memory is too short to
    decode the batch.

    If ``make`` is compiled, no Python code runs for a record, and no other object is allocated for it.
    """
    header = batch.header
    opened = open_batch(batch, decompressed_bytes_max)
    try:
        offsets, timestamps, keys, values, headers = tee(DefaultRecordBatch(opened), 5)
        found = list(
            map(
                make,
                *map(repeat, before),
                map(_OFFSET, offsets),
                map(_TIMESTAMP, timestamps),
                map(_KEY, keys),
                map(_VALUE, values),
                map(tuple, map(_HEADERS, headers)),
                *map(repeat, after),
            )
        )
    except _UNREADABLE as error:
        raise _corrupt(error) from error
    except MemoryError:
        _check_lengths(opened)
        raise
    _check_sentinel(header, found.pop())
    _check_offsets(header, [*map(_OFFSET, found)])
    return found


def iter_records(batch: Batch, first: int = 0) -> Iterator[StoredRecord]:
    """Yield the records from offset ``first`` on, one by one, with less memory than ``read_records`` uses.

    Raises ``CorruptBatch`` at the first damage, after it has yielded the records before the damage.
    """
    return iter_opened(batch.header, open_batch(batch), first)


def open_batch(batch: Batch, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Decompress a batch and append the sentinel that ``iter_opened`` needs.

    Raises ``CorruptBatch``, also for a record count that is not plausible.
    """
    header = batch.header
    body: Buffer = memoryview(batch.data)[HEADER_BYTES:]
    if len(batch.data) != header.batch_length + BATCH_OVERHEAD:
        raise CorruptBatch(
            f"batch_length: says {header.size_bytes} bytes in all, there are {len(batch.data)}"
        )
    if len(body) > 0 and header.attributes & CODEC_MASK:  # compaction leaves headers without a body
        body = decompress(header.codec, body, bytes_max=decompressed_bytes_max)
    if header.record_count > min(RECORD_COUNT_MAX, len(body) // _RECORD_BYTES_MIN):
        raise CorruptBatch(f"record_count: {header.record_count} records do not fit into {len(body)} bytes")
    header_bytes = len(body) - _RECORD_BYTES_MIN * header.record_count  # at most
    if header_bytes > _HEADER_BYTES_MIN * _HEADERS_MAX and _header_count(body) > _HEADERS_MAX:
        raise CorruptBatch(f"records: they have more than {_HEADERS_MAX} headers; send fewer per batch")
    attributes = header.attributes & ~CODEC_MASK
    # Twice as fast as ``_replace``, which counts where batches are small.
    head = pack_header(*header[:5], attributes, *header[6:12], header.record_count + 1)
    return b"".join((head, body, _SENTINEL))


def iter_opened(header: BatchHeader, opened: bytes, first: int = 0) -> Iterator[StoredRecord]:
    """Decode records as ``iter_records`` does, but from the result of ``open_batch``."""
    previous, last = header.base_offset - 1, header.base_offset + header.last_offset_delta
    following = range(header.record_count, -1, -1)  # the number of following records, including the sentinel
    try:
        for record, left in zip(DefaultRecordBatch(opened), following, strict=True):
            if not left:
                _check_sentinel(header, record)
                return
            if not previous < record.offset <= last:
                _refuse_offset(header, previous, record.offset)
            previous = record.offset
            if previous >= first:
                yield _fields(record)
    except _UNREADABLE as error:
        raise _corrupt(error) from error
    except MemoryError:
        _check_lengths(opened)
        raise


def check_records(batch: Batch, *, requires_keys: bool = False) -> int:
    """Raise ``CorruptBatch`` unless readers get exactly the records that a produced batch's header counts.

    With ``requires_keys``, raise ``InvalidRecord`` for the first record without a key.

    Compiled code checks every record, in a copy of the batch; for a few plain records Python code does so
    without a copy. Returns the size of the records in bytes, decompressed.
    """
    header = batch.header
    if not (requires_keys or header.attributes & CODEC_MASK) and _are_few_and_plain(batch):
        return len(batch.data) - HEADER_BYTES
    opened = open_batch(batch)
    try:
        records = DefaultRecordBatch(opened)
        fields = _OFFSET_AND_KEY if requires_keys else _OFFSET
        found = list(map(fields, islice(records, header.record_count)))
        sentinel = next(records)
        next(records, None)  # raises when bytes follow
    except _UNREADABLE as error:
        raise _corrupt(error) from error
    except MemoryError:
        _check_lengths(opened)
        raise
    _check_sentinel(header, sentinel)
    offsets = [offset for offset, _ in found] if requires_keys else found
    if offsets != list(range(header.base_offset, header.last_offset + 1)):
        raise CorruptBatch(f"records: their offsets must count from 0 to {header.last_offset_delta}")
    if requires_keys:
        _check_keys([key for _, key in found])
    return len(opened) - HEADER_BYTES - len(_SENTINEL)


def _are_few_and_plain(batch: Batch) -> bool:
    """Whether readers certainly get the records that the header counts; if False, compiled code must check.

    Plain records have no headers and usual timestamps. The function copies no data.
    """
    header, body = batch.header, memoryview(batch.data)[HEADER_BYTES:]
    if header.record_count > max(_FEW_RECORDS, len(body) // _LARGE_RECORD_BYTES):
        return False
    if header.record_count != header.last_offset_delta + 1 or not 0 <= header.base_timestamp < _USUAL_MS_MAX:
        return False
    at = 0
    try:
        for delta in range(header.record_count):
            length, at = _varint(body, at)
            following, attributes = at + length, body[at]
            timestamp_delta, at = _varint(body, at + 1)
            offset_delta, at = _varint(body, at)
            if attributes or offset_delta != delta or not 0 <= timestamp_delta < _USUAL_MS_MAX:
                return False
            for _ in ("key", "value"):
                size, at = _varint(body, at)
                if size < -1:
                    return False
                at += max(size, 0)
            header_count, at = _varint(body, at)
            if header_count or at != following:
                return False
    except (IndexError, CorruptBatch):
        return False
    return at == len(body)


def _check_keys(keys: Sequence[bytes | None]) -> None:
    if None in keys:
        at = keys.index(None)
        raise InvalidRecord(
            f"record {at} has no key, and the topic is compacted: send a key with every record, or set "
            "cleanup.policy of the topic to delete",
            errors=[f"/records/{at}/key: is missing"],
        )


def encoded_records(header: BatchHeader, opened: bytes) -> Iterator[memoryview]:
    """The bytes of each record, from the result of ``open_batch``. Raises ``CorruptBatch``."""
    body, at = _body_of(opened), 0
    try:
        for _ in range(header.record_count):
            length, following = _varint(body, at)
            yield body[at : following + length]
            at = following + length
    except IndexError as error:
        raise CorruptBatch("records: the last record is truncated") from error


def opens_fast(batches: Sequence[Batch], *, records_max: int) -> bool:
    """Whether opening these batches takes only a few milliseconds; False for compressed batches, which may be
    large.
    """
    records = size_bytes = 0
    for batch in batches:
        if batch.header.attributes & CODEC_MASK:
            return False
        records += batch.header.record_count
        size_bytes += len(batch.data)
    return records <= records_max and size_bytes <= _FAST_BYTES_MAX


def _corrupt(error: Exception) -> CorruptBatch:
    return CorruptBatch(f"records: {str(error).removeprefix(_PREFIX)}")


def _body_of(opened: bytes) -> memoryview:
    """The encoded records in the result of ``open_batch``, without the sentinel."""
    return memoryview(opened)[HEADER_BYTES : len(opened) - len(_SENTINEL)]


def _check_lengths(opened: bytes) -> None:
    """Raise ``CorruptBatch`` for a record that is shorter than its fields. Copies no data.

    The compiled parser adds lengths in 64 bits: after an overflow a length near 2^63 seems to fit, and the
    parser requests that much memory.
    """
    body = _body_of(opened)
    try:
        for count, at, following in _header_counts(body):
            for _ in range(2 * count):  # names and values
                size, at = _varint(body, at)
                at += max(size, 0)
                _check_end(at, following)
    except IndexError as error:
        raise CorruptBatch("records: the last record is truncated") from error


def _header_count(body: Buffer) -> int:
    """The total number of headers of all records in a body. Copies no data, and does not parse headers."""
    return sum(count for count, _, _ in _header_counts(body))


def _header_counts(body: Buffer) -> Iterator[tuple[int, int, int]]:
    """For each record: the number of its headers, their position, and the end of the record.

    Raises ``CorruptBatch``.
    """
    at, end = 0, len(body)
    try:
        while at < end:
            length, at = _varint(body, at)
            following = at + length
            for _ in ("attributes", "timestamp", "offset"):
                _, at = _varint(body, at)
            for _ in ("key", "value"):
                size, at = _varint(body, at)
                at += max(size, 0)
            count, at = _varint(body, at)
            _check_end(at, following)
            if count < 0:
                raise CorruptBatch(f"records: a record has {count} headers")
            yield count, at, following
            at = following
    except IndexError as error:
        raise CorruptBatch("records: the last record is truncated") from error


def _check_end(at: int, following: int) -> None:
    if at > following:
        raise CorruptBatch("records: a record is shorter than its fields")


def _varint(body: Buffer, at: int) -> tuple[int, int]:
    """Decode a zigzag variable-length integer; return it and the position after it."""
    result, shift = 0, 0
    while True:
        byte = body[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at
        shift += 7
        if shift > 63:
            raise CorruptBatch("records: a number has more than 64 bits")


def _fields(record: DefaultRecord) -> StoredRecord:
    timestamp_ms = record.timestamp
    return StoredRecord(
        record.offset,
        NO_TIMESTAMP if timestamp_ms is None else timestamp_ms,
        record.key,
        record.value,
        tuple(record.headers),
    )


def _check_sentinel(header: BatchHeader, record: Row) -> None:
    is_sentinel = record.offset == header.base_offset + _SENTINEL_DELTA and record.value == _SENTINEL_VALUE
    if not is_sentinel or record.headers:
        raise CorruptBatch("records: the last record does not end at the end of the batch")


def _check_offsets(header: BatchHeader, offsets: Sequence[int]) -> None:
    ends = (header.base_offset - 1, *offsets, header.last_offset + 1)
    if not all(map(lt, ends, islice(ends, 1, None))):
        for previous, offset in zip(ends, offsets, strict=False):
            if not previous < offset <= header.last_offset:
                _refuse_offset(header, previous, offset)


def _refuse_offset(header: BatchHeader, previous: int, offset: int) -> NoReturn:
    """Raise the error for an offset that does not follow the previous offset or lies after the end of the
    batch.
    """
    if offset <= previous:
        raise CorruptBatch(f"records: offset {offset} follows {previous}")
    raise CorruptBatch(f"records: offset {offset} is above the batch's last, {header.last_offset}")
