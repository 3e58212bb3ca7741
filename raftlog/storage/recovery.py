"""Opening a log after any kind of stop: which batches are kept, cut off, or refused as damaged.

The rule is short. Damage *above* the durable end of this replica is a torn tail: the log is cut there, and
the cut is reported. Damage *at or below* the durable end is corruption: ``LogCorrupt`` is raised, nothing is
changed, and the replica is repaired from its peers. No bad batch is ever skipped.

The durable end is in the hard state slots: it is raised after every sync and lowered before every truncation.
The epochs file, too, covers only segments that were synced before it was written. The commit hint and the
checkpoint prove nothing here: both may be above the entries that were durable on *this* node. Whole batches
after the damage prove nothing either: pages that were never synced reach the disk in any order.

Of segments below the offset that the epochs file covers, only the beginning and the end are checked; all
other segments are checked completely.

Entries above the durable end may be in the page cache alone: if a sync of an earlier process has failed, the
system believes that these pages are on the disk, and another sync would not write them. So these entries are
written again, in place, before they are synced and count as durable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from raftlog.errors import CorruptBatch, LogCorrupt
from raftlog.records.batch import Batch
from raftlog.storage.batch_walk import BatchDamaged, ends_at, walk_file, walk_headers
from raftlog.storage.durable_state import DurableState, found_slots, is_being_created
from raftlog.storage.epochs import EPOCHS_NAME, Epochs, load_epochs
from raftlog.storage.filesystem import File, Filesystem, file_size
from raftlog.storage.members import MEMBERS_NAME, LogMembers, load_members, membership_in
from raftlog.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment, segment_path
from raftlog.storage.segment_rewriter import compacted_files, joined_segments, joining_files
from raftlog.storage.slots import SLOT_NAMES, UNKNOWN_TERMS
from raftlog.storage.sparse_index import SegmentSummary, build_index, load_summary, write_index
from raftlog.storage.state_files import CHECKPOINT_NAME, STATE_SUFFIX

_REPAIR = "its broker repairs it from the other replicas"


@dataclass(frozen=True, slots=True)
class TornTail:
    """The end of a log that was never durable.

    It is cut off from ``position`` of ``path`` on, with later files.
    """

    path: str
    position: int
    reason: str
    bytes_removed: int
    files_removed: tuple[str, ...] = ()


@dataclass(slots=True)
class Recovery:
    """Findings and repairs of the opening of one log; all fields are empty after an orderly stop."""

    torn_tail: TornTail | None = None
    rebuilt: list[str] = field(default_factory=list)  # sidecar files that were missing or damaged
    removed: list[str] = field(default_factory=list)  # segments below the log start: a deletion to finish


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A log ready for use: its last segment is active, and all of its entries are durable."""

    state: DurableState
    epochs: Epochs
    epochs_cover: int  # the offset that the epochs file covers
    members: LogMembers
    segments: list[Segment]
    recovery: Recovery


def has_lived(filesystem: Filesystem, directory: str) -> bool:
    """Whether a replica in this directory may have voted or acknowledged.

    Without slots a replica would begin without its vote, whatever vote it gave. Slots of a creation that was
    interrupted by a full disk or a crash say nothing about earlier files in the directory.
    """
    names = filesystem.list_directory(directory)
    if not {*SLOT_NAMES} & {*names}:
        return False
    is_incomplete = is_being_created(found_slots(filesystem, directory))
    return not is_incomplete or _has_entries_or_state(filesystem, directory, names)


def _has_entries_or_state(filesystem: Filesystem, directory: str, names: list[str]) -> bool:
    if {EPOCHS_NAME, CHECKPOINT_NAME, MEMBERS_NAME} & {*names}:  # the last is written before the first vote
        return True
    if any(name.endswith(STATE_SUFFIX) for name in names):
        return True
    return any(
        file_size(filesystem, f"{segment_path(directory, base)}{LOG_SUFFIX}") for base in _bases_in(names)
    )


def _bases_in(names: list[str]) -> list[int]:
    return [int(name[: -len(LOG_SUFFIX)]) for name in names if name.endswith(LOG_SUFFIX)]


def open_log(filesystem: Filesystem, directory: str, interval_bytes: int, *, is_rejoining: bool) -> OpenedLog:
    """Open, check and repair a log. Raises ``LogCorrupt`` for damage that only the peers can repair."""
    opening = _Opening(filesystem, directory, interval_bytes)
    try:
        return opening.run(is_rejoining=is_rejoining)
    except BaseException:
        for segment in opening.segments:
            segment.let_go()
        raise


class _Opening:
    def __init__(self, filesystem: Filesystem, directory: str, interval_bytes: int) -> None:
        self.filesystem = filesystem
        self.directory = directory
        self.interval_bytes = interval_bytes
        self.recovery = Recovery()
        self.segments: list[Segment] = []

    def run(self, *, is_rejoining: bool) -> OpenedLog:
        self.filesystem.make_directories(self.directory)
        names = self.filesystem.list_directory(self.directory)
        for name in compacted_files(names):
            self.filesystem.remove(f"{self.directory}/{name}")
        bases = self._finish_joins(names)
        is_new = not _has_entries_or_state(self.filesystem, self.directory, names)
        self.state = DurableState.open(
            self.filesystem, self.directory, is_new=is_new, is_rejoining=is_rejoining
        )
        self.members = load_members(self.filesystem, self.directory)
        self.epochs, memberships, covers = load_epochs(self.filesystem, self.directory)
        for entry in memberships:
            self.members.note(entry.index, entry.membership)
        if covers < 0 and len(bases) > 1:
            self.recovery.rebuilt.append(f"{self.directory}/{EPOCHS_NAME}")
        self.epochs.truncate_suffix(covers)
        self.members.truncate_suffix(covers)
        if covers <= self.state.state.log_start:
            self.epochs.clear()  # its terms are all before the log, and need not reach up to it
        self.durable_index = max(self.state.state.durable_index, covers - 1)
        bases = self._finish_deletion(bases)
        files = self._check(bases, covers)
        self._check_terms()
        self._make_durable(files)
        if covers > self.segments[-1].base:
            self._forget_epochs()
            covers = -1
        self.epochs.truncate_prefix(self.state.state.log_start)
        self.members.truncate_prefix(self.state.state.log_start)
        return OpenedLog(self.state, self.epochs, covers, self.members, self.segments, self.recovery)

    def _finish_joins(self, names: list[str]) -> list[int]:
        """Remove segments that compaction had joined before a crash; return the bases of the
        other segments.
        """
        joined = joined_segments(self.filesystem, self.directory, names)
        for base in sorted(joined):
            self._remove(base)
            self.filesystem.remove(segment_path(self.directory, base) + STATE_SUFFIX)
        if joining := joining_files(names):
            self.filesystem.sync_directory(self.directory)
            for name in joining:
                self.filesystem.remove(f"{self.directory}/{name}")
        return [base for base in _bases_in(names) if base not in joined]

    def _finish_deletion(self, bases: list[int]) -> list[int]:
        """Remove segments below the log start, whose deletion was interrupted by a crash; return the other
        bases.

        A log begins with a segment, or after a snapshot that has replaced all segments.
        """
        start = self.state.state.log_start
        kept = [base for base in bases if base >= start]
        for base in bases[: len(bases) - len(kept)]:
            self._remove(base)
            self.recovery.removed.append(segment_path(self.directory, base) + LOG_SUFFIX)
        if not kept and self.durable_index >= start:
            raise LogCorrupt(f"{self.directory}: all segments from {start} on are missing; {_REPAIR}")
        return kept

    def _remove(self, base: int) -> None:
        path = segment_path(self.directory, base)
        self.filesystem.remove(path + LOG_SUFFIX)
        self.filesystem.remove(path + INDEX_SUFFIX)

    def _check(self, bases: list[int], covers: int) -> list[File]:
        """Fill ``segments`` and ``epochs`` from the files; return the files whose batches were all read."""
        files: list[File] = []
        expected: int = self.state.state.log_start
        for at, base in enumerate(bases):
            following = bases[at + 1] if at + 1 < len(bases) else None
            path = segment_path(self.directory, base) + LOG_SUFFIX
            if base != expected:
                self._damaged(path, 0, f"begins at offset {base}, should begin at {expected}", expected)
                self._cut(None, path, 0, f"a segment is missing before offset {base}", bases[at:])
                break
            file = self.filesystem.open(path)
            if following is not None and following <= covers:
                self.segments.append(self._check_ends(file, base, following))
                file.close()
                expected = following
                continue
            files.append(file)
            segment, damage = self._check_whole(file, base)
            self.segments.append(segment)
            expected = segment.last + 1
            if damage is not None and expected != following:  # otherwise the segment is whole
                self._damaged(path, damage.position, damage.reason, expected)
                self._cut(file, path, damage.position, damage.reason, bases[at + 1 :])
                break
        if self.durable_index >= expected:
            raise LogCorrupt(
                f"{self.directory}: the log ends before offset {expected}, but entries up to "
                f"{self.durable_index} were durable; {_REPAIR}"
            )
        if not self.segments or not self.segments[-1].is_active:
            self._begin(expected, files)
        return files

    def _check_terms(self) -> None:
        """Compare all leader epochs with the durable end, because the checksums of batches do not
        cover them.
        """
        state = self.state.state
        found = self.epochs.durable_end(state.log_start, state.before, state.durable_index)
        if state.durable_end.terms != UNKNOWN_TERMS and found != state.durable_end:
            raise LogCorrupt(
                f"{self.directory}: the leader epochs up to offset {state.durable_index} are not the "
                f"durable ones ({found} in place of {state.durable_end}): one of them is damaged; {_REPAIR}"
            )

    def _damaged(self, path: str, position: int, reason: str, offset: int) -> None:
        if offset <= self.durable_index:
            raise LogCorrupt(
                f"{path} at position {position} (offset {offset}): {reason}. Entries up to "
                f"{self.durable_index} were durable, so this is damage, not a torn tail; {_REPAIR}"
            )

    def _cut(self, file: File | None, path: str, position: int, reason: str, later: list[int]) -> None:
        removed = sum(
            file_size(self.filesystem, segment_path(self.directory, base) + LOG_SUFFIX) for base in later
        )
        for base in later:
            self._remove(base)
        if later:
            self.filesystem.sync_directory(self.directory)
        if file is not None:
            removed += file.size - position
            file.truncate(position)
        names = tuple(segment_path(self.directory, base) + LOG_SUFFIX for base in later)
        self.recovery.torn_tail = TornTail(path, position, reason, removed, names)

    def _check_ends(self, file: File, base: int, following: int) -> Segment:
        """Check a closed segment that was synced: its size, its first batch, and its index."""
        last_term = self.epochs.term_at(base)
        try:
            header = next(iter(walk_headers(file, 0, file.size)), (0, None))[1]
        except BatchDamaged as error:
            raise LogCorrupt(f"{file.path} at position 0: {error.reason}; {_REPAIR}") from None
        if header is None or header.base_offset != base or header.leader_epoch != last_term:
            raise LogCorrupt(
                f"{file.path} at position 0: the first batch should have offset {base} and epoch "
                f"{last_term}, found {header}; {_REPAIR}"
            )
        index_path = segment_path(self.directory, base) + INDEX_SUFFIX
        summary = load_summary(self.filesystem, index_path)
        is_known = summary is not None and summary.last_offset == following - 1
        if summary is None or not is_known or not ends_at(file, summary.size_bytes):
            summary = self._rebuild(file, base, following, index_path)
        return Segment.closed(self.filesystem, self.directory, summary, self.interval_bytes)

    def _rebuild(self, file: File, base: int, following: int, index_path: str) -> SegmentSummary:
        headers = ((position, batch.header) for position, batch in walk_file(file, base, last=following - 1))
        try:
            index, summary = build_index(headers, self.interval_bytes)
        except BatchDamaged as error:
            raise LogCorrupt(f"{file.path} at position {error.position}: {error.reason}; {_REPAIR}") from None
        if summary is None or summary.last_offset != following - 1:
            raise LogCorrupt(f"{file.path}: ends before offset {following}; {_REPAIR}")
        write_index(self.filesystem, index_path, index, summary)
        self.recovery.rebuilt.append(index_path)
        return summary

    def _forget_epochs(self) -> None:
        """Remove the epochs file: a repair has put entries that the file covers into the active segment.

        Cuts of the active segment ignore the file. The entries that it covers are in the log, and durable.
        """
        self.filesystem.remove(f"{self.directory}/{EPOCHS_NAME}")
        self.filesystem.sync_directory(self.directory)

    def _check_whole(self, file: File, base: int) -> tuple[Segment, BatchDamaged | None]:
        """Check every batch: its checksum, and the plausibility of the fields outside the checksum."""
        self.epochs.truncate_suffix(base)  # the segment may begin below the covered offset
        segment = Segment(self.filesystem, self.directory, base, self.interval_bytes)
        segment.activate(file)
        term_max = self.state.state.hard_state.term
        epoch = self.epochs.last_term
        try:
            for position, batch in walk_file(file, base, epoch):
                header = batch.header
                if header.leader_epoch > term_max:
                    # Hard state is synced before the log, so a batch of a newer term was never acknowledged.
                    raise BatchDamaged(
                        position, f"epoch {header.leader_epoch} is above the replica's term {term_max}"
                    )
                if header.leader_epoch != epoch:
                    epoch = header.leader_epoch
                    self.epochs.note(epoch, header.base_offset)
                if header.is_control:
                    self._note_membership(position, batch)
                if header.last_offset > self.durable_index:
                    file.write_at(position, batch.data)  # the checked bytes: the page cache may lose them
                segment.note(header)
        except BatchDamaged as error:
            return segment, error
        file.end_at(segment.size)
        return segment, None

    def _note_membership(self, position: int, batch: Batch) -> None:
        try:
            membership = membership_in(batch)
        except CorruptBatch as error:
            raise BatchDamaged(position, str(error)) from None
        if membership is not None:
            self.members.note(batch.base_offset, membership)

    def _begin(self, base: int, files: list[File]) -> None:
        """Create an active segment: the log is new, or its active segment was lost."""
        segment = Segment(self.filesystem, self.directory, base, self.interval_bytes)
        self.segments.append(segment)
        files.append(segment.create())

    def _make_durable(self, files: list[File]) -> None:
        """Sync the entries that were found, so that they count as durable, and close all segments but the
        last.
        """
        for file in files:
            file.truncate(file.size)  # repeats a cut whose sync failed
            file.sync()
        self.filesystem.sync_directory(self.directory)
        last, state = self.segments[-1].last, self.state.state
        if last > state.durable_index:  # so that the next opening need not write these entries again
            durable_end = self.epochs.durable_end(state.log_start, state.before, last)
            self.state.raise_durable_end(
                self.state.generation, state.log_start, durable_end, state.commit_index
            )
        for segment in self.segments[:-1]:
            if segment.is_active:
                segment.close()
        self._remove_stray_indexes()

    def _remove_stray_indexes(self) -> None:
        """Remove the indexes of the active segment and of lost segments: a segment's index is written at its
        close.
        """
        closed = {f"{segment.base:020d}{INDEX_SUFFIX}" for segment in self.segments[:-1]}
        for name in self.filesystem.list_directory(self.directory):
            if name.endswith(INDEX_SUFFIX) and name not in closed:
                self.filesystem.remove(f"{self.directory}/{name}")
