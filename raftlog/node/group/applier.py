"""Committed batches into the state machine: each once, in order.

Batches stay in memory from their append until they are applied, so that neither replication nor
applying reads back what was just written; past ``TAIL_BYTES_MAX`` they are read from the log
again. The machine's state is kept where each segment begins, and now and then in between; what
was committed after it is applied again at start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar

from raftlog.errors import InvariantViolated, LogCorrupt
from raftlog.node.reading import read_recent
from raftlog.records.batch import Batch, BatchHeader, split_batches
from raftlog.state_machine import StateMachine
from raftlog.storage.filesystem import Buffer
from raftlog.storage.log_storage import LogChange, LogStorage, after
from raftlog.types import EntryId, Index

Reply = TypeVar("Reply")

TAIL_BYTES_MAX: Final = 32 << 20
READ_BYTES: Final = 1 << 20
CHECKPOINT_BYTES: Final = 256 << 20  # at most this much is applied again after a crash: under a second


class Applier(Generic[Reply]):
    """The way from the log into one state machine."""

    def __init__(self, log: LogStorage, machine: StateMachine[Batch, Reply]) -> None:
        self._log = log
        self._machine = machine
        self._tail: deque[Batch] = deque()  # appended, not applied; a suffix of the log
        self._tail_bytes = 0
        self._bytes_since_checkpoint = 0
        index, state = log.load_checkpoint() or (Index(-1), b"")
        if index < log.first_index - 1:
            raise LogCorrupt(
                f"the log begins at {log.first_index}, the checkpoint ends at {index}: what lies between is "
                "nowhere; its broker repairs it from the other replicas"
            )
        machine.restore(state)
        self.applied_index = index
        self._checkpoint_index = index

    def appended(self, batches: Sequence[Batch]) -> None:
        """These are about to be put at the log's end. What it holds already need not stay in memory."""
        tail = self._tail
        tail.extend(batches)
        self._tail_bytes += sum(len(batch.data) for batch in batches)
        while self._tail_bytes > TAIL_BYTES_MAX and tail[0].header.last_offset <= self._log.last_index:
            self._tail_bytes -= len(tail.popleft().data)

    def truncated(self, first_removed: Index) -> None:
        """The log has lost this index and all after it."""
        if first_removed <= self.applied_index:
            raise InvariantViolated(f"index {first_removed} is removed, and {self.applied_index} is applied")
        while self._tail and self._tail[-1].header.last_offset >= first_removed:
            self._tail_bytes -= len(self._tail.pop().data)

    def recent_bytes(self, first: Index, last: Index, bytes_max: int) -> tuple[Index, list[Buffer]] | None:
        """Whole batches from ``first`` on, at least one, about ``bytes_max``; the last index of them.

        None where they must be read from the disk. Raises ``LogCorrupt`` and ``OSError``.
        """
        batches = self._recent(first, last)
        if batches is None:
            end = Index(min(last, self._log.last_index))
            found = read_recent(self._log, first, end, bytes_max=bytes_max)
            return None if found is None else (found.last, [found.data])
        payload: list[Buffer] = []
        size = 0
        for batch in batches:
            if payload and size + len(batch.data) > bytes_max:
                break
            payload.append(batch.data)
            size += len(batch.data)
            first = Index(batch.header.last_offset)
        return first, payload

    def apply_up_to(self, commit_index: Index) -> Iterator[tuple[BatchHeader, Reply]]:
        """Apply what is committed; give each batch's header and the machine's reply."""
        if self.applied_index >= commit_index:
            return
        boundary = self._keep_at_boundary()
        while self.applied_index < commit_index:
            for batch in self._next_batches(commit_index):
                header = batch.header
                if header.last_offset > commit_index:
                    raise InvariantViolated(
                        f"commit index {commit_index} splits the batch at {header.base_offset}"
                    )
                reply = self._machine.apply(batch)
                self.applied_index = Index(header.last_offset)
                self._bytes_since_checkpoint += header.size_bytes
                if boundary is not None and header.last_offset + 1 >= boundary:
                    boundary = self._keep_at_boundary()
                yield header, reply

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether much has been applied since the last checkpoint."""
        return self._bytes_since_checkpoint > CHECKPOINT_BYTES

    def checkpoint(self, durable_index: Index) -> tuple[Index, bytes] | None:
        """The machine's state as of the applied index, if it is news, unless the log itself may yet lose it.

        A replica may apply what a majority holds before its own disk does. A checkpoint beyond
        the durable index would, after a power loss, vouch for entries that are not ours.
        """
        self._bytes_since_checkpoint = 0
        if durable_index >= self.applied_index > self._checkpoint_index:
            return self.applied_index, self._machine.snapshot()
        return None

    def checkpoint_change(self, durable_index: Index) -> LogChange | None:
        """Keep that. On a full disk the one before still stands."""
        checkpoint = self.checkpoint(durable_index)
        if checkpoint is None:
            return None

        def kept() -> None:
            self._checkpoint_index = checkpoint[0]

        return after(self._log.checkpoint_change(*checkpoint), kept)

    def prefix_change(self, first_kept: Index, durable_index: Index) -> LogChange:
        """Let the log begin at the last segment up to ``first_kept`` whose state is on the disk.

        ``durable_index`` is the core's: where a full disk took a part of a write, the log's own is beyond it.
        """
        self._keep_at_boundary()
        log = self._log
        # The segment of the newest durable entry stays; up to it a log begins just where it is asked to.
        limit = min(first_kept, self.applied_index + 1, durable_index)
        bases, base = [], log.base_from(Index(log.first_index + 1))
        while base is not None and base <= limit:
            bases.append(base)
            base = log.base_from(Index(base + 1))
        sound: list[Index] = []

        def run() -> None:
            log.states.flush()
            standing = set(log.states.standing)
            # What rots on the disk, or was removed for it, is not what a log may begin with.
            found = (at for at in reversed(bases) if at in standing and log.states.load(at) is not None)
            sound.extend(islice(found, 1))

        return LogChange(run, lambda: log.prefix_change(sound[0]) if sound else None)

    def installed(self, index: Index, state: bytes) -> None:
        """A snapshot has replaced the log: the machine is what it says."""
        self._tail.clear()
        self._tail_bytes = self._bytes_since_checkpoint = 0
        self._machine.restore(state)
        self.applied_index = self._checkpoint_index = index

    def _keep_at_boundary(self) -> Index | None:
        """Keep the state if a segment begins just behind what is applied; where the next one begins.

        So a log that begins at a segment always has the state that led to it.
        """
        following = Index(self.applied_index + 1)
        boundary = self._log.base_from(following)
        if boundary != following:
            return boundary
        states = self._log.states
        if following > self._log.first_index and not states.has(following):
            states.keep(self._applied, self._machine.snapshot())
            self._bytes_since_checkpoint = 0
        return self._log.base_from(Index(following + 1))

    @property
    def _applied(self) -> EntryId:
        return EntryId(self._log.term_at(self.applied_index), self.applied_index)

    def _recent(self, first: Index, last: Index) -> list[Batch] | None:
        """The batches ``first..last`` if they are all still in memory."""
        if not self._tail or self._tail[0].header.base_offset > first:
            return None
        found: list[Batch] = []
        for batch in reversed(self._tail):
            if batch.header.last_offset > last:
                continue
            if batch.header.last_offset < first:
                break
            found.append(batch)
        found.reverse()
        return found if found and found[0].header.base_offset == first else None

    def _next_batches(self, commit_index: Index) -> list[Batch]:
        following = self.applied_index + 1
        tail = self._tail
        if tail and tail[0].header.base_offset == following:
            batch = tail.popleft()
            self._tail_bytes -= len(batch.data)
            return [batch]
        batches = self._read(Index(following), commit_index, READ_BYTES)
        if not batches or batches[0].header.base_offset > following:
            raise LogCorrupt(f"the log has no batch at {following}, below the commit index {commit_index}")
        while tail and tail[0].header.base_offset <= batches[-1].header.base_offset:
            self._tail_bytes -= len(tail.popleft().data)
        return batches

    def _read(self, first: Index, last: Index, bytes_max: int) -> list[Batch]:
        """From the log, checked. Raises ``LogCorrupt``."""
        batches = split_batches(self._log.read(first, last, bytes_max=bytes_max).read())
        return [batch for batch in batches if batch.header.last_offset >= first]
