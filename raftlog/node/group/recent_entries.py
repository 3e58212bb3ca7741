"""The newest entries of one log, in memory: one run of batches from their proposals until they are applied.

The log writer, replication, the state machine and waiting requests find their entries
here. Each of them uses an index, and no entry moves from one container to another::

    applied_index      log.last_index      named_index
         |--- written ------|--- unwritten ----|--- staged ---

An entry is staged when it arrives, named when the core orders its write, written when the log has
it, and removed once it is applied. Above ``RECENT_BYTES_MAX`` the oldest written entries without a waiting
request are dropped earlier; they are then read from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from raftlog.core.entries import EntrySpan
from raftlog.errors import InvariantViolated, Overloaded
from raftlog.node.group.pending_requests import Proposal, UncommittedBytes
from raftlog.node.reading import read_recent
from raftlog.records.batch import Batch
from raftlog.records.compaction import cut_gap
from raftlog.storage.filesystem import Buffer
from raftlog.storage.log_storage import ReadableLog
from raftlog.types import Index

Reply = TypeVar("Reply")

RECENT_BYTES_MAX: Final = 32 << 20
UNCOMMITTED_BYTES_MAX: Final = 32 << 20  # of one group's proposals; above it, ``Overloaded``
OVERLOADED_RETRY_MS: Final = 100


class Entry(Generic[Reply]):
    """One batch, and the proposal that ends with this batch, if a request waits for the proposal."""

    __slots__ = ("batch", "first", "last", "proposal")

    def __init__(self, batch: Batch, proposal: Proposal[Reply] | None = None) -> None:
        header = batch.header
        self.batch = batch
        self.first = header.base_offset
        self.last = header.base_offset + header.last_offset_delta
        self.proposal = proposal


class RecentEntries(Generic[Reply]):
    """The entries after ``applied_index`` that are in memory: a suffix of the log, and unwritten entries.

    The bytes of unapplied proposals are counted here, and also in ``shared``, unless the group
    must continue while partitions wait.
    """

    def __init__(self, log: ReadableLog, shared: UncommittedBytes | None = None) -> None:
        self._log = log
        self._shared = shared or UncommittedBytes(UNCOMMITTED_BYTES_MAX)
        self._entries: deque[Entry[Reply]] = deque()
        self._staged = 0  # the number of entries at the end that the core has not named
        self.applied_index = Index(-1)
        self.named_index = log.last_index
        self.size_bytes = 0
        self.uncommitted_bytes = 0

    @property
    def has_unwritten(self) -> bool:
        """Whether the log lacks entries that the core has named."""
        return self.named_index > self._log.last_index

    def check_room(self) -> None:
        """Raise ``Overloaded`` while too many bytes are uncommitted in this group or on this broker."""
        for size_bytes, size_max, where in (
            (self.uncommitted_bytes, UNCOMMITTED_BYTES_MAX, "in this partition"),
            (self._shared.total, self._shared.bytes_max, "in the partitions that this broker leads"),
        ):
            if size_bytes > size_max:
                message = f"{size_bytes} bytes {where} are not committed yet; slow down and retry"
                raise Overloaded(message, retry_after_ms=OVERLOADED_RETRY_MS)

    # Arrival of entries.

    def propose(self, proposal: Proposal[Reply], batches: Sequence[Batch]) -> None:
        """Stage the batches of a proposal, whose indexes come from the core."""
        self.stage(batches)
        self._entries[-1].proposal = proposal
        self._count(proposal.size_bytes)

    def stage(self, batches: Sequence[Batch]) -> None:
        """Stage batches that the core's next write will name."""
        for batch in batches:
            self._entries.append(Entry(batch))
            self.size_bytes += len(batch.data)
        self._staged += len(batches)

    def name(self, span: EntrySpan, made: Batch | None = None) -> None:
        """Name the entries of a span that the core orders to be written: ``made`` now, or staged before."""
        if made is not None:
            self._entries.insert(len(self._entries) - self._staged, Entry(made))
            self._staged += 1
            self.size_bytes += len(made.data)
        following: int = span.first
        while following <= span.last:
            entry = self._entries[-self._staged] if self._staged else None
            if entry is None or entry.first != following or entry.batch.header.leader_epoch != span.term:
                raise InvariantViolated(f"the staged entry for index {following} is not of {span}")
            self._staged -= 1
            following = entry.last + 1
        self.named_index = span.last

    # Reading of entries.

    def unwritten(self) -> list[Batch]:
        """The batches that the core has named and the log does not have."""
        return [entry.batch for entry in self._between(Index(self._log.last_index + 1), self.named_index)]

    def recent_bytes(self, first: Index, last: Index, bytes_max: int) -> tuple[Index, list[Buffer]] | None:
        """Whole batches from ``first`` on, at least one, up to about ``bytes_max``, and the last one's last
        index.

        None if they must be read from the disk. Raises ``Overloaded``, ``LogCorrupt`` and ``OSError``.
        """
        entries = self._between(first, last)
        if not entries or entries[0].first != first:
            found = read_recent(self._log, first, Index(min(last, self._log.last_index)), bytes_max=bytes_max)
            return None if found is None else (found.last, [found.data])
        payload: list[Buffer] = []
        size = 0
        for entry in entries:
            data = entry.batch.data
            size += len(data)
            if payload and size > bytes_max:
                break
            payload.append(data)
            last = Index(entry.last)
        return last, payload

    def _between(self, first: Index, last: Index) -> list[Entry[Reply]]:
        """The entries that lie completely in ``first..last``, in order."""
        found = []
        for entry in reversed(self._entries):
            if entry.first < first:
                break
            if entry.last <= last:
                found.append(entry)
        found.reverse()
        return found

    # Removal of entries.

    def next_to_apply(self, commit_index: Index) -> Entry[Reply] | None:
        """Remove and return the entry after ``applied_index``; None if it must be read from the log.

        The part of a gap batch above ``commit_index`` stays: a leader that has just started may not know that
        the whole batch is committed.
        """
        entries = self._entries
        if not entries or entries[0].first != self.applied_index + 1:
            return None
        entry = entries.popleft()
        self.size_bytes -= len(entry.batch.data)
        if entry.last > commit_index and entry.batch.header.is_gap:
            rest = Entry[Reply](cut_gap(entry.batch, commit_index + 1, entry.last))
            entries.appendleft(rest)
            self.size_bytes += len(rest.batch.data)
            entry = Entry(cut_gap(entry.batch, entry.first, commit_index))
        return entry

    @property
    def first_index(self) -> int:
        """The oldest index in memory, or the index after the log's last one."""
        return self._entries[0].first if self._entries else self._log.last_index + 1

    @property
    def unapplied(self) -> list[Batch] | None:
        """All batches after ``applied_index``; None if some of them are in the log only."""
        if self.first_index != self.applied_index + 1:
            return None
        return [entry.batch for entry in self._entries]

    def applied(self, entry: Entry[Reply], reply: Reply) -> None:
        """Note that the machine has applied this entry, and end its proposal."""
        self.applied_index = Index(entry.last)
        if entry.proposal is not None:
            self._count(-entry.proposal.size_bytes)
            entry.proposal.applied(reply)

    def truncate(self, first_removed: Index) -> None:
        """Remove the entry at ``first_removed`` and all later entries: another leader's entries
        replace them.
        """
        if first_removed <= self.applied_index:
            raise InvariantViolated(f"index {first_removed} is removed, but {self.applied_index} is applied")
        entries = self._entries
        while entries and entries[-1].last >= first_removed:
            entry = entries.pop()
            self.size_bytes -= len(entry.batch.data)
            self._staged = max(0, self._staged - 1)
            self._lose(entry)
        self.named_index = Index(min(self.named_index, first_removed - 1))

    def drop_written(self) -> None:
        """Drop the oldest entries while memory exceeds its bound.

        Entries for which a request waits, and entries that the log lacks, stay.
        """
        entries = self._entries
        while self.size_bytes > RECENT_BYTES_MAX and entries[0].last <= self._log.last_index:
            if entries[0].proposal is not None:
                return
            self.size_bytes -= len(entries.popleft().batch.data)

    def leadership_lost(self) -> None:
        """End all proposals with an unknown outcome, which this replica can no longer learn."""
        if self.uncommitted_bytes:
            for entry in self._entries:
                self._lose(entry)

    def restart(self, snapshot: Index) -> None:
        """Restart after a snapshot that has replaced the log and is applied."""
        self._entries.clear()
        self.size_bytes = self._staged = 0
        self.applied_index = self.named_index = snapshot

    def _lose(self, entry: Entry[Reply]) -> None:
        if entry.proposal is not None:
            self._count(-entry.proposal.size_bytes)
            entry.proposal.lost()
            entry.proposal = None

    def _count(self, size_bytes: int) -> None:
        self.uncommitted_bytes += size_bytes
        self._shared.total += size_bytes
