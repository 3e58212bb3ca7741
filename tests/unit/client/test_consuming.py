"""What a consumer hands out: waits, cancelled calls, seeks and pauses, with a whole broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

import pytest

from raftlog.aio import Client, Consumer
from raftlog.assignors import Subscription
from raftlog.client.consumer.fetching import Fetching
from raftlog.client.consumer.options import TopicNames
from raftlog.client.messages import Message
from raftlog.client.partition import AsyncPartition
from raftlog.errors import InvalidRecord, NotSent, OffsetOutOfRange, TopicNotFound
from raftlog.types import TopicPartition
from raftlog.wire import groups as wire
from tests.helpers.virtual_client import VirtualClient, filled
from tests.helpers.virtual_time import eventually
from tests.helpers.whole_broker import TOPIC, Trouble, whole_broker


async def cancelled(call: Awaitable[object], is_so: Callable[[], bool]) -> None:
    """Begin a call, and cancel it when something is so for the client, but its caller has not gone on yet."""
    task = asyncio.ensure_future(call)
    while not is_so():
        await asyncio.sleep(0)
        assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def read_ahead(taken: Consumer, *counts: int) -> None:
    """Return once so many records of each partition wait to be handed out."""
    wanted = {TopicPartition(TOPIC, number): count for number, count in enumerate(counts)}
    await eventually(lambda: taken.lag == wanted)


async def polled(taken: Consumer) -> Message:
    """The next record."""
    message = await taken.poll("20s")
    assert message is not None
    return message


async def group_polled(client: Client, body: wire.PollGroup) -> wire.PolledGroup:
    """What a member of ``h`` gets whose broker makes the plan."""
    reply = await client._session.ask_any("POST", "/v1/groups/h/members/a:poll", body=body)
    return reply.read(wire.PolledGroup)


async def until_shared(*members: Consumer) -> None:
    """Return once all members know their partitions in one generation."""
    async with asyncio.timeout(20):
        while len({each.generation for each in members}) > 1 or not all(each.is_assigned for each in members):
            await asyncio.sleep(0.01)


# requirement: G5
async def test_a_member_without_partitions_waits_in_poll() -> None:
    async with (
        whole_broker(partitions=1) as broker,
        VirtualClient(broker.url) as client,
        client.consumer("g", TOPIC) as first,
        client.consumer("g", TOPIC) as second,
    ):
        await until_shared(first, second)
        (idle,) = (each for each in (first, second) if not each.assignment)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await idle.poll("200ms") is None
        assert loop.time() - began_s > 0.15


# requirement: G5
async def test_a_worker_without_partitions_ends_when_it_is_stopped() -> None:
    """Its loop is free for its heartbeats, and for the partitions that it gets later."""
    async with (
        whole_broker(partitions=1) as broker,
        VirtualClient(broker.url) as client,
        VirtualClient(broker.url) as other,
    ):
        handled = asyncio.Event()

        @other.worker(TOPIC, group="g")
        async def handle(message: object) -> None:
            handled.set()

        async with client.consumer("g", TOPIC, member_id="a") as first:  # sorted before the worker
            await eventually(lambda: bool(first.assignment))
            running = asyncio.create_task(other.run())
            async with asyncio.timeout(20):
                while first.generation < 2 or not first.is_assigned:
                    await asyncio.sleep(0.01)
        await client.send(TOPIC, "1")
        async with asyncio.timeout(20):
            await handled.wait()
        other.stop()
        async with asyncio.timeout(20):
            await running


# requirement: D2
async def test_the_records_of_a_cancelled_poll_come_with_the_next_one() -> None:
    async with filled(5) as (_, client), client.consumer("g", TOPIC) as taken:
        await read_ahead(taken, 5)
        await cancelled(taken.poll("20s"), lambda: taken.lag == {TopicPartition(TOPIC, 0): 0})
        assert [(await polled(taken)).offset for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_deleted_records_are_no_lag_of_a_consumer() -> None:
    async with filled(5) as (_, client):
        await client.partitions.delete_before(TOPIC, 0, 3)
        async with client.consumer("g", TOPIC) as taken:
            await read_ahead(taken, 3)  # with the entry of the new log start
            await taken.seek(TOPIC, 0, 0)
            assert taken.lag == {TopicPartition(TOPIC, 0): 3}


# requirement: C7
@pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("latest", 5)])
async def test_a_group_without_an_offset_begins_where_its_policy_says(
    reset: str, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with filled(5) as (_, client), client.consumer("g", TOPIC, reset=reset) as taken:
        await eventually(lambda: taken.is_assigned)
        assert taken.positions == {TopicPartition(TOPIC, 0): first}
    assert f"group g has no committed offset of orders/0: it starts at offset {first}" in caplog.text


# requirement: C7
async def test_records_that_were_deleted_before_they_were_read_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with filled(5) as (_, client):
        await client.groups.commit("g", {(TOPIC, 0): 1})
        await client.partitions.delete_before(TOPIC, 0, 3)
        async with client.consumer("g", TOPIC) as taken:
            assert (await polled(taken)).offset == 3
        assert "orders/0 no longer has offset 1: reading continues at offset 3" in caplog.text
        async with client.consumer("new", TOPIC) as taken:
            assert (await polled(taken)).offset == 3
        assert "group new has no committed offset of orders/0: it starts at offset 3" in caplog.text
        poll = wire.PollGroup(topics=[TOPIC], positions=[wire.Place(TOPIC, 0, 1)])
        answer = await group_polled(client, poll)
        assert answer.deleted == [wire.DeletedRange(TOPIC, 0, 1, 3)]
        assert [each.offset for each in answer.records] == [3, 4]


# requirement: C7
@pytest.mark.parametrize("committed", [None, 1])
async def test_a_consumer_fails_for_a_lost_offset_where_it_shall(committed: int | None) -> None:
    async with filled(5) as (_, client):
        for group in () if committed is None else ("g", "h"):
            await client.groups.commit(group, {(TOPIC, 0): 1})
        await client.partitions.delete_before(TOPIC, 0, 3)
        async with client.consumer("g", TOPIC, reset="fail") as taken:
            with pytest.raises(OffsetOutOfRange):
                await taken.poll("20s")
        with pytest.raises(OffsetOutOfRange):
            await group_polled(client, wire.PollGroup(topics=[TOPIC], reset="fail"))
        await client.groups.commit("g", {(TOPIC, 0): 4})
        async with client.consumer("g", TOPIC, reset="fail") as taken:
            assert (await polled(taken)).offset == 4


# requirement: D4
@pytest.mark.parametrize(
    ("topics", "text"),
    [
        (f"{TOPIC}x", f"there is no topic '{TOPIC}x' (did you mean '{TOPIC}'?)"),
        ([TOPIC, "unlike"], "there is no topic 'unlike'"),
        (re.compile(r"un\w+"), r"no topic matches 'un\\w+'"),
    ],
)
async def test_a_consumer_says_once_that_a_topic_is_missing_or_raises(
    caplog: pytest.LogCaptureFixture, topics: TopicNames, text: str
) -> None:
    # requirement: G1
    async with whole_broker(partitions=1) as broker, VirtualClient(broker.url) as client:
        async with client.consumer("raises", topics, missing="raise") as consumer:
            with pytest.raises(TopicNotFound, match=re.escape(text)):
                await consumer.poll("20s")
        async with client.consumer("waits", topics, topics_refresh="1s") as consumer:
            assert await consumer.poll("5s") is None
            await client.topics.create("unlike", replication_factor=1)
            await client.topics.create(f"{TOPIC}x", replication_factor=1)
            await client.send(topics if isinstance(topics, str) else "unlike", "late")
            assert (await polled(consumer)).value == b"late"
        assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
            f"{text}; group waits waits until it exists"
        ]


async def test_the_records_of_a_cancelled_batch_come_with_the_next_one() -> None:
    async with (
        filled(5) as (_, client),
        client.consumer("g", TOPIC, delivery="exactly_once") as taken,
    ):
        await read_ahead(taken, 5)
        first = anext(taken.batches())
        await cancelled(first, lambda: taken.lag == {TopicPartition(TOPIC, 0): 0})
        async with asyncio.timeout(20):
            batch = await anext(taken.batches(limit=2))
        assert [message.offset for message in batch] == [0, 1, 2, 3, 4]  # in one transaction


# requirement: D2
async def test_batches_begin_with_what_poll_has_left() -> None:
    async with filled(5) as (_, client), client.consumer("g", TOPIC) as taken:
        assert (await polled(taken)).offset == 0
        offsets: list[list[int]] = []
        async for batch in taken.batches(limit=3):
            offsets.append([message.offset for message in batch])
            if offsets[-1][-1] == 4:
                break
        assert offsets == [[1, 2, 3], [4]]


# requirement: C3
async def test_a_poll_waits_no_longer_than_it_says_for_a_cancelled_one() -> None:
    async with filled(0) as (_, client), client.consumer("g", TOPIC) as taken:
        await eventually(lambda: taken.is_assigned)
        poll = asyncio.create_task(taken.poll("1h"))
        await asyncio.sleep(0)
        poll.cancel()
        async with asyncio.timeout(20):
            assert await taken.poll("20ms") is None
            await client.send(TOPIC, "1")
            assert (await polled(taken)).offset == 0


# requirement: G4
async def test_a_consumer_whose_block_is_cancelled_at_its_beginning_leaves_its_group() -> None:
    async with filled(1) as (broker, client):
        taken = client.consumer("g", TOPIC, member_id="m")
        await cancelled(taken.__aenter__(), lambda: bool(taken._core._tasks))
        await eventually(lambda: broker.counted("DELETE /v1/groups/g/members/m") > 0)
        async with client.consumer("g", TOPIC) as other:
            assert (await polled(other)).offset == 0


async def offsets(client: Client) -> dict[int, int]:
    """The committed ones."""
    return {each.partition: each.committed_offset for each in await client.groups.offsets("g")}


# requirement: D2
async def test_a_seek_leaves_the_records_of_other_partitions() -> None:
    async with filled(5, 5) as (_, client), client.consumer("g", TOPIC) as taken:
        first = await polled(taken)
        await taken.seek(TOPIC, 1 - first.partition, 3)
        seen: dict[int, list[int]] = {0: [], 1: []}
        while len(seen[0]) + len(seen[1]) < 6:
            message = await polled(taken)
            seen[message.partition].append(message.offset)
        assert seen == {first.partition: [1, 2, 3, 4], 1 - first.partition: [3, 4]}
        await taken.commit()
        assert await offsets(client) == {0: 5, 1: 5}


# requirement: D2
@pytest.mark.parametrize("target", ["same", "other", "foreign"])
@pytest.mark.parametrize("takes_batches", [False, True])
async def test_a_seek_does_not_acknowledge_what_is_being_handled(target: str, takes_batches: bool) -> None:
    async with filled(5, 5) as (_, client):
        await client.groups.commit("g", {(TOPIC, 0): 0, (TOPIC, 1): 0})
        with pytest.raises(KeyError):  # noqa: PT012 - of the handler, or of the seek
            async with client.consumer("g", TOPIC) as taken:
                first = (await anext(taken.batches()))[0] if takes_batches else await polled(taken)
                targets = {"same": first.partition, "other": 1 - first.partition, "foreign": 7}
                await taken.seek(TOPIC, targets[target], 0)
                raise KeyError
        assert await offsets(client) == {0: 0, 1: 0}


# requirement: D2
async def test_a_seek_takes_back_the_acknowledgement_of_its_own_partition_only() -> None:
    async with filled(5, 5) as (_, client), client.consumer("g", TOPIC) as taken:
        first = await polled(taken)
        await taken.seek(TOPIC, 1 - first.partition, 3)
        await taken.commit()
        assert await offsets(client) == {first.partition: 1, 1 - first.partition: 3}
        second = await polled(taken)
        await taken.seek(TOPIC, second.partition, 0)
        await taken.commit()
        assert (await offsets(client))[second.partition] == 0


# requirement: D2
async def test_a_seek_drops_what_a_cancelled_poll_has_taken() -> None:
    async with filled(5) as (_, client), client.consumer("g", TOPIC) as taken:
        await read_ahead(taken, 5)
        await cancelled(taken.poll("20s"), lambda: taken.lag == {TopicPartition(TOPIC, 0): 0})
        await taken.seek(TOPIC, 0, 3)
        assert [(await polled(taken)).offset for _ in range(2)] == [3, 4]


# requirement: D2
async def test_records_of_a_paused_partition_are_kept_back_until_it_is_resumed() -> None:
    async with filled(5, 5) as (_, client), client.consumer("g", TOPIC) as taken:
        first = await polled(taken)
        paused = [TopicPartition(TOPIC, first.partition)]
        await taken.pause(paused)
        others = [await polled(taken) for _ in range(5)]
        assert {each.partition for each in others} == {1 - first.partition}
        assert await taken.poll("50ms") is None
        await taken.resume(paused)
        assert [(await polled(taken)).offset for _ in range(4)] == [1, 2, 3, 4]
        await taken.commit()
        assert await offsets(client) == {0: 5, 1: 5}


# requirement: D2
async def test_what_a_cancelled_poll_has_taken_is_kept_back_by_a_pause() -> None:
    async with filled(3) as (_, client), client.consumer("g", TOPIC) as taken:
        await read_ahead(taken, 3)
        await cancelled(taken.poll("20s"), lambda: taken.lag == {TopicPartition(TOPIC, 0): 0})
        await taken.pause(taken.assignment)
        for _ in range(3):
            assert await taken.poll("20ms") is None
        await taken.resume(taken.assignment)
        assert [(await polled(taken)).offset for _ in range(3)] == [0, 1, 2]


async def fill_with(client: Client, *values: str) -> None:
    """These records in both partitions."""
    async with client.producer(TOPIC) as producer:
        for partition in (0, 1):
            for value in values:
                await producer.send(value, partition=partition)


# requirement: C4
async def test_each_partition_that_fails_raises_its_error() -> None:
    async with filled(0, 0) as (_, client):
        await fill_with(client, "not json", "1", "2")
        async with client.consumer("g", TOPIC, value=json.loads) as taken:
            fetching = taken._core._fetching
            await eventually(lambda: len(fetching.failures) == 2)  # before the first one is raised
            assert taken.lag == {}
            for _ in range(2):
                with pytest.raises(InvalidRecord) as caught:
                    await taken.poll("20s")
                details = caught.value.details
                assert details["next_offset"] == 1
                await taken.seek(TOPIC, int(str(details["partition"])), 1)
            seen = [await polled(taken) for _ in range(4)]
            assert sorted((each.partition, each.offset) for each in seen) == [(0, 1), (0, 2), (1, 1), (1, 2)]


# requirement: C4
async def test_a_seek_takes_back_the_error_of_its_partition() -> None:
    async with filled(0, 0) as (_, client):
        await fill_with(client, "not json", "1", "2")
        async with client.consumer("g", TOPIC, value=json.loads) as taken:
            fetching = taken._core._fetching
            await eventually(lambda: len(fetching.failures) == 2)
            for partition in (0, 1):
                await taken.seek(TOPIC, partition, 2)
            assert sorted([(await polled(taken)).partition for _ in range(2)]) == [0, 1]


# requirement: C5
async def test_a_consumer_begins_where_its_group_has_committed() -> None:
    async with filled(5) as (_, client):
        async with client.consumer("g", TOPIC) as taken:
            assert [(await polled(taken)).offset for _ in range(3)] == [0, 1, 2]
            await taken.commit()
        assert await offsets(client) == {0: 3}
        async with client.consumer("g", TOPIC) as taken:
            assert [(await polled(taken)).offset for _ in range(2)] == [3, 4]


# requirement: C6
async def test_a_seek_back_outlasts_a_commit_that_is_on_its_way() -> None:
    commits = "PUT /v1/groups/g/offsets"
    async with (
        filled(5) as (broker, client),
        client.consumer("g", TOPIC, commit_interval="1h") as taken,
    ):
        for _ in range(5):
            await polled(taken)
        broker.trouble(commits, Trouble.HELD)
        committing = asyncio.create_task(taken.commit())
        await eventually(lambda: broker.counted(commits) == 1)
        await taken.seek(TOPIC, 0, 0)
        broker.release.set()
        await committing
        assert [(await polled(taken)).offset for _ in range(2)] == [0, 1]
        await taken.commit()
        assert await offsets(client) == {0: 2}


class BrokenAssignor:
    """A strategy of the user that fails."""

    name = "broken"

    def assign(
        self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> dict[str, frozenset[TopicPartition]]:
        raise ZeroDivisionError("of the user")


# requirement: G14
async def test_poll_raises_what_an_assignor_raises() -> None:
    async with (
        filled(1) as (_, client),
        client.consumer("g", TOPIC, strategies=[BrokenAssignor()]) as taken,
    ):
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="of the user"):
                await taken.poll("20s")


class Unreadable:
    """A partition whose reads fail for an unknown reason."""

    async def read(self, *_: object, **__: object) -> None:
        raise ZeroDivisionError


async def test_an_unexpected_error_of_a_read_is_raised() -> None:
    fetching = Fetching(lambda _: cast("AsyncPartition", Unreadable()), 1 << 20)
    await fetching.start({TopicPartition(TOPIC, 0): 0})
    with pytest.raises(ZeroDivisionError):
        await fetching.take(1, 20)
    await fetching.stop()


async def test_no_more_is_asked_for_than_brokers_send_at_once() -> None:
    async with filled(1) as (_, client), client.consumer("g", TOPIC, prefetch_bytes=1 << 30) as taken:
        assert (await polled(taken)).offset == 0


# requirement: C3
async def test_a_poll_that_waits_ends_with_its_consumer() -> None:
    async with filled(0) as (_, client):
        taken = client.consumer("g", TOPIC)
        poll = asyncio.create_task(taken.poll("1h"))
        await eventually(lambda: taken.is_assigned)
        await taken.close()
        async with asyncio.timeout(20):
            with pytest.raises(NotSent):
                await poll


async def test_a_client_forgets_a_closed_consumer() -> None:
    async with filled(0) as (_, client):
        for _ in range(3):
            async with client.consumer("g", TOPIC):
                pass
        assert len(client._consumers) == 1


# requirement: G9
async def test_a_client_does_not_leave_again_for_a_closed_consumer() -> None:
    """Another process may have its member id by then."""
    async with filled(0) as (broker, client):
        async with VirtualClient(broker.url) as other:
            async with other.consumer("g", TOPIC, member_id="m"):
                pass
            before = broker.counted("DELETE /v1/groups/g/members/m")
            taken = await client.consumer("g", TOPIC, member_id="m").__aenter__()
            await eventually(lambda: taken.is_assigned)
        assert [each.member_id for each in (await client.groups.describe("g")).members] == ["m"]
        assert broker.counted("DELETE /v1/groups/g/members/m") == before
        await taken.close()
