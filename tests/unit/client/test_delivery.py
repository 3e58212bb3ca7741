"""Promises of a producer: against brokers that fail, under a steady load, and beside other producers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from raftlog.aio import PendingReceipt, Producer
from raftlog.client import sender
from raftlog.errors import (
    CommitUnknown,
    NoLeader,
    NotSent,
    Overloaded,
    RaftlogError,
    RecordTooLarge,
    TopicNotFound,
)
from raftlog.records.reader import read_records
from tests.helpers.fake_broker import FakeCluster, Trouble, fake_cluster
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import eventually

AWKWARD = [
    Trouble.NO_LEADER,
    Trouble.OVERLOADED,
    Trouble.DROP_BEFORE,
    Trouble.DROP_AFTER,
    Trouble.UNKNOWN_AFTER,
    Trouble.SLOW,
]


async def send_numbers(producer: Producer, numbers: Sequence[int]) -> list[PendingReceipt]:
    """Each number as the value of one record of partition 0."""
    return [await producer.send(str(number), partition=0) for number in numbers]


def numbers_in(cluster: FakeCluster) -> list[int]:
    """The numbers in partition 0, in the order of the log."""
    return [int(value or b"-1") for value in cluster.partition().values()]


@pytest.mark.parametrize("seed", range(6))
async def test_records_are_stored_once_and_in_order_whatever_happens_to_answers(seed: int) -> None:
    # requirement: P6
    # requirement: D2
    rng = random.Random(seed)
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        cluster.trouble(*(rng.choice([*AWKWARD, Trouble.NONE, Trouble.NONE]) for _ in range(16)))
        async with client.producer("orders", batch_bytes=400, linger="1ms") as producer:
            pending = await send_numbers(producer, range(300))
            receipts = [await one for one in pending]
        assert numbers_in(cluster) == list(range(300))
        assert [receipt.offset for receipt in receipts] == list(range(300))


async def test_a_receipt_says_where_the_record_is_and_what_the_acknowledgement_stands_for() -> None:
    # requirement: P5
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        async with client.producer("orders", linger=0, acks="every") as producer:
            then = datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(days=1, milliseconds=7)
            receipt = await (await producer.send(b"a", timestamp=then))
        assert (receipt.topic, receipt.partition, receipt.offset) == ("orders", 0, 0)
        assert receipt.timestamp_ms == 1_700_000_000_000 + 86_400_000 + 7
        durability = receipt.durability
        assert (durability.acks, durability.committed, durability.replicas, durability.leader_epoch) == (
            "every",
            True,
            2,
            1,
        )


async def test_a_stale_cache_is_corrected_by_the_broker_that_does_not_lead() -> None:
    # requirement: P2
    # requirement: P3
    # requirement: P4
    async with fake_cluster(brokers=3) as cluster, VirtualClient(cluster.urls) as client:
        await client.send("orders", "0")
        cluster.leader, cluster.known_leader = 3, 1  # metadata lags behind
        await client.send("orders", "1")
        assert numbers_in(cluster) == [0, 1]
        assert cluster.produce_count == 3  # the refusal names the leader: no search


async def test_a_leader_that_dies_is_replaced_by_the_next_one_and_nothing_is_lost() -> None:
    async with fake_cluster(brokers=3) as cluster, VirtualClient(cluster.urls[:1]) as client:
        async with client.producer("orders", batch_bytes=400, linger="1ms") as producer:
            pending = await send_numbers(producer, range(100))
            await pending[50]
            await cluster.brokers[1].stop()
            pending += await send_numbers(producer, range(100, 150))
            await asyncio.sleep(0.05)
            cluster.leader = 2
            assert (await pending[-1]).offset == 149
        assert numbers_in(cluster) == list(range(150))


async def test_a_partition_without_a_leader_gives_a_definite_error_at_the_deadline() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        producer = client.producer("orders", linger=0, delivery_timeout="100ms")
        cluster.trouble(*[Trouble.NO_LEADER] * 100)
        with pytest.raises(NoLeader) as caught:
            await (await producer.send("0"))
        assert caught.value.retryable
        cluster.troubles.clear()
        await (await producer.send("1"))
        assert numbers_in(cluster) == [1]


async def test_with_acks_0_nothing_is_repeated() -> None:
    # requirement: D1
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        producer = client.producer("orders", linger=0, acks=0)
        receipt = await (await producer.send("0"))
        assert (receipt.offset, receipt.durability.committed) == (-1, False)
        cluster.trouble(Trouble.NO_LEADER)
        with pytest.raises(NoLeader):
            await (await producer.send("1"))
        assert cluster.produce_count == 2
        assert cluster.partition().batches[0].header.producer_id == -1


async def test_without_an_identity_a_lost_answer_may_double_a_record_but_order_stays() -> None:
    # requirement: D2
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        cluster.trouble(Trouble.NONE, Trouble.DROP_AFTER)
        async with client.producer("orders", batch_bytes=200, linger="1ms", idempotent=False) as producer:
            await send_numbers(producer, range(30))
        stored = numbers_in(cluster)
        assert len(stored) > 30
        assert list(dict.fromkeys(stored)) == list(range(30))
        assert cluster.in_flight_most == 1


async def test_leaving_the_block_flushes_and_raises_all_that_failed() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        cluster.trouble(Trouble.TOO_LARGE)
        told: list[RaftlogError | None] = []
        with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - the block is what is tested
            async with client.producer("orders", linger="10s") as producer:
                await producer.send("0", on_ack=lambda receipt, error: told.append(error))
                await producer.send("1")
        assert [type(error) for error in caught.value.exceptions] == [RecordTooLarge]
        assert "2 records not sent" in str(caught.value)
        assert [type(error) for error in told] == [RecordTooLarge]


async def test_an_error_of_the_block_is_not_hidden_by_what_failed() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        cluster.trouble(Trouble.TOO_LARGE)
        with pytest.raises(KeyError) as caught:  # noqa: PT012 - the block is what is tested
            async with client.producer("orders") as producer:
                await producer.send("0")
                raise KeyError("mine")
        assert "1 record not sent" in caught.value.__notes__[0]


async def test_a_full_buffer_makes_senders_wait_until_there_is_room() -> None:
    # requirement: B1
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        producer = client.producer("orders", linger="10s", batch_bytes=1_000, buffer_bytes=4_000)
        await producer.send(b"x" * 500)
        await producer.flush()
        cluster.trouble(*[Trouble.HANG_AFTER] * 5)
        for _ in range(7):
            await producer.send(b"x" * 500)
        with pytest.raises(Overloaded):
            producer.send_nowait(b"x" * 500)
        waiting = asyncio.create_task(producer.send(b"x" * 500))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        cluster.release.set()
        pending = await waiting
        await producer.flush()
        assert pending.result().offset == 8
        with pytest.raises(RecordTooLarge):
            await producer.send(b"x" * 5_000)
        await producer.close()
        assert len(cluster.partition().values()) == 9


async def test_many_records_go_in_one_request_and_linger_bounds_the_wait() -> None:
    # requirement: B1
    # requirement: P1
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        async with client.producer("orders", linger="20ms") as producer:
            pending = await send_numbers(producer, range(500))
            await pending[0]
        assert cluster.produce_count == 1
        assert len(cluster.partition().batches) == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_compression_comes_back_as_it_went(codec: str) -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        cluster.trouble(Trouble.TOO_LARGE)  # what is numbered anew is not compressed anew
        producer = client.producer("orders", linger="1ms", compression=codec, batch_bytes=400)
        await send_numbers(producer, range(100))
        await producer.flush()
        await producer.close()
        stored = numbers_in(cluster)
        assert stored == list(range(100 - len(stored), 100))


async def test_a_topic_that_is_not_there_is_an_error_of_the_send() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        producer = client.producer()
        with pytest.raises(TopicNotFound):
            await producer.send("x", topic="nowhere")
        with pytest.raises(ValueError, match="topic"):
            await producer.send("x")
        await client.topics.create("later")
        assert (await (await producer.send("x", topic="later"))).topic == "later"


async def test_what_was_refused_behind_a_batch_that_is_given_up_gets_its_new_number_into_its_bytes() -> None:
    # requirement: P6
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        producer = client.producer("orders", linger=0, batch_bytes=1)
        await (await producer.send("0"))
        cluster.trouble(Trouble.TOO_LARGE, Trouble.NO_LEADER)
        lost = await producer.send("1")
        kept = await producer.send("2")
        with pytest.raises(RecordTooLarge) as caught:
            await lost
        assert caught.value.is_definite
        assert caught.value.problem["limit_bytes"] == 10
        assert (await kept).offset == 1
        last = cluster.partition().batches[-1].header
        assert (last.producer_epoch, last.base_sequence) == (1, 0)


@pytest.mark.parametrize("change", ["leader", "term"])
async def test_a_silent_leader_is_left_after_an_election(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A machine that lost power leads again, and the connections of its past stay silent."""
    monkeypatch.setattr(sender, "_PATIENCE_MIN_S", 0.05)
    async with fake_cluster(brokers=2) as cluster, VirtualClient(cluster.urls) as client:
        producer = client.producer("orders", linger=0)
        await (await producer.send("0"))
        cluster.trouble(Trouble.HANG_AFTER)
        pending = await producer.send("1")
        await asyncio.sleep(0.12)
        assert not pending.done()  # silent, and still the leader: patience
        setattr(cluster, change, 2)
        async with asyncio.timeout(20):
            assert (await pending).offset == 1
        assert numbers_in(cluster) == [0, 1]


async def test_no_batch_is_sent_any_more_while_a_producer_closes() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        producer = client.producer("orders", linger=0)
        await (await producer.send("proves the producer"))  # several batches may be in flight from now on
        cluster.trouble(*[Trouble.HANG_AFTER] * 5)
        sent = await producer.send("hangs")
        await eventually(lambda: cluster.in_flight >= 1)
        kept = producer.send_nowait("kept")
        closing = asyncio.create_task(producer.close(0))
        flushing = asyncio.create_task(producer.flush())  # while the first attempt ends
        await asyncio.gather(closing, flushing)
        for pending, kind in ((sent, CommitUnknown), (kept, NotSent)):
            with pytest.raises(kind):
                await pending
        assert cluster.produce_count == 2
        cluster.release.set()


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
