"""Converts stored records to JSON, without control records.

Decides: which records a page has, and the next offset. Leaves to others: reading, and the representation of
values, keys and headers (``json_values``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from msgspec import UNSET

from api.resources.json_values import ABSENT, NO_KEY, SHOW, Shown, headers_in_json, key_in_json
from broker.listeners.answers_in_flight import Turn
from partitions.values import FetchResult
from raftlog.errors import CorruptBatch, UndecodableBatch
from raftlog.records.batch import APPEND_TIME_BIT, CONTROL_BIT, Batch, split_batches
from raftlog.records.reader import RECORD_MEMORY_BYTES, StoredRecord, iter_opened, open_batch, opens_fast
from raftlog.records.record_checksum import record_crc
from raftlog.records.tags import TagSelection
from raftlog.types import TopicPartition
from raftlog.wire import bodies

PAGE_BYTES_MAX = 8 << 20  # bytes of records and their JSON, together
SHOWN_ON_LOOP_MAX = 256  # records that are converted without leaving the event loop


@dataclass(frozen=True, slots=True)
class Page:
    """The records of one page, and the next offset. Records in the ranges ``skipped`` cannot be decoded.

    ``open_bytes`` are bytes kept for the next page: the rest of the batch in which this page ends.
    """

    records: list[bodies.FetchedRecord]
    next_offset: int
    skipped: list[bodies.SkippedRange]
    open_bytes: int = 0


class _Page:
    """Collects the records of a page until it is full."""

    def __init__(self, limit: int) -> None:
        self.records: list[bodies.FetchedRecord] = []
        self.skipped: list[bodies.SkippedRange] = []
        self.is_full = False
        self._limit = limit
        self._size_bytes = 0

    def add(self, record: bodies.FetchedRecord) -> None:
        self.records.append(record)
        self._size_bytes += RECORD_MEMORY_BYTES + record.size_bytes + len(memoryview(record.value))
        self.is_full = len(self.records) == self._limit or self._size_bytes > PAGE_BYTES_MAX

    def taken(self, next_offset: int, opened: bytes = b"") -> Page:
        """Return the complete page, and give up this object's reference to its records."""
        open_bytes = len(opened) + self.records[-1].size_bytes if opened else 0
        page = Page(self.records, next_offset, self.skipped, open_bytes)
        self.records, self.skipped, self._size_bytes, self.is_full = [], [], 0, False
        return page


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The representation in which the records of a partition are shown. ``limit`` bounds the records of one
    page.
    """

    target: TopicPartition
    format: str
    limit: int
    skips_undecodable: bool = False
    wanted: TagSelection | None = None  # selection of a reader of tags, which gets no other records

    async def page(self, result: FetchResult, turn: Turn) -> Page:
        """Return the first page of the records in a fetch; it is built on a thread if building takes long."""
        batches = split_batches(result.data)
        is_short = opens_fast(batches, records_max=SHOWN_ON_LOOP_MAX)
        return await turn.computed(partial(next, self.pages(result, batches)), is_short=is_short)

    async def next_page(self, pages: Iterator[Page], result: FetchResult, turn: Turn) -> Page:
        """Return the next of ``pages``; it is built on a thread if building takes long."""
        return await turn.computed(partial(next, pages), is_short=is_shown_fast(result))

    def pages(self, result: FetchResult, batches: Sequence[Batch] | None = None) -> Iterator[Page]:
        """Yield the user records of a fetch in pages: at least one page, and no page much larger than
        ``PAGE_BYTES_MAX``.

        ``batches`` are the batches of the fetch, if the caller has split it already. Raises ``InvalidRecord``
        for a value that does not fit the ``format``. Raises ``UndecodableBatch`` after the page of the
        records that precede the damage.
        """
        show = SHOW[self.format]
        page, at = _Page(self.limit), int(result.offset)
        for batch in split_batches(result.data) if batches is None else batches:
            header = batch.header
            last_offset = header.base_offset + header.last_offset_delta
            if header.attributes & CONTROL_BIT or last_offset < result.offset:
                continue
            opened = b""  # no bytes of a batch are kept after its end
            if page.is_full:
                yield page.taken(at)
            kind: Literal["LogAppendTime", "CreateTime"] = (
                "LogAppendTime" if header.attributes & APPEND_TIME_BIT else "CreateTime"
            )
            try:
                opened = open_batch(batch)
                for stored in iter_opened(header, opened, result.offset):
                    if self.wanted is not None and not self.wanted.matches(stored.headers):
                        at = stored.offset + 1
                        continue
                    page.add(_fetched(stored, kind, header.crc, show))
                    at = stored.offset + 1
                    del stored
                    if page.is_full and at <= last_offset:
                        yield page.taken(at, opened)
            except CorruptBatch as error:
                at = max(at, batch.base_offset)
                if self.skips_undecodable:
                    page.skipped.append(bodies.SkippedRange(at, last_offset + 1))
                    continue
                if page.records:
                    yield page.taken(at)
                raise self._undecodable(batch, at, error) from error
        yield page.taken(result.next_offset)

    def _undecodable(self, batch: Batch, offset: int, error: CorruptBatch) -> UndecodableBatch:
        return UndecodableBatch(
            f"the batch of {self.target} with offset {offset} cannot be read as records ({error}); "
            f"continue at {batch.last_offset + 1}, send undecodable=skip, or fetch binary batches",
            topic=self.target.topic,
            partition=self.target.partition,
            offset=offset,
            next_offset=batch.last_offset + 1,
        )


def is_shown_fast(result: FetchResult) -> bool:
    """True if building the first page of the fetch is fast enough for the event loop."""
    return opens_fast(split_batches(result.data), records_max=SHOWN_ON_LOOP_MAX)


def _fetched(
    stored: StoredRecord,
    kind: Literal["LogAppendTime", "CreateTime"],
    crc: int,
    show: Callable[[bytes, int], Shown],
) -> bodies.FetchedRecord:
    value, encoding = ABSENT if stored.value is None else show(stored.value, stored.offset)
    key, key_encoding = NO_KEY if stored.key is None else key_in_json(stored.key)
    headers, tags, raw = headers_in_json(stored.headers) if stored.headers else ({}, [], UNSET)
    return bodies.FetchedRecord(
        offset=stored.offset,
        timestamp=stored.timestamp_ms,
        timestamp_type=kind,
        key=key,
        value=value,
        encoding=encoding,
        headers=headers,
        tags=tags,
        size_bytes=stored.size_bytes,
        crc=crc,
        record_crc=record_crc(stored.key, stored.value, stored.headers),
        key_encoding=key_encoding,
        headers_raw=raw,
    )
