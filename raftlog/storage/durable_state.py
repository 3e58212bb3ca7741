"""What a replica must never forget and is not in its log: hard state, log start, promises.

Two files, ``hard_state.a`` and ``hard_state.b``, hold one sealed slot each. The slot with the higher
sequence number counts. A slot that is known to be on the disk is never overwritten: writes go to
the other one until a sync has put that on the disk too. So a torn write costs the newest value,
which had promised nothing yet, and never the one before.

The slot also carries ``promised``: everything up to it was durable when it was written. It tells
recovery which damage is a torn tail and which is corruption. It may be older than the truth and
is never newer: it is lowered, durably, before a truncation, and raised after a sync.

Decides when a slot is written. Leaves the meaning of what is found to ``recovery``.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.sealed import OVERHEAD_BYTES, seal, unseal
from raftlog.types import Index, NodeId, Term

SLOT_NAMES = ("hard_state.a", "hard_state.b")
_SLOT_MAGIC = b"RLH1"
_SLOT = struct.Struct(">Qqqqqqq")
SLOT_BYTES = _SLOT.size + OVERHEAD_BYTES
_NO_VOTE = -1

CHECKPOINT_NAME = "snapshot"
_CHECKPOINT_MAGIC = b"RLC1"
_CHECKPOINT_INDEX = struct.Struct(">q")


@dataclass(slots=True)
class ReplicaState:
    """The values of a slot. ``before`` is the term of the entry just before ``log_start``."""

    hard_state: HardState
    log_start: Index
    before: Term
    promised: Index
    commit_index: Index


class DurableState:
    """The two slots and the values to put there.

    The owner's thread changes values; ``flush`` and ``raise_promise`` run on the sync's thread too.
    """

    __slots__ = (
        "_directory",
        "_dirty",
        "_durable",
        "_filesystem",
        "_lock",
        "_sequence",
        "generation",
        "state",
    )

    def __init__(
        self, filesystem: Filesystem, directory: str, state: ReplicaState, durable: int, sequence: int
    ) -> None:
        self.state = state
        self.generation = 0  # rises with every truncation: what a sync learned before it no longer counts
        self._filesystem = filesystem
        self._directory = directory
        self._durable = durable  # the slot that the next write must leave alone
        self._sequence = sequence
        self._dirty = False
        self._lock = threading.Lock()

    @classmethod
    def open(cls, filesystem: Filesystem, directory: str, *, is_new: bool) -> DurableState:
        """Read the newer slot; create both when the directory ``is_new``: nothing in it was ever promised.

        The caller syncs the directory. Raises ``LogCorrupt`` when no slot can be read and the replica
        may have voted.
        """
        found = [_read_slot(filesystem, f"{directory}/{name}") for name in SLOT_NAMES]
        whole = [(values[0], slot) for slot, values in enumerate(found) if isinstance(values, tuple)]
        if whole:
            sequence, newest = max(whole)
            values = found[newest]
            assert isinstance(values, tuple)
            file = filesystem.open(f"{directory}/{SLOT_NAMES[newest]}")
            file.sync()  # it may have been in the page cache only, and is relied upon from now on
            file.close()
            other = f"{directory}/{SLOT_NAMES[1 - newest]}"
            if not filesystem.exists(
                other
            ):  # the power went at its birth; later its name would not be synced
                _make_blank(filesystem, other)
            return cls(filesystem, directory, values[1], newest, sequence)
        if is_new and found[1] != "damaged":  # the second slot is used only after the first was durable
            return cls._born(filesystem, directory)
        raise LogCorrupt(
            f"{directory}: neither of {' and '.join(SLOT_NAMES)} can be read, so term and vote are "
            "forgotten; remove this replica's directory and let it be rebuilt from its peers"
        )

    @classmethod
    def _born(cls, filesystem: Filesystem, directory: str) -> DurableState:
        # Both slots get their bytes now, so that no later change of term needs room on the disk.
        state = ReplicaState(HardState(Term(0), None), Index(0), Term(0), Index(-1), Index(-1))
        born = cls(filesystem, directory, state, durable=1, sequence=0)
        _make_blank(filesystem, f"{directory}/{SLOT_NAMES[1]}")
        born.save()
        return born

    @property
    def is_dirty(self) -> bool:
        """Whether ``flush`` has something to write."""
        return self._dirty

    def set_hard_state(self, hard_state: HardState) -> None:
        """Change it in memory; ``flush`` makes it durable."""
        self.state.hard_state = hard_state
        self._dirty = True

    def set_log_start(self, log_start: Index, before: Term) -> None:
        """Move the log start, durably, before the files below it go."""
        with self._lock:
            self.state.log_start = log_start
            self.state.before = before
            self._dirty = False
            self._write(sync=True)

    def flush(self) -> None:
        """Make the newest hard state durable if it is not. Before the log is synced, always."""
        if self._dirty:
            self.save()

    def save(self) -> None:
        """Make all values durable. Returns when they are."""
        with self._lock:
            self._dirty = False
            self._write(sync=True)

    def withdraw(self, promised: Index) -> None:
        """Promise nothing above ``promised`` any more, durably, because the log is about to be cut."""
        with self._lock:
            self.generation += 1
            if self.state.promised > promised:
                self.state.promised = promised
                self.state.commit_index = min(self.state.commit_index, promised)
                self._dirty = False
                self._write(sync=True)

    def raise_promise(self, generation: int, promised: Index, commit_index: Index) -> None:
        """Note what a sync has made durable. Not synced: losing it makes recovery less sure, not wrong."""
        with self._lock:
            if generation == self.generation:
                self.state.promised = max(self.state.promised, promised)
                self.state.commit_index = min(commit_index, self.state.promised)
                self._write(sync=False)

    @contextlib.contextmanager
    def unless_truncated(self, generation: int) -> Iterator[bool]:
        """Hold off truncations meanwhile; says whether none has come since ``generation``."""
        with self._lock:
            yield generation == self.generation

    def _write(self, *, sync: bool) -> None:
        target = 1 - self._durable
        self._sequence += 1
        file = self._filesystem.open(f"{self._directory}/{SLOT_NAMES[target]}", create=True)
        try:
            file.write_at(0, _encode_slot(self._sequence, self.state))
            if sync:
                file.sync()
                self._durable = target
        finally:
            file.close()


def save_checkpoint(filesystem: Filesystem, directory: str, index: Index, state: bytes) -> None:
    """Replace the checkpoint atomically and durably."""
    payload = _CHECKPOINT_INDEX.pack(index) + state
    filesystem.replace_file(f"{directory}/{CHECKPOINT_NAME}", seal(_CHECKPOINT_MAGIC, payload))


def load_checkpoint(filesystem: Filesystem, directory: str) -> tuple[Index, bytes] | None:
    """The checkpoint, or None when there is none. Raises ``LogCorrupt`` when it is damaged."""
    path = f"{directory}/{CHECKPOINT_NAME}"
    try:
        data = filesystem.read_file(path)
    except FileNotFoundError:
        return None
    payload = unseal(_CHECKPOINT_MAGIC, data)
    if payload is None or len(payload) < _CHECKPOINT_INDEX.size:
        raise LogCorrupt(f"{path}: the checksum is wrong; repair this replica from its peers")
    (index,) = _CHECKPOINT_INDEX.unpack_from(payload)
    return Index(index), bytes(payload[_CHECKPOINT_INDEX.size :])


def _make_blank(filesystem: Filesystem, path: str) -> None:
    file = filesystem.open(path, create=True)
    file.write_at(0, bytes(SLOT_BYTES))
    file.sync()
    file.close()


def _encode_slot(sequence: int, state: ReplicaState) -> bytes:
    vote = state.hard_state.voted_for
    return seal(
        _SLOT_MAGIC,
        _SLOT.pack(
            sequence,
            state.hard_state.term,
            _NO_VOTE if vote is None else vote,
            state.log_start,
            state.before,
            state.promised,
            state.commit_index,
        ),
    )


def _read_slot(filesystem: Filesystem, path: str) -> tuple[int, ReplicaState] | str:
    """Sequence and values, or "blank" when nothing was ever written, or "damaged"."""
    try:
        data = filesystem.read_file(path)
    except FileNotFoundError:
        return "blank"
    if not any(data):
        return "blank"
    payload = unseal(_SLOT_MAGIC, data)
    if payload is None or len(payload) != _SLOT.size:
        return "damaged"
    sequence, term, vote, log_start, before, promised, commit_index = _SLOT.unpack(payload)
    return sequence, ReplicaState(
        HardState(Term(term), None if vote == _NO_VOTE else NodeId(vote)),
        Index(log_start),
        Term(before),
        Index(promised),
        Index(commit_index),
    )
