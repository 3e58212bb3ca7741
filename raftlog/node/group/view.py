"""Queries about a replica: role, indexes, membership, peers that are in sync.

``raft_group`` changes the state that the queries read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from raftlog.core.membership import Membership
from raftlog.core.raft import Raft
from raftlog.core.ready import RaftStatus, Role
from raftlog.node.group.membership_watch import MembershipWatch
from raftlog.node.group.replica_health import ReplicaHealth
from raftlog.storage.log_storage import LogStorage
from raftlog.types import GroupId, Index, NodeId, Term


class GroupView:
    """One member of one group, read-only. For the event loop's thread only."""

    def __init__(
        self,
        group_id: GroupId,
        node_id: NodeId,
        core: Raft,
        log: LogStorage,
        watch: MembershipWatch,
        health: ReplicaHealth,
    ) -> None:
        self.group_id = group_id
        self.node_id = node_id
        self.log = log
        self.stopped: BaseException | None = None
        self._core = core
        self._watch = watch
        self._health = health
        self._ready_at: tuple[Term, Index] | None = None  # a leader epoch, and the log's end at its begin

    @property
    def role(self) -> Role:
        """The role of this member."""
        return self._core.role

    @property
    def term(self) -> Term:
        """The newest term that this member has seen."""
        return self._core.term

    @property
    def leader(self) -> NodeId | None:
        """The leader of this term; None if it is unknown, or if this replica no longer takes part."""
        return None if self.stopped else self._core.leader

    @property
    def is_leader(self) -> bool:
        """Whether this replica believes that it leads; a deposed leader may still believe so for a while."""
        return self.stopped is None and self._core.role is Role.LEADER

    @property
    def is_ready(self) -> bool:
        """Whether this replica leads and has applied all entries that its log had when it was elected."""
        if not self.is_leader or self._ready_at is None:
            return False
        term, index = self._ready_at
        return term == self._core.term and self.applied_index >= index

    @property
    def unreachable(self) -> Set[NodeId]:
        """Peers whose nodes are unreachable, according to the host of this group."""
        return self._core.unreachable

    @property
    def is_rejoining(self) -> bool:
        """Whether this replica may have lost votes and entries, and counts towards no quorum yet."""
        return self._core.is_rejoining

    @property
    def commit_index(self) -> Index:
        """The newest index that is known to be committed."""
        return self._core.commit_index

    @property
    def applied_index(self) -> Index:
        """The index of the newest entry that the machine has applied."""
        raise NotImplementedError

    @property
    def last_index(self) -> Index:
        """The newest index in this replica's log, committed or not."""
        return self._core.last_index

    @property
    def durable_index(self) -> Index:
        """The newest index that survives a crash of this machine."""
        return self._core.durable_index

    @property
    def membership(self) -> Membership:
        """The membership in force: the newest in this log, committed or not."""
        return self._core.membership

    def membership_at(self, index: Index) -> Membership:
        """The membership in force after the entry at ``index``; not for entries before the log."""
        return self._core.membership_at(index)

    def quorum_since(self, index: Index) -> int:
        """The smallest number of voters that hold the entry committed at ``index``, in any later
        membership.
        """
        return self._core.memberships.quorum_since(index)

    @property
    def is_membership_committed(self) -> bool:
        """Whether the membership in force is known to be committed; otherwise a new leader may undo it."""
        return not self._watch.is_open

    @property
    def has_committed(self) -> bool:
        """Whether an entry of this leader's term is committed.

        Entries of earlier terms that no quorum holds can then never become committed.
        """
        return self._core.term_at(self.commit_index) == self.term

    @property
    def is_removed(self) -> bool:
        """Whether this log has named this replica, and a committed membership no longer names it.

        A replica that was added again first reads its own earlier removal: check the metadata, too,
        before the replica is deleted.
        """
        return self._watch.is_removed

    def status(self) -> RaftStatus:
        """The state of this member, for metrics and people."""
        return self._core.status()

    @property
    def match_index(self) -> Mapping[NodeId, Index]:
        """For each voter, the index up to which its durable log equals the leader's; empty if not
        the leader.
        """
        return self._core.match_index

    def replicas_holding(self, index: Index) -> int:
        """The number of voters known to hold all entries up to ``index`` durably; 0 if this is not the
        leader.
        """
        voters, count = self._core.membership.voters, 0
        for node, match in self._core.match_index.items():
            count += match >= index and node in voters
        return count

    def successor(self, candidates: Iterable[NodeId]) -> NodeId | None:
        """The most advanced of the candidates, to lead after this leader; None if no candidate is a known
        voter.
        """
        voters = self._core.membership.voters
        match = self._core.match_index
        known = [peer for peer in sorted(candidates) if peer in match and peer in voters - {self.node_id}]
        return max(known, key=match.__getitem__, default=None)

    def in_sync(self, lag_records_max: int | None, lag_ms_max: int) -> frozenset[NodeId]:
        """The voters that keep up, according to the leader; empty if this replica does not lead."""
        return self.keeping_up(lag_records_max, lag_ms_max) if self.is_leader else frozenset()

    def keeping_up(self, lag_records_max: int | None, lag_ms_max: int) -> frozenset[NodeId]:
        """The voters that keep up; only for callers that know that this replica leads."""
        if self._core.is_quiescent:
            return self._core.membership.voters - self._core.unreachable
        return self._health.in_sync(self._core, lag_records_max, lag_ms_max)
