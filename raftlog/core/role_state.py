"""The default response of a role to inputs and messages that another role handles.

A request that only a leader can handle is refused, and the refusal names the leader; all other inputs are
ignored. ``Follower``, ``Candidate`` and ``Leader`` override the methods that they handle. A method that
returns a ``Role`` asks ``Raft`` to change to that role.
"""

from __future__ import annotations

from collections.abc import Mapping

from raftlog.core.member import Member
from raftlog.core.membership import Membership
from raftlog.core.messages import AppendReply, HeartbeatReply, Message, TimeoutNow, VoteReply
from raftlog.core.ready import Role
from raftlog.types import Index, NodeId, Token


class RoleState:
    """The state and the behaviour of a member in one role."""

    __slots__ = ("_member", "leader", "role")

    def __init__(self, member: Member, role: Role, leader: NodeId | None) -> None:
        """Begin the role. ``leader``: the leader of the member's term, None if unknown."""
        self._member = member
        self.role = role
        self.leader = leader

    @property
    def is_sticky(self) -> bool:
        """Whether the leader of this term is alive, so that candidates get no vote here (thesis 4.2.3)."""
        return False

    def tick(self) -> Role | None:
        """Count one unit of time; each role has its own timers."""
        raise NotImplementedError

    def depends_on(self, peer: NodeId) -> bool:
        """Whether the loss of the connection to ``peer`` changes anything for this member."""
        return True

    def is_late(self, sender: NodeId, message: Message) -> bool:
        """Whether a quiescent member ignores a message that was sent before it became quiescent."""
        return False

    def unquiesced(self) -> None:
        """Restart all timers: the group was quiescent until now, so no message was due."""

    def gather(self) -> None:
        """Put all due messages into the outbox; called by ``take_ready``."""

    def resign(self, leader: NodeId | None) -> None:
        """End this role; ``leader`` is the new leader, or None if it is unknown."""

    # Requests

    def propose(self, token: Token | None, index_count: int) -> None:
        """Append ``index_count`` indexes to the log."""
        if token is not None:
            self._member.refuse(token, self.leader)

    def confirm_read(self, token: Token) -> None:
        """Answer with an index that a linearizable read must wait for."""
        self._member.refuse(token, self.leader)

    def change_membership(self, token: Token, target: Membership) -> None:
        """Make ``target`` the membership."""
        self._member.refuse(token, self.leader)

    def transfer(self, to: NodeId) -> None:
        """Transfer leadership to ``to``."""

    def campaign(self) -> Role | None:
        """Hold an election now."""
        return Role.PRE_CANDIDATE if self._member.may_campaign else None

    def remind_leader(self) -> None:
        """Make sure that there is a leader that answers: a request for the leader has arrived."""

    # What the driver reports

    def write_finished(self) -> Role | None:
        """Continue after more of the log, or the hard state, has become durable."""
        return None

    def snapshot_installed(self) -> Role | None:
        """Continue after a snapshot has replaced the log."""
        return Role.FOLLOWER

    def peer_unreachable(self, peer: NodeId) -> None:
        """Continue after the connection to ``peer`` broke."""

    def peer_reachable(self) -> None:
        """Handle that the node of an unreachable peer has answered again."""

    def append_cut(self, to: NodeId, last: Index) -> None:
        """Continue after only the entries up to ``last`` were sent to ``to``."""

    def append_dropped(self, to: NodeId) -> None:
        """Continue after an append that was ordered for ``to`` was not sent."""

    # Messages of the member's own term

    def vote_given(self) -> Role | None:
        """Handle that this member has voted for another candidate."""
        return Role.FOLLOWER

    def candidate_is_behind(self) -> None:
        """Handle that a candidate got no vote, because it lacks durable entries of this member."""

    def receive_vote(self, sender: NodeId, reply: VoteReply) -> Role | None:
        """Count a reply to a request for votes."""
        return None

    def receive_heartbeat_reply(self, sender: NodeId, reply: HeartbeatReply) -> None:
        """Note a follower's reply to a heartbeat."""

    def receive_append_reply(self, sender: NodeId, reply: AppendReply) -> Role | None:
        """Note a follower's reply to an append."""
        return None

    def receive_timeout_now(self, sender: NodeId, message: TimeoutNow) -> bool:
        """Return whether to hold an election at once, as ``sender`` requests."""
        return False

    # Status: known to the leader only

    @property
    def match_index(self) -> Mapping[NodeId, Index]:
        """For each voter, the index up to which its durable log is known to equal the leader's."""
        return {}

    @property
    def learner_match_index(self) -> Mapping[NodeId, Index]:
        """For each non-voting learner, the index up to which its durable log equals the leader's."""
        return {}

    @property
    def heard_ticks_ago(self) -> Mapping[NodeId, int]:
        """Ticks since each peer's last reply."""
        return {}

    @property
    def awaiting_snapshot(self) -> frozenset[NodeId]:
        """Peers that need a snapshot, because they need entries that are deleted from the leader's log."""
        return frozenset()

    @property
    def rejoining(self) -> Mapping[NodeId, frozenset[NodeId]]:
        """Peers that rejoin, each with the voters that have yet to confirm this leader for that peer."""
        return {}
