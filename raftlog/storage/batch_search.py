"""Search for the sound parts of a damaged segment file.

Decides: which bytes of a damaged file are still batches of this log: whole, at the right offset, with a right
checksum. Leaves to others: what the log should contain (``verify``) and the source of the missing batches
(``segment_writer``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from raftlog.errors import CorruptBatch
from raftlog.records.batch import HEADER_BYTES, MAGIC, Batch, BatchHeader, check_batch, parse_header
from raftlog.storage.batch_walk import BatchDamaged, is_blank, walk_batches, why_not_next
from raftlog.storage.filesystem import File

_MAGIC_AT = 16  # position in a batch
_MAGIC_BYTE = bytes([MAGIC])
_CHUNK_BYTES = 1 << 20

Pace = Callable[[int], None]
"""A callback that receives the number of bytes that were read, and may wait to slow the reader down."""


@dataclass(frozen=True, slots=True)
class Run:
    """Sound batches of one term, back to back: entries ``first..last``, bytes ``position..end``."""

    path: str
    position: int
    end: int
    first: int
    last: int
    term: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes ``position..end`` of a file that are not the expected batches."""

    path: str
    position: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Zeros(Damage):
    """Zeros up to the end of a file: the file was filled in advance, or has lost entries."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits that every batch of one segment must respect."""

    first: int
    last: int
    term_min: int
    term_max: int
    term_at: Callable[[int], int | None]  # the term of an entry; None where it is unknown

    def trouble(self, header: BatchHeader, expected: int) -> str | None:
        """The reason why a batch cannot be at offset ``expected`` or later; None if it can."""
        if not expected <= header.base_offset <= header.last_offset <= self.last:
            return f"offset {header.base_offset} in place of {expected}"
        known = self.term_at(header.base_offset)
        if known is not None and header.leader_epoch != known:
            return f"epoch {header.leader_epoch} in place of {known}"
        if not max(self.term_min, 1) <= header.leader_epoch <= self.term_max:
            return f"epoch {header.leader_epoch} outside {self.term_min}..{self.term_max}"
        return None


def sound_parts(file: File, bounds: Bounds, pace: Pace) -> Iterator[Run | Damage]:
    """Split the whole file, in order, into runs of sound batches and damaged bytes between the runs."""
    position, expected, term = 0, bounds.first, bounds.term_min
    while position < file.size:
        walk = _Walk(file, position, expected, term, bounds, pace)
        yield from walk.runs()
        position, expected, term = walk.position, walk.expected, walk.term
        if walk.trouble is None:
            return
        if is_blank(file, position):
            yield Zeros(file.path, position, file.size, walk.trouble)
            return
        found = _next_sound(file, position + 1, expected, term, bounds, pace)
        end, expected = found or (file.size, expected)
        yield Damage(file.path, position, end, walk.trouble)
        position = end


class _Walk:
    """Walks over the sound batches from one position on, up to the first damage."""

    def __init__(
        self, file: File, position: int, expected: int, term: int, bounds: Bounds, pace: Pace
    ) -> None:
        self.position = position
        self.expected = expected
        self.term = term
        self.trouble: str | None = None
        self._file = file
        self._bounds = bounds
        self._pace = pace

    def runs(self) -> Iterator[Run]:
        start, first, term = self.position, self.expected, self.term
        try:
            for position, batch in walk_batches(self._file, start, self._file.size):
                self._check(position, batch)
                if batch.leader_epoch != term:
                    yield from self._run(start, first, term)
                    start, first, term = position, batch.base_offset, batch.leader_epoch
                self.position, self.expected, self.term = (
                    position + batch.header.size_bytes,
                    batch.last_offset + 1,
                    term,
                )
                self._pace(batch.header.size_bytes)
        except BatchDamaged as damage:
            self.trouble = damage.reason
        yield from self._run(start, first, term)

    def _check(self, position: int, batch: Batch) -> None:
        header = batch.header
        trouble = self._bounds.trouble(header, self.expected)
        if trouble is None:
            trouble = why_not_next(header, self.expected, self.term)
        if trouble:
            raise BatchDamaged(position, trouble)

    def _run(self, start: int, first: int, term: int) -> Iterator[Run]:
        if self.position > start:
            yield Run(self._file.path, start, self.position, first, self.expected - 1, term)


def _next_sound(
    file: File, position: int, expected: int, term: int, bounds: Bounds, pace: Pace
) -> tuple[int, int] | None:
    """The position and base offset of the next sound batch; None if no sound batch follows.

    Every byte is tried as the beginning of a batch, because the lengths in damaged headers may be wrong.
    """
    while position + HEADER_BYTES <= file.size:
        chunk = file.read_at(position, _CHUNK_BYTES)
        pace(len(chunk))
        magic = chunk.find(_MAGIC_BYTE, _MAGIC_AT)
        while magic >= 0 and magic - _MAGIC_AT + HEADER_BYTES <= len(chunk):
            at = magic - _MAGIC_AT
            header = _plausible(chunk, at, expected, term, bounds)
            if header is not None and _is_sound(file, position + at, header):
                return position + at, header.base_offset
            magic = chunk.find(_MAGIC_BYTE, magic + 1)
        position += max(len(chunk) - HEADER_BYTES + 1, 1)
    return None


def _plausible(chunk: bytes, at: int, expected: int, term: int, bounds: Bounds) -> BatchHeader | None:
    try:
        header = parse_header(chunk, at)
    except CorruptBatch:
        return None
    is_in_place = bounds.trouble(header, expected) is None and header.leader_epoch >= term
    return header if is_in_place else None


def _is_sound(file: File, position: int, header: BatchHeader) -> bool:
    try:
        check_batch(Batch(file.read_at(position, header.size_bytes), header))
    except CorruptBatch:
        return False
    return True
