"""The appends of a leader to each peer: probes, entries, or a snapshot offer.

Decides which entries a peer may get and when the leader sends them. Leaves to others: what a peer's answers
mean for its ``Progress`` (``leader``), and which peers exist (``peers``).
"""

from __future__ import annotations

from raftlog.core.member import Member
from raftlog.core.messages import Heartbeat, SnapshotOffer
from raftlog.core.peers import Peers
from raftlog.core.progress import SNAPSHOT, Progress
from raftlog.core.ready import Replicate
from raftlog.types import EntryId, Index, NodeId


class Appends:
    """Sends the appends of one leader to its peers."""

    __slots__ = ("_member", "_peers")

    def __init__(self, member: Member, peers: Peers) -> None:
        self._member = member
        self._peers = peers

    def send(self, now: int, heartbeat_round: int) -> None:
        """Send each peer its due probe, entries or snapshot offer, within the limit of appends in flight."""
        settings, log_end = self._member.settings, self._member.terms.last_index
        in_flight_max = settings.appends_in_flight_max
        for peer, progress in self._peers.progress.items():
            if progress.probe_is_due and self._replicate(peer, progress, Index(progress.next_index - 1), now):
                progress.probe_sent(now)
            if progress.next_index <= log_end:
                last = self.last_for(peer)
                if progress.may_send(last, in_flight_max) and self._replicate(peer, progress, last, now):
                    progress.sent(last, now)
            if settings.announces_commits:
                self._announce_commit(peer, progress, heartbeat_round)

    def may_be_due(self, peer: NodeId, progress: Progress) -> bool:
        """Whether ``send`` may now have a probe, entries, an offer or a commit index for this peer."""
        settings = self._member.settings
        return (
            progress.probe_is_due
            or settings.announces_commits
            or (
                progress.next_index <= self._member.terms.last_index
                and progress.may_send(self.last_for(peer), settings.appends_in_flight_max)
            )
        )

    def last_for(self, peer: NodeId) -> Index:
        """The index of the last entry that the peer may get now; a learner gets committed entries only.

        A candidate may need the learner's vote under a membership that the learner does not know yet. A
        learner with uncommitted entries would refuse that vote, and no candidate could win if the voters have
        lost those entries.
        """
        member = self._member
        return member.terms.last_index if peer in member.voters else member.commit_index

    def _replicate(self, to: NodeId, progress: Progress, last: Index, now: int) -> bool:
        """Order an append up to ``last``; if the log lacks the entries, offer the snapshot and
        return False.
        """
        member = self._member
        first = progress.next_index
        previous = Index(first - 1)
        snapshot = member.terms.snapshot
        if progress.state is SNAPSHOT or previous < snapshot.index:
            offer = SnapshotOffer(term=member.term, snapshot=snapshot, membership=member.memberships.base)
            member.send(to, offer)
            progress.snapshot_offered(snapshot.index, now)
            return False
        member.replicate(
            Replicate(
                to=to,
                term=member.term,
                previous=EntryId(member.terms.term_at(previous), previous),
                first=first,
                last=last,
                commit_index=member.commit_index,
            )
        )
        return True

    def _announce_commit(self, to: NodeId, progress: Progress, heartbeat_round: int) -> None:
        """Send a follower the new commit index at once, limited to entries that it holds; each index once."""
        member = self._member
        if progress.announce(member.commit_index):
            held = member.terms.entry_at(min(progress.match_index, member.commit_index))
            announcement = Heartbeat(
                term=member.term, commit_index=held.index, round=heartbeat_round, commit_term=held.term
            )
            member.send(to, announcement)
