"""Administers partitions: leadership, replicas, deletion, archiving, and unsafe recovery.

The calls return the response bodies of the HTTP contract. Changes of replicas and unsafe recovery are not
retried: after an unknown outcome, check before trying again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from raftlog.client.options import Duration, seconds
from raftlog.wire import bodies, partitions
from raftlog.wire.operation import Operation

if TYPE_CHECKING:
    from raftlog.client.session import Session

LOOK_S = 0.2
RECOVERY_TIMEOUT_S = 30.0


class AsyncPartitions:
    """The partitions of the cluster: their leaders, their replicas, and the start of their logs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def describe(self, topic: str, partition: int) -> bodies.PartitionDescription:
        """One partition as its leader describes it. Raises ``TopicNotFound``, ``PartitionNotFound``."""
        return await self._session.call(partitions.DESCRIBE, topic=topic, partition=partition)

    async def transfer_leadership(
        self, topic: str, partition: int, *, to: int | None = None, leader_epoch: int | None = None
    ) -> bodies.Leadership:
        """Transfer leadership to ``to``, or to the most up-to-date replica. Returns once that replica leads.

        ``leader_epoch`` is the epoch of the leader to replace; without ``to`` the default is the current
        leader's epoch. Safe to repeat with an explicit ``leader_epoch``: once a later epoch has begun, the
        call changes nothing. Raises ``InvalidRequest``, ``Conflict``, ``LeadershipNotMoved``.
        """
        if to is None and leader_epoch is None:
            shown = await self.describe(topic, partition)
            leader_epoch = None if shown.leader is None else shown.leader_epoch
        return await self._session.call(
            partitions.TRANSFER_LEADERSHIP,
            bodies.TransferLeadership(to, leader_epoch),
            may_repeat=leader_epoch is not None,
            topic=topic,
            partition=partition,
        )

    async def add_replica(
        self, topic: str, partition: int, broker: int, *, wait: Duration | None = None
    ) -> bodies.PartitionDescription:
        """Add a replica. With ``wait`` the call returns when the replica is added, or after this time."""
        body = bodies.OneReplica(broker)
        return await self._move(partitions.ADD_REPLICA, topic, partition, body, wait)

    async def remove_replica(
        self, topic: str, partition: int, broker: int, *, wait: Duration | None = None
    ) -> bodies.PartitionDescription:
        """Remove a replica; ``wait`` as for ``add_replica``."""
        body = bodies.OneReplica(broker)
        return await self._move(partitions.REMOVE_REPLICA, topic, partition, body, wait)

    async def set_replicas(
        self, topic: str, partition: int, brokers: Sequence[int], *, wait: Duration | None = None
    ) -> bodies.PartitionDescription:
        """Move the partition to exactly these brokers.

        The first one is the preferred leader; ``wait`` works as for ``add_replica``.
        """
        body = bodies.SetReplicas([*brokers])
        return await self._move(partitions.SET_REPLICAS, topic, partition, body, wait)

    async def delete_before(self, topic: str, partition: int, offset: int) -> bodies.RecordsDeleted:
        """Delete the records of a partition below ``offset``. Once the call returns, no reader gets them.

        Safe to repeat: a log that begins at ``offset`` or above stays as it is. Raises ``InvalidRequest`` for
        an offset above the high watermark and for compacted and internal topics; raises ``Conflict`` for an
        offset inside an open transaction, and if the topic requires an archive and a record is not archived.
        """
        return await self._session.call(
            partitions.DELETE_BEFORE, bodies.DeleteBefore(offset), topic=topic, partition=partition
        )

    async def set_archived(
        self, topic: str, partition: int, offset: int, *, allow_lower: bool = False
    ) -> bodies.ArchivedUpTo:
        """Declare that all records of a partition below ``offset`` are in an archive.

        Retention of topics with ``retention.archive.required`` deletes only archived records. Safe to repeat:
        an offset below the stored one changes nothing, unless ``allow_lower``. Raises ``InvalidRequest`` for
        an offset above the last stable offset, and for internal topics.
        """
        return await self._session.call(
            partitions.SET_ARCHIVED,
            bodies.SetArchived(offset, allow_lower),
            topic=topic,
            partition=partition,
        )

    async def unsafe_recover(
        self, topic: str, partition: int, *, confirm: str | None = None
    ) -> bodies.PartitionDescription:
        """Recover a partition from a surviving replica; entries that only the lost majority holds are lost.

        Raises ``Conflict`` with an estimate of the loss, unless ``confirm`` is the phrase that this error has
        in ``details["confirm"]``.
        """
        return await self._session.call(
            partitions.UNSAFE_RECOVER,
            bodies.UnsafeRecover(confirm),
            attempt_timeout_s=RECOVERY_TIMEOUT_S,
            topic=topic,
            partition=partition,
        )

    async def _move(
        self,
        operation: Operation[bodies.PartitionDescription],
        topic: str,
        partition: int,
        body: msgspec.Struct,
        wait: Duration | None,
    ) -> bodies.PartitionDescription:
        wait_s = 0.0 if wait is None else seconds("wait", wait)
        deadline = self._session.clock.monotonic() + wait_s
        shown = await self._session.call(operation, body, topic=topic, partition=partition)
        while shown.reassignment is not None and self._session.clock.monotonic() < deadline:
            await asyncio.sleep(LOOK_S)
            shown = await self.describe(topic, partition)
        return shown
