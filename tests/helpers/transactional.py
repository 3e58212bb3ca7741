"""Transactions in a simulated cluster, as a producer uses them."""

from __future__ import annotations

from dataclasses import dataclass, field

from groups.requests import AddOffsets, OffsetCommit
from partitions.values import QUORUM, AppendReceipt, FetchResult
from raftlog.records.batch import split_batches
from raftlog.records.builder import with_producer
from raftlog.records.reader import read_records
from raftlog.types import TopicPartition
from tests.helpers.controlled_cluster import ControlledBroker
from tests.helpers.orders import batch_of, fetch_from
from transactions.records import Handle, Participant, State
from transactions.requests import (
    Described,
    End,
    Ended,
    Join,
    OfOneId,
    Open,
    Opened,
    ReadTransaction,
    Reply,
)

TIMEOUT_MS = 5_000


@dataclass
class TransactionalProducer:
    """One incarnation, which speaks to one broker."""

    broker: ControlledBroker
    name: str = "copy-1"
    timeout_ms: int = 60_000
    handle: Handle = field(init=False)
    sequences: dict[Participant, int] = field(default_factory=dict)

    async def open(self) -> TransactionalProducer:
        """Fence the incarnations before."""
        reply = await self.ask(Open(transactional_id=self.name, timeout_ms=self.timeout_ms))
        assert isinstance(reply, Opened)
        self.begins(reply.producer_id, reply.epoch)
        return self

    async def ask(self, request: OfOneId) -> Reply:
        """Any request."""
        return await self.broker.transactions.service.ask(request, timeout_ms=TIMEOUT_MS)

    def body(self, *values: bytes, partition: int = 0, topic: str = "orders") -> bytes:
        """The next batch for a partition."""
        key = topic, partition
        first = self.sequences.get(key, 0)
        self.sequences[key] = first + len(values)
        return with_producer(
            batch_of(*values), self.handle.producer_id, self.handle.epoch, first, in_transaction=True
        )

    def unsequenced(self, *values: bytes) -> bytes:
        """A batch that is stored again with each repetition."""
        handle = self.handle
        return with_producer(batch_of(*values), handle.producer_id, handle.epoch, -1, in_transaction=True)

    async def write(self, *values: bytes, partition: int = 0, topic: str = "orders") -> AppendReceipt:
        """One batch."""
        return await self.send(
            self.body(*values, partition=partition, topic=topic), partition=partition, topic=topic
        )

    async def send(self, body: bytes, *, partition: int = 0, topic: str = "orders") -> AppendReceipt:
        """A batch as it is."""
        return await self.broker.gateway.append(
            TopicPartition(topic, partition),
            body,
            acks=QUORUM,
            timeout_ms=TIMEOUT_MS,
            transactional_id=self.name,
        )

    async def add_offset(self, group: str, offset: int) -> None:
        """An offset of ``orders``, partition 0, which the group has once this transaction is committed."""
        await self.ask(Join(transaction=self.handle, groups=(group,)))
        topic_id = self.broker.controller.image.topics["orders"].topic_id
        added = AddOffsets(
            group=group,
            offsets=(OffsetCommit(topic="orders", topic_id=topic_id, partition=0, offset=offset),),
            producer_id=self.handle.producer_id,
            epoch=self.handle.epoch,
            transaction=str(self.handle),
        )
        await self.broker.groups.service.ask(added, timeout_ms=TIMEOUT_MS, creates=True)

    async def commit(self) -> bool:
        """Whether it was committed."""
        return await self._end(True)

    async def abort(self) -> bool:
        """Whether it was committed."""
        return await self._end(False)

    async def state(self) -> State:
        """As the coordinator knows it."""
        reply = await self.ask(ReadTransaction(transactional_id=self.name))
        assert isinstance(reply, Described)
        return reply.transaction.state

    async def _end(self, is_commit: bool) -> bool:
        reply = await self.ask(End(transaction=self.handle, is_commit=is_commit))
        assert isinstance(reply, Ended)
        self.begins(self.handle.producer_id, reply.next_epoch)
        return reply.is_committed

    def begins(self, producer_id: int, epoch: int) -> None:
        """Go on with this transaction."""
        self.handle = Handle(self.name, producer_id, epoch)
        self.sequences.clear()


async def committed(broker: ControlledBroker, partition: int = 0) -> FetchResult:
    """What a reader of committed records gets."""
    return await broker.gateway.fetch(TopicPartition("orders", partition), fetch_from(0, committed_only=True))


def visible_values(result: FetchResult) -> list[bytes | None]:
    """Without markers."""
    batches = (batch for batch in split_batches(result.data) if not batch.header.is_control)
    return [record.value for batch in batches for record in read_records(batch)]


def coordinating(broker: ControlledBroker) -> bool:
    """Whether it coordinates the transactions."""
    found = broker.transactions.coordinators.get(0)
    return found is not None and found.decisions is not None
