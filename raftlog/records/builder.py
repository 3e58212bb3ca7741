"""Encodes records into a batch, as a producer does.

Decides: the encoding of a record and the fields of a finished header. Leaves to others: when a batch is
full, the time, and the producer (``with_producer`` writes it later).

Most lengths and deltas are small, so their variable-length forms are kept in a table; a batch is
then one join, at 0.3 µs per record of any size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from raftlog.errors import InvalidRecord, RecordTooLarge
from raftlog.records.batch import (
    BATCH_BYTES_LIMIT,
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    RECORD_COUNT_MAX,
    TAGS_KNOWN_BIT,
    TRANSACTIONAL_BIT,
    Batch,
    BatchHeader,
    Buffer,
    Codec,
    checksum,
    encode_batch,
    split_batches,
)
from raftlog.records.compression import compress
from raftlog.records.tag_directory import Run, tagged_body
from raftlog.records.tags import TAG_RECORD_HEADER, tag_set

TIMESTAMP_MAX = (1 << 63) - 2  # its distance from NO_TIMESTAMP fits into 64 bits
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_ATTRIBUTES_AT = 22  # the lower byte
_CHECKSUM = struct.Struct(">I")
_CHECKSUM_AT = 17
_KEPT_BYTES_MAX = 2
_PARTS_PER_RECORD = 6


class Record(NamedTuple):
    """A record of a user. A tuple, since one is made for every record."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


class _Varints(dict[int, bytes]):
    """Zigzag variable-length integers by value: those of up to two bytes are kept after their first use."""

    def __missing__(self, value: int) -> bytes:
        rest = (value << 1) ^ (value >> 63)
        encoded = bytearray()
        while rest > 0x7F:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
        found = bytes(encoded)
        if len(found) <= _KEPT_BYTES_MAX:
            self[value] = found
        return found


_VARINT = _Varints()
_NULL = _VARINT[-1]
_NO_HEADERS = _VARINT[0]
_RECORD_ATTRIBUTES = b"\0"
_TAG = TAG_RECORD_HEADER.encode()


class BatchBuilder:
    """Collects records and encodes each at once, so that the current size is known.

    ``timestamp_ms`` is for records without one. With ``lists_tags`` brokers see the tags of its records
    (``tag_directory``); a batch with tags then has codec zstd, whose frames are stored for ``Codec.NONE``.
    """

    __slots__ = (
        "_base",
        "_codec",
        "_count",
        "_default_ms",
        "_headers",
        "_lists_tags",
        "_max_ms",
        "_parts",
        "_producer",
        "_size",
    )

    def __init__(
        self,
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        *,
        timestamp_ms: int = NO_TIMESTAMP,
        lists_tags: bool = False,
    ) -> None:
        self._codec = codec
        self._lists_tags = lists_tags
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._default_ms = timestamp_ms
        self._base: int | None = None
        self._max_ms = NO_TIMESTAMP
        self._parts: list[bytes] = []
        self._headers: dict[int, tuple[tuple[str, bytes | None], ...]] = {}  # by record, of those with some
        self._count = 0
        self._size = HEADER_BYTES

    @property
    def record_count(self) -> int:
        """The number of appended records."""
        return self._count

    def append(self, record: Record) -> int:
        """Add a record; return the bytes of the batch so far, before compression."""
        self.extend((record,))
        return self._size

    def extend(self, records: Iterable[Record], *, timestamp_ms: int | None = None) -> None:
        """Add records in order; ``timestamp_ms`` is for those without one."""
        varint, parts, with_headers = _VARINT, self._parts, self._headers
        default_ms = self._default_ms if timestamp_ms is None else timestamp_ms
        base_ms, max_ms, count, size = self._base, self._max_ms, self._count, self._size
        for value, key, headers, own_ms in records:
            time_ms = default_ms if own_ms is None else own_ms
            if not NO_TIMESTAMP <= time_ms <= TIMESTAMP_MAX:
                raise InvalidRecord(f"timestamp_ms: {time_ms} is outside -1 to 2^63-2", errors=["/timestamp"])
            if base_ms is None:
                base_ms = time_ms
            if time_ms > max_ms:
                max_ms = time_ms
            delta = varint[time_ms - base_ms] + varint[count]
            if key is not None:
                delta += varint[len(key)] + key
            else:
                delta += _NULL
            if value is not None:
                prefix, body = varint[len(value)], value
            else:
                prefix, body = _NULL, b""
            if headers:
                tail = _encode_headers(headers)
                with_headers[count] = headers
            else:
                tail = _NO_HEADERS
            length = 1 + len(delta) + len(prefix) + len(body) + len(tail)
            encoded_length = varint[length]
            parts += (encoded_length, _RECORD_ATTRIBUTES, delta, prefix, body, tail)
            size += len(encoded_length) + length
            count += 1
        self._base, self._max_ms, self._count, self._size = base_ms, max_ms, count, size

    def build(self) -> bytes:
        """The batch, with base offset 0 and no leader epoch: a leader stamps both.

        Raises ``InvalidRecord`` for no records, too many, or parts that are not bytes.
        """
        if not 0 < self._count <= RECORD_COUNT_MAX:
            raise InvalidRecord(f"records: a batch takes 1 to {RECORD_COUNT_MAX} of them, not {self._count}")
        if self._size > BATCH_BYTES_LIMIT:
            raise RecordTooLarge(
                f"records: {self._size} bytes do not fit into one batch; build several",
                limit_bytes=BATCH_BYTES_LIMIT,
            )
        assert self._base is not None  # there is a record
        last_delta, base_ms, max_ms = self._count - 1, self._base, self._max_ms
        attributes, body = self._compressed()
        header = BatchHeader(
            0, 0, -1, MAGIC, 0, attributes, last_delta, base_ms, max_ms, *self._producer, self._count
        )
        return encode_batch(header, body)

    def body(self) -> bytes:
        """The records alone, not compressed."""
        return _joined(self._parts)

    def _compressed(self) -> tuple[int, bytes]:
        """The attributes, and the body that they describe."""
        body = self.body()
        if not self._lists_tags:
            return self._codec, compress(self._codec, body)
        if not self._headers or _TAG not in body:
            return self._codec | TAGS_KNOWN_BIT, compress(self._codec, body)  # nearly always
        tags = {number: tag_set(headers) for number, headers in self._headers.items()}
        if None not in tags.values():
            listed = tagged_body(self._runs(tags), is_compressed=self._codec is not Codec.NONE)
            if listed is not None:
                return Codec.ZSTD | TAGS_KNOWN_BIT, listed
        return self._codec, compress(self._codec, body)

    def _runs(self, tags: dict[int, bytes | None]) -> list[Run]:
        runs: list[Run] = []
        at = 0
        for of_run, some in groupby(range(self._count), key=lambda number: tags.get(number) or b""):
            count = sum(1 for _ in some)
            end = at + count * _PARTS_PER_RECORD
            runs.append(Run(of_run, count, _joined(self._parts[at:end])))
            at = end
        return runs


def build_batch(
    records: Sequence[Record],
    *,
    codec: Codec,
    timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    lists_tags: bool = False,
) -> bytes:
    """A batch of these records; ``timestamp_ms`` is for those without one."""
    builder = BatchBuilder(
        codec,
        producer_id,
        producer_epoch,
        base_sequence,
        timestamp_ms=timestamp_ms,
        lists_tags=lists_tags,
    )
    builder.extend(records)
    return builder.build()


def batch_of_command(value: bytes, timestamp_ms: int) -> Batch:
    """A command of a replicated state machine as the batch to propose: one record, without a key."""
    data = build_batch([Record(value=value)], codec=Codec.NONE, timestamp_ms=timestamp_ms)
    return split_batches(data)[0]


def with_producer(
    data: Buffer, producer_id: int, producer_epoch: int, base_sequence: int, *, in_transaction: bool = False
) -> bytes:
    """A copy of a batch with these producer fields and the matching checksum."""
    changed = bytearray(data)
    if in_transaction:
        changed[_ATTRIBUTES_AT] |= TRANSACTIONAL_BIT
    _PRODUCER.pack_into(changed, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _CHECKSUM.pack_into(changed, _CHECKSUM_AT, checksum(changed))
    return bytes(changed)


def _joined(parts: Sequence[bytes]) -> bytes:
    try:
        return b"".join(parts)
    except TypeError as error:
        raise InvalidRecord(f"records: key, value and header values are bytes or None: {error}") from error


def _encode_headers(headers: tuple[tuple[str, bytes | None], ...]) -> bytes:
    parts = [_VARINT[len(headers)]]
    for name, value in headers:
        encoded_name = name.encode()
        parts += (_VARINT[len(encoded_name)], encoded_name)
        parts += (_NULL,) if value is None else (_VARINT[len(value)], value)
    return b"".join(parts)
