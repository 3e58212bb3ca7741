"""Stored records as JSON, without control records.

Decides: the JSON representation of bytes (``format``) and the next offset. Leaves to others: reading.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from api.http.answers_in_flight import Turn
from partitions.values import FetchResult
from raftlog.errors import CorruptBatch, InvalidRecord, UndecodableBatch
from raftlog.records.batch import Batch, split_batches
from raftlog.records.reader import RECORD_MEMORY_BYTES, StoredRecord, iter_opened, open_batch, opens_fast
from raftlog.types import TopicPartition
from raftlog.wire import bodies
from raftlog.wire.headers import TAG_RECORD_HEADER

PAGE_BYTES_MAX = 8 << 20  # of records, and of the JSON that shows them, together
SHOWN_ON_LOOP_MAX = 256  # shown without leaving the event loop
ESCAPED_BYTES_MAX = 1 << 20
JSON_BYTES_MAX = 2 << 20  # of a value that is checked to be JSON, in one compiled call
STEP_BYTES = 3 << 18  # of a value that one compiled call shows; base64 needs a multiple of three
_ESCAPED = bytes(range(32)) + b'"\\'
FORMATS = ("auto", "utf8", "json", "base64")
Shown = tuple[msgspec.Raw, bodies.Encoding]
ABSENT: Shown = (msgspec.Raw(b"null"), "utf8")


@dataclass(frozen=True, slots=True)
class Page:
    """The records of one page, and the next offset. ``skipped`` ranges of offsets cannot be decoded.

    ``open_bytes`` are held for the next page: the rest of the batch in which this page ends.
    """

    records: list[bodies.FetchedRecord]
    next_offset: int
    skipped: list[bodies.SkippedRange]
    open_bytes: int = 0


class _Page:
    """A page under construction."""

    def __init__(self, limit: int) -> None:
        self.records: list[bodies.FetchedRecord] = []
        self.skipped: list[bodies.SkippedRange] = []
        self._limit = limit
        self._size_bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.records) == self._limit or self._size_bytes > PAGE_BYTES_MAX

    def add(self, record: bodies.FetchedRecord) -> None:
        self.records.append(record)
        self._size_bytes += RECORD_MEMORY_BYTES + record.size + len(memoryview(record.value))

    def taken(self, next_offset: int, opened: bytes = b"") -> Page:
        """The complete page; only its reader holds it from now on."""
        open_bytes = len(opened) + self.records[-1].size if opened else 0
        page = Page(self.records, next_offset, self.skipped, open_bytes)
        self.records, self.skipped, self._size_bytes = [], [], 0
        return page


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The representation of the records of a partition. ``limit`` bounds the records of one page."""

    target: TopicPartition
    format: str
    limit: int
    skips_undecodable: bool = False

    async def page(self, result: FetchResult, turn: Turn) -> Page:
        """The first page."""
        return await self.next_page(self.pages(result), result, turn)

    async def next_page(self, pages: Iterator[Page], result: FetchResult, turn: Turn) -> Page:
        """The next of ``pages``, built on a thread if that takes long."""
        return await turn.computed(partial(next, pages), is_short=is_shown_fast(result))

    def pages(self, result: FetchResult) -> Iterator[Page]:
        """The user records of a fetch, at least one page; none takes much more than ``PAGE_BYTES_MAX``.

        Raises ``InvalidRecord`` for a value that is not of the ``format``. Raises ``UndecodableBatch`` after
        the page of the records that precede the damage.
        """
        show = _SHOW[self.format]
        page, at = _Page(self.limit), int(result.offset)
        for batch in split_batches(result.data):
            if batch.header.is_control or batch.last_offset < result.offset:
                continue
            opened = b""  # nothing of a batch is held after its end
            if page.is_full:
                yield page.taken(at)
            kind: Literal["append", "create"] = "append" if batch.header.is_append_time else "create"
            try:
                opened = open_batch(batch)
                for stored in iter_opened(batch.header, opened, result.offset):
                    page.add(_fetched(stored, kind, batch.header.crc, show))
                    at = stored.offset + 1
                    del stored
                    if page.is_full and at <= batch.last_offset:
                        yield page.taken(at, opened)
            except CorruptBatch as error:
                at = max(at, batch.base_offset)
                if self.skips_undecodable:
                    page.skipped.append(bodies.SkippedRange(at, batch.last_offset + 1))
                    continue
                if page.records:
                    yield page.taken(at)
                raise self._undecodable(batch, at, error) from error
        yield page.taken(result.next_offset)

    def _undecodable(self, batch: Batch, offset: int, error: CorruptBatch) -> UndecodableBatch:
        return UndecodableBatch(
            f"the batch of {self.target} with offset {offset} cannot be read as records ({error}); "
            f"continue at {batch.last_offset + 1}, ask with undecodable=skip, or fetch binary batches",
            topic=self.target.topic,
            partition=self.target.partition,
            offset=offset,
            next_offset=batch.last_offset + 1,
        )


def is_shown_fast(result: FetchResult) -> bool:
    """True if building the first page is fast enough for the event loop."""
    return opens_fast(split_batches(result.data), records_max=SHOWN_ON_LOOP_MAX)


def _fetched(
    stored: StoredRecord,
    kind: Literal["append", "create"],
    crc: int,
    show: Callable[[bytes, int], Shown],
) -> bodies.FetchedRecord:
    value, encoding = ABSENT if stored.value is None else show(stored.value, stored.offset)
    key, key_encoding = key_in_json(stored.key)
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
        size=stored.size_bytes,
        crc=crc,
        key_encoding=key_encoding,
        headers_raw=raw,
    )


def key_in_json(key: bytes | None) -> tuple[str | None, Literal["base64"] | UnsetType]:
    """A key as a string, and its encoding if not UTF-8."""
    if key is None:
        return None, UNSET
    try:
        return key.decode(), UNSET
    except UnicodeDecodeError:
        return base64.b64encode(key).decode(), "base64"


Headers = tuple[dict[str, str | None], list[str], list[tuple[str, str | None]] | UnsetType]


def headers_in_json(pairs: Sequence[tuple[str, bytes | None]]) -> Headers:
    """Plain headers, tags, and all others: repeated names and values that are not UTF-8."""
    plain: dict[str, str | None] = {}
    tags: list[str] = []
    raw: list[tuple[str, str | None]] = []
    names = [name for name, _ in pairs]
    repeated = _repeated(names)
    for name, content in pairs:
        text = _text(content)
        if name == TAG_RECORD_HEADER and text is not None:
            tags.append(text)
        elif name in repeated or (text is None and content is not None):
            raw.append((name, None if content is None else base64.b64encode(content).decode()))
        else:
            plain[name] = text
    return plain, tags, raw or UNSET


def _repeated(names: Sequence[str]) -> frozenset[str]:
    if len(set(names)) == len(names):
        return frozenset()
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _as_base64(value: bytes, _offset: int) -> Shown:
    if len(value) <= STEP_BYTES:
        return msgspec.Raw(b'"' + base64.b64encode(value) + b'"'), "base64"
    return _joined(
        base64.b64encode(value[at : at + STEP_BYTES]) for at in range(0, len(value), STEP_BYTES)
    ), "base64"


def _as_string(text: str) -> Shown:
    if len(text) <= STEP_BYTES:
        return msgspec.Raw(msgspec.json.encode(text)), "utf8"
    return _joined(
        msgspec.json.encode(text[at : at + STEP_BYTES])[1:-1] for at in range(0, len(text), STEP_BYTES)
    ), "utf8"


def _joined(parts: Iterable[bytes]) -> msgspec.Raw:
    """A JSON string from its parts. Each part is a separate compiled call, so that other tasks run in
    between.
    """
    joined = bytearray(b'"')
    for part in parts:
        joined += part
    joined += b'"'
    return msgspec.Raw(joined)


def _grows(value: bytes) -> bool:
    """True for long text that JSON escapes would make much longer."""
    if len(value) <= ESCAPED_BYTES_MAX:
        return False
    steps = range(0, len(value), STEP_BYTES)
    return (
        sum(len(value[at : at + STEP_BYTES].translate(None, _ESCAPED)) for at in steps) < len(value) * 7 // 8
    )


def _as_utf8(value: bytes, offset: int) -> Shown:
    if _grows(value):
        raise _not_in("text without many escapes in JSON", offset)
    try:
        return _as_string(value.decode())
    except UnicodeDecodeError:
        raise _not_in("UTF-8", offset) from None


def _as_json(value: bytes, offset: int) -> Shown:
    if len(value) > JSON_BYTES_MAX:
        raise _not_in(f"JSON of at most {JSON_BYTES_MAX} bytes", offset)
    try:
        value.decode()  # format allows any bytes inside strings
        return msgspec.Raw(msgspec.json.format(value, indent=-1)), "json"
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        raise _not_in("JSON", offset) from None


def as_it_looks(value: bytes, _offset: int) -> Shown:
    """Objects and arrays up to ``JSON_BYTES_MAX`` as JSON, other text as a string, all others as base64.

    Long text with many control characters is base64, too: each takes six bytes in JSON.
    """
    if _grows(value):
        return _as_base64(value, 0)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return _as_base64(value, 0)
    if value[:1] in (b"{", b"[") and len(value) <= JSON_BYTES_MAX:
        try:
            return msgspec.Raw(msgspec.json.format(value, indent=-1)), "json"
        except (msgspec.DecodeError, RecursionError):
            pass
    return _as_string(text)


def _not_in(form: str, offset: int) -> InvalidRecord:
    return InvalidRecord(
        f"the record at offset {offset} is not {form}; fetch with format=auto or format=base64",
        errors=[f"/records: offset {offset} is not {form}"],
    )


_SHOW: dict[str, Callable[[bytes, int], Shown]] = {
    "auto": as_it_looks,
    "utf8": _as_utf8,
    "json": _as_json,
    "base64": _as_base64,
}
