"""Finds the open dead letters of one partition, with bounded memory and without state between requests.

A dead letter is open until a later record has its key: its tombstone, or the dead letter of another failure.
So the partition is read to its end before a dead letter counts as open. One request reads a part of the
partition. A cursor carries the state to the next request, which any broker may serve. The state is the dead
letters that may be open, as offsets and digests of keys, and the offset from which records are unread.

Decides: which dead letters are candidates, when they are settled, and where the next request continues.
Leaves to others: reading, and the use of open dead letters (``dead_letters``).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Self

import msgspec

from partitions.values import FetchResult
from raftlog.errors import CorruptBatch, InvalidRecord, InvalidRequest
from raftlog.records.batch import split_batches
from raftlog.records.failures import FailedRecord, origin_of
from raftlog.records.reader import StoredRecord, iter_opened, open_batch
from raftlog.wire.decoding import UNREADABLE
from raftlog.wire.limits import DEAD_LETTERS_MAX

URL_LETTERS_MAX: Final = 100  # dead letters in a cursor that is part of a URL
_DIGEST_BYTES: Final = 8
_NUMBER_MAX: Final = (1 << 63) - 1  # largest number in JSON

Offset63 = Annotated[int, msgspec.Meta(ge=-1, le=_NUMBER_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selects dead letters: all, unless a field restricts them. ``reason`` selects reasons that contain this
    text.
    """

    ids: frozenset[str] | None = None
    reason: str = ""
    key: bytes | None = None

    @classmethod
    def of(cls, ids: Iterable[str] | None, reason: str | None, key: str | None, field: str) -> Self:
        """Create the selection of a request, whose ``field`` has the ids. Raises ``InvalidRequest``."""
        wanted = None if ids is None else frozenset(_checked_id(text, field) for text in ids)
        if wanted is not None and len(wanted) > DEAD_LETTERS_MAX:
            raise InvalidRequest(f"{field}: send at most {DEAD_LETTERS_MAX} ids", field=field)
        if key is None:
            return cls(ids=wanted, reason=(reason or "").casefold())
        return cls(ids=wanted, reason=(reason or "").casefold(), key=key.encode())

    def has(self, letter: FailedRecord) -> bool:
        """Return whether the dead letter is selected."""
        return (
            (self.ids is None or letter.id in self.ids)
            and (self.key is None or letter.key == self.key)
            and self.reason in letter.reason.casefold()
        )

    def partitions(self, count: int) -> Sequence[int]:
        """Return the partitions, out of ``count``, in which selected dead letters may be; in ascending
        order.
        """
        if self.ids is None:
            return range(count)
        return sorted({origin_of(text).partition % count for text in self.ids})


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The state of a scan between requests. Dead letters at or above ``end`` are newer than the scan of their
    partition.

    Records before ``at`` are read; ``found`` are the dead letters among them that may be open: offset and
    digest of the key. ``rest`` is the offset of the first dead letter that is left to the next page, or -1.
    """

    partition: Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)]
    at: Offset63 = 0
    end: Offset63 = -1
    rest: Offset63 = -1
    found: Annotated[list[tuple[Offset63, bytes]], msgspec.Meta(max_length=DEAD_LETTERS_MAX)] = []

    @classmethod
    def parse(cls, text: str) -> Self:
        """Decode a cursor. Raises ``InvalidRequest`` for a text that no broker has sent."""
        try:
            padded = text.encode() + b"=" * (-len(text) % 4)
            return msgspec.msgpack.decode(base64.b64decode(padded, b"-_", validate=True), type=cls)
        except (*UNREADABLE, binascii.Error, ValueError):
            raise InvalidRequest(
                f"page_token is {text[:64]!r}; send the `next_page_token` of the previous response unchanged",
                field="page_token",
            ) from None

    def cut(self, letters_max: int) -> Cursor:
        """Return the cursor with at most ``letters_max`` dead letters in ``found``; the other dead letters
        are left to the next page.
        """
        if len(self.found) <= letters_max:
            return self
        return msgspec.structs.replace(self, rest=self.found[letters_max][0], found=self.found[:letters_max])

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).rstrip(b"=").decode()


class Scan:
    """The scan of one partition for a page of at most ``limit`` dead letters.

    ``read_bytes`` counts the decompressed bytes of the records read. ``foreign`` counts skipped records,
    which are not dead letters.
    """

    def __init__(self, cursor: Cursor, selection: Selection, limit: int) -> None:
        self.cursor = cursor = cursor.cut(limit)
        self.read_bytes = 0
        self.foreign = 0
        self.is_complete = False
        self._selection = selection
        self._limit = limit
        self._at = cursor.at
        self._end = cursor.end
        self._rest = cursor.rest
        self._found = {digest: offset for offset, digest in cursor.found}  # in order of their offsets

    @property
    def at(self) -> int:
        """The next offset that the scan reads; the end of the partition once the scan is complete."""
        return self._at

    @property
    def offsets(self) -> Sequence[int]:
        """The offsets of the page's dead letters, which are open once the scan is complete."""
        return list(self._found.values())

    def move(self, start: int) -> None:
        """Continue at the log start ``start``, because retention has moved it, or a recovery has cut the end
        of the log.
        """
        self.is_complete = start <= self._at
        self._at = max(self._at, start)

    def read(self, result: FetchResult, bytes_max: int) -> None:
        """Take the records of a fetch into the scan, until ``read_bytes`` exceeds ``bytes_max``."""
        if self._end < 0:
            self._end = result.end
        for batch in split_batches(result.data):
            if batch.header.is_control or batch.last_offset < self._at:
                continue
            if self.read_bytes > bytes_max:
                return
            try:
                opened = open_batch(batch)
                self.read_bytes += len(opened)
                for stored in iter_opened(batch.header, opened, self._at):
                    self._take(stored)
            except CorruptBatch:
                self.foreign += 1
            self._at = batch.last_offset + 1
        self._at = max(self._at, result.next_offset)
        self.is_complete = self._at >= result.end

    def continued(self, letters_max: int) -> Cursor:
        """Return the cursor of an incomplete scan, with at most ``letters_max`` dead letters; the other dead
        letters are left to a later page.
        """
        found = [(offset, digest) for digest, offset in self._found.items()]
        return Cursor(self.cursor.partition, self._at, self._last, self._rest, found).cut(letters_max)

    def following(self, shown: int | None) -> Cursor | None:
        """Return the cursor after the page, or ``None`` if the partition has no more candidates.

        ``shown`` is the first offset of the page that is not shown; None if the whole page is shown.
        """
        rest = self._rest if shown is None else shown
        return None if rest < 0 else Cursor(self.cursor.partition, rest, self._last)

    @property
    def _last(self) -> int:
        """The offset after the last candidate. Some candidates may be newer than the scan and have replaced
        earlier ones.
        """
        return max(self._end, *(offset + 1 for offset in self._found.values()), 0)

    def _take(self, stored: StoredRecord) -> None:
        digest = digest_of(stored.key)
        was_found = self._found.pop(digest, None) is not None
        is_new = self._rest < 0 and stored.offset < self._end
        if stored.value is None or not (was_found or is_new):
            return
        letter = letter_of(stored)
        if letter is None:
            self.foreign += 1
        elif self._selection.has(letter):
            if not is_new:
                # An older failure was found, so this one replaces it, unless a later page has it.
                if stored.offset >= self._end:
                    self._found[digest] = stored.offset
            elif len(self._found) < self._limit:
                self._found[digest] = stored.offset
            else:
                self._rest = stored.offset


def records_of(result: FetchResult) -> Iterator[tuple[StoredRecord, int]]:
    """Yield the user records of a fetch that can be decoded; with each, the number of bytes decompressed for
    it.
    """
    for batch in split_batches(result.data):
        if batch.header.is_control or batch.last_offset < result.offset:
            continue
        with contextlib.suppress(CorruptBatch):
            opened = open_batch(batch)
            size_bytes = len(opened)
            for stored in iter_opened(batch.header, opened, result.offset):
                yield stored, size_bytes
                size_bytes = 0


def letter_of(stored: StoredRecord) -> FailedRecord | None:
    """Return the dead letter in a record; ``None`` for a tombstone and for a record that is not a dead
    letter.
    """
    if stored.value is None:
        return None
    try:
        letter = FailedRecord.from_dead_letter(stored.value, stored.headers, stored.timestamp_ms)
    except InvalidRecord:
        return None
    numbers = (*letter.origin[1:], letter.attempts, letter.failed_ms, letter.redrives)
    if stored.key != letter.id.encode() or not all(0 <= n <= _NUMBER_MAX for n in numbers):
        return None
    return letter


def digest_of(key: bytes | None) -> bytes:
    """Return the digest of a dead letter's key, which cursors have in place of the key."""
    return hashlib.blake2b(key or b"", digest_size=_DIGEST_BYTES).digest()


def _checked_id(text: str, field: str) -> str:
    try:
        origin_of(text)
    except ValueError:
        raise InvalidRequest(
            f"{field}: {text[:300]!r} is not an id; send topic/partition/offset, as in a list", field=field
        ) from None
    return text
