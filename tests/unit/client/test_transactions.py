"""What a transaction of the client promises, with a whole broker whose answers get lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raftlog import Client as BlockingClient
from raftlog.aio import Client, Producer
from raftlog.errors import (
    CommitUnknown,
    Conflict,
    InvalidRequest,
    NotSent,
    OutcomeForgotten,
    ProducerFenced,
    RaftlogError,
    RecordTooLarge,
    TransactionAborted,
    TransactionNotFound,
)
from raftlog.testing.waits import LIMIT_S
from raftlog.wire import transactions
from tests.helpers.async_tests import in_real_time
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import eventually
from tests.helpers.whole_broker import Trouble, WholeBroker, ended_by, whole_broker

# requirement: D3

COMMIT, ABORT, RECORDS = ":commit", ":abort", "/records"
SHORT = "1s"


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[WholeBroker, Client]]:
    """A broker, and a client of it."""
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        async with producer(client, "warm-up").transaction():
            pass  # the topic of transactions exists from now on
        broker.requests.clear()
        yield broker, client


def producer(client: Client, name: str = "copy-1", timeout: str = "60s", limit: str = "30s") -> Producer:
    """One incarnation."""
    return client.producer(
        "orders",
        transactional_id=name,
        transaction_timeout=timeout,
        delivery_timeout=limit,
        linger=0,
    )


def is_definite(caught: pytest.ExceptionInfo[BaseException]) -> bool:
    """Whether nothing of the transaction will ever be visible."""
    return isinstance(caught.value, RaftlogError) and caught.value.is_definite


async def write(incarnation: Producer, number: int) -> None:
    """One transaction with a record in each partition."""
    async with incarnation.transaction() as tx:
        for partition in (0, 1):
            await tx.send(str(number), partition=partition)


async def visible(client: Client) -> list[list[int]]:
    """The numbers that readers see, by partition."""
    chunks = [await client.partition("orders", number).read(0) for number in (0, 1)]
    return [[int(message.value) for message in chunk.messages] for chunk in chunks]


async def state_of(client: Client, name: str = "copy-1") -> str:
    """Of its newest transaction."""
    return (await client.transactions.describe(name)).state


async def test_a_transaction_is_visible_as_a_whole_with_its_commit() -> None:
    async with connected() as (broker, client):
        incarnation = producer(client)
        async with incarnation.transaction() as tx:
            assert tx.outcome is None
            receipts = [await (await tx.send("1", partition=number)) for number in (0, 1)]
            assert await visible(client) == [[], []]
        assert tx.outcome == "committed"
        assert [receipt.partition for receipt in receipts] == [0, 1]
        assert await visible(client) == [[1], [1]]
        for number in (2, 3):
            await write(incarnation, number)
        assert await visible(client) == [[1, 2, 3], [1, 2, 3]]
        assert broker.requests.count(f"POST {transactions.LIST.path}") == 1, "only the first one is opened"


async def test_an_exception_aborts_and_the_next_transaction_goes_on() -> None:
    async with connected() as (_, client):
        incarnation = producer(client)
        with ended_by(ZeroDivisionError):
            async with incarnation.transaction() as tx:
                await (await tx.send("1", partition=0))
                raise ZeroDivisionError
        assert tx.outcome == "aborted"
        await write(incarnation, 2)
        async with incarnation.transaction() as tx:
            await (await tx.send("3", partition=0))
            await tx.abort()
        assert tx.outcome == "aborted"
        await write(incarnation, 4)
        assert await visible(client) == [[2, 4], [2, 4]]


async def test_a_cancelled_block_aborts() -> None:
    async with connected() as (_, client):
        incarnation = producer(client)
        sent = asyncio.Event()

        async def block() -> None:
            async with incarnation.transaction() as tx:
                await (await tx.send("1", partition=0))
                sent.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(block())
        await sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await write(incarnation, 2)
        assert await visible(client) == [[2], [2]]


async def test_a_block_that_is_cancelled_at_its_end_leaves_no_transaction_open() -> None:
    async with connected() as (broker, client):
        incarnation = producer(client)
        for part, found in ((RECORDS, [3]), (COMMIT, [3, 2, 3])):
            asked = broker.counted(part)
            broker.trouble(part, *[Trouble.LOST] * 1_000)
            task = asyncio.create_task(write(incarnation, 2))
            while broker.counted(part) == asked:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            broker.troubles.clear()
            await write(incarnation, 3)
            assert (await visible(client))[0] == found


@pytest.mark.parametrize("trouble", [Trouble.LOST, Trouble.UNANSWERED])
@pytest.mark.parametrize("part", [f"{transactions.LIST.path}", RECORDS, COMMIT])
async def test_what_has_no_answer_is_repeated_and_counts_once(part: str, trouble: Trouble) -> None:
    async with connected() as (broker, client):
        incarnation = producer(client)
        for number in range(4):
            broker.trouble(part, trouble, trouble)
            await write(incarnation, number)
            assert broker.troubles == []
            if part == transactions.LIST.path:
                part = COMMIT
        assert await visible(client) == [[0, 1, 2, 3], [0, 1, 2, 3]]


async def test_a_commit_without_an_answer_is_unknown_until_it_is_asked_again() -> None:
    async with connected() as (broker, client):
        incarnation = producer(client, limit=SHORT)
        broker.trouble(COMMIT, Trouble.UNANSWERED, *[Trouble.LOST] * 1_000)
        with ended_by(CommitUnknown) as caught:
            async with incarnation.transaction() as tx:
                await tx.send("1", partition=0)
        assert not is_definite(caught)
        assert tx.outcome == "unknown"
        broker.troubles.clear()
        await tx.commit()
        assert tx.outcome == "committed"
        await write(incarnation, 2)
        await tx.commit()  # its outcome is known
        assert await visible(client) == [[1, 2], [2]]


async def test_a_commit_whose_outcome_is_forgotten_is_unknown_if_it_may_have_been_carried_out() -> None:
    async with connected() as (broker, client):
        zombie, after = producer(client), producer(client)
        broker.trouble(COMMIT, Trouble.UNANSWERED, *[Trouble.LOST] * 1_000)
        ending = asyncio.create_task(write(zombie, 1))
        await eventually(lambda: broker.counted(COMMIT) >= 2)
        other = await after.transaction().__aenter__()
        await other.abort()
        other = await after.transaction().__aenter__()
        await other.abort()
        broker.troubles.clear()
        with ended_by(OutcomeForgotten):
            await ending
        with ended_by(ProducerFenced):
            await write(zombie, 2)
        assert await visible(client) == [[1], [1]]


async def test_the_next_transaction_ends_the_one_before_as_it_was_to_end() -> None:
    async with connected() as (broker, client):
        incarnation = producer(client, limit=SHORT)
        broker.trouble(COMMIT, *[Trouble.LOST] * 1_000)
        with pytest.raises(CommitUnknown):
            await write(incarnation, 1)
        broker.troubles.clear()
        await write(incarnation, 2)
        assert await visible(client) == [[1, 2], [1, 2]]
        broker.trouble(ABORT, *[Trouble.LOST] * 1_000)
        with ended_by(ZeroDivisionError):
            async with incarnation.transaction() as tx:
                await (await tx.send("3", partition=0))
                raise ZeroDivisionError
        assert tx.outcome == "aborted", "nobody has asked to commit it"
        broker.troubles.clear()
        await write(incarnation, 4)
        assert await visible(client) == [[1, 2, 4], [1, 2, 4]]
        assert broker.requests.count(f"POST {transactions.LIST.path}") == 1


async def test_a_transaction_that_could_not_begin_has_definitely_not_happened() -> None:
    async with connected() as (broker, client):
        incarnation = producer(client, limit=SHORT)
        for part in (transactions.LIST.path, COMMIT):
            broker.trouble(part, *[Trouble.LOST] * 1_000)
            with ended_by(NotSent if part is transactions.LIST.path else CommitUnknown):
                await write(incarnation, 1)
            with ended_by(NotSent) as caught:
                await write(incarnation, 2)
            assert is_definite(caught)
            broker.troubles.clear()
        await write(incarnation, 3)
        assert await visible(client) == [[1, 3], [1, 3]]


async def test_an_unknown_commit_may_be_aborted_if_it_was_not_carried_out() -> None:
    async with connected() as (broker, client):
        incarnation = producer(client, limit=SHORT)
        for was_carried_out, outcome in ((Trouble.UNANSWERED, "committed"), (Trouble.LOST, "aborted")):
            broker.trouble(COMMIT, was_carried_out, *[Trouble.LOST] * 1_000)
            with ended_by(CommitUnknown):
                async with incarnation.transaction() as tx:
                    await tx.send("1", partition=0)
            broker.troubles.clear()
            await tx.abort()
            assert tx.outcome == outcome
        assert await visible(client) == [[1], []]


async def test_a_record_that_is_refused_aborts_and_the_block_raises_why() -> None:
    async with connected() as (_, client):
        incarnation = producer(client)
        with ended_by(RecordTooLarge) as caught:
            async with incarnation.transaction() as tx:
                await tx.send("1", partition=0)
                with pytest.raises(RecordTooLarge):
                    await (await tx.send(bytes(3 << 20), partition=1))
        assert is_definite(caught)
        assert tx.outcome == "aborted"
        with ended_by(RecordTooLarge):
            async with incarnation.transaction() as tx:
                await (await tx.send("2", partition=0))
                with pytest.raises(RecordTooLarge):
                    await (await tx.send(bytes(3 << 20), partition=1))
                while True:
                    await tx.send("2", partition=0)  # ends: the transaction can only be aborted
        await write(incarnation, 3)
        assert await visible(client) == [[3], [3]]


async def test_a_record_whose_outcome_is_unknown_aborts_and_is_never_visible() -> None:
    async with connected() as (broker, client):
        incarnation = producer(client, limit=SHORT)
        broker.trouble(f"0{RECORDS}", Trouble.DELAYED, *[Trouble.LOST] * 1_000)
        with pytest.raises(TransactionAborted) as caught:
            await write(incarnation, 1)
        assert is_definite(caught)
        broker.troubles.clear()
        async with incarnation.transaction() as tx:
            await (await tx.send("2", partition=0))
            broker.release.set()
            late = await broker.delayed[0]
            assert late.status in (403, 409), "the batch of the earlier transaction is fenced"
        assert await visible(client) == [[2], []]


@pytest.mark.parametrize("sends_late", [True, False])
async def test_another_process_with_the_same_id_fences_this_one_within_one_call(sends_late: bool) -> None:
    async with connected() as (broker, client):
        zombie, after = producer(client), producer(client)
        await write(zombie, 1)
        with ended_by(ProducerFenced):
            async with zombie.transaction() as tx:
                await (await tx.send("2", partition=0))
                await write(after, 3)
                if sends_late:
                    await tx.send("2", partition=1)
        asked = len(broker.requests)
        for _ in range(2):
            with pytest.raises(ProducerFenced):
                await write(zombie, 4)
        assert len(broker.requests) == asked, "a fenced producer does not open the id again"
        await write(after, 5)
        assert await visible(client) == [[1, 3, 5], [1, 3, 5]]


@pytest.mark.parametrize("writes", [True, False])
async def test_an_idle_zombie_is_fenced_by_its_next_transaction(writes: bool) -> None:
    async with connected() as (_, client):
        zombie, after = producer(client), producer(client)
        await write(zombie, 1)
        async with after.transaction():
            pass
        with ended_by(ProducerFenced):
            async with zombie.transaction() as tx:
                if writes:
                    await tx.send("2", partition=0)
        with pytest.raises(ProducerFenced):
            await write(zombie, 2)
        await write(after, 3)
        assert await visible(client) == [[1, 3], [1, 3]]


async def test_a_process_that_is_fenced_before_its_first_record_knows() -> None:
    async with connected() as (_, client):
        zombie, after = producer(client), producer(client)
        await write(zombie, 1)
        async with after.transaction() as other:
            with ended_by(ProducerFenced):
                async with zombie.transaction() as tx:
                    await tx.send("2", partition=0)
            await other.send("3", partition=0)
        assert await visible(client) == [[1, 3], [1]]


@pytest.mark.parametrize("writes_late", [True, False])
async def test_a_transaction_that_exceeds_its_time_may_be_repeated(writes_late: bool) -> None:
    async with connected() as (_, client):
        incarnation = producer(client, timeout="100ms")
        with ended_by(TransactionAborted) as caught:
            async with incarnation.transaction() as tx:
                await (await tx.send("1", partition=0))
                while await state_of(client) != "complete":
                    await asyncio.sleep(0.01)
                if writes_late:
                    await tx.send("1", partition=0)
        assert is_definite(caught)
        assert tx.outcome == "aborted"
        await write(incarnation, 2)
        assert await visible(client) == [[2], [2]]


async def test_an_id_that_brokers_have_forgotten_is_opened_again() -> None:
    async with connected() as (broker, client):
        incarnation = producer(client)
        await write(incarnation, 1)
        decisions = broker.broker.transactions.coordinators[0].decisions
        assert decisions is not None
        del decisions.state.transactions["copy-1"]
        with pytest.raises(TransactionNotFound):
            await write(incarnation, 2)
        await write(incarnation, 3)
        assert await visible(client) == [[1, 3], [1, 3]]


async def test_misuse_is_refused_with_a_remedy() -> None:
    async with connected() as (_, client):
        incarnation = producer(client)
        with pytest.raises(RuntimeError, match="send in a transaction"):
            await incarnation.send("1")
        with pytest.raises(RuntimeError, match="transactional_id"):
            client.producer("orders").transaction()
        both = await asyncio.gather(
            *(incarnation.transaction().__aenter__() for _ in range(2)), return_exceptions=True
        )
        assert isinstance(both[1], RuntimeError)
        assert not isinstance(both[0], BaseException)
        await both[0].abort()
        async with incarnation.transaction() as tx:
            with pytest.raises(RuntimeError, match="has a transaction open"):
                await write(incarnation, 2)
            await tx.send("1", partition=0)
        with pytest.raises(RuntimeError, match="committed"):
            await tx.send("1", partition=0)
        with pytest.raises(RuntimeError, match="begins once"):
            await tx.__aenter__()
        await incarnation.close()
        with pytest.raises(NotSent):
            await write(incarnation, 2)
        assert await visible(client) == [[1], []]


async def test_closing_a_producer_aborts_its_open_transaction() -> None:
    async with connected() as (_, client):
        incarnation = producer(client)
        with ended_by(NotSent, TransactionAborted):
            async with incarnation.transaction() as tx:
                await (await tx.send("1", partition=0))
                await tx.send("1", partition=1)
                await incarnation.close(0)
                await tx.send("1", partition=1)
        assert tx.outcome == "aborted"
        assert await visible(client) == [[], []]


async def test_prepared_transactions_are_committed_together() -> None:
    async with connected() as (broker, client):
        tasks = [producer(client, f"sink~{name}", limit=SHORT) for name in "ab"]
        for sequence in (1, 2):
            prepared = []
            for partition, task in enumerate(tasks):
                async with task.transaction() as tx:
                    await tx.send(str(sequence), partition=partition)
                    prepared.append(await tx.prepare(timeout="1m"))
                assert tx.outcome == "prepared"
            with pytest.raises(Conflict):
                await write(tasks[0], 9)
            assert await visible(client) == [[*range(1, sequence)]] * 2
            broker.trouble(":commit-batch", Trouble.UNANSWERED)
            await client.transactions.commit_batch("sink", sequence, prepared)
            await client.transactions.commit_batch("sink", sequence, prepared)
            assert await visible(client) == [[*range(1, sequence + 1)]] * 2
        with pytest.raises(Conflict) as over:
            await client.transactions.commit_batch("sink", 1, prepared)
        assert over.value.details["newest_sequence"] == 2
        with pytest.raises(Conflict) as repeated:
            await client.transactions.commit_batch("sink", 2, prepared[:1])
        assert repeated.value.details["newest_sequence"] == 2


async def test_uncommitted_messages_are_read_on_request() -> None:
    async with connected() as (_, client), producer(client).transaction() as tx:
        await (await tx.send("1", partition=0))
        partition = client.partition("orders", 0)
        assert (await partition.read(0)).messages == []
        seen = (await partition.read(0, isolation="uncommitted")).messages
        assert [message.value for message in seen] == [b"1"]
        with pytest.raises(ValueError, match="isolation is 'dirty'"):
            await partition.read(0, isolation="dirty")  # type: ignore[arg-type]


async def test_prepared_transactions_are_aborted_together() -> None:
    async with connected() as (_, client):
        task = producer(client, "sink~a")
        async with task.transaction() as tx:
            await tx.send("1", partition=0)
            prepared = await tx.prepare()
        await client.transactions.abort_batch("sink", [prepared])
        async with task.transaction() as tx:
            await tx.send("2", partition=0)
            await client.transactions.commit_batch("sink", 1, [await tx.prepare()])
        with pytest.raises(Conflict):
            await client.transactions.abort_batch("sink", [tx.id])
        assert await visible(client) == [[2], []]


async def test_an_id_without_a_sink_cannot_be_prepared() -> None:
    async with connected() as (_, client):
        with ended_by(InvalidRequest):
            async with producer(client).transaction() as tx:
                await tx.send("1", partition=0)
                await tx.prepare()
        assert tx.outcome == "aborted"
        assert await state_of(client) == "complete"


@in_real_time
async def test_the_blocking_client_has_the_same_transactions() -> None:
    async with whole_broker() as broker:

        def use() -> list[bytes | None]:
            with BlockingClient(broker.url) as client, client.producer(transactional_id="sink~a") as made:
                with made.transaction() as tx:
                    tx.send("1", topic="orders", partition=0, headers={"a": "b"})
                assert tx.outcome == "committed"
                with ended_by(ZeroDivisionError), made.transaction() as tx:
                    tx.send("2", topic="orders", partition=0).result(f"{LIMIT_S:g}s")
                    raise ZeroDivisionError
                with made.transaction() as tx:
                    tx.send("3", topic="orders", partition=0)
                    prepared = tx.prepare()
                client.transactions.commit_batch("sink", 1, [prepared])
                return [message.value for message in client.partition("orders", 0).read(0).messages]

        assert await asyncio.to_thread(use) == [b"1", b"3"]


@pytest.mark.parametrize("way", ["commit", "prepare"])
async def test_a_record_sent_during_the_end_is_not_left_out_of_a_transaction(way: str) -> None:
    async with connected() as (broker, client):
        incarnation = producer(client, "sink~task-1")
        with ended_by(TransactionAborted) as caught:
            async with incarnation.transaction() as tx:
                early = await tx.send("1", partition=0)
                ending = asyncio.ensure_future(tx.commit() if way == "commit" else tx.prepare())
                await asyncio.sleep(0)
                assert not early.done()  # so the end waits for this record
                broker.trouble("partitions/1/records", Trouble.HELD)
                late = await tx.send("2", partition=1)
                await ending
        assert is_definite(caught)
        assert tx.outcome == "aborted"
        assert isinstance(late.exception(), RaftlogError)
        broker.release.set()
        await write(incarnation, 3)
        assert await visible(client) == [[3], [3]]
