"""Queues over HTTP: jobs and their receipts, what is refused, and what happens when a client disconnects."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from queues.receipts import receipt_of
from queues.requests import Token
from raftlog.records.failures import FailedRecord
from raftlog.records.reader import read_records
from raftlog.types import TopicPartition
from raftlog.wire import media_types
from raftlog.wire import records as record_operations
from tests.helpers.http_server import HttpServer, Reply, served
from tests.helpers.undecodable_batch import FIRST_RECORD, SECOND_RECORD, undecodable_batch

# requirement: A7

QUEUE = "/v1/queues/mail/crew"
DLQ = "/v1/dead-letters/mail/crew"
WITHIN_S = 60.0


async def given(server: HttpServer, *values: object, partitions: int = 1, **record: object) -> None:
    """A topic with these records."""
    await server.topic("mail", partitions)
    records = [{"value": value, **record} for value in values]
    if records:
        assert (await server.post("/v1/topics/mail/records", {"records": records})).status == 200


async def receive(server: HttpServer, query: str = "", **wanted: object) -> list[dict[str, Any]]:
    """The jobs of an answer."""
    reply = await server.post(f"{QUEUE}:receive{query}", wanted)
    assert reply.status == 200, reply
    found = reply.json["items"]
    assert isinstance(found, list)
    return found


async def settle(server: HttpServer, how: str, *receipts: object, **more: object) -> Reply:
    """What a worker says."""
    return await server.post(f"{QUEUE}:{how}", {"receipts": [*receipts], **more})


async def until_receivers(server: HttpServer, count: int) -> None:
    """Return once so many receive requests wait; a queue exists from the first one on."""
    async with asyncio.timeout(WITHIN_S):
        while (reply := await server.get(QUEUE)).json.get("receivers", 0) != count:
            assert reply.status in (200, 404), reply
            await asyncio.sleep(0.01)


async def letters(server: HttpServer, query: str = "") -> list[dict[str, Any]]:
    """The dead letters, once all jobs that were given up are among them."""
    async with asyncio.timeout(WITHIN_S):
        while any(part["dead"] for part in await parts(server)):
            await asyncio.sleep(0.01)
    found = (await server.get(f"{DLQ}{query}")).json["items"]
    assert isinstance(found, list)
    return found


async def parts(server: HttpServer) -> list[dict[str, Any]]:
    """The partitions of the queue."""
    reply = await server.get(QUEUE)
    assert reply.status == 200, reply
    found = reply.json["partitions"]
    assert isinstance(found, list)
    return found


@served()
async def test_a_job_is_received_and_acknowledged(server: HttpServer) -> None:
    await given(server, {"id": 1}, key="u1", headers={"a": "b"}, tags=["new"])
    earliest_ms = server.cluster.services.clock.wall_ms() + 30_000
    (job,) = await receive(server, limit=10)
    assert earliest_ms <= job["lease_until"] <= server.cluster.services.clock.wall_ms() + 30_000
    assert (job["topic"], job["partition"], job["offset"]) == ("mail", 0, 0)
    assert (job["key"], job["value"], job["headers"], job["tags"]) == ("u1", {"id": 1}, {"a": "b"}, ["new"])
    assert job["deliveries"] == 1
    assert await receive(server) == []
    for _ in range(2):
        done = await settle(server, "ack", job["receipt"])
        assert (done.status, done.json) == (200, {"settled": 1, "failed": []})
    assert await parts(server) == [
        {"partition": 0, "start_offset": 1, "next_offset": 1, "leased": 0, "waiting": 0, "dead": 0}
    ]
    offsets = (await server.get("/v1/groups/crew/offsets")).json["items"]
    assert isinstance(offsets, list)
    assert [(row["committed_offset"], row["lag"]) for row in offsets] == [(1, 0)]


@served()
async def test_values_come_as_they_are(server: HttpServer) -> None:
    await server.topic("mail", 1)
    raw = {"Content-Type": "application/octet-stream"}
    for value in (b"\xff\x00", b"text"):
        await server.call("POST", "/v1/topics/mail/records", value, raw)
    jobs = await receive(server, "?format=base64", limit=10)
    assert [base64.b64decode(job["value"]) for job in jobs] == [b"\xff\x00", b"text"]
    refused = await server.post(f"{QUEUE}:receive?format=utf8", {})
    assert (refused.status, refused.json["field"]) == (422, "format")


@served(prepare=given)
async def test_a_receive_that_waits_is_told_that_its_topic_was_deleted(server: HttpServer) -> None:
    waiting = asyncio.create_task(server.post(f"{QUEUE}:receive", {"wait": "50s"}))
    await until_receivers(server, 1)
    assert (await server.call("DELETE", "/v1/topics/mail")).status == 200
    async with asyncio.timeout(40):  # less than the request waits
        reply = await waiting
    assert (reply.status, reply.code) == (404, "topic_not_found")


@served(prepare=given)
async def test_the_jobs_of_a_client_that_disconnects_go_to_another(server: HttpServer) -> None:
    gone = asyncio.create_task(receive(server, wait="20s"))
    await until_receivers(server, 1)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await until_receivers(server, 0)
    waiting = asyncio.create_task(receive(server, wait="20s"))
    await until_receivers(server, 1)
    await server.post("/v1/topics/mail/records", {"records": [{"value": "x"}]})
    (job,) = await waiting
    assert job["deliveries"] == 1


@served()
async def test_a_job_that_nobody_was_handed_counts_as_not_delivered(server: HttpServer) -> None:
    await given(server, "a")
    for _ in range(3):
        (job,) = await receive(server, max_deliveries=1)
        assert job["deliveries"] == 1
        assert (await settle(server, "nack", job["receipt"], undelivered=True)).status == 200
        late = await settle(server, "nack", job["receipt"], undelivered=True)
        assert (late.status, late.code) == (409, "lease_lost")


@served()
async def test_a_dead_letter_has_the_whole_record(server: HttpServer) -> None:
    await given(server, "a", key="u1", headers={"a": "b"}, tags=["new"])
    for _ in range(2):
        (job,) = await receive(server, max_deliveries=2)
        assert (await settle(server, "nack", job["receipt"], reason="no such address")).status == 200
    await letters(server)
    (batch,) = server.cluster.gateway.log(TopicPartition("mail.crew.dlq", 0)).batches
    (record,) = read_records(batch)
    assert record.value is not None
    failed = FailedRecord.from_dead_letter(record.value, record.headers, record.timestamp_ms)
    assert (failed.key, failed.value, failed.reason) == (b"u1", b"a", "no such address")
    assert failed.attempts == 2
    assert dict(failed.headers) == {"a": b"b", "raftlog.tag": b"new"}
    topic = server.cluster.controller.image.topics["mail.crew.dlq"]
    assert topic.config["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("action", "wanted", "field"),
    [
        ("receive", {"lease": "7d"}, "lease"),
        ("receive", {"lease": "0s"}, "lease"),
        ("receive", {"lease": -1}, "lease"),
        ("receive", {"wait": "1h"}, "wait"),
        ("receive", {"limit": 0}, None),
        ("receive", {"limit": 101}, None),
        ("receive", {"max_deliveries": 0}, None),
        ("receive", {"order_by_key": True}, None),
        ("receive", {"tags": ["a"], "tags_none": ["a"]}, "tags_none"),
        ("ack", {"receipts": []}, None),
        ("ack", {"receipts": ["x"]}, "receipts"),
        ("ack", {"receipts": ["é" * 32]}, "receipts"),
        ("ack", {"receipts": ["A" * 32]}, "receipts"),
        ("ack", {"receipts": ["A"] * 501}, None),
        ("nack", {"receipts": ["A" * 32], "delay": "13h"}, "delay"),
        ("nack", {"receipts": ["A" * 32], "delay": "-1s"}, "delay"),
        ("nack", {"receipts": ["A" * 32], "reason": "x" * 1_001}, None),
        ("nack", {"receipts": ["A" * 32], "undelivered": True, "delay": "1s"}, "undelivered"),
        ("nack", {"receipts": ["A" * 32], "undelivered": True, "reason": "busy"}, "undelivered"),
        ("extend", {"receipts": ["A" * 32], "lease": "7d"}, "lease"),
    ],
)
@served()
async def test_what_cannot_hold_is_refused(
    server: HttpServer, action: str, wanted: object, field: str | None
) -> None:
    await given(server, "a")
    reply = await server.post(f"{QUEUE}:{action}", wanted)
    assert reply.status == 422, reply
    if field is not None:
        assert reply.json["field"] == field, reply


@served()
async def test_a_foreign_receipt_is_refused_and_changes_nothing(server: HttpServer) -> None:
    await given(server, "a")
    (job,) = await receive(server)
    other = await server.post("/v1/queues/mail/others:ack", {"receipts": [job["receipt"]]})
    assert (other.status, other.json["field"]) == (422, "receipts")
    guessed = receipt_of("mail", "crew", Token(0, 0, b"a guess!"))
    refused = await settle(server, "ack", guessed)
    assert (refused.status, refused.code) == (409, "lease_lost")
    for how in ("nack", "extend", "dead-letter"):
        assert (await settle(server, how, guessed)).code == "lease_lost"
    assert (await parts(server))[0]["leased"] == 1
    mixed = await settle(server, "nack", guessed, job["receipt"])
    assert (mixed.status, mixed.json["settled"]) == (207, 1)
    (failed,) = mixed.json["failed"]  # type: ignore[misc]
    assert (failed["receipt"], failed["code"]) == (guessed, "lease_lost")
    mangled = job["receipt"][:-1] + ("A" if job["receipt"][-1] != "A" else "B")
    assert (await settle(server, "ack", mangled)).status == 422


@served()
async def test_a_queue_needs_a_topic_of_users(server: HttpServer) -> None:
    await given(server, "a")
    assert (await server.post("/v1/queues/nowhere/crew:receive", {})).code == "topic_not_found"
    await receive(server)
    internal = await server.post("/v1/queues/__offsets/crew:receive", {})
    assert internal.status in (404, 422), internal
    long = await server.post(f"/v1/queues/mail/{'g' * 245}:receive", {})
    assert (long.status, long.json["field"]) == (422, "group")
    assert (await server.post("/v1/queues/mail/a b:receive", {})).status in (400, 422)
    assert (await server.get("/v1/queues/mail/others")).code == "queue_not_found"
    receipt = receipt_of("mail", "others", Token(0, 0, b"12345678"))
    lost = await server.post("/v1/queues/mail/others:ack", {"receipts": [receipt]})
    assert lost.code == "lease_lost"


@served(prepare=given)
async def test_without_any_group_there_is_no_queue(server: HttpServer) -> None:
    assert (await server.get(QUEUE)).code == "queue_not_found"
    assert (await server.call("DELETE", QUEUE)).code == "queue_not_found"
    receipt = receipt_of("mail", "crew", Token(0, 0, b"12345678"))
    assert (await settle(server, "ack", receipt)).code == "queue_not_found"


@served()
async def test_a_job_whose_record_was_deleted_is_done(server: HttpServer) -> None:
    await given(server, "a", "b", "c")
    first, *_ = await receive(server, limit=3)
    for job in (first,):
        await settle(server, "nack", job["receipt"])
    server.cluster.gateway.cut(TopicPartition("mail", 0), 1)
    assert await receive(server, limit=3) == []
    assert (await parts(server))[0]["start_offset"] == 1


@served()
async def test_what_a_response_has_no_room_for_is_given_back(server: HttpServer) -> None:
    await server.topic("mail", 1, max_message_bytes=4 << 20)
    raw = {"Content-Type": "application/octet-stream"}
    for _ in range(4):
        stored = await server.call("POST", "/v1/topics/mail/records", b"x" * (3 << 20), raw)
        assert stored.status == 200, stored
    found = [job for _ in range(4) for job in await receive(server, "?format=base64")]
    assert [(job["offset"], job["deliveries"]) for job in found] == [(n, 1) for n in range(4)]
    await settle(server, "nack", *(job["receipt"] for job in found))
    for expected in ([(0, 2), (1, 2)], [(2, 2), (3, 2)]):
        jobs = await receive(server, "?format=base64", limit=10)
        assert [(job["offset"], job["deliveries"]) for job in jobs] == expected


@pytest.mark.parametrize("at", [FIRST_RECORD, SECOND_RECORD])
@served()
async def test_an_undecodable_batch_is_a_dead_letter_as_it_is(server: HttpServer, at: int) -> None:
    await server.topic("mail", 1, message_timestamp_type="CreateTime", validate_records="false")
    await server.post("/v1/topics/mail/records", {"records": [{"value": "before"}]})
    data = undecodable_batch(at)
    raw = {"Content-Type": media_types.BATCH}
    stored = await server.call(
        "POST", record_operations.PRODUCE_TO_PARTITION.at(topic="mail", partition=0), data, raw
    )
    assert stored.status == 200, stored
    await server.post("/v1/topics/mail/records", {"records": [{"value": "behind"}]})
    readable = ["value"] if at == SECOND_RECORD else []
    jobs = await receive(server, limit=10)
    assert [job["value"] for job in jobs] == ["before", *readable, "behind"]
    assert (await settle(server, "ack", *(job["receipt"] for job in jobs))).status == 200
    (letter,) = await letters(server, "?format=base64")
    assert base64.b64decode(letter["value"])[61:] == data[61:]  # the leader stamps the header
    assert letter["headers"] == {"raftlog.batch": "1-3"}
    assert "cannot be read" in letter["reason"]
    assert (await parts(server))[0]["start_offset"] == 5
    refused = await server.post(f"{DLQ}:redrive", {"all": True})
    assert (refused.status, refused.code) == (409, "conflict")
    assert (await server.post(f"{DLQ}:discard", {"all": True})).json["count"] == 1


@served()
async def test_a_leader_that_lacks_a_job_neither_closes_nor_buries_it(server: HttpServer) -> None:
    """It is deposed and does not know it: others have delivered the job, and have its record."""
    await given(server, "a", "b")
    first, second = await receive(server, limit=2)
    log = server.cluster.gateway.log(TopicPartition("mail", 0))
    whole, log.batches, log.end = log.batches, [], 0
    assert (await settle(server, "nack", first["receipt"])).status == 200
    assert (await settle(server, "dead-letter", second["receipt"], reason="poison")).status == 200
    refused = await server.post(f"{QUEUE}:receive", {"limit": 2})
    assert (refused.status, refused.code) == (503, "no_leader")
    assert (await parts(server))[0]["dead"] == 1
    log.batches, log.end = whole, 2
    (again,) = await receive(server, limit=2)
    assert (again["value"], again["deliveries"]) == ("a", 2)
    assert [letter["id"] for letter in await letters(server)] == ["mail/0/1"]


@served()
async def test_dead_letters_of_a_queue_are_redriven_without_a_retry_topic(server: HttpServer) -> None:
    await given(server, "a", "b", "c", key="u1")
    jobs = await receive(server, limit=3)
    receipts = [job["receipt"] for job in jobs]
    assert (await settle(server, "dead-letter", *receipts, reason="poison")).status == 200
    assert len(await letters(server)) == 3
    shown = await server.post(f"{DLQ}:redrive", {"all": True, "dry_run": True})
    assert (shown.json["count"], shown.json["dry_run"]) == (3, True)
    assert await receive(server, limit=3) == []
    server.cluster.gateway.cut(TopicPartition("mail", 0), 1)  # retention has deleted the first
    redriven = await server.post(f"{DLQ}:redrive", {"all": True})
    assert (redriven.status, redriven.json["count"], redriven.json["left"]) == (200, 2, 1)
    again = await receive(server, limit=3)
    assert [(job["value"], job["deliveries"]) for job in again] == [("b", 1), ("c", 1)]
    await settle(server, "dead-letter", again[0]["receipt"], reason="worse")
    await settle(server, "ack", again[1]["receipt"])
    assert [(letter["id"], letter["reason"]) for letter in await letters(server)] == [
        ("mail/0/0", "poison"),
        ("mail/0/1#1", "worse"),
    ]
    refused = await server.post(f"{DLQ}:redrive", {"ids": ["mail/0/0"]})
    assert (refused.status, refused.code) == (409, "conflict")
    assert "discard" in str(refused.json["detail"])
    assert "mail.crew.retry" not in server.cluster.controller.image.topics
