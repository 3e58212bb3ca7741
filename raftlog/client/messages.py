"""What a reader gets: messages, and chunks of them with the place to go on.

Decides: which records of fetched batches are a user's, and that nothing damaged is delivered. Leaves
to others: fetching (``partition``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from raftlog.records.batch import check_batch, split_batches
from raftlog.records.reader import read_records
from raftlog.wire.headers import TAG_RECORD_HEADER


class Message(NamedTuple):
    """One record of a partition. ``crc`` is the CRC-32C of its batch, checked before it was delivered."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    crc: int

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags, in order."""
        return tuple((value or b"").decode() for name, value in self.headers if name == TAG_RECORD_HEADER)

    @property
    def size_bytes(self) -> int:
        """Bytes of key, value and headers."""
        size = len(self.key or b"") + len(self.value or b"")
        return size + sum(len(name.encode()) + len(value or b"") for name, value in self.headers)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages that follow one another. Go on at ``next_offset``, even when there are none."""

    messages: list[Message]
    next_offset: int
    high_watermark: int
    log_start_offset: int
    leader_epoch: int

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def is_up_to_date(self) -> bool:
        """Whether everything was read that could be when the broker answered."""
        return self.next_offset >= self.high_watermark


def read_messages(topic: str, partition: int, data: bytes, *, first_offset: int) -> list[Message]:
    """The messages of fetched batches, from ``first_offset`` on. Raises ``CorruptBatch``."""
    found: list[Message] = []
    for batch in split_batches(data):
        check_batch(batch)
        if batch.header.is_control:
            continue
        crc = batch.header.crc
        records = read_records(batch)
        if batch.base_offset < first_offset:
            records = [record for record in records if record.offset >= first_offset]
        found += [Message(topic, partition, *record, crc) for record in records]
    return found
