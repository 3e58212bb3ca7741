"""Rewrites a damaged log's files: sound parts from the old files, the rest from the group's other logs.

Decides: which files are written, in which order data reaches the disk, and which batches may fill a hole.
Leaves to others: where those batches come from and why they are right (``raftlog.repair.repairer``).

A file is written beside the file that it replaces, synced, and then renamed. A crash at any moment leaves the
log as damaged as it was, or with fewer holes: the repair begins again. The durable end and the epochs file,
which record which entries were here, are never lowered before the repaired files are renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from raftlog.core.ready import HardState
from raftlog.errors import CorruptBatch, LogCorrupt
from raftlog.records.batch import Batch, check_batch, split_batches
from raftlog.records.compaction import cut_gap
from raftlog.repair.verify import VerifyReport, examine
from raftlog.storage.batch_search import Run
from raftlog.storage.batch_walk import why_not_next
from raftlog.storage.durable_state import DurableState
from raftlog.storage.epochs import EPOCHS_NAME, Epochs
from raftlog.storage.filesystem import Buffer, File, Filesystem
from raftlog.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, segment_path
from raftlog.storage.slots import UNKNOWN_TERMS, DurableEnd, ReplicaState
from raftlog.storage.state_files import CHECKPOINT_NAME, STATE_SUFFIX, is_state_known
from raftlog.types import EntryId, Index, Term

REPAIR_SUFFIX = ".repair"
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Lacking:
    """Entries ``first..last`` that the log lacks, to be fetched from other logs."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A segment file to be rewritten: sound parts and missing entries, in order."""

    base: int
    parts: tuple[Run | Lacking, ...]


def plan(seen: VerifyReport, holes: Sequence[Lacking]) -> list[NewSegment]:
    """The files to write, oldest first, so that these holes are filled."""
    bases = sorted({*seen.bases, *_new_bases(seen, holes)})
    segments: list[NewSegment] = []
    for at, base in enumerate(bases):
        last = bases[at + 1] - 1 if at + 1 < len(bases) else None
        lacking = [found for hole in holes if (found := _within(hole, base, last)) is not None]
        if lacking:
            runs = [run for run in seen.runs if base <= run.first and (last is None or run.first <= last)]
            parts: list[Run | Lacking] = [*runs, *lacking]
            segments.append(NewSegment(base, tuple(sorted(parts, key=lambda part: part.first))))
    return segments


def _new_bases(seen: VerifyReport, holes: Sequence[Lacking]) -> Iterator[int]:
    """Yield the bases of new files, for a hole after a whole file or before the first file."""
    for hole in holes:
        before = max((base for base in seen.bases if base <= hole.first), default=None)
        if before is None:
            yield hole.first
        elif before < hole.first:
            path = segment_path(seen.directory, before) + LOG_SUFFIX
            last = max((run for run in seen.runs if run.path == path), key=lambda run: run.end, default=None)
            if last is not None and last.last == hole.first - 1 and not _has_rubbish(seen, path, last.end):
                yield hole.first


def _has_rubbish(seen: VerifyReport, path: str, position: int) -> bool:
    return any(damage.path == path and damage.end > max(position, damage.position) for damage in seen.damages)


def _within(hole: Lacking, base: int, last: int | None) -> Lacking | None:
    first, end = max(hole.first, base), hole.last if last is None else min(hole.last, last)
    return Lacking(first, end) if first <= end else None


class SegmentWriter:
    """Writes one of the planned files. Blocks; the log does not use the file before ``finish``."""

    def __init__(self, filesystem: Filesystem, directory: str, segment: NewSegment, term: int = 0) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._path = segment_path(directory, segment.base)
        temporary = self._path + LOG_SUFFIX + REPAIR_SUFFIX
        filesystem.remove(temporary)
        self._file: File = filesystem.open(temporary, create=True)
        self.following = segment.base  # the offset that the next batch must have
        self.term = term  # of the previous batch, if known
        self.terms = Epochs()  # of the added batches

    @property
    def size(self) -> int:
        """The number of bytes written so far."""
        return self._file.size

    def copy(self, run: Run) -> None:
        """Copy the sound batches of a run from the old file."""
        source = self._filesystem.open(run.path)
        try:
            position = run.position
            while position < run.end:
                data = source.read_at(position, min(_COPY_BYTES, run.end - position))
                self._file.append([data])
                position += len(data)
        finally:
            source.close()
        self.following, self.term = run.last + 1, run.term

    def add(self, batches: Sequence[Batch]) -> None:
        """Append fetched batches to the new file; ``checked`` must have returned them."""
        self._file.append([batch.data for batch in batches])
        for batch in batches:
            self.terms.note(batch.leader_epoch, batch.base_offset)
        self.following, self.term = batches[-1].last_offset + 1, batches[-1].leader_epoch

    def checked(self, data: Buffer, last: int) -> list[Batch]:
        """The batches in fetched bytes, if they are sound and follow the batches so far.

        Raises ``CorruptBatch``.
        """
        batches = [cut_gap(batch, self.following, last) for batch in split_batches(data)]
        expected, term = self.following, self.term
        for batch in batches:
            check_batch(batch)
            if why_not_next(batch.header, expected, term) or batch.last_offset > last:
                raise CorruptBatch(
                    f"a peer has sent {batch.base_offset}..{batch.last_offset} of epoch {batch.leader_epoch} "
                    f"in place of {expected}..{last}, after epoch {term}"
                )
            expected, term = batch.last_offset + 1, batch.leader_epoch
        if not batches:
            raise CorruptBatch(f"a peer has sent no batch in place of {expected}..{last}")
        return batches

    def finish(self) -> None:
        """Sync the new file and rename it, so that it replaces the old file."""
        with_name = self._file.path
        self._file.sync()
        self._file.close()
        self._filesystem.remove(self._path + INDEX_SUFFIX)
        self._filesystem.rename(with_name, self._path + LOG_SUFFIX)
        self._filesystem.sync_directory(self._directory)

    def abandon(self) -> None:
        """Close the new file and remove it."""
        self._file.close()
        self._filesystem.remove(self._file.path)


def clear_sidecars(filesystem: Filesystem, seen: VerifyReport) -> None:
    """Remove damaged files that can be built again: indexes, the epochs file and states.

    A state can be built again if the log begins with its first entry, or an older state reaches its start.
    """
    is_known = is_state_known(filesystem, seen.directory, seen.state.log_start)
    for damage in [*seen.damages, *seen.stale]:
        name = damage.path.rpartition("/")[2]
        is_state = (name == CHECKPOINT_NAME or name.endswith(STATE_SUFFIX)) and is_known
        if name.endswith(INDEX_SUFFIX) or name == EPOCHS_NAME or is_state:
            filesystem.remove(damage.path)
    for name in filesystem.list_directory(seen.directory):
        if name.endswith((REPAIR_SUFFIX, ".tmp")):
            filesystem.remove(f"{seen.directory}/{name}")
    filesystem.sync_directory(seen.directory)


def forget_from(
    filesystem: Filesystem, seen: VerifyReport, first: int, hard_state: HardState, last: int
) -> None:
    """Prepare the replacement of entries ``first..last``: record the durable end, then remove files.

    Afterwards the slots are sound, and a crash leaves a log that is shorter than its durable end.
    """
    state = seen.state
    durable_index = max(state.durable_index, seen.covers - 1, last)
    durable_end = DurableEnd(EntryId(Term(0), Index(durable_index)), UNKNOWN_TERMS)
    DurableState.replace(
        filesystem,
        seen.directory,
        ReplicaState(hard_state, state.log_start, state.before, durable_end, state.commit_index),
    )
    filesystem.remove(f"{seen.directory}/{EPOCHS_NAME}")
    filesystem.sync_directory(seen.directory)
    for base in seen.bases:
        if base > first:
            path = segment_path(seen.directory, base)
            filesystem.remove(path + INDEX_SUFFIX)
            filesystem.remove(path + LOG_SUFFIX)
    filesystem.sync_directory(seen.directory)


def settle(filesystem: Filesystem, seen: VerifyReport, hard_state: HardState, leader_last: int) -> None:
    """Record the durable end of the replaced, complete log, with this term and vote.

    Raises ``LogCorrupt`` if the log lacks entries that were durable before and that the leader, whose log
    ends at ``leader_last``, has: an acknowledged entry must not be forgotten.
    """
    state, epochs = seen.state, Epochs()
    found = examine(filesystem, seen.directory)
    owed = min(max(state.durable_index, seen.covers - 1), leader_last)
    if found.last < owed or any(hole.first <= found.last for hole in found.holes):
        raise LogCorrupt(f"{seen.directory}: the log ends at {found.last}, but {owed} was durable")
    for run in found.runs:
        epochs.note(run.term, run.first)
    durable_end = epochs.durable_end(state.log_start, state.before, found.last)
    commit_index = Index(min(state.commit_index, found.last))
    settled = ReplicaState(hard_state, state.log_start, state.before, durable_end, commit_index)
    DurableState.replace(filesystem, seen.directory, settled)


def end_doubt(filesystem: Filesystem, seen: VerifyReport, hard_state: HardState) -> None:
    """Rewrite the slots with the values that are known, and with a term and vote that cannot be wrong.

    When the log is opened, its entries above the durable end are made durable, as always.
    """
    state = seen.state
    state.hard_state = hard_state
    DurableState.replace(filesystem, seen.directory, state)
