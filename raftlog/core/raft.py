"""One member of one Raft group: inputs go in with ``step``, work comes out with ``take_ready``.

Decides what the term of a message means and which role the member has; the roles decide everything else.
``ready`` says what the driver must do with the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


class Raft(Member):
    """A deterministic state machine: equal seeds and equal inputs give equal outputs.

    Drivers read the fields of ``Member``; they change them only by ``step`` and ``take_ready``.
    """

    __slots__ = ("_receivers", "_role", "_steps", "_told")

    _role: RoleState

    def __init__(self, settings: RaftSettings, restored: Restored, rng: Random) -> None:
        """Start as a follower in the restored term; ``rng`` draws election timeouts and incarnations."""
        super().__init__(settings, restored, rng)
        self._become(Follower(self, None))
        self._told = (self.role, self.term, self._role.leader)
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
        if self.is_quiescent and not self._unquiesce(event):
            return
        self._steps[type(event)](event)

    def take_ready(self) -> Ready | None:
        """All work since the last call, as a ``Ready``; None if there is no work."""
        if not self.has_news:
            return None
        self._role.gather()
        now = (self.role, self.term, self._role.leader)
        if now == self._told:
            return self.gathered(None)
        self._told = now
        return self.gathered(RoleChange(*now))

    def status(self) -> RaftStatus:
        """The present state of this member, for metrics and people."""
        role = self._role
        return RaftStatus(
            role=self.role,
            term=self.term,
            leader=role.leader,
            last=self.terms.last,
            durable_index=self.durable_index,
            commit_index=self.commit_index,
            match_index=role.match_index,
            heard_ticks_ago=role.heard_ticks_ago,
            is_quiescent=self.is_quiescent,
            membership=self.membership,
            membership_index=self.membership_index,
            learner_match_index=role.learner_match_index,
            awaiting_snapshot=role.awaiting_snapshot,
            is_rejoining=self.is_rejoining,
            rejoining=role.rejoining,
        )

    def membership_at(self, index: Index) -> Membership:
        """The membership in force at ``index``, which a snapshot at this index must contain."""
        return self.memberships.at(index)

    @property
    def leader(self) -> NodeId | None:
        """The leader of the member's term; None if the member does not know the leader."""
        return self._role.leader

    def has_named(self, node: NodeId) -> bool:
        """Whether any membership in the log names the node."""
        return self.memberships.have_named(node)

    @property
    def is_rejoining(self) -> bool:
        """Whether this member may have lost votes and entries; see ``is_rejoining`` of ``HardState``."""
        return self.rejoining != 0

    @property
    def last(self) -> EntryId:
        """The newest entry of the log, durable or not."""
        return self.terms.last

    @property
    def last_index(self) -> Index:
        """The index of the newest entry of the log, durable or not."""
        return self.terms.last_index

    @property
    def match_index(self) -> Mapping[NodeId, Index]:
        """For each voter, the index up to which its durable log equals the leader's; empty for
        other roles.
        """
        return self._role.match_index

    @property
    def heard_ticks_ago(self) -> Mapping[NodeId, int]:
        """For each peer, the ticks since its last reply; empty for other roles."""
        return self._role.heard_ticks_ago

    @property
    def durable_index(self) -> Index:
        """The newest index that survives a crash of this node."""
        return self.writes.durable_index

    def term_at(self, index: Index) -> Term:
        """The term of an entry of the log, or of the entry just before the log."""
        return self.terms.term_at(index)

    # Inputs

    def _tick(self, _: inputs.Tick) -> None:
        if (change := self._role.tick()) is not None:
            self._change_role(change)

    def _receive(self, event: inputs.Receive) -> None:
        message = event.message
        self.unreachable.discard(event.sender)
        if message.term != self.term and not self._settle_term(event.sender, message):
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
        self.finish_write(event.write_id)
        if (change := self._role.write_finished()) is not None:
            self._change_role(change)

    def _save_hard_state(self, event: inputs.HardStateSaved) -> None:
        self.hard_state_saved(event.write_id)
        self._change_role(self._role.write_finished())

    def _cut_append(self, event: inputs.AppendCut) -> None:
        self._role.append_cut(event.to, event.last)

    def _drop_append(self, event: inputs.AppendDropped) -> None:
        self._role.append_dropped(event.to)

    def _lose_peer(self, event: inputs.PeerUnreachable) -> None:
        self.unreachable.add(event.peer)
        self._role.peer_unreachable(event.peer)

    def _meet_peer(self, event: inputs.PeerReachable) -> None:
        self.unreachable.discard(event.peer)
        self._role.peer_reachable()

    def _truncate_prefix(self, event: inputs.LogTruncatedPrefix) -> None:
        self.truncate_prefix(event.snapshot)

    def _install_snapshot(self, event: inputs.SnapshotInstalled) -> None:
        if event.snapshot.index > self.commit_index:
            self.restart(event.snapshot, event.membership)
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
        if (change := self._role.receive_append_reply(sender, reply)) is not None:
            self._change_role(change)

    def _receive_vote_request(self, sender: NodeId, request: messages.VoteRequest) -> None:
        if request.is_pre_vote:
            answer_pre_vote(self, sender, request, is_sticky=self._role.is_sticky)
        elif answer_vote(self, sender, request):
            self._change_role(self._role.vote_given())
        if request.last < self.newest_durable:
            self._role.candidate_is_behind()

    def _receive_vote(self, sender: NodeId, reply: messages.VoteReply) -> None:
        self._change_role(self._role.receive_vote(sender, reply))

    def _receive_timeout_now(self, sender: NodeId, message: messages.TimeoutNow) -> None:
        if self._role.receive_timeout_now(sender, message):
            self._change_role(Role.CANDIDATE, is_transfer=True)

    # Terms and roles

    def _settle_term(self, sender: NodeId, message: Message) -> bool:
        """Handle the term of a message from another term; return whether to handle the message itself.

        The member enters a later term at once (Raft 5.1). Exceptions are a pre-vote, and the request of a
        candidate that gets no vote because the member's leader is alive. The member answers a message of an
        earlier term with its own term, so that the sender learns the newer term.
        """
        if isinstance(message, messages.VoteRequest):
            if message.is_pre_vote or message.term < self.term:
                return True
            if self._role.is_sticky and not message.is_transfer:
                return False
        elif isinstance(message, messages.VoteReply) and message.term < self.term:
            return True  # a voter of an earlier term may answer a pre-vote; the reply names the request
        if message.term > self.term:
            self._enter_term(sender, message)
            return True
        if isinstance(message, messages.Heartbeat):
            # Round 0: a node that leads in both terms would count the echo for a round of this term.
            reply = messages.HeartbeatReply(
                term=self.term, round=messages.NO_ROUND, rejoining=self.rejoining_told
            )
            self.send(sender, reply)
        elif isinstance(message, messages.AppendRequest | messages.SnapshotOffer):
            self.refuse_append(sender, message)
        return False

    def _enter_term(self, sender: NodeId, message: Message) -> None:
        leader = sender if isinstance(message, _FROM_LEADER) else None
        self._role.resign(leader)
        self.enter_term(message.term, voted_for=None)
        self._become(Follower(self, leader))

    def _follow(self, sender: NodeId) -> Follower:
        """Follow ``sender``, which leads this term; a member in another role becomes a follower first."""
        role = self._role
        if isinstance(role, Follower) and role.leader == sender:
            return role
        if role.leader is not None:
            require_one_leader(self.term, role.leader, sender)
        follower = Follower(self, sender)
        self._become(follower)
        self.request_ready()
        return follower

    def _change_role(self, change: Role | None, *, is_transfer: bool = False) -> None:
        """Change to a role in the current term; if that role changes at once to another one, follow."""
        while change is not None:
            self.request_ready()
            self._role.resign(None)
            match change:
                case Role.FOLLOWER:
                    self._become(Follower(self, None))
                    change = None
                case Role.LEADER:
                    self._become(Leader(self))
                    change = None
                case Role.PRE_CANDIDATE | Role.CANDIDATE:
                    is_pre_vote = change is Role.PRE_CANDIDATE
                    candidate = Candidate(self, is_pre_vote=is_pre_vote, is_transfer=is_transfer)
                    self._become(candidate)
                    change = candidate.start()
                case _:
                    assert_never(change)

    def _become(self, state: RoleState) -> None:
        self._role, self.role = state, state.role

    def _unquiesce(self, event: Input) -> bool:
        """Restart the timers of a quiescent member, unless the input changes nothing for it."""
        match event:
            case inputs.Tick():
                return False
            case inputs.LogTruncatedPrefix():
                return True
            case inputs.Receive(sender, message) if self._role.is_late(sender, message):
                return False
            case inputs.PeerUnreachable(peer) if not self._role.depends_on(peer):
                self.unreachable.add(peer)
                return False
            case inputs.AppendDropped(peer) if not self._role.depends_on(peer):
                return False
            case inputs.PeerReachable(peer) if self.role is not Role.LEADER or peer not in self.unreachable:
                self.unreachable.discard(peer)
                return False
        self.unquiesce()
        self._role.unquiesced()
        if isinstance(event, inputs.Receive) and event.sender != self._role.leader:
            self._role.remind_leader()  # the leader may be quiescent without the sender, and would seem lost
        return True
