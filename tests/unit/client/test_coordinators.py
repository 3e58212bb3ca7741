"""The client's side of dead letters, queues, delayed messages and schedules of a broker."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

import raftlog.client.dead_letters
from raftlog import (
    Client,
    Conflict,
    ConnectionLost,
    DeadLetter,
    DelayedAlreadyDelivered,
    DelayedNotFound,
    InvalidRequest,
    LeaseLost,
    QueueNotFound,
    ScheduleNotFound,
    TopicNotFound,
)
from raftlog.client.replies import Reply
from raftlog.client.session import Session
from raftlog.records.failures import FailedRecord, Origin
from raftlog.types import TopicPartition
from tests.helpers.async_tests import beside
from tests.helpers.dead_letters import RETRY, add, ids, letter, make_topics
from tests.helpers.http_server import HttpServer, serve, served
from tests.helpers.real_cluster import create_topic, produce
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.whole_broker import TOPIC, Trouble, send_numbers, whole_broker


def retry_count(server: HttpServer) -> int:
    return server.cluster.gateway.log(TopicPartition(RETRY, 0)).end


def shown(failed: FailedRecord, dead: DeadLetter) -> DeadLetter:
    """The dead letter as the client should show it."""
    return DeadLetter(
        id=str(failed.origin),
        origin=failed.origin,
        partition=failed.origin.partition,
        offset=dead.offset,
        key=failed.key,
        value=failed.value,
        headers=failed.headers,
        attempts=failed.attempts,
        reason=failed.reason,
        failed_ms=failed.failed_ms,
        timestamp_ms=failed.timestamp_ms,
        size_bytes=dead.size_bytes,
    )


async def test_a_dead_letter_comes_back_as_bytes() -> None:
    # requirement: A7
    failed = [
        letter(1, value=b'{ "a": 1 }', headers=(("h", b"x"), ("b", b"\xff"), ("raftlog.tag", b"t"))),
        letter(2, key=None, value=None, headers=(("n", None),)),
        letter(3, key=b"\xff", value=b"\xff"),
        letter(4, key=b"", value=b""),
    ]
    async with serve() as server, VirtualClient(server.url) as client:
        await make_topics(server)
        await add(server, *failed)
        found = await client.dead_letters.list("orders", "mail")
        assert found == [shown(one, dead) for one, dead in zip(failed, found, strict=True)]


@served()
async def test_a_list_has_pages_up_to_its_limit(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with VirtualClient(server.url) as client:
        await make_topics(server, 2)
        await add(server, *(letter(number) for number in range(150)), partition=0)
        await add(server, letter(7, partition=1, key=b"u2", reason="late"), partition=1)
        letters = client.dead_letters
        assert len(await letters.list("orders", "mail")) == 100
        assert len(await letters.list("orders", "mail", limit=None)) == 151
        assert [one.origin.offset for one in await letters.list("orders", "mail", limit=2)] == [0, 1]
        assert [one.id for one in await letters.list("orders", "mail", key="u2")] == ["orders/1/7"]
        assert [one.id for one in await letters.list("orders", "mail", reason="LATE")] == ["orders/1/7"]
        monkeypatch.setattr(raftlog.client.dead_letters, "IDS_BYTES_MAX", 50)
        wanted = [*ids([3, 9, 11]), *ids([7], 1)]
        assert [one.id for one in await letters.list("orders", "mail", ids=wanted)] == wanted
        assert await letters.list("orders", "mail", ids=[]) == []


@served(prepare=make_topics)
async def test_redrive_and_discard_take_a_selection_and_a_limit(server: HttpServer) -> None:
    async with VirtualClient(server.url) as client:
        await add(server, *(letter(number) for number in range(5)))
        letters = client.dead_letters
        assert len(await letters.redrive("orders", "mail", all=True, dry_run=True)) == 5
        (only,) = await letters.redrive("orders", "mail", ids=ids([3]))
        assert (only.origin, only.value) == (Origin("orders", 0, 3), None)
        assert [one.id for one in await letters.discard("orders", "mail", key="u1", limit=2)] == ids([0, 1])
        assert [one.id for one in await letters.redrive("orders", "mail", reason="user")] == ids([2, 4])
        assert await letters.list("orders", "mail") == []
        assert retry_count(server) == 3


@served(prepare=make_topics)
async def test_a_client_repeats_no_redrive(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with VirtualClient(server.url) as client:
        await add(server, letter(1), letter(2))
        ask, answers = Session.ask, list[Reply]()

        async def lost(self: Session, method: str, url: str, **options: object) -> Reply:
            answers.append(await ask(self, method, url, **options))  # type: ignore[arg-type]
            raise ConnectionLost("on purpose")

        with monkeypatch.context() as patched:
            patched.setattr(Session, "ask", lost)
            with pytest.raises(ConnectionLost):
                await client.dead_letters.redrive("orders", "mail", all=True, limit=1)
        assert len(answers) == 1
        (left,) = await client.dead_letters.redrive("orders", "mail", all=True)
        assert (left.id, retry_count(server)) == ("orders/0/2", 2)


@served()
async def test_wrong_calls_name_what_is_wrong(server: HttpServer) -> None:
    async with VirtualClient(server.url) as client:
        with pytest.raises(TopicNotFound, match=r"orders\.mail\.dlq"):
            await client.dead_letters.list("orders", "mail")
        await make_topics(server)
        await add(server, letter(1))
        letters = client.dead_letters
        with pytest.raises(InvalidRequest, match="all: select dead letters"):
            await letters.discard("orders", "mail")
        with pytest.raises(InvalidRequest, match="ids"):
            await letters.discard("orders", "mail", ids=[])
        with pytest.raises(InvalidRequest, match="limit"):
            await letters.list("orders", "mail", limit=0)
        with pytest.raises(InvalidRequest, match="UTF-8"):
            await letters.list("orders", "mail", key=b"\xff")
        with pytest.raises(TypeError, match="list of ids"):
            await letters.list("orders", "mail", ids="orders/0/1")
        assert len(await letters.list("orders", "mail")) == 1


async def mail_topic(server: HttpServer) -> None:
    """Create topic ``mail`` with one partition."""
    await server.topic("mail", 1)


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
@served(prepare=mail_topic)
async def test_a_worker_gets_one_job_after_the_other(server: HttpServer) -> None:
    async with VirtualClient(server.url) as client:
        await sent(server, b"\xff0", b"1", b"2")
        queue = client.queue("mail")
        seen = []
        async for job in queue.jobs(idle="100ms"):
            seen.append(job.value)
            assert job.deliveries == 1
            await job.ack()
        assert seen == [b"\xff0", b"1", b"2"]
        assert (await queue.describe()).partitions[0].start_offset == 3
        assert [item.lag for item in await client.groups.offsets("mail")] == [0]


# requirement: A7
@served(prepare=mail_topic)
async def test_a_job_has_its_record(server: HttpServer) -> None:
    async with VirtualClient(server.url) as client:
        await sent(server, b"\xff", None)
        full, empty = await client.queue("mail").receive(limit=2)
        assert (full.key, full.value) == (b"\xfe", b"\xff")
        assert (full.message.topic, full.message.partition, full.message.offset) == ("mail", 0, 0)
        assert abs(full.message.timestamp_ms - server.cluster.services.clock.wall_ms()) < 60_000
        assert sorted(full.message.headers) == [("a", b"\xfd"), ("b", b"c"), ("raftlog.tag", b"t")]
        assert full.message.tags == ("t",)
        assert empty.value is None
        read = await client.partition("mail", 0).read(0)
        for job, message in zip((full, empty), read, strict=True):
            assert replace(job.message, headers=()) == replace(message, headers=())
            assert sorted(job.message.headers) == sorted(message.headers)


# requirement: A7
@served(prepare=mail_topic)
async def test_jobs_are_given_back_extended_and_given_up(server: HttpServer) -> None:
    async with VirtualClient(server.url) as client:
        await sent(server, b"0", b"1")
        queue = client.queue("mail", group="crew")
        first, second = await queue.receive(limit=2)
        await first.nack(reason="busy")
        (again,) = await queue.receive()
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
@served(prepare=mail_topic)
async def test_mistakes_are_told(server: HttpServer) -> None:
    async with VirtualClient(server.url) as client:
        with pytest.raises(QueueNotFound):
            await client.queue("mail").describe()
        with pytest.raises(TopicNotFound):
            await client.queue("nowhere").receive()
        with pytest.raises(TopicNotFound):
            async for _ in client.queue("nowhere").jobs():
                pass
        with pytest.raises(InvalidRequest):
            await client.queue("mail").receive(lease="7d")
        with pytest.raises(InvalidRequest):
            await client.queue("mail").receive(limit=1_000)
        with pytest.raises(InvalidRequest):
            await client.queue("mail").ack("no receipt")
        with pytest.raises(ValueError, match="lease"):
            await client.queue("mail").receive(lease="soon")
        with pytest.raises(TypeError):
            client.queue(7)  # type: ignore[arg-type]
        await sent(server, b"0", b"1")
        (job,) = await client.queue("mail").receive(limit=10, ordered_by_key=True)
        assert job.value == b"0"
        with pytest.raises(Conflict):
            await client.queue("mail").receive()
        await client.queue("mail").delete()
        assert len(await client.queue("mail").receive(limit=10)) == 2


# requirement: A7
def test_the_blocking_client_is_the_same() -> None:
    with beside(serve()) as server, Client(server.url) as client:
        create_topic(server.url, "mail", 1, replication_factor=1)
        produce(server.url, "mail", ["0", "1", "2"])
        queue = client.queue("mail")
        assert (queue.topic, queue.group) == ("mail", "mail")
        seen = []
        for job in queue.jobs(idle="50ms"):
            seen.append(job.value)
            job.extend("1m")
            job.ack()
        assert seen == [b"0", b"1", b"2"]
        produce(server.url, "mail", ["3"])
        (job,) = queue.receive(wait="5s")
        assert (job.key, job.message.offset, job.deliveries) == (None, 3, 1)
        job.nack()
        (job,) = queue.receive(wait="5s")
        job.dead_letter(reason="x")
        queue.delete()


# requirement: A3
@served(partitions=3)
async def test_a_message_is_sent_listed_changed_and_cancelled(server: HttpServer) -> None:
    async with VirtualClient(server.url) as client:
        delayed = client.delayed
        now_ms = server.cluster.services.clock.wall_ms()
        one = await delayed.send(
            "orders", b"\xff", key=b"\xfe", headers={"a": b"\xfd"}, tags=["t"], delay="30m"
        )
        assert 1_800_000 <= one.deliver_at_ms - now_ms < 1_860_000
        shown = await delayed.describe(one.id)
        assert (shown.key, shown.key_encoding) == ("/g==", "base64")
        assert (bytes(shown.value), shown.encoding) == (b'"/w=="', "base64")
        assert (shown.headers_raw, shown.tags) == ([("a", "/Q==")], ["t"])
        later = datetime.fromtimestamp(now_ms / 1000, UTC) + timedelta(hours=3)
        two = await delayed.send("orders", {"id": 1}, deliver_at=later, partition=2)
        assert (two.partition, two.deliver_at_ms) == (2, int(later.timestamp() * 1000))
        assert [item.delayed_id for item in await delayed.list("orders")] == sorted([one.id, two.id])
        assert (
            await delayed.reschedule(one.id, deliver_at=two.deliver_at_ms)
        ).deliver_at == two.deliver_at_ms
        assert await delayed.cancel(one.id)
        assert await delayed.cancel(one.id)
        with pytest.raises(DelayedNotFound):
            await delayed.describe(one.id)
        assert [item.delayed_id for item in await delayed.list()] == [two.id]


# requirement: A3
@served(partitions=3)
async def test_what_comes_too_late_is_told_so(server: HttpServer) -> None:
    async with VirtualClient(server.url) as client:
        one = await client.delayed.send("orders", "x", delay=0)
        assert not await client.delayed.cancel(one.id)
        with pytest.raises(DelayedAlreadyDelivered):
            await client.delayed.reschedule(one.id, delay="1s")
        with pytest.raises(InvalidRequest):
            await client.delayed.send("orders", "x")
        with pytest.raises(InvalidRequest):
            await client.delayed.send("orders", "x", delay="1s", deliver_at=5)
        with pytest.raises(TopicNotFound):
            await client.delayed.send("nowhere", "x", delay="1s")


# requirement: A5
@served(partitions=3)
async def test_a_schedule_is_created_listed_paused_and_deleted(server: HttpServer) -> None:
    async with VirtualClient(server.url) as client:
        schedules = client.schedules
        one = await schedules.create(
            "orders", b"\xff", cron="0 3 * * *", key=b"\xfe", headers={"a": b"\xfd"}, tags=["t"]
        )
        assert (one.key, one.key_encoding, bytes(one.value)) == ("/g==", "base64", b'"/w=="')
        assert (one.headers_raw, one.tags, one.state) == ([("a", "/Q==")], ["t"], "active")
        two = await schedules.create(
            "orders", 1, cron="0 4 * * *", time_zone="Europe/Berlin", schedule_id="z"
        )
        assert {each.schedule_id for each in await schedules.list("orders")} == {one.schedule_id, "z"}
        paused = await schedules.pause("z")
        assert (paused.state, paused.next_at) == ("paused", None)
        assert (await schedules.resume("z")).next_at == two.next_at
        assert (await schedules.describe("z")).time_zone == "Europe/Berlin"
        with pytest.raises(Conflict):
            await schedules.create("orders", 2, cron="0 4 * * *", schedule_id="z")
        with pytest.raises(InvalidRequest, match="cron"):
            await schedules.create("orders", 2, cron="0 0 30 2 *")
        await schedules.delete("z")
        await schedules.delete("z")
        with pytest.raises(ScheduleNotFound):
            await schedules.describe("z")
        assert [each.schedule_id for each in await schedules.list()] == [one.schedule_id]


# requirement: A7
async def test_what_a_worker_says_may_be_lost_and_is_repeated() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        await send_numbers(client, 5)
        queue = client.queue(TOPIC)
        jobs = [job async for job in queue.jobs(idle="100ms")]
        assert [job.value for job in jobs] == [b"0", b"1", b"2", b"3", b"4"]
        for part in (":ack", ":nack", ":extend", ":dead-letter"):
            broker.trouble(part, Trouble.UNANSWERED, Trouble.LOST)
        await jobs[0].ack()
        await jobs[1].nack()
        await jobs[2].extend("1m")
        await jobs[3].dead_letter(reason="poison")
        assert not broker.troubles
        (again,) = await queue.receive(limit=10, wait="5s")
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
        (job,) = await client.queue(TOPIC).receive(wait="20s", lease="1s")
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
                assert await client.queue(TOPIC).receive(limit=10, wait="300ms") == []
            (job,) = await client.queue(TOPIC).receive(limit=10, wait="20s")
        assert job.value == b"committed"
        await job.ack()
        assert await client.queue(TOPIC).receive() == []
        lags = {row.partition: row.lag for row in await client.groups.offsets(TOPIC)}
        assert set(lags.values()) == {0}, lags
