"""Serves calls to the replicas of this broker, from its gateway and from other brokers.

Decides: whether this broker has a replica of exactly the requested group, and how many produced bytes the
broker holds at once. Leaves serving to the replica (``replica``). A replica that does not lead raises
``NotLeader``; the call is not forwarded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from partitions.metadata.topic_config import consumers
from partitions.replica.bounded_reads import PROOF_S, AskReadIndex
from partitions.replica.replica import PartitionReplica
from partitions.routing import rpc
from partitions.routing.partition_calls import CALLS, READ_INDEX, Answer, PartitionCall, Request
from partitions.routing.relay import Relay
from partitions.routing.rpc import Place
from partitions.values import Acks, Consumed, PartitionStatus, consumed_by, key_of
from raftlog.errors import NoLeader, NotLeader, Overloaded
from raftlog.node.rpc import Calls, decode_body, encode_body, handler_of
from raftlog.records.batch import Buffer
from raftlog.types import GroupId, Index, NodeId, TopicPartition

RETRY_AFTER_MS: Final = 200
REASON_CHARS_MAX: Final = 500  # of the reason why a replica does not run
NO_BYTES: Final[tuple[Buffer, ...]] = ()


class LocalReplicas:
    """The open replicas of this broker, offered to the other brokers."""

    def __init__(
        self,
        node_id: NodeId,
        replicas: Mapping[tuple[str, int], PartitionReplica],
        calls: Calls,
        relay: Relay,
        *,
        bytes_in_flight_max: int,
        why_offline: Callable[[TopicPartition], str],
        awaiting_archive: Callable[[GroupId], int],
        consumed: Mapping[GroupId, Consumed],
    ) -> None:
        """Register the handlers for calls of other brokers with ``relay``; ``Gateway`` describes the
        arguments.
        """
        self._node_id = node_id
        self.replicas = replicas
        self._calls = calls
        self._relay = relay
        self._bytes_in_flight_max = bytes_in_flight_max
        self._why_offline = why_offline
        self._awaiting_archive = awaiting_archive
        self._consumed = consumed
        self.bytes_in_flight = 0
        relay.serve(rpc.APPEND, self._serve_append)
        relay.serve(rpc.FETCH, self._serve_fetch)
        relay.serve(rpc.DESCRIBE, handler_of(rpc.Describe, self._describe))
        for call in CALLS:
            self.offer(call)

    def offer(self, call: PartitionCall[Request, Answer]) -> None:
        """Offer a call to other brokers.

        This broker also relays the call for brokers that cannot reach the replica.
        """
        handler = handler_of(call.request, lambda sender, ask: self.carry_out(call, ask))
        self._relay.serve(call.service, handler)

    async def carry_out(self, call: PartitionCall[Request, Answer], request: Request) -> Answer:
        """Carry out a call at this broker's replica. Raises as ``here``, and the replica's errors."""
        return await call.carry_out(self.here(request.place), request)

    def here(self, place: Place) -> PartitionReplica:
        """The replica of this broker.

        Raises ``NotLeader`` if the broker has no replica of the group in ``place``.
        """
        target, group_id = place
        replica = self.replicas.get(key_of(target))
        if replica is None or replica.group.group_id != group_id:
            raise NotLeader(f"this broker holds no replica of {target}", leader=None)
        return replica

    def take_room(self, buffers: Sequence[Buffer]) -> int:
        """Count the bytes of a body as in flight and return their number. The caller subtracts it afterwards.

        Raises ``Overloaded``.
        """
        size = sum(map(len, buffers))
        if self.bytes_in_flight and self.bytes_in_flight + size > self._bytes_in_flight_max:
            raise Overloaded(
                f"this broker has {self.bytes_in_flight} produced bytes in flight; slow down and retry",
                retry_after_ms=RETRY_AFTER_MS,
            )
        self.bytes_in_flight += size
        return size

    def read_index_of(self, place: Place) -> AskReadIndex:
        """Make the function that asks the leader of a partition for its read index."""

        async def ask(leader: NodeId) -> Index:
            question = rpc.ReadIndex(place)
            if leader == self._node_id:
                return await self.carry_out(READ_INDEX, question)
            return await READ_INDEX.ask(self._calls, leader, question, int(PROOF_S * 1000))

        return ask

    def statuses(self, places: Sequence[Place]) -> list[PartitionStatus]:
        """The statuses of replicas of this broker, also of replicas that do not run."""
        return [self._status(place) for place in places]

    def _status(self, place: Place) -> PartitionStatus:
        target = place[0]
        try:
            replica = self.here(place)
            status = replica.status()
            if replica.group.stopped is None:
                status = replace(status, awaiting_archive_bytes=self._awaiting_archive(place[1]))
                consumed = consumed_by(consumers(replica.config), self._consumed.get(place[1]))
                if consumed is None:
                    return status
                return replace(status, consumed_up_to=consumed.offset, held_back_by=consumed.group)
        except (NotLeader, NoLeader):
            status = PartitionStatus.unknown(target.partition)
        return replace(status, offline=((self._node_id, self._why_offline(target)[:REASON_CHARS_MAX]),))

    # Handlers of calls from other brokers.

    async def _serve_append(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, rpc.Append)
        acks = Acks.parse(ask.acks)
        size = self.take_room((payload,))
        try:
            receipt = await self.here(ask.place).append(
                payload,
                acks=acks,
                timeout_ms=ask.timeout_ms,
                transactional_id=ask.transactional_id,
                client=ask.client,
            )
        finally:
            self.bytes_in_flight -= size
        return encode_body(receipt), NO_BYTES

    async def _serve_fetch(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, rpc.Fetch)
        request = replace(ask.request, in_pieces=False) if ask.request.in_pieces else ask.request
        result = await self.here(ask.place).fetch(request, self.read_index_of(ask.place))
        return encode_body(rpc.Fetched.of(result)), (result.data,)

    async def _describe(self, sender: NodeId, ask: rpc.Describe) -> list[PartitionStatus]:
        return self.statuses(ask.places)
