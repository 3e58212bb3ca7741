"""``:execute``: a whole transaction in one request, validated before anything is written."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from broker.ports import Limits
from raftlog.errors import CommitUnknown, NoLeader
from raftlog.records.reader import read_records
from raftlog.types import TopicPartition
from tests.helpers.http_server import HttpServer, Json, served

EXECUTE = "/v1/transactions:execute"
CLEAN_0, AUDIT_0 = TopicPartition("clean", 0), TopicPartition("audit", 0)


async def topics(server: HttpServer) -> None:
    """Two of them."""
    await server.topic("clean", partitions=3)
    await server.topic("audit", partitions=1, max_message_bytes=2000)


def records_of(body: Json) -> list[Json]:
    """The receipts."""
    return msgspec.convert(body["records"], list[Json])


def written(server: HttpServer) -> int:
    """How many batches both topics have."""
    logs = [server.cluster.gateway.log(TopicPartition("clean", number)) for number in range(3)]
    return sum(len(log.batches) for log in [*logs, server.cluster.gateway.log(AUDIT_0)])


async def state_of(server: HttpServer, transaction: object) -> object:
    """As the coordinator knows it."""
    return (await server.get(f"/v1/transactions/{transaction}")).json["state"]


# requirement: D3
@served(prepare=topics)
async def test_records_of_several_topics_are_committed_in_one_transaction(server: HttpServer) -> None:
    records = [
        {"topic": "clean", "key": "u1", "value": {"id": 1}},
        {"topic": "audit", "value": "first"},
        {"topic": "clean", "key": "u1", "value": {"id": 2}},
        {"topic": "audit", "value": "AAEC", "encoding": "base64"},
    ]
    done = await server.post(EXECUTE, {"transactional_id": "enrich-1", "records": records})
    assert (done.status, done.json["state"]) == (200, "committed")
    receipts = records_of(done.json)
    assert [receipt["topic"] for receipt in receipts] == ["clean", "audit", "clean", "audit"]
    assert receipts[0]["partition"] == receipts[2]["partition"]
    assert [receipt["offset"] for receipt in receipts] == [0, 0, 1, 1]
    assert done.json["id"] == f"enrich-1@{done.json['producer_id']}.0"
    assert await state_of(server, done.json["id"]) == "committed"
    (batch,) = server.cluster.gateway.log(AUDIT_0).batches
    assert batch.header.is_transactional
    assert (batch.header.producer_id, batch.header.producer_epoch) == (done.json["producer_id"], 0)
    assert [record.value for record in read_records(batch)] == [b"first", b"\x00\x01\x02"]


@served(prepare=topics)
async def test_a_transactional_id_is_opened_again_by_each_execution(server: HttpServer) -> None:
    before = await server.post("/v1/transactions", {"transactional_id": "enrich-1"})
    body = {"transactional_id": "enrich-1", "records": [{"topic": "audit", "value": 1}]}
    done = await server.post(EXECUTE, body)
    assert done.json["producer_epoch"] == 1
    late = await server.post(f"/v1/transactions/{before.json['id']}:commit")
    assert late.code == "outcome_forgotten", "it is not the newest one"


@served(prepare=topics)
async def test_executions_without_an_id_leave_no_ids_behind(server: HttpServer) -> None:
    body = {"records": [{"topic": "audit", "value": 1}]}
    done = [await server.post(EXECUTE, body) for _ in range(3)]
    assert len({one.json["id"] for one in done}) == 3
    assert len({one.json["producer_id"] for one in done}) == 1
    both = await asyncio.gather(*(server.post(EXECUTE, body) for _ in range(2)))
    assert [one.status for one in both] == [200, 200]
    every = await server.get("/v1/transactions?state=all")
    names = [one["transactional_id"] for one in msgspec.convert(every.json["items"], list[Json])]
    assert len(names) == 2
    assert all(str(name).startswith("__") for name in names)


@pytest.mark.parametrize(
    ("wrong", "status", "code"),
    [
        ({"topic": "nowhere", "value": 1}, 404, "topic_not_found"),
        ({"topic": "audit", "value": 7, "encoding": "base64"}, 422, "invalid_record"),
        ({"topic": "audit", "value": "?", "encoding": "base64"}, 422, "invalid_record"),
        ({"topic": "audit", "value": 1, "partition": 1}, 422, "invalid_record"),
        ({"topic": "audit", "value": 1, "colour": "red"}, 422, "invalid_record"),
        ({"value": 1}, 422, "invalid_record"),
        ({"topic": "audit", "value": "x" * 3000}, 413, "record_too_large"),
    ],
)
@served(prepare=topics)
async def test_one_wrong_record_writes_nothing(
    server: HttpServer, wrong: Json, status: int, code: str
) -> None:
    right = {"topic": "clean", "value": 1}
    refused = await server.post(EXECUTE, {"records": [right, wrong, right]})
    assert (refused.status, refused.code) == (status, code)
    assert "/records/1" in refused.body.decode() or code == "record_too_large"
    assert written(server) == 0
    every = await server.get("/v1/transactions?state=all")
    assert every.json["items"] == [], "nothing was opened"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"records": []}, 422, "invalid_record"),
        ({}, 422, "invalid_record"),
        ({"records": [{"topic": "audit", "value": 1}], "acks": "1"}, 422, "invalid_request"),
        (
            {"records": [{"topic": "audit", "value": 1}], "transactional_id": "__one-shot-0~1.0"},
            422,
            "invalid_request",
        ),
        ({"records": [{"topic": "audit", "value": 1}], "transactional_id": "a b"}, 422, "invalid_request"),
        ({"records": [{"topic": "audit", "value": 1}] * 6}, 413, "record_too_large"),
    ],
)
@served(Limits(records_per_request_max=5), prepare=topics)
async def test_a_refusal_says_what_is_wrong(server: HttpServer, body: Json, status: int, code: str) -> None:
    refused = await server.post(EXECUTE, body)
    assert (refused.status, refused.code) == (status, code)
    assert written(server) == 0
    other = await server.call("POST", EXECUTE, b"{}", {"Content-Type": "text/plain"})
    assert (other.status, other.json["supported"]) == (415, ["application/json"])


# requirement: D3
@pytest.mark.parametrize(
    ("fault", "status", "committed"),
    [
        (NoLeader("audit/0 elects a leader"), 503, None),
        (CommitUnknown("the time ran out"), 504, False),
        (RuntimeError("a mistake"), 500, None),
    ],
)
@served(prepare=topics)
async def test_a_failure_before_the_commit_aborts_the_transaction(
    server: HttpServer, fault: Exception, status: int, committed: bool | None
) -> None:
    server.cluster.gateway.faults[AUDIT_0] = fault
    body = {
        "transactional_id": "enrich-1",
        "records": [{"topic": "clean", "value": 1, "partition": 0}, {"topic": "audit", "value": 1}],
    }
    failed = await server.post(EXECUTE, body)
    assert failed.status == status
    assert failed.json.get("committed") is committed
    assert len(server.cluster.gateway.log(CLEAN_0).batches) == 1, "it is written, and aborted"
    newest = (await server.get("/v1/transactions/enrich-1")).json
    assert (newest["state"], newest["producer_epoch"]) == ("complete", 1)
    assert await state_of(server, f"enrich-1@{newest['producer_id']}.0") == "aborted"


# requirement: D3
@served(prepare=topics)
async def test_a_transaction_goes_on_without_its_client(server: HttpServer) -> None:
    server.cluster.gateway.append_delay_s = 0.2
    body = msgspec.json.encode({"transactional_id": "enrich-1", "records": [{"topic": "audit", "value": 1}]})
    head = f"POST {EXECUTE} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    sent = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"{head}{sent}".encode() + body)
    await writer.drain()
    async with asyncio.timeout(20):
        while (await server.get("/v1/transactions/enrich-1")).status == 404:
            await asyncio.sleep(0.01)
        writer.close()
        while (await server.get("/v1/transactions/enrich-1")).json["state"] != "complete":
            await asyncio.sleep(0.01)
    number = (await server.get("/v1/transactions/enrich-1")).json["producer_id"]
    assert await state_of(server, f"enrich-1@{number}.0") == "committed"


def offsets(offset: int, **more: object) -> Json:
    """An offset of a group in ``clean/0``, which has three records."""
    return {"group": "copiers", "offsets": [{"topic": "clean", "partition": 0, "offset": offset}], **more}


async def committed_offsets(server: HttpServer) -> list[object]:
    """Of the group."""
    found = (await server.get("/v1/groups/copiers/offsets?lag=false")).json["items"]
    return [item["committed_offset"] for item in msgspec.convert(found, list[Json])]


# requirement: D3
@served(prepare=topics)
async def test_offsets_of_a_group_are_committed_with_the_records(server: HttpServer) -> None:
    read = [{"topic": "clean", "value": number, "partition": 0} for number in range(3)]
    await server.post(EXECUTE, {"records": read})
    body = {"records": [{"topic": "audit", "value": 1}], "group_offsets": offsets(2)}
    done = await server.post(EXECUTE, body)
    assert done.status == 200, done.json
    assert await committed_offsets(server) == [2]
    alone = await server.post(EXECUTE, {"group_offsets": offsets(3)})
    assert (alone.status, alone.json["records"]) == (200, [])
    assert await committed_offsets(server) == [3]


# requirement: D3
@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (offsets(9), "offset_out_of_range"),
        (offsets(1, generation=1), "invalid_request"),
        (offsets(1, generation=1, member_id="nobody"), "member_not_found"),
        ({"group": "copiers", "offsets": [{"topic": "no", "partition": 0, "offset": 0}]}, "topic_not_found"),
        ({"group": "copiers", "offsets": []}, "invalid_request"),
        ({"group": "a b", "offsets": [{"topic": "clean", "partition": 0, "offset": 0}]}, "invalid_request"),
    ],
)
@served(prepare=topics)
async def test_refused_offsets_keep_the_records_unwritten(server: HttpServer, wrong: Json, code: str) -> None:
    read = [{"topic": "clean", "value": number, "partition": 0} for number in range(3)]
    await server.post(EXECUTE, {"records": read})
    await server.post(EXECUTE, {"group_offsets": offsets(1)})
    body = {"records": [{"topic": "audit", "value": 1}], "group_offsets": wrong}
    assert (await server.post(EXECUTE, body)).code == code
    assert written(server) == 1
    assert await committed_offsets(server) == [1]
    assert (await server.get("/v1/transactions")).json["items"] == [], "nothing is left open"


# requirement: D3
@served(prepare=topics)
async def test_records_that_fail_leave_the_offsets_of_the_group(server: HttpServer) -> None:
    await server.post(EXECUTE, {"records": [{"topic": "clean", "value": 1, "partition": 0}]})
    server.cluster.gateway.faults[AUDIT_0] = NoLeader("audit/0 elects a leader")
    body = {"records": [{"topic": "audit", "value": 1}], "group_offsets": offsets(1)}
    assert (await server.post(EXECUTE, body)).code == "no_leader"
    assert await committed_offsets(server) == []


@pytest.mark.parametrize("verb", ["commit", "prepare"])
@served(prepare=topics)
async def test_ids_of_brokers_are_not_for_clients(server: HttpServer, verb: str) -> None:
    opened = await server.post("/v1/transactions", {"transactional_id": "__one-shot-0~1.0"})
    assert (opened.status, opened.json["field"]) == (422, "transactional_id")
    done = (await server.post(EXECUTE, {"records": [{"topic": "audit", "value": 1}]})).json["id"]
    refused = await server.post(f"/v1/transactions/{done}:{verb}")
    assert (refused.status, refused.json["field"]) == (422, "transaction")
    sent = {"Raftlog-Transaction": str(done)}
    body = {"records": [{"value": 1}]}
    assert (await server.call("POST", "/v1/topics/audit/records", body, sent)).status == 422
    assert (await server.post(f"/v1/transactions/{done}:abort")).json["outcome"] == "committed"
