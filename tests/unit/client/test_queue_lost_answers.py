"""A worker of a queue whose requests and answers are lost, on a whole broker; and records of transactions."""

from __future__ import annotations

import asyncio

import pytest

from raftlog import LeaseLost
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.whole_broker import TOPIC, Trouble, send_numbers, whole_broker


# requirement: A7
async def test_what_a_worker_says_may_be_lost_and_is_repeated() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await send_numbers(client, 5)
        queue = client.queue(TOPIC)
        jobs = [job async for job in queue.receive(idle="100ms")]
        assert [job.value for job in jobs] == [b"0", b"1", b"2", b"3", b"4"]
        for part in (":ack", ":nack", ":extend", ":dead_letter"):
            broker.trouble(part, Trouble.UNANSWERED, Trouble.LOST)
        await jobs[0].ack()
        await jobs[1].nack()
        await jobs[2].extend("1m")
        await jobs[3].dead_letter(reason="poison")
        assert not broker.troubles
        (again,) = await queue.poll(max=10, wait="5s")
        assert (again.value, again.deliveries) == (b"1", 2)
        with pytest.raises(LeaseLost):
            await jobs[1].ack()
        await asyncio.sleep(0.2)
        (shown,) = [part for part in (await queue.describe()).partitions if part.partition == 0]
        assert (shown.leased, shown.waiting, shown.dead) == (3, 0, 0)
        (letter,) = await client.dead_letters.list(TOPIC, TOPIC)
        assert letter.value == b"3"


# requirement: A7
async def test_jobs_of_a_lost_answer_are_delivered_again_when_their_lease_ends() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await send_numbers(client, 1)
        broker.trouble(":receive", Trouble.UNANSWERED)
        began_s = asyncio.get_running_loop().time()
        (job,) = await client.queue(TOPIC).poll(wait="20s", visibility="1s")
        assert job.deliveries == 2
        assert 0.9 < asyncio.get_running_loop().time() - began_s < 10


# requirement: A7
async def test_records_of_transactions_are_jobs_once_they_are_committed() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        async with client.producer(transactional_id="t") as producer:
            async with producer.transaction() as tx:
                await tx.send("aborted", topic=TOPIC, partition=0)
                await tx.abort()
            async with producer.transaction() as tx:
                await (await tx.send("committed", topic=TOPIC, partition=0))
                assert await client.queue(TOPIC).poll(max=10, wait="300ms") == []
            (job,) = await client.queue(TOPIC).poll(max=10, wait="20s")
        assert job.value == b"committed"
        await job.ack()
        assert await client.queue(TOPIC).poll() == []
        lags = {row.partition: row.lag for row in await client.groups.offsets(TOPIC)}
        assert set(lags.values()) == {0}, lags
