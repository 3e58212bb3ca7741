"""Checks of the files of a log that is in use.

Decides: which content is compared. The durable part of a segment can be read on any thread, during appends; a
truncation meanwhile shows in the log's ``removals``. The expected offsets and terms of a segment are known
from the open log. Small files are compared with their checksums, and indexes with their segments. Leaves to
others: the speed, and the consequences (``raftlog.repair.scrubber``).
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from raftlog.errors import LogCorrupt
from raftlog.exhaustion import exhaustion
from raftlog.storage.batch_walk import BatchDamaged, walk_batches, walk_headers
from raftlog.storage.durable_state import found_slots
from raftlog.storage.epochs import EPOCHS_NAME, load_epochs
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.retention import ClosedSegment
from raftlog.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, segment_path
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.storage.slots import SLOT_NAMES, Slot, SlotError
from raftlog.storage.sparse_index import (
    INDEX_INTERVAL_BYTES,
    SegmentSummary,
    build_index,
    load_index,
    write_index,
)
from raftlog.storage.state_files import damaged_states, is_state_known
from raftlog.types import EntryId, Index


@dataclass(frozen=True, slots=True)
class ScrubRange:
    """A segment to check, according to the open log; of the active segment, its durable part."""

    path: str
    first: int
    last: int
    size: int
    is_closed: bool = True


def scrub_ranges(log: SegmentedLog) -> list[ScrubRange]:
    """The closed segments of an open log, oldest first, and then the durable part of the active segment."""
    segments = [(each, True) for each in log.closed_segments]
    segments.append((log.durable_part_of_active, False))
    return [
        ScrubRange(
            segment_path(log.directory, each.base) + LOG_SUFFIX,
            each.base,
            each.last,
            each.size_bytes,
            is_closed,
        )
        for each, is_closed in segments
    ]


def check_range(
    filesystem: Filesystem, part: ScrubRange, terms: Sequence[EntryId], place: tuple[int, int], bytes_max: int
) -> tuple[int, int]:
    """Check batches from ``place`` (position and offset) on, about ``bytes_max``; return the next place.

    Raises ``LogCorrupt``. ``terms`` are the first entries of all terms in the log.
    """
    position, expected = place
    starts = [entry.index for entry in terms]
    try:
        file = filesystem.open(part.path)
    except FileNotFoundError:
        raise LogCorrupt(f"{part.path}: the file is missing") from None
    start = position
    try:
        if file.size < part.size:
            raise BatchDamaged(min(file.size, part.size), f"{file.size} bytes in place of {part.size}")
        for at, batch in walk_batches(file, position, part.size, expected):
            header = batch.header
            term = terms[max(bisect_right(starts, expected) - 1, 0)].term
            if header.leader_epoch != term:
                raise BatchDamaged(at, f"epoch {header.leader_epoch} in place of {term}")
            position, expected = at + header.size_bytes, header.last_offset + 1
            if position - start >= bytes_max:
                break
    except BatchDamaged as damage:
        raise LogCorrupt(
            f"{part.path} at position {damage.position}: {damage.reason}; it is repaired from its peers"
        ) from None
    finally:
        file.close()
    return position, expected


def check_small_files(
    filesystem: Filesystem, directory: str, log_start: Index
) -> tuple[Sequence[str], Sequence[str]]:
    """Check the small files of a log; return the paths of damaged states, and of damaged slots and epochs.

    Damaged states are removed, unless the log cannot be applied without them. The open log can rewrite the
    slots and epochs.
    """
    return _check_states(filesystem, directory, log_start), _damaged_slots_and_epochs(filesystem, directory)


def _damaged_slots_and_epochs(filesystem: Filesystem, directory: str) -> Sequence[str]:
    found = [
        f"{directory}/{name}"
        for name, slot in zip(SLOT_NAMES, found_slots(filesystem, directory), strict=True)
        if slot in (SlotError.LOST, SlotError.ABSENT) or (isinstance(slot, Slot) and slot.was_repaired)
    ]
    epochs = f"{directory}/{EPOCHS_NAME}"
    if filesystem.exists(epochs) and load_epochs(filesystem, directory)[-1] < 0:
        found.append(epochs)
    return found


def _check_states(filesystem: Filesystem, directory: str, log_start: Index) -> Sequence[str]:
    found = [f"{directory}/{name}" for name in damaged_states(filesystem, directory)]
    if found and is_state_known(filesystem, directory, log_start):
        for path in found:
            filesystem.remove(path)
    return found


def check_index(filesystem: Filesystem, part: ScrubRange, closed: ClosedSegment) -> Sequence[str]:
    """Check the index of a closed segment; return its path if it does not match the segment.

    Such an index is rebuilt if the segment is sound.
    """
    path = part.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
    summary = SegmentSummary(part.first, part.last, part.size, closed.max_timestamp, closed.stored_ms)
    try:
        if load_index(filesystem, path, summary, INDEX_INTERVAL_BYTES) is not None:
            return []
    except OSError as error:
        if exhaustion(error) is not None:
            raise
    try:
        file = filesystem.open(part.path)
    except FileNotFoundError:
        return []  # retention was faster
    with contextlib.closing(file), contextlib.suppress(BatchDamaged):
        index, built = build_index(walk_headers(file, 0, part.size), INDEX_INTERVAL_BYTES)
        if built == summary:
            write_index(filesystem, path, index, summary)
    return [path]
