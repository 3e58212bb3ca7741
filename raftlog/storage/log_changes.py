"""Truncations of a segmented log and replacements of its content, with their waits for the disk.

Decides the order of the steps in memory and on the disk. A change begins and finishes on the owner's thread.
Between the two, the part that waits for the disk may run on another thread (``LogChange``).

cut             -> durable end lowered, later files removed, active file cut: each durable before the next
prefix_change   -> log start durable; entries forgotten in memory; then files removed
replace_change  -> index removed; new file renamed: each durable before the next
install_change  -> conflicts cut; state, members and log start durable; forgotten in memory; files removed
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from raftlog.clock import Clock
from raftlog.core.membership import Membership, MembershipEntry
from raftlog.errors import InvariantViolated
from raftlog.storage.epochs import EPOCHS_NAME, Epochs
from raftlog.storage.filesystem import File, Filesystem
from raftlog.storage.log_reads import LogReads
from raftlog.storage.log_storage import LogChange, after
from raftlog.storage.log_sync import LogSync, SyncFailure
from raftlog.storage.recovery import OpenedLog
from raftlog.storage.retention import ClosedSegment
from raftlog.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, Place, Segment, segment_path
from raftlog.storage.segment_list import SegmentList
from raftlog.storage.segment_rewriter import RewrittenSegment, joining_path
from raftlog.storage.slots import DurableEnd
from raftlog.storage.sparse_index import INDEX_INTERVAL_BYTES, SparseIndex, write_index
from raftlog.storage.state_files import StateFiles
from raftlog.types import EntryId, Index


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Sizes and times of one log; each field is named as the topic's setting, with underscores."""

    segment_bytes: int = 128 << 20
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = INDEX_INTERVAL_BYTES


class _Cut(NamedTuple):
    """The end of a log after a cut that is still to be made on the disk."""

    file: File  # of the segment; the segment's position in the list changes when older ones are removed
    offsets: SparseIndex
    place: Place


class LogChanges(LogReads):
    """The part of a ``SegmentedLog`` that removes and replaces entries."""

    def __init__(
        self, filesystem: Filesystem, directory: str, settings: LogSettings, clock: Clock, opened: OpenedLog
    ) -> None:
        super().__init__(opened, StateFiles(filesystem, directory))
        self._filesystem = filesystem
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._active = self._segments.active
        self._active_since_ms = self._birth_of_active()
        self._unsynced, self._names_changed, self._closed = list[File](), False, False
        self._epochs_due = len(opened.segments) > 1 and opened.epochs_cover != self._active.base
        self._syncs: list[LogSync] = []
        self._cut: _Cut | None = None  # a cut that is done in memory and pending on the disk
        self._running = 0  # the number of unfinished changes: a cut may come between the parts of another
        self._removable: list[Segment] = []  # segments whose files are no longer needed
        self._failure = SyncFailure(directory)

    @property
    def is_changing(self) -> bool:
        """Whether a change of the log is unfinished or pending, so that no batch can be appended."""
        return self._running > 0 or self._cut is not None

    def cut(self, first_removed: Index) -> None:
        """Forget this entry and all later entries in memory; ``cut_change`` removes them on the disk."""
        if first_removed > self.last_index:
            return
        if first_removed < self.first_index:
            raise InvariantViolated(
                f"{self._directory}: cut at {first_removed} below the log start {self.first_index}"
            )
        segment = self._segments[self._segments.position_of(first_removed)]
        file = segment.open_to_cut()
        place = segment.locate(file, first_removed)
        if place.base != first_removed:
            raise InvariantViolated(f"{self._directory}: cut at {first_removed}, inside batch {place}")
        self._cut = _Cut(file, segment.index, place)
        self._forget_syncs(first_removed - 1)
        self._epochs.truncate_suffix(first_removed)
        self._members.truncate_suffix(first_removed)
        self.last_index = Index(first_removed - 1)

    def cut_change(self) -> LogChange | None:
        """The part on the disk of the last ``cut``; None without a pending cut.

        A power loss must not undo a cut.
        """
        cut, self._cut = self._cut, None
        if cut is None:
            return None
        at = self._segments.position_of(cut.place.base)
        segment, durable_end = self._segments[at], self._durable_end(cut.place.base - 1)
        is_reopened = segment is not self._active

        def run() -> None:
            with self._failure.is_final():
                self._state.withdraw(durable_end)
                if is_reopened:
                    self._remove_later(at)
                # If new batches reached the disk before the cut does, a power loss could leave a
                # new batch followed by an old batch that fits after it.
                cut.file.truncate(cut.place.position)
                cut.file.sync()

        def finish() -> None:
            self.removals += 1
            if is_reopened:
                self._reopen(at)
            segment.reopen(cut.file, cut.offsets, cut.place)

        def give_up() -> None:
            self._cut = self._cut or cut  # the cut is still pending

        return self._change(run, finish, give_up, is_long=False)

    def _forget_syncs(self, last: int) -> None:
        for sync in self._syncs:
            sync.covers = Index(min(sync.covers, last))
        self._durable = min(self._durable, last)

    def _remove_later(self, at: int) -> None:
        """Remove the segments after segment ``at`` from the disk, after the file that describes them."""
        self._filesystem.remove(f"{self._directory}/{EPOCHS_NAME}")
        self._filesystem.sync_directory(self._directory)  # the file covers the segments that are removed now
        self._remove_files(self._segments.behind(at))
        self._filesystem.remove(self._segments[at].path + INDEX_SUFFIX)
        self._filesystem.sync_directory(self._directory)

    def _reopen(self, at: int) -> None:
        """Make segment ``at`` the active segment again, after a cut inside it."""
        later = self._segments.drop_after(at)
        self._active = self._segments.active
        for segment in later:
            segment.let_go()
        paths = {segment.path + LOG_SUFFIX for segment in later}
        self._unsynced = [file for file in self._unsynced if file.path not in paths]
        self._epochs_due = at > 0
        self._active_since_ms = self._birth_of_active()

    def _remove_files(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            self._filesystem.remove(segment.path + LOG_SUFFIX)
            self._filesystem.remove(segment.path + INDEX_SUFFIX)

    def prefix_change(self, first_kept: Index) -> LogChange | None:
        """Delete the closed segments that end below ``first_kept``.

        The segment with the newest durable entry stays: the next segment's name may not be durable. Files
        are removed last, when no reader has them open.
        """
        limit = min(first_kept, self._durable)
        count = sum(1 for segment in self._segments.closed if segment.last < limit)
        if not count:
            return None
        start = Index(self._segments[count].base)
        before = self.term_at(Index(start - 1))

        def run() -> None:
            self._members.move_start(self.first_index, start)
            with self._failure.is_final():
                self._state.set_log_start(start, before, partial(self._epochs.durable_end, start, before))

        def finish() -> None:
            self.removals += 1
            self._removable += self._segments.drop_before(count)
            self._epochs.truncate_prefix(start)
            self._members.truncate_prefix(start)
            self._names_changed = True
            self.first_index = start

        return self._change(run, finish)

    def replace_change(self, rewritten: RewrittenSegment) -> LogChange:
        """Put a compacted file in the place of its segments if they are unchanged; else remove the new file.

        Indexes are removed first: an old index must not be used with a new file of equal size. Segments after
        the first one are removed last. Until then a file records the join, so that an opening of the log
        finishes it.
        """
        filesystem, (first, *others) = self._filesystem, rewritten.old
        current = [each for each in self.compactable_segments if first.base <= each.base <= rewritten.last]
        if len(current) != len(rewritten.old) or not all(
            map(ClosedSegment.is_same_as, current, rewritten.old)
        ):
            return LogChange(partial(filesystem.remove, rewritten.path), is_long=False)
        summary = replace(rewritten.summary, stored_ms=max(each.stored_ms for each in current))
        interval = self._settings.index_interval_bytes
        segment = Segment.closed(filesystem, self._directory, summary, interval)
        joining = joining_path(self._directory, segment.base, segment.last)
        paths = [segment_path(self._directory, each.base) for each in rewritten.old]

        def run() -> None:
            if others:
                filesystem.open(joining, create=True).close()
            with self._failure.is_final():
                for path in paths:
                    filesystem.remove(path + INDEX_SUFFIX)
                filesystem.sync_directory(self._directory)
                filesystem.rename(rewritten.path, segment.path + LOG_SUFFIX)
                filesystem.sync_directory(self._directory)
                if others:
                    for path in paths[1:]:
                        filesystem.remove(path + LOG_SUFFIX)
                    self.states.remove_between(others[0].base, segment.last)
                    filesystem.sync_directory(self._directory)
                    filesystem.remove(joining)
            write_index(filesystem, segment.path + INDEX_SUFFIX, rewritten.index, summary)

        def finish() -> None:
            self.removals += 1
            self._segments.replace(segment)

        return self._change(run, finish, is_long=False)

    def superseded_states_change(self, end: Index) -> LogChange:
        """Remove the saved states below ``end``, so that no later opening applies the log from
        one of them.
        """
        return LogChange(partial(self.states.remove_superseded, self.first_index, end))

    def removal_change(self) -> LogChange | None:
        """Remove the files of segments that were dropped from the log.

        If a crash prevents this, the next opening of the log removes them. None if there are no such files.
        """
        segments, self._removable = self._removable, []
        start = self.first_index

        def run() -> None:
            self._remove_files(segments)
            self.states.remove_below(start)

        return LogChange(run) if segments else None

    def install_change(self, snapshot: EntryId, membership: Membership, state: bytes) -> LogChange | None:
        """Empty the log and let it begin after ``snapshot``; see ``LogStorage.install_change``.

        Entries that conflict with the snapshot are cut first, as before an append, so that all segments end
        below the new start: an opening removes the segments that a crash leaves. As long as the slot has the
        old log start, the old log is whole.
        """
        if self.last_index >= snapshot.index:
            place = self._segments[self._segments.position_of(snapshot.index)]
            self.cut(Index(place.locate(place.open_file(), snapshot.index).base))
        return after(self.cut_change(), partial(self._install, snapshot, membership, state))

    def _install(self, snapshot: EntryId, membership: Membership, state: bytes) -> LogChange:
        start = Index(snapshot.index + 1)
        segment = Segment(self._filesystem, self._directory, start, self._settings.index_interval_bytes)

        files: list[File] = []

        def run() -> None:
            self.states.save(snapshot, state)
            self._members.move_start(self.first_index, start, MembershipEntry(snapshot.index, membership))
            with self._failure.is_final():
                self._state.restart(start, Epochs().durable_end(start, snapshot.term, snapshot.index))
                self._filesystem.remove(f"{self._directory}/{EPOCHS_NAME}")
                files.append(segment.create())

        def finish() -> None:
            self.removals += 1
            self._resync_fully(segment, files)
            self._epochs.clear()
            self._members.truncate_prefix(start)
            self.first_index, self.last_index, self._durable = start, snapshot.index, snapshot.index
            self._commit = max(self._commit, snapshot.index)

        return self._change(run, finish)

    def _resync_fully(self, segment: Segment, files: list[File]) -> None:
        """Make this segment the only one of the log; the segments before it are no longer needed."""
        self._removable += [*self._segments.closed, self._active]
        self._active.close_file()
        self._forget_syncs(self.first_index - 1)
        self._segments, self._active = SegmentList([segment]), segment
        self._unsynced, self._epochs_due, self._names_changed = files, False, True
        self._active_since_ms = self._birth_of_active()

    def _change(
        self,
        run: Callable[[], None],
        finish: Callable[[], LogChange | None],
        give_up: Callable[[], None] = lambda: None,
        *,
        is_long: bool = True,
    ) -> LogChange:
        """A change of the log with these steps; no batch can be appended before it is finished."""
        self._running += 1

        def ended(how: Callable[[], LogChange | None]) -> LogChange | None:
            self._running -= 1
            return how()

        return LogChange(run, partial(ended, finish), partial(ended, give_up), is_long=is_long)

    def _durable_end(self, last: int) -> DurableEnd:
        return self._epochs.durable_end(self.first_index, self._state.state.before, last)

    def _birth_of_active(self) -> int:
        """The wall time from which the age of the active segment counts: of its newest batch, or now."""
        now = self._clock.wall_ms()
        newest = self._active.stored_ms
        return newest if 0 <= newest < now else now
