"""Reads the open dead letters of a group for one request, partition by partition.

Decides: how much one request reads and keeps in memory; a cursor leaves the rest to the next request. Leaves
to others: which dead letters are open (``dead_letter_scan``), and their use: to list, redrive or discard them
(``dead_letters``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from api.http.disconnects import has_client
from api.http.routes import Call
from api.resources.dead_letter_scan import Cursor, Scan, Selection, letter_of, records_of
from api.resources.json_answers import is_shown_fast
from api.resources.reading import read_at_once, read_in_turn
from partitions.metadata.image import TopicInfo
from partitions.values import FetchRequest, FetchResult
from raftlog.errors import OffsetOutOfRange, RaftlogError
from raftlog.records.failures import FailedRecord
from raftlog.types import Offset, TopicPartition
from raftlog.wire import dead_letters as wire

SCAN_BYTES_MAX: Final = 16 << 20  # decompressed bytes of one request; one more batch may exceed it
READS_MAX: Final = 200  # reads of one request, for topics with many partitions
READ_BYTES: Final = 1 << 20
LOOKUP_BYTES: Final = 64 << 10  # the dead letters of a page are often far apart


class Letter(NamedTuple):
    """An open dead letter, and its offset in the dead-letter topic."""

    offset: int
    record: FailedRecord
    size_bytes: int


Bodies = list[wire.DeadLetterDescription]
Use = Callable[[Scan, Sequence[Letter]], Awaitable[Bodies]]
"""A function that uses (lists, redrives or discards) the dead letters of a complete scan, and returns their
bodies.
"""


@dataclass(slots=True, kw_only=True)
class Pages:
    """The dead letters of one request: their bodies (``items``) after their use, and the ``cursor`` of the
    next request.

    The request may hold one dead letter more than ``letter_bytes_max`` allows.
    """

    call: Call
    source: TopicInfo
    selection: Selection
    limit: int
    letter_bytes_max: int
    cursor_letters_max: int
    cursor: Cursor | None = None
    items: Bodies = field(default_factory=list)
    foreign: int = 0
    _read_bytes: int = 0
    _letter_bytes: int = 0
    _reads: int = 0

    async def collect(self, use: Use) -> None:
        """Find and use open dead letters within the limits of the request.

        A failure after the first page ends the request with the pages so far; the next request gets the
        error.
        """
        while self.cursor is not None and self._may_read and len(self.items) < self.limit:
            try:
                used, following = await self._page(self.cursor, use)
            except RaftlogError:
                if not self.items:
                    raise
                return
            self.items += used
            self.cursor = following

    def next_partition(self, after: int) -> Cursor | None:
        """Return the start of the next partition that may have selected dead letters; None if no such
        partition is left.
        """
        numbers = self.selection.partitions(len(self.source.partitions))
        return next((Cursor(number) for number in numbers if number > after), None)

    @property
    def _may_read(self) -> bool:
        return (
            self._read_bytes < SCAN_BYTES_MAX
            and self._letter_bytes < self.letter_bytes_max
            and self._reads < READS_MAX
        )

    async def _page(self, cursor: Cursor, use: Use) -> tuple[Bodies, Cursor | None]:
        """Find and use the open dead letters of one partition; return their bodies and the next cursor."""
        target = TopicPartition(self.source.name, cursor.partition)
        scan = Scan(cursor, self.selection, self.limit - len(self.items))
        await self._scan(target, scan)
        self.foreign += scan.foreign
        if not scan.is_complete:
            return [], scan.continued(self.cursor_letters_max)
        letters, rest = await self._letters(target, scan.offsets)
        used = await use(scan, letters)
        return used, scan.following(rest) or self.next_partition(cursor.partition)

    async def _scan(self, target: TopicPartition, scan: Scan) -> None:
        """Read the partition to its end, or until a limit of the request is reached."""
        while not scan.is_complete and self._may_read:
            self._reads += 1
            before = scan.read_bytes
            take = partial(scan.read, bytes_max=before + SCAN_BYTES_MAX - self._read_bytes)
            try:
                await self._read(target, scan.at, READ_BYTES, take)
            except OffsetOutOfRange as error:
                scan.move(int(str(error.details.get("start", 0))))
            self._read_bytes += scan.read_bytes - before

    async def _letters(
        self, target: TopicPartition, offsets: Sequence[int]
    ) -> tuple[list[Letter], int | None]:
        """Return the dead letters at these offsets, and the first offset that is left to the next request
        (None if no offset is left).

        Dead letters that compaction has removed are left out: their keys have later records.
        """
        found, left = list[Letter](), list(offsets)
        read_bytes = 0
        while left:
            if found and (self._letter_bytes >= self.letter_bytes_max or read_bytes >= SCAN_BYTES_MAX):
                return found, left[0]
            lookup = _Lookup(frozenset(left), self.letter_bytes_max - self._letter_bytes)
            try:
                await self._read(target, left[0], LOOKUP_BYTES, lookup.read)
            except OffsetOutOfRange:
                left = left[1:]
                continue
            read_bytes += lookup.read_bytes
            self._letter_bytes += sum(letter.size_bytes for letter in lookup.letters)
            found += [letter for letter in lookup.letters if self.selection.has(letter.record)]
            left = [offset for offset in left if offset >= max(lookup.next_offset, left[0] + 1)]
        return found, None

    async def _read(
        self, target: TopicPartition, offset: int, bytes_max: int, take: Callable[[FetchResult], None]
    ) -> None:
        """Do one fetch, and pass its result to ``take``, on a thread if it has many records."""
        request = FetchRequest(position=Offset(offset), bytes_max=bytes_max)
        with self.call.admission.answers.turn(partial(has_client, self.call.request)) as turn:
            result = await read_in_turn(partial(read_at_once, self.call, target), request, turn)
            await turn.computed(partial(take, result), is_short=is_shown_fast(result))


@dataclass(slots=True)
class _Lookup:
    """Collects the dead letters at known offsets from fetches, until their bytes exceed ``bytes_max``."""

    offsets: frozenset[int]
    bytes_max: int
    letters: list[Letter] = field(default_factory=list)
    read_bytes: int = 0
    next_offset: int = 0

    def read(self, result: FetchResult) -> None:
        """Take the dead letters in a fetch. ``next_offset`` is then the first offset that was not taken, or
        the end of the fetch.
        """
        self.next_offset = result.next_offset
        for stored, opened_bytes in records_of(result):
            self.read_bytes += opened_bytes
            if stored.offset not in self.offsets:
                continue
            if self.letters and self.bytes_max <= 0:
                self.next_offset = stored.offset
                return
            letter = letter_of(stored)
            if letter is not None:
                self.letters.append(Letter(stored.offset, letter, stored.size_bytes))
                self.bytes_max -= stored.size_bytes
