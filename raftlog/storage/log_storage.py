"""The durable log of one Raft group: the contract that every implementation keeps.

A log is a sequence of batches that covers ``first_index..last_index``. Batches can be read as
soon as they are appended, and survive a crash once a sync that covers them has finished::

    first_index - 1 <= durable_index <= last_index

``first_index`` is the log start offset. (A segment keeps a batch of which only a part was deleted; readers
skip the offsets below the start.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from raftlog.core.membership import Membership
from raftlog.core.ready import HardState, Restored
from raftlog.errors import LogCorrupt
from raftlog.records.batch import Batch, BatchChecks, BatchHeader, find_damage
from raftlog.storage.filesystem import File
from raftlog.types import FIRST_INDEX, EntryId, Index, Term


class FileRange(Struct, frozen=True):
    """Whole batches ``first..last``, back to back, in one file: ``length`` bytes from ``position``.

    ``terms`` are the first entries of the terms in the range. The first of these terms applies from the
    beginning of the range.
    """

    file: File
    position: int
    length: int
    first: int
    last: int
    terms: Sequence[EntryId]

    def read(self) -> bytes:
        """All bytes of the range, checked. Raises ``LogCorrupt`` if they are not the expected batches."""
        data = self.file.read_at(self.position, self.length)
        if len(data) != self.length:
            raise self._cut(self.length, 0, len(data))
        damage = find_damage(data, self.first, self.last, self.terms)
        if damage is not None:
            raise self._damaged(damage)
        return data

    def pieces(self, memory: memoryview) -> Iterator[memoryview]:
        """Yield the bytes in checked pieces of whole batches; each piece overwrites the previous piece.

        A batch that is larger than ``memory`` gets a larger buffer. Raises ``LogCorrupt``.
        """
        checks = BatchChecks(self.first, self.last, self.terms)
        at, kept = 0, 0  # the bytes yielded so far, and the bytes read after these
        while (left := self.length - at) > 0:
            end = min(len(memory), left)
            count = self.file.read_into(memory[kept:end], self.position + at + kept)
            if count != end - kept:
                raise self._cut(end - kept, at + kept, count)
            whole, wanted = checks.passed(memory[:end], left)
            if (wanted <= end) if not whole else (whole == left and not checks.is_complete):
                raise self._damaged(at + whole)
            if whole:
                yield memory[:whole]
            else:
                memory, smaller = memoryview(bytearray(wanted)), memory
                memory[:end] = smaller[:end]
            kept = end - whole
            memory[:kept] = memory[whole:end]
            at += whole

    def _cut(self, wanted: int, behind: int, found: int) -> LogCorrupt:
        return LogCorrupt(
            f"{self.file.path}: {wanted} bytes expected at {self.position + behind}, found {found}: "
            "a process cut the file while it was read; its broker repairs it from the other replicas"
        )

    def _damaged(self, behind: int) -> LogCorrupt:
        return LogCorrupt(
            f"{self.file.path} at position {self.position + behind}: a checksum, an offset or an epoch "
            "is wrong; its broker repairs it from the other replicas"
        )


class LogRange(Struct, frozen=True):
    """The result of a read: whole batches ``first..last``, as one or more ranges of files or memory.

    ``first`` may be below the requested index: the batch that contains that index is returned whole.
    """

    first: Index
    last: Index
    runs: tuple[FileRange, ...]

    @property
    def size_bytes(self) -> int:
        """The total size in bytes of all ranges."""
        return sum(run.length for run in self.runs)

    def read(self) -> bytes:
        """The bytes of all ranges, joined and checked. Raises ``LogCorrupt``."""
        if len(self.runs) == 1:
            return self.runs[0].read()
        return b"".join([run.read() for run in self.runs])

    def pieces(self, memory: memoryview) -> Iterator[memoryview]:
        """Yield the bytes in pieces; each piece overwrites the previous piece. See ``FileRange.pieces``."""
        for run in self.runs:
            yield from run.pieces(memory)


class StoredBatches(Protocol):
    """A source of batches for readers."""

    @property
    def first_index(self) -> Index:
        """The oldest kept index: the log start offset."""

    @property
    def last_index(self) -> Index:
        """The newest index; ``first_index - 1`` if there are no batches."""

    def read(self, first: Index, last: Index, *, bytes_max: int) -> LogRange:
        """Find whole batches, from the batch that contains ``first`` to the batch that contains ``last``.

        Returns at least one batch, and stops before ``bytes_max`` is exceeded. Only batch headers and an
        index are read; ``LogRange.read`` of the result reads and checks the batches. Raises
        ``OffsetOutOfRange`` outside ``first_index..last_index``, and ``LogCorrupt`` for a damaged header.
        """


class LogReader(StoredBatches, Protocol):
    """The methods of a log that readers use."""

    def headers_back(self, last: Index, count: int) -> list[BatchHeader]:
        """Headers of about ``count`` batches, newest first, starting with the batch that contains ``last``.

        Returns at least one header; fewer than ``count`` if the beginning of a segment is reached. Bodies are
        neither read nor checked. Raises ``LogCorrupt`` for a damaged header.
        """

    def index_at_time(self, timestamp_ms: int, first: Index = FIRST_INDEX) -> tuple[Index, int] | None:
        """Find the first batch with a user record at or after a time.

        Returns base index and max timestamp of the first batch whose max timestamp is at or after the time,
        and that ends at ``first`` or later and not below ``first_index``; None if there is no such batch.

        Control batches, which brokers write, do not count. The record at or after the time may be below
        ``first`` or removed by compaction: the caller reads the batch. Every batch that the search skips is
        checked; raises ``LogCorrupt``.
        """


class DiskWork(Protocol):
    """Work that waits for the disk, and therefore runs on another thread than the log's owner."""

    def run(self) -> None:
        """Block until the work is done. Raises ``OSError``."""


class Sync(DiskWork, Protocol):
    """A flush of a log to its disk that is ready to run."""

    @property
    def covers(self) -> Index:
        """The index up to which all entries are durable once ``run`` has returned."""

    def run(self) -> None:
        """Block until the disk has the log, hard state and epochs as they were when ``take_sync`` was called.

        The log may be read and appended to meanwhile. An ``OSError`` is final: the replica stops.
        """


class LogChange:
    """A change of a log that waits for the disk: ``run`` on any thread, then ``finish`` on the owner's.

    Between the two, the log may only be read, and receive hard states and commit indexes; ``run`` changes
    no memory that readers use. If ``run`` raises ``OSError``, the owner calls ``give_up`` instead
    of ``finish``, and the log is as it was before. ``is_long``: the change may take much longer
    than a sync, so no other work should wait for it.
    """

    __slots__ = ("_damage", "_finish", "_give_up", "_run", "is_long")

    def __init__(
        self,
        run: Callable[[], None],
        finish: Callable[[], LogChange | None] = lambda: None,
        give_up: Callable[[], object] = lambda: None,
        *,
        is_long: bool = True,
    ) -> None:
        self._run = run
        self._finish = finish
        self._give_up = give_up
        self._damage: LogCorrupt | None = None
        self.is_long = is_long

    def run(self) -> None:
        """Do the part of the change that waits for the disk; block until it is done. Raises ``OSError``."""
        try:
            self._run()
        except LogCorrupt as damage:
            self._damage = damage

    def finish(self) -> LogChange | None:
        """Make the change effective in memory; return the change to do next, if any.

        Raises ``LogCorrupt``.
        """
        if self._damage is not None:
            self.give_up()
            raise self._damage
        return self._finish()

    def give_up(self) -> None:
        """Discard the change after ``run`` has failed."""
        self._give_up()

    def then(self, following: Callable[[], LogChange | None]) -> LogChange:
        """A change that does this change and, once it is finished, the change from ``following``."""

        def finish() -> LogChange | None:
            more = self._finish()
            return following() if more is None else more.then(following)

        return LogChange(self._run, finish, self._give_up, is_long=self.is_long)


def after(change: LogChange | None, following: Callable[[], LogChange | None]) -> LogChange | None:
    """Both changes in order; only the change from ``following`` if ``change`` is None."""
    return following() if change is None else change.then(following)


def carry_out(change: LogChange | None) -> None:
    """Run and finish a change at once. Blocks: not for the event loop."""
    while change is not None:
        try:
            change.run()
        except OSError:
            change.give_up()
            raise
        change = change.finish()


class States(Protocol):
    """The saved states of a state machine, at offsets where the log begins or may begin."""

    @property
    def standing(self) -> tuple[Index, ...]:
        """The offsets, in rising order, at which the log may begin because the state before each
        is durable.
        """

    def has(self, base: Index) -> bool:
        """Whether the state of all entries below ``base`` is kept, durable or not yet."""

    def keep(self, at: EntryId, state: bytes) -> None:
        """Keep the state after all entries up to ``at``; the next sync makes it durable if the
        disk has room.
        """

    def save_checkpoint(self, at: EntryId, state: bytes) -> None:
        """Replace the checkpoint with this state, of the durable entry ``at``. Waits for the disk.

        A crash leaves the old or the new checkpoint. Raises ``OSError``.
        """

    def flush(self) -> None:
        """Make the kept states durable, as far as there is room."""

    def load(self, base: Index) -> bytes | None:
        """The state of all entries below ``base``; None if it was not kept or is damaged."""


class LogPart(LogReader, Protocol):
    """A copy of a part of a log, for one reader on another thread; it shares no changing data with the log.

    If entries are removed from the log meanwhile, reads here may raise ``LogCorrupt``: then the log's
    ``removals`` has risen, or its ``is_changing`` is True.
    """

    def finished(self) -> None:
        """Give the indexes that this part has loaded back to the log. Call it on the log's thread."""


class ReadableLog(StoredBatches, Protocol):
    """The methods of a log for readers that do not own it."""

    @property
    def is_changing(self) -> bool:
        """Whether a change of the log is unfinished or pending, so that no batch can be appended."""

    @property
    def removals(self) -> int:
        """The number of times that entries were removed, at either end.

        After a rise, files of open reads may be gone.
        """

    def recent(self, first: Index, last: Index, *, bytes_max: int) -> LogRange | None:
        """The result of ``read`` if it can be found without the disk.

        None if ``first`` is not in one of the newest batches, whose positions are in memory.
        """

    def part(self, first: Index, bytes_max: int) -> LogPart:
        """A part of the log that suffices to read ``bytes_max`` bytes from ``first`` on, and for
        ``headers_back``.

        Raises ``OffsetOutOfRange`` if ``first`` is not in the log.
        """

    def part_at_time(self, timestamp_ms: int, first: Index = FIRST_INDEX) -> LogPart | None:
        """A part with the first segment that ``index_at_time`` must search.

        None if no segment has a record at or after the time. If no batch of the part fits, the caller
        continues the search after the part's ``last_index``.
        """


class AppliedLog(StoredBatches, Protocol):
    """The methods of a log for its state machine: the batches, and the saved states."""

    @property
    def states(self) -> States:
        """The saved states of the state machine, at offsets where the log begins or may begin."""

    def load_checkpoint(self) -> tuple[Index, bytes] | None:
        """The newest checkpoint or saved state that is undamaged and not above ``last_index``."""

    def term_at(self, index: Index) -> Term:
        """The term of an entry of the log, or of the entry just before the log."""

    def base_from(self, index: Index) -> Index | None:
        """The first index of the first segment that begins at ``index`` or later; None if there is none."""

    def prefix_change(self, first_kept: Index) -> LogChange | None:
        """Delete the closed segments that end below ``first_kept``, as far as they are durable.

        Only whole segments are deleted, never the active one, so the log may begin below ``first_kept``.
        """


class WritableLog(Protocol):
    """The methods that the writer of a log uses to append, cut and sync."""

    @property
    def last_index(self) -> Index:
        """The newest index; ``first_index - 1`` if the log is empty."""

    @property
    def is_changing(self) -> bool:
        """Whether a change of the log is unfinished or pending, so that no batch can be appended."""

    def append(self, batches: Sequence[Batch]) -> None:
        """Append batches that have their final base offset and leader epoch.

        The first batch must begin at ``last_index + 1``. Raises ``OSError`` (ENOSPC) after appending some of
        the batches, up to ``last_index``. Raises ``InvariantViolated`` if the offsets do not follow or a
        change waits for the disk.
        """

    def cut(self, first_removed: Index) -> None:
        """Forget the entry at ``first_removed`` and all later ones in memory; ``cut_change`` removes them on
        disk.

        The entry must be the first of a batch.
        """

    def save_hard_state(self, hard_state: HardState) -> None:
        """Save a hard state; durable once the next sync has run. The older slot survives until then."""

    @property
    def owes_end(self) -> bool:
        """Whether the recorded durable end is too low: the next sync raises it, even without new entries."""

    def take_sync(self) -> Sync | None:
        """The flush of all changes since the last call; None without changes."""

    def sync_finished(self, sync: Sync) -> None:
        """Raise ``durable_index`` after a sync, on the owner's thread."""


class ChangeableLog(Protocol):
    """The methods of a log that complete earlier changes on the disk."""

    def cut_change(self) -> LogChange | None:
        """The part of the last ``cut`` that is to be made on the disk; None without a pending cut."""

    def removal_change(self) -> LogChange | None:
        """The change that removes files which earlier changes no longer need; None if there are no such
        files.
        """


class LogStorage(ReadableLog, AppliedLog, WritableLog, ChangeableLog, Protocol):
    """The whole contract of one group's log, hard state and epochs, for the log's owner.

    All methods except ``DiskWork.run`` and ``LogChange.run`` belong to one thread, and do not wait for the
    disk.
    """

    @property
    def durable_index(self) -> Index:
        """The newest index that survives a crash of this machine."""

    @property
    def size_bytes(self) -> int:
        """The total size in bytes of all segments."""

    def store_initial_membership(self, membership: Membership) -> None:
        """Store the membership before the first entry, if none is stored yet; durable with the next sync."""

    def restored(self, membership: Membership) -> Restored:
        """The state that was found when the log was opened, after a torn tail was cut off.

        ``membership`` is used only for a log without an earlier ``store_initial_membership``.
        """

    def note_commit_index(self, commit_index: Index) -> None:
        """Keep a commit index as a hint, written with other data and at close. Its loss is harmless."""

    def tick(self) -> None:
        """Allow the next sync to record the durable end again; called once a tick."""

    def install_change(self, snapshot: EntryId, membership: Membership, state: bytes) -> LogChange | None:
        """Empty the log and begin it after ``snapshot``, whose state is ``state``.

        No sync may be running. A crash leaves the old log or the new log. If there is no room, the old log
        stays, without its entries that conflict with the snapshot.
        """

    def close_change(self, checkpoint: tuple[Index, bytes] | None) -> LogChange | None:
        """The change that writes the commit hint, syncs and closes the files.

        ``checkpoint`` is a state of an entry that is durable by then; a full disk omits it.
        """
