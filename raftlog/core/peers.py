"""The peers of a leader, and which of their replies count.

Decides which index or round a quorum of the membership in force has reached. While the membership is joint,
that is a majority of each half; learners and a removed leader do not count.

Also decides when a removed member is dropped: once it holds the committed entry that removes it (so that it
does not campaign in vain), and after an election timeout at the latest. Also decides when a peer that rejoins
may count again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from raftlog.core.member import Member
from raftlog.core.messages import RejoinResponse
from raftlog.core.progress import SNAPSHOT, Progress
from raftlog.core.quorum import reached_by_quorum
from raftlog.types import Index, NodeId


class Peers:
    """The other members of a group, as their leader knows them, and the progress of each."""

    __slots__ = ("_halves", "_leaving", "_member", "progress")

    def __init__(self, member: Member, next_index: Index) -> None:
        """Start as the peers of a new leader, which knows nothing about their logs."""
        self._member = member
        self.progress = {peer: Progress(next_index, 0) for peer in member.peers}
        self._leaving: dict[NodeId, int] = {}  # removed members, and the tick at which they are dropped
        self._halves = self._counted()

    @property
    def leaving(self) -> Mapping[NodeId, int]:
        """Removed members that may lack the entry that removes them; the value is the tick at which they are
        dropped.
        """
        return self._leaving

    def reached_by_quorum(self, own: int, reached: Callable[[Progress], int]) -> int:
        """The greatest number that a quorum has reached; ``own`` is the number of the leader itself.

        ``reached`` returns the number of a peer, for instance its match index.
        """
        reached_by_half = []
        for counts_own, peers in self._halves:
            numbers = [-1 if peer.rejoining else reached(peer) for peer in peers]
            reached_by_half.append(reached_by_quorum([own, *numbers] if counts_own else numbers))
        return min(reached_by_half)

    def match_index(self, nodes: frozenset[NodeId]) -> dict[NodeId, Index]:
        """For each of these peers, the index up to which its durable log is known to equal the leader's.

        Peers that rejoin are left out. So are peers that have not replied to this leader, since they may
        rejoin.
        """
        return {
            peer: progress.match_index
            for peer, progress in self.progress.items()
            if peer in nodes and progress.is_heard and not progress.rejoining
        }

    @property
    def rejoining(self) -> dict[NodeId, frozenset[NodeId]]:
        """Peers that rejoin, each with the voters that have yet to confirm this leader for that peer."""
        return {
            peer: self._unconfirmed(peer, progress)
            for peer, progress in self.progress.items()
            if progress.rejoining
        }

    @property
    def any_rejoins(self) -> bool:
        """Whether a reachable peer rejoins."""
        unreachable = self._member.unreachable
        return any(progress.rejoining and peer not in unreachable for peer, progress in self.progress.items())

    def answer_rejoining(self, sender: NodeId, now: int, round_now: int) -> None:
        """Send rejoining peers the index that their logs must reach; to ``sender`` again, once a tick."""
        member = self._member
        for peer, progress in self.progress.items():
            if not progress.rejoining:
                continue
            is_new = not progress.is_rejoin_confirmed
            if is_new and self.may_answer(peer, round_now):
                progress.confirm_rejoin(member.terms.last_index)
            last = progress.take_rejoin_answer(now) if is_new or peer == sender else None
            if last is not None:
                response = RejoinResponse(term=member.term, rejoining=progress.rejoining, last=last)
                member.send(peer, response)

    def may_answer(self, peer: NodeId, round_now: int) -> bool:
        """Whether a quorum has confirmed the leader since the peer began to rejoin, and no forgotten vote
        counts.

        The peer may have voted for a candidate that the leader does not know, and forgotten that vote. The
        vote is void once every other voter that can be elected has echoed the leader's term. A voter that
        rejoins cannot be elected before the leader has answered it; after the answer, its reply that ends
        rejoining may be lost. The vote of a learner from before its removal as a voter counts for nothing: a
        quorum holds the entry that removed it.
        """
        progress = self.progress[peer]
        confirmed = self.reached_by_quorum(round_now, lambda other: other.round) >= progress.rejoin_round
        is_voter = peer in self._member.membership.all_voters
        return confirmed and not (is_voter and self._unconfirmed(peer, progress))

    def _unconfirmed(self, peer: NodeId, progress: Progress) -> frozenset[NodeId]:
        others = self._member.membership.all_voters - {peer, self._member.id}
        return frozenset(
            other
            for other in others
            if self.progress[other].may_be_elected and self.progress[other].round < progress.rejoin_round
        )

    @property
    def awaiting_snapshot(self) -> frozenset[NodeId]:
        """Peers that need a snapshot, because they need entries that are deleted from the leader's log."""
        return frozenset(peer for peer, progress in self.progress.items() if progress.state is SNAPSHOT)

    def apply_membership(self, now: int) -> None:
        """Add the new peers of the membership now in force, and mark the peers that it no longer has."""
        member, known = self._member, self.progress
        for peer in known.keys() - set(member.peers):
            self._leaving.setdefault(peer, now + member.settings.election_ticks)
        for peer in member.peers:
            if peer not in known or self._leaving.pop(peer, None) is not None:
                known[peer] = Progress(member.terms.last_index, now)
        self._halves = self._counted()

    def drop_removed(self, now: int) -> None:
        """Drop removed members that hold the committed entry that removes them, or had enough
        time to get it.
        """
        removed_at = self._member.memberships.newest.index
        is_committed = self._member.commit_index >= removed_at
        for peer, until_tick in list(self._leaving.items()):
            if now >= until_tick or (is_committed and self.progress[peer].match_index >= removed_at):
                del self._leaving[peer], self.progress[peer]

    def _counted(self) -> tuple[tuple[bool, tuple[Progress, ...]], ...]:
        """For each half of the membership: whether the leader is a voter in it, and the others' progress."""
        own = self._member.id
        return tuple(
            (own in half, tuple(self.progress[voter] for voter in sorted(half) if voter != own))
            for half in self._member.membership.halves
        )
