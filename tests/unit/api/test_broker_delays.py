"""How a broker reads the delayed messages that it moves."""

from __future__ import annotations

import asyncio

from api.broker_delays import READS_MAX, BrokerDelivery
from delayed.records import Message, MessageKey, Row, record_of
from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.values import FetchRequest, FetchResult
from raftlog.clock import SystemClock
from raftlog.records.batch import Codec, stamp
from raftlog.records.builder import build_batch
from raftlog.types import Offset, Term, TopicPartition
from tests.helpers.async_tests import in_real_time
from tests.helpers.decided_delays import id_of
from tests.helpers.fake_services import FakeGateway, fake_cluster

COUNT = 50


class OneBatch(FakeGateway):
    """All messages are in one batch. It counts the reads that are under way."""

    reads = reads_max = 0

    async def fetch(self, target: TopicPartition, request: FetchRequest) -> FetchResult:
        """The batch, as for any offset in it."""
        self.reads += 1
        self.reads_max = max(self.reads_max, self.reads)
        await asyncio.sleep(0.001)
        self.reads -= 1
        rows = (
            Row(
                MessageKey(id_of(number)),
                Message(topic="orders", topic_id="orders", partition=number, due_ms=number, accepted_ms=0),
            )
            for number in range(COUNT)
        )
        data = build_batch([record_of(row) for row in rows], codec=Codec.NONE, timestamp_ms=0)
        batch = stamp(data, base_offset=Offset(0), leader_epoch=1, append_time_ms=None)
        end = Offset(COUNT)
        return FetchResult(
            offset=Offset(0),
            data=batch.data,
            next_offset=end,
            log_start_offset=Offset(0),
            high_watermark=end,
            leader_epoch=Term(1),
        )


# requirement: A3
@in_real_time
async def test_messages_for_many_partitions_are_read_a_few_at_a_time() -> None:
    """They may all be in one large batch, of which each read has a copy."""
    services = fake_cluster().services
    gateway = OneBatch(fake_cluster().controller, SystemClock())
    delivery = BrokerDelivery(services.controller, gateway, SystemClock(), ProducerIdCipher(b"of tests"))
    found = await asyncio.gather(*(delivery.read(0, [number], 1_000) for number in range(COUNT)))
    assert [message.due_ms for (message,) in found] == list(range(COUNT))
    assert gateway.reads_max == READS_MAX
