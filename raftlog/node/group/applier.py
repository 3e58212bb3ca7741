"""Applies committed batches to the state machine: each batch once, in order.

Batches come from memory (``recent_entries``) or from the log. The machine's state is saved at the beginning
of each segment, and at times in between; batches after the saved state are applied again at start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Generic, TypeVar

from raftlog.errors import InvariantViolated, LogCorrupt, MachineFailed
from raftlog.exhaustion import exhaustion
from raftlog.node.group.recent_entries import Entry, RecentEntries
from raftlog.records.batch import Batch, split_batches
from raftlog.records.compaction import cut_gap
from raftlog.state_machine import StateMachine
from raftlog.storage.log_storage import AppliedLog, LogChange
from raftlog.types import EntryId, Index

Reply = TypeVar("Reply")

READ_BYTES: Final = 32 << 10  # per read: at most some hundred batches
SLICE_BYTES: Final = 4 << 20  # applied in one call, plus the rest of the last read: 2 to 20 ms
BATCH_BYTES: Final = 16 << 10  # counted for each batch in a slice, in addition to its size
CHECKPOINT_BYTES: Final = 256 << 20  # about this much is applied again after a crash: under a second
CHECKPOINT_BATCHES: Final = 20_000  # the same bound for small batches, 10 to 30 µs each
STATE_BYTES_PER_BATCH: Final = 100  # a large state is saved less often: about as many bytes as the log


@dataclass(frozen=True, slots=True)
class Restored:
    """The restored state of a machine, after all entries up to ``index``, from a snapshot of
    ``size_bytes``.
    """

    index: Index
    size_bytes: int


def restore_kept(machine: StateMachine[Batch, object], kept: tuple[Index, bytes] | None) -> Restored:
    """Restore a machine from the state that a log has kept (``load_checkpoint``).

    A large state takes a second, so the caller does this on another thread, before the machine is used.
    Raises ``MachineFailed``, and ``OSError`` if memory is lacking.
    """
    index, state = kept or (Index(-1), b"")
    try:
        machine.restoring(state)()
    except Exception as error:
        raise _failed(error, "restore its state") from error
    return Restored(index, len(state))


class Applier(Generic[Reply]):
    """Applies the entries of one log to one state machine."""

    def __init__(
        self,
        log: AppliedLog,
        machine: StateMachine[Batch, Reply],
        recent: RecentEntries[Reply],
        restored: Restored | None = None,
    ) -> None:
        """Begin to apply. Without ``restored``, restore the machine from the newest state of the log."""
        self._log = log
        self._machine = machine
        self._recent = recent
        self._applied_bytes = self._applied_batches = 0  # since the newest saved state
        restored = restored or restore_kept(machine, log.load_checkpoint())
        index = restored.index
        if index < log.first_index - 1:
            raise LogCorrupt(
                f"the log begins at {log.first_index}, but the checkpoint ends at {index}: the entries "
                "between are lost; its broker repairs it from the other replicas"
            )
        recent.applied_index = index
        self._checkpoint_index = index
        self._state_bytes = restored.size_bytes

    @property
    def applied_index(self) -> Index:
        """The index of the newest entry that the machine has applied."""
        return self._recent.applied_index

    def apply_up_to(self, commit_index: Index) -> bool:
        """Apply committed entries, and end their proposals with the machine's replies.

        Returns whether all entries up to ``commit_index`` are applied. After a crash there may be many: more
        than ``SLICE_BYTES`` take several calls, between which the event loop does other work.
        """
        recent = self._recent
        if recent.applied_index >= commit_index:
            return True
        boundary = self._keep_at_boundary()
        slice_bytes = 0
        while recent.applied_index < commit_index:
            if slice_bytes >= SLICE_BYTES:
                return False
            for entry in self._next_entries(commit_index):
                if entry.last > commit_index:
                    raise InvariantViolated(f"commit index {commit_index} splits the batch at {entry.first}")
                try:  # once per batch: a context manager would cost more than many machines
                    reply = self._machine.apply(entry.batch)
                except Exception as error:
                    raise _failed(error, f"apply the batch at {entry.first}", is_half_done=True) from error
                recent.applied(entry, reply)
                self._applied_bytes += len(entry.batch.data)
                self._applied_batches += 1
                slice_bytes += len(entry.batch.data) + BATCH_BYTES
                if boundary is not None and entry.last + 1 >= boundary:
                    boundary = self._keep_at_boundary()
        return True

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether so much was applied since the last checkpoint that the next is due."""
        batches_max = max(CHECKPOINT_BATCHES, self._state_bytes // STATE_BYTES_PER_BATCH)
        return self._applied_bytes > CHECKPOINT_BYTES or self._applied_batches > batches_max

    def checkpoint(self, durable_index: Index) -> tuple[Index, bytes] | None:
        """The applied index and the machine's state; None if it is not newer than the checkpoint, or not
        durable.

        A replica may apply entries that a majority holds before its own disk does. A checkpoint above the
        durable index would, after a power loss, imply entries that this disk does not have.
        """
        self._applied_bytes = self._applied_batches = 0
        if durable_index >= self.applied_index > self._checkpoint_index:
            return self.applied_index, self._snapshot()
        return None

    def checkpoint_change(self, durable_index: Index) -> LogChange | None:
        """A change that saves a checkpoint; None if none is due.

        On a full disk the previous checkpoint stays.
        """
        checkpoint = self.checkpoint(durable_index) if self.is_checkpoint_due else None
        if checkpoint is None:
            return None

        index, state = checkpoint
        at = EntryId(self._log.term_at(index), index)

        def kept() -> None:
            self._checkpoint_index = index

        return LogChange(partial(self._log.states.save_checkpoint, at, state), kept)

    def prefix_change(self, first_kept: Index, durable_index: Index) -> LogChange:
        """A change that begins the log at the last segment up to ``first_kept`` whose state is on the disk.

        ``durable_index`` is the core's: after a write that a full disk took in part, the log's durable index
        is higher.
        """
        self._keep_at_boundary()
        log = self._log
        # The segment with the newest durable entry stays; below it a log can begin at any segment.
        limit = min(first_kept, self.applied_index + 1, durable_index)
        bases, base = [], log.base_from(Index(log.first_index + 1))
        while base is not None and base <= limit:
            bases.append(base)
            base = log.base_from(Index(base + 1))
        sound: list[Index] = []

        def run() -> None:
            log.states.flush()
            standing = set(log.states.standing)
            # A log must not begin with a state that is damaged on the disk, or was removed for that reason.
            found = (at for at in reversed(bases) if at in standing and log.states.load(at) is not None)
            sound.extend(islice(found, 1))

        return LogChange(run, lambda: log.prefix_change(sound[0]) if sound else None)

    def restoring(self, state: bytes) -> Callable[[], None]:
        """Decode a snapshot for ``installed``, on any thread.

        The returned function raises decoding errors.
        """
        try:
            return self._machine.restoring(state)
        except (Exception, InvariantViolated) as error:
            return partial(_raise, error)

    def installed(self, index: Index, state: bytes, become: Callable[[], None]) -> None:
        """Note that the snapshot ``state`` has replaced the log.

        ``become``, the result of ``restoring``, makes its state the machine's state.
        """
        try:
            become()
        except Exception as error:
            raise _failed(error, "restore its state") from error
        self._recent.restart(index)
        self._checkpoint_index = index
        self._state_bytes = len(state)
        self._applied_bytes = self._applied_batches = 0

    def _keep_at_boundary(self) -> Index | None:
        """Save the state if a segment begins just after the applied entries; return the next segment's base.

        So a log that begins at a segment always has the state of all entries before that segment.
        """
        following = Index(self._recent.applied_index + 1)
        boundary = self._log.base_from(following)
        if boundary != following:
            return boundary
        states = self._log.states
        if following > self._log.first_index and not states.has(following):
            states.keep(self._applied, self._snapshot())
            self._applied_bytes = self._applied_batches = 0
        return self._log.base_from(Index(following + 1))

    def _snapshot(self) -> bytes:
        try:
            state = self._machine.snapshot()
        except Exception as error:
            raise _failed(error, "keep its state") from error
        self._state_bytes = len(state)
        return state

    @property
    def _applied(self) -> EntryId:
        return EntryId(self._log.term_at(self.applied_index), self.applied_index)

    def _next_entries(self, commit_index: Index) -> list[Entry[Reply]]:
        recent = self._recent
        entry = recent.next_to_apply(commit_index)
        if entry is not None:
            return [entry]
        following = Index(recent.applied_index + 1)
        last = min(commit_index, recent.first_index - 1)
        batches = self._read(following, Index(last), READ_BYTES) if following <= last else []
        if not batches or batches[0].header.base_offset > following:
            raise LogCorrupt(f"the log has no batch at {following}, below the commit index {commit_index}")
        return [Entry(batch) for batch in batches]

    def _read(self, first: Index, last: Index, bytes_max: int) -> list[Batch]:
        """Read batches from the log and check them. Raises ``LogCorrupt``."""
        batches = split_batches(self._log.read(first, last, bytes_max=bytes_max).read())
        return [cut_gap(batch, first, last) for batch in batches if batch.header.last_offset >= first]


def _raise(error: BaseException) -> None:
    raise error


def _failed(error: Exception, deed: str, *, is_half_done: bool = False) -> Exception:
    """The error to raise after a failed deed: ``MachineFailed``, or ``error`` itself if the deed can be
    retried.

    Damage, disk errors and exhaustion are retried, but half-done work never by the same machine.
    """
    if isinstance(error, LogCorrupt) or (isinstance(error, OSError) and not is_half_done):
        return error
    if not is_half_done and (lack := exhaustion(error)) is not None:
        return lack
    return MachineFailed(f"the state machine could not {deed}: {error!r}")
