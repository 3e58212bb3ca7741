"""Collects the statuses of a topic's partitions from the brokers that hold the partitions.

Decides: which brokers to ask, which answer counts, and the status of a partition without a leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from partitions.metadata.image import PartitionInfo, TopicInfo
from partitions.routing import rpc
from partitions.routing.local import LocalReplicas
from partitions.routing.relay import Relay
from partitions.values import PartitionStatus
from raftlog.errors import RaftlogError
from raftlog.node.leader_search import PATIENCE_S
from raftlog.node.rpc import decode_body, encode_body
from raftlog.types import NodeId, TopicPartition


class Statuses:
    """Asks this broker and the other brokers for the status of partitions."""

    def __init__(
        self,
        node_id: NodeId,
        local: LocalReplicas,
        relay: Relay,
        leader_of: Callable[[TopicPartition], NodeId | None],
    ) -> None:
        """``leader_of`` returns the leader of a partition as far as this broker knows."""
        self._node_id = node_id
        self._local = local
        self._relay = relay
        self._leader_of = leader_of

    async def of(self, info: TopicInfo, chosen: Collection[int] | None = None) -> list[PartitionStatus]:
        """The statuses of the ``chosen`` partitions of a topic, by default all.

        The status of each partition comes from its leader, else from the answering replica with the newest
        term. Without a leader the status has the rejoining replicas, and the replicas that do not run, with
        the reasons.
        """
        topic = info.name
        partitions = [each for each in info.partitions if chosen is None or each.partition in chosen]
        best = {p.partition: PartitionStatus.unknown(p.partition, p.replicas) for p in partitions}
        asked: set[tuple[int, NodeId]] = set()
        heard: dict[int, list[PartitionStatus]] = {number: [] for number in best}
        for _ in range(1 + max((len(partition.replicas) for partition in partitions), default=0)):
            wanted: dict[NodeId, list[PartitionInfo]] = {}
            for partition in partitions:
                status = best[partition.partition]
                if status.leader is not None and (partition.partition, status.leader) in asked:
                    continue
                known = status.leader or self._leader_of(TopicPartition(topic, partition.partition))
                for node in (known, *partition.replicas):
                    if node is not None and (partition.partition, node) not in asked:
                        wanted.setdefault(node, []).append(partition)
                        asked.add((partition.partition, node))
                        break
            if not wanted:
                break
            answers = await asyncio.gather(*(self._ask(node, topic, w) for node, w in wanted.items()))
            for status in (status for answer in answers for status in answer):
                best[status.partition] = max(best[status.partition], status, key=_authority)
                heard[status.partition].append(status)
        return [_why_unled(best[number], heard[number]) for number in best]

    async def _ask(
        self, node: NodeId, topic: str, partitions: Sequence[PartitionInfo]
    ) -> list[PartitionStatus]:
        places = tuple((TopicPartition(topic, info.partition), info.group_id) for info in partitions)
        if node == self._node_id:
            return self._local.statuses(places)
        try:
            answer, _ = await self._relay.call(
                node, rpc.DESCRIBE, encode_body(rpc.Describe(places)), timeout_ms=int(PATIENCE_S * 1000)
            )
        except RaftlogError:
            silent = [PartitionStatus.unknown(partition.partition) for partition in partitions]
            return [replace(status, offline=((node, "its broker does not answer"),)) for status in silent]
        return decode_body(answer, list[PartitionStatus])


def _authority(status: PartitionStatus) -> tuple[int, bool, int]:
    """Sort key of statuses: first the term, newest last; then whether the leader reports, which alone knows
    the in-sync replicas.
    """
    return status.term, bool(status.in_sync), status.commit_index


def _why_unled(status: PartitionStatus, heard: Sequence[PartitionStatus]) -> PartitionStatus:
    """Complete the status of a partition without a leader with the states that its replicas report about
    themselves.
    """
    if status.leader is not None:
        return replace(status, offline=())
    rejoining = {node for one in heard for node in one.rejoining}
    offline = dict(reason for one in heard for reason in one.offline)
    return replace(
        status,
        rejoining=tuple(sorted(rejoining)),
        awaited=tuple(sorted(offline)),
        offline=tuple(sorted(offline.items())),
    )
