"""Permits to delete replicas: the broker of a replica asks, and the leader of the partition answers.

Decides: when a deletion is safe. The leader must be confirmed by a quorum and have metadata at least as new
as the asking broker's. The leader permits the deletion if the newest membership in its log is committed and
does not contain the asking broker, and the metadata places no replica there. If a replica is added there
again, it begins empty and rejoins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from partitions.metadata.image import MetadataImage, PartitionInfo
from partitions.replica.replica import PartitionReplica
from partitions.routing import rpc
from partitions.values import key_of
from raftlog.errors import NotLeader, RaftlogError
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.rpc import Calls, decode_body, encode_body, handler_of
from raftlog.types import GroupId, NodeId, TopicPartition

ASK_TIMEOUT_MS: Final = 2000


class DeletePermits:
    """Asks leaders for permits to delete replicas of this broker, and answers such questions of other
    brokers.
    """

    def __init__(
        self,
        node_id: NodeId,
        image: Callable[[], MetadataImage],
        replicas: Mapping[tuple[str, int], PartitionReplica],
        calls: Calls,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._replicas = replicas
        self._calls = calls
        calls.serve(rpc.MAY_DELETE, handler_of(rpc.MayDelete, self._serve))

    async def ask(
        self, target: TopicPartition, partition: PartitionInfo, *, is_added_again: bool = False
    ) -> bool:
        """Ask the partition's leader for a delete permit. False if it is refused or no leader answers."""
        head = encode_body(rpc.MayDelete((target, partition.group_id), partition.version, is_added_again))
        for node in sorted(partition.possible_replicas):
            try:
                body, _ = await self._calls.call(node, rpc.MAY_DELETE, head, timeout_ms=ASK_TIMEOUT_MS)
                answer = decode_body(body, rpc.DeleteAnswer)
            except RaftlogError:
                continue  # the broker does not lead, or cannot confirm it yet
            return answer.is_permitted
        return False

    async def _serve(self, sender: NodeId, ask: rpc.MayDelete) -> rpc.DeleteAnswer:
        target, group_id = ask.place
        group = await self._led(target, group_id)
        may_go = self._is_gone(sender, target, group, ask.version, is_added_again=ask.is_added_again)
        return rpc.DeleteAnswer(may_go)

    async def _led(self, target: TopicPartition, group_id: GroupId) -> RaftGroup[None]:
        """The Raft group of the partition, after a quorum has confirmed that this broker leads it.

        Raises ``NotLeader``.
        """
        replica = self._replicas.get(key_of(target))
        if replica is None or replica.group.group_id != group_id:
            raise NotLeader(f"this broker holds no replica of {target}", leader=None)
        group = replica.group
        try:
            async with asyncio.timeout(ASK_TIMEOUT_MS / 1000):
                await group.confirm_read()
        except TimeoutError:
            raise NotLeader(f"this broker cannot confirm that it leads {target}", leader=None) from None
        return group

    def _is_gone(
        self,
        node: NodeId,
        target: TopicPartition,
        group: RaftGroup[None],
        version: int,
        *,
        is_added_again: bool,
    ) -> bool:
        image = self._image()
        topic = image.topics.get(target.topic)
        wanted = [] if topic is None else [p for p in topic.partitions if p.partition == target.partition]
        return (
            image.version >= version
            and group.is_membership_committed
            and not group.membership.is_joint
            and node not in group.membership.members
            and (is_added_again or all(node not in partition.all_replicas for partition in wanted))
        )
