"""Conditions for serving: the topic exists, the replica leads, and it knows all earlier commits.

Decides: the error for a caller while a condition does not hold. Leaves to others: writes (``replica``) and
reads (``reads``).
"""

from __future__ import annotations

import asyncio
from typing import Final

from raftlog.errors import LogCorrupt, NoLeader, NotLeader, PartitionNotFound, TopicNotFound
from raftlog.node.group.raft_group import RaftGroup
from raftlog.records.control import log_start_in
from raftlog.types import GroupId, Index, NodeId, Term, TopicPartition

CONFIRM_S: Final = 1.0  # time limit for the proof that this replica still leads
RETRY_AFTER_MS: Final = 200


class Serving:
    """The right of one replica to serve as leader."""

    def __init__(self, target: TopicPartition) -> None:
        self.target = target
        self.leader_epoch: Term | None = None  # term in which this replica leads, by its last callback
        self.is_deleted = False  # the topic was deleted, or the partition removed
        self.is_removed = False  # the partition was removed
        self._group: RaftGroup[None] | None = None

    def attach(self, group: RaftGroup[None]) -> None:
        """Serve from ``group`` from now on."""
        self._group = group

    @property
    def group(self) -> RaftGroup[None]:
        """The Raft group of the replica. Raises ``NoLeader`` before ``attach``."""
        if self._group is None:
            raise NoLeader(f"{self.target} is being opened here; retry", retry_after_ms=RETRY_AFTER_MS)
        return self._group

    @property
    def is_attached(self) -> bool:
        """Whether the Raft group has been attached."""
        return self._group is not None

    @property
    def leader(self) -> NodeId | None:
        """The leader, as far as this replica knows."""
        return None if self._group is None else self._group.leader

    def led(self, group_id: GroupId) -> RaftGroup[None] | None:
        """The Raft group, if it has this id and ``check_leads`` would return it; otherwise None."""
        group = self._group
        is_led = group is not None and group.group_id == group_id and not self.is_deleted and group.is_leader
        return group if is_led else None

    @property
    def is_ready(self) -> bool:
        """Whether the replica leads, and has applied all entries that its log had at its election."""
        group = self.group
        return group.is_ready and group.term == self.leader_epoch

    @property
    def knows_start(self) -> bool:
        """Whether this replica's log start is at least the log start of every earlier leader.

        A leader that cannot commit because all disks are full is never ready. It still serves reads, unless
        an entry that it has not applied sets a later log start.
        """
        if self.is_ready:
            return True
        rest = self.group.unapplied
        return rest is not None and all(log_start_in(batch) is None for batch in rest)

    def check_exists(self) -> None:
        """Raise an error unless the topic and the partition exist."""
        if self.is_removed:
            raise PartitionNotFound(
                f"{self.target} was decommissioned and removed; use another partition",
                topic=self.target.topic,
                partition=self.target.partition,
            )
        if self.is_deleted:
            raise TopicNotFound(f"topic {self.target.topic!r} was deleted", topic=self.target.topic)

    def check_leads(self) -> RaftGroup[None]:
        """Return the Raft group, or raise an error unless this replica leads the group."""
        if self.is_deleted:
            self.check_exists()
        group = self._group or self.group
        if not group.is_leader:
            leader = group.leader
            hint = "an election is under way" if leader is None else f"ask broker {leader}"
            raise NotLeader(f"this broker does not lead {self.target}; {hint}", leader=leader)
        return group

    check_serves = check_leads  # only the leader serves, unless a reader accepts staleness

    async def ready(self, deadline: float) -> None:
        """Return once this leader has applied all earlier commits. Raises ``NoLeader`` after the deadline."""
        if self.is_ready:
            return
        try:
            async with asyncio.timeout_at(deadline):
                while not self.is_ready:
                    await self.group.ready()
                    await asyncio.sleep(0)  # listeners may not have been called since the election
        except TimeoutError:
            raise self._unconfirmed() from None
        self.check_leads()

    async def confirm(self) -> Index:
        """Prove that the replica leads; return an applied index that covers all earlier acknowledgements."""
        try:
            async with asyncio.timeout(CONFIRM_S):
                return await self.group.confirm_read()
        except TimeoutError:
            raise self._unconfirmed() from None

    def damaged(self, error: LogCorrupt | OSError) -> NotLeader:
        """Stop this replica, because its log could not be read; return an error after which readers look
        elsewhere.
        """
        self.group.stop(error)
        return NotLeader(f"the log of {self.target} is damaged on this broker; retry", leader=None)

    def _unconfirmed(self) -> NoLeader:
        return NoLeader(
            f"the leader of {self.target} has not been confirmed yet; retry", retry_after_ms=RETRY_AFTER_MS
        )
