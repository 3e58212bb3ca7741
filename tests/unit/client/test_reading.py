"""Reading a partition, what a consumer reads ahead, and the replicas that readers with a rack ask."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal

import pytest
from aiohttp import web

from raftlog.aio import Client, Partition
from raftlog.client import Client as BlockingClient
from raftlog.client.consumer.fetching import CATCH_UP_BYTES, CHUNK_BYTES_MIN, Fetching
from raftlog.errors import (
    ConnectionLost,
    CorruptBatch,
    InvalidRecord,
    InvalidRequest,
    OffsetOutOfRange,
    PartitionNotFound,
    RaftlogError,
    ReplicaNotInSync,
    TopicNotFound,
    UndecodableBatch,
)
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.types import TopicPartition
from raftlog.wire.bodies import SkippedRange
from tests.helpers.fake_broker import FakeBroker, FakeCluster, fake_cluster
from tests.helpers.undecodable_batch import FIRST_RECORD, SECOND_RECORD, undecodable_batch
from tests.helpers.virtual_client import VirtualClient


async def fill(client: Client, count: int, *, first_ms: int = 1_000) -> Partition:
    """Partition 0 of ``orders`` with numbered records in batches of ten, a second apart."""
    async with client.producer("orders", linger="10s") as producer:
        for number in range(count):
            await producer.send(str(number), key=number, partition=0, timestamp=first_ms + 1_000 * number)
            if number % 10 == 9:
                await producer.flush()
    return client.partition("orders", 0)


async def test_a_read_gives_what_follows_a_position_up_to_a_limit_and_says_where_to_go_on() -> None:
    # requirement: C1
    # requirement: C2
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        partition = await fill(client, 35)
        chunk = await partition.read(7)
        assert [message.offset for message in chunk] == list(range(7, 35))
        assert (chunk.next_offset, chunk.high_watermark, chunk.is_up_to_date) == (35, 35, True)
        some = await partition.read(7, limit=5)
        assert [message.offset for message in some] == [7, 8, 9, 10, 11]
        assert (some.next_offset, len(some), some.is_up_to_date) == (12, 5, False)
        small = await partition.read(max_bytes=1)  # whole batches, one at least
        assert (small.messages[0].offset, small.next_offset) == (0, 10)
        with pytest.raises(ValueError, match="limit"):
            await partition.read(limit=0)


async def test_a_message_has_all_that_is_stored_of_it() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        await client.send("orders", {"id": 1}, key="u1", headers={"s": b"w"}, tags=["new"], timestamp=5)
        (message,) = await client.partition("orders", 0).read()
        assert (message.topic, message.partition, message.offset) == ("orders", 0, 0)
        assert (message.key, message.value, message.timestamp_ms) == (b"u1", b'{"id":1}', 5)
        assert message.tags == ("new",)
        assert message.size_bytes == 2 + 8 + 1 + 1 + len("raftlog.tag") + 3
        assert message.crc == cluster.partition().batches[0].header.crc
        assert message.timestamp_type == "CreateTime"


async def test_positions_are_offsets_names_times_and_counts_from_the_end() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        partition = await fill(client, 30)
        assert await partition.offset_at() == await partition.offset_at("latest") == 30
        assert await partition.offset_at("earliest") == 0
        assert await partition.offset_at(datetime.fromtimestamp(12, tz=UTC)) == 11
        assert [message.offset for message in await partition.read(-3)] == [27, 28, 29]
        assert len(await partition.read("latest")) == 0
        with pytest.raises(ValueError, match="'earliest'"):
            await partition.read("first")


async def test_a_read_that_waits_ends_with_the_first_message_or_with_its_time() -> None:
    # requirement: C3
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        partition = client.partition("orders", 0)
        began = asyncio.get_running_loop().time()
        assert len(await partition.read(0, wait="50ms")) == 0
        assert asyncio.get_running_loop().time() - began >= 0.05
        waiting = asyncio.create_task(partition.read(0, wait="20s"))
        await asyncio.sleep(0.02)
        await client.send("orders", "now", partition=0)
        assert [message.value for message in await waiting] == [b"now"]


@pytest.mark.parametrize("undecodable", ["fail", "skip"])
async def test_damaged_batches_are_never_delivered_or_skipped(undecodable: Literal["fail", "skip"]) -> None:
    # requirement: M3
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        partition = await fill(client, 5)
        cluster.corrupt_reads = True
        with pytest.raises(CorruptBatch):
            await partition.read(undecodable=undecodable)


async def test_a_tail_goes_on_over_changes_of_leaders_and_restarts_of_brokers() -> None:
    async with fake_cluster(brokers=2) as cluster, VirtualClient(cluster.urls) as client:
        partition = await fill(client, 5)
        seen = []
        async with aclosing(partition.tail("earliest")) as messages:
            async for message in messages:
                seen.append(message.offset)
                if message.offset == 4:
                    await cluster.brokers[1].stop()
                    cluster.leader = 2
                    await client.send("orders", "5", partition=0)
                if message.offset == 5:
                    cluster.leader = 1
                    await cluster.brokers[1].start()
                    await client.send("orders", "6", partition=0)
                if message.offset == 6:
                    break
        assert seen == list(range(7))


async def test_errors_of_reading_say_what_is_wrong() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        with pytest.raises(OffsetOutOfRange) as caught:
            await client.partition("orders", 0).read(10)
        assert (caught.value.details["start"], caught.value.details["end"]) == (0, 0)
        with pytest.raises(PartitionNotFound, match="0 to 0"):
            await client.partition("orders", 4).read(0)
        with pytest.raises(TopicNotFound):
            await client.partition("nowhere", 0).read(0)


def batch_of(*values: bytes, codec: Codec = Codec.NONE) -> bytes:
    return build_batch([Record(value) for value in values], codec=codec, timestamp_ms=1)


@pytest.mark.parametrize(("at", "readable"), [(FIRST_RECORD, 1), (SECOND_RECORD, 2)])
@pytest.mark.parametrize("limit", [None, 10])
async def test_a_chunk_ends_before_an_undecodable_batch(at: int, readable: int, limit: int | None) -> None:
    # requirement: M3
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        for batch in (batch_of(b"one"), undecodable_batch(at), batch_of(b"two")):
            cluster.partition().append(batch)
        partition = client.partition("orders", 0)
        chunk = await partition.read(0, limit=limit)
        assert [message.offset for message in chunk] == list(range(readable))
        assert (chunk.next_offset, chunk.skipped) == (readable, [])
        with pytest.raises(UndecodableBatch, match="continue at 4") as caught:
            await partition.read(chunk.next_offset, limit=limit)
        wanted = {"topic": "orders", "partition": 0, "offset": readable, "next_offset": 4}
        assert caught.value.details == wanted
        assert [message.value for message in await partition.read(4)] == [b"two"]
        tail = partition.tail(0)
        assert [(await anext(tail)).offset for _ in range(readable)] == list(range(readable))
        with pytest.raises(UndecodableBatch):
            await anext(tail)


async def test_an_undecodable_batch_is_skipped_on_request_and_reported() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        for batch in (batch_of(b"one"), undecodable_batch(SECOND_RECORD), batch_of(b"two")):
            cluster.partition().append(batch)
        partition = client.partition("orders", 0)
        for limit in (None, 3):
            chunk = await partition.read(0, undecodable="skip", limit=limit)
            assert [message.offset for message in chunk] == [0, 1, 4]
            assert (chunk.skipped, chunk.next_offset) == ([SkippedRange(2, 4)], 5)
        alone = await partition.read(2, undecodable="skip", max_bytes=1)
        assert (len(alone), alone.skipped, alone.next_offset) == (0, [SkippedRange(2, 4)], 4)
        async with aclosing(partition.tail(0, undecodable="skip")) as messages:
            assert [(await anext(messages)).offset for _ in range(3)] == [0, 1, 4]
        async with aclosing(partition.chunks(2, undecodable="skip", max_bytes=1)) as chunks:
            assert (await anext(chunks)).skipped == [SkippedRange(2, 4)]
        with pytest.raises(ValueError, match="undecodable is 'ignore'; choose 'fail' or 'skip'"):
            await partition.read(0, undecodable="ignore")  # type: ignore[arg-type]


async def test_a_limited_read_fetches_about_what_it_needs() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        for first in range(0, 4_000, 10):
            cluster.partition().append(batch_of(*(b"%090d" % number for number in range(first, first + 10))))
        stored_bytes = sum(len(batch.data) for batch in cluster.partition().batches)
        partition = client.partition("orders", 0)
        at, seen = 5, list[int]()
        while at < 4_000:
            chunk = await partition.read(at, limit=100)
            assert len(chunk) == min(100, 4_000 - at)
            seen += [message.offset for message in chunk]
            at = chunk.next_offset
        assert seen == list(range(5, 4_000))
        assert cluster.fetched_bytes < 4 * stored_bytes


async def test_a_limited_read_goes_on_until_its_limit_or_max_bytes() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        for number in range(60):  # what was small becomes large
            cluster.partition().append(batch_of(bytes(10 if number < 10 else 20_000)))
        partition = client.partition("orders", 0)
        assert len(await partition.read(0, limit=10)) == 10
        assert len(await partition.read(10, limit=40)) == 40
        assert 10 <= len(await partition.read(10, limit=40, max_bytes=200_000)) <= 12
        rest = await partition.read(50, limit=40, wait="20s")  # nothing is waited for behind the first
        assert (len(rest), rest.is_up_to_date) == (10, True)


async def test_an_answer_without_end_is_given_up() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls, retry_timeout="1ms") as client:
        partition = await fill(client, 5)
        cluster.endless_reads = True
        with pytest.raises(ConnectionLost, match=r"more than 168\d{5} bytes"):
            await partition.read(max_bytes=1)
        assert cluster.fetched_bytes < 64 << 20


async def test_a_chunk_ends_where_its_batches_decompress_to_too_much() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        bomb = batch_of(bytes(15 << 20), codec=Codec.ZSTD)
        for _ in range(9):
            cluster.partition().append(bomb)
        partition = client.partition("orders", 0)
        for limit in (None, 9):
            first = await partition.read(0, limit=limit)
            assert [message.offset for message in first] == [0, 1, 2, 3, 4]
            rest = await partition.read(first.next_offset, limit=limit)
            assert [message.offset for message in rest] == [5, 6, 7, 8]


async def test_keys_and_values_come_decoded() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        for value in ({"id": 1}, None, {"id": 2}, "no JSON", {"id": 3}):
            await client.send("orders", value, key="u1")
        partition = client.partition("orders", 0, key=bytes.decode, value=json.loads)
        chunk = await partition.read(0)
        assert [(message.key, message.value) for message in chunk] == [
            ("u1", {"id": 1}),
            ("u1", None),
            ("u1", {"id": 2}),
        ]
        assert chunk.next_offset == 3
        with pytest.raises(InvalidRecord, match=r"value at orders/0, offset 3,.*JSONDecodeError") as caught:
            await partition.read(chunk.next_offset)
        assert caught.value.details["next_offset"] == 4
        assert [message.value for message in await partition.read(4)] == [{"id": 3}]
        with pytest.raises(TypeError, match="value is 'json'; give a function"):
            client.partition("orders", 0, value="json")  # type: ignore[arg-type]


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


def fill_all(cluster: FakeCluster) -> None:
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
            fill_all(cluster)
        async with VirtualClient(cluster.urls) as client:
            fetching = Fetching(
                lambda target: client.partition(target.topic, target.partition),
                PREFETCH_BYTES,
            )
            await fetching.start({TopicPartition("orders", number): 0 for number in range(PARTITIONS)})
            yield cluster, fetching
            await fetching.stop()


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


LAGS = ReplicaNotInSync("it lags", replica=2, leader=1)


@asynccontextmanager
async def racks(
    rack: str | None = "b", *, partitions: int = 1, brokers: int = 3, in_sync: Sequence[int] = ()
) -> AsyncIterator[tuple[FakeCluster, Client]]:
    """Brokers in the racks a, b, c, c, ..., of which broker 1 leads, and a client with readers in a rack."""
    async with fake_cluster(partitions, brokers) as cluster:
        cluster.racks = {number: "abc"[min(number, 3) - 1] for number in cluster.brokers}
        cluster.replicas = sorted(cluster.brokers)
        cluster.in_sync = [*in_sync] or cluster.replicas
        async with VirtualClient(cluster.urls, rack=rack, max_staleness="5s" if rack else None) as client:
            await client.send("orders", "x", partition=0)
            yield cluster, client


# requirement: RP10
async def test_the_replica_in_the_rack_is_read_with_the_bound_of_the_client() -> None:
    async with racks("b") as (cluster, client):
        chunk = await client.partition("orders", 0).read(0, min_offset=1)
        assert [message.value for message in chunk] == [b"x"]
        ((broker, query),) = cluster.closest_reads
        assert broker == 2
        assert (query["read_from"], query["route"], query["max_staleness"]) == ("closest", "none", "5000ms")
        assert query["min_offset"] == "1"


# requirement: RP10
@pytest.mark.parametrize(
    ("rack", "in_sync"),
    [(None, ()), ("a", ()), ("elsewhere", ()), ("b", (1, 3))],
    ids=["no rack", "rack of the leader", "unknown rack", "replica out of sync"],
)
async def test_the_leader_is_read_if_no_replica_is_closer(rack: str | None, in_sync: Sequence[int]) -> None:
    async with racks(rack, in_sync=in_sync) as (cluster, client):
        assert len(await client.partition("orders", 0).read(0)) == 1
        assert cluster.closest_reads == []


# requirement: RP10
@pytest.mark.parametrize(
    "error",
    [
        LAGS,
        InvalidRequest("there is no query parameter 'read_from'; this path has isolation", field="from"),
        OffsetOutOfRange("not there", start=7, end=9),
        TopicNotFound("its metadata lags", topic="orders"),
    ],
    ids=lambda error: error.code,
)
async def test_whatever_a_replica_refuses_the_leader_serves(error: RaftlogError) -> None:
    async with racks("b") as (cluster, client):
        cluster.cannot_serve[2] = error
        assert len(await client.partition("orders", 0).read(0)) == 1
        assert len(cluster.closest_reads) == 1


# requirement: RP10
async def test_a_replica_that_cannot_serve_is_avoided_ever_longer_and_then_preferred_again() -> None:
    async with racks("b") as (cluster, client):
        partition = client.partition("orders", 0)
        cluster.cannot_serve[2] = LAGS
        asked_at: list[float] = []
        loop = asyncio.get_running_loop()
        for _ in range(310):
            before = len(cluster.closest_reads)
            assert len(await partition.read(0)) == 1
            if len(cluster.closest_reads) > before:
                asked_at.append(loop.time())
            await asyncio.sleep(0.1)
        pauses = [round(later - earlier) for earlier, later in pairwise(asked_at)]
        assert pauses == [2, 4, 8, 16], "five requests to the replica in half a minute"
        cluster.cannot_serve.clear()
        await asyncio.sleep(32)
        for _ in range(5):
            await partition.read(0)
        assert [broker for broker, _ in cluster.closest_reads[-5:]] == [2] * 5
        cluster.cannot_serve[2] = LAGS
        await partition.read(0)
        await asyncio.sleep(2.1)
        before = len(cluster.closest_reads)
        await partition.read(0)
        assert len(cluster.closest_reads) == before + 1, "a success begins again with the shortest time"


# requirement: RP10
async def test_a_broker_that_is_gone_or_silent_costs_no_error() -> None:
    async with racks("b") as (cluster, client):
        partition = client.partition("orders", 0)
        await partition.read(0)
        cluster.silent.add(2)
        began = asyncio.get_running_loop().time()
        assert len(await partition.read(0, wait="30s")) == 1
        assert asyncio.get_running_loop().time() - began < 6
        await asyncio.sleep(3)
        await cluster.brokers[2].stop()
        assert len(await partition.read(0)) == 1


# requirement: RP10, C3
async def test_a_long_poll_at_a_replica_waits_as_long_as_it_is_told() -> None:
    async with racks("b") as (cluster, client):
        partition = client.partition("orders", 0)
        began = asyncio.get_running_loop().time()
        assert len(await partition.read(1, wait="10s")) == 0
        assert 9.9 < asyncio.get_running_loop().time() - began < 10.5
        assert len(cluster.closest_reads) == 4, "in pieces, so that a silent broker is noticed"

        async def write() -> None:
            await asyncio.sleep(4)
            await client.send("orders", "y", partition=0)

        writing = asyncio.create_task(write())
        assert [message.value for message in await partition.read(1, wait="10s")] == [b"y"]
        await writing


# requirement: RP10, C2
async def test_a_reader_that_changes_replicas_skips_nothing_and_repeats_nothing() -> None:
    async with racks("b") as (cluster, client):
        partition, rng = client.partition("orders", 0), random.Random(3)
        seen: list[int] = []
        async with client.producer("orders", linger=0) as producer:
            while len(seen) < 200:
                await producer.send("more", partition=0)
                cluster.cannot_serve = {2: LAGS} if rng.random() < 0.5 else {}
                chunk = await partition.read(len(seen), limit=3, wait="1s")
                seen += [message.offset for message in chunk]
                await asyncio.sleep(rng.choice((0, 0, 3)))
        assert seen == list(range(len(seen)))


# requirement: RP10
async def test_partitions_use_different_replicas_of_a_rack() -> None:
    async with racks("c", partitions=4, brokers=5) as (cluster, client):
        for number in range(4):
            await client.partition("orders", number).read(0)
        assert {broker for broker, _ in cluster.closest_reads} == {3, 4, 5}


# requirement: RP10
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rack": ""}, "rack is ''"),
        ({"rack": "x" * 256}, "1 to 255"),
        ({"rack": 7}, "rack is 7"),
        ({"max_staleness": "5s"}, "give rack, too"),
        ({"rack": "a", "max_staleness": "100ms"}, "from 500ms to 24h"),
        ({"rack": "a", "max_staleness": 0}, "from 500ms to 24h"),
        ({"rack": "a", "max_staleness": "-5s"}, "max_staleness"),
        ({"rack": "a", "max_staleness": 5}, "max_staleness"),
    ],
)
def test_wrong_options_are_refused_with_their_names(options: dict[str, object], message: str) -> None:
    for kind in (Client, BlockingClient):
        with pytest.raises((ValueError, TypeError), match=message):
            kind("raftlog://127.0.0.1:1", **options)  # type: ignore[arg-type]


async def test_a_wrong_min_offset_is_refused() -> None:
    async with racks() as (_, client):
        for wrong in (-1, "7", True):
            with pytest.raises(ValueError, match="min_offset"):
                await client.partition("orders", 0).read(0, min_offset=wrong)  # type: ignore[arg-type]


def test_the_rack_comes_from_the_environment() -> None:
    client = Client.from_env({"RAFTLOG_URL": "raftlog://127.0.0.1:1", "RAFTLOG_RACK": "east"})
    assert client.rack == "east"
    assert Client.from_env({"RAFTLOG_URL": "raftlog://127.0.0.1:1"}).rack is None
