"""Readers with a rack: which broker they ask, and what happens when it cannot serve. In virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from raftlog.aio import Client
from raftlog.client import Client as BlockingClient
from raftlog.errors import InvalidRequest, OffsetOutOfRange, RaftlogError, ReplicaNotInSync, UnknownTopic
from tests.helpers.fake_broker import FakeCluster, fake_cluster
from tests.helpers.virtual_client import VirtualClient

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
        assert (query["from"], query["route"], query["max_staleness"]) == ("closest", "none", "5000ms")
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
        InvalidRequest("there is no query parameter 'from'; this path has isolation", field="from"),
        OffsetOutOfRange("not there", start=7, end=9),
        UnknownTopic("its metadata lags", topic="orders"),
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
