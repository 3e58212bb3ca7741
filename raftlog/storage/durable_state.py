"""State of a replica beside its log: hard state, log start, durable end.

Two files, ``hard_state.a`` and ``hard_state.b``, hold one sealed slot each. The slot with the higher
sequence number counts. A slot that is known to be on the disk is never overwritten: writes go to
the other one until a sync has put that on the disk too. So a torn write costs the newest value,
on which nothing depended yet, and never the one before.

The slot also has a ``DurableEnd``: everything up to it was durable when it was written. It tells
recovery which damage is a torn tail and which is corruption. It may be older than the truth and
is never newer: it is lowered, durably, before a truncation, and raised after a sync.

A slot that is *lost*, as opposed to torn, may have held a newer vote than the one that can be read: then
the replica must not vote, and ``LogCorrupt`` is raised until its peers have said which terms there were.

Decides when a slot is written. Leaves its bytes to ``slots`` and the log to ``recovery``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.slots import (
    SLOT_NAMES,
    DurableEnd,
    ReplicaState,
    Slot,
    SlotError,
    encode_slot,
    highest_number,
    initial_state,
    read_slot,
)
from raftlog.types import Index, Term


class SlotsInDoubt(LogCorrupt):
    """A slot is lost that may have held a vote: this replica must not vote before its peers were asked."""


class DurableState:
    """The two slots and the values to put there.

    The owner's thread changes values; ``flush`` and ``raise_durable_end`` run on the sync's thread too.
    """

    __slots__ = (
        "_directory",
        "_durable",
        "_filesystem",
        "_lock",
        "_sequence",
        "durable_hard_state",
        "generation",
        "is_dirty",
        "state",
    )

    def __init__(
        self, filesystem: Filesystem, directory: str, state: ReplicaState, durable: int, sequence: int
    ) -> None:
        self.state = state
        self.durable_hard_state = state.hard_state  # as it surely is on the disk
        self.generation = 0  # rises with every truncation: what a sync learned before it no longer counts
        self._filesystem = filesystem
        self._directory = directory
        self._durable = durable  # the slot that the next write must leave alone
        self._sequence = sequence
        self.is_dirty = False  # whether ``flush`` has something to write
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls, filesystem: Filesystem, directory: str, *, is_new: bool, is_rejoining: bool = False
    ) -> DurableState:
        """Read the newer slot; create both when the directory ``is_new``: nothing in it was ever durable.

        A replica that is created ``is_rejoining`` says so from its first slot on, also when a creation that
        was cut short is finished.

        The caller syncs the directory. Raises ``LogCorrupt`` when no slot can be read and the replica
        may have voted.
        """
        found = found_slots(filesystem, directory)
        newest = newest_slot(found)
        if newest is None or doubt(found) is not None:
            if is_new and is_being_created(found):
                is_rejoining |= newest is not None and newest.state.hard_state.is_rejoining
                return cls._create(filesystem, directory, initial_state(is_rejoining=is_rejoining))
            raise SlotsInDoubt(
                f"{directory}: {doubt(found)}, so a vote may be forgotten; this replica takes no part until "
                "all its peers have said which terms they know"
            )
        at = found.index(newest)
        # It may be in the page cache only, in a page that a failed sync has left clean, and is relied
        # upon from now on. Should the power go meanwhile, the other slot counts, as it would have before.
        _make_durable(filesystem, f"{directory}/{SLOT_NAMES[at]}", encode_slot(newest.sequence, newest.state))
        # Power was lost while it was created; later nothing would sync the name of the other slot.
        if found[1 - at] is SlotError.ABSENT:
            created = initial_state(is_rejoining=newest.state.hard_state.is_rejoining)
            _make_durable(filesystem, f"{directory}/{SLOT_NAMES[1 - at]}", encode_slot(0, created))
        sequence = newest.sequence
        if found[1 - at] is SlotError.TORN:
            sequence = max(sequence, highest_number(filesystem, f"{directory}/{SLOT_NAMES[1 - at]}"))
        return cls(filesystem, directory, newest.state, at, sequence)

    @classmethod
    def _create(cls, filesystem: Filesystem, directory: str, state: ReplicaState) -> DurableState:
        # Both slots get their bytes now, so that no later change of term needs room on the disk.
        created = cls(filesystem, directory, state, durable=1, sequence=0)
        _make_durable(filesystem, f"{directory}/{SLOT_NAMES[1]}", encode_slot(0, state))
        created.save()
        return created

    @classmethod
    def replace(cls, filesystem: Filesystem, directory: str, state: ReplicaState) -> None:
        """Put new values into both slots, durably; what stood there was lost or has been repaired."""
        found = found_slots(filesystem, directory)
        newest = newest_slot(found)
        sequence = 1 if newest is None else newest.sequence
        order = (0, 1) if newest is found[1] else (1, 0)
        for number, at in enumerate(order, 1):  # the one that counts is overwritten last
            filesystem.replace_file(f"{directory}/{SLOT_NAMES[at]}", encode_slot(sequence + number, state))

    def set_hard_state(self, hard_state: HardState) -> None:
        """Change it in memory; ``flush`` makes it durable."""
        self.state.hard_state = hard_state
        self.is_dirty = True

    def set_log_start(self, log_start: Index, before: Term, end_up_to: Callable[[Index], DurableEnd]) -> None:
        """Move the log start, durably, before the files below it go."""
        with self._lock:
            self.state.log_start = log_start
            self.state.before = before
            self.state.durable_end = end_up_to(self.state.durable_index)
            self.is_dirty = False
            self._write(sync=True)

    def restart(self, log_start: Index, durable_end: DurableEnd) -> None:
        """A snapshot has replaced the log, which is empty and begins at ``log_start``: durable on return."""
        with self._lock:
            self.generation += 1
            self.state.log_start = log_start
            self.state.before = durable_end.last.term
            self.state.durable_end = durable_end
            self.state.commit_index = durable_end.index
            self.is_dirty = False
            self._write(sync=True)

    def flush(self) -> bool:
        """Make the newest hard state durable if it is not. Before the log is synced, always.

        Whether it was not: the other slot should then get it too, so that a lost one takes no vote along.
        """
        was_dirty = self.is_dirty
        if was_dirty:
            self.save()
        return was_dirty

    def save(self) -> None:
        """Make all values durable. Returns when they are."""
        with self._lock:
            self.is_dirty = False
            self._write(sync=True)

    def save_twice(self) -> None:
        """Make all values durable in both slots."""
        self.save()
        self.save()

    def withdraw(self, durable_end: DurableEnd) -> None:
        """Lower the durable end, durably, because the log is about to be cut."""
        with self._lock:
            self.generation += 1
            if self.state.durable_index > durable_end.index:
                self.state.durable_end = durable_end
                self.state.commit_index = min(self.state.commit_index, durable_end.index)
                self.is_dirty = False
                self._write(sync=True)

    def raise_durable_end(
        self, generation: int, log_start: Index, durable_end: DurableEnd, commit_index: Index
    ) -> None:
        """Note what a sync has made durable. Not synced: losing it makes recovery less sure, not wrong.

        ``log_start`` is where the log began when ``durable_end`` was read: the terms are those from there on.
        """
        with self._lock:
            if generation == self.generation and log_start == self.state.log_start:
                if durable_end.last.index >= self.state.durable_end.last.index:
                    self.state.durable_end = durable_end
                self.state.commit_index = min(commit_index, self.state.durable_index)
                self._write(sync=False)

    @contextlib.contextmanager
    def unless_truncated(self, generation: int) -> Iterator[bool]:
        """Hold off truncations meanwhile; says whether none has come since ``generation``."""
        with self._lock:
            yield generation == self.generation

    def _write(self, *, sync: bool) -> None:
        target = 1 - self._durable
        self._sequence += 1
        hard_state = self.state.hard_state  # a newer one may be written: the owner's thread changes it
        try:
            file = self._filesystem.open(f"{self._directory}/{SLOT_NAMES[target]}", create=True)
            try:
                file.write_at(0, encode_slot(self._sequence, self.state))
                if sync:
                    file.sync()
                    self._durable = target
                    self.durable_hard_state = hard_state
            finally:
                file.close()
        except OSError:
            self.is_dirty = True  # or else a vote would pass for saved
            raise


def _make_durable(filesystem: Filesystem, path: str, slot: bytes) -> None:
    file = filesystem.open(path, create=True)
    try:
        file.write_at(0, slot)
        file.sync()
    finally:
        file.close()


def found_slots(filesystem: Filesystem, directory: str) -> list[Slot | SlotError]:
    """The content of the two files."""
    return [read_slot(filesystem, f"{directory}/{name}") for name in SLOT_NAMES]


def newest_slot(found: Sequence[Slot | SlotError]) -> Slot | None:
    """The slot with the highest sequence, which counts; None if no slot can be read."""
    whole = [slot for slot in found if isinstance(slot, Slot)]
    return max(whole, key=lambda slot: slot.sequence, default=None)


def doubt(found: Sequence[Slot | SlotError]) -> str | None:
    """Why what can be read may be older than what was written; None where it cannot.

    Nothing depended on a slot that was torn, and one that is absent beside the first was never made.
    """
    newest = newest_slot(found)
    for name, slot in zip(SLOT_NAMES, found, strict=True):
        is_incomplete = slot is SlotError.ABSENT and newest is not None and newest.sequence <= 1
        if slot is SlotError.LOST or (slot is SlotError.ABSENT and not is_incomplete):
            return f"{name} {slot.value}"
    return None if newest is not None else "neither slot can be read"


def is_being_created(found: Sequence[Slot | SlotError]) -> bool:
    """Whether a creation was cut short.

    The second slot is used only after the first was durable, and then has a higher number.
    """
    first, second = found
    return not isinstance(first, Slot) and (not isinstance(second, Slot) or second.sequence == 0)
