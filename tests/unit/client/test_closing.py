"""Closing ends soon where no broker answers, and twice is harmless."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from raftlog.client.consumer.core import CLOSE_S
from raftlog.errors import RaftlogError
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import eventually
from tests.helpers.whole_broker import TOPIC, whole_broker

LIMIT_S = 5.0


# requirement: P6
async def test_a_consumer_without_brokers_closes_soon() -> None:
    async with whole_broker(partitions=1) as whole, VirtualClient(whole.url) as client:
        await client.send(TOPIC, "1")
        consumer = client.consumer("g", TOPIC, commit_interval="60s")
        assert await consumer.poll("10s") is not None
        assert await consumer.poll(0) is None  # the record is acknowledged, and not committed yet
        whole.is_down = True
        loop = asyncio.get_running_loop()
        began = loop.time()
        await consumer.close()
        assert loop.time() - began <= CLOSE_S + 0.1 < LIMIT_S
        await consumer.close()


# requirement: P6
async def test_a_worker_without_brokers_stops_soon() -> None:
    async with whole_broker(partitions=1) as whole, VirtualClient(whole.url) as client:
        handled = asyncio.Event()

        @client.worker(TOPIC, group="g", commit_interval="60s")
        async def handle(message: object) -> None:
            handled.set()

        await client.send(TOPIC, "1")
        running = asyncio.create_task(client.run())
        await handled.wait()
        whole.is_down = True
        loop = asyncio.get_running_loop()
        began = loop.time()
        client.stop()
        await running
        assert loop.time() - began < LIMIT_S


# requirement: P6
@pytest.mark.parametrize("transactional_id", [None, "t"])
async def test_a_producer_block_that_is_interrupted_without_brokers_ends_soon(
    transactional_id: str | None,
) -> None:
    async with whole_broker(partitions=1) as whole, VirtualClient(whole.url) as client:
        loop, ends = asyncio.get_running_loop(), list[float]()

        async def work() -> None:
            async with client.producer(
                TOPIC, delivery_timeout="60s", transactional_id=transactional_id
            ) as producer:
                if transactional_id is None:
                    await producer.send("1")
                    whole.is_down = True
                    await asyncio.sleep(60)
                async with producer.transaction() as transaction:
                    await transaction.send("1")
                    whole.is_down = True
                    await asyncio.sleep(60)

        working = asyncio.create_task(work())
        await eventually(lambda: whole.is_down)
        ends.append(loop.time())
        working.cancel()
        with suppress(asyncio.CancelledError, RaftlogError, ExceptionGroup):
            await working
        assert loop.time() - ends[0] < LIMIT_S
