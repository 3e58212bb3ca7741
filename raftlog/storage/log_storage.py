"""The durable log of one Raft group: the contract that every implementation keeps.

A log is the run of batches that covers ``first_index..last_index``. Batches can be read as
soon as they are appended, and survive a crash once a sync that covers them has finished::

    first_index - 1 <= durable_index <= last_index

``first_index`` is the log start offset. (A batch that was deleted only in part keeps its
bytes in its segment; readers skip what lies below the start.)
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

    ``terms`` are the first entries of the terms in the range; the first of them holds from its beginning.
    """

    file: File
    position: int
    length: int
    first: int
    last: int
    terms: Sequence[EntryId]

    def read(self) -> bytes:
        """The bytes, every one of them checked. Raises ``LogCorrupt`` when they are not those batches."""
        data = self.file.read_at(self.position, self.length)
        if len(data) != self.length:
            raise self._cut(self.length, 0, len(data))
        damage = find_damage(data, self.first, self.last, self.terms)
        if damage is not None:
            raise self._damaged(damage)
        return data

    def pieces(self, memory: memoryview) -> Iterator[memoryview]:
        """The bytes in checked pieces of whole batches; each piece replaces the previous piece.

        A batch that is larger than ``memory`` takes as much for itself. Raises ``LogCorrupt``.
        """
        checks = BatchChecks(self.first, self.last, self.terms)
        at, kept = 0, 0  # what has been given out, and what has been read behind that
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
            "the file was cut under a reader; its broker repairs it from the other replicas"
        )

    def _damaged(self, behind: int) -> LogCorrupt:
        return LogCorrupt(
            f"{self.file.path} at position {self.position + behind}: a checksum, an offset or an epoch "
            "is wrong; its broker repairs it from the other replicas"
        )


class LogRange(Struct, frozen=True):
    """The result of a read: whole batches ``first..last`` in one or more runs.

    ``first`` may lie before the index asked for: the batch that contains it comes whole.
    """

    first: Index
    last: Index
    runs: tuple[FileRange, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all runs."""
        return sum(run.length for run in self.runs)

    def read(self) -> bytes:
        """All bytes of all runs, joined and checked. Raises ``LogCorrupt``."""
        if len(self.runs) == 1:
            return self.runs[0].read()
        return b"".join([run.read() for run in self.runs])

    def pieces(self, memory: memoryview) -> Iterator[memoryview]:
        """The bytes of all runs in pieces, each in place of the previous piece; see ``FileRange.pieces``."""
        for run in self.runs:
            yield from run.pieces(memory)


class StoredBatches(Protocol):
    """Batches that can be read."""

    @property
    def first_index(self) -> Index:
        """The oldest index kept: the log start offset."""

    @property
    def last_index(self) -> Index:
        """``first_index - 1`` when there are none."""

    def read(self, first: Index, last: Index, *, bytes_max: int) -> LogRange:
        """Whole batches, starting with the batch that contains ``first``: at least one, ending at or before
        the batch that contains ``last``, stopping before ``bytes_max`` is passed.

        No bytes are read but those of batch headers and of an index: what it gives is read, and checked,
        by its ``read``. Raises ``OffsetOutOfRange`` outside ``first_index..last_index`` and ``LogCorrupt``
        when what it meets is not a batch.
        """


class LogReader(StoredBatches, Protocol):
    """The part of a log that readers look at."""

    def headers_back(self, last: Index, count: int) -> list[BatchHeader]:
        """Headers of about ``count`` batches, newest first, starting with the batch that contains ``last``.

        At least one; fewer than ``count`` where a segment begins. Bodies are neither read nor checked.
        Raises ``LogCorrupt`` when what it meets is not a batch.
        """

    def index_at_time(self, timestamp_ms: int, first: Index = FIRST_INDEX) -> tuple[Index, int] | None:
        """Base index and max timestamp of the first batch of users whose max timestamp is at or after the
        time, and which ends at ``first`` or later and not below ``first_index``; None without such a batch.

        What brokers write for themselves has no time here. The record that reaches the time may lie below
        ``first`` or may be compacted away: the caller looks inside the batch. Every batch that is passed over
        is checked; raises ``LogCorrupt``.
        """


class DiskWork(Protocol):
    """Something that waits for the disk, and therefore runs on a thread of its own."""

    def run(self) -> None:
        """Block until it is done. Raises ``OSError``."""


class Sync(DiskWork, Protocol):
    """A flush waiting to be carried out."""

    @property
    def covers(self) -> Index:
        """Every entry up to this one is durable once ``run`` returns."""

    def run(self) -> None:
        """Block until the disk has log, hard state and epochs as they were when this was taken.

        It may run while the log is read and appended to. An ``OSError`` is final: the replica stops.
        """


class LogChange:
    """A change of a log that waits for the disk: ``run`` on any thread, then ``finish`` on the owner's.

    Between the two the log is only read, and told of hard states and commit indexes; of the owner's
    memory ``run`` changes nothing that a reader looks at. Where ``run`` raises ``OSError``, ``give_up``
    takes the place of ``finish``, and the log is as it was before. ``is_long``: it may take much longer
    than a sync, so that nothing else should wait for it.
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
        """Block until the disk has it. Raises ``OSError``."""
        try:
            self._run()
        except LogCorrupt as damage:
            self._damage = damage

    def finish(self) -> LogChange | None:
        """Go by it from now on; what is to be done next, if anything. Raises ``LogCorrupt``."""
        if self._damage is not None:
            self.give_up()
            raise self._damage
        return self._finish()

    def give_up(self) -> None:
        """Discard the change, which was not carried out."""
        self._give_up()

    def then(self, following: Callable[[], LogChange | None]) -> LogChange:
        """A change that carries out this change and, once it is finished, the change from ``following``."""

        def finish() -> LogChange | None:
            more = self._finish()
            return following() if more is None else more.then(following)

        return LogChange(self._run, finish, self._give_up, is_long=self.is_long)


def after(change: LogChange | None, following: Callable[[], LogChange | None]) -> LogChange | None:
    """``change`` and then another one; that alone where there was nothing to change."""
    return following() if change is None else change.then(following)


def carry_out(change: LogChange | None) -> None:
    """Make a change here and now. Blocks: not for the event loop."""
    while change is not None:
        try:
            change.run()
        except OSError:
            change.give_up()
            raise
        change = change.finish()


class States(Protocol):
    """States of the machine at offsets where the log begins, or may begin."""

    @property
    def standing(self) -> tuple[Index, ...]:
        """The offsets where the log may begin with a durable state; rising."""

    def has(self, base: Index) -> bool:
        """Whether the state below ``base`` is kept, durably or not yet."""

    def keep(self, at: EntryId, state: bytes) -> None:
        """Keep what everything up to ``at`` led to, durably with the next sync if there is room."""

    def save_checkpoint(self, at: EntryId, state: bytes) -> None:
        """Let this state, of a durable entry, take the place of the checkpoint. Waits for the disk.

        A crash leaves the old one or the new one. Raises ``OSError``.
        """

    def flush(self) -> None:
        """Make what is kept durable, as far as there is room."""

    def load(self, base: Index) -> bytes | None:
        """The state below ``base``; None when it was not kept or is damaged."""


class LogPart(LogReader, Protocol):
    """Copied from a log for one reader on another thread, with which it shares nothing that changes.

    What is removed from the log meanwhile may raise ``LogCorrupt`` here: then ``removals`` has risen, or
    ``is_changing`` holds.
    """

    def finished(self) -> None:
        """Back on the log's thread: what was loaded may serve the next reader."""


class ReadableLog(StoredBatches, Protocol):
    """A log for readers beside its owner."""

    @property
    def is_changing(self) -> bool:
        """Whether a change waits for the disk, or for being begun: nothing can be appended."""

    @property
    def removals(self) -> int:
        """The number of removals of entries, at either end: files that are being read may be gone."""

    def recent(self, first: Index, last: Index, *, bytes_max: int) -> LogRange | None:
        """The result of ``read`` from memory; None when ``first`` is not among the newest
        batches, whose places are in memory.
        """

    def part(self, first: Index, bytes_max: int) -> LogPart:
        """Enough of the log for a ``read`` of so many bytes from ``first`` on, and for ``headers_back``.

        Raises ``OffsetOutOfRange`` when that is not in the log.
        """

    def part_at_time(self, timestamp_ms: int, first: Index = FIRST_INDEX) -> LogPart | None:
        """The first segment in which ``index_at_time`` looks; None when nothing is so young.

        Where no batch of the part fits, the search goes on behind its ``last_index``.
        """


class AppliedLog(StoredBatches, Protocol):
    """A log for its state machine: the batches, and the states that those before them led to."""

    @property
    def states(self) -> States:
        """The machine's states where the log begins or may begin."""

    def load_checkpoint(self) -> tuple[Index, bytes] | None:
        """The newest checkpoint or state that is whole and not above ``last_index``."""

    def term_at(self, index: Index) -> Term:
        """The term of an entry of the log, or of the entry just before the log."""

    def base_from(self, index: Index) -> Index | None:
        """The first index of the first segment that begins at ``index`` or later; None without one."""

    def prefix_change(self, first_kept: Index) -> LogChange | None:
        """Delete the closed segments that end below ``first_kept``, as far as they are durable.

        Only whole segments go, never the active one, so the log may begin lower than asked.
        """


class WritableLog(Protocol):
    """The part of a log that its writer uses to append, cut and sync."""

    @property
    def last_index(self) -> Index:
        """``first_index - 1`` when the log is empty."""

    @property
    def is_changing(self) -> bool:
        """Whether a change waits for the disk, or for being begun: nothing can be appended."""

    def append(self, batches: Sequence[Batch]) -> None:
        """Put batches at the end; their base offset and leader epoch are already stamped.

        The first must begin at ``last_index + 1``. Raises ``OSError`` (ENOSPC) with some of them in the
        log, from the first on, as ``last_index`` says, and ``InvariantViolated`` when the offsets do not
        follow or a change waits for the disk.
        """

    def cut(self, first_removed: Index) -> None:
        """Forget this entry and all after it, as a new leader demands; the disk does so with ``cut_change``.

        The entry begins a batch.
        """

    def save_hard_state(self, hard_state: HardState) -> None:
        """Durable once the next sync has run; the older slot survives until then."""

    @property
    def owes_end(self) -> bool:
        """Whether more is durable than was noted for recovery: a sync notes it, also of an unchanged log."""

    def take_sync(self) -> Sync | None:
        """The flush for everything changed since the last call, or None."""

    def sync_finished(self, sync: Sync) -> None:
        """Move ``durable_index`` forward, back on the owner's thread."""


class ChangeableLog(Protocol):
    """The part of a log that finishes earlier changes on the disk."""

    def cut_change(self) -> LogChange | None:
        """The work that ``cut`` has left for the disk, if any."""

    def removal_change(self) -> LogChange | None:
        """Files that other changes have left behind, if there are any."""


class LogStorage(ReadableLog, AppliedLog, WritableLog, ChangeableLog, Protocol):
    """One group's log, hard state and epochs: all of it, for its owner.

    Everything but ``DiskWork.run`` and ``LogChange.run`` belongs to one thread, and waits for no disk.
    """

    @property
    def durable_index(self) -> Index:
        """The newest index that survives a crash of this node."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""

    def store_initial_membership(self, membership: Membership) -> None:
        """Keep the membership before the first entry, unless one is kept; durable with the next sync."""

    def restored(self, membership: Membership) -> Restored:
        """The state found on opening, after the torn tail was cut off.

        ``membership`` counts only for a log without an earlier ``store_initial_membership``.
        """

    def note_commit_index(self, commit_index: Index) -> None:
        """Keep a hint, written when it costs nothing and with the close. Losing it is harmless."""

    def tick(self) -> None:
        """The next sync may note the durable end again."""

    def install_change(self, snapshot: EntryId, membership: Membership, state: bytes) -> LogChange | None:
        """Empty the log and let it begin after ``snapshot``; ``state`` goes with it.

        No sync may be under way. A crash leaves the old log or the new one. Without room the log is the old
        one (but for what conflicts with the snapshot).
        """

    def close_change(self, checkpoint: tuple[Index, bytes] | None) -> LogChange | None:
        """Write the commit hint, sync and close the files.

        ``checkpoint`` is of what is durable then; a full disk does without it.
        """
