"""One encoded batch as a broker handles it: a header of 61 bytes and a body that it does not decode.

Decides: whether bytes are a batch, whether a producer may send it, and how a leader stamps it. Leaves to
others: the records inside (``reader``, ``builder``) and the order of sequences.

Bytes are checked before they are used: ``parse_header``, ``split_batches`` and ``check_batch`` accept any
bytes from a network or a disk, and raise ``CorruptBatch`` and no other error.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c
from msgspec import Struct

from raftlog.errors import CorruptBatch, InvalidRecord, RecordTooLarge
from raftlog.records.codecs import Codec as Codec
from raftlog.types import EntryId

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
BATCH_OVERHEAD = 12  # base offset and batch length, which batch_length excludes
MAGIC = 2
CHECKSUM_START = 21  # the checksum covers everything from the attributes on
BATCH_BYTES_LIMIT = 1 << 28  # a length above this is damage, not a batch
RECORD_COUNT_MAX = 1 << 17  # bounds the offsets and the memory that one small batch can claim

CODEC_MASK = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
TAGS_KNOWN_BIT = 0x100  # the tags of the records are in the directory (``tags``), or there are no tags
_STAMPED_BITS = APPEND_TIME_BIT | CONTROL_BIT  # the leader sets max_timestamp

SEQUENCE_MAX = (1 << 31) - 1
EPOCH_MAX = (1 << 15) - 1  # the highest epoch of a producer
NO_TIMESTAMP = -1
NO_EPOCH = -1  # the leader epoch before there is a leader

_HEADER = struct.Struct(">qiibIhiqqqhii")
pack_header = _HEADER.pack  # the 61 bytes of the fields of ``BatchHeader``
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_CHECKSUM = struct.Struct(">I")
_SUMMARY = struct.Struct(">qiibI2xi")  # the header fields that ``find_damage`` needs
_header_of = tuple.__new__  # does the work of ``_make`` without two calls
_NEVER_RELEASE_GIL = 0  # a megabyte takes 40 µs; releasing the interpreter lock costs more


_CODECS = tuple(Codec)


class BatchHeader(NamedTuple):
    """The fields of a batch's header, in the order of their bytes."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch in bytes, including the header."""
        return self.batch_length + BATCH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the last record; compaction keeps this offset even when it removes that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Codec:
        """The compression of the body. Raises ``CorruptBatch`` for an unknown number."""
        number = self.attributes & CODEC_MASK
        if number >= len(_CODECS):
            raise CorruptBatch(f"attributes: codec {number} is unknown; use 0 to {len(_CODECS) - 1}")
        return _CODECS[number]

    @property
    def is_control(self) -> bool:
        """Whether a broker wrote the batch for brokers; readers do not get the batch."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_gap(self) -> bool:
        """Whether the batch only covers the offsets of removed records: see ``records.compaction``."""
        return not self.record_count and self.producer_id < 0 and not self.attributes & CONTROL_BIT

    @property
    def is_whole(self) -> bool:
        """Whether compaction has removed no record from the batch."""
        return self.record_count > self.last_offset_delta

    @property
    def newest_ms(self) -> int:
        """The newest timestamp of a user record in the batch; -1 without user records."""
        if self.attributes & CONTROL_BIT or not self.record_count:
            return NO_TIMESTAMP
        return self.max_timestamp

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction, or the marker that ends one."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_append_time(self) -> bool:
        """Whether each record's timestamp is ``max_timestamp``, which the leader has set."""
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def stamped_ms(self) -> int | None:
        """The time (ms) at which the leader appended the batch; None if producers set the timestamps."""
        return self.max_timestamp if self.attributes & _STAMPED_BITS else None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record (after 2^31-1 follows 0); -1 if the batch has no sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def has_producer(self) -> bool:
        """Whether the batch has a producer id."""
        return self.producer_id >= 0

    @property
    def is_sequenced(self) -> bool:
        """Whether brokers recognise a repetition of the batch.

        A batch of a transaction may have no sequence.
        """
        return self.producer_id >= 0 and self.base_sequence >= 0


class Batch(Struct, frozen=True):
    """One encoded batch in memory: ``data`` has exactly its bytes, ``header`` is parsed from the first 61
    bytes.
    """

    data: Buffer
    header: BatchHeader

    @property
    def base_offset(self) -> int:
        """The offset of the first record."""
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.header.last_offset

    @property
    def leader_epoch(self) -> int:
        """The term of the leader that stamped the batch."""
        return self.header.leader_epoch


def parse_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """Parse the header at position ``at``. The body is not read and may be missing.

    Raises ``CorruptBatch`` if the bytes are too few or invalid. The checksum is not checked.
    """
    if len(buffer) - at < HEADER_BYTES:
        raise CorruptBatch(f"{len(buffer) - at} bytes are too few for a batch header of {HEADER_BYTES}")
    header = _header_of(BatchHeader, _HEADER.unpack_from(buffer, at))
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic: is {header.magic}; raftlog reads record batches of version {MAGIC} only")
    if not HEADER_BYTES - BATCH_OVERHEAD <= header.batch_length <= BATCH_BYTES_LIMIT - BATCH_OVERHEAD:
        raise CorruptBatch(f"batch_length: {header.batch_length} cannot be the length of a batch")
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.record_count < 0:
        raise CorruptBatch("base_offset, last_offset_delta and record_count must not be negative")
    return header


def split_batches(buffer: Buffer, *, count_max: int | None = None) -> list[Batch]:
    """The batches that fill a buffer, as slices without a copy; no batch for an empty buffer.

    Raises ``CorruptBatch`` if the last batch is truncated, and ``RecordTooLarge`` if there are more than
    ``count_max`` batches. Checksums are not checked.
    """
    view = memoryview(buffer)
    batches: list[Batch] = []
    at, end = 0, len(view)
    while at < end:
        header = parse_header(view, at)
        following = at + header.batch_length + BATCH_OVERHEAD
        if following > end:
            raise CorruptBatch(
                f"batch_length: {header.batch_length} reaches {following - end} bytes past the end"
            )
        if len(batches) == count_max:
            raise RecordTooLarge(
                f"the data has more than {count_max} batches; send fewer", limit_batches=count_max
            )
        batches.append(Batch(view[at:following], header))
        at = following
    return batches


def check_batch(batch: Batch) -> None:
    """Raise ``CorruptBatch`` unless length and checksum are right; the checksum covers bytes 21
    to the end.
    """
    header = batch.header
    if len(batch.data) != header.batch_length + BATCH_OVERHEAD:
        raise CorruptBatch(
            f"batch_length: says {header.size_bytes} bytes in all, but the batch has {len(batch.data)}"
        )
    found = checksum(batch.data)
    if found != header.crc:
        raise CorruptBatch(f"crc: is {header.crc:#010x}, the bytes give {found:#010x}; send the batch again")


class BatchChecks:
    """Checks contiguous batches ``first..last`` that arrive in pieces.

    Every byte is checked. The batch's checksum covers the body and most of the header. The base offset and
    the leader epoch, which the checksum does not cover, are compared with the known offsets and terms.
    ``terms`` are the first entries of the successive terms in the range; the first of these terms applies
    from the beginning of the range.
    """

    __slots__ = ("_expected", "_last", "_later", "_term")

    def __init__(self, first: int, last: int, terms: Sequence[EntryId]) -> None:
        self._expected = first
        self._last = last
        self._term = terms[0].term
        self._later = deque(terms)
        self._later.popleft()

    @property
    def is_complete(self) -> bool:
        """Whether all batches ``first..last`` were checked and are sound."""
        return self._expected == self._last + 1

    def passed(self, data: Buffer, left: int) -> tuple[int, int]:
        """Check ``data``; return the bytes of sound batches at its beginning, and the next batch's length.

        ``left``: the number of bytes in the range from the beginning of ``data`` on. The length of the next
        batch is 0 if it is damaged, or if there is no next batch.
        """
        view = memoryview(data)
        later, term, expected = self._later, self._term, self._expected
        at, end, wanted = 0, len(data), 0
        next_term_at = later[0].index if later else self._last + 1
        while end - at >= HEADER_BYTES:
            base, length, epoch, magic, crc, delta = _SUMMARY.unpack_from(data, at)
            if expected >= next_term_at and later:
                term = later.popleft().term
                next_term_at = later[0].index if later else self._last + 1
            following = at + length + BATCH_OVERHEAD
            if base != expected or epoch != term or magic != MAGIC:
                break
            if not at + HEADER_BYTES <= following <= left:
                break
            if following > end:
                wanted = following - at
                break
            if crc32c(view[at + CHECKSUM_START : following], 0, _NEVER_RELEASE_GIL) != crc:
                break
            at, expected = following, base + delta + 1
        else:
            wanted = HEADER_BYTES if end < left and left - at >= HEADER_BYTES else 0
        self._term, self._expected = term, expected
        return at, wanted


def find_damage(data: Buffer, first: int, last: int, terms: Sequence[EntryId]) -> int | None:
    """The position of the first damaged batch in bytes that should be batches ``first..last``;
    None if sound.
    """
    checks = BatchChecks(first, last, terms)
    at, _ = checks.passed(data, len(data))
    return None if at == len(data) and checks.is_complete else at


def batch_too_large(size_bytes: int, record_count: int, bytes_max: int) -> RecordTooLarge:
    """The error for a batch above the topic's ``max.message.bytes``."""
    what, remedy = (
        ("the record and the header of its batch have", "send a smaller record or raise the setting")
        if record_count == 1
        else (f"the batch of {record_count} records has", "send fewer records at once")
    )
    return RecordTooLarge(
        f"{what} {size_bytes} bytes, max.message.bytes of the topic is {bytes_max}; {remedy}",
        limit_bytes=bytes_max,
    )


def validate_produced(
    batch: Batch, *, bytes_max: int, allow_append_time: bool, allow_transaction: bool = False
) -> None:
    """Raise an error unless a producer may send this batch. Only the header and the checksum are checked.

    Raises ``RecordTooLarge``, ``CorruptBatch``, or ``InvalidRecord`` for an intact batch with fields that
    only brokers may set. A fetched batch may be produced again once bytes 0-7 and 12-15 are reset.
    ``allow_append_time`` accepts the append-time bit, which the leader then sets again; ``allow_transaction``
    accepts the transaction bit.
    """
    header = batch.header
    if len(batch.data) > bytes_max:
        raise batch_too_large(len(batch.data), header.record_count, bytes_max)
    check_batch(batch)
    if header.last_offset_delta + 1 != header.record_count:
        raise CorruptBatch(
            f"record_count: is {header.record_count} with last_offset_delta {header.last_offset_delta}; "
            "it must be last_offset_delta + 1"
        )
    if header.record_count > RECORD_COUNT_MAX:
        raise CorruptBatch(
            f"record_count: is {header.record_count}; at most {RECORD_COUNT_MAX} fit into a batch"
        )
    if header.attributes & CODEC_MASK >= len(_CODECS):
        header.codec  # noqa: B018 - raises for an unknown codec
    refused = _refused_field(header, allow_append_time, allow_transaction)
    if refused is not None:
        raise InvalidRecord(f"the batch is refused: {refused}", errors=[refused])


def stamp(data: Buffer, *, base_offset: int, leader_epoch: int, append_time_ms: int | None) -> Batch:
    """Write the leader's fields into a checked batch: in place if ``data`` is writable, else in a copy.

    The fields are the base offset and the leader epoch, which the checksum does not cover. With
    ``append_time_ms`` they are also the append-time bit, the max timestamp and the checksum. The body stays
    unchanged.
    """
    stamped = memoryview(data)
    if stamped.readonly:
        stamped = memoryview(bytearray(data))
    _BASE_OFFSET.pack_into(stamped, 0, base_offset)
    _LEADER_EPOCH.pack_into(stamped, 12, leader_epoch)
    if append_time_ms is not None:
        (attributes,) = _ATTRIBUTES.unpack_from(stamped, 21)
        _ATTRIBUTES.pack_into(stamped, 21, attributes | APPEND_TIME_BIT)
        _MAX_TIMESTAMP.pack_into(stamped, 35, append_time_ms)
        _CHECKSUM.pack_into(stamped, 17, checksum(stamped))
    return Batch(stamped, parse_header(stamped))


def unstamped(data: Buffer) -> Buffer:
    """Undo ``stamp`` in a copy of the batches, so that a producer may send them again.

    The max timestamp may still be the leader's; topics whose timestamps producers set accept it, too.
    """
    view = memoryview(data)
    if view.readonly:
        return data
    view, at = memoryview(bytearray(data)), 0
    for batch in split_batches(view):
        _BASE_OFFSET.pack_into(view, at, 0)
        _LEADER_EPOCH.pack_into(view, at + 12, NO_EPOCH)
        if batch.header.is_append_time:
            _ATTRIBUTES.pack_into(view, at + 21, batch.header.attributes & ~APPEND_TIME_BIT)
            _CHECKSUM.pack_into(view, at + 17, checksum(batch.data))
        at += len(batch.data)
    return view


def encode_batch(header: BatchHeader, body: Buffer) -> bytes:
    """Encode a batch from header fields and an encoded body; compute its length and checksum."""
    length = HEADER_BYTES - BATCH_OVERHEAD + len(body)
    unsigned = pack_header(*header._replace(batch_length=length))
    crc = crc32c(body, crc32c(unsigned[CHECKSUM_START:]), _NEVER_RELEASE_GIL)
    return b"".join((unsigned[:17], _CHECKSUM.pack(crc), unsigned[CHECKSUM_START:], body))


def checksum(data: Buffer) -> int:
    """The CRC-32C that the header of the batch ``data`` must contain."""
    return crc32c(memoryview(data)[CHECKSUM_START:], 0, _NEVER_RELEASE_GIL)


def _refused_field(header: BatchHeader, allow_append_time: bool, allow_transaction: bool) -> str | None:
    """The first field with a value that a producer must not send, as "JSON pointer: reason"; None without
    one.
    """
    attributes = header.attributes
    is_transactional, has_producer = attributes & TRANSACTIONAL_BIT, header.producer_id >= 0
    if header.base_offset != 0:
        return f"/base_offset: is {header.base_offset}; send 0, the leader assigns it"
    if attributes & CONTROL_BIT:
        return "/attributes: the control bit is for brokers; clear bit 5"
    if attributes & DELETE_HORIZON_BIT:
        return "/attributes: the delete-horizon bit is for brokers; clear bit 6"
    if attributes & APPEND_TIME_BIT and not allow_append_time:
        return "/attributes: this topic keeps the producer's timestamps; clear bit 3"
    if header.producer_id < -1:
        return f"/producer_id: is {header.producer_id}; send the id from the broker, or -1 for no id"
    if has_producer and (header.producer_epoch < 0 or (header.base_sequence < 0 and not is_transactional)):
        return "/base_sequence: a batch with a producer id needs a base sequence and an epoch of 0 or more"
    if is_transactional and not has_producer:
        return "/producer_id: a batch of a transaction needs the producer id of its transaction"
    if is_transactional and not allow_transaction:
        return "/attributes: this request is not part of a transaction; clear bit 4"
    return None
