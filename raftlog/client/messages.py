"""Decodes messages from fetched batches, in chunks with the next offset.

Decides: which records of fetched batches are user records, that no damaged record is delivered, and how much
of a response is decoded at once. Leaves to others: fetching (``partition``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from raftlog.client.user_code import called, described, shown
from raftlog.errors import CorruptBatch, InvalidRecord, UndecodableBatch
from raftlog.records.batch import CODEC_MASK, Batch, check_batch, split_batches
from raftlog.records.record_checksum import record_crc
from raftlog.records.tags import TAG_RECORD_HEADER, TagSelection
from raftlog.wire.bodies import SkippedRange

DECODED_BYTES_MAX = 64 << 20  # of one chunk, in memory; a chunk ends after the batch that exceeds it
_HEADER_BYTES = 150  # approximate memory of a header beside its contents
Decoder = Callable[[bytes], object]
TimestampType = Literal["CreateTime", "LogAppendTime"]


class Message(Struct, frozen=True):
    """One record of a partition. ``crc`` is the CRC-32C of its batch, which was verified.

    ``key`` and ``value`` are bytes or ``None``, or the results of the partition's decoders.
    ``timestamp_type`` is ``LogAppendTime`` if the leader set the timestamp, ``CreateTime`` if the producer
    set the timestamp. A worker always gets ``CreateTime``: retry topics do not keep the append time.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    crc: int
    timestamp_type: TimestampType = "CreateTime"

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the message, in order."""
        return tuple((value or b"").decode() for name, value in self.headers if name == TAG_RECORD_HEADER)

    @property
    def record_crc(self) -> int:
        """CRC-32C of key, value and headers, if neither key nor value was decoded; see the record format."""
        return record_crc(self.key, self.value, self.headers)

    @property
    def size_bytes(self) -> int:
        """Bytes of key, value and headers, if neither key nor value was decoded."""
        size = len(self.key or b"") + len(self.value or b"")
        return size + sum(len(name.encode()) + len(value or b"") for name, value in self.headers)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive messages of a partition. Read on at ``next_offset``, even after an empty chunk.

    ``skipped`` are the offsets of records that cannot be decoded, if the reader skips such records.
    """

    messages: list[Message]
    next_offset: int
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    skipped: list[SkippedRange] = field(default_factory=list)
    last_stable_offset: int = -1  # from here on, messages may belong to open transactions and are not shown

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def is_up_to_date(self) -> bool:
        """True if the chunk ends at the last stable offset: no more messages can be read now."""
        return self.next_offset >= self.last_stable_offset


class Found(NamedTuple):
    """The messages of a response, the next offset, and the approximate memory of the messages in bytes."""

    messages: list[Message]
    next_offset: int
    skipped: list[SkippedRange]
    size_bytes: int = 0


def read_messages(
    topic: str,
    partition: int,
    data: bytes,
    *,
    first_offset: int,
    next_offset: int,
    limit: int | None = None,
    skips_undecodable: bool = False,
    tags: TagSelection | None = None,
) -> Found:
    """The messages of fetched batches, from ``first_offset`` on.

    ``next_offset`` is the next offset according to the response. With ``tags`` messages that do not match are
    left out here, too: if a batch does not list its tags, brokers send the whole batch. Ends early after
    ``limit`` messages, after ``DECODED_BYTES_MAX`` and before a batch that cannot be decoded. Raises
    ``UndecodableBatch`` if the first batch cannot be decoded, ``CorruptBatch`` for a wrong checksum.
    """
    messages: list[Message] = []
    skipped: list[SkippedRange] = []
    at, size_bytes = first_offset, 0
    for batch in split_batches(data):
        header = batch.header
        last_offset = header.last_offset
        if last_offset < first_offset:
            continue
        if len(messages) == limit or size_bytes > DECODED_BYTES_MAX:
            return Found(messages, at, skipped, size_bytes)
        check_batch(batch)
        if header.is_control:
            continue
        left = None if limit is None else limit - len(messages)
        every, damage = _readable(topic, partition, batch, first_offset, left if tags is None else None)
        some = every
        if tags is not None:
            some = [message for message in every if tags.matches(message.headers)][:left]
        messages += some
        size_bytes += _memory_bytes(batch, some)
        at = last_offset + 1
        if len(some) == left and some[-1].offset < last_offset:
            return Found(messages, some[-1].offset + 1, skipped, size_bytes)
        if damage is not None:
            bad = SkippedRange(_first_unread(batch, every, first_offset), at)
            if skips_undecodable:
                skipped.append(bad)
            elif messages:
                return Found(messages, bad.offset, skipped, size_bytes)
            else:
                raise _undecodable(topic, partition, bad, damage) from damage
    return Found(messages, next_offset, skipped, size_bytes)


@dataclass(frozen=True, slots=True)
class Decoders:
    """Decoders of keys and values. ``None`` leaves them as bytes.

    Raises ``TypeError`` for an object that is no function.
    """

    key: Decoder | None = None
    value: Decoder | None = None

    def __post_init__(self) -> None:
        for name, decoder in (("key", self.key), ("value", self.value)):
            if decoder is not None and not callable(decoder):
                raise TypeError(f"{name} is {shown(decoder)}; give a function of bytes, such as json.loads")

    def decoded(self, found: Found) -> Found:
        """Decode keys and values of messages; stop before a message that a decoder cannot decode.

        Raises ``InvalidRecord`` if the first message cannot be decoded.
        """
        if self.key is None and self.value is None:
            return found
        messages: list[Message] = []
        for message in found.messages:
            try:
                messages.append(self.decode(message))
            except InvalidRecord:
                if not messages:
                    raise
                at = message.offset
                return Found(
                    messages, at, [one for one in found.skipped if one.offset < at], found.size_bytes
                )
        return found._replace(messages=messages)

    def decode(self, message: Message) -> Message:
        """One message with its key and value decoded. Raises ``InvalidRecord``."""
        what = "key"
        try:
            key = _decoded(what, self.key, message.key)
            what = "value"
            value = _decoded(what, self.value, message.value)
        except Exception as error:
            raise InvalidRecord(
                f"the {what} at {message.topic}/{message.partition}, offset {message.offset}, cannot be "
                f"decoded: {described(error)}",
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
                next_offset=message.offset + 1,
            ) from error
        return replace(message, key=key, value=value)


def _decoded(what: str, decoder: Decoder | None, part: bytes | None) -> object:
    return part if decoder is None or part is None else called(f"the decoder of the {what}", decoder, part)


def _readable(
    topic: str, partition: int, batch: Batch, first_offset: int, limit: int | None
) -> tuple[list[Message], CorruptBatch | None]:
    """At most ``limit`` messages of a batch. If damage follows these, also the error; otherwise None."""
    from raftlog.records.reader import iter_records, read_rows  # slow to import; many processes never read

    crc = batch.header.crc
    kind: TimestampType = "LogAppendTime" if batch.header.is_append_time else "CreateTime"
    found: list[Message] = []
    try:
        if limit is None or batch.header.record_count <= limit:
            found = read_rows(Message, batch, before=(topic, partition), after=(crc, kind))
            if batch.base_offset < first_offset:
                found = [message for message in found if message.offset >= first_offset]
            return found, None
    except CorruptBatch:
        pass  # records before the damage are good
    try:
        for record in islice(iter_records(batch, first_offset), limit):
            fields = record.offset, record.timestamp_ms, record.key, record.value, record.headers
            found.append(Message(topic, partition, *fields, crc, kind))
    except CorruptBatch as damage:
        return found, damage
    return found, None


def _first_unread(batch: Batch, messages: Sequence[Message], first_offset: int) -> int:
    return messages[-1].offset + 1 if messages else max(batch.base_offset, first_offset)


def _memory_bytes(batch: Batch, messages: Sequence[Message]) -> int:
    """Approximate memory of the messages of a batch."""
    from raftlog.records.reader import RECORD_MEMORY_BYTES

    if batch.header.attributes & CODEC_MASK:
        contents_bytes = sum([len(each.key or b"") + len(each.value or b"") for each in messages])
    else:
        contents_bytes = len(batch.data)
    size_bytes = contents_bytes + len(messages) * RECORD_MEMORY_BYTES
    for message in messages:
        if message.headers:
            size_bytes += sum([_HEADER_BYTES + len(value or b"") for _, value in message.headers])
    return size_bytes


def _undecodable(topic: str, partition: int, bad: SkippedRange, damage: CorruptBatch) -> UndecodableBatch:
    return UndecodableBatch(
        f"the batch of {topic}/{partition} with offset {bad.offset} cannot be read as records ({damage}); "
        f'continue at {bad.next_offset}, or read with undecodable="skip"',
        topic=topic,
        partition=partition,
        offset=bad.offset,
        next_offset=bad.next_offset,
    )
