"""Carries out the writes of a core: appends to the log, and holds messages until they are durable.

Decides: which batches belong to which ``Write``, and which messages a finished sync releases.
A full disk is no failure: batches that do not fit wait in memory, and so do their messages, and the append
is retried. Every other ``OSError`` is raised and ends the replica. Batches also wait while the
log is cut or otherwise changed. Term and vote never wait for room or changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from raftlog.core.entries import EntryKind, EntrySpan
from raftlog.core.messages import Envelope
from raftlog.core.ready import Write
from raftlog.node.group.recent_entries import RecentEntries
from raftlog.records.batch import Batch
from raftlog.records.compaction import cut_gap
from raftlog.records.control import leader_change_batch
from raftlog.storage.filesystem import is_disk_full
from raftlog.storage.log_storage import Sync, WritableLog
from raftlog.storage.members import batch_of
from raftlog.types import Index, NodeId, WriteId

Reply = TypeVar("Reply")


class _Waiting(NamedTuple):
    """A write that is not durable yet."""

    write_id: WriteId
    messages: tuple[Envelope, ...]
    has_entries: bool  # otherwise its messages depend on the hard state alone
    last: Index  # the log's last index once the write is done


class Synced(NamedTuple):
    """The outcome of a sync: the writes that it completes, and their messages."""

    writes: Sequence[_Waiting]  # oldest first
    hard_state: WriteId | None = None  # a write whose term and vote are durable, but whose entries wait
    messages: Sequence[Envelope] = ()  # messages that depend on that hard state alone


class LogWriter(Generic[Reply]):
    """Appends to one group's log and truncates it."""

    def __init__(
        self, log: WritableLog, recent: RecentEntries[Reply], node_id: NodeId, wall_ms: Callable[[], int]
    ) -> None:
        self._log = log
        self._recent = recent
        self._node_id = node_id
        self._wall_ms = wall_ms  # for control records
        self._writes: deque[_Waiting] = deque()
        self._hard_state: WriteId | None = None  # the newest write whose term and vote may not be durable
        self._sync: Sync | None = None  # the running sync
        self._syncing = 0  # the number of ``_writes`` that it covers
        self._saving: WriteId | None = None  # the hard state that it covers
        self.is_full = False  # whether the disk had no room for the waiting batches

    @property
    def is_blocked(self) -> bool:
        """Whether batches wait for room on the disk, or for a change of the log."""
        return self._recent.has_unwritten

    def write(self, write: Write, received: Sequence[Batch] = ()) -> None:
        """Carry out one ``Write``, except the append of its batches: see ``try_append``.

        ``received``: the batches of the message that the core has just handled; the write may use a part of
        them.
        """
        if write.hard_state is not None:
            self._log.save_hard_state(write.hard_state)
            self._hard_state = write.write_id
        if write.truncate_from is not None:
            self._truncate(write.truncate_from)
        if write.spans:
            if received:
                first, last = write.spans[0].first, write.spans[-1].last
                cut = [cut_gap(batch, first, last) for batch in received]
                self._recent.stage([batch for batch in cut if first <= batch.base_offset <= last])
            for span in write.spans:
                is_proposed = span.kind is EntryKind.DATA
                self._recent.name(span, None if is_proposed else self._made(span, is_received=bool(received)))
        self._writes.append(
            _Waiting(write.write_id, write.send_after, bool(write.spans), self._recent.named_index)
        )

    def try_append(self) -> None:
        """Append the waiting batches; batches for which a full disk has no room continue to wait.

        Raises other kinds of ``OSError``.
        """
        if not self._recent.has_unwritten or self._log.is_changing:
            return
        try:
            self._log.append(self._recent.unwritten())
        except OSError as error:
            if not is_disk_full(error):
                raise
            self.is_full = True
        else:
            self.is_full = False
            self._recent.drop_written()

    def begin_sync(self) -> Sync | None:
        """The sync to run; None if a cut is pending or all data is durable.

        While batches are unwritten, only term and vote may become durable before them; data that follows
        these batches may not.
        """
        written, self._syncing = self._log.last_index, 0
        for waiting in self._writes:
            if waiting.last > written:
                break
            self._syncing += 1
        self._saving = self._hard_state
        is_due = self._syncing or self._saving is not None or self._log.owes_end
        self._sync = self._log.take_sync() if is_due else None
        return self._sync

    def end_sync(self) -> Synced:
        """End the running sync; return the writes that it has completed."""
        if self._sync is not None:
            self._log.sync_finished(self._sync)
            self._sync = None
        finished = [self._writes.popleft() for _ in range(self._syncing)]
        self._syncing = 0
        saved = self._saving
        if saved is None:
            return Synced(finished)
        self._saving = None
        if self._hard_state == saved:
            self._hard_state = None
        if not self._writes or saved < self._writes[0].write_id:
            return Synced(finished)
        messages: list[Envelope] = []
        for at, waiting in enumerate(self._writes):
            if waiting.write_id <= saved and not waiting.has_entries:
                messages += waiting.messages
                self._writes[at] = waiting._replace(messages=())
        return Synced(finished, saved, messages)

    def _truncate(self, first_removed: Index) -> None:
        self._recent.truncate(first_removed)
        kept = Index(first_removed - 1)
        self._writes = deque(waiting._replace(last=min(waiting.last, kept)) for waiting in self._writes)
        if first_removed <= self._log.last_index:
            self._log.cut(first_removed)

    def _made(self, span: EntrySpan, *, is_received: bool) -> Batch | None:
        """The batch of an entry that this core has created; None for entries that were received
        or proposed.
        """
        if span.kind is EntryKind.LEADER_CHANGE:
            return leader_change_batch(
                base_offset=span.first,
                leader_epoch=span.term,
                leader=self._node_id,
                timestamp_ms=self._wall_ms(),
            )
        if span.membership is not None and not is_received:
            return batch_of(span.membership, index=span.first, term=span.term, timestamp_ms=self._wall_ms())
        return None
