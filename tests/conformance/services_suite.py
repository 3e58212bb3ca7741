"""What handlers of HTTP may expect of a broker's services: metadata, and the partitions' records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pytest

from broker.ports import ControllerPort, GatewayPort
from partitions.values import QUORUM, AtTime, Start
from raftlog.errors import (
    InvalidRequest,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PartitionNotFound,
    PreconditionFailed,
    TopicExists,
    TopicNotFound,
)
from raftlog.types import NodeId, Offset, TopicPartition
from tests.helpers.controlled_cluster import PRODUCER_IDS
from tests.helpers.orders import ORDERS, batch_of, fetch_from, values_of


class Broker(Protocol):
    """The only broker of a cluster."""

    @property
    def controller(self) -> ControllerPort: ...

    @property
    def gateway(self) -> GatewayPort: ...


async def create(broker: Broker, name: str = "orders", partitions: int = 1, **config: int | str) -> int:
    """The version of the new topic."""
    topic = await broker.controller.create_topic(
        name, partitions=partitions, replication_factor=1, config=config, timeout_ms=5000
    )
    return topic.version


async def append(broker: Broker, *values: bytes, timestamp_ms: int = 1_000) -> int:
    """The offset of the first record."""
    batch = batch_of(*values, timestamp_ms=timestamp_ms)
    receipt = await broker.gateway.append(ORDERS, batch, acks=QUORUM, timeout_ms=5000)
    assert receipt.record_count == len(values)
    return receipt.base_offset


class ServicesSuite:
    """Subclasses have a fixture ``open_broker``."""

    Open = Callable[[], AbstractAsyncContextManager[Broker]]

    async def test_a_name_is_given_once(self, open_broker: Open) -> None:
        async with open_broker() as broker:
            version = await create(broker, partitions=2)
            image = await broker.controller.current_image(5000)
            topic = image.topics["orders"]
            assert (topic.version, len(topic.partitions), topic.replication_factor) == (version, 2, 1)
            assert image.version >= version
            with pytest.raises(TopicExists):
                await create(broker)

    @pytest.mark.parametrize(("factor", "config"), [(2, {}), (3, {}), (1, {"no.such.key": 1})])
    async def test_what_a_topic_cannot_be_is_refused(
        self, open_broker: Open, factor: int, config: dict[str, int | str]
    ) -> None:
        async with open_broker() as broker:
            with pytest.raises(InvalidRequest):
                await broker.controller.create_topic(
                    "orders", partitions=1, replication_factor=factor, config=config, timeout_ms=5000
                )
            assert (await broker.controller.current_image(5000)).topics == {}

    async def test_a_setting_is_changed_and_reset(self, open_broker: Open) -> None:
        async with open_broker() as broker:
            version = await create(broker)
            alter = broker.controller.alter_config
            changed = await alter("orders", {"retention.ms": 5000}, expected_version=version, timeout_ms=5000)
            assert changed.config == {"retention.ms": 5000}
            assert changed.version > version
            with pytest.raises(PreconditionFailed):
                await alter("orders", {}, expected_version=version, timeout_ms=5000)
            with pytest.raises(TopicNotFound):
                await alter("others", {}, expected_version=None, timeout_ms=5000)
            reset = await alter("orders", {"retention.ms": None}, expected_version=None, timeout_ms=5000)
            assert reset.config == {}

    async def test_a_deleted_topic_is_unknown(self, open_broker: Open) -> None:
        async with open_broker() as broker:
            version = await create(broker)
            delete = broker.controller.delete_topic
            with pytest.raises(PreconditionFailed):
                await delete("orders", expected_version=version + 1000, timeout_ms=5000)
            deleted = await delete("orders", expected_version=version, timeout_ms=5000)
            assert deleted > version
            await broker.controller.wait_for_version(deleted, 5000)
            with pytest.raises(TopicNotFound):
                await delete("orders", expected_version=None, timeout_ms=5000)
            with pytest.raises(TopicNotFound):
                await append(broker, b"too late")
            with pytest.raises(TopicNotFound):
                await broker.gateway.fetch(ORDERS, fetch_from(0))

    async def test_producer_ids_are_all_different(self, open_broker: Open) -> None:
        async with open_broker() as broker:
            found = [await broker.controller.allocate_producer_ids(count, 5000) for count in (3, 1, 10)]
            assert [len(each) for each in found] == [3, 1, 10]
            assert len({number for each in found for number in each}) == 14

    async def test_what_was_appended_is_read_in_whole_batches(self, open_broker: Open) -> None:
        async with open_broker() as broker:
            await create(broker)
            first = await append(broker, b"a", b"b", b"c")
            second = await append(broker, b"d")
            assert second == first + 3
            for offset, bytes_max, values, next_offset in (
                (first, 1 << 20, [b"a", b"b", b"c", b"d"], second + 1),
                (first + 1, 1, [b"a", b"b", b"c"], second),
                (second, 1 << 20, [b"d"], second + 1),
                (second + 1, 1 << 20, [], second + 1),
            ):
                found = await broker.gateway.fetch(ORDERS, fetch_from(offset, bytes_max=bytes_max))
                assert (found.offset, values_of(found.data), found.next_offset) == (
                    offset,
                    values,
                    next_offset,
                )
                assert found.high_watermark == second + 1

    async def test_an_offset_outside_the_log_names_the_valid_range(self, open_broker: Open) -> None:
        async with open_broker() as broker:
            await create(broker)
            end = 1 + await append(broker, b"a")
            with pytest.raises(OffsetOutOfRange) as caught:
                await broker.gateway.fetch(ORDERS, fetch_from(end + 1))
            assert caught.value.details == {"start": 0, "end": end}

    async def test_records_are_deleted_from_the_log_start_on(self, open_broker: Open) -> None:
        # requirement: RT5
        async with open_broker() as broker:
            await create(broker)
            await append(broker, b"a", b"b", b"c")
            delete = broker.gateway.delete_before
            assert [await delete(ORDERS, Offset(at), timeout_ms=5000) for at in (2, 1)] == [2, 2]
            with pytest.raises(OffsetOutOfRange) as caught:
                await broker.gateway.fetch(ORDERS, fetch_from(1))
            assert caught.value.details["start"] == 2
            with pytest.raises(InvalidRequest):
                await delete(ORDERS, Offset(100), timeout_ms=5000)
            (status,) = await broker.gateway.describe("orders")
            assert status.log_start_offset == 2

    async def test_a_partition_that_is_not_there_is_unknown(self, open_broker: Open) -> None:
        async with open_broker() as broker:
            await create(broker)
            there_is_none = TopicPartition("orders", 1)
            with pytest.raises(PartitionNotFound):
                await broker.gateway.append(there_is_none, batch_of(b"a"), acks=QUORUM, timeout_ms=5000)
            with pytest.raises(PartitionNotFound):
                await broker.gateway.fetch(there_is_none, fetch_from(0))

    async def test_a_reader_that_waits_gets_what_comes(self, open_broker: Open) -> None:
        async with open_broker() as broker:
            await create(broker)
            end = 1 + await append(broker, b"a")
            waits = fetch_from(end, wait_ms=30_000, bytes_min=1)
            reader = asyncio.create_task(broker.gateway.fetch(ORDERS, waits))
            await asyncio.sleep(0.01)
            assert not reader.done()
            await append(broker, b"b")
            assert values_of((await reader).data) == [b"b"]

    async def test_a_reader_that_waits_learns_of_the_end_of_the_topic(self, open_broker: Open) -> None:
        async with open_broker() as broker:
            await create(broker)
            end = 1 + await append(broker, b"a")
            waits = fetch_from(end, wait_ms=30_000, bytes_min=1)
            reader = asyncio.create_task(broker.gateway.fetch(ORDERS, waits))
            await asyncio.sleep(0.01)
            await broker.controller.delete_topic("orders", expected_version=None, timeout_ms=5000)
            with pytest.raises(TopicNotFound):
                await reader

    async def test_a_batch_that_is_sent_again_is_stored_once(self, open_broker: Open) -> None:
        async with open_broker() as broker:
            await create(broker)
            (number,) = await broker.controller.allocate_producer_ids(1, 5000)
            producer = PRODUCER_IDS.id_of(number)
            batch = batch_of(b"a", producer=producer, sequence=0)
            receipts = [
                await broker.gateway.append(ORDERS, batch, acks=QUORUM, timeout_ms=5000) for _ in range(2)
            ]
            assert receipts[0].base_offset == receipts[1].base_offset
            assert [receipt.was_duplicate for receipt in receipts] == [False, True]

    async def test_a_batch_behind_a_gap_is_refused(self, open_broker: Open) -> None:
        async with open_broker() as broker:
            await create(broker)
            (number,) = await broker.controller.allocate_producer_ids(1, 5000)
            producer = PRODUCER_IDS.id_of(number)
            first, second, third = (batch_of(b"a", producer=producer, sequence=at) for at in range(3))
            await broker.gateway.append(ORDERS, first, acks=QUORUM, timeout_ms=5000)
            with pytest.raises(OutOfOrderSequence, match="the next one is 1"):
                await broker.gateway.append(ORDERS, third, acks=QUORUM, timeout_ms=5000)
            for late in (second, third):
                await broker.gateway.append(ORDERS, late, acks=QUORUM, timeout_ms=5000)

    async def test_positions_are_offsets(self, open_broker: Open) -> None:
        async with open_broker() as broker:
            await create(broker, **{"message.timestamp.type": "CreateTime"})
            first = await append(broker, b"a", timestamp_ms=1_000)
            second = await append(broker, b"b", timestamp_ms=2_000)
            ask = broker.gateway.offset_at
            assert await ask(ORDERS, AtTime(1_500)) == (second, 2_000)
            assert await ask(ORDERS, Offset(first)) == (first, 1_000)
            assert await ask(ORDERS, Start.LATEST) == (second + 1, None)
            assert (await ask(ORDERS, Start.EARLIEST))[0] == 0

    async def test_partitions_are_described(self, open_broker: Open) -> None:
        async with open_broker() as broker:
            await create(broker, partitions=2)
            end = 1 + await append(broker, b"a")
            found = {status.partition: status for status in await broker.gateway.describe("orders")}
            assert sorted(found) == [0, 1]
            assert (found[0].leader, found[0].replicas) == (NodeId(1), (NodeId(1),))
            assert (found[0].high_watermark, found[0].log_end_offset, found[0].log_start_offset) == (
                end,
                end,
                0,
            )
            assert broker.gateway.leader_of(ORDERS) == NodeId(1)
            with pytest.raises(TopicNotFound):
                await broker.gateway.describe("others")
