"""Chooses the replicas that are closest to a reader, by the racks of their brokers.

Decides: which brokers a read with bounded staleness asks before the leader, and how long it avoids a replica
that could not serve. Leaves to others: asking (``gateway``), and whether a replica is in sync
(``partitions.replica.bounded_reads``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from partitions.metadata.image import MetadataImage, PartitionInfo
from partitions.values import FetchRequest
from raftlog.errors import InvalidRequest
from raftlog.types import NodeId, TopicPartition

AVOIDED_S: Final = 5.0  # time without reads for a replica that could not serve; the leader serves meanwhile


class ClosestReplicas:
    """Orders the brokers that a read asks. ``now`` is a monotonic clock in seconds."""

    def __init__(self, node_id: NodeId, image: Callable[[], MetadataImage], now: Callable[[], float]) -> None:
        self._node_id = node_id
        self._image = image
        self._now = now
        self._avoided: dict[tuple[TopicPartition, NodeId], float] = {}  # avoided until this time

    def of(
        self, target: TopicPartition, info: PartitionInfo, request: FetchRequest, leader: NodeId | None
    ) -> tuple[NodeId, ...]:
        """The brokers to ask, closest first; empty if the leader, or no replica, is in the reader's rack.

        A request without a rack has the rack of this broker. Of several replicas in the rack, the replica of
        this broker comes first; the order of the other replicas depends on the partition. Raises
        ``InvalidRequest`` for an unknown rack.
        """
        brokers = self._image().brokers
        own = brokers.get(self._node_id)
        rack = request.rack
        if rack is None:
            rack = None if own is None else own.rack
        elif not any(broker.rack == rack for broker in brokers.values()):
            racks = sorted({broker.rack for broker in brokers.values() if broker.rack is not None})
            known = f"send one of {', '.join(racks)}" if racks else "no broker of this cluster has a rack"
            raise InvalidRequest(f"rack is {rack[:64]!r}; {known}", field="rack")
        near = [
            node
            for node in info.replicas
            if node in brokers and (node == self._node_id if rack is None else brokers[node].rack == rack)
        ]
        if leader in near:
            return ()
        now = self._now()
        near = [
            node
            for node in near
            if self._avoided.get((target, node), now) <= now
            and (brokers[node].alive or node == self._node_id)
        ]
        return tuple(
            sorted(near, key=lambda node: (node != self._node_id, (node + target.partition) % len(brokers)))
        )

    def refused(self, target: TopicPartition, node: NodeId) -> None:
        """Avoid this replica for ``AVOIDED_S``, because it could not serve a read."""
        now = self._now()
        self._avoided = {key: until for key, until in self._avoided.items() if until > now}
        self._avoided[target, node] = now + AVOIDED_S
