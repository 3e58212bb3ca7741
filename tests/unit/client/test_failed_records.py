"""Retry and dead-letter topics take whatever their source takes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from broker.coordinators.jobs import BrokerJobs
from queues.effects import Bury
from raftlog import Backoff
from raftlog.client.messages import Message
from raftlog.errors import InvalidRequest, RecordTooLarge
from raftlog.records.batch import HEADER_BYTES, Codec, encode_batch, parse_header
from raftlog.records.builder import TIMESTAMP_MAX, Record, build_batch
from raftlog.records.failures import LIMIT, FailedRecord
from raftlog.wire import media_types
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import clock_of_loop, eventually
from tests.helpers.whole_broker import TOPIC, whole_broker
from tests.helpers.worker_world import World

RETRY = Backoff("100ms", attempts=2)


@asynccontextmanager
async def working(
    client: VirtualClient, sizes: list[int], retry: Backoff | None = RETRY
) -> AsyncIterator[None]:
    """A worker of a client that fails at large messages, for the time of the block."""

    @client.worker(TOPIC, group="g", retry=retry, dead_letter=True)
    async def handle(message: Message) -> None:
        sizes.append(len(message.value))
        if len(message.value) > 1_000:
            raise ValueError("too much")

    running = asyncio.create_task(client.run())
    try:
        yield
        assert not running.done()
    finally:
        client.stop()
        await running


async def dead_letters(client: VirtualClient, group: str) -> list[bytes]:
    """The values of the dead letters of a group."""
    found = await client.partition(f"{TOPIC}.{group}.dlq", 0).read(0, max_bytes=16 << 20)
    return sorted((message.value for message in found), key=len)


LARGE = b"x" * 1_001  # fails
EXTREME = {
    "headers": Record(LARGE, headers=tuple((f"h{number}", b"") for number in range(1_200))),
    "key": Record(LARGE, key=b"k" * 200_000),
    "header": Record(LARGE, headers=(("h", b"x" * 200_000),)),
    "time": Record(LARGE, timestamp_ms=1 << 62),
    "foreign time": Record(LARGE, timestamp_ms=(1 << 63) - 1),
}


async def produce(url: str, record: Record) -> None:
    """Store a record as any producer may, also with a timestamp that ours does not send."""
    data = build_batch([Record(record.value, record.key, record.headers)], codec=Codec.NONE, timestamp_ms=5)
    if record.timestamp_ms is not None:
        times = {"base_timestamp": record.timestamp_ms, "max_timestamp": record.timestamp_ms}
        data = encode_batch(parse_header(data)._replace(**times), data[HEADER_BYTES:])
    path, headers = f"{url}/v1/topics/{TOPIC}/partitions/0/records", {"Content-Type": media_types.BATCH}
    body = io.BytesIO(data)
    async with aiohttp.ClientSession() as session, session.post(path, data=body, headers=headers) as reply:
        assert reply.status == 200, await reply.text()


async def letters_of(client: VirtualClient, group: str) -> list[FailedRecord]:
    """The dead letters of a group."""
    found = await client.partition(f"{TOPIC}.{group}.dlq", 0).read(0, max_bytes=16 << 20)
    return [FailedRecord.from_dead_letter(each.value, each.headers, each.timestamp_ms) for each in found]


# requirement: A7
@pytest.mark.parametrize("name", EXTREME)
@pytest.mark.parametrize("retry", [RETRY, None], ids=["retry", "letters only"])
async def test_a_record_that_may_be_produced_is_put_aside(name: str, retry: Backoff | None) -> None:
    sent, sizes = EXTREME[name], list[int]()
    async with whole_broker(partitions=1) as whole, VirtualClient(whole.url) as client:
        await client.topics.alter(TOPIC, config={"message.timestamp.type": "CreateTime"})
        await produce(whole.url, sent)
        await client.send(TOPIC, "good")
        async with working(client, sizes, retry):
            await eventually(lambda: sorted(sizes) == [4] + [1_001] * (2 if retry else 1))
        (letter,) = await letters_of(client, "g")
        assert (letter.key, letter.value, letter.headers) == (sent.key, sent.value, sent.headers)
        assert letter.timestamp_ms == min(sent.timestamp_ms or 5, TIMESTAMP_MAX)


# requirement: A7
@pytest.mark.parametrize("name", [*EXTREME, "most headers"])
async def test_a_job_that_may_be_produced_is_a_dead_letter(name: str) -> None:
    async with whole_broker(partitions=1) as whole, VirtualClient(whole.url) as client:
        await client.topics.alter(TOPIC, config={"message.timestamp.type": "CreateTime", LIMIT: 4 << 20})
        sent = EXTREME.get(name, Record(LARGE, headers=(("", b""),) * (1 << 19)))
        await produce(whole.url, sent)
        parts = whole.broker
        jobs = BrokerJobs(parts.controller, parts.gateway, clock_of_loop())
        topic_id = parts.controller.image.topics[TOPIC].topic_id
        await jobs.bury(Bury("g", TOPIC, topic_id, 0, 0, deliveries=3, reason="bad", redrives=0))
        (letter,) = await letters_of(client, "g")
        if name == "most headers":
            assert (letter.value, letter.headers) == (None, ())
            assert "1001 bytes and 524288 headers are at orders/0/0 only" in letter.reason
        else:
            assert (letter.key, letter.value, letter.headers) == (sent.key, sent.value, sent.headers)
            assert letter.timestamp_ms == min(sent.timestamp_ms or 5, TIMESTAMP_MAX)


# requirement: A7
async def test_a_record_that_the_retry_topic_refuses_is_given_up() -> None:
    world = World(retry=RETRY, dead_letter=True)
    world.refusals = [InvalidRequest("no headers"), InvalidRequest("at once"), InvalidRequest("later")]
    world.records.hand_out(0, value=b"x" * 100, headers=(("a", b"b"),))
    await world.begun(0)
    world.handling.end(0, ValueError("bad"))
    await eventually(lambda: world.records.acknowledged == [0])
    ((topic, _, record),) = world.stored
    assert topic == "t.g.dlq"
    assert b"its 100 bytes and 1 headers are at t/0/0 only" in dict(record.headers)["raftlog.reason"]  # type: ignore[operator]
    assert "a" not in dict(record.headers)
    await world.stop()


# requirement: A7
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_limit_that_is_raised_later_is_followed(restarts: bool) -> None:
    async with whole_broker(partitions=1) as whole, VirtualClient(whole.url) as admin:
        sizes: list[int] = []
        large = b"x" * (3 << 20)
        async with VirtualClient(whole.url) as client, working(client, sizes):
            await admin.send(TOPIC, "first")
            await eventually(lambda: sizes == [5])
            await admin.topics.alter(TOPIC, config={LIMIT: 4 << 20})
            if not restarts:
                await admin.send(TOPIC, large)
                await eventually(lambda: sizes[1:] == [len(large)] * 2)
        if restarts:
            async with VirtualClient(whole.url) as client, working(client, sizes):
                await admin.send(TOPIC, large)
                await eventually(lambda: sizes[1:] == [len(large)] * 2)
        assert await dead_letters(admin, "g") == [large]
        for name in f"{TOPIC}.g.retry", f"{TOPIC}.g.dlq":
            assert (await admin.topics.describe(name)).config[LIMIT] == (4 << 20) + (64 << 10)


# requirement: A7
async def test_the_dead_letters_of_a_queue_follow_their_source() -> None:
    async with whole_broker(partitions=1) as whole, VirtualClient(whole.url) as client:
        queue = client.queue(TOPIC)
        await client.send(TOPIC, "small")
        (job,) = await queue.receive(wait="5s")
        await job.dead_letter()
        await client.topics.alter(TOPIC, config={LIMIT: 4 << 20})
        large = b"x" * (3 << 20)
        await client.send(TOPIC, large)
        (job,) = await queue.receive(wait="5s")
        await job.dead_letter()
        async with asyncio.timeout(20):
            while len(found := await dead_letters(client, TOPIC)) < 2:
                await asyncio.sleep(0.1)
        assert found == [b"small", large]


# requirement: A7
async def test_a_record_that_no_topic_takes_with_more_headers_is_a_letter_without_its_value() -> None:
    world = World(dead_letter=True)
    world.refusals = [RecordTooLarge("16 MiB at most")]
    world.records.hand_out(0, value=b"x" * 100)
    await world.begun(0)
    world.handling.end(0, ValueError("bad"))
    await eventually(lambda: world.records.acknowledged == [0])
    ((_, _, record),) = world.stored
    assert b"its 100 bytes are at t/0/0 only" in dict(record.headers)["raftlog.reason"]  # type: ignore[operator]
    await world.stop()
