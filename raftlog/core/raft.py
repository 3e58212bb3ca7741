"""One member of one Raft group: inputs go in with ``step``, work comes out with ``take_ready``.

Decides what the term of a message means and which role the member has; the roles decide everything else.
``ready`` says what the driver must do with the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Any, assert_never

from raftlog.core import inputs, messages
from raftlog.core.election import Candidate, answer_pre_vote, answer_vote
from raftlog.core.follower import Follower
from raftlog.core.inputs import Input
from raftlog.core.invariants import require_one_leader
from raftlog.core.leader import Leader
from raftlog.core.member import Member
from raftlog.core.membership import Membership
from raftlog.core.messages import Message
from raftlog.core.ready import RaftStatus, Ready, Restored, Role, RoleChange
from raftlog.core.role_state import RoleState
from raftlog.core.settings import RaftSettings
from raftlog.types import EntryId, Index, NodeId, Term

if TYPE_CHECKING:
    from random import Random

__all__ = ["Raft", "RaftSettings"]


_FROM_LEADER = messages.Heartbeat | messages.AppendRequest | messages.SnapshotOffer | messages.RejoinResponse


class Raft:
    """A deterministic state machine: equal seeds and equal inputs give equal outputs."""

    __slots__ = ("_member", "_receivers", "_role", "_steps", "_told")

    def __init__(self, settings: RaftSettings, restored: Restored, rng: Random) -> None:
        """Start as a follower in the restored term; ``rng`` draws election timeouts and incarnations."""
        self._member = Member(settings, restored, rng)
        self._role: RoleState = Follower(self._member, None)
        self._told = self._role_now()
        # Each handler takes exactly the type that is its key.
        self._steps: dict[type[Input], Callable[[Any], None]] = {
            inputs.Tick: self._tick,
            inputs.Receive: self._receive,
            inputs.Propose: self._propose,
            inputs.ConfirmRead: self._confirm_read,
            inputs.ChangeMembership: self._change_membership,
            inputs.TransferLeadership: self._transfer,
            inputs.Campaign: self._campaign,
            inputs.Unquiesce: self._remind_leader,
            inputs.WriteFinished: self._finish_write,
            inputs.HardStateSaved: self._save_hard_state,
            inputs.AppendCut: self._cut_append,
            inputs.AppendDropped: self._drop_append,
            inputs.PeerUnreachable: self._lose_peer,
            inputs.PeerReachable: self._meet_peer,
            inputs.LogTruncatedPrefix: self._truncate_prefix,
            inputs.SnapshotInstalled: self._install_snapshot,
        }
        self._receivers: dict[type[Message], Callable[[NodeId, Any], None]] = {
            messages.Heartbeat: self._receive_heartbeat,
            messages.HeartbeatReply: self._receive_heartbeat_reply,
            messages.AppendRequest: self._receive_append,
            messages.AppendReply: self._receive_append_reply,
            messages.VoteRequest: self._receive_vote_request,
            messages.VoteReply: self._receive_vote,
            messages.RejoinResponse: self._receive_rejoin_response,
            messages.TimeoutNow: self._receive_timeout_now,
            messages.SnapshotOffer: self._receive_snapshot_offer,
        }

    def step(self, event: Input) -> None:
        """Take one input.

        Never blocks, and never raises for anything that a peer, a client or a slow disk can cause.
        ``InvariantViolated`` means that this replica's state is wrong: the process must stop.
        """
        if self._member.is_quiescent and not self._unquiesce(event):
            return
        self._steps[type(event)](event)

    def take_ready(self) -> Ready | None:
        """All work since the last call, or None."""
        member = self._member
        if not member.has_news:
            return None
        self._role.gather()
        now = self._role_now()
        if now == self._told:
            return member.take_ready(None)
        self._told = now
        return member.take_ready(RoleChange(*now))

    def status(self) -> RaftStatus:
        """A snapshot of this member for metrics and people."""
        member, role = self._member, self._role
        return RaftStatus(
            role=role.role,
            term=member.term,
            leader=role.leader,
            last=member.terms.last,
            durable_index=member.writes.durable_index,
            commit_index=member.commit_index,
            match_index=role.match_index,
            heard_ticks_ago=role.heard_ticks_ago,
            is_quiescent=member.is_quiescent,
            membership=member.membership,
            membership_index=member.memberships.newest.index,
            learner_match_index=role.learner_match_index,
            awaiting_snapshot=role.awaiting_snapshot,
            is_rejoining=self.is_rejoining,
            rejoining=role.rejoining,
        )

    def membership_at(self, index: Index) -> Membership:
        """The membership in force at ``index``: a snapshot there must keep it."""
        return self._member.memberships.at(index)

    def may_install(self, snapshot: EntryId) -> bool:
        """Whether the log may be replaced by this snapshot now; step ``SnapshotInstalled`` right after that.

        False forever once ``commit_index`` has reached it; otherwise ask again when a write has finished.
        """
        return self._member.may_install(snapshot)

    @property
    def role(self) -> Role:
        """The role of this member."""
        return self._role.role

    @property
    def term(self) -> Term:
        """The newest term that it knows."""
        return self._member.term

    @property
    def leader(self) -> NodeId | None:
        """The leader of that term, as far as it knows."""
        return self._role.leader

    @property
    def membership(self) -> Membership:
        """The newest membership in its log, committed or not: the one in force."""
        return self._member.membership

    @property
    def membership_index(self) -> Index:
        """The place of that membership in its log; the snapshot's index if the log begins after it."""
        return self._member.memberships.newest.index

    def has_named(self, node: NodeId) -> bool:
        """Whether any membership in its log names the node."""
        return self._member.memberships.have_named(node)

    @property
    def is_rejoining(self) -> bool:
        """Whether this member may have lost votes and entries; see ``HardState``."""
        return self._member.rejoining != 0

    @property
    def last(self) -> EntryId:
        """The newest entry of its log, durable or not."""
        return self._member.terms.last

    @property
    def last_index(self) -> Index:
        """Its index."""
        return self._member.terms.last_index

    @property
    def match_index(self) -> Mapping[NodeId, Index]:
        """For each voter, up to which index its durable log is known to equal ours; empty unless leader."""
        return self._role.match_index

    @property
    def heard_ticks_ago(self) -> Mapping[NodeId, int]:
        """For each peer, the ticks since its last reply; empty unless leader."""
        return self._role.heard_ticks_ago

    @property
    def has_news(self) -> bool:
        """Whether ``take_ready`` has work."""
        return self._member.has_news

    @property
    def commit_index(self) -> Index:
        """Everything up to here is committed."""
        return self._member.commit_index

    @property
    def durable_index(self) -> Index:
        """Everything up to here survives a crash of this node."""
        return self._member.writes.durable_index

    def term_at(self, index: Index) -> Term:
        """The term of an entry of the log, or of the one just before it."""
        return self._member.terms.term_at(index)

    @property
    def unreachable(self) -> Set[NodeId]:
        """Peers whose nodes are unreachable: a leader becomes quiescent without a minority of them."""
        return self._member.unreachable

    @property
    def is_quiescent(self) -> bool:
        """Whether this member needs no ticks until the next input."""
        return self._member.is_quiescent

    # Inputs

    def _tick(self, _: inputs.Tick) -> None:
        self._change_role(self._role.tick())

    def _receive(self, event: inputs.Receive) -> None:
        message = event.message
        self._member.unreachable.discard(event.sender)
        if message.term != self._member.term and not self._settle_term(event.sender, message):
            return
        self._receivers[type(message)](event.sender, message)

    def _propose(self, event: inputs.Propose) -> None:
        self._role.propose(event.token, event.index_count)

    def _confirm_read(self, event: inputs.ConfirmRead) -> None:
        self._role.confirm_read(event.token)

    def _change_membership(self, event: inputs.ChangeMembership) -> None:
        self._role.change_membership(event.token, event.target)

    def _transfer(self, event: inputs.TransferLeadership) -> None:
        self._role.transfer(event.to)

    def _campaign(self, _: inputs.Campaign) -> None:
        self._change_role(self._role.campaign())

    def _remind_leader(self, _: inputs.Unquiesce) -> None:
        self._role.remind_leader()

    def _finish_write(self, event: inputs.WriteFinished) -> None:
        self._member.finish_write(event.write_id)
        self._change_role(self._role.write_finished())

    def _save_hard_state(self, event: inputs.HardStateSaved) -> None:
        self._member.hard_state_saved(event.write_id)
        self._change_role(self._role.write_finished())

    def _cut_append(self, event: inputs.AppendCut) -> None:
        self._role.append_cut(event.to, event.last)

    def _drop_append(self, event: inputs.AppendDropped) -> None:
        self._role.append_dropped(event.to)

    def _lose_peer(self, event: inputs.PeerUnreachable) -> None:
        self._member.unreachable.add(event.peer)
        self._role.peer_unreachable(event.peer)

    def _meet_peer(self, event: inputs.PeerReachable) -> None:
        self._member.unreachable.discard(event.peer)
        self._role.peer_reachable()

    def _truncate_prefix(self, event: inputs.LogTruncatedPrefix) -> None:
        self._member.truncate_prefix(event.snapshot)

    def _install_snapshot(self, event: inputs.SnapshotInstalled) -> None:
        if event.snapshot.index > self._member.commit_index:
            self._member.restart(event.snapshot, event.membership)
            self._change_role(self._role.snapshot_installed())

    # Messages of this member's own term, and vote requests and replies of any

    def _receive_heartbeat(self, sender: NodeId, heartbeat: messages.Heartbeat) -> None:
        self._follow(sender).receive_heartbeat(sender, heartbeat)

    def _receive_append(self, sender: NodeId, request: messages.AppendRequest) -> None:
        self._follow(sender).receive_append(sender, request)

    def _receive_snapshot_offer(self, sender: NodeId, offer: messages.SnapshotOffer) -> None:
        self._follow(sender).receive_snapshot_offer(offer)

    def _receive_rejoin_response(self, sender: NodeId, response: messages.RejoinResponse) -> None:
        self._follow(sender).receive_rejoin_response(response)

    def _receive_heartbeat_reply(self, sender: NodeId, reply: messages.HeartbeatReply) -> None:
        self._role.receive_heartbeat_reply(sender, reply)

    def _receive_append_reply(self, sender: NodeId, reply: messages.AppendReply) -> None:
        self._change_role(self._role.receive_append_reply(sender, reply))

    def _receive_vote_request(self, sender: NodeId, request: messages.VoteRequest) -> None:
        if request.is_pre_vote:
            answer_pre_vote(self._member, sender, request, is_sticky=self._role.is_sticky)
        elif answer_vote(self._member, sender, request):
            self._change_role(self._role.vote_given())
        if request.last < self._member.newest_durable:
            self._role.candidate_is_behind()

    def _receive_vote(self, sender: NodeId, reply: messages.VoteReply) -> None:
        self._change_role(self._role.receive_vote(sender, reply))

    def _receive_timeout_now(self, sender: NodeId, message: messages.TimeoutNow) -> None:
        if self._role.receive_timeout_now(sender, message):
            self._change_role(Role.CANDIDATE, is_transfer=True)

    # Terms and roles

    def _settle_term(self, sender: NodeId, message: Message) -> bool:
        """Handle the term of a message of another term; whether the message itself is still to be handled.

        The member enters a later term at once (Raft 5.1), except for a pre-vote, and for a candidate that
        gets no vote because our leader is alive. It answers an earlier term with its own, so that the
        sender learns the newer term.
        """
        member = self._member
        if isinstance(message, messages.VoteRequest):
            if message.is_pre_vote or message.term < member.term:
                return True
            if self._role.is_sticky and not message.is_transfer:
                return False
        elif isinstance(message, messages.VoteReply) and message.term < member.term:
            return True  # a voter of an earlier term may answer a pre-vote; the reply names the request
        if message.term > member.term:
            self._enter_term(sender, message)
            return True
        if isinstance(message, messages.Heartbeat):
            # Round 0: a node that leads in both terms would count the echo for a round of this term.
            reply = messages.HeartbeatReply(term=member.term, round=0, rejoining=member.rejoining_told)
            member.send(sender, reply)
        elif isinstance(message, messages.AppendRequest | messages.SnapshotOffer):
            member.refuse_append(sender, message)
        return False

    def _enter_term(self, sender: NodeId, message: Message) -> None:
        leader = sender if isinstance(message, _FROM_LEADER) else None
        self._role.resign(leader)
        self._member.enter_term(message.term, voted_for=None)
        self._role = Follower(self._member, leader)

    def _follow(self, sender: NodeId) -> Follower:
        """The follower of ``sender``, which leads this term; the member becomes it if it has another role."""
        role = self._role
        if isinstance(role, Follower) and role.leader == sender:
            return role
        if role.leader is not None:
            require_one_leader(self._member.term, role.leader, sender)
        follower = Follower(self._member, sender)
        self._role = follower
        self._member.request_ready()
        return follower

    def _change_role(self, change: Role | None, *, is_transfer: bool = False) -> None:
        """Change to a role in the current term, and to those that follow from it at once."""
        member = self._member
        while change is not None:
            member.request_ready()
            self._role.resign(None)
            match change:
                case Role.FOLLOWER:
                    self._role, change = Follower(member, None), None
                case Role.LEADER:
                    self._role, change = Leader(member), None
                case Role.PRE_CANDIDATE | Role.CANDIDATE:
                    is_pre_vote = change is Role.PRE_CANDIDATE
                    candidate = Candidate(member, is_pre_vote=is_pre_vote, is_transfer=is_transfer)
                    self._role, change = candidate, candidate.start()
                case _:
                    assert_never(change)

    def _role_now(self) -> tuple[Role, Term, NodeId | None]:
        return (self._role.role, self._member.term, self._role.leader)

    def _unquiesce(self, event: Input) -> bool:
        """Restart the timers of a quiescent member, unless the input changes nothing for it."""
        match event:
            case inputs.Tick():
                return False
            case inputs.LogTruncatedPrefix():
                return True
            case inputs.PeerUnreachable(peer) if not self._role.depends_on(peer):
                self._member.unreachable.add(peer)
                return False
            case inputs.AppendDropped(peer) if not self._role.depends_on(peer):
                return False
            case inputs.PeerReachable(peer) if self.role is not Role.LEADER or peer not in self.unreachable:
                self._member.unreachable.discard(peer)
                return False
        self._member.unquiesce()
        self._role.unquiesced()
        if isinstance(event, inputs.Receive) and event.sender != self._role.leader:
            self._role.remind_leader()  # it may be quiescent without the sender, and would be taken for lost
        return True
