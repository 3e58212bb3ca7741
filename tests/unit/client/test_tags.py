"""Messages of some tags: reads, tails and consumers of a whole broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

import aiohttp
import pytest

from broker.coordinators.jobs import BrokerJobs
from queues.effects import Found, Look, Looked
from raftlog.aio import Client, Consumer
from raftlog.errors import Conflict, InvalidRequest
from raftlog.records.batch import Codec
from raftlog.records.tags import TagSelection
from raftlog.types import TopicPartition
from raftlog.wire import groups as wire
from raftlog.wire import media_types
from raftlog.wire.dead_letters import SettleDeadLetters
from tests.helpers.tagged import tagged, tagged_batch
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import clock_of_loop
from tests.helpers.whole_broker import TOPIC, whole_broker

# requirement: A1, A2, A10

PATH = f"/v1/topics/{TOPIC}/partitions/0/records"


async def fill(client: Client, count: int, *, compression: str = "none", **options: str) -> None:
    """Numbered records of partition 0: each tenth is ``paid``, others are ``new``, some also ``vip``."""
    async with client.producer(TOPIC, compression=compression, **options) as producer:
        for number in range(count):
            tags = ["paid" if number % 10 == 3 else "new", *(["vip"] if number % 3 == 0 else [])]
            await producer.send(str(number), partition=0, tags=tags)


async def store_foreign(url: str, *tags: str) -> None:
    """One record for each tag, by a producer that lists no tags."""
    batch = tagged_batch(*(tagged(b"foreign", tag) for tag in tags), codec=Codec.GZIP, lists_tags=False)
    headers = {"Content-Type": media_types.BATCH}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url + PATH, data=batch, headers=headers) as sent,
    ):
        assert sent.status == 200


async def committed(client: Client, group: str = "g") -> int | None:
    """The committed offset of partition 0."""
    offsets = await client.groups.offsets(group)
    return next((item.committed_offset for item in offsets if item.partition == 0), None)


async def becomes(client: Client, offset: int) -> None:
    async with asyncio.timeout(10):
        while await committed(client) != offset:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("compression", ["none", "zstd", "gzip", "snappy", "lz4"])
async def test_a_read_gives_exactly_the_messages_with_a_tag(compression: str) -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await fill(client, 100, compression=compression)
        partition = client.partition(TOPIC, 0)
        paid = await partition.read(tags=["paid"])
        assert [message.offset for message in paid] == list(range(3, 100, 10))
        assert {"paid"} <= set(paid.messages[0].tags)
        assert (paid.next_offset, paid.is_up_to_date) == (100, True)
        both = await partition.read(50, tags=["vip", "paid"])
        assert [m.offset for m in both] == [n for n in range(50, 100) if n % 10 == 3 or n % 3 == 0]
        some = await partition.read(tags=["paid"], limit=4)
        assert [message.offset for message in some] == [3, 13, 23, 33]
        rest = await partition.read(some.next_offset, tags=["paid"])
        assert [message.offset for message in rest] == list(range(43, 100, 10))
        none = await partition.read(tags=["refunded"])
        assert (len(none), none.next_offset) == (0, 100)
        assert len(await partition.read()) == 100


async def test_records_of_other_producers_are_filtered_by_the_client() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await store_foreign(broker.url, "new", "paid", "new")
        await fill(client, 5)
        found = await client.partition(TOPIC, 0).read(tags=["paid"])
        assert [message.offset for message in found] == [1, 6]
        first = await client.partition(TOPIC, 0).read(tags=["new"], limit=1)
        assert ([message.offset for message in first], first.next_offset) == ([0], 1)


def is_wanted(
    tags: Sequence[str], any_of: Sequence[str], all_of: Sequence[str], none_of: Sequence[str]
) -> bool:
    """The rule, for the tags of one record."""
    has_any = not any_of or bool({*any_of} & {*tags})
    return has_any and {*all_of} <= {*tags} and not {*none_of} & {*tags}


@pytest.mark.parametrize("seed", range(3))
async def test_combined_tags_give_exactly_the_messages_that_match(seed: int) -> None:
    """Readers get each matching record and no other, whoever lists the tags, in runs of any length."""
    rng, names = random.Random(seed), ["paid", "new", "vip", "eu", "us"]
    stored: list[list[str]] = []
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        for compression in ("zstd", "none", "gzip"):
            some = [rng.sample(names, rng.choice((0, 1, 1, 2, 3))) for _ in range(rng.randrange(80, 200))]
            async with client.producer(TOPIC, compression=compression) as producer:
                for tags in some:
                    await producer.send("x", partition=0, tags=tags)
            await store_foreign(broker.url, *names)
            stored += [*some, *([name] for name in names)]
        partition = client.partition(TOPIC, 0)
        for draw in range(12):
            lists = [rng.sample(names, rng.choice((0, 0, 1, 2))) for _ in range(3)]
            lists[2] = [tag for tag in lists[2] if tag not in (*lists[0], *lists[1])]
            given = dict(
                zip(("tags", "tags_all", "tags_none"), (each or None for each in lists), strict=True)
            )
            at, found = rng.randrange(len(stored)), list[int]()
            expected = [n for n, tags in enumerate(stored) if n >= at and is_wanted(tags, *lists)]
            while at < len(stored):
                chunk = await partition.read(at, limit=rng.choice((None, 7)), max_bytes=5_000, **given)
                assert chunk.next_offset > at
                at = chunk.next_offset
                found += [message.offset for message in chunk]
            assert found == expected, given
            if draw < 2:
                expected = [n for n, tags in enumerate(stored) if is_wanted(tags, *lists)]
                assert await worked_off(client, f"crew-{draw}", **given) == expected, given
                assert await committed(client, f"crew-{draw}") == len(stored)


async def worked_off(client: Client, group: str, **options: Sequence[str] | None) -> list[int]:
    """The offsets of all jobs of a queue, by a worker that acknowledges each."""
    queue, found = client.queue(TOPIC, group=group), list[int]()
    while jobs := await queue.receive(limit=40, **options):
        await queue.ack(*(job.receipt for job in jobs))
        found += sorted(job.message.offset for job in jobs)
    return found


async def test_a_tail_of_tags_follows() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await fill(client, 20)
        async with aclosing(client.partition(TOPIC, 0).tail("earliest", tags=["paid"])) as tail:
            assert [(await anext(tail)).offset for _ in range(2)] == [3, 13]
            waiting = asyncio.create_task(anext(tail))
            await client.send(TOPIC, "x", partition=0, tags=["new"])
            await client.send(TOPIC, "y", partition=0, tags=["paid"])
            assert (await waiting).offset == 21


@pytest.mark.parametrize(
    "tags", [[], "paid", ["a,b"], ["a\n"], [""], ["x" * 256], [f"t{n}" for n in range(100)], [5]]
)
async def test_bad_tags_are_refused_before_anything_is_sent(tags: list[str]) -> None:
    async with VirtualClient("http://localhost:1") as client:
        with pytest.raises(ValueError, match="tags"):
            await client.partition(TOPIC, 0).read(0, tags=tags)
        with pytest.raises(ValueError, match="tags"):
            client.consumer("g", TOPIC, tags=tags)
        with pytest.raises(ValueError, match="tags"):
            await client.queue(TOPIC).receive(tags=tags)
        with pytest.raises(ValueError, match="tags_none"):
            await client.partition(TOPIC, 0).read(0, tags_none=tags)


@pytest.mark.parametrize("other", ["tags", "tags_all"])
async def test_contradicting_and_too_many_tags_are_refused(other: str) -> None:
    """Before anything is sent by the client, and by the broker that lets a member join."""
    twice = {other: ["new", "paid"], "tags_none": ["paid", "test"]}
    many = {other: [f"t{n}" for n in range(20)], "tags_none": [f"n{n}" for n in range(13)]}
    for lists, said in (
        (twice, f"tags_none: 'paid' is in {other}, too"),
        (many, "have 33 tags; the maximum is 32"),
    ):
        async with VirtualClient("http://localhost:1") as client:
            with pytest.raises(ValueError, match=said):
                await client.partition(TOPIC, 0).read(**lists)
            for make in (client.consumer, client.worker):
                with pytest.raises(ValueError, match=said):
                    make(topics=TOPIC, group="g", **lists)  # type: ignore[operator]
        async with whole_broker() as broker, VirtualClient(broker.url) as client:
            for path, body in (
                ("/v1/groups/g/members", wire.JoinGroup(topics=[TOPIC], **lists)),
                ("/v1/groups/g/members/m:poll", wire.PollGroup(topics=[TOPIC], wait="0s", **lists)),
            ):
                with pytest.raises(InvalidRequest, match=said):
                    await client._session.ask_any("POST", path, body=body)


def consumer(client: Client, *tags: str, **options: str) -> Consumer:
    return client.consumer("g", TOPIC, tags=tags, commit_interval="50ms", **options)  # type: ignore[arg-type]


async def test_offsets_are_committed_over_what_was_skipped() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await fill(client, 3)
        async with consumer(client, "paid") as paid:
            assert await paid.poll("200ms") is None
            await becomes(client, 3)  # nothing was handed out
            await fill(client, 8)
            message = await paid.poll("10s")
            assert message is not None
            assert message.offset == 3 + 3
            await asyncio.sleep(0.3)
            assert (await committed(client) or 0) <= message.offset  # it is being handled
            assert await paid.poll("100ms") is None  # which acknowledges it
            await becomes(client, 11)
            assert paid.lag[TopicPartition(TOPIC, 0)] == 0
        async with consumer(client, "paid") as again:
            await client.send(TOPIC, "z", partition=0, tags=["paid"])
            message = await again.poll("10s")
            assert message is not None
            assert message.offset == 11


async def test_a_consumer_that_closes_commits_what_it_has_skipped() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await fill(client, 30)
        options = {"tags": ["paid"], "commit_interval": "1h"}
        async with client.consumer("g", TOPIC, **options) as first:  # type: ignore[arg-type]  # of tests
            for _ in range(3):
                assert await first.poll("10s") is not None
            assert await first.poll("100ms") is None
        assert await committed(client) == 30


async def test_nothing_is_committed_over_a_record_that_is_being_handled() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await fill(client, 30)
        async with consumer(client, "paid") as first:
            taken = [await first.poll("10s") for _ in range(2)]
            assert [message.offset for message in taken if message is not None] == [3, 13]
            await becomes(client, 4)
            await asyncio.sleep(0.2)
            assert await committed(client) == 4
            await first.poll("10s")  # the third, which acknowledges the second
            await becomes(client, 14)


async def test_a_member_with_other_tags_is_refused() -> None:
    async with (
        whole_broker() as broker,
        VirtualClient(broker.url) as client,
        consumer(client, "paid", "vip") as first,
    ):
        async with asyncio.timeout(20):
            while not first.is_assigned:
                await first.poll("50ms")
        for tags, more in ((["paid"], {}), (None, {}), (["paid", "vip"], {"tags_none": ["new"]})):
            other = client.consumer("g", TOPIC, tags=tags, **more)
            with pytest.raises(Conflict, match=r"tags(_none)?: .* read records with any of paid, vip"):
                await other.poll("10s")
            await other.close()
        async with consumer(client, "vip", "paid") as same:
            await same.poll("100ms")


async def test_a_poll_over_http_reads_and_commits_by_tags() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await fill(client, 25)

        async def poll(body: wire.PollGroup) -> wire.PolledGroup:
            path = "/v1/groups/g/members/m-1:poll"
            return (await client._session.ask_any("POST", path, body=body)).read(wire.PolledGroup)

        first = await poll(wire.PollGroup(topics=[TOPIC], tags=["paid"], wait="0s"))
        assert [record.offset for record in first.records] == [3, 13, 23]
        assert [place.offset for place in first.positions if place.partition == 0] == [25]
        second = await poll(wire.PollGroup(generation=first.generation, ack=first.positions, wait="0s"))
        assert (second.records, second.generation) == ([], first.generation)
        assert await committed(client) == 25
        body = wire.PollGroup(generation=first.generation, wait="20s")
        waiting = asyncio.create_task(poll(body))
        await client.send(TOPIC, "n", partition=0, tags=["new"])
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await client.send(TOPIC, "p", partition=0, tags=["paid"])
        third = await waiting
        assert [record.offset for record in third.records] == [26]
        await poll(wire.PollGroup(wait="0s"))  # it joins again, with what is known of it
        members = (await client._session.ask_any("GET", "/v1/groups/g")).read(wire.GroupDescription).members
        assert members[0].tags == ["paid"]


async def test_members_read_and_commit_by_combined_tags() -> None:
    """A consumer of a group, and a member that polls over HTTP, of records 0 to 29."""
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await fill(client, 30)
        expected = [n for n in range(30) if n % 10 != 3 and n % 3 == 0]
        lists = {"tags_all": ["new", "vip"], "tags_none": ["paid"]}
        async with client.consumer("g", TOPIC, commit_interval="50ms", **lists) as consumer:
            found = [await consumer.poll("10s") for _ in expected]
            assert [message.offset for message in found if message is not None] == expected
            assert await consumer.poll("100ms") is None
            await becomes(client, 30)
        path = "/v1/groups/polling/members/m-1:poll"
        body = wire.PollGroup(topics=[TOPIC], wait="0s", **lists)
        for _ in range(2):  # the second one says nothing of tags
            polled = (await client._session.ask_any("POST", path, body=body)).read(wire.PolledGroup)
            assert [record.offset for record in polled.records] == expected
            body = wire.PollGroup(generation=polled.generation, wait="0s")
        shown = (
            (await client._session.ask_any("GET", "/v1/groups/polling"))
            .read(wire.GroupDescription)
            .members[0]
        )
        assert (shown.tags, shown.tags_all, shown.tags_none) == ([], ["new", "vip"], ["paid"])


async def test_a_queue_of_some_tags() -> None:
    """Retries, dead letters and redrives are of records with its tags, and all workers name these."""
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await fill(client, 30)
        queue, paid = client.queue(TOPIC, group="crew"), {"tags": ["paid"], "tags_none": ["vip"]}
        first, second = await queue.receive(limit=10, **paid)
        assert [first.message.offset, second.message.offset] == [13, 23]
        shown = await queue.describe()
        assert (shown.tags, shown.tags_all, shown.tags_none) == (["paid"], [], ["vip"])
        with pytest.raises(
            Conflict, match=r"tags_none: .* none of vip, .* asks for records with any of paid;"
        ):
            await queue.receive(tags=["paid"])
        await first.nack()
        assert [(job.message.offset, job.deliveries) for job in await queue.receive(**paid)] == [(13, 2)]
        await second.dead_letter(reason="poison")
        letters = f"/v1/dead-letters/{TOPIC}/crew"
        async with asyncio.timeout(10):
            while (await queue.describe()).partitions[0].dead:
                await asyncio.sleep(0.02)
        await queue.delete()
        await queue.receive(tags=["new"])  # another queue of this group, which skips 13
        with pytest.raises(Conflict, match="tags that the queue does not select"):
            await client._session.ask_any("POST", f"{letters}:redrive", body=SettleDeadLetters(all=True))
        await queue.delete()
        assert [job.message.offset for job in await queue.receive(limit=10, **paid)] == [23]


async def test_a_look_for_jobs_says_whether_it_has_seen_the_end() -> None:
    """Else a queue that waits looks again at once, and writes a row for each few records that it skips."""
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await fill(client, 20)
        parts = broker.broker
        topic_id = parts.controller.image.topics[TOPIC].topic_id
        jobs = BrokerJobs(parts.controller, parts.gateway, clock_of_loop())
        look = Look("g", TOPIC, topic_id, 0, 0, 0, with_keys=False, selection=TagSelection(any=("paid",)))
        assert await jobs.look(look) == Looked(0, 20, (Found(3), Found(13)), is_at_end=True)
        others = replace(look, selection=TagSelection(any=("refunded",)))
        assert await jobs.look(others) == Looked(0, 20, (), is_at_end=True)
