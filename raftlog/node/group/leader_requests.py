"""Requests to a leader that wait for an outcome. Each method names its errors.

Decides: which outcome each request waits for. Leaves to others: when the wait ends (``pending_requests``,
``raft_group``).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, Generic, TypeVar

from raftlog.core.inputs import ChangeMembership, ConfirmRead, Input, TransferLeadership, Unquiesce
from raftlog.core.membership import Membership
from raftlog.core.raft import Raft
from raftlog.errors import CommitUnknown, InvalidRequest, LeadershipNotMoved, NotLeader
from raftlog.node.group.membership_watch import MembershipWatch
from raftlog.node.group.pending_requests import Proposal, Waits, end_at
from raftlog.node.group.replica_health import ReplicaHealth
from raftlog.node.group.view import GroupView
from raftlog.storage.log_storage import LogStorage
from raftlog.types import GroupId, Index, NodeId

ASK_AGAIN_S: Final = 0.75  # of a transfer of leadership: about the time for which the core tries
Reply = TypeVar("Reply")


class LeaderRequests(GroupView, Generic[Reply]):
    """The methods of a ``RaftGroup`` that wait for an outcome."""

    def __init__(
        self,
        group_id: GroupId,
        node_id: NodeId,
        core: Raft,
        log: LogStorage,
        watch: MembershipWatch,
        health: ReplicaHealth,
    ) -> None:
        super().__init__(group_id, node_id, core, log, watch, health)
        self._waits = Waits()
        self._has_backlog = False  # later turns of the event loop apply more committed entries

    async def durable(self, proposal: Proposal[Reply]) -> None:
        """Return once a proposal is durable on this node. Raises ``CommitUnknown`` if leadership is lost."""
        self._check_still_leads(proposal)
        if self._core.durable_index < proposal.last:
            await self._waits.until_durable(proposal.last)

    async def replicated(self, proposal: Proposal[Reply], count: int, until: float) -> None:
        """Return once ``count`` voters, with this leader, hold a proposal durably. Raises ``CommitUnknown``.

        Returns at the latest at the time ``until`` of the running loop.
        """
        self._check_still_leads(proposal)
        if self.replicas_holding(proposal.last) >= count:
            return
        waiter = self._waits.until_replicated(proposal.last, count)
        timer = end_at(waiter, until)
        try:
            await waiter
        finally:
            timer.cancel()

    async def ready(self) -> None:
        """Return once this leader has applied the entries that it needs to check producers' sequences.

        Raises ``NotLeader`` if it steps down.
        """
        while not self.is_ready:
            if not self.is_leader:
                raise self._not_leader()
            await self._waits.until_ready()

    async def confirm_read(self) -> Index:
        """Return an index that covers all entries acknowledged before the call, once it is applied here
        (ReadIndex).

        Raises ``NotLeader``, also if a full disk prevents applying that index, and ``Overloaded``.
        """
        if not self.is_leader:
            raise self._not_leader()
        token, future = self._waits.read()
        self._step(ConfirmRead(token))
        index = await future
        while self.applied_index < index and self._has_backlog:
            await self._waits.until_ready()
        if self.applied_index < index:
            raise NotLeader("the leader's disk is full, so committed records are not in its log", leader=None)
        return index

    async def change_membership(self, target: Membership) -> None:
        """Return once ``target`` is in force and committed.

        If ``target`` is in force already, and an entry of this leader is committed, the call returns at once.
        Otherwise the leader writes the membership again: another replica may hold a change of an earlier
        leader, and would finish that change if elected.

        Raises ``NotLeader`` and ``InvalidRequest`` with nothing done. Raises ``CommitUnknown`` if leadership
        is lost first: another leader may then finish or undo the change. Requesting an equal target from that
        leader is harmless.
        """
        if not self.is_leader:
            raise self._not_leader()
        is_begun = self.membership.leave_joint() == target
        if is_begun and self.membership == target and self.is_membership_committed:
            if self.has_committed:
                return
            is_begun = False
        token, future = self._waits.change(target)
        if not is_begun:
            self._step(ChangeMembership(token, target))
        await future

    async def transfer_and_wait(self, to: NodeId, timeout_ms: int) -> None:
        """Return once another replica leads: ``to``, unless ``to`` loses the election.

        The request is repeated until the time runs out. Raises ``NotLeader`` and ``InvalidRequest`` with
        nothing done; ``LeadershipNotMoved`` if the time runs out first, or this replica stops.
        """
        if not self.is_leader:
            raise self._not_leader()
        others = sorted(self.membership.voters - {self.node_id})
        if to not in others:
            raise InvalidRequest(
                f"to: broker {to} is not another voter of this group; choose one of {others}"
            )
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self.stopped is None and self.leader in (None, self.node_id):
                    if self.is_leader:
                        self._step(TransferLeadership(to))
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(ASK_AGAIN_S):
                            await self._waits.until_role_changes()
        except TimeoutError:
            raise LeadershipNotMoved(f"no other broker led within {timeout_ms} ms; retry") from None
        if self.leader is None:  # this replica has stopped: another may lead, perhaps due to this request
            raise LeadershipNotMoved("the leading replica has stopped; find the new leader before you retry")

    def _step(self, event: Input) -> None:
        raise NotImplementedError

    def _check_still_leads(self, proposal: Proposal[Reply]) -> None:
        if not self.is_leader or self._core.term != proposal.term:
            raise CommitUnknown(
                "leadership was lost before the records were stored as requested", committed=None
            )

    def _not_leader(self) -> NotLeader:
        """The error ``NotLeader``. Also wake a quiescent group, whose leader may have failed."""
        leader = self.leader
        if self._core.is_quiescent:
            self._step(Unquiesce())
        known = "no leader is known yet" if leader is None else f"the leader is broker {leader}"
        return NotLeader(f"this broker does not lead the partition; {known}", leader=leader)
