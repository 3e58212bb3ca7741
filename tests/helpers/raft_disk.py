"""One node of a Raft group in memory: its core, and a disk that keeps only what has finished."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from raftlog.core.entries import EntryKind, EntrySpan
from raftlog.core.membership import Membership
from raftlog.core.raft import Raft
from raftlog.core.ready import HardState, Restored, Write
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term

Entry = tuple[Term, EntryKind]
"""What stands at one index; the term tells apart any two entries of one index."""


NOTHING = Index(-1)


@dataclass
class Disk:
    """What one node's disk holds: only what has finished survives."""

    hard_state: HardState = field(default_factory=lambda: HardState(Term(0), None))
    log: list[Entry] = field(default_factory=list)
    commit_hint: Index = NOTHING

    def keep(self, write: Write, *, spans: bool = True, truncation: bool = True) -> None:
        """Carry out a write, or a prefix of one."""
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.truncate_from is not None and truncation:
            del self.log[write.truncate_from :]
        if spans:
            for span in write.spans:
                append_span(self.log, span)

    def restored(self, voters: frozenset[NodeId]) -> Restored:
        """What a replica finds when it opens."""
        terms: list[EntryId] = []
        for index, (term, _) in enumerate(self.log):
            if not terms or terms[-1].term != term:
                terms.append(EntryId(term, Index(index)))
        last = EntryId(self.log[-1][0], Index(len(self.log) - 1)) if self.log else BEFORE_LOG
        return Restored(
            hard_state=self.hard_state,
            membership=Membership(voters),
            terms=tuple(terms),
            snapshot=BEFORE_LOG,
            last=last,
            commit_hint=self.commit_hint,
        )


def append_span(log: list[Entry], span: EntrySpan) -> None:
    """Put the entries of a span at the end, where they belong."""
    assert span.first == len(log), f"span {span} does not follow a log of {len(log)}"
    log.extend([(span.term, span.kind)] * (span.last - span.first + 1))


@dataclass
class Node:
    """One member with its disk; ``log`` is what it can read, durable or not."""

    id: NodeId
    disk: Disk
    core: Raft
    log: list[Entry]
    writes: deque[Write] = field(default_factory=deque)
    is_up: bool = True
    stalled_until: int = 0  # when its disk begins to work again
    commit_told: Index = NOTHING
