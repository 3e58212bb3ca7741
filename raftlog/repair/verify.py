"""A complete check of a replica's directory: the damaged and the sound parts of its files.

Decides: which content counts as damaged, and which entries a damaged log lacks. A *torn tail*, above the
durable end, is no damage: opening the log cuts it off. Leaves to others: getting the missing entries
(``segment_writer``), the broker's reaction (``raftlog.repair.repairer``), printing the report (the command
line).

The files confirm one another: the durable end in a slot has a checksum of all terms, the epochs file has the
terms of closed segments, a segment's name is its first offset, and each segment begins where the previous
segment ends. If the epochs file and the batches disagree, the durable end says which of them is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from raftlog.errors import LogCorrupt
from raftlog.storage.batch_search import Bounds, Damage, Pace, Run, sound_parts
from raftlog.storage.batch_walk import ends_at
from raftlog.storage.durable_state import doubt, found_slots, newest_slot
from raftlog.storage.epochs import EPOCHS_NAME, Epochs, load_epochs
from raftlog.storage.filesystem import Filesystem, file_size
from raftlog.storage.members import MEMBERS_NAME, load_members
from raftlog.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, segment_path
from raftlog.storage.segment_rewriter import joined_segments
from raftlog.storage.slots import SLOT_NAMES, UNKNOWN_TERMS, ReplicaState, Slot, SlotError, initial_state
from raftlog.storage.sparse_index import load_index, load_summary
from raftlog.storage.state_files import (
    CHECKPOINT_NAME,
    STATE_SUFFIX,
    damaged_states,
    is_state_known,
    load_checkpoint,
)
from raftlog.types import EntryId, Index, Term

_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class MissingRange:
    """Entries ``first..last`` that are missing from this log; ``last`` is None if it is unknown."""

    first: int
    last: int | None

    def __str__(self) -> str:
        return f"the entries {self.first}..{'the end' if self.last is None else self.last}"


@dataclass(slots=True, kw_only=True)
class VerifyReport:
    """The findings about a directory.

    ``state``: the values of the slot that counts, which may be in ``doubt``.
    """

    directory: str
    state: ReplicaState
    doubt: str | None
    bases: list[int] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    holes: list[MissingRange] = field(default_factory=list)
    torn: list[Damage] = field(default_factory=list)
    stale: list[Damage] = field(default_factory=list)  # indexes that will be built again
    flipped: list[Damage] = field(default_factory=list)  # slots with one flipped bit, corrected on reading
    anchor: EntryId | None = None  # a durable entry: all logs that hold it are equal up to it
    epochs: Epochs = field(default_factory=Epochs)  # of the epochs file, below ``covers``
    covers: int = -1

    @property
    def is_clean(self) -> bool:
        """Whether the log can be opened and is complete."""
        return not self.damages and not self.holes and self.doubt is None

    @property
    def last(self) -> int:
        """The index of the newest sound entry."""
        return self.runs[-1].last if self.runs else self.state.log_start - 1

    def holds(self, entry: EntryId) -> bool:
        """Whether this replica's log had this entry, even if the entry is now damaged."""
        if entry == self.anchor:
            return True
        if entry.index < self.covers and self.epochs.term_at(entry.index) == entry.term:
            return True
        return any(run.first <= entry.index <= run.last and run.term == entry.term for run in self.runs)


def examine(filesystem: Filesystem, directory: str, pace: Pace = lambda count: None) -> VerifyReport:
    """Read and check all files of a replica's directory. Writes nothing."""
    return _Examiner(filesystem, directory, pace).run()


class _Examiner:
    def __init__(self, filesystem: Filesystem, directory: str, pace: Pace) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._pace = pace

    def run(self) -> VerifyReport:
        names = self._filesystem.list_directory(self._directory)
        found = found_slots(self._filesystem, self._directory)
        newest = newest_slot(found)
        in_doubt = doubt(found) if _was_used(names, found) else None
        state = initial_state() if newest is None else newest.state
        self._seen = seen = VerifyReport(directory=self._directory, state=state, doubt=in_doubt)
        if newest is not None and state.is_given_up:
            self._damaged(
                SLOT_NAMES[found.index(newest)], "the log was given up, to be fetched from its leader"
            )
            return seen
        if in_doubt is not None:
            for name, slot in zip(SLOT_NAMES, found, strict=True):
                if isinstance(slot, SlotError) and slot is not SlotError.TORN:
                    self._damaged(name, slot.value)
        for name, slot in zip(SLOT_NAMES, found, strict=True):
            if isinstance(slot, Slot) and slot.was_repaired:
                path = f"{self._directory}/{name}"
                seen.flipped.append(Damage(path, 0, file_size(self._filesystem, path), "one bit is flipped"))
        loaded = load_epochs(self._filesystem, self._directory)
        seen.epochs, seen.covers = loaded[0], loaded[-1]
        if seen.covers < 0 and EPOCHS_NAME in names:
            self._damaged(EPOCHS_NAME, "the checksum is wrong")
        joined = joined_segments(self._filesystem, self._directory, names)
        bases = sorted(
            {int(name[: -len(LOG_SUFFIX)]) for name in names if name.endswith(LOG_SUFFIX)} - joined
        )
        seen.bases = [base for base in bases if base >= state.log_start]  # the others are about to be removed
        if seen.covers <= state.log_start:
            seen.epochs = Epochs()  # its terms are all before the log
        if newest is None and seen.bases:
            state.log_start = Index(seen.bases[0])  # no other file has it
        self._read_log()
        self._note_anchor()
        self._note_holes()
        self._check_indexes(names)
        self._check_checkpoint()
        try:
            load_members(self._filesystem, self._directory)
        except LogCorrupt:
            self._damaged(MEMBERS_NAME, "the checksum is wrong")
        return seen

    def _damaged(self, name: str, reason: str) -> None:
        path = f"{self._directory}/{name}"
        size = len(self._filesystem.read_file(path)) if self._filesystem.exists(path) else 0
        self._seen.damages.append(Damage(path, 0, size, reason))

    # The log.

    def _read_log(self) -> None:
        seen, others = self._seen, list(self._seen.damages)
        self._read_segments(trusts_epochs=False)
        if self._agrees_with_epochs():
            return
        if self._agrees_with_durable_end():
            self._damaged(EPOCHS_NAME, "its terms contradict the batches and the durable end")
            seen.epochs, seen.covers = Epochs(), -1
            return
        seen.damages = others
        self._read_segments(trusts_epochs=True)

    def _read_segments(self, *, trusts_epochs: bool) -> None:
        seen = self._seen
        seen.runs = []
        self._cut_at: list[tuple[int, Damage]] = []  # the offset at which each damage would cut the log
        term, expected = 0, seen.bases[0] if seen.bases else 0
        in_doubt = seen.doubt is not None
        for at, base in enumerate(seen.bases):
            following = seen.bases[at + 1] if at + 1 < len(seen.bases) else _NEVER
            bounds = Bounds(
                first=base,
                last=following - 1,
                term_min=term,
                term_max=_NEVER if in_doubt else seen.state.hard_state.term,
                term_at=self._term_in_epochs if trusts_epochs else lambda index: None,
            )
            file = self._filesystem.open(segment_path(self._directory, base) + LOG_SUFFIX)
            expected = base
            try:
                for part in sound_parts(file, bounds, self._pace):
                    if isinstance(part, Run):
                        seen.runs.append(part)
                        expected, term = part.last + 1, part.term
                    elif expected != following:  # otherwise the segment is whole
                        self._cut_at.append((expected, part))
            finally:
                file.close()
            if following != _NEVER and expected != following:
                reason = f"the entries {expected}..{following - 1} are missing at its end"
                self._cut_at.append((expected, Damage(file.path, file.size, file.size, reason)))

    def _term_in_epochs(self, index: int) -> int | None:
        return self._seen.epochs.term_at(index) if index < self._seen.covers else None

    def _agrees_with_epochs(self) -> bool:
        return all(
            self._term_in_epochs(index) in (None, run.term)
            for run in self._seen.runs
            for index in {run.first, run.last}
        )

    def _terms(self) -> Epochs:
        terms = Epochs()
        for run in self._seen.runs:
            terms.note(run.term, run.first)
        return terms

    def _agrees_with_durable_end(self) -> bool:
        state = self._seen.state
        if state.durable_end.terms == UNKNOWN_TERMS:
            return state.durable_index < 0
        found = self._terms().durable_end(state.log_start, state.before, state.durable_index)
        return found == state.durable_end

    # Missing entries.

    def _note_anchor(self) -> None:
        seen = self._seen
        durable_end = seen.state.durable_end
        if durable_end.terms != UNKNOWN_TERMS and durable_end.index >= seen.state.log_start:
            seen.anchor = durable_end.last
        covered = Index(seen.covers - 1)
        if seen.covers > seen.state.log_start and (seen.anchor is None or seen.anchor.index < covered):
            term = seen.epochs.term_at(covered)
            seen.anchor = None if term is None else EntryId(Term(term), covered)

    def _note_holes(self) -> None:
        seen, state = self._seen, self._seen.state
        durable_index = max(state.durable_index, seen.covers - 1)
        limit = _NEVER if seen.doubt is not None else durable_index
        expected = min([state.log_start, *seen.bases[:1]])
        end = max([run.last for run in seen.runs], default=expected - 1)
        for at, run in enumerate(seen.runs):
            if run.first - 1 > limit and run.first > expected:  # above the durable end it is a torn tail
                end = expected - 1
                del seen.runs[at:]
                break
            if run.first > expected:
                seen.holes.append(MissingRange(expected, run.first - 1))
            expected = run.last + 1
        if end < durable_index:
            seen.holes.append(MissingRange(end + 1, None if seen.doubt else durable_index))
        elif seen.doubt is not None and (
            self._newest_segment_is_gone(end) or any(offset > end for offset, _ in self._cut_at)
        ):
            seen.holes.append(MissingRange(end + 1, None))
        for offset, damage in self._cut_at:
            (seen.damages if offset <= limit else seen.torn).append(damage)
        if not seen.holes and seen.doubt is None and not self._agrees_with_durable_end_if_known():
            self._distrust_the_newest(durable_index)
        if seen.holes and not seen.damages:
            self._name_holes()

    def _newest_segment_is_gone(self, end: int) -> bool:
        """Whether a segment that a sync had found on the disk is missing: the one after the
        covered segments.
        """
        return not self._seen.bases or (end < self._seen.covers and self._seen.covers not in self._seen.bases)

    def _agrees_with_durable_end_if_known(self) -> bool:
        return self._seen.state.durable_end.terms == UNKNOWN_TERMS or self._agrees_with_durable_end()

    def _distrust_the_newest(self, durable_index: int) -> None:
        """Treat all segments that the epochs file does not cover as damaged.

        One leader epoch in these segments is wrong, and it is unknown which.
        """
        seen = self._seen
        suspect = [base for base in seen.bases if seen.covers <= base <= durable_index] or seen.bases
        path = segment_path(self._directory, suspect[0]) + LOG_SUFFIX
        reason = "one of the leader epochs has changed since it became durable"
        seen.damages.append(Damage(path, 0, file_size(self._filesystem, path), reason))
        last = max(durable_index, seen.last)
        seen.runs = [run for run in seen.runs if run.last < suspect[0]]
        seen.holes.append(MissingRange(suspect[0], last))

    def _name_holes(self) -> None:
        for hole in self._seen.holes:
            path = segment_path(self._directory, hole.first) + LOG_SUFFIX
            self._seen.damages.append(Damage(path, 0, 0, f"{hole} are missing"))

    # Files beside the log.

    def _check_indexes(self, names: list[str]) -> None:
        for at, base in enumerate(self._seen.bases[:-1]):
            path = segment_path(self._directory, base)
            if not self._filesystem.exists(path + INDEX_SUFFIX):
                continue  # the index is written without a sync, and can be built again
            summary = load_summary(self._filesystem, path + INDEX_SUFFIX)
            last = self._seen.bases[at + 1] - 1
            if (
                summary is None
                or (summary.base_offset, summary.last_offset) != (base, last)
                or not self._ends_at(path + LOG_SUFFIX, summary.size_bytes)
                or load_index(self._filesystem, path + INDEX_SUFFIX, summary, 1) is None
            ):
                index = path + INDEX_SUFFIX
                reason = "the index does not match its segment"
                self._seen.stale.append(Damage(index, 0, file_size(self._filesystem, index), reason))

    def _ends_at(self, path: str, size: int) -> bool:
        file = self._filesystem.open(path)
        try:
            return ends_at(file, size)
        finally:
            file.close()

    def _check_checkpoint(self) -> None:
        damaged = damaged_states(self._filesystem, self._directory)
        for name in damaged:
            self._damaged(name, "the checksum is wrong")
        start = self._seen.state.log_start
        if not damaged and not is_state_known(self._filesystem, self._directory, start):
            self._damaged(
                f"{start:020d}{STATE_SUFFIX}",
                "the file is missing, and no other state reaches the start of the log",
            )
        found = None if CHECKPOINT_NAME in damaged else load_checkpoint(self._filesystem, self._directory)
        if found is not None and not self._seen.holes and found[0].index > self._seen.last:
            self._damaged(
                CHECKPOINT_NAME,
                f"its entry is {found[0].index}, but the log ends at {self._seen.last}",
            )


def _was_used(names: list[str], found: list[Slot | SlotError]) -> bool:
    """Whether any data was ever durable in this directory; otherwise its creation was interrupted."""
    left = (EPOCHS_NAME, CHECKPOINT_NAME, MEMBERS_NAME)
    return any(name.endswith((LOG_SUFFIX, STATE_SUFFIX)) or name in left for name in names) or any(
        isinstance(slot, Slot) and slot.sequence > 0 for slot in found
    )
