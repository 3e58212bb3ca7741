"""A log in memory that implements ``LogStorage`` in a slow and simple way, for tests.

The log is a list of batches and a few numbers. ``segment_batches`` batches count as a segment, so that
``prefix_change`` can delete closed segments. No data survives the process.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence

from raftlog.core.membership import Membership, MembershipEntry
from raftlog.core.ready import HardState, Restored
from raftlog.errors import InvariantViolated, OffsetOutOfRange
from raftlog.records.batch import Batch, BatchHeader
from raftlog.storage.append_rules import require_follows
from raftlog.storage.filesystem import Buffer
from raftlog.storage.log_storage import FileRange, LogChange, LogPart, LogRange, Sync
from raftlog.storage.members import membership_in
from raftlog.types import BEFORE_LOG, FIRST_INDEX, EntryId, Index, Term


class BytesFile:
    """A read-only ``File`` over bytes."""

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        self._data = data

    @property
    def path(self) -> str:
        """A name for error messages."""
        return self._path

    @property
    def size(self) -> int:
        """The length of the file in bytes."""
        return len(self._data)

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Raise ``OSError``: the file is read-only."""
        raise self._read_only()

    def fill(self, length: int) -> None:
        """Raise ``OSError``: the file is read-only."""
        raise self._read_only()

    def end_at(self, size: int) -> None:
        """Raise ``OSError``: the file is read-only."""
        raise self._read_only()

    def read_at(self, position: int, length: int) -> bytes:
        """Read at most ``length`` bytes from ``position``."""
        return self._data[position : position + length]

    def read_into(self, memory: memoryview, position: int) -> int:
        """Fill ``memory`` from ``position`` on; return the number of bytes."""
        data = self.read_at(position, len(memory))
        memory[: len(data)] = data
        return len(data)

    def write_at(self, position: int, data: Buffer) -> None:
        """Raise ``OSError``: the file is read-only."""
        raise self._read_only()

    def truncate(self, size: int) -> None:
        """Raise ``OSError``: the file is read-only."""
        raise self._read_only()

    def sync(self) -> None:
        """Do nothing: the bytes are in memory."""

    def descriptor(self) -> int:
        """Raise ``OSError``: bytes in memory have no descriptor."""
        raise OSError(errno.EBADF, "bytes in memory have no descriptor", self._path)

    def close(self) -> None:
        """Do nothing: the bytes are in memory."""

    def _read_only(self) -> OSError:
        return OSError(errno.EROFS, "bytes in memory are read-only", self._path)


class MemorySync:
    """A sync that takes no time."""

    def __init__(self, covers: Index) -> None:
        self.covers = covers
        self.is_finished = False

    def run(self) -> None:
        """Do nothing: there is no disk."""


class MemoryStates:
    """States of the state machine, in memory; see ``States``."""

    def __init__(self) -> None:
        self.checkpoint: tuple[Index, bytes] | None = None
        self._kept: dict[Index, bytes] = {}

    @property
    def standing(self) -> tuple[Index, ...]:
        """The offsets at which the log may begin, in rising order."""
        return tuple(sorted(self._kept))

    def has(self, base: Index) -> bool:
        """Whether there is a state for a log that begins at ``base``."""
        return base in self._kept

    def keep(self, at: EntryId, state: bytes) -> None:
        """Keep a state of the state machine that covers all entries up to ``at``."""
        self._kept[Index(at.index + 1)] = state

    def save_checkpoint(self, at: EntryId, state: bytes) -> None:
        """Keep the newest checkpoint."""
        self.checkpoint = (at.index, state)

    def flush(self) -> None:
        """Do nothing: there is no disk."""

    def load(self, base: Index) -> bytes | None:
        """The state for a log that begins at ``base``, or None."""
        return self._kept.get(base)


class MemoryLog:
    """A log in memory; see ``LogStorage``."""

    def __init__(self, *, segment_batches: int = 8) -> None:
        self.states = MemoryStates()
        self.removals = 0
        self._segment_batches = segment_batches
        self._batches: list[Batch] = []
        self._before = BEFORE_LOG
        self._hard_state = HardState(Term(0), None)
        self._durable = -1
        self._commit = -1
        self._syncs: list[MemorySync] = []
        self._dirty = False
        self._base: Membership | None = None

    @property
    def first_index(self) -> Index:
        """The log start offset."""
        return Index(self._before.index + 1)

    @property
    def last_index(self) -> Index:
        """The index of the newest entry; ``first_index - 1`` if the log is empty."""
        return Index(self._batches[-1].last_offset) if self._batches else self._before.index

    @property
    def durable_index(self) -> Index:
        """The newest index that a finished sync covers."""
        return Index(self._durable)

    @property
    def size_bytes(self) -> int:
        """The size of all batches in bytes."""
        return sum(len(batch.data) for batch in self._batches)

    def store_initial_membership(self, membership: Membership) -> None:
        """Keep the membership that is in force before the first entry."""
        self._base = self._base or membership

    def restored(self, membership: Membership) -> Restored:
        """The state of the log from which a core is rebuilt after a restart."""
        return Restored(
            hard_state=self._hard_state,
            membership=self._base or membership,
            memberships=tuple(self._memberships(self._batches)),
            terms=self._terms(),
            snapshot=self._before,
            last=EntryId(self.term_at(self.last_index), self.last_index),
            commit_hint=Index(min(self._commit, self._durable)),
        )

    def append(self, batches: Sequence[Batch]) -> None:
        """Append batches at the end of the log."""
        last = self.last_index
        require_follows("in memory", batches, last + 1, self.term_at(last), self._hard_state)
        self._batches += batches
        self._dirty = True

    def base_from(self, index: Index) -> Index | None:
        """The base index of the first segment that begins at ``index`` or later."""
        bases = [batch.base_offset for batch in self._batches[:: self._segment_batches]] or [self.first_index]
        return next((Index(base) for base in bases if base >= index), None)

    def save_hard_state(self, hard_state: HardState) -> None:
        """Keep term and vote."""
        self._hard_state = hard_state
        self._dirty = True

    def note_commit_index(self, commit_index: Index) -> None:
        """Keep the highest commit index that was ever noted."""
        self._commit = max(self._commit, commit_index)

    @property
    def owes_end(self) -> bool:
        """False: a log in memory notes no end for recovery."""
        return False

    def tick(self) -> None:
        """Do nothing: a log in memory notes no end for recovery."""

    def take_sync(self) -> Sync | None:
        """The sync for all changes since the previous call; None without changes."""
        if not self._dirty:
            return None
        self._dirty = False
        self._syncs.append(MemorySync(self.last_index))
        return self._syncs[-1]

    def sync_finished(self, sync: Sync) -> None:
        """Raise ``durable_index`` to the index that all syncs before the first unfinished sync cover."""
        assert isinstance(sync, MemorySync)
        sync.is_finished = True
        while self._syncs and self._syncs[0].is_finished:
            self._durable = max(self._durable, self._syncs.pop(0).covers)

    def read(self, first: Index, last: Index, *, bytes_max: int) -> LogRange:
        """Return whole batches, from the batch that contains ``first`` on; see ``StoredBatches.read``."""
        if not self.first_index <= first <= last <= self.last_index:
            raise self._out_of_range(f"{first}..{last}")
        found: list[Batch] = []
        size = 0
        for batch in self._batches:
            if batch.last_offset < first:
                continue
            if found and (batch.base_offset > last or size + len(batch.data) > bytes_max):
                break
            found.append(batch)
            size += len(batch.data)
        file = BytesFile("memory", b"".join([batch.data for batch in found]))
        base, end = Index(found[0].base_offset), Index(found[-1].last_offset)
        terms = [EntryId(Term(batch.leader_epoch), Index(batch.base_offset)) for batch in found]
        return LogRange(base, end, (FileRange(file, 0, size, base, end, terms),))

    def recent(self, first: Index, last: Index, *, bytes_max: int) -> LogRange | None:
        """Read as ``read`` does, since all batches are in memory; None outside the log."""
        in_log = self.first_index <= first <= last <= self.last_index
        return self.read(first, last, bytes_max=bytes_max) if in_log else None

    def part(self, first: Index, bytes_max: int) -> LogPart:
        """A copy of the log, with all batches."""
        if not self.first_index <= first <= self.last_index:
            raise self._out_of_range(str(first))
        copy = MemoryLog(segment_batches=self._segment_batches)
        copy._batches, copy._before = [*self._batches], self._before
        return copy

    def part_at_time(self, timestamp_ms: int, first: Index = FIRST_INDEX) -> LogPart | None:
        """A copy of the log, if it has a batch with this time or a later time; otherwise None."""
        return None if self.index_at_time(timestamp_ms, first) is None else self.part(self.first_index, 0)

    def finished(self) -> None:
        """Do nothing: reads of this log load no index of a segment."""

    def term_at(self, index: Index) -> Term:
        """The term of an entry, or of the entry just before the log."""
        if index == self._before.index:
            return self._before.term
        for batch in self._batches:
            if batch.base_offset <= index <= batch.last_offset:
                return Term(batch.leader_epoch)
        raise self._out_of_range(str(index))

    def headers_back(self, last: Index, count: int) -> list[BatchHeader]:
        """The headers of the batches up to ``last``, newest first; see ``LogReader``."""
        if not self.first_index <= last <= self.last_index:
            raise self._out_of_range(str(last))
        return [batch.header for batch in reversed(self._batches) if batch.base_offset <= last][:count]

    def index_at_time(self, timestamp_ms: int, first: Index = FIRST_INDEX) -> tuple[Index, int] | None:
        """The base index and maximum timestamp of the first batch at or after the time; see ``LogReader``."""
        for batch in self._batches:
            if batch.header.newest_ms >= timestamp_ms and batch.last_offset >= max(first, self.first_index):
                return Index(batch.base_offset), batch.header.max_timestamp
        return None

    def load_checkpoint(self) -> tuple[Index, bytes] | None:
        """The newest checkpoint or state whose index is not above ``last_index``."""
        states = [(Index(base - 1), self.states.load(base) or b"") for base in self.states.standing]
        found = [*states, *([self.states.checkpoint] if self.states.checkpoint else [])]
        usable = [state for state in found if self._before.index <= state[0] <= self.last_index]
        return max(usable, key=lambda state: state[0], default=None)

    # All changes are complete at once.

    @property
    def is_changing(self) -> bool:
        """False: all changes are complete at once."""
        return False

    def cut(self, first_removed: Index) -> None:
        """Remove this entry and all later ones."""
        if first_removed > self.last_index:
            return
        at = next((at for at, batch in enumerate(self._batches) if batch.base_offset == first_removed), None)
        if at is None:
            raise InvariantViolated(f"cut at {first_removed}, where no batch begins")
        self.removals += 1
        del self._batches[at:]
        for sync in self._syncs:
            sync.covers = Index(min(sync.covers, first_removed - 1))
        self._durable = min(self._durable, first_removed - 1)

    def cut_change(self) -> LogChange | None:
        """None: ``cut`` has removed the entries."""

    def prefix_change(self, first_kept: Index) -> LogChange | None:
        """Delete the segments that end below ``first_kept``, except the last segment."""
        while len(self._batches) > self._segment_batches:
            last = self._batches[self._segment_batches - 1]
            if last.last_offset >= min(first_kept, self._durable):
                break
            self._before = EntryId(Term(last.leader_epoch), Index(last.last_offset))
            for entry in self._memberships(self._batches[: self._segment_batches]):
                self._base = entry.membership
            del self._batches[: self._segment_batches]
            self.removals += 1
        return None

    def removal_change(self) -> LogChange | None:
        """None: there are no files to remove."""

    def install_change(self, snapshot: EntryId, membership: Membership, state: bytes) -> LogChange | None:
        """Empty the log, which then starts after the snapshot."""
        self.removals += 1
        self._batches.clear()
        self._before, self._base = snapshot, membership
        self._durable = snapshot.index
        self._commit = max(self._commit, snapshot.index)
        self.states.keep(snapshot, state)
        return None

    def close_change(self, checkpoint: tuple[Index, bytes] | None) -> LogChange | None:
        """Keep the checkpoint. All entries up to the checkpoint count as synced."""
        if checkpoint is not None:
            index, state = checkpoint
            if index > self._durable:
                self._durable = self.last_index
            self.states.save_checkpoint(EntryId(self.term_at(index), index), state)
        return None

    def _terms(self) -> tuple[EntryId, ...]:
        first: dict[int, int] = {}
        for batch in self._batches:
            first.setdefault(batch.leader_epoch, batch.base_offset)
        return tuple(EntryId(Term(term), Index(start)) for term, start in first.items())

    def _memberships(self, batches: Sequence[Batch]) -> Iterator[MembershipEntry]:
        for batch in batches:
            if (membership := membership_in(batch)) is not None:
                yield MembershipEntry(Index(batch.base_offset), membership)

    def _out_of_range(self, what: str) -> OffsetOutOfRange:
        return OffsetOutOfRange(
            f"{what} is not within {self.first_index}..{self.last_index}",
            start=self.first_index,
            end=self.last_index + 1,
        )
