"""The follower: makes its log equal to the leader's, and campaigns when it no longer hears the leader.

Decides which entries of an append are new, which conflict, when the election timer fires, and whether this
member may become quiescent. A reply that accepts an append leaves when the entries are durable.
"""

from __future__ import annotations

from raftlog.core.entries import EntrySpan
from raftlog.core.member import Member
from raftlog.core.messages import (
    NO_ROUND,
    AppendReply,
    AppendRequest,
    Heartbeat,
    HeartbeatReply,
    RejoinResponse,
    SnapshotOffer,
    TimeoutNow,
)
from raftlog.core.ready import FetchSnapshot, Role
from raftlog.core.role_state import RoleState
from raftlog.types import EntryId, Index, NodeId


class Follower(RoleState):
    """The role of a member that follows a leader, or waits for a leader."""

    __slots__ = ("_newest_round", "_silent_ticks", "_timeout_ticks")

    def __init__(self, member: Member, leader: NodeId | None) -> None:
        """Follow ``leader``, or wait for a leader."""
        super().__init__(member, Role.FOLLOWER, leader)
        self._silent_ticks = 0  # since the leader was heard or the election timer was reset
        self._timeout_ticks = member.election_timeout()
        self._newest_round = 0  # the newest heartbeat round received; heartbeats of older rounds are late

    @property
    def is_sticky(self) -> bool:
        """Whether the leader was heard within an election timeout (thesis 4.2.3)."""
        return self.leader is not None and self._silent_ticks < self._member.settings.election_ticks

    def tick(self) -> Role | None:
        """Campaign when the leader has been silent for the election timeout."""
        self._silent_ticks = silent_ticks = self._silent_ticks + 1
        if silent_ticks < self._timeout_ticks:
            return None
        if self._member.may_campaign:
            return Role.PRE_CANDIDATE
        self._wait_to_be_told()
        return None

    def write_finished(self) -> Role | None:
        """Reply to the leader if this rejoining member now durably holds all required entries."""
        if self._has_rejoined():
            self._agree(self._member.matched)
        return None

    def depends_on(self, peer: NodeId) -> bool:
        """Whether ``peer`` is the leader: the loss of any other peer changes nothing for a follower."""
        return peer == self.leader

    def unquiesced(self) -> None:
        """Restart the election timer: while the group was quiescent, the leader had to send no heartbeat."""
        self._reset_election_timer()

    def vote_given(self) -> Role | None:
        """Give the candidate a whole election timeout to win."""
        self._reset_election_timer()
        return None

    def peer_unreachable(self, peer: NodeId) -> None:
        """Forget the leader if it is ``peer``, and campaign soon.

        The other voters notice the loss at about the same time. Each voter waits by its campaign rank, which
        all voters know and which differs from group to group. So no two voters split the votes, and the
        groups that one node led do not all elect the same new leader.
        """
        if peer == self.leader:
            self.leader = None
            self._campaign_within(self._ticks_by_rank())
            self._member.request_ready()

    def candidate_is_behind(self) -> None:
        """Campaign soon if no leader is known: the refused candidate cannot win without this member."""
        if self.leader is None and self._member.may_campaign:
            left = self._timeout_ticks - self._silent_ticks
            self._campaign_within(min(left, self._ticks_by_rank()))

    def receive_heartbeat(self, sender: NodeId, heartbeat: Heartbeat) -> None:
        """Learn the commit index; become quiescent with the leader if this member has no open work."""
        member = self._member
        self._silent_ticks = 0
        self._learn_commit(heartbeat)
        is_current = heartbeat.round > self._newest_round
        if is_current:
            self._newest_round = heartbeat.round
        if heartbeat.quiesces and is_current and self._may_quiesce(heartbeat.commit_index):
            member.quiesce()  # A reply would unquiesce the leader.
            return
        self._echo(sender, heartbeat.round)

    def receive_append(self, sender: NodeId, request: AppendRequest) -> None:
        """Make the log equal to the leader's, or tell the leader where the logs may agree (Raft 5.3)."""
        member = self._member
        self._silent_ticks = 0
        previous = request.previous
        if previous.index < member.terms.snapshot.index:
            # The entries before this log are committed, so the leader holds the same entries.
            matched = member.commit_index
        elif member.terms.holds(previous):
            matched = previous.index
            for span in request.spans:
                if span.first != matched + 1:
                    break
                matched = self._take_in(span)
            member.commit_to(min(request.commit_index, matched))
        else:
            reply = AppendReply(
                term=member.term,
                accepted=False,
                match_index=previous.index,
                hint=member.terms.newest_at_most(previous),
                rejoining=member.rejoining_told,
            )
            member.send(sender, reply)
            return
        self._agree(matched)

    def receive_snapshot_offer(self, offer: SnapshotOffer) -> None:
        """Fetch the snapshot, unless this log already holds its entry (Raft 7)."""
        member, snapshot = self._member, offer.snapshot
        self._silent_ticks = 0
        if snapshot.index <= member.commit_index:
            self._agree(member.commit_index)
        elif member.terms.holds(snapshot):
            member.commit_to(snapshot.index)
            self._agree(snapshot.index)
        elif self.leader is not None:
            member.fetch(FetchSnapshot(self.leader, snapshot, offer.membership))

    def receive_rejoin_response(self, response: RejoinResponse) -> None:
        """Note up to which index the log must reach before this incarnation counts in quorums."""
        if response.rejoining == self._member.rejoining:
            self._member.require_for_rejoin(response.last)
            self._agree(self._member.matched)

    def remind_leader(self) -> None:
        """Send the leader a reply that makes a quiescent leader active; a lost leader will not answer.

        The reply echoes no round: the leader's last heartbeat may not have arrived here.
        """
        if self.leader is not None:
            self._echo(self.leader, NO_ROUND)

    def receive_timeout_now(self, sender: NodeId, message: TimeoutNow) -> bool:
        """Learn the commit index, and return whether to hold an election: only if this member may win one."""
        member = self._member
        may_stand = member.is_voter and member.may_vote
        if not may_stand or self.leader != sender:
            return False
        self._learn_commit(message)
        return True

    def snapshot_installed(self) -> Role | None:
        """Report the installed snapshot to the leader, which then sends the entries after it."""
        self._agree(self._member.commit_index)
        return None

    def _learn_commit(self, told: Heartbeat | TimeoutNow) -> None:
        """Commit up to the leader's commit index, if this log holds the leader's entry at that index.

        The entry is compared because the leader relies on what a replica held before the replica lost a part
        of its log: an older copy of a disk, not yet marked as such, can have other entries at these indexes.
        Appends compare the logs, too.
        """
        member = self._member
        if told.commit_index > member.commit_index and not member.rejoining:
            committed = EntryId(told.commit_term, told.commit_index)
            if member.terms.holds(committed):
                member.commit_to(committed.index)

    def _reset_election_timer(self) -> None:
        """Wait a whole election timeout, starting now."""
        self._campaign_within(self._member.election_timeout())

    def _campaign_within(self, ticks: int) -> None:
        self._silent_ticks = 0
        self._timeout_ticks = ticks

    def _ticks_by_rank(self) -> int:
        """The ticks to wait before a campaign: members with a lower campaign rank wait a shorter time."""
        member = self._member
        settings = member.settings
        voters = sorted(member.membership.all_voters - member.unreachable)
        rank = 0
        if member.id in voters:
            rank = (voters.index(member.id) + settings.campaign_rank_offset) % len(voters)
        return 1 + rank * max(2, settings.election_ticks // 3) + member.rng.randint(0, 1)

    def _wait_to_be_told(self) -> None:
        """Remind the leader once, then become quiescent: this member must not campaign."""
        member = self._member
        if self.leader is not None:
            self.remind_leader()
            self.leader = None
            self._reset_election_timer()
        elif member.writes.all_finished:
            if member.rejoining:  # its leader may be quiescent and not know that this log was lost
                for peer in member.peers:
                    self._echo(peer, NO_ROUND)
            member.quiesce()

    def _agree(self, matched: Index) -> None:
        """Reply that this log equals the leader's up to ``matched``, once the log is durable up to there."""
        member = self._member
        if self.leader is None:
            return
        member.agree(matched)
        if self._has_rejoined():
            member.rejoined(self.leader)
        reply = AppendReply(term=member.term, accepted=True, match_index=matched, rejoining=member.rejoining)
        member.send_when_durable(self.leader, reply, matched)

    def _has_rejoined(self) -> bool:
        """Whether this disk holds all entries that the leader requires for rejoining."""
        member = self._member
        last = member.rejoin_last
        return last is not None and min(member.matched, member.writes.durable_index) >= last

    def _echo(self, leader: NodeId, heartbeat_round: int) -> None:
        member = self._member
        reply = HeartbeatReply(term=member.term, round=heartbeat_round, rejoining=member.rejoining_told)
        member.send(leader, reply)

    def _may_quiesce(self, commit_index: Index) -> bool:
        """Whether this member has no open work.

        Entries that the leader lacks may stay: the next append removes them.
        """
        return self._member.commit_index == commit_index and self._member.writes.all_finished

    def _take_in(self, span: EntrySpan) -> Index:
        """Remove conflicting entries and append missing ones; keep equal entries. Return the last index."""
        member = self._member
        held = member.terms.held_from(span.term, span.first)
        if held < span.last:
            first_new = Index(held + 1)
            if first_new <= member.terms.last_index:
                member.truncate(first_new)
            member.append(span.term, first_new, span.last, span.kind, span.membership)
        return span.last
