"""One member driven by a test: the test acts as its peers; its disk is instant by default."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from raftlog.core.entries import EntryKind, EntrySpan
from raftlog.core.inputs import Campaign, Input, Receive, Tick, WriteFinished
from raftlog.core.membership import Membership, MembershipEntry
from raftlog.core.messages import AppendReply, AppendRequest, Heartbeat, Message, VoteReply
from raftlog.core.raft import Raft, RaftSettings
from raftlog.core.ready import FetchSnapshot, HardState, Ready, Replicate, Restored, Role, Settled, Write
from raftlog.core.settings import ELECTION_TICKS as ELECTION_TICKS
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term

T = TypeVar("T", bound=Message)

ME = NodeId(1)
TWO = NodeId(2)
THREE = NodeId(3)


class MemberUnderTest:
    """A core, and all its outputs so far."""

    def __init__(
        self,
        *,
        voters: int = 3,
        membership: Membership | None = None,
        snapshot: EntryId = BEFORE_LOG,
        memberships: Sequence[MembershipEntry] = (),
        term: int = 0,
        voted_for: int | None = None,
        runs: Sequence[tuple[int, int]] = (),
        commit: int = -1,
        is_rejoining: bool = False,
        slow_disk: bool = False,
        announces_commits: bool = False,
        seed: int = 1,
    ) -> None:
        """``runs``: (term, number of entries) after ``snapshot``. A ``slow_disk`` waits for ``finish``.

        ``membership`` is in force before the log, by default that of so many ``voters``.
        """
        terms: list[EntryId] = []
        last = snapshot
        for run_term, count in runs:
            terms.append(EntryId(Term(run_term), Index(last.index + 1)))
            last = EntryId(Term(run_term), Index(last.index + count))
        restored = Restored(
            hard_state=HardState(Term(term), None if voted_for is None else NodeId(voted_for), is_rejoining),
            membership=membership or members(*range(1, voters + 1)),
            terms=tuple(terms),
            snapshot=snapshot,
            last=last,
            commit_hint=Index(commit),
            memberships=tuple(memberships),
        )
        settings = RaftSettings(ME, announces_commits=announces_commits)
        self.core = Raft(settings, restored, random.Random(seed))
        self.slow_disk = slow_disk
        self.sent: list[tuple[NodeId, Message]] = []
        self.replicated: list[Replicate] = []
        self.settled: list[Settled] = []
        self.writes: list[Write] = []
        self.fetches: list[FetchSnapshot] = []
        self.told: list[Membership] = []  # each membership that came into force
        self.unfinished: list[Write] = []
        self.most_sent_at_once = 0
        self._take()

    def feed(self, *events: Input) -> None:
        """Step the core and collect its outputs."""
        for event in events:
            self.core.step(event)
            self._take()

    def hear(self, sender: NodeId, *messages: Message) -> None:
        """Receive messages from one peer."""
        self.feed(*[Receive(sender, message) for message in messages])

    def tick(self, count: int = 1) -> None:
        """Advance time."""
        self.feed(*[Tick()] * count)

    def finish(self) -> None:
        """The oldest write in flight becomes durable."""
        write = self.unfinished.pop(0)
        self.sent += [(envelope.to, envelope.message) for envelope in write.send_after]
        self.feed(WriteFinished(write.write_id))

    def said(self, kind: type[T], to: NodeId | None = None) -> list[T]:
        """The messages of one type so far, oldest first."""
        return [message for peer, message in self.sent if isinstance(message, kind) and to in (None, peer)]

    def forget(self) -> None:
        """Drop the outputs so far."""
        self.sent, self.replicated, self.settled, self.writes = [], [], [], []
        self.most_sent_at_once = 0

    def become_candidate(self) -> None:
        """Win the pre-vote."""
        self.feed(Campaign())
        if self.core.role is Role.PRE_CANDIDATE:
            term = Term(self.core.term + 1)
            self.hear(TWO, VoteReply(term=Term(term - 1), asked=term, granted=True, is_pre_vote=True))
            self.hear(THREE, VoteReply(term=Term(term - 1), asked=term, granted=True, is_pre_vote=True))

    def become_leader(self, *, caught_up: bool = True) -> None:
        """Win an election; by default both peers then answer their first probe."""
        self.become_candidate()
        for peer in (TWO, THREE):
            self.hear(peer, VoteReply(term=self.core.term, asked=self.core.term, granted=True))
        assert self.core.role is Role.LEADER
        if caught_up:
            for request in list(self.replicated):
                self.acknowledge(request.to, request.previous.index)
            for request in list(self.replicated):
                if request.last >= request.first:
                    self.acknowledge(request.to, request.last)
            self.forget()

    def follow(self, leader: NodeId = TWO, term: int = 1, **fields: int) -> None:
        """Receive a heartbeat. ``commit_term`` is the leader's term unless given."""
        beat = Heartbeat(
            term=Term(term),
            commit_index=Index(fields.get("commit_index", -1)),
            round=fields.get("round", 1),
            commit_term=Term(fields.get("commit_term", term)),
        )
        self.hear(leader, beat)

    def acknowledge(self, peer: NodeId, index: int) -> None:
        """A peer has everything up to ``index``."""
        self.hear(peer, AppendReply(term=self.core.term, accepted=True, match_index=Index(index)))

    def _take(self) -> None:
        while (ready := self.core.take_ready()) is not None:
            self._carry_out(ready)

    def _carry_out(self, ready: Ready) -> None:
        self.sent += [(envelope.to, envelope.message) for envelope in ready.send]
        self.replicated += ready.replicate
        self.settled += ready.settled
        self.fetches += [ready.fetch_snapshot] if ready.fetch_snapshot is not None else []
        self.told += [ready.membership] if ready.membership is not None else []
        self.most_sent_at_once = max(self.most_sent_at_once, len(ready.send) + len(ready.replicate))
        if ready.write is not None:
            self.writes.append(ready.write)
            self.unfinished.append(ready.write)
            if not self.slow_disk:
                self.finish()


def members(*voters: int, learners: Sequence[int] = (), outgoing: Sequence[int] = ()) -> Membership:
    """A membership."""
    return Membership(
        *(frozenset(NodeId(number) for number in numbers) for numbers in (voters, learners, outgoing))
    )


def changed(term: int, index: int, membership: Membership) -> EntrySpan:
    """A membership entry."""
    return EntrySpan(Term(term), Index(index), Index(index), EntryKind.MEMBERSHIP, membership)


def entry(term: int, index: int) -> EntryId:
    """An entry id."""
    return EntryId(Term(term), Index(index))


def span(term: int, first: int, last: int) -> EntrySpan:
    """Entries of one term."""
    return EntrySpan(Term(term), Index(first), Index(last))


def append(term: int, previous: EntryId, *spans: EntrySpan, commit: int = -1) -> AppendRequest:
    """A leader's append request."""
    return AppendRequest(term=Term(term), previous=previous, spans=spans, commit_index=Index(commit))
