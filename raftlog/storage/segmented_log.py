"""The log of one Raft group in segment files: ``LogStorage`` on a filesystem.

Decides the place of a batch (always the last segment, the active one) and when that segment is closed. Leaves
bytes in a segment to ``segment``, the order of removals to ``log_changes``, opening a log
to ``recovery``, the order of syncs to ``log_sync``, and what to delete to ``retention``.

    append          -> active segment -> readable
    take_sync, run  -> hard state, names, batches on the disk -> durable
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from functools import partial

from raftlog.clock import Clock
from raftlog.core.membership import Membership, MembershipEntry
from raftlog.core.ready import HardState
from raftlog.errors import InvariantViolated, LogCorrupt
from raftlog.records.batch import CONTROL_BIT, Batch
from raftlog.storage.append_rules import require_follows
from raftlog.storage.filesystem import Buffer, File, Filesystem, is_disk_full
from raftlog.storage.log_changes import LogChanges, LogSettings
from raftlog.storage.log_storage import LogChange, Sync, after, carry_out
from raftlog.storage.log_sync import LogSync
from raftlog.storage.members import membership_in
from raftlog.storage.recovery import OpenedLog, open_log
from raftlog.storage.segment import Segment
from raftlog.storage.sparse_index import NOT_DATED
from raftlog.types import EntryId, Index

__all__ = ["LogSettings", "SegmentedLog"]

_log = logging.getLogger("raftlog.storage")


class SegmentedLog(LogChanges):
    """The ``LogStorage`` of one Raft group in segment files."""

    def __init__(
        self, filesystem: Filesystem, directory: str, settings: LogSettings, clock: Clock, opened: OpenedLog
    ) -> None:
        super().__init__(filesystem, directory, settings, clock, opened)
        self.states.drop_unless(self.holds)
        self.recovery = opened.recovery
        self.owes_end = False  # whether a sync has ended since the durable end was noted
        self._may_note_end = True

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
        """Open or create the log; its ``recovery`` has the repairs that were made. Raises ``LogCorrupt``.

        A log that is created ``is_rejoining`` belongs to a replica that may have voted and acknowledged
        before: see ``HardState``. An existing log keeps the flag of its creation.
        """
        opened = open_log(filesystem, directory, settings.index_interval_bytes, is_rejoining=is_rejoining)
        if opened.recovery.torn_tail is not None:
            _log.warning("%s: cut off a torn tail (never durable): %s", directory, opened.recovery.torn_tail)
        return cls(filesystem, directory, settings, clock, opened)

    @property
    def directory(self) -> str:
        """The directory of the log."""
        return self._directory

    @property
    def segment_bytes(self) -> int:
        """The size in bytes at which a segment is closed."""
        return self._settings.segment_bytes

    def reconfigure(self, settings: LogSettings) -> None:
        """Use new sizes and times, from the next append on."""
        self._settings = settings

    def store_initial_membership(self, membership: Membership) -> None:
        """Store the membership before the first entry, if none is stored yet; durable with the next sync."""
        if self._members.base(self.first_index) is None:
            self._members.keep_base(
                self.first_index, MembershipEntry(Index(self.first_index - 1), membership)
            )

    def append(self, batches: Sequence[Batch]) -> None:
        """Append batches; they are readable at once."""
        require_follows(
            self._directory,
            batches,
            self.last_index + 1,
            self._epochs.last_term,
            self._state.state.hard_state,
        )
        if self.is_changing:
            raise InvariantViolated(f"{self._directory}: an append while a change waits for the disk")
        at = 0
        while at < len(batches):
            at = self._append_run(batches, at)

    def _append_run(self, batches: Sequence[Batch], at: int) -> int:
        """Write as many batches as fit into the active segment, at least one; return the position of the
        next.

        Positions count the batches in ``batches``.
        """
        size, size_max = self._active.size, self._settings.segment_bytes
        now_ms = self._clock.wall_ms()
        if size and (size + len(batches[at].data) > size_max or self._is_due(now_ms)):
            self._roll()
            size = 0
        buffers: list[Buffer] = []
        start, start_size = at, size
        while at < len(batches):
            data = batches[at].data
            if size + len(data) > size_max and at > start:
                break
            size += len(data)
            buffers.append(data)
            at += 1
        active = self._active
        file = active.append(buffers, size - start_size, size_max)
        if not self._unsynced or self._unsynced[-1] is not file:
            self._unsynced.append(file)
        dated_ms = now_ms if self._clock.is_known else NOT_DATED
        for batch in batches[start:at]:
            header = batch.header
            if header.leader_epoch != self._epochs.last_term:
                self._epochs.note(header.leader_epoch, header.base_offset)
            active.note(header, dated_ms)
            if header.attributes & CONTROL_BIT and (membership := membership_in(batch)) is not None:
                self._members.note(header.base_offset, membership)
        self.last_index = Index(active.last)
        return at

    def roll_if_due(self) -> bool:
        """Close the active segment if it is older than ``segment_ms``, so that retention can delete it."""
        due = self._active.size > 0 and self._is_due(self._clock.wall_ms()) and not self.is_changing
        if due:
            self._roll()
        return due

    def roll_up_to(self, index: Index) -> bool:
        """Close the active segment if it has an entry at or below ``index``, so that retention
        can delete it.
        """
        active = self._active
        is_wanted = active.size > 0 and active.base <= index and not self.is_changing
        if is_wanted:
            self._roll()
        return is_wanted

    def _roll(self) -> None:
        interval = self._settings.index_interval_bytes
        segment = Segment(self._filesystem, self._directory, self.last_index + 1, interval)
        segment.create()
        self._active.close()
        self._segments.push(segment)
        self._active = segment
        self._names_changed = self._epochs_due = True
        self._active_since_ms = self._birth_of_active()

    def _is_due(self, now_ms: int) -> bool:
        return now_ms - self._active_since_ms >= self._settings.segment_ms

    def date(self, now_ms: int) -> None:
        """Set the storage time of segments whose time is unknown to ``now_ms``.

        The time is unknown after a crash if producers set the times of records.
        """
        for segment in (*self._segments.closed, self._active):
            if segment.stored_ms == NOT_DATED:
                segment.stored_ms = now_ms

    def save_hard_state(self, hard_state: HardState) -> None:
        """Save a hard state; durable once the next sync has run. Makes no system call."""
        self._state.set_hard_state(hard_state)

    def note_commit_index(self, commit_index: Index) -> None:
        """Keep a commit index as a hint, written with the next sync and at ``close``."""
        if commit_index > self._commit:
            self._commit = commit_index

    def tick(self) -> None:
        """Allow the next sync to record the durable end again; called once a tick."""
        self._may_note_end = True

    def take_sync(self) -> Sync | None:
        """The flush of all changes since the last call; None without changes."""
        sidecars_due = self._members.is_due or self.states.is_due
        is_end_due = self.owes_end and self._may_note_end
        if not (self._unsynced or self._state.is_dirty or self._names_changed or sidecars_due or is_end_due):
            return None
        notes_end, self._may_note_end = self._may_note_end, False
        self.owes_end = not notes_end
        files, names_changed = dict[File, None](), self._names_changed
        # An earlier sync may finish after this one, so this sync repeats the earlier one's part.
        for under_way in self._syncs:
            files |= dict.fromkeys(under_way.files)
            names_changed |= under_way.names_changed
        sync = LogSync(
            self._filesystem,
            self._directory,
            self._state,
            self._members,
            self.states,
            self._failure,
            [*(files | dict.fromkeys(self._unsynced))],
            self._durable_end(self.last_index),
            self.first_index,
            Index(self._commit),
            names_changed=names_changed,
            notes_end=notes_end,
            epochs=self._encode_epochs() if self._epochs_due else None,
        )
        self._unsynced = []
        self._names_changed = self._epochs_due = False
        self._syncs.append(sync)
        return sync

    def _encode_epochs(self) -> bytes:
        covers = self._active.base
        return self._epochs.encode(covers, self._members.below(covers))

    def sync_finished(self, sync: Sync) -> None:
        """Raise ``durable_index`` after this sync, up to the entries that all finished syncs cover."""
        assert isinstance(sync, LogSync)
        sync.is_finished = True
        self._epochs_due |= sync.missed_epochs
        while self._syncs and self._syncs[0].is_finished:
            self._durable = max(self._durable, self._syncs.pop(0).covers)

    def rewrite_change(self) -> LogChange:
        """The change that writes slots and epochs again from memory, after damage to them on the disk."""

        def run() -> None:
            with self._failure.is_final():
                self._state.save_twice()

        def finish() -> None:
            self._epochs_due |= bool(self._segments.closed)

        return LogChange(run, finish, is_long=False)

    def close_change(self, checkpoint: tuple[Index, bytes] | None = None) -> LogChange | None:
        """The change that syncs, writes checkpoint and commit hint, and closes the files.

        After a failed sync it only closes the files.
        """
        if self._closed:
            return None
        self._closed = True
        if self._failure.happened:
            return self._close(checkpoint)
        return after(
            self.cut_change(), lambda: after(self.removal_change(), partial(self._close, checkpoint))
        )

    def _close(self, checkpoint: tuple[Index, bytes] | None) -> LogChange | None:
        active = self._active
        if self._failure.happened:
            active.close_file()
            return None
        self._names_changed |= self._epochs_due
        self.take_sync()
        syncs, durable_end, state = tuple(self._syncs), self._durable_end(self.last_index), self._state
        at = None if checkpoint is None else EntryId(self.term_at(checkpoint[0]), checkpoint[0])

        def run() -> None:
            try:
                if syncs:
                    syncs[-1].run()  # includes the unfinished work of all earlier syncs
                if checkpoint is not None and at is not None:
                    self._save_if_room(at, checkpoint[1])
                with self._failure.is_final():
                    state.raise_durable_end(
                        state.generation, self.first_index, durable_end, Index(self._commit)
                    )
                    state.save()
                with contextlib.suppress(OSError, LogCorrupt):  # zeros are harmless, damage is found later
                    active.end_fill()
            finally:
                active.close_file()

        def finish() -> None:
            for sync in syncs:
                self.sync_finished(sync)

        return self._change(run, finish, is_long=False)

    def _save_if_room(self, at: EntryId, state: bytes) -> None:
        try:
            self.states.save_checkpoint(at, state)
        except OSError as error:
            if not is_disk_full(error):
                raise

    def close(self) -> None:
        """Sync, write the commit hint, and close the files. Blocks."""
        carry_out(self.close_change())
