"""Encodes records into a batch, as a producer does.

Decides: the encoding of a record and the fields of a finished header. Leaves to others: when a batch is
full, the time, and the producer fields (``with_producer`` writes them later).

Compiled code (aiokafka) encodes the records: one call for each record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct

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

if TYPE_CHECKING:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

TIMESTAMP_MAX = (1 << 63) - 2  # its distance from NO_TIMESTAMP fits into 64 bits
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_ATTRIBUTES_AT = 22  # the lower byte of the attributes
_CHECKSUM = struct.Struct(">I")
_CHECKSUM_AT = 17
_ENCODED_BYTES_MAX = (
    1 << 30
)  # the encoder's own limit; above ``BATCH_BYTES_LIMIT``, by which batches are refused


class Record(Struct, frozen=True, gc=False):
    """A record that a user sends. The garbage collector does not track it, since there are many records."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


_NO_HEADERS: list[tuple[str, bytes | None]] = []
_TAG = TAG_RECORD_HEADER.encode()


class BatchBuilder:
    """Collects records and encodes each at once, so that the present size is known.

    ``timestamp_ms``: the time of records that have no time. With ``lists_tags`` brokers see the tags of the
    records (``tag_directory``); a batch with tags then has codec zstd, with stored frames for ``Codec.NONE``.
    """

    __slots__ = (
        "_base",
        "_codec",
        "_count",
        "_default_ms",
        "_encoder",
        "_headers",
        "_lists_tags",
        "_max_ms",
        "_producer",
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
        self._encoder = encoder()
        self._headers: dict[int, tuple[tuple[str, bytes | None], ...]] = {}  # by number of the record
        self._count = 0

    @property
    def record_count(self) -> int:
        """The number of appended records."""
        return self._count

    def append(self, record: Record) -> int:
        """Add a record; return the size of the batch so far in bytes, before compression."""
        self.extend((record,))
        size_bytes: int = self._encoder.size()
        return size_bytes

    def extend(self, records: Iterable[Record], *, timestamp_ms: int | None = None) -> None:
        """Add records in order; ``timestamp_ms`` is the time of records that have no time.

        Raises ``InvalidRecord`` for fields that are not bytes; then the builder must not be used again.
        """
        encode = self._encoder.append
        default_ms = self._default_ms if timestamp_ms is None else timestamp_ms
        base_ms, max_ms, count = self._base, self._max_ms, self._count
        for record in records:
            own_ms, headers = record.timestamp_ms, record.headers
            time_ms = default_ms if own_ms is None else own_ms
            if not NO_TIMESTAMP <= time_ms <= TIMESTAMP_MAX:
                raise InvalidRecord(f"timestamp_ms: {time_ms} is outside -1 to 2^63-2", errors=["/timestamp"])
            if base_ms is None:
                base_ms = time_ms
            if time_ms > max_ms:
                max_ms = time_ms
            pairs = _NO_HEADERS
            if headers:
                pairs = [*headers]
                self._headers[count] = headers
            try:
                # The encoder treats a first time of -1 as no time: it gets the times relative to the first
                # record.
                encode(count, time_ms - base_ms, record.key, record.value, pairs)
            except (TypeError, UnicodeEncodeError) as error:
                raise InvalidRecord(
                    f"records: key, value and header values must be bytes or None: {error}"
                ) from error
            count += 1
        self._base, self._max_ms, self._count = base_ms, max_ms, count

    def build(self) -> bytes:
        """Encode the batch, with base offset 0 and no leader epoch: a leader sets both.

        Raises ``InvalidRecord`` for no records or too many, and ``RecordTooLarge``.
        """
        if not 0 < self._count <= RECORD_COUNT_MAX:
            raise InvalidRecord(f"records: a batch holds 1 to {RECORD_COUNT_MAX} records, not {self._count}")
        size_bytes = self._encoder.size()
        if size_bytes > BATCH_BYTES_LIMIT:
            raise RecordTooLarge(
                f"records: {size_bytes} bytes do not fit into one batch; build several batches",
                limit_bytes=BATCH_BYTES_LIMIT,
            )
        assert self._base is not None  # there is at least one record
        last_delta, base_ms, max_ms = self._count - 1, self._base, self._max_ms
        attributes, body = self._compressed()
        header = BatchHeader(
            0, 0, -1, MAGIC, 0, attributes, last_delta, base_ms, max_ms, *self._producer, self._count
        )
        return encode_batch(header, body)

    def body(self) -> bytes:
        """The encoded records without a header, not compressed."""
        return bytes(self._body())

    def _body(self) -> memoryview:
        return memoryview(self._encoder.build())[HEADER_BYTES:]

    def _compressed(self) -> tuple[int, Buffer]:
        """The attributes of the header, and the compressed body that they describe."""
        if self._codec is Codec.NONE and not self._headers:  # a broker's usual batch: not copied
            return TAGS_KNOWN_BIT if self._lists_tags else 0, self._body()
        body = self.body()
        if not self._lists_tags:
            return self._codec, compress(self._codec, body)
        if not self._headers or _TAG not in body:
            return self._codec | TAGS_KNOWN_BIT, compress(self._codec, body)  # the usual case
        tags = {number: tag_set(headers) for number, headers in self._headers.items()}
        if None not in tags.values():
            listed = tagged_body(self._runs(body, tags), is_compressed=self._codec is not Codec.NONE)
            if listed is not None:
                return Codec.ZSTD | TAGS_KNOWN_BIT, listed
        return self._codec, compress(self._codec, body)

    def _runs(self, body: bytes, tags: dict[int, bytes | None]) -> list[Run]:
        runs: list[Run] = []
        begin = 0
        numbered = enumerate(_record_ends(body))
        for of_run, some in groupby(numbered, key=lambda record: tags.get(record[0]) or b""):
            ends = [end for _, end in some]
            runs.append(Run(of_run, len(ends), body[begin : ends[-1]]))
            begin = ends[-1]
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
    """Encode a batch of these records; ``timestamp_ms`` is the time of records that have no time."""
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
    """The batch to propose for a command of a replicated state machine: one record without a key."""
    data = build_batch([Record(value=value)], codec=Codec.NONE, timestamp_ms=timestamp_ms)
    return split_batches(data)[0]


def with_producer(
    data: Buffer, producer_id: int, producer_epoch: int, base_sequence: int, *, in_transaction: bool = False
) -> bytes:
    """A copy of a batch with these producer fields and the checksum that matches them."""
    changed = bytearray(data)
    if in_transaction:
        changed[_ATTRIBUTES_AT] |= TRANSACTIONAL_BIT
    _PRODUCER.pack_into(changed, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _CHECKSUM.pack_into(changed, _CHECKSUM_AT, checksum(changed))
    return bytes(changed)


def encoder() -> DefaultRecordBatchBuilder:
    """Compiled code that encodes records; the header that it also encodes is not used."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder  # 30 ms, once a batch is built

    return DefaultRecordBatchBuilder(MAGIC, Codec.NONE, 0, -1, -1, -1, _ENCODED_BYTES_MAX)


def _record_ends(body: bytes) -> Iterator[int]:
    """Yield the end of each record: twice its length as a variable-length number, then its bytes."""
    at = 0
    while at < len(body):
        twice_length = shift = 0
        is_last = False
        while not is_last:
            byte = body[at]
            twice_length |= (byte & 0x7F) << shift
            shift += 7
            at += 1
            is_last = byte < 0x80
        at += twice_length >> 1
        yield at
