"""Parses a replica's log and hard state from the bytes on a fake disk, without any code of the storage.

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
from raftlog.testing.stored_file import StoredFile

_HEADER = struct.Struct(">qiibIhiqq")  # up to the newest timestamp
_STAMPED = APPEND_TIME_BIT | CONTROL_BIT  # the timestamp is the leader's
_SLOT = struct.Struct(">QqqqqqqqQ?")
_SLOT_NAMES = ("hard_state.a", "hard_state.b")
_SLOT_MAGIC = b"RLH3"
_SUFFIX = ".log"
_LISTED = (_SUFFIX, *_SLOT_NAMES)
_END = 1 << 62  # behind the end of every file


class Entry(NamedTuple):
    """One batch in a log. Two entries with equal values have equal bytes, except for the bytes of their
    terms.
    """

    base: int
    last: int
    term: int
    checksum: int


class Vote(NamedTuple):
    """The term and the vote in a slot, and the slot's other fields."""

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
    waits: bool = False  # its next batch follows none yet: other files decide whether it counts
    is_rewritten: bool = False  # by compaction: a batch of its file stands for several entries


Note = Callable[[Entry, int | None, bytes], Sequence[tuple[Entry, int | None]]]
"""A function that returns the appended entries, with their stamps, that a batch of a compacted log stands
for.
"""


class LogView:
    """The entries of one log, as programs see them or, if ``durable``, as the disk has them."""

    def __init__(
        self, disk: FakeFilesystem, directory: str, *, durable: bool, note: Note | None = None
    ) -> None:
        """Without ``note``, the entries are the batches in the files. With ``note`` they are the appended
        batches, even where compaction has rewritten the files.
        """
        self.entries: list[Entry] = []
        self.stamps_ms: list[int | None] = []  # of each entry; None if a producer set the time
        self.memberships: list[tuple[int, Membership]] = []  # those in the log, and their offsets
        self._disk = disk
        self._directory = directory
        self._durable = durable
        self._note = note
        self._changed_names = disk.changed_names(directory, durable=durable)
        self._names_seen = 0
        self._changes = -1
        self._log_start = 0
        self._files: dict[int, StoredFile] = {}  # of segments, by base offset
        self._slots: list[StoredFile] = []
        self._slot_writes = 0  # that were seen
        self._segments: list[_Segment] = []
        self._writes: list[Sequence[int]] = []  # to the file of each segment
        self._seen_writes: list[int] = []  # how many of them were seen; -1 before the first time
        self._has_waiting = False

    @property
    def last(self) -> int:
        """The last offset of the log; the offset before the log start if the log is empty."""
        return self.entries[-1].last if self.entries else self.start - 1

    @property
    def start(self) -> int:
        """The first offset of the first file; without a file, the offset after the end of the snapshot."""
        return self._segments[0].base if self._segments else self._log_start

    def refresh(self) -> int:
        """Parse changed files; return the number of entries, counted from the first, that did not change."""
        kept = len(self.entries)
        changes, names = self._disk.changes, len(self._changed_names)
        if (changes, names) == (self._changes, self._names_seen):
            return kept
        self._changes = changes
        if (names != self._names_seen and self._take_names()) or self._has_another_start():
            kept = self._list_segments()
        counts = [*map(len, self._writes)]
        if counts == self._seen_writes and not self._has_waiting:
            return kept
        self._has_waiting = False
        for at, segment in enumerate(self._segments):
            if counts[at] == self._seen_writes[at] and not segment.waits:
                continue
            kept = min(kept, self._cut(at, self._first_change(at)))
            self._seen_writes[at] = counts[at]
            segment.waits = bool(at and not segment.end and segment.base != self.last + 1)
            if not segment.waits:
                self._parse(segment, self._content(segment.file))
            self._has_waiting |= segment.waits
        return kept

    def entry_over(self, index: int) -> Entry | None:
        """Return the batch that contains this index, or None."""
        place = bisect_left(self.entries, index, key=attrgetter("last"))
        found = self.entries[place] if place < len(self.entries) else None
        return found if found is not None and found.base <= index else None

    def newest_up_to(self, index: int) -> Entry | None:
        """Return the last batch that ends at or below this index, or None."""
        place = bisect_right(self.entries, index, key=attrgetter("last"))
        return self.entries[place - 1] if place else None

    def headers(self) -> list[BatchHeader]:
        """Return the headers of all batches, parsed from the bytes; a checker derives its tables
        from them.
        """
        return [header for header, _ in self.batches()]

    @property
    def is_rewritten(self) -> bool:
        """True if compaction has rewritten some of the files."""
        return any(segment.is_rewritten for segment in self._segments)

    def stored(self) -> list[Entry]:
        """The batches in the files, in their present form."""
        headers = self.headers()
        return [Entry(each.base_offset, each.last_offset, each.leader_epoch, each.crc) for each in headers]

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        """The header and the bytes of each batch in the files."""
        for segment in self._segments:
            content = self._content(segment.file)
            position = 0
            while position < segment.end:
                header = parse_header(content, position)
                yield header, bytes(content[position : position + header.size_bytes])
                position += header.size_bytes

    def _content(self, file: StoredFile) -> bytearray:
        return file.disk if self._durable else file.seen

    def _writes_to(self, file: StoredFile) -> Sequence[int]:
        return file.disk_writes if self._durable else file.seen_writes

    def _take_names(self) -> bool:
        """Parse files whose names have changed. Returns whether a segment or a slot is among them."""
        first, self._names_seen = self._names_seen, len(self._changed_names)
        paths = [path for path in self._changed_names[first:] if path.endswith(_LISTED)]
        for path in paths:
            if path.endswith(_SUFFIX):
                base = int(path.rpartition("/")[2][: -len(_SUFFIX)])
                file = self._disk.stored(path, durable=self._durable)
                if file is None:
                    self._files.pop(base, None)
                else:
                    self._files[base] = file
        return bool(paths)

    def _list_segments(self) -> int:
        self._slots = _slots_in(self._disk, self._directory, durable=self._durable)
        self._slot_writes = self._count_slot_writes()
        self._log_start = start = self._find_start()
        # Those before the start were deleted, and a power loss has restored them.
        listed = [(base, self._files[base]) for base in sorted(self._files) if base >= start]
        kept = 0 if self._has_left_out(listed[0][1] if listed else None) else len(self.entries)
        same = 0
        for (_, file), known in zip(listed, self._segments, strict=False):
            if file is not known.file:
                break
            same += 1
        if same < len(self._segments):
            number = min(
                (segment.first for segment in self._segments[same:] if segment.end),
                default=len(self.entries),
            )
            self._drop(number)
            kept = min(kept, number)
            del self._segments[same:], self._writes[same:], self._seen_writes[same:]
        for base, file in listed[same:]:
            self._segments.append(_Segment(base, file, len(self.entries)))
            self._writes.append(self._writes_to(file))
            self._seen_writes.append(-1)
        return kept

    def _has_left_out(self, first: StoredFile | None) -> bool:
        """Drop the entries of the segments before this file. Returns whether there were any and this file is
        parsed.
        """
        count = next((at for at, known in enumerate(self._segments) if known.file is first), 0)
        if not count or not self._segments[count].end:
            return False
        number, base = self._segments[count].first, self._segments[count].base
        del self.entries[:number], self.stamps_ms[:number]
        del self._segments[:count], self._writes[:count], self._seen_writes[:count]
        self.memberships = [each for each in self.memberships if each[0] >= base]
        for segment in self._segments:
            segment.first -= number
        return True

    def _has_another_start(self) -> bool:
        """Return whether a slot has another log start than before: it may be stored before files
        are removed.
        """
        before, self._slot_writes = self._slot_writes, self._count_slot_writes()
        return before != self._slot_writes and self._find_start() != self._log_start

    def _count_slot_writes(self) -> int:
        return sum(len(self._writes_to(file)) for file in self._slots)

    def _find_start(self) -> int:
        slots = [_parse_slot(bytes(self._content(file))) for file in self._slots]
        return max((slot[1].log_start for slot in slots if slot is not None), default=0)

    def _first_change(self, at: int) -> int:
        """Return the lowest position of a segment that was written since the segment was last parsed."""
        seen = self._seen_writes[at]
        return 0 if seen < 0 else min(self._writes[at][seen:], default=_END)

    def _cut(self, at: int, position: int) -> int:
        """Drop the entries of a segment from a position on, and all entries of later segments."""
        segment = self._segments[at]
        content = self._content(segment.file)
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
            for place in range(at + 1, len(self._segments)):
                later = self._segments[place]
                later.end, later.first, self._seen_writes[place] = 0, len(self.entries), -1
        return len(self.entries)

    def _drop(self, number: int) -> None:
        """Drop all entries except the first ``number`` entries."""
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
            if magic != 2 or end > size or length < HEADER_BYTES - BATCH_OVERHEAD:
                break
            if base != following:
                segment.waits = True
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
                membership = _membership_in(bytes(content[position:end]))
                if membership is not None:
                    self.memberships.append((base, membership))
            following = base + delta + 1
            position = end
        segment.end = position


@lru_cache(maxsize=1024)
def _membership_in(data: bytes) -> Membership | None:
    """Return the membership that a control batch sets, or None. All replicas have equal control batches."""
    members = members_in(Batch(data, parse_header(data)))
    return None if members is None else Membership(*members)


def durable_vote(disk: FakeFilesystem, directory: str) -> Vote:
    """Return the content of the newest valid slot that survives any power loss."""
    slots = [_parse_slot(bytes(file.disk)) for file in _slots_in(disk, directory, durable=True)]
    return max((slot for slot in slots if slot is not None), default=(-1, Vote(0, -1, -1)))[1]


def _slots_in(disk: FakeFilesystem, directory: str, *, durable: bool) -> list[StoredFile]:
    found = [disk.stored(f"{directory}/{name}", durable=durable) for name in _SLOT_NAMES]
    return [file for file in found if file is not None]


@lru_cache(maxsize=1024)
def _parse_slot(data: bytes) -> tuple[int, Vote] | None:
    """Parse a slot into its sequence number and values; None if its checksum is wrong.

    Results are cached, because slots are read often.
    """
    if len(data) < _SLOT.size + 8 or data[:4] != _SLOT_MAGIC:
        return None
    body, checksum = data[: _SLOT.size + 4], data[_SLOT.size + 4 : _SLOT.size + 8]
    if crc32c(body) != int.from_bytes(checksum):
        return None
    sequence, term, vote, log_start, *_, commit_hint, _, is_rejoining = _SLOT.unpack(body[4:])
    return sequence, Vote(term, vote, commit_hint, log_start, is_rejoining)
