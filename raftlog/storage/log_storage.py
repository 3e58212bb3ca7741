"""The durable log of one Raft group: the contract that every implementation keeps.

A log is the run of batches that covers ``first_index..last_index``. Batches can be read as
soon as they are appended, and survive a crash once a sync that covers them has finished::

    first_index - 1 <= durable_index <= last_index

``first_index`` is the log start offset. (A batch that was deleted only in part keeps its
bytes in its segment; readers skip what lies below the start.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from raftlog.core.membership import Membership
from raftlog.core.ready import HardState, Restored
from raftlog.errors import LogCorrupt
from raftlog.records.batch import Batch, find_trouble
from raftlog.storage.filesystem import File
from raftlog.types import EntryId, Index, Term


@dataclass(frozen=True, slots=True)
class FileRange:
    """Whole batches, back to back, in one file: ``length`` bytes from ``position``.

    What has rested in a closed segment is checked before it is given away: it begins with offset ``rested``.
    """

    file: File
    position: int
    length: int
    rested: int | None = None

    def read(self) -> bytes:
        """The bytes. Raises ``LogCorrupt`` when they are not whole batches, or fewer than there were."""
        data = self.file.read_at(self.position, self.length)
        if len(data) != self.length:
            raise LogCorrupt(
                f"{self.file.path}: {self.length} bytes expected at {self.position}, found {len(data)}: "
                "the file was cut under a reader; its broker mends it from the other replicas"
            )
        trouble = None if self.rested is None else find_trouble(data, self.rested)
        if trouble is not None:
            raise LogCorrupt(
                f"{self.file.path} at position {self.position + trouble}: a checksum or an offset is "
                "wrong; its broker mends it from the other replicas"
            )
        return data


@dataclass(frozen=True, slots=True)
class LogRange:
    """What a read found: whole batches ``first..last`` in one or more runs.

    ``first`` may lie before the index asked for: the batch that contains it comes whole.
    """

    first: Index
    last: Index
    runs: tuple[FileRange, ...]

    def read(self) -> bytes:
        """All bytes of all runs, joined."""
        if len(self.runs) == 1:
            return self.runs[0].read()
        return b"".join([run.read() for run in self.runs])


class Sync(Protocol):
    """A flush waiting to be carried out."""

    @property
    def covers(self) -> Index:
        """Every entry up to this one is durable once ``run`` returns."""

    def run(self) -> None:
        """Block until the disk has log, hard state and epochs as they were when this was taken.

        The only method here that may be called on another thread, and it may run while the log
        is read and appended to. An ``OSError`` is final: the replica stops.
        """


class States(Protocol):
    """What the machine was at places where the log begins, or may begin."""

    @property
    def standing(self) -> tuple[Index, ...]:
        """Where that is, as far as it is durable; rising."""

    def has(self, base: Index) -> bool:
        """Whether the state below ``base`` is kept, durably or not yet."""

    def keep(self, at: EntryId, state: bytes) -> None:
        """Keep what everything up to ``at`` led to, durably with the next sync if there is room."""

    def save(self, at: EntryId, state: bytes) -> None:
        """The same at once. Raises ``OSError``."""

    def flush(self) -> None:
        """Make what is kept durable, as far as there is room."""

    def load(self, base: Index) -> bytes | None:
        """The state below ``base``; None when it was not kept or is damaged."""


class LogStorage(Protocol):
    """One group's log, hard state and epochs. Everything but ``Sync.run`` belongs to one thread."""

    @property
    def first_index(self) -> Index:
        """The oldest index kept: the log start offset."""

    @property
    def last_index(self) -> Index:
        """``first_index - 1`` when the log is empty."""

    @property
    def durable_index(self) -> Index:
        """Everything up to here survives a crash of this node."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""

    def keep_birth(self, membership: Membership) -> None:
        """Who takes part before the first entry, unless that is kept already; durable with the next sync."""

    def restored(self, membership: Membership) -> Restored:
        """What was found on opening, after the torn tail was cut off.

        ``membership`` counts only for a log of which nobody has said ``keep_birth`` yet.
        """

    def append(self, batches: Sequence[Batch]) -> None:
        """Put batches at the end; their base offset and leader epoch are already stamped.

        The first must begin at ``last_index + 1``. Raises ``OSError`` (ENOSPC) with the log as
        it was before, and ``InvariantViolated`` when the offsets do not follow.
        """

    def truncate_suffix(self, first_removed: Index) -> None:
        """Forget this entry and all after it, as a new leader demands. It begins a batch."""

    def truncate_prefix(self, first_kept: Index) -> Index:
        """Delete the closed segments that end below ``first_kept``; return the new ``first_index``.

        Only whole segments go, never the active one, so the answer may be lower than asked.
        """

    def save_hard_state(self, hard_state: HardState) -> None:
        """Durable once the next sync has run; the older slot survives until then."""

    def note_commit_index(self, commit_index: Index) -> None:
        """Keep a hint, written when it costs nothing and at ``close``. Losing it is harmless."""

    def take_sync(self) -> Sync | None:
        """The flush for everything changed since the last call, or None."""

    def sync_finished(self, sync: Sync) -> None:
        """Move ``durable_index`` forward, back on the owner's thread."""

    def read(self, first: Index, last: Index, *, bytes_max: int) -> LogRange:
        """Whole batches from the one that contains ``first`` on: at least one, ending at or before
        the batch that contains ``last``, stopping before ``bytes_max`` is passed.

        No bytes are read but those of batch headers. Raises ``OffsetOutOfRange`` outside
        ``first_index..last_index`` and ``LogCorrupt`` when what it meets is not a batch.
        """

    def term_at(self, index: Index) -> Term:
        """The term of an entry, or of the one just before the log."""

    def terms(self) -> tuple[EntryId, ...]:
        """The first entry of each term in the log, oldest first."""

    def index_at_time(self, timestamp_ms: int) -> tuple[Index, int] | None:
        """The base index of the first batch whose max timestamp is at or after the time, and that
        max timestamp; None when there is none. The caller looks inside the batch.
        """

    @property
    def states(self) -> States:
        """The machine's states where the log begins or may begin."""

    def base_from(self, index: Index) -> Index | None:
        """Where the first segment begins that begins at ``index`` or later, if one does."""

    def install(self, snapshot: EntryId, membership: Membership, state: bytes) -> None:
        """Empty the log and let it begin after ``snapshot``, durably on return; ``state`` goes with it.

        No sync may be under way. A crash leaves the old log or the new one. Raises ``OSError`` with the
        old log (but for what conflicts with the snapshot) when there is no room.
        """

    def save_checkpoint(self, index: Index, state: bytes) -> None:
        """Keep the state machine's snapshot as of ``index``, atomically and with a checksum."""

    def load_checkpoint(self) -> tuple[Index, bytes] | None:
        """The newest checkpoint or state that is whole and not above ``last_index``."""

    def close(self) -> None:
        """Write the commit hint, sync and close the files."""
