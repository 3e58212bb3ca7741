"""Batch sizes and waits of producers under a steady load, and producers that know nothing of each other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from raftlog.aio import Producer
from raftlog.records.reader import read_records
from tests.helpers.fake_broker import fake_cluster
from tests.helpers.virtual_client import VirtualClient

HOUR_S: Final = 3600.0
RECORDS: Final = 200
PRODUCE_S: Final = 0.001
PACE_S: Final = 0.01  # between two records
VALUE: Final = b"x" * 100
BATCH_OF_TEN: Final = 10 * (len(VALUE) + 40)
RECORDS_PATH: Final = "POST /v1/topics/orders/partitions/0/records"


@dataclass(frozen=True, slots=True)
class Measured:
    """The costs of a steady load, and the time of each record, in order."""

    requests: int
    waits_s: list[float]

    @property
    def slowest_s(self) -> float:
        """The longest wait."""
        return self.waits_s[-1]


async def measured(options: Mapping[str, Any]) -> Measured:
    """Send a record every ``PACE_S``, each acknowledged at its own time."""
    async with (
        asyncio.timeout(HOUR_S),
        fake_cluster() as cluster,
        VirtualClient(cluster.urls) as client,
    ):
        cluster.produce_s = PRODUCE_S
        loop = asyncio.get_running_loop()
        took_s: list[float] = []

        async def send(producer: Producer) -> None:
            began_s = loop.time()
            await (await producer.send(VALUE))
            took_s.append(loop.time() - began_s)

        async with client.producer("orders", **options) as producer, asyncio.TaskGroup() as sends:
            await (await producer.send(VALUE))  # metadata and a producer id are there
            await producer.flush()
            before = cluster.produce_count
            for _ in range(RECORDS):
                sends.create_task(send(producer))
                await asyncio.sleep(PACE_S)
        assert len(took_s) == RECORDS
        return Measured(cluster.produce_count - before, sorted(took_s))


# requirement: B2 N1
async def test_larger_batches_cost_fewer_requests_and_longer_waits() -> None:
    small = await measured({"linger": 0})
    medium = await measured({"linger": "50ms"})
    large = await measured({"linger": "500ms"})
    assert small.requests == RECORDS
    assert RECORDS / 7 < medium.requests < RECORDS / 4
    assert large.requests < RECORDS / 40
    assert small.slowest_s < PACE_S
    assert 0.05 <= medium.slowest_s < 0.06
    assert 0.5 <= large.slowest_s < 0.51


# requirement: B2
async def test_a_batch_that_is_full_does_not_wait() -> None:
    full = await measured({"linger": "500ms", "batch_bytes": BATCH_OF_TEN})
    assert full.requests == RECORDS / 10
    assert full.waits_s[-11] < 11 * PACE_S  # the last ten wait for others that do not come


async def seconds_for_burst(batch_bytes: int) -> float:
    """The time of records that are all there at once, by the time of the broker."""
    async with (
        asyncio.timeout(HOUR_S),
        fake_cluster() as cluster,
        VirtualClient(cluster.urls) as client,
        client.producer("orders", batch_bytes=batch_bytes) as producer,
    ):
        cluster.produce_s = PRODUCE_S
        await (await producer.send(VALUE))
        began_s = asyncio.get_running_loop().time()
        for _ in range(RECORDS):
            await producer.send(VALUE)
        await producer.flush()
        return asyncio.get_running_loop().time() - began_s


# requirement: B2
async def test_larger_batches_carry_more_records_in_the_same_time() -> None:
    assert 5 * await seconds_for_burst(BATCH_OF_TEN) < await seconds_for_burst(BATCH_OF_TEN // 10)


# requirement: B5 N1
async def test_presets_choose_between_few_requests_and_short_waits() -> None:
    latency = await measured({"preset": "latency"})
    throughput = await measured({"preset": "throughput"})
    assert throughput.requests < latency.requests == RECORDS
    assert latency.slowest_s < PACE_S < throughput.slowest_s


# requirement: P7 P2
async def test_producers_come_and_go_without_a_request_of_any_other() -> None:
    async with asyncio.timeout(HOUR_S), fake_cluster() as cluster:
        alone: list[str] = []
        for number in range(10):
            cluster.requests.clear()
            async with (
                VirtualClient(cluster.urls) as client,
                client.producer("orders", linger=0) as producer,
            ):
                for _ in range(3):
                    await (await producer.send(VALUE, partition=0))
            alone = alone or [*cluster.requests]
            assert cluster.requests == alone, f"producer {number} is not like the first one"
        assert sorted(alone) == [
            "GET /v1/brokers",
            "GET /v1/topics/orders/partitions",
            "POST /v1/producers",
            *[RECORDS_PATH] * 3,
        ]


# requirement: P7
async def test_a_producer_that_comes_or_goes_changes_nothing_for_another() -> None:
    async with (
        asyncio.timeout(HOUR_S),
        fake_cluster() as cluster,
        VirtualClient(cluster.urls) as client,
        client.producer("orders", linger=0) as steady,
    ):
        await (await steady.send("0", partition=0))
        identity = cluster.partition().batches[0].header
        for number in range(1, 20):
            async with (
                VirtualClient(cluster.urls) as other,
                other.producer("orders") as one,
            ):
                await (await one.send("other", partition=0))
                cluster.requests.clear()
                await (await steady.send(str(number), partition=0))
                assert cluster.requests == [RECORDS_PATH]
        records = [
            (batch.header, record.value)
            for batch in cluster.partition().batches
            for record in read_records(batch)
        ]
        own = [(header, value) for header, value in records if value != b"other"]
        assert [value for _, value in own] == [str(number).encode() for number in range(20)]
        assert {(header.producer_id, header.producer_epoch) for header, _ in own} == {
            (identity.producer_id, identity.producer_epoch)
        }
        assert [header.base_sequence for header, _ in own] == [*range(20)]
        assert len({header.producer_id for header, _ in records}) == 20
