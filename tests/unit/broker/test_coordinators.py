"""Reads of delayed messages that a broker moves, and dead letters of queues."""

from __future__ import annotations

import asyncio

from broker.coordinators.delays import READS_MAX, BrokerDelivery
from broker.coordinators.jobs import BrokerJobs
from delayed.records import Message, MessageKey, Row, record_of
from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.values import FetchRequest, FetchResult
from queues.effects import Bury
from raftlog.records.batch import Codec, stamp
from raftlog.records.builder import build_batch
from raftlog.types import Offset, TopicPartition
from tests.helpers.decided_delays import id_of
from tests.helpers.fake_services import FakeGateway, fake_cluster
from tests.helpers.fetching import fetch_result
from tests.helpers.virtual_time import VirtualClock

COUNT = 50


class OneBatch(FakeGateway):
    """All messages of a partition are in one batch. It counts the reads that are under way."""

    reads = reads_max = fetched = 0
    value = b"x"

    async def fetch(self, target: TopicPartition, request: FetchRequest) -> FetchResult:
        """The batch, as for any offset in it."""
        self.fetched += 1
        self.reads += 1
        self.reads_max = max(self.reads_max, self.reads)
        await asyncio.sleep(0.001)
        self.reads -= 1
        rows = (
            Row(
                MessageKey(id_of(number)),
                Message(
                    topic="orders",
                    topic_id="orders",
                    partition=number,
                    due_ms=number,
                    accepted_ms=0,
                    value=self.value,
                ),
            )
            for number in range(COUNT)
        )
        data = build_batch([record_of(row) for row in rows], codec=Codec.NONE, timestamp_ms=0)
        batch = stamp(data, base_offset=Offset(0), leader_epoch=1, append_time_ms=None)
        return fetch_result(batch.data, COUNT)


def delivery_from(gateway: OneBatch) -> BrokerDelivery:
    controller = fake_cluster().services.controller
    return BrokerDelivery(controller, gateway, VirtualClock(), ProducerIdCipher(b"of tests"))


def one_batch() -> OneBatch:
    return OneBatch(fake_cluster().controller, VirtualClock())


# requirement: A3
async def test_partitions_are_read_a_few_at_a_time() -> None:
    """Each may have a large batch, of which each read has a copy."""
    gateway = one_batch()
    delivery = delivery_from(gateway)
    found = await asyncio.gather(*(delivery.read(number, [number], 1_000) for number in range(COUNT)))
    assert [message.due_ms for (message,) in found] == list(range(COUNT))
    assert gateway.reads_max == READS_MAX


# requirement: A3
async def test_a_batch_with_messages_for_many_partitions_is_read_once() -> None:
    """Each lane moves its own messages, and they are due one after another."""
    gateway = one_batch()
    delivery = delivery_from(gateway)
    delivery.begin(0, is_led=True)
    moves = [range(lane, COUNT, 5) for lane in range(5)]
    found = await asyncio.gather(*(delivery.read(0, [*offsets], 1_000) for offsets in moves))
    assert [[message.due_ms for message in move] for move in found] == [[*offsets] for offsets in moves]
    assert gateway.fetched == 1
    await delivery.read(0, [7], 1_000)
    assert gateway.fetched == 2, "what was taken is not kept"


# requirement: A3
async def test_a_leader_reads_again_what_it_has_read_in_an_earlier_epoch() -> None:
    """An unsafe recovery may have given the offset to another message."""
    gateway = one_batch()
    delivery = delivery_from(gateway)
    delivery.begin(0, is_led=True)
    await delivery.read(0, [0], 1_000)
    delivery.begin(0, is_led=False)
    gateway.value = b"y"
    delivery.begin(0, is_led=True)
    (message,) = await delivery.read(0, [1], 1_000)
    assert message.value == b"y"


# requirement: A3
async def test_nothing_is_kept_of_a_partition_that_another_broker_leads() -> None:
    gateway = one_batch()
    delivery = delivery_from(gateway)
    for _ in range(2):
        await delivery.read(0, [3, 4], 1_000)
    await delivery.read(0, [5], 1_000)
    assert gateway.fetched == 3


# requirement: G11
async def test_a_dead_letter_of_a_removed_partition_is_given_up() -> None:
    """Its record is gone, so that a job would be in the way for ever."""
    cluster = fake_cluster()
    topic = await cluster.controller.create_topic(
        "orders", partitions=1, replication_factor=3, config={}, timeout_ms=1_000
    )
    jobs = BrokerJobs(cluster.controller, cluster.gateway, VirtualClock())
    await jobs.bury(Bury("g", "orders", topic.topic_id, 1, 0, deliveries=3, reason="bad"))
    assert [*cluster.controller.image.topics] == ["orders"]
