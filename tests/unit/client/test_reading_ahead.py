"""What a consumer reads ahead: large chunks where it is behind, and no more than its bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from raftlog.client.consumer.fetching import CATCH_UP_BYTES, CHUNK_BYTES_MIN, Fetching
from raftlog.errors import CorruptBatch
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.types import TopicPartition
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.fake_broker import FakeBroker, FakeCluster, fake_cluster
from tests.helpers.virtual_client import VirtualClient

PARTITIONS = 40
PREFETCH_BYTES = 8 << 20
RECORD_BYTES = 16 << 10
RECORDS = 100  # of each partition


class ObservedBroker(FakeBroker):
    """Counts how much each fetch may return."""

    async def _fetch(self, request: web.Request) -> web.StreamResponse:
        sizes.append(int(request.query["max_bytes"]))
        return await super()._fetch(request)


sizes: list[int] = []


def fill(cluster: FakeCluster) -> None:
    """Records in all partitions, one a batch."""
    for number in range(PARTITIONS):
        for _ in range(RECORDS):
            record = Record(b"x" * RECORD_BYTES)
            cluster.partition(number).append(build_batch([record], codec=Codec.NONE, timestamp_ms=1))


@asynccontextmanager
async def reading_ahead(*, filled: bool = True) -> AsyncIterator[tuple[FakeCluster, Fetching]]:
    """All partitions, read from their start."""
    sizes.clear()
    async with fake_cluster(PARTITIONS) as cluster:
        await cluster.replace(ObservedBroker(cluster, 1))
        if filled:
            fill(cluster)
        async with VirtualClient(cluster.urls) as client:
            fetching = Fetching(
                lambda target: client.partition(target.topic, target.partition),
                PREFETCH_BYTES,
            )
            await fetching.start({TopicPartition("orders", number): 0 for number in range(PARTITIONS)})
            yield cluster, fetching
            await fetching.stop()


@in_virtual_time
async def test_partitions_that_are_behind_are_read_in_large_chunks_within_the_bound() -> None:
    async with reading_ahead() as (cluster, fetching):
        handed_out = 0
        while handed_out < PARTITIONS * RECORDS:
            await asyncio.sleep(1)  # all that it reads without being asked for a record
            buffered_bytes = cluster.fetched_bytes - handed_out * RECORD_BYTES
            assert (
                buffered_bytes <= PREFETCH_BYTES + PARTITIONS * RECORD_BYTES
            )  # each ends with a whole batch
            handed_out += len(await fetching.take(500, wait_s=5.0))
    share = max(CHUNK_BYTES_MIN, PREFETCH_BYTES // 2 // PARTITIONS)
    assert set(sizes) == {share, CATCH_UP_BYTES}
    assert sizes.count(CATCH_UP_BYTES) <= PARTITIONS * (RECORDS * RECORD_BYTES / CATCH_UP_BYTES + 1)


@in_virtual_time
async def test_partitions_that_are_paused_hold_up_no_other_that_is_behind() -> None:
    async with reading_ahead() as (_, fetching):
        last = TopicPartition("orders", PARTITIONS - 1)
        while sizes.count(CATCH_UP_BYTES) < PARTITIONS // 2:
            await fetching.take(500, wait_s=5.0)
            await asyncio.sleep(1)
        for number in range(PARTITIONS - 1):
            fetching.pause(TopicPartition("orders", number), is_paused=True)
        while fetching.positions[last] < RECORDS:
            assert await fetching.take(500, wait_s=5.0)


@in_virtual_time
async def test_an_error_of_one_partition_is_raised_once_and_the_others_go_on() -> None:
    async with reading_ahead(filled=False) as (cluster, fetching):
        await asyncio.sleep(1)
        cluster.corrupt_reads = True
        cluster.partition(0).append(build_batch([Record(b"x")], codec=Codec.NONE, timestamp_ms=1))
        with pytest.raises(CorruptBatch):
            await fetching.take(1, wait_s=5.0)
        cluster.corrupt_reads = False
        cluster.partition(1).append(build_batch([Record(b"y")], codec=Codec.NONE, timestamp_ms=1))
        assert [message.value for message in await fetching.take(1, wait_s=5.0)] == [b"y"]
