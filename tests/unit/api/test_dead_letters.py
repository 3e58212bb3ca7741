"""Dead letters over HTTP: shown, tried again, discarded; and what a crash or a repetition leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.resources import dead_letter_pages
from partitions.replica.topic_rules import Body
from partitions.values import Acks, AppendReceipt
from raftlog.errors import (
    CommitUnknown,
    NoLeader,
    NotEnoughReplicas,
    Overloaded,
    RaftlogError,
    RecordTooLarge,
    StorageFull,
)
from raftlog.records.builder import Record
from raftlog.records.failures import FailedRecord, Origin, tombstone
from raftlog.records.reader import StoredRecord, read_records
from raftlog.types import TopicPartition
from tests.helpers.dead_letters import (
    DEAD,
    PATH,
    RETRY,
    add,
    ids,
    letter,
    make_topics,
    offsets_of,
    open_offsets,
    rows,
)
from tests.helpers.http_server import HttpServer, Json, serve, served
from tests.helpers.undecodable_batch import FIRST_RECORD, undecodable_batch
from tests.helpers.virtual_client import VirtualClient

REDRIVE, DISCARD = f"{PATH}:redrive", f"{PATH}:discard"


def records(server: HttpServer, topic: str, partition: int = 0) -> list[StoredRecord]:
    log = server.cluster.gateway.log(TopicPartition(topic, partition))
    return [record for batch in log.batches for record in read_records(batch)]


def retries(server: HttpServer, partition: int = 0) -> list[FailedRecord]:
    found = records(server, RETRY, partition)
    return [FailedRecord.from_retry(each.key, each.value, each.headers, each.timestamp_ms) for each in found]


@served()
async def test_a_dead_letter_is_shown_with_what_failed_and_why(server: HttpServer) -> None:
    # requirement: A7
    await make_topics(server, 3)
    await add(
        server,
        letter(42, partition=1, value=b'{"a": 1}', headers=(("h", b"x"), ("raftlog.tag", b"t"))),
        letter(43, partition=1, key=None, value=None),
        letter(44, partition=1, key=b"\xff", value=b"\xff"),
        partition=1,
    )
    shown, empty, binary = rows(await server.get(PATH))
    assert shown == {
        "id": "orders/1/42",
        "partition": 1,
        "offset": 0,
        "origin": {"topic": "orders", "partition": 1, "offset": 42},
        "attempts": 5,
        "reason": "ValueError: no such user",
        "failed_at": 2042,
        "timestamp": 1042,
        "key": "u1",
        "headers": {"h": "x"},
        "tags": ["t"],
        "size_bytes": shown["size_bytes"],
        "value": {"a": 1},
        "encoding": "json",
    }
    assert (empty["key"], empty["value"]) == (None, None)
    assert (binary["key"], binary["key_encoding"]) == ("/w==", "base64")
    assert (binary["value"], binary["encoding"]) == ("/w==", "base64")
    exact = rows(await server.get(f"{PATH}?format=base64"))
    assert [row["value"] for row in exact] == ["eyJhIjogMX0=", None, "/w=="]


@served()
async def test_a_list_has_open_dead_letters_by_partition_in_pages(server: HttpServer) -> None:
    await make_topics(server, 3)
    await add(server, letter(1), letter(2), letter(1, reason="again"), partition=0)
    await add(server, letter(5, partition=2), letter(3, partition=2), partition=2)
    await add(server, tombstone(str(Origin("orders", 2, 5)), "discarded"), partition=2)
    for limit in (1, 2, 100):
        assert await open_offsets(server, f"limit={limit}") == [2, 1, 3]
    assert await open_offsets(server, "reason=AGAIN") == [1]
    assert await open_offsets(server, "key=u1") == [2, 1, 3]
    assert await open_offsets(server, "key=u2") == []
    assert await open_offsets(server, "id=orders/0/2&id=orders/2/3&id=orders/2/5") == [2, 3]


async def test_a_request_reads_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    # requirement: A7
    monkeypatch.setattr(dead_letter_pages, "SCAN_BYTES_MAX", 2000)
    monkeypatch.setattr(dead_letter_pages, "READ_BYTES", 1000)
    async with serve() as server:
        await make_topics(server)
        for number in range(40):
            await add(server, letter(number, value=bytes(100)))
        for number in range(0, 40, 2):
            await add(server, tombstone(str(Origin("orders", 0, number)), "discarded"))
        first = await server.get(f"{PATH}?limit=3")
        assert (rows(first), first.json["next_page_token"] is None) == ([], False)
        assert await open_offsets(server, "limit=3") == list(range(1, 40, 2))
        settled, cursor = list[int](), None
        while True:
            reply = await server.post(REDRIVE, {"all": True, "limit": 3, "page_token": cursor})
            settled += offsets_of(reply)
            if (cursor := reply.json["next_page_token"]) is None:
                break
        assert settled == list(range(1, 40, 2))
        assert await open_offsets(server) == []


@served()
async def test_a_redriven_record_is_as_its_producer_sent_it(server: HttpServer) -> None:
    # requirement: A7
    await make_topics(server, 3, retry_partitions=2)
    await add(server, letter(7, partition=2, headers=(("h", None),)), letter(8, partition=2), partition=2)
    reply = await server.post(REDRIVE, {"ids": ids([7], 2)})
    assert (offsets_of(reply), reply.json["count"], reply.json["dry_run"]) == ([7], 1, False)
    assert "value" not in rows(reply)[0]
    (sent,) = retries(server)
    failed = letter(7, partition=2, headers=(("h", None),))
    assert (sent.origin, sent.key, sent.value, sent.headers) == (failed.origin, b"u1", b"v", (("h", None),))
    assert (sent.attempts, sent.reason) == (0, failed.reason)
    settled = records(server, DEAD, 2)[-1]
    assert (settled.key, settled.value) == (b"orders/2/7", None)
    assert settled.headers == (("raftlog.settled", b"redriven"),)
    assert await open_offsets(server) == [8]


@served(prepare=make_topics)
async def test_a_dry_run_changes_nothing(server: HttpServer) -> None:
    await add(server, letter(1), letter(2))
    before = records(server, DEAD)
    for path in (REDRIVE, DISCARD):
        reply = await server.post(path, {"all": True, "dry_run": True})
        assert (offsets_of(reply), reply.json["dry_run"]) == ([1, 2], True)
    assert (records(server, DEAD), records(server, RETRY)) == (before, [])


@served(prepare=make_topics)
async def test_a_discarded_record_is_not_tried_again(server: HttpServer) -> None:
    await add(server, letter(1, reason="late"), letter(2, reason="lost"))
    assert offsets_of(await server.post(DISCARD, {"reason": "Late"})) == [1]
    assert records(server, RETRY) == []
    assert records(server, DEAD)[-1].headers == (("raftlog.settled", b"discarded"),)
    assert await open_offsets(server) == [2]


class Appends:
    """Runs before and after appends to the retry topic and to the dead-letter topic."""

    def __init__(self, server: HttpServer, **errors: Exception) -> None:
        self.order: list[str] = []
        self.errors = errors
        self.between: tuple[FailedRecord | Record, ...] = ()
        self._server = server
        self._append = server.cluster.gateway.append
        server.cluster.gateway.append = self.append  # type: ignore[method-assign]

    async def append(
        self,
        target: TopicPartition,
        *batches: Body,
        acks: Acks,
        **named: Any,  # noqa: ANN401  # handed on
    ) -> AppendReceipt:
        kind = target.topic.rpartition(".")[2]
        if kind in self.errors:
            raise self.errors[kind]
        self.order.append(f"{kind} {acks}")
        receipt = await self._append(target, *batches, acks=acks, **named)
        if kind == "retry" and self.between:
            some, self.between = self.between, ()
            await add(self._server, *some)
        return receipt


@served(prepare=make_topics)
async def test_a_dead_letter_is_settled_once_its_record_is_in_the_retry_topic(server: HttpServer) -> None:
    # requirement: A7
    await add(server, letter(1))
    appends = Appends(server, retry=CommitUnknown("no answer"))
    assert (await server.post(REDRIVE, {"all": True})).status == 504
    assert (appends.order, await open_offsets(server)) == ([], [1])
    appends.errors = {"dlq": CommitUnknown("no answer")}
    assert (await server.post(REDRIVE, {"all": True})).status == 504
    assert (appends.order, await open_offsets(server)) == (["retry quorum"], [1])
    appends.errors = {}
    assert offsets_of(await server.post(REDRIVE, {"all": True})) == [1]
    assert appends.order == ["retry quorum", "retry quorum", "dlq quorum"]
    assert [each.origin.offset for each in retries(server)] == [1, 1]  # twice, and not lost
    assert await open_offsets(server) == []


@pytest.mark.parametrize(
    "refusal",
    [
        NotEnoughReplicas("1 of 3 is in sync"),
        StorageFull("no room"),
        NoLeader("electing"),
        Overloaded("too much"),
        RecordTooLarge("too large"),
    ],
)
@served(prepare=make_topics)
async def test_a_refusal_behind_an_append_is_an_unknown_outcome(
    server: HttpServer, refusal: RaftlogError
) -> None:
    # requirement: A7
    await add(server, letter(1))
    Appends(server, dlq=refusal)
    told = await server.post(REDRIVE, {"all": True})
    assert (told.status, told.code) == (504, "commit_unknown")
    assert str(refusal) in str(told.json["detail"])
    async with VirtualClient(server.url) as client:
        with pytest.raises(CommitUnknown):
            await client.dead_letters.redrive("orders", "mail", all=True)
    assert len(retries(server)) == 2, "each request has sent the record once"


@served()
async def test_a_refusal_of_the_second_retry_partition_is_an_unknown_outcome(server: HttpServer) -> None:
    # requirement: A7
    await make_topics(server, 1, retry_partitions=2)
    await add(server, letter(1, partition=0), letter(1, partition=1))
    server.cluster.gateway.faults[TopicPartition(RETRY, 1)] = NoLeader("electing")
    assert (await server.post(REDRIVE, {"all": True})).code == "commit_unknown"
    assert (len(retries(server, 0)), len(retries(server, 1))) == (1, 0)
    server.cluster.gateway.faults[TopicPartition(RETRY, 0)] = NoLeader("electing")
    assert (await server.post(REDRIVE, {"all": True})).code == "no_leader", "nothing is written"


@served()
async def test_dead_letters_of_a_decommissioned_partition_are_not_tried_again_and_again(
    server: HttpServer,
) -> None:
    # requirement: A7
    await make_topics(server, 2)
    await add(server, letter(1, partition=1), partition=1)
    await server.post(f"/v1/topics/{DEAD}/partitions:decommission", {"count": 1})
    for path in (REDRIVE, DISCARD):
        told = await server.post(path, {"all": True})
        assert (told.status, told.code) == (409, "conflict")
        assert "recommission it" in str(told.json["detail"])
    assert retries(server) == []


@served(prepare=make_topics)
async def test_a_record_that_fails_during_its_redrive_is_a_dead_letter(server: HttpServer) -> None:
    # requirement: A7
    await add(server, letter(1), letter(2), letter(3))
    appends = Appends(server)
    appends.between = (
        replace(letter(1, reason="at once"), redrives=1),
        replace(letter(2, reason="settled by others"), redrives=1),
        tombstone("orders/0/2#1", "discarded"),
        letter(9, reason="another"),
    )
    assert offsets_of(await server.post(REDRIVE, {"all": True})) == [1, 2, 3]
    shown = rows(await server.get(PATH))
    assert [(row["id"], row["reason"]) for row in shown] == [
        ("orders/0/1#1", "at once"),
        ("orders/0/9", "another"),
    ]


@served()
async def test_a_failure_after_the_first_partition_ends_the_request_there(server: HttpServer) -> None:
    await make_topics(server, 2)
    await add(server, letter(1), partition=0)
    await add(server, letter(2, partition=1), partition=1)
    server.cluster.gateway.faults[TopicPartition(DEAD, 1)] = NoLeader("electing")
    reply = await server.post(REDRIVE, {"all": True})
    assert offsets_of(reply) == [1]
    body = {"all": True, "page_token": reply.json["next_page_token"]}
    assert (await server.post(REDRIVE, body)).code == "no_leader"
    server.cluster.gateway.faults.clear()
    assert offsets_of(await server.post(REDRIVE, body)) == [2]


@served()
async def test_foreign_records_are_skipped_and_counted(server: HttpServer) -> None:
    await server.topic(DEAD, 1, validate_records="false")
    await server.topic(RETRY, 1)
    await add(server, Record(b"v", b"k"), Record(b"v", None), letter(1))
    await add(server, letter(2), Record(b"not ours", b"orders/0/2"))
    path = f"/v1/topics/{DEAD}/partitions/0/records"
    sent = {"Content-Type": "application/vnd.raftlog.batch.v1"}
    assert (await server.call("POST", path, undecodable_batch(FIRST_RECORD), sent)).status == 200
    server.cluster.gateway.change_leader(TopicPartition(DEAD, 0))
    reply = await server.get(PATH)
    assert (offsets_of(reply), reply.json["foreign"]) == ([1], 4)
    assert offsets_of(await server.post(REDRIVE, {"all": True})) == [1]


@served(prepare=make_topics)
async def test_a_long_answer_continues_and_a_longer_value_is_left_out(server: HttpServer) -> None:
    for number, size_bytes in enumerate((700_000, 700_000, 700_000)):
        await add(server, letter(number, value=bytes(size_bytes)))
    first = await server.get(f"{PATH}?format=base64")
    assert offsets_of(first) == [0, 1]
    assert offsets_of(await server.get(f"{PATH}?page_token={first.json['next_page_token']}")) == [2]
    await server.call("PATCH", f"/v1/topics/{DEAD}/config", {"config": {"max.message.bytes": 2 << 20}})
    await add(server, letter(9, value=bytes(1200 << 10)))
    (row,) = rows(await server.get(f"{PATH}?id=orders/0/9"))
    assert "value" not in row
    assert int(str(row["size_bytes"])) > 1 << 20
    refused = await server.post(REDRIVE, {"ids": ids([9])})
    assert (refused.status, refused.code) == (413, "record_too_large")
    assert RETRY in str(refused.json["detail"])


@served()
async def test_a_missing_topic_has_a_remedy(server: HttpServer) -> None:
    for method, path in (("GET", PATH), ("POST", REDRIVE), ("POST", DISCARD)):
        reply = await server.call(method, path, {"all": True} if method == "POST" else None)
        assert (reply.status, reply.code, reply.json["topic"]) == (404, "topic_not_found", DEAD)
        assert "GET /v1/topics" in str(reply.json["detail"])
    await server.topic(DEAD, 1)
    reply = await server.post(REDRIVE, {"all": True})
    assert (reply.status, reply.json["topic"]) == (404, RETRY)
    assert (await server.post(DISCARD, {"all": True})).status == 200


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("id=orders", "id"),
        ("page_token=x", "page_token"),
        ("format=json", "format"),
        ("key=a&key=b", "key"),
        ("topic=a", "topic"),
    ],
)
@served(prepare=make_topics)
async def test_a_wrong_parameter_is_named(server: HttpServer, query: str, field: str) -> None:
    reply = await server.get(f"{PATH}?{query}")
    assert (reply.status, reply.json["field"]) == (422, field)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "all"),
        ({"limit": 5}, "all"),
        ({"all": True, "reason": "late"}, "all"),
        ({"ids": []}, "/ids"),
        ({"ids": ["orders"]}, "ids"),
        ({"reason": ""}, "/reason"),
        ({"all": True, "limit": 0}, "/limit"),
        ({"all": True, "page_token": "x"}, "page_token"),
        ({"al": True}, "/al"),
    ],
)
@served(prepare=make_topics)
async def test_a_wrong_field_settles_nothing(server: HttpServer, body: Json, field: str) -> None:
    await add(server, letter(1))
    for path in (REDRIVE, DISCARD):
        reply = await server.post(path, body)
        assert (reply.status, reply.json["field"]) == (422, field)
    assert await open_offsets(server) == [1]


@served()
async def test_a_cursor_of_another_topic_is_refused(server: HttpServer) -> None:
    await make_topics(server, 3)
    await add(server, letter(1), letter(2), partition=2)
    cursor = (await server.get(f"{PATH}?limit=1")).json["next_page_token"]
    assert offsets_of(await server.get(f"{PATH}?page_token={cursor}")) == [2]
    other = await server.get(f"/v1/dead-letters/orders/other?page_token={cursor}")
    assert other.status == 404
    await server.topic("orders.other.dlq", 1)
    other = await server.get(f"/v1/dead-letters/orders/other?page_token={cursor}")
    assert (other.status, other.json["field"]) == (422, "page_token")
    assert (await server.get("/v1/dead-letters/orders/a%20b")).json["field"] == "group"
