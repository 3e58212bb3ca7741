"""What was acknowledged in one generation of a group is not committed in another one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from raftlog.aio import Client, Consumer
from raftlog.client.consumer.fetching import Fetching
from raftlog.errors import StaleGeneration, UnknownTopic
from raftlog.types import TopicPartition
from raftlog.wire import groups as wire
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.whole_broker import TOPIC, Trouble, WholeBroker, whole_broker

COMMITS, POSITIONS = "PUT /v1/groups/g/offsets", "GET /v1/groups/g/offsets"


async def rebalanced(broker: WholeBroker, client: Client, taken: Consumer) -> asyncio.Task[object]:
    """Another member joins, and ``taken`` is in the next generation without its positions."""
    before = broker.counted(POSITIONS)
    broker.trouble(COMMITS, *[Trouble.LOST] * 1_000)
    broker.trouble(POSITIONS, *[Trouble.LOST] * 1_000)
    body = wire.JoinGroup(topics=[TOPIC], session_timeout=10_000, rebalance_timeout=10_000, member_id="z")
    other = asyncio.create_task(client._session.ask_any("POST", "/v1/groups/g/members", body=body))
    async with asyncio.timeout(20):
        while taken.generation != 2 or broker.counted(POSITIONS) == before:
            await asyncio.sleep(0.01)
    broker.troubles = [one for one in broker.troubles if one[0] != COMMITS]
    return other


# requirement: ST2
@in_virtual_time
async def test_a_late_commit_does_not_take_the_next_generation_for_its_own() -> None:
    async with whole_broker(partitions=2) as broker, VirtualClient(broker.url, retry_timeout="1s") as client:
        async with client.producer(TOPIC) as producer:
            for number in range(10):
                await producer.send(str(number), partition=0)
        options = {"commit_interval": "1h", "session_timeout": "4s", "rebalance_timeout": "10s"}
        async with await client.consumer("g", TOPIC, **options) as taken:  # type: ignore[arg-type]  # of tests
            for _ in range(4):
                assert await taken.poll("20s") is not None
            other = await rebalanced(broker, client, taken)
            with pytest.raises(StaleGeneration):
                await taken.commit()
            broker.troubles.clear()
            assert await client.groups.offsets("g") == []
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)


async def read_on_in_the_new_topic(broker: WholeBroker, taken: Consumer, values: list[str]) -> list[str]:
    """Delete the topic, create it again with records, and read them with a member of the group."""
    async with VirtualClient(broker.url) as other:
        await other.topics.delete(TOPIC)
        await other.topics.create(TOPIC, partitions=1, replication=1)
        async with other.producer(TOPIC) as producer:
            for value in values:
                await producer.send(value, partition=0)
    found: list[str] = []
    async with asyncio.timeout(20):
        while not set(values) <= set(found):
            try:
                message = await taken.poll("500ms")
            except UnknownTopic:  # until the group has rebalanced
                await asyncio.sleep(0.05)
                continue
            found += [] if message is None else [message.value.decode()]
    return found


# requirement: G4
@in_virtual_time
async def test_what_was_acknowledged_of_a_deleted_topic_is_not_committed_for_its_successor() -> None:
    async with whole_broker(partitions=1) as broker, VirtualClient(broker.url) as client:
        async with client.producer(TOPIC) as producer:
            for number in range(10):
                await producer.send(f"old {number}", partition=0)
        options = {"commit_interval": "1h", "session_timeout": "4s"}
        async with await client.consumer("g", TOPIC, **options) as taken:  # type: ignore[arg-type]  # of tests
            for _ in range(4):
                assert await taken.poll("20s") is not None  # the last one is being handled
            values = [f"new {number}" for number in range(6)]
            await read_on_in_the_new_topic(broker, taken, values)


# requirement: G4
@in_virtual_time
async def test_a_handler_that_outlasts_its_assignment_acknowledges_nothing_in_the_next_one() -> None:
    """The partition may be one of another topic by then, of which nobody has handled the first records."""
    async with whole_broker(partitions=1) as broker, VirtualClient(broker.url) as client:
        async with client.producer(TOPIC) as producer:
            for number in range(4):
                await producer.send(f"old {number}", partition=0)
        options = {"commit_interval": "1h", "session_timeout": "2s", "rebalance_timeout": "1s"}
        async with await client.consumer("g", TOPIC, **options) as taken:  # type: ignore[arg-type]  # of tests
            for _ in range(4):
                assert await taken.poll("20s") is not None  # the last one is being handled
            await client.topics.delete(TOPIC)
            await client.topics.create(TOPIC, partitions=1, replication=1)
            async with VirtualClient(broker.url) as other, other.producer(TOPIC) as producer:
                for number in range(6):
                    await producer.send(f"new {number}", partition=0)
            async with asyncio.timeout(20):
                while not (taken.generation > 1 and taken.assignment and taken.is_assigned):
                    await asyncio.sleep(0.01)
            await taken.commit()
            assert await client.groups.offsets("g") == []
            message = await taken.poll("20s")
            assert message is not None
            assert message.value == b"new 0"
            await taken.commit()
            (row,) = await client.groups.offsets("g")
            assert row.committed_offset == 1


@in_virtual_time
async def test_the_error_of_a_read_is_not_raised_in_the_next_assignment() -> None:
    async with whole_broker(partitions=1) as broker, VirtualClient(broker.url) as client:
        fetching = Fetching(lambda target: client.partition(target.topic, target.partition), 1 << 20)
        await fetching.start({TopicPartition(TOPIC, 0): 0})
        await client.topics.delete(TOPIC)
        async with asyncio.timeout(20):
            while not fetching.failures:
                await asyncio.sleep(0.01)
        await fetching.start({})
        assert await fetching.take(1, 0) == []


class Asking:
    """Requests of a client without the protocol."""

    def __init__(self, http: aiohttp.ClientSession, broker: WholeBroker) -> None:
        self._http = http
        self._base = f"{broker.url}/v1/groups/g"

    async def __call__(self, path: str, body: object, method: str = "POST") -> dict[str, Any]:
        async with self._http.request(method, self._base + path, json=body) as answer:
            assert answer.status in (200, 204), await answer.text()
            found: dict[str, Any] = await answer.json() if answer.status == 200 else {}
            return found

    async def poll(self, last: Mapping[str, Any] | None = None, wait: str = "0s") -> dict[str, Any]:
        """The first poll, or the one that acknowledges what ``last`` has brought."""
        if last is None:
            return await self("/members/z:poll", {"topics": [TOPIC], "wait": wait})
        body = {"generation": last["generation"], "ack": last["positions"], "wait": wait}
        return await self("/members/z:poll", body)


# requirement: G4
@in_virtual_time
async def test_a_poll_that_joins_again_reads_from_where_the_group_is() -> None:
    """Another member has come further meanwhile than what the poll acknowledged."""
    async with (
        whole_broker(partitions=1) as broker,
        VirtualClient(broker.url) as client,
        aiohttp.ClientSession() as http,
    ):
        ask = Asking(http, broker)
        async with client.producer(TOPIC) as producer:
            for number in range(10):
                await producer.send(str(number), partition=0)
        waiting = asyncio.create_task(ask.poll(await ask.poll(), "30s"))
        other = await ask("/members", {"topics": [TOPIC], "member_id": "b", "rebalance_timeout": "1s"})
        generation = other["generation"]
        own = await ask("/members/b:sync", {"generation": generation, "plan": "auto"})
        assert own["assignment"], "this member has the only partition"
        async with client.producer(TOPIC) as producer:
            for number in range(40):
                await producer.send(str(number), partition=0)
        offset = {"topic": TOPIC, "partition": 0, "offset": 50}
        commit = {"member_id": "b", "generation": generation, "offsets": [offset]}
        await ask("/offsets", commit, "PUT")
        await ask("/members/b", None, "DELETE")
        await client.send(TOPIC, "the next one", partition=0)
        polled = await waiting
        assert polled["generation"] > generation
        assert [record["offset"] for record in polled["records"]] == [50]
