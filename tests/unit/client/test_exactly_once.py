"""Consume, transform, produce: each record has one result, with a whole broker whose answers get lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import pytest

from raftlog import Client as BlockingClient
from raftlog import Delivery
from raftlog.aio import Client, Consumer, MessageBatch
from raftlog.client.consumer.options import transactional_id_of
from raftlog.errors import CommitUnknown, OutcomeForgotten, ProducerFenced, RecordTooLarge, TransactionAborted
from tests.helpers.async_tests import in_real_time
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.whole_broker import Trouble, WholeBroker, ended_by, whole_broker

COUNT = 40
COMMIT, ADD_OFFSETS = ":commit", ":add-offsets"


@asynccontextmanager
async def filled() -> AsyncIterator[tuple[WholeBroker, Client]]:
    """A broker with numbered records in ``orders`` and an empty topic ``clean``."""
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await client.topics.create("clean", partitions=2, replication_factor=1)
        async with client.producer("orders") as producer:
            for number in range(COUNT):
                await producer.send(str(number), partition=number % 2)
        yield broker, client


def consumer(client: Client, group: str = "g", **options: object) -> Consumer:
    """A member that handles batches in transactions."""
    merged: dict[str, object] = {
        "delivery": "exactly_once",
        "limit": 7,
        "session_timeout": "3s",
        "rebalance_timeout": "1s",
        "transaction_timeout": "60s",
        **options,
    }
    return client.consumer(group, "orders", **merged)  # type: ignore[arg-type]  # options of tests


async def copy(batch: MessageBatch) -> bool:
    """The batch to ``clean``; whether that is committed."""
    async with batch.transaction() as tx:
        for message in batch:
            await tx.send("clean", message.value)
    return tx.outcome == "committed"


async def copy_all(taken: Consumer, count: int = COUNT) -> None:
    """So many records."""
    async with asyncio.timeout(20):
        async for batch in taken.batches():
            count -= len(batch) if await copy(batch) else 0
            if count <= 0:
                return


async def copies(client: Client) -> list[int]:
    """What readers see in ``clean``, sorted."""
    chunks = [await client.partition("clean", number).read(0) for number in (0, 1)]
    return sorted(int(message.value) for chunk in chunks for message in chunk.messages)


async def committed(client: Client, group: str = "g") -> dict[int, int]:
    """The offsets of a group."""
    return {item.partition: item.committed_offset for item in await client.groups.offsets(group)}


async def first_batch(taken: Consumer) -> MessageBatch:
    """The next batch."""
    async with asyncio.timeout(20):
        return await anext(taken.batches())


# requirement: D4 D3
async def test_results_and_offsets_are_committed_together() -> None:
    async with filled() as (_, client):
        async with consumer(client) as taken:
            batch = await first_batch(taken)
            assert isinstance(batch, list)
            assert batch == [*batch]
            async with batch.transaction() as tx:
                for message in batch:
                    await tx.send("clean", message.value)
                assert (await committed(client), await copies(client)) == ({}, [])
            assert tx.outcome == "committed"
            assert await committed(client) == {batch[-1].partition: batch[-1].offset + 1}
            assert await copies(client) == sorted(int(message.value) for message in batch)
            with pytest.raises(RuntimeError, match="is committed; take the next batch"):
                await copy(batch)
            await copy_all(taken, COUNT - len(batch))
        assert await copies(client) == [*range(COUNT)]
        assert await committed(client) == {0: COUNT // 2, 1: COUNT // 2}


# requirement: D4
async def test_the_records_of_an_aborted_batch_come_again() -> None:
    async with filled() as (_, client), consumer(client) as taken:
        seen: Counter[int] = Counter()
        with ended_by(ZeroDivisionError):
            async with (batch := await first_batch(taken)).transaction() as tx:
                seen.update(int(message.value) for message in batch)
                await tx.send("clean", batch[0].value)
                raise ZeroDivisionError
        assert tx.outcome == "aborted"
        left = COUNT
        async with asyncio.timeout(20):
            async for batch in taken.batches():
                seen.update(int(message.value) for message in batch)
                left -= len(batch) if await copy(batch) else 0
                if not left:
                    break
        assert sorted(seen.values()) == [1] * (COUNT - 7) + [2] * 7
        assert await copies(client) == [*range(COUNT)]


# requirement: D4
async def test_an_aborted_batch_may_be_handled_again_at_once() -> None:
    async with filled() as (_, client), consumer(client) as taken:
        batch = await first_batch(taken)
        with ended_by(RecordTooLarge):
            async with batch.transaction() as tx:
                await tx.send("clean", bytes(3 << 20))
        assert await copy(batch)
        await copy_all(taken, COUNT - len(batch))
        assert await copies(client) == [*range(COUNT)]


# requirement: D4
@pytest.mark.parametrize("seed", range(3))
async def test_each_record_has_one_result_whatever_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    async with filled() as (broker, client), consumer(client, limit=3) as taken:
        left = COUNT
        async with asyncio.timeout(30):
            async for batch in taken.batches():
                for part in (COMMIT, ADD_OFFSETS, "/clean/", "/offsets"):
                    if rng.random() < 0.3:
                        broker.trouble(part, rng.choice([Trouble.LOST, Trouble.UNANSWERED]))
                if rng.random() < 0.2:
                    with ended_by(ZeroDivisionError):
                        async with batch.transaction() as tx:
                            await tx.send("clean", batch[0].value)
                            raise ZeroDivisionError
                elif await copy(batch):
                    left -= len(batch)
                if not left:
                    break
        broker.troubles.clear()
        assert await copies(client) == [*range(COUNT)]


# requirement: D4
async def test_a_commit_without_an_answer_neither_loses_nor_repeats_records() -> None:
    async with filled() as (broker, client), consumer(client) as taken:
        taken._core.producer.incarnation._limit_s = 0.3
        for carried_out in (Trouble.UNANSWERED, Trouble.LOST):
            broker.trouble(COMMIT, carried_out, *[Trouble.LOST] * 1_000)
            batch = await first_batch(taken)
            with pytest.raises(CommitUnknown):
                await copy(batch)
            with pytest.raises(RuntimeError, match="is unknown; take the next batch"):
                await copy(batch)
            broker.troubles.clear()
            await copy_all(taken, 7)
        async with asyncio.timeout(20):
            while sum((await committed(client)).values()) < COUNT:
                await copy_all(taken, 1)
        assert await copies(client) == [*range(COUNT)]


# requirement: D4
async def test_a_member_that_has_lost_its_partitions_aborts_silently() -> None:
    async with filled() as (_, client), consumer(client) as taken:
        batch = await first_batch(taken)
        async with batch.transaction() as tx:
            await tx.send("clean", batch[0].value)
            await client._session.ask_any("DELETE", f"/v1/groups/g/members/{taken.member_id}")
        assert tx.outcome == "aborted"
        assert (await committed(client), await copies(client)) == ({}, [])
        await copy_all(taken)
        assert await copies(client) == [*range(COUNT)]


# requirement: D4
async def test_the_next_owner_waits_for_the_transaction_of_the_one_before() -> None:
    async with filled() as (_, client):
        zombie = client.producer(transactional_id="zombie")
        async with consumer(client) as before:
            await first_batch(before)
            async with zombie.transaction() as tx:
                await tx.add_offsets(
                    "g",
                    {("orders", 0): 15, ("orders", 1): 15},
                    member_id=before.member_id,
                    generation=before.generation,
                )
                await before.close()
                async with consumer(client) as after:
                    waiting = asyncio.create_task(first_batch(after))
                    done, _ = await asyncio.wait([waiting], timeout=1.5)
                    assert not done, "these offsets may still be committed"
                    await tx.commit()
                    assert (await waiting)[0].offset == 15
                    assert after.generation >= 0


# requirement: D4 D3
async def test_a_restart_with_the_same_instance_ends_what_it_left_open() -> None:
    async with filled() as (_, client), VirtualClient(client._session.given_urls) as killed:
        before = consumer(killed, instance_id="copier-1")
        batch = await first_batch(before)
        core = batch._transaction._core
        await before._portal.awaited(core.begin)  # and the process is killed: no end, nobody leaves
        await before._portal.awaited(core._add_offset)
        for task in before._core._tasks:
            task.get_loop().call_soon_threadsafe(task.cancel)
        async with asyncio.timeout(10), consumer(client, instance_id="copier-1") as after:
            await copy_all(after)
            assert await copies(client) == [*range(COUNT)]
            with pytest.raises((ProducerFenced, OutcomeForgotten)):
                await before._portal.awaited(core.transaction.commit)
        await before.close()


# requirement: D3
async def test_offsets_of_a_group_without_members_are_committed_with_the_transaction() -> None:
    async with filled() as (_, client):
        producer = client.producer(transactional_id="copy-1")
        for offset, fails in ((3, False), (5, True)):
            with pytest.raises(ZeroDivisionError) if fails else nullcontext():
                async with producer.transaction() as tx:
                    await tx.add_offsets("lonely", {("orders", 0): offset})
                    if fails:
                        raise ZeroDivisionError
        assert await committed(client, "lonely") == {0: 3}


# requirement: D4
async def test_a_transaction_of_a_batch_that_takes_too_long_is_repeated() -> None:
    async with filled() as (_, client), consumer(client, transaction_timeout="500ms") as taken:
        batch = await first_batch(taken)
        with ended_by(TransactionAborted):
            async with batch.transaction() as tx:
                await tx.send("clean", batch[0].value, partition=0)
                await asyncio.sleep(1.5)
        await copy_all(taken)
        assert await copies(client) == [*range(COUNT)]


# requirement: D4
async def test_a_batch_whose_offset_has_no_answer_is_definitely_aborted() -> None:
    async with filled() as (broker, client), consumer(client) as taken:
        taken._core.producer.incarnation._limit_s = 0.3
        broker.trouble(ADD_OFFSETS, Trouble.UNANSWERED, *[Trouble.LOST] * 1_000)
        with pytest.raises(TransactionAborted):
            await copy(await first_batch(taken))
        broker.troubles.clear()
        taken._core.producer.incarnation._limit_s = 30.0
        await copy_all(taken)
        assert await copies(client) == [*range(COUNT)]


# requirement: D4
async def test_a_seek_is_committed_at_once() -> None:
    async with filled() as (_, client), consumer(client) as taken:
        await copy_all(taken)
        await taken.seek("orders", 1, 10)
        assert await committed(client) == {0: 20, 1: 10}
        await copy_all(taken, 10)
        assert await committed(client) == {0: 20, 1: 20}
        assert len(await copies(client)) == COUNT + 10


async def test_misuse_is_refused_with_a_remedy() -> None:
    async with filled() as (_, client):
        async with consumer(client) as taken:
            with pytest.raises(RuntimeError, match="batches"):
                await taken.poll()
            batch = await first_batch(taken)
            async with batch.transaction():
                with pytest.raises(RuntimeError, match="end the transaction"):
                    await first_batch(taken)
                with pytest.raises(RuntimeError, match="is open"):
                    await copy(batch)
        async with consumer(
            client, "other", delivery=Delivery.AT_LEAST_ONCE, transaction_timeout=None
        ) as taken:
            with pytest.raises(RuntimeError, match="exactly_once"):
                await copy(await first_batch(taken))
        with pytest.raises(ValueError, match="assign"):
            client.consumer("g", assign=[("orders", 0)], delivery="exactly_once")
        with pytest.raises(ValueError, match="'at_least_once', 'at_most_once', 'exactly_once'"):
            consumer(client, delivery="twice")
        with pytest.raises(ValueError, match="exactly_once"):
            client.worker("orders", group="g", delivery="exactly_once")


def test_no_two_members_share_a_transactional_id() -> None:
    names = ["a", "a.b", "b", "b.c", "c", "x" * 249, "x" * 248 + "y"]
    made = {transactional_id_of(group, member) for group in names for member in names}
    assert len(made) == len(names) ** 2
    assert max(map(len, made)) <= 249


# requirement: D4
@in_real_time
async def test_the_blocking_client_handles_batches_likewise() -> None:
    async with filled() as (broker, client):

        def use() -> None:
            left = COUNT
            with (
                BlockingClient(broker.url) as blocking,
                blocking.consumer("g", "orders", delivery=Delivery.EXACTLY_ONCE, limit=9) as taken,
            ):
                for batch in taken.batches():
                    with batch.transaction() as tx:
                        for message in batch:
                            tx.send("clean", message.value, key=message.key)
                    left -= len(batch)
                    if not left:
                        return

        await asyncio.to_thread(use)
        assert await copies(client) == [*range(COUNT)]
        assert await committed(client) == {0: COUNT // 2, 1: COUNT // 2}
