"""Models the expected content of a log as a list of batches, and the contents that a crash may leave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from raftlog.core.membership import Membership, MembershipEntry
from raftlog.core.ready import HardState
from raftlog.records.batch import Batch
from raftlog.records.compaction import KeyedRecord, keyed_records
from raftlog.storage.members import membership_in
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term

INITIAL_MEMBERSHIP = Membership(frozenset({NodeId(1), NodeId(2), NodeId(3)}))
INITIAL_HARD_STATE = HardState(Term(0), None)
INITIAL_ENTRY = MembershipEntry(Index(-1), INITIAL_MEMBERSHIP)


@dataclass(frozen=True, slots=True)
class Line:
    """The expected content of a log: the entry before its first one, the membership there, and all batches
    since then.
    """

    origin: EntryId = BEFORE_LOG
    membership: MembershipEntry = INITIAL_ENTRY
    batches: tuple[Batch, ...] = ()

    @property
    def last(self) -> int:
        """The index of the last entry."""
        return self.batches[-1].last_offset if self.batches else self.origin.index

    @property
    def ends(self) -> set[int]:
        """Return the indexes at which the log may end after a crash."""
        return {self.origin.index, *(batch.last_offset for batch in self.batches)}

    def followed_by(self, batches: Iterable[Batch]) -> Line:
        """Return a copy with these batches appended."""
        return Line(self.origin, self.membership, (*self.batches, *batches))

    def cut(self, first_removed: int) -> Line:
        """Return a copy without this entry, which begins a batch, and without all later entries."""
        kept = tuple(batch for batch in self.batches if batch.base_offset < first_removed)
        return Line(self.origin, self.membership, kept)

    def compacted(self, rewritten: Sequence[Batch]) -> Line:
        """Return a copy with ``rewritten`` in place of the batches of its offsets."""
        first, last = rewritten[0].base_offset, rewritten[-1].last_offset
        before = (batch for batch in self.batches if batch.last_offset < first)
        behind = (batch for batch in self.batches if batch.base_offset > last)
        return Line(self.origin, self.membership, (*before, *rewritten, *behind))

    def records(self) -> dict[int, KeyedRecord]:
        """Return the records of users by offset."""
        batches = (batch for batch in self.batches if not batch.header.is_control)
        return {record.offset: record for batch in batches for record in keyed_records(batch)}

    def bytes_in(self, first: int, last: int) -> bytes:
        """Return the bytes of all batches that begin at an index from ``first`` to ``last``."""
        return b"".join(bytes(batch.data) for batch in self.batches if first <= batch.base_offset <= last)

    def term_at(self, index: int) -> int:
        """Return the term of an entry, which must not be before the origin."""
        term = self.origin.term
        for batch in self.batches:
            term = Term(batch.leader_epoch) if batch.base_offset <= index else term
        return term

    def memberships(self, first: int, last: int) -> list[MembershipEntry]:
        """Return the memberships in entries from ``first`` to ``last``."""
        return [
            MembershipEntry(Index(batch.base_offset), membership)
            for batch in self.batches
            if first <= batch.base_offset <= last and (membership := membership_in(batch)) is not None
        ]

    def membership_before(self, first: int) -> Membership:
        """Return the membership in force just before this entry."""
        return [self.membership, *self.memberships(0, first - 1)][-1].membership


def state_below(index: int) -> bytes:
    """Return the state of the state machine before this entry; it is equal on all replicas."""
    return b"all below %d" % index


@dataclass(slots=True)
class Model:
    """The expected state of a log. An operation with several steps first sets the states that a crash during
    it may leave.
    """

    line: Line = field(default_factory=Line)
    durable: int = -1
    applied: int = -1
    committed: int = -1  # never truncated, even if this log has lost it
    allowed: list[Line] = field(default_factory=list)  # logs that a crash may leave, in whole or as a prefix
    hard_states: list[HardState] = field(
        default_factory=lambda: [INITIAL_HARD_STATE]
    )  # the durable one and later ones
    first: int = 0
    firsts_possible: set[int] = field(default_factory=lambda: {0})
    is_created_durably: bool = False
    offered: tuple[EntryId, Membership] | None = None  # a snapshot, which is committed

    def begin(self, first: int) -> None:
        """Note that the log begins at this index from now on."""
        self.first, self.firsts_possible = first, {first}
