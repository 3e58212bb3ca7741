"""The client's side of queues, with the HTTP application of a broker."""

from __future__ import annotations

import asyncio
import base64

import pytest

from raftlog import Client, Conflict, InvalidRequest, LeaseLost, UnknownQueue, UnknownTopic
from tests.helpers.async_tests import beside, in_virtual_time
from tests.helpers.http_server import HttpServer, serve
from tests.helpers.real_cluster import create_topic, produce
from tests.helpers.virtual_client import VirtualClient


async def sent(server: HttpServer, *values: bytes | None) -> None:
    """Records of the only partition of ``mail``."""
    records = [
        {
            "key": "/g==",
            "key_encoding": "base64",
            "value": None if value is None else base64.b64encode(value).decode(),
            "encoding": None if value is None else "base64",
            "headers": {"b": "c"},
            "headers_raw": [["a", "/Q=="]],
            "tags": ["t"],
        }
        for value in values
    ]
    stored = await server.post("/v1/topics/mail/records", {"records": records})
    assert stored.status == 200, stored


# requirement: A7
@in_virtual_time
async def test_a_worker_gets_one_job_after_the_other() -> None:
    async with serve() as server, VirtualClient(server.url) as client:
        await server.topic("mail", 1)
        await sent(server, b"\xff0", b"1", b"2")
        queue = client.queue("mail")
        seen = []
        async for job in queue.receive(idle="100ms"):
            seen.append(job.value)
            assert job.deliveries == 1
            await job.ack()
        assert seen == [b"\xff0", b"1", b"2"]
        assert (await queue.describe()).partitions[0].start_offset == 3
        assert [item.lag for item in await client.groups.offsets("mail")] == [0]


# requirement: A7
@in_virtual_time
async def test_a_job_has_its_record() -> None:
    async with serve() as server, VirtualClient(server.url) as client:
        await server.topic("mail", 1)
        await sent(server, b"\xff", None)
        full, empty = await client.queue("mail").poll(max=2)
        assert (full.key, full.value) == (b"\xfe", b"\xff")
        assert (full.message.topic, full.message.partition, full.message.offset) == ("mail", 0, 0)
        assert abs(full.message.timestamp_ms - server.cluster.services.clock.wall_ms()) < 60_000
        assert sorted(full.message.headers) == [("a", b"\xfd"), ("b", b"c"), ("raftlog.tag", b"t")]
        assert full.message.tags == ("t",)
        assert empty.value is None


# requirement: A7
@in_virtual_time
async def test_jobs_are_given_back_extended_and_given_up() -> None:
    async with serve() as server, VirtualClient(server.url) as client:
        await server.topic("mail", 1)
        await sent(server, b"0", b"1")
        queue = client.queue("mail", group="crew")
        first, second = await queue.poll(max=2)
        await first.nack(reason="busy")
        (again,) = await queue.poll()
        assert (again.value, again.deliveries) == (b"0", 2)
        with pytest.raises(LeaseLost):
            await first.ack()
        before_ms = second.lease_until_ms
        await second.extend("1h")
        assert second.lease_until_ms > before_ms + 3_000_000
        await second.dead_letter(reason="poison")
        with pytest.raises(LeaseLost) as lost:
            await queue.ack(first.receipt, again.receipt)
        assert lost.value.details["receipts"] == [first.receipt]
        await again.ack()
        for _ in range(100):
            if (await queue.describe()).partitions[0].start_offset == 2:
                break
            await asyncio.sleep(0.02)
        (letter,) = await client.dead_letters.list("mail", "crew")
        assert (letter.value, letter.reason, letter.attempts) == (b"1", "poison", 1)


# requirement: A7
@in_virtual_time
async def test_mistakes_are_told() -> None:
    async with serve() as server, VirtualClient(server.url) as client:
        await server.topic("mail", 1)
        with pytest.raises(UnknownQueue):
            await client.queue("mail").describe()
        with pytest.raises(UnknownTopic):
            await client.queue("nowhere").poll()
        with pytest.raises(UnknownTopic):
            async for _ in client.queue("nowhere").receive():
                pass
        with pytest.raises(InvalidRequest):
            await client.queue("mail").poll(visibility="7d")
        with pytest.raises(InvalidRequest):
            await client.queue("mail").poll(max=1_000)
        with pytest.raises(InvalidRequest):
            await client.queue("mail").ack("no receipt")
        with pytest.raises(ValueError, match="visibility"):
            await client.queue("mail").poll(visibility="soon")
        with pytest.raises(TypeError):
            client.queue(7)  # type: ignore[arg-type]
        await sent(server, b"0")
        await client.queue("mail").poll(ordered_by_key=True)
        with pytest.raises(Conflict):
            await client.queue("mail").poll()
        await client.queue("mail").delete()
        assert len(await client.queue("mail").poll()) == 1


# requirement: A7
def test_the_blocking_client_is_the_same() -> None:
    with beside(serve()) as server, Client(server.url) as client:
        create_topic(server.url, "mail", 1, replication_factor=1)
        produce(server.url, "mail", ["0", "1", "2"])
        queue = client.queue("mail")
        assert (queue.topic, queue.group) == ("mail", "mail")
        seen = []
        for job in queue.receive(idle="50ms"):
            seen.append(job.value)
            job.extend("1m")
            job.ack()
        assert seen == [b"0", b"1", b"2"]
        produce(server.url, "mail", ["3"])
        (job,) = queue.poll(wait="5s")
        assert (job.key, job.message.offset, job.deliveries) == (None, 3, 1)
        job.nack()
        (job,) = queue.poll(wait="5s")
        job.dead_letter(reason="x")
        queue.delete()
