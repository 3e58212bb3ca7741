"""Implements a minimal log and a minimal disk, which keeps only finished writes.

A log keeps an entry for every index since the group was created. Entries before ``snapshot`` are only for the
checker: the replica does not use them.
"""

from __future__ import annotations

import dataclasses
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from raftlog.core.entries import EntryKind, EntrySpan
from raftlog.core.inputs import Input, PeerReachable, PeerUnreachable, Receive
from raftlog.core.membership import NOBODY, Membership, MembershipEntry
from raftlog.core.messages import Envelope
from raftlog.core.raft import Raft
from raftlog.core.ready import FetchSnapshot, HardState, Restored, Write
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term, Token, WriteId
from verification.simulator.result import Broken

NOTHING = Index(-1)
REJOINING = HardState(Term(0), None, is_rejoining=True)


class Entry(NamedTuple):
    """The entry at one index. Two entries at one index are equal if their terms are equal."""

    term: Term
    kind: EntryKind
    membership: Membership | None = None


class Lineage:
    """Checks log matching by induction (I3): in all logs an entry id must belong to one entry with one
    predecessor.

    Every append is checked. So two logs are equal up to an index if their entries at this index have equal
    terms.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Entry, int]] = {}

    def check(self, index: int, entry: Entry, before: int) -> None:
        """Check an append; ``before`` is the term of the entry at ``index`` - 1. Raises ``Broken``."""
        known = self._known.setdefault((index, entry.term), (entry, before))
        if known[1] != before or (known[0] is not entry and known[0] != entry):
            raise Broken("I3 log matching", f"index {index}: {entry} after term {before}, and {known}")


class Log:
    """Entries by index. ``changes`` are the indexes of the entries that carry a membership."""

    __slots__ = ("_lineage", "changes", "entries")

    def __init__(self, entries: Iterable[Entry] = (), lineage: Lineage | None = None) -> None:
        self._lineage = lineage or Lineage()
        self.entries: list[Entry] = []
        self.changes: list[int] = []
        self.extend(entries)

    def __len__(self) -> int:
        return len(self.entries)

    def extend(self, entries: Iterable[Entry]) -> None:
        """Append entries."""
        mine, check = self.entries, self._lineage.check
        before = mine[-1].term if mine else 0
        for entry in entries:
            check(len(mine), entry, before)
            if entry.membership is not None:
                self.changes.append(len(mine))
            mine.append(entry)
            before = entry.term

    def append(self, span: EntrySpan) -> None:
        """Append the entries of a span at the span's indexes."""
        if span.first != len(self.entries):
            raise Broken("I9 no failed assertion", f"{span} does not follow {len(self.entries)} entries")
        is_change = span.kind is EntryKind.MEMBERSHIP
        if is_change != (span.membership is not None) or (is_change and span.first != span.last):
            raise Broken("I9 no failed assertion", f"{span} is not an entry of a membership")
        self.extend([Entry(span.term, span.kind, span.membership)] * (span.last - span.first + 1))

    def cut(self, first_removed: int) -> None:
        """Remove the entry at an index, and all later entries."""
        del self.entries[first_removed:]
        while self.changes and self.changes[-1] >= first_removed:
            self.changes.pop()

    def copy(self, count: int | None = None) -> Log:
        """Return a copy with all entries, or with the first ``count`` entries."""
        log = Log((), self._lineage)
        log.entries = self.entries[:count]
        log.changes = [index for index in self.changes if index < len(log.entries)]
        return log

    def is_equal_up_to(self, index: int, other: Log) -> bool:
        """Return whether both logs hold equal entries up to an index, which ``Lineage`` makes cheap to
        decide.
        """
        if index < 0:
            return True
        mine, theirs = self.entries, other.entries
        return index < len(mine) and index < len(theirs) and mine[index].term == theirs[index].term

    def membership_at(self, index: int, initial_membership: Membership) -> Membership:
        """Return the membership in force once all entries up to an index count."""
        for change in reversed(self.changes):
            if change <= index:
                return self.entries[change].membership or initial_membership
        return initial_membership

    def spans(self, first: Index, last: Index) -> list[EntrySpan]:
        """Return the entries ``first..last`` as spans."""
        spans: list[EntrySpan] = []
        for index in range(first, last + 1):
            term, kind, membership = self.entries[index]
            if spans and membership is None and (spans[-1].term, spans[-1].kind) == (term, kind):
                spans[-1] = EntrySpan(term, spans[-1].first, Index(index), kind)
            else:
                spans.append(EntrySpan(term, Index(index), Index(index), kind, membership))
        return spans


@dataclass
class Disk:
    """The content of one node's disk, which keeps only finished writes."""

    hard_state: HardState = field(default_factory=lambda: HardState(Term(0), None))
    log: Log = field(default_factory=Log)
    commit_hint: Index = NOTHING
    initial_membership: Membership = NOBODY  # the membership before the first entry
    snapshot: EntryId = BEFORE_LOG
    lost: list[Log] = field(default_factory=list)  # entries of former incarnations that this one may lack
    is_older_copy: bool = False  # its node does not know it, and nobody listens to what the node says

    @property
    def has_lost(self) -> bool:
        """Return whether the disk lacks votes and entries of its node, so that the node must rejoin."""
        return self.hard_state.is_rejoining or self.is_older_copy

    @property
    def lost_with_it(self) -> list[Log]:
        """Return the logs whose entries the node lacks once another disk takes the place of this disk."""
        return [*(self.lost if self.has_lost else ()), self.log]

    def image(self) -> Disk:
        """Return a copy of the disk as it is now."""
        return dataclasses.replace(self, log=self.log.copy(), lost=[*self.lost], is_older_copy=False)

    def begin_again(self) -> None:
        """Mark the disk as an older copy: at the next start the node rejoins with the entries on the disk."""
        self.is_older_copy = False
        self.hard_state = replace(self.hard_state, is_rejoining=True)

    def keep(self, write: Write, *, spans: bool = True, truncation: bool = True) -> None:
        """Store a write, or a prefix of it."""
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.truncate_from is not None and truncation:
            self.log.cut(write.truncate_from)
        if spans:
            for span in write.spans:
                self.log.append(span)

    def tear(self, write: Write, rng: random.Random) -> None:
        """Crash during a write: the disk keeps some prefix of it, which may be empty."""
        part = rng.randrange(4)
        if part:
            self.keep(write, truncation=part >= 2, spans=False)
        if part == 3:
            for span in write.spans:
                kept = rng.randint(span.first - 1, span.last)
                if kept >= span.first:
                    self.log.append(replace(span, last=Index(kept)))
                if kept < span.last:
                    break

    def restored(self) -> Restored:
        """Return the state with which a replica opens this disk."""
        terms: list[EntryId] = []
        entries = self.log.entries
        for index in range(self.snapshot.index + 1, len(entries)):
            term = entries[index].term
            if not terms or terms[-1].term != term:
                terms.append(EntryId(term, Index(index)))
        last = EntryId(entries[-1].term, Index(len(entries) - 1)) if entries else BEFORE_LOG
        return Restored(
            hard_state=self.hard_state,
            membership=self.log.membership_at(self.snapshot.index, self.initial_membership),
            terms=tuple(terms),
            snapshot=self.snapshot,
            last=last,
            commit_hint=self.commit_hint,
            memberships=tuple(
                MembershipEntry(Index(index), entries[index].membership or NOBODY)
                for index in self.log.changes
                if index > self.snapshot.index
            ),
        )


@dataclass
class Fetch:
    """A snapshot that is being transferred to a node."""

    request: FetchSnapshot
    due: int


@dataclass
class Node:
    """One node with its disk; ``log`` is the log that the node reads, which may be ahead of the disk."""

    id: NodeId
    disk: Disk
    core: Raft
    log: Log
    writes: deque[Write] = field(default_factory=deque)
    is_up: bool = True
    is_retired: bool = False  # down for good
    stalled_until: int = 0  # when its disk continues
    full_until: int = 0  # when there is space for entries again; term and vote need none
    commit_told: Index = NOTHING
    commit_seen: Index = NOTHING
    term_seen: int = 0
    fetch: Fetch | None = None
    heard: dict[NodeId, int] = field(default_factory=dict)  # the step in which each peer was last heard
    unreachable: set[NodeId] = field(default_factory=set)  # peers reported so, and not heard since
    leads_by: Membership | None = None  # the membership in force since ``leads_since``
    leads_since: int = 0
    transfer_asked: int = 0
    reads: dict[Token, Index] = field(default_factory=dict)  # and the commit index at the request
    pending: dict[int, Term] = field(default_factory=dict)  # indexes of its proposals, not yet committed

    def note(self, event: Input, now: int) -> None:
        """Remember from an event which peers the core counts as unreachable."""
        if type(event) is Receive:
            self.heard[event.sender] = now
            self.unreachable.discard(event.sender)
        elif type(event) is PeerUnreachable:
            self.unreachable.add(event.peer)
        elif type(event) is PeerReachable:
            self.unreachable.discard(event.peer)

    def save_hard_state(self) -> tuple[WriteId, list[Envelope]] | None:
        """Store the newest term and vote before entries that wait; return the messages to send."""
        newest = next((write for write in reversed(self.writes) if write.hard_state is not None), None)
        if newest is None or newest.hard_state is None:
            return None
        self.disk.hard_state = newest.hard_state
        messages: list[Envelope] = []
        for at, write in enumerate(self.writes):
            if not write.spans:
                messages += write.send_after
            kept = write.send_after if write.spans else ()
            self.writes[at] = replace(write, hard_state=None, send_after=kept)
        return newest.write_id, messages
