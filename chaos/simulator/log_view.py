"""A replica's log and hard state as bytes on a fake disk, parsed without any code of the storage.

Decides: which entries are in the files of a directory, as programs see them or as they would
survive a power loss. Only changes since the last call are parsed. The layout is that
of ``docs/storage-format.md``; a batch counts when its checksum is valid.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from crc32c import crc32c

from raftlog.core.membership import Membership
from raftlog.records.batch import (
    APPEND_TIME_BIT,
    BATCH_OVERHEAD,
    CHECKSUM_START,
    CONTROL_BIT,
    HEADER_BYTES,
    Batch,
    BatchHeader,
    parse_header,
)
from raftlog.records.control import members_in
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.stored_file import UNCHANGED, StoredFile

_HEADER = struct.Struct(">qiibIhiqq")  # up to the newest timestamp
_STAMPED = APPEND_TIME_BIT | CONTROL_BIT  # the timestamp is the leader's
_SLOT = struct.Struct(">QqqqqqqqQ?")
_SLOT_NAMES = ("hard_state.a", "hard_state.b")
_SLOT_MAGIC = b"RLH3"


class Entry(NamedTuple):
    """One batch in a log. Two entries with equal values have the same bytes, except for the term's."""

    base: int
    last: int
    term: int
    checksum: int


class Vote(NamedTuple):
    """Term and vote, and the other fields of the slot."""

    term: int
    voted_for: int
    commit_hint: int
    log_start: int = 0
    is_rejoining: bool = False


@dataclass(slots=True)
class _Segment:
    base: int
    file: StoredFile
    first: int  # place of its first entry in the list
    end: int = 0  # how far it is parsed
    is_rewritten: bool = False  # by compaction: a batch of its file stands for several entries


Note = Callable[[Entry, int | None, bytes], Sequence[tuple[Entry, int | None]]]
"""The entries, with their stamps, that a batch of a compacted log stands for."""


class LogView:
    """The entries of one log, as programs see them or, if ``durable``, as the disk has them."""

    def __init__(
        self, disk: FakeFilesystem, directory: str, *, durable: bool, note: Note | None = None
    ) -> None:
        """With ``note`` the entries are the appended ones, even where compaction has rewritten them."""
        self.entries: list[Entry] = []
        self.stamps_ms: list[int | None] = []  # of each entry; None if a producer set the time
        self.memberships: list[tuple[int, Membership]] = []  # those in the log, and their offsets
        self._disk = disk
        self._directory = directory
        self._durable = durable
        self._note = note
        self._names_version = self._changes = -1
        self._log_start = 0
        self._segments: list[_Segment] = []
        self._slots: list[StoredFile] = []

    @property
    def last(self) -> int:
        """The last offset; one before the start where there is none."""
        return self.entries[-1].last if self.entries else self.start - 1

    @property
    def start(self) -> int:
        """The first offset of the first file; without a file, the offset after the snapshot."""
        return self._segments[0].base if self._segments else self._log_start

    def refresh(self) -> int:
        """Parse changes; return how many entries, from the first, are unchanged."""
        kept = len(self.entries)
        names_version, changes = self._disk.names_version(self._directory), self._disk.changes
        if (names_version, changes) == (self._names_version, self._changes):
            return kept
        self._changes = changes
        if self._names_version != names_version or self._has_another_start():
            self._names_version = names_version
            kept = self._list_segments()
        for at, segment in enumerate(self._segments):
            file = segment.file
            mark = file.disk_mark if self._durable else file.seen_mark
            content = file.disk if self._durable else file.seen
            if mark == UNCHANGED and len(content) == segment.end:
                continue
            if self._durable:
                file.disk_mark = UNCHANGED
            else:
                file.seen_mark = UNCHANGED
            kept = min(kept, self._cut(at, mark))
            if segment.end or at == 0 or segment.base == self.last + 1:
                self._parse(segment, content)
        return kept

    def entry_over(self, index: int) -> Entry | None:
        """The batch with this index."""
        place = bisect_left(self.entries, index, key=attrgetter("last"))
        found = self.entries[place] if place < len(self.entries) else None
        return found if found is not None and found.base <= index else None

    def newest_up_to(self, index: int) -> Entry | None:
        """The last batch that ends at this index or before it."""
        place = bisect_right(self.entries, index, key=attrgetter("last"))
        return self.entries[place - 1] if place else None

    def headers(self) -> list[BatchHeader]:
        """The headers of all batches, from the bytes; to derive tables from them."""
        return [header for header, _ in self.batches()]

    @property
    def is_rewritten(self) -> bool:
        """Whether compaction has changed some of the files."""
        return any(segment.is_rewritten for segment in self._segments)

    def stored(self) -> list[Entry]:
        """The batches in the files, each as it is there."""
        headers = self.headers()
        return [Entry(each.base_offset, each.last_offset, each.leader_epoch, each.crc) for each in headers]

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        """The batches in the files, as headers and bytes."""
        for segment in self._segments:
            content = segment.file.disk if self._durable else segment.file.seen
            position = 0
            while position < segment.end:
                header = parse_header(content, position)
                yield header, bytes(content[position : position + header.size_bytes])
                position += header.size_bytes

    def _list_segments(self) -> int:
        files = self._disk.stored_in(self._directory, durable=self._durable, suffix=".log")
        listed = [(int(name[:-4]), file) for name, file in files.items()]
        self._slots = _slots_in(self._disk, self._directory, durable=self._durable)
        self._log_start = start = self._find_start()
        listed = [segment for segment in listed if segment[0] >= start]  # a power loss may restore others
        known = [(segment.base, segment.file) for segment in self._segments]
        same = 0
        while same < min(len(listed), len(known)) and listed[same][1] is known[same][1]:
            same += 1
        kept = len(self.entries)
        if same < len(known):
            kept = min((segment.first for segment in self._segments[same:] if segment.end), default=kept)
            self._drop(kept)
            del self._segments[same:]
        for base, file in listed[same:]:
            self._segments.append(_Segment(base, file, len(self.entries)))
            if self._durable:
                file.disk_mark = 0
            else:
                file.seen_mark = 0
        return kept

    def _has_another_start(self) -> bool:
        """A slot may have another log start before files are removed."""
        is_written = False
        for file in self._slots:
            if self._durable:
                is_written |= file.disk_mark != UNCHANGED
                file.disk_mark = UNCHANGED
            else:
                is_written |= file.seen_mark != UNCHANGED
                file.seen_mark = UNCHANGED
        return is_written and self._find_start() != self._log_start

    def _find_start(self) -> int:
        slots = [_parse_slot(bytes(file.disk if self._durable else file.seen)) for file in self._slots]
        return max((slot[1].log_start for slot in slots if slot is not None), default=0)

    def _cut(self, at: int, position: int) -> int:
        """Drop the entries of a segment beyond a position, and all after them."""
        segment = self._segments[at]
        content = segment.file.disk if self._durable else segment.file.seen
        position = min(position, len(content))
        if segment.is_rewritten:
            position = 0  # its batches are not its entries
        if segment.end > position:
            end, number = 0, segment.first
            while end < position:
                if end + HEADER_BYTES > position:
                    break
                size = int.from_bytes(content[end + 8 : end + 12]) + BATCH_OVERHEAD
                if end + size > position:
                    break
                end += size
                number += 1
            segment.end = end
            self._drop(number)
            for later in self._segments[at + 1 :]:
                later.end, later.first = 0, len(self.entries)
                if self._durable:
                    later.file.disk_mark = 0
                else:
                    later.file.seen_mark = 0
        return len(self.entries)

    def _drop(self, number: int) -> None:
        """Drop all entries except the first ones."""
        if number < len(self.entries):
            first_removed = self.entries[number].base
            del self.entries[number:], self.stamps_ms[number:]
            while self.memberships and self.memberships[-1][0] >= first_removed:
                self.memberships.pop()

    def _parse(self, segment: _Segment, content: bytearray) -> None:
        position, size = segment.end, len(content)
        if position == 0:
            segment.first, segment.is_rewritten = len(self.entries), False
        following = self.last + 1 if position else segment.base
        while size - position >= HEADER_BYTES:
            base, length, term, magic, checksum, attributes, delta, _, time_ms = _HEADER.unpack_from(
                content, position
            )
            end = position + length + BATCH_OVERHEAD
            if base != following or magic != 2 or end > size or length < HEADER_BYTES - BATCH_OVERHEAD:
                break
            if delta < 0 or crc32c(content[position + CHECKSUM_START : end]) != checksum:
                break
            entry, stamp_ms = (
                Entry(base, base + delta, term, checksum),
                time_ms if attributes & _STAMPED else None,
            )
            if self._note is None:
                self.entries.append(entry)
                self.stamps_ms.append(stamp_ms)
            else:
                found = self._note(entry, stamp_ms, bytes(content[position:end]))
                segment.is_rewritten |= found[0][0] != entry
                self.entries += [each for each, _ in found]
                self.stamps_ms += [stamp for _, stamp in found]
            if attributes & CONTROL_BIT:
                batch = bytes(content[position:end])
                members = members_in(Batch(batch, parse_header(batch)))
                if members is not None:
                    self.memberships.append((base, Membership(*members)))
            following = base + delta + 1
            position = end
        segment.end = position


def durable_vote(disk: FakeFilesystem, directory: str) -> Vote:
    """The newest valid slot that would survive a power loss whatever the disk keeps of unsynced data."""
    slots = [_parse_slot(bytes(file.disk)) for file in _slots_in(disk, directory, durable=True)]
    return max((slot for slot in slots if slot is not None), default=(-1, Vote(0, -1, -1)))[1]


def _slots_in(disk: FakeFilesystem, directory: str, *, durable: bool) -> list[StoredFile]:
    found = [disk.stored(f"{directory}/{name}", durable=durable) for name in _SLOT_NAMES]
    return [file for file in found if file is not None]


@lru_cache(maxsize=1024)
def _parse_slot(data: bytes) -> tuple[int, Vote] | None:
    """Sequence number and values, if the checksum is valid. The same slots are read again and again."""
    if len(data) < _SLOT.size + 8 or data[:4] != _SLOT_MAGIC:
        return None
    body, checksum = data[: _SLOT.size + 4], data[_SLOT.size + 4 : _SLOT.size + 8]
    if crc32c(body) != int.from_bytes(checksum):
        return None
    sequence, term, vote, log_start, *_, commit_hint, _, is_rejoining = _SLOT.unpack(body[4:])
    return sequence, Vote(term, vote, commit_hint, log_start, is_rejoining)
