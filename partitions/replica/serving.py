"""Conditions for serving: the topic exists, the replica leads, and it knows the earlier commits.

Decides: which error tells a caller that it does not hold. Leaves to others: serving (``replica``
writes, ``reads`` reads).
"""

from __future__ import annotations

import asyncio
from typing import Final

from raftlog.errors import LogCorrupt, NoLeader, NotLeader, PartitionNotFound, TopicNotFound
from raftlog.node.group.raft_group import RaftGroup
from raftlog.records.control import log_start_in
from raftlog.types import GroupId, Index, NodeId, Term, TopicPartition

CONFIRM_S: Final = 1.0  # how long it may take to prove that this is still the leader
RETRY_AFTER_MS: Final = 200


class Serving:
    """The right of one replica to serve, as it comes and goes."""

    def __init__(self, target: TopicPartition) -> None:
        self.target = target
        self.leader_epoch: Term | None = None  # in which this replica leads, as its listener was told
        self.is_deleted = False  # the topic, or the partition
        self.is_removed = False  # the partition alone
        self._group: RaftGroup[None] | None = None

    def attach(self, group: RaftGroup[None]) -> None:
        """Serve from this group from now on."""
        self._group = group

    @property
    def group(self) -> RaftGroup[None]:
        """The Raft group behind it. Raises ``NoLeader`` until there is one."""
        if self._group is None:
            raise NoLeader(f"{self.target} is being opened here; retry", retry_after_ms=RETRY_AFTER_MS)
        return self._group

    @property
    def is_attached(self) -> bool:
        """Whether there is a group yet."""
        return self._group is not None

    @property
    def leader(self) -> NodeId | None:
        """The leader, as far as it is known here."""
        return None if self._group is None else self._group.leader

    def led(self, group_id: GroupId) -> RaftGroup[None] | None:
        """The group with this id, if ``check_leads`` would return that group; otherwise None."""
        group = self._group
        is_led = group is not None and group.group_id == group_id and not self.is_deleted and group.is_leader
        return group if is_led else None

    @property
    def is_ready(self) -> bool:
        """Leads, and has applied everything that stood in the log at its election."""
        group = self.group
        return group.is_ready and group.term == self.leader_epoch

    @property
    def knows_start(self) -> bool:
        """Whether the local log start is at least the log start of every earlier leader.

        A leader that cannot commit, as all disks are full, is never ready. It serves what it knows, unless an
        entry that it has not applied could be a later start.
        """
        if self.is_ready:
            return True
        rest = self.group.unapplied
        return rest is not None and all(log_start_in(batch) is None for batch in rest)

    def check_exists(self) -> None:
        """Raise unless the topic and the partition exist."""
        if self.is_removed:
            raise PartitionNotFound(
                f"{self.target} was decommissioned and has been removed",
                topic=self.target.topic,
                partition=self.target.partition,
            )
        if self.is_deleted:
            raise TopicNotFound(f"topic {self.target.topic!r} was deleted", topic=self.target.topic)

    def check_leads(self) -> RaftGroup[None]:
        """The group; raises unless this replica leads it."""
        if self.is_deleted:
            self.check_exists()
        group = self._group or self.group
        if not group.is_leader:
            leader = group.leader
            hint = "an election is under way" if leader is None else f"ask broker {leader}"
            raise NotLeader(f"this broker does not lead {self.target}; {hint}", leader=leader)
        return group

    check_serves = check_leads  # only the leader serves, unless a reader permits staleness

    async def ready(self, deadline: float) -> None:
        """Return once this leader knows all that earlier ones committed. Raises ``NoLeader`` if too late."""
        if self.is_ready:
            return
        try:
            async with asyncio.timeout_at(deadline):
                while not self.is_ready:
                    await self.group.ready()
                    await asyncio.sleep(0)  # the election may be too young for its listeners to know
        except TimeoutError:
            raise self._unconfirmed() from None
        self.check_leads()

    async def confirm(self) -> Index:
        """An index, applied here, that covers all that was acknowledged before; proves that it leads."""
        try:
            async with asyncio.timeout(CONFIRM_S):
                return await self.group.confirm_read()
        except TimeoutError:
            raise self._unconfirmed() from None

    def damaged(self, error: LogCorrupt | OSError) -> NotLeader:
        """End this replica, whose log could not be read. Its readers go to the next leader."""
        self.group.stop(error)
        return NotLeader(f"the log of {self.target} is damaged here; retry", leader=None)

    def _unconfirmed(self) -> NoLeader:
        return NoLeader(
            f"the leader of {self.target} has not been confirmed yet; retry", retry_after_ms=RETRY_AFTER_MS
        )
