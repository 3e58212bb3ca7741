"""One node of a Raft group in memory: its core, and a disk that keeps only what has finished.

A log is a list with an entry for every index since the group was born, also where the log has been
cut in front: what lies before ``snapshot`` is for the judge to compare, and nobody may read it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from raftlog.core.entries import EntryKind, EntrySpan
from raftlog.core.membership import NOBODY, Membership, MembershipEntry
from raftlog.core.raft import Raft
from raftlog.core.ready import FetchSnapshot, HardState, Restored, Write
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term


class Entry(NamedTuple):
    """What stands at one index; the term tells apart any two entries of one index."""

    term: Term
    kind: EntryKind
    membership: Membership | None = None


NOTHING = Index(-1)


@dataclass
class Disk:
    """What one node's disk holds: only what has finished survives."""

    hard_state: HardState = field(default_factory=lambda: HardState(Term(0), None))
    log: list[Entry] = field(default_factory=list)
    commit_hint: Index = NOTHING
    birth: Membership = NOBODY  # who took part before the first entry
    snapshot: EntryId = BEFORE_LOG

    def keep(self, write: Write, *, spans: bool = True, truncation: bool = True) -> None:
        """Carry out a write, or a prefix of one."""
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.truncate_from is not None and truncation:
            del self.log[write.truncate_from :]
        if spans:
            for span in write.spans:
                append_span(self.log, span)

    def restored(self) -> Restored:
        """What a replica finds when it opens."""
        terms: list[EntryId] = []
        for index in range(self.snapshot.index + 1, len(self.log)):
            term = self.log[index].term
            if not terms or terms[-1].term != term:
                terms.append(EntryId(term, Index(index)))
        last = EntryId(self.log[-1].term, Index(len(self.log) - 1)) if self.log else BEFORE_LOG
        return Restored(
            hard_state=self.hard_state,
            membership=membership_of(self.birth, self.log[: self.snapshot.index + 1]),
            terms=tuple(terms),
            snapshot=self.snapshot,
            last=last,
            commit_hint=self.commit_hint,
            memberships=tuple(
                MembershipEntry(Index(index), entry.membership)
                for index, entry in enumerate(self.log)
                if index > self.snapshot.index and entry.membership is not None
            ),
        )


def membership_of(birth: Membership, log: Sequence[Entry]) -> Membership:
    """The membership in force at the end of a log."""
    return next((entry.membership for entry in reversed(log) if entry.membership is not None), birth)


def append_span(log: list[Entry], span: EntrySpan) -> None:
    """Put the entries of a span at the end, where they belong."""
    assert span.first == len(log), f"span {span} does not follow a log of {len(log)}"
    assert (span.membership is not None) == (span.kind is EntryKind.MEMBERSHIP)
    assert span.membership is None or span.first == span.last
    log.extend([Entry(span.term, span.kind, span.membership)] * (span.last - span.first + 1))


def spans_of(log: Sequence[Entry], first: Index, last: Index) -> list[EntrySpan]:
    """The entries ``first..last`` as spans."""
    spans: list[EntrySpan] = []
    for index in range(first, last + 1):
        term, kind, membership = log[index]
        if spans and membership is None and (spans[-1].term, spans[-1].kind) == (term, kind):
            spans[-1] = EntrySpan(term, spans[-1].first, Index(index), kind)
        else:
            spans.append(EntrySpan(term, Index(index), Index(index), kind, membership))
    return spans


@dataclass
class Fetch:
    """A snapshot on its way to a node."""

    request: FetchSnapshot
    due: int


@dataclass
class Node:
    """One member with its disk; ``log`` is what it can read, durable or not."""

    id: NodeId
    disk: Disk
    core: Raft
    log: list[Entry]
    writes: deque[Write] = field(default_factory=deque)
    is_up: bool = True
    is_retired: bool = False  # down for good
    stalled_until: int = 0  # when its disk begins to work again
    commit_told: Index = NOTHING
    commit_seen: Index = NOTHING
    fetch: Fetch | None = None
