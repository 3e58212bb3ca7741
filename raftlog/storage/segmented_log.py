"""The log of one Raft group in segment files: ``LogStorage`` on a filesystem.

Decides where a batch goes (always the last segment, the active one), when that is closed, and what is
removed in which order. Leaves bytes within a segment to ``segment``, what is found on opening to
``recovery``, the order of reaching the disk to ``log_sync``, and what to delete to ``retention``.

    append          -> active segment -> readable
    take_sync, run  -> hard state, names, batches on the disk -> durable
    truncate_suffix -> promise withdrawn, later files removed, active one cut: each durable before the next
    truncate_prefix -> log start durable, then files removed
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from raftlog.clock import Clock
from raftlog.core.membership import Membership, MembershipEntry
from raftlog.core.ready import HardState
from raftlog.errors import InvariantViolated
from raftlog.records.batch import Batch
from raftlog.storage.append_rules import require_follows
from raftlog.storage.epochs import EPOCHS_NAME
from raftlog.storage.filesystem import File, Filesystem
from raftlog.storage.log_reads import LogReads
from raftlog.storage.log_storage import Sync
from raftlog.storage.log_sync import LogSync, SyncFailure
from raftlog.storage.members import membership_in
from raftlog.storage.recovery import OpenedLog, open_log
from raftlog.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment
from raftlog.storage.segment_list import SegmentList
from raftlog.storage.slots import Promise
from raftlog.storage.sparse_index import NOT_DATED
from raftlog.storage.state_files import StateFiles
from raftlog.types import EntryId, Index

_log = logging.getLogger("raftlog.storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Sizes and times of one log; the names are the topic's settings with dots."""

    segment_bytes: int = 128 << 20
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096


class SegmentedLog(LogReads):
    """See ``LogStorage``."""

    def __init__(
        self, filesystem: Filesystem, directory: str, settings: LogSettings, clock: Clock, opened: OpenedLog
    ) -> None:
        super().__init__(opened, StateFiles(filesystem, directory))
        self.states.drop_unless(self.holds)
        self.recovery = opened.recovery
        self._filesystem = filesystem
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._active = self._segments.active
        self._active_since_ms = self._birth_of_active()
        self._unsynced, self._names_changed, self._closed = list[File](), False, False
        self._epochs_due = len(opened.segments) > 1 and opened.epochs_cover != self._active.base
        self._syncs: list[LogSync] = []
        self._failure = SyncFailure(directory)

    @classmethod
    def open(
        cls,
        filesystem: Filesystem,
        directory: str,
        settings: LogSettings,
        clock: Clock,
        *,
        is_rejoining: bool = False,
    ) -> SegmentedLog:
        """Open or create the log; ``recovery`` says what was found. ``LogCorrupt``: a promise is broken.

        A log that is created ``is_rejoining`` belongs to a replica that may have voted and acknowledged
        before: see ``HardState``. One that is there already has kept what it was created as.
        """
        opened = open_log(filesystem, directory, settings.index_interval_bytes, is_rejoining=is_rejoining)
        if opened.recovery.torn_tail is not None:
            _log.warning("%s: what was never promised was cut off: %s", directory, opened.recovery.torn_tail)
        return cls(filesystem, directory, settings, clock, opened)

    @property
    def directory(self) -> str:
        """Where its files lie."""
        return self._directory

    def reconfigure(self, settings: LogSettings) -> None:
        """New sizes and times, from the next append on."""
        self._settings = settings

    def keep_birth(self, membership: Membership) -> None:
        """Who took part before the first entry, unless that is kept already; durable with the next sync."""
        if self._members.base(self.first_index) is None:
            self._members.keep_base(self.first_index, MembershipEntry(Index(self._first - 1), membership))

    def append(self, batches: Sequence[Batch]) -> None:
        """Put batches at the end; they are readable at once."""
        require_follows(
            self._directory, batches, self._last + 1, self._epochs.last_term, self._state.state.hard_state
        )
        last = self._last
        try:
            at = 0
            while at < len(batches):
                at = self._append_run(batches, at)
        except OSError:
            if self._last > last:  # a part went into a segment that is full now
                self.truncate_suffix(Index(last + 1))
            raise

    def _append_run(self, batches: Sequence[Batch], at: int) -> int:
        """Write as many batches as the active segment takes, at least one; return where to go on."""
        size, size_max = self._active.size, self._settings.segment_bytes
        if size and (size + len(batches[at].data) > size_max or self._is_due()):
            self._roll()
            size = 0
        buffers = []
        start = at
        while at < len(batches):
            data = batches[at].data
            size += len(data)
            if size > size_max and at > start:
                break
            buffers.append(data)
            at += 1
        active = self._active
        file = active.file
        assert file is not None
        file.append(buffers)
        if not self._unsynced or self._unsynced[-1] is not file:
            self._unsynced.append(file)
        now_ms = self._clock.wall_ms() if self._clock.is_known else NOT_DATED
        for batch in batches[start:at]:
            header = batch.header
            if header.leader_epoch != self._epochs.last_term:
                self._epochs.note(header.leader_epoch, header.base_offset)
            active.note(header, now_ms)
            if header.is_control and (membership := membership_in(batch)) is not None:
                self._members.note(header.base_offset, membership)
        self._last = active.last
        return at

    def roll_if_due(self) -> bool:
        """Close the active segment if it is older than ``segment_ms``, so that retention can reach it."""
        due = self._active.size > 0 and self._is_due()
        if due:
            self._roll()
        return due

    def _roll(self) -> None:
        interval = self._settings.index_interval_bytes
        segment = Segment(self._filesystem, self._directory, self._last + 1, interval)
        segment.file = self._filesystem.open(segment.path + LOG_SUFFIX, create=True)
        self._active.close()
        self._segments.push(segment)
        self._active = segment
        self._names_changed = self._epochs_due = True
        self._active_since_ms = self._birth_of_active()

    def _is_due(self) -> bool:
        return self._clock.wall_ms() - self._active_since_ms >= self._settings.segment_ms

    def _birth_of_active(self) -> int:
        """When its age began: now, or when its newest batch was stored if it has been there before."""
        now = self._clock.wall_ms()
        newest = self._active.stored_ms
        return newest if 0 <= newest < now else now

    def date(self, now_ms: int) -> None:
        """Segments of which it is not known when they were stored count as stored now.

        That is so after a crash, where producers set the times of records.
        """
        for segment in (*self._segments.closed, self._active):
            if segment.stored_ms == NOT_DATED:
                segment.stored_ms = now_ms

    def truncate_suffix(self, first_removed: Index) -> None:
        """Forget this entry and all after it, durably: a cut must not be undone by a power loss."""
        if first_removed > self._last:
            return
        if first_removed < self._first:
            raise InvariantViolated(
                f"{self._directory}: cut at {first_removed} below the log start {self._first}"
            )
        at = self._segments.position_of(first_removed)
        segment = self._segments[at]
        file = segment.open_file()
        place = segment.locate(file, first_removed)
        if place.base != first_removed:
            raise InvariantViolated(f"{self._directory}: cut at {first_removed}, inside batch {place}")
        self.removals += 1
        with self._failure.is_final():
            self._forget_syncs(first_removed - 1)
            self._state.withdraw(self._promise(first_removed - 1))
            if segment is not self._active:
                self._reopen(at)
            segment.truncate(file, place)
        self._epochs.truncate_suffix(first_removed)
        self._members.truncate_suffix(first_removed)
        self._last = segment.last

    def _forget_syncs(self, last: int) -> None:
        for sync in self._syncs:
            sync.covers = Index(min(sync.covers, last))
        self._durable = min(self._durable, last)

    def _reopen(self, at: int) -> None:
        """Make segment ``at`` the active one again: later files and what speaks of them go first."""
        later = self._segments.drop_after(at)
        self._active = self._segments.active
        self._filesystem.remove(f"{self._directory}/{EPOCHS_NAME}")
        self._filesystem.sync_directory(self._directory)  # it promises the segments that go now
        self._remove_files(reversed(later))
        self._filesystem.remove(self._active.path + INDEX_SUFFIX)
        self._filesystem.sync_directory(self._directory)
        paths = {segment.path + LOG_SUFFIX for segment in later}
        self._unsynced = [file for file in self._unsynced if file.path not in paths]
        self._epochs_due = at > 0
        self._active_since_ms = self._birth_of_active()

    def _remove_files(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            self._filesystem.remove(segment.path + LOG_SUFFIX)
            self._filesystem.remove(segment.path + INDEX_SUFFIX)

    def truncate_prefix(self, first_kept: Index) -> Index:
        """Delete the closed segments that end below ``first_kept``; return ``first_index``.

        The segment with the newest durable entry stays: the one behind it may lack a durable name.
        """
        limit = min(first_kept, self._durable)
        count = sum(1 for segment in self._segments.closed if segment.last < limit)
        if count:
            self.removals += 1
            start = Index(self._segments[count].base)
            self._members.move_start(self.first_index, start)
            with self._failure.is_final():
                before = self.term_at(Index(start - 1))
                self._state.set_log_start(start, before, partial(self._epochs.promise, start, before))
            self._remove_files(self._segments.drop_before(count))
            self.states.remove_below(start)
            self._epochs.truncate_prefix(start)
            self._members.truncate_prefix(start)
            self._names_changed = True
            self._first = start
        return Index(self._first)

    def install(self, snapshot: EntryId, membership: Membership, state: bytes) -> None:
        """Empty the log and let it begin after ``snapshot``; see ``LogStorage.install``.

        What conflicts with the snapshot is cut first, as by an append, so that all segments end below the
        new start: whatever a crash leaves of them is removed on opening. Until the slot says where the log
        begins, it is the old log, whole.
        """
        self.removals += 1
        start = Index(snapshot.index + 1)
        if self._last >= snapshot.index:
            place = self._segments[self._segments.position_of(snapshot.index)]
            self.truncate_suffix(Index(place.locate(place.open_file(), snapshot.index).base))
        self.states.save(snapshot, state)
        self._members.move_start(self.first_index, start, MembershipEntry(snapshot.index, membership))
        with self._failure.is_final():
            self._forget_syncs(self._first - 1)
            self._epochs.clear()
            self._state.restart(start, self._epochs.promise(start, snapshot.term, snapshot.index))
            self._filesystem.remove(f"{self._directory}/{EPOCHS_NAME}")
            self._begin_anew(start)
        self._members.truncate_prefix(start)
        self.states.remove_below(start)
        self._first, self._last, self._durable = start, snapshot.index, snapshot.index
        self._commit = max(self._commit, snapshot.index)

    def _begin_anew(self, start: Index) -> None:
        old = self._segments
        if self._active.file is not None:
            self._active.file.close()
        segment = Segment(self._filesystem, self._directory, start, self._settings.index_interval_bytes)
        segment.file = self._filesystem.open(segment.path + LOG_SUFFIX, create=True)
        self._segments, self._active = SegmentList([segment]), segment
        self._remove_files([*old.closed, old.active])
        self._unsynced, self._epochs_due, self._names_changed = [segment.file], False, True
        self._active_since_ms = self._birth_of_active()

    def save_hard_state(self, hard_state: HardState) -> None:
        """Durable once the next sync has run; costs no system call here."""
        self._state.set_hard_state(hard_state)

    def note_commit_index(self, commit_index: Index) -> None:
        """Keep a hint, written with the next sync and at ``close``."""
        if commit_index > self._commit:
            self._commit = commit_index

    def take_sync(self) -> Sync | None:
        """The flush for everything changed since the last call, or None."""
        sidecars_due = self._members.is_due or self.states.is_due
        if not (self._unsynced or self._state.is_dirty or self._names_changed or sidecars_due):
            return None
        # One that is under way may come to its end behind this one, which must not promise its part unseen.
        files = dict.fromkeys(file for sync in self._syncs for file in sync.files)
        sync = LogSync(
            self._filesystem,
            self._directory,
            self._state,
            self._members,
            self.states,
            self._failure,
            [*(files | dict.fromkeys(self._unsynced))],
            self._promise(self._last),
            self.first_index,
            Index(self._commit),
            names_changed=self._names_changed or any(sync.names_changed for sync in self._syncs),
            epochs=self._encode_epochs() if self._epochs_due else None,
        )
        self._unsynced = []
        self._names_changed = self._epochs_due = False
        self._syncs.append(sync)
        return sync

    def _promise(self, last: int) -> Promise:
        return self._epochs.promise(self._first, self._state.state.before, last)

    def _encode_epochs(self) -> bytes:
        covers = self._active.base
        return self._epochs.encode(covers, self._members.below(covers))

    def sync_finished(self, sync: Sync) -> None:
        """Move ``durable_index`` forward: up to where this and all earlier syncs have finished."""
        assert isinstance(sync, LogSync)
        sync.is_finished = True
        self._epochs_due |= sync.missed_epochs
        while self._syncs and self._syncs[0].is_finished:
            self._durable = max(self._durable, self._syncs.pop(0).covers)

    def save_checkpoint(self, index: Index, state: bytes) -> None:
        """Keep the state machine's snapshot; the log up to it is made durable first."""
        if index > self._durable:
            self._sync_now()
        self.states.save_checkpoint(EntryId(self.term_at(index), index), state)

    def _sync_now(self) -> None:
        self.take_sync()
        if self._syncs:
            self._syncs[-1].run()  # does what those before it have yet to do, too
            for sync in tuple(self._syncs):
                self.sync_finished(sync)

    def write_anew(self) -> None:
        """Slots and epochs on the disk were damaged behind our back: what is known here is the truth."""
        with self._failure.is_final():
            self._state.save_twice()
        self._epochs_due |= bool(self._segments.closed)

    def close(self) -> None:
        """Sync, write the commit hint, close the files. After a failed sync only the last."""
        if self._closed:
            return
        self._closed = True
        file = self._active.file
        assert file is not None
        with contextlib.closing(file):
            if not self._failure.happened:
                self._names_changed |= self._epochs_due
                self._sync_now()
                with self._failure.is_final():
                    promise, state = self._promise(self._durable), self._state
                    state.raise_promise(state.generation, self.first_index, promise, Index(self._commit))
                    self._state.save()
