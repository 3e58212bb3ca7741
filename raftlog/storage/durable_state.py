"""State of a replica beside its log: hard state, log start, durable end.

Two files, ``hard_state.a`` and ``hard_state.b``, hold one sealed slot each. The slot with the higher sequence
number counts. A slot that is known to be on the disk is not overwritten before the other slot is on the disk,
too: writes go to that other slot until a sync. So a torn write costs the newest value, on which nothing
depended yet, and never the previous value.

The slot also has a ``DurableEnd``: all entries up to it were durable when the slot was written. It tells
recovery which damage is a torn tail and which is corruption. It may be too low but is never too high: it is
lowered, durably, before a truncation, and raised after a sync.

A slot that is *lost*, as opposed to torn, may have held a newer vote than the other slot. Then the replica
must not vote, and ``LogCorrupt`` is raised until its peers have said which terms they know.

Decides when a slot is written. Leaves the bytes of a slot to ``slots`` and the log to ``recovery``.
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
    """A lost slot may have held a vote: this replica must not vote before its peers have reported their
    terms.
    """


class DurableState:
    """The two slots, and the values for the next write.

    The owner's thread changes values; ``flush`` and ``raise_durable_end`` also run on the sync's thread.
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
        self.durable_hard_state = state.hard_state  # certainly on the disk
        self.generation = 0  # rises with every truncation; results of syncs from before no longer count
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
        """Read the newer slot; create both slots if the directory ``is_new``: nothing in it was ever durable.

        A replica that is created ``is_rejoining`` has this flag in its first slot already, also if the
        creation was interrupted and is finished now.

        The caller syncs the directory. Raises ``LogCorrupt`` if no slot can be read and the replica may have
        voted.
        """
        found = found_slots(filesystem, directory)
        newest = newest_slot(found)
        if newest is None or doubt(found) is not None:
            if is_new and is_being_created(found):
                is_rejoining |= newest is not None and newest.state.hard_state.is_rejoining
                return cls._create(filesystem, directory, initial_state(is_rejoining=is_rejoining))
            raise SlotsInDoubt(
                f"{directory}: {doubt(found)}, so a vote may be forgotten; this replica does not vote until "
                "all its peers have said which terms they know"
            )
        at = found.index(newest)
        # The slot may be only in the page cache, in a page that a failed sync has marked clean, and is relied
        # upon from now on. If power is lost during this write, the other slot counts, as it would have
        # before.
        _make_durable(filesystem, f"{directory}/{SLOT_NAMES[at]}", encode_slot(newest.sequence, newest.state))
        # Power was lost during the creation. Nothing later would sync the name of the other slot.
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
        """Write new values to both slots, durably, after their old content was lost or has been repaired."""
        found = found_slots(filesystem, directory)
        newest = newest_slot(found)
        sequence = 1 if newest is None else newest.sequence
        order = (0, 1) if newest is found[1] else (1, 0)
        for number, at in enumerate(order, 1):  # the slot that counts is overwritten last
            filesystem.replace_file(f"{directory}/{SLOT_NAMES[at]}", encode_slot(sequence + number, state))

    def set_hard_state(self, hard_state: HardState) -> None:
        """Change the hard state in memory; ``flush`` makes it durable."""
        self.state.hard_state = hard_state
        self.is_dirty = True

    def set_log_start(self, log_start: Index, before: Term, end_up_to: Callable[[Index], DurableEnd]) -> None:
        """Move the log start, durably, before the files below it are removed."""
        with self._lock:
            self.state.log_start = log_start
            self.state.before = before
            self.state.durable_end = end_up_to(self.state.durable_index)
            self.is_dirty = False
            self._write(sync=True)

    def restart(self, log_start: Index, durable_end: DurableEnd) -> None:
        """Empty the log, which a snapshot replaces, and let it begin at ``log_start``; durable on return."""
        with self._lock:
            self.generation += 1
            self.state.log_start = log_start
            self.state.before = durable_end.last.term
            self.state.durable_end = durable_end
            self.state.commit_index = durable_end.index
            self.is_dirty = False
            self._write(sync=True)

    def flush(self) -> bool:
        """Make the newest hard state durable. Called before every sync of the log.

        Returns whether a slot was written. If so, the caller should have the other slot written, too, so that
        the loss of one slot loses no vote.
        """
        was_dirty = self.is_dirty
        if was_dirty:
            self.save()
        return was_dirty

    def save(self) -> None:
        """Make all values durable before returning."""
        with self._lock:
            self.is_dirty = False
            self._write(sync=True)

    def save_twice(self) -> None:
        """Make all values durable in both slots, before returning."""
        self.save()
        self.save()

    def withdraw(self, durable_end: DurableEnd) -> None:
        """Lower the durable end, durably, because the log is about to be truncated."""
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
        """Raise the durable end after a sync, without another sync: a lost write only makes recovery less
        certain.

        ``log_start`` is the start of the log when ``durable_end`` was read, from which the terms in it are
        counted.
        """
        with self._lock:
            if generation == self.generation and log_start == self.state.log_start:
                if durable_end.last.index >= self.state.durable_end.last.index:
                    self.state.durable_end = durable_end
                self.state.commit_index = min(commit_index, self.state.durable_index)
                self._write(sync=False)

    @contextlib.contextmanager
    def unless_truncated(self, generation: int) -> Iterator[bool]:
        """Hold off truncations inside the block; the block's value says whether none has come since
        ``generation``.
        """
        with self._lock:
            yield generation == self.generation

    def _write(self, *, sync: bool) -> None:
        target = 1 - self._durable
        self._sequence += 1
        hard_state = self.state.hard_state  # the owner's thread may change it during the write
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
    """The content of both slot files, or the reason why a slot has none."""
    return [read_slot(filesystem, f"{directory}/{name}") for name in SLOT_NAMES]


def newest_slot(found: Sequence[Slot | SlotError]) -> Slot | None:
    """The slot that counts, with the highest sequence number; None if no slot can be read."""
    whole = [slot for slot in found if isinstance(slot, Slot)]
    return max(whole, key=lambda slot: slot.sequence, default=None)


def doubt(found: Sequence[Slot | SlotError]) -> str | None:
    """The reason why a readable slot may be older than the newest written slot; None if it cannot be older.

    Nothing depended on a torn slot. A slot that is absent beside the first slot was never written.
    """
    newest = newest_slot(found)
    for name, slot in zip(SLOT_NAMES, found, strict=True):
        is_incomplete = slot is SlotError.ABSENT and newest is not None and newest.sequence <= 1
        if slot is SlotError.LOST or (slot is SlotError.ABSENT and not is_incomplete):
            return f"{name} {slot.value}"
    return None if newest is not None else "neither slot can be read"


def is_being_created(found: Sequence[Slot | SlotError]) -> bool:
    """Whether the creation of the slots was interrupted.

    The second slot is used only after the first was durable, and then has a higher number.
    """
    first, second = found
    return not isinstance(first, Slot) and (not isinstance(second, Slot) or second.sequence == 0)
