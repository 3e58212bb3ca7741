"""Produce over HTTP: bodies of every kind, keys, acknowledgements, deduplication, forwarding, limits."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict, replace

from broker.ports import Limits
from partitions.values import Durability
from raftlog.errors import NoLeader, NotEnoughReplicas
from raftlog.records.batch import HEADER_BYTES, check_batch, split_batches
from raftlog.records.keys import partition_for_key
from raftlog.records.reader import read_records
from raftlog.types import NodeId, TopicPartition
from raftlog.wire import media_types
from tests.helpers.http_server import HttpServer, Reply, serve, served
from tests.helpers.orders import batch_of, values_of
from tests.helpers.producing import BINARY, ORDERS_0, ORDERS_1, PARTITION, TOPIC, one_batch


def records_of(reply: Reply) -> list[dict[str, object]]:
    """The receipts or records of an answer."""
    return msgspec.convert(reply.json["records"], list[dict[str, object]])


@served(partitions=3)
async def test_keys_go_where_kafkas_clients_send_them(server: HttpServer) -> None:
    # requirement: K1
    sent = await server.post(TOPIC, {"records": [{"key": f"u{n}", "value": n} for n in range(50)]})
    assert sent.status == 200
    wanted = [partition_for_key(f"u{n}".encode(), 3) for n in range(50)]
    receipts = records_of(sent)
    assert [receipt["partition"] for receipt in receipts] == wanted
    next_offset = Counter[object]()
    for receipt in receipts:
        assert receipt["offset"] == next_offset[receipt["partition"]]
        next_offset[receipt["partition"]] += 1
    assert sent.json["durability"] == {"acks": "quorum", "committed": True, "fsynced": True, "replicas": 2}


@served(partitions=3)
async def test_an_integer_key_is_its_decimal_text(server: HttpServer) -> None:
    # requirement: K4
    sent = await server.post(TOPIC, {"records": [{"key": 42, "value": 1}, {"key": "42", "value": 1}]})
    first, second = records_of(sent)
    assert first["partition"] == second["partition"] == partition_for_key(b"42", 3)
    got = await server.get(f"/v1/topics/orders/partitions/{first['partition']}/records")
    assert [record["key"] for record in records_of(got)] == ["42", "42"]


@served(partitions=3)
async def test_records_without_a_key_go_together_and_evenly(server: HttpServer) -> None:
    # requirement: K2
    seen = Counter[object]()
    for _ in range(60):
        receipts = records_of(await server.post(TOPIC, {"records": [{"value": 1}, {"value": 2}]}))
        (partition,) = {receipt["partition"] for receipt in receipts}
        seen[partition] += 1
    assert set(seen) == {0, 1, 2}
    assert min(seen.values()) >= 8


@served(partitions=3)
async def test_a_partition_in_the_record_overrides_its_key(server: HttpServer) -> None:
    body = {"records": [{"key": "u1", "value": 1, "partition": n} for n in (2, 0)]}
    assert [receipt["partition"] for receipt in records_of(await server.post(TOPIC, body))] == [2, 0]
    wrong = await server.post(TOPIC, {"records": [{"value": 1}, {"value": 1, "partition": 3}]})
    assert (wrong.status, wrong.code) == (422, "invalid_record")
    assert str(wrong.json["errors"]).startswith("['/records/1/partition: ")
    other = await server.post(PARTITION, {"records": [{"value": 1, "partition": 1}]})
    assert other.status == 422


@pytest.mark.parametrize(
    ("record", "stored"),
    [
        ({"value": "text"}, b"text"),
        ({"value": "\u00fc"}, "\u00fc".encode()),
        ({"value": {"a": [1, 2.5]}}, b'{"a":[1,2.5]}'),
        ({"value": 17}, b"17"),
        ({"value": True}, b"true"),
        ({"value": None}, None),
        ({"value": "AAEC", "encoding": "base64"}, b"\0\1\2"),
        ({"value": "AAEC", "encoding": "utf8"}, b"AAEC"),
        ({"value": "a", "encoding": "json"}, b'"a"'),
    ],
)
@served(partitions=1)
async def test_a_json_value_means_these_bytes(
    server: HttpServer, record: dict[str, object], stored: bytes | None
) -> None:
    assert (await server.post(TOPIC, {"records": [record]})).status == 200
    (batch,) = server.cluster.gateway.log(ORDERS_0).batches
    assert read_records(batch)[0].value == stored


@served(partitions=1)
async def test_numbers_are_kept_digit_by_digit(server: HttpServer) -> None:
    text = b'{"records":[{"value":{"big": 9223372036854775808, "long":1.000000000000000000001}}]}'
    assert (await server.post(TOPIC, text, Content_Type="application/json")).status == 200
    got = await server.get(PARTITION)
    assert b'{"big":9223372036854775808,"long":1.000000000000000000001}' in got.body


@served(partitions=1)
async def test_headers_and_tags_are_kept(server: HttpServer) -> None:
    raw = [["n", base64.b64encode(b"\xff").decode()], ["twice", "YQ=="], ["twice", "Yg=="]]
    record = {"value": 1, "headers": {"source": "web", "no": None}, "headers_raw": raw, "tags": ["a", "b"]}
    assert (await server.post(TOPIC, {"records": [record]})).status == 200
    (got,) = records_of(await server.get(PARTITION))
    assert got["headers"] == {"source": "web", "no": None}
    assert got["headers_raw"] == raw
    assert got["tags"] == ["a", "b"]


@served(partitions=1)
async def test_a_trace_is_kept_as_a_record_header(server: HttpServer) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await server.post(TOPIC, {"records": [{"value": 1}]}, traceparent=trace)
    await server.post(TOPIC, b"x", Content_Type="application/octet-stream", traceparent=trace)
    for record in records_of(await server.get(PARTITION)):
        assert record["headers"] == {"traceparent": trace}


@served(partitions=3)
async def test_a_raw_body_is_one_record(server: HttpServer) -> None:
    # requirement: T9
    sent = await server.post(
        TOPIC,
        b"\x00\x01\xff",
        Content_Type="application/octet-stream",
        Raftlog_Key="k",
        Raftlog_Tags="a, b",
        Raftlog_Header_Source="web",
    )
    (receipt,) = records_of(sent)
    assert receipt["partition"] == partition_for_key(b"k", 3)
    (got,) = records_of(await server.get(f"/v1/topics/orders/partitions/{receipt['partition']}/records"))
    assert (got["value"], got["encoding"], got["size_bytes"]) == ("AAH/", "base64", got["size_bytes"])
    assert (got["key"], got["tags"], got["headers"]) == ("k", ["a", "b"], {"source": "web"})


@served(partitions=1)
async def test_newline_delimited_records(server: HttpServer) -> None:
    sent = await server.post(TOPIC, b'{"value":1}\n\n{"value":2}\n', Content_Type=media_types.NDJSON)
    assert len(records_of(sent)) == 2
    wrong = await server.post(TOPIC, b'{"value":1}\n{"valeu":2}\n', Content_Type=media_types.NDJSON)
    assert wrong.json["field"] == "/records/1/valeu"


@served()
async def test_a_binary_batch_is_stored_as_it_is(server: HttpServer) -> None:
    # requirement: L8
    await server.topic(partitions=1, message_timestamp_type="CreateTime")
    batch = one_batch(b"a", b"b")
    sent = await server.call("POST", PARTITION, batch + batch, BINARY)
    assert sent.status == 200
    assert (sent.json["base_offset"], sent.json["record_count"], sent.json["partition"]) == (0, 4, 0)
    assert sent.headers["raftlog-leader"] == "127.0.0.1:7070"
    got = await server.get(PARTITION + "?offset=3", Accept=media_types.BATCH)
    assert got.headers["content-type"] == media_types.BATCH
    assert got.headers["raftlog-next-offset"] == "4"
    (stored,) = split_batches(got.body)
    assert stored.base_offset == 2  # whole batches: the first begins before the offset asked for
    assert bytes(stored.data)[16:] == batch[16:]


@served(partitions=3)
async def test_a_binary_batch_needs_a_partition(server: HttpServer) -> None:
    refused = await server.call("POST", TOPIC, one_batch(b"a"), BINARY)
    assert (refused.status, refused.code) == (415, "unsupported_media_type")
    assert "/v1/topics/orders/partitions/{partition}/records" in str(refused.json["detail"])
    assert media_types.BATCH not in str(refused.json["supported"])
    empty = await server.call("POST", PARTITION, b"", BINARY)
    assert empty.status == 422


@pytest.mark.parametrize(("acks", "replicas"), [("quorum", 2), ("all", 2), ("every", 3), ("3", 3), ("1", 2)])
@served(partitions=3)
async def test_acks_are_named_in_the_answer(server: HttpServer, acks: str, replicas: int) -> None:
    sent = await server.post(f"{TOPIC}?acks={acks}", {"records": [{"value": 1}]})
    durability = sent.json["durability"]
    assert isinstance(durability, dict)
    assert durability["replicas"] == replicas
    assert durability["committed"] is (acks != "1")


@pytest.mark.parametrize("weaker", [{"committed": False}, {"fsynced": False}, {"replicas": 1}], ids=str)
@served(partitions=3)
async def test_the_durability_is_that_of_every_partition(server: HttpServer, weaker: dict[str, Any]) -> None:
    strong = Durability(acks="quorum", committed=True, fsynced=True, replicas=2)
    durabilities = server.cluster.gateway.durabilities
    durabilities[ORDERS_0], durabilities[ORDERS_1] = strong, replace(strong, **weaker)
    sent = await server.post(TOPIC, {"records": [{"value": n, "partition": n} for n in range(2)]})
    assert sent.json["durability"] == asdict(replace(strong, **weaker))


@served(partitions=1)
async def test_acks_0_is_accepted_without_an_offset(server: HttpServer) -> None:
    # requirement: RP7
    sent = await server.post(f"{TOPIC}?acks=0", {"records": [{"value": 1}, {"value": 2}]})
    assert (sent.status, sent.json) == (202, {"accepted": 2})
    binary = await server.call("POST", f"{PARTITION}?acks=0", one_batch(b"a"), BINARY)
    assert (binary.status, binary.json) == (202, {"accepted": 1})


@served(partitions=3)
async def test_a_request_that_spreads_tells_what_failed(server: HttpServer) -> None:
    server.cluster.gateway.faults[TopicPartition("orders", 1)] = NoLeader("orders/1 is electing a leader")
    body = {"records": [{"value": n, "partition": n % 3} for n in range(6)]}
    sent = await server.post(TOPIC, body)
    assert sent.status == 207
    receipts = records_of(sent)
    assert [receipt.get("status") for receipt in receipts] == [None, 503, None] * 2
    problem = receipts[1]["problem"]
    assert isinstance(problem, dict)
    assert (problem["code"], problem["retryable"], problem["partition"]) == ("no_leader", True, 1)
    assert receipts[3]["offset"] == 1
    assert sent.json["durability"]


@served(partitions=3)
async def test_a_request_to_one_partition_has_one_status(server: HttpServer) -> None:
    server.cluster.gateway.faults[ORDERS_0] = NotEnoughReplicas("one replica of three is healthy")
    refused = await server.post(TOPIC, {"records": [{"value": 1, "partition": 0}] * 3})
    assert (refused.status, refused.code) == (503, "not_enough_replicas")
    assert refused.headers["retry-after"] == "1"
    assert refused.json["retry_after_ms"] == 300


@served(partitions=1)
async def test_a_record_above_the_topics_limit_is_too_large_and_one_at_it_is_not(server: HttpServer) -> None:
    # requirement: T8
    refused = await server.post(TOPIC, {"records": [{"value": "x" * 2_000_000}]})
    assert (refused.status, refused.code) == (413, "record_too_large")
    limit = (1 << 20) + (64 << 10)
    assert refused.json["limit_bytes"] == limit
    headers = {f"name-{number}": "x" * 90 for number in range(100)}
    value = "x" * ((1 << 20) - sum(map(len, [*headers, *headers.values(), "key"])))
    whole = {"key": "key", "value": value, "headers": headers}  # 1 MiB together
    assert (await server.post(TOPIC, {"records": [whole]})).status == 200
    room = limit - len(one_batch(b"x" * 1_100_000)) + 1_100_000
    raw = {"Content-Type": "application/octet-stream"}
    assert (await server.call("POST", TOPIC, b"x" * room, raw)).status == 200
    assert (await server.call("POST", TOPIC, b"x" * (room + 1), raw)).status == 413


@served()
async def test_many_records_become_as_many_batches_as_they_need(server: HttpServer) -> None:
    await server.topic(partitions=1, max_message_bytes=1024)
    sent = await server.post(TOPIC, {"records": [{"value": "x" * 300}] * 10})
    assert [receipt["offset"] for receipt in records_of(sent)] == list(range(10))
    batches = server.cluster.gateway.log(ORDERS_0).batches
    assert len(batches) > 3
    assert all(len(batch.data) <= 1024 for batch in batches)


@pytest.mark.parametrize("name", ["If-Offset", "Raftlog-Fence", "Raftlog-Transaction"])
@served(partitions=3)
async def test_a_header_that_would_change_the_meaning_is_not_ignored(server: HttpServer, name: str) -> None:
    refused = await server.call("POST", PARTITION, {"records": [{"value": 1}]}, {name: "1"})
    assert (refused.status, refused.json["field"]) == (422, name)


@served(partitions=3)
async def test_route_says_what_a_broker_does_that_does_not_lead(server: HttpServer) -> None:
    # requirement: P4
    server.cluster.gateway.leaders[ORDERS_0] = NodeId(2)
    body = {"records": [{"value": 1}]}
    forwarded = await server.post(PARTITION, body)
    assert (forwarded.status, forwarded.headers["raftlog-leader"]) == (200, "127.0.0.1:7071")
    refused = await server.post(PARTITION + "?route=none", body)
    assert (refused.status, refused.code) == (421, "not_leader")
    assert (refused.json["leader"], refused.json["leader_http"]) == (2, "127.0.0.1:7071")
    sent = await server.post(PARTITION + "?route=redirect&acks=1", body)
    assert sent.status == 307
    assert sent.headers["location"] == f"http://127.0.0.1:7071{PARTITION}?route=redirect&acks=1"
    server.cluster.gateway.leaders[ORDERS_0] = None
    assert (await server.post(PARTITION + "?route=none", body)).code == "no_leader"
    server.cluster.gateway.leaders[ORDERS_0] = NodeId(1)
    assert (await server.post(PARTITION + "?route=none", body)).status == 200


@served(partitions=1)
async def test_what_was_sent_is_stored_although_its_client_hangs_up(server: HttpServer) -> None:
    server.cluster.gateway.append_delay_s = 0.2
    body = b'{"records":[{"value":1}]}'
    head = (
        f"POST {TOPIC} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head.encode() + body)
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.close()
    await writer.wait_closed()
    log = server.cluster.gateway.log(ORDERS_0)
    async with asyncio.timeout(20):
        await log.changed.wait()
    assert log.end == 1


@served(partitions=3)
async def test_a_retry_with_the_same_sequence_is_stored_once(server: HttpServer) -> None:
    identity = (await server.post("/v1/producers")).json
    assert identity["producer_epoch"] == 0
    sent = {
        "Raftlog-Producer-Id": str(identity["producer_id"]),
        "Raftlog-Producer-Epoch": "0",
        "Raftlog-Producer-Sequence": "0",
    }
    body = {"records": [{"value": 1}, {"value": 2}]}
    first = await server.call("POST", PARTITION, body, sent)
    again = await server.call("POST", PARTITION, body, sent)
    assert first.json == again.json
    (batch,) = server.cluster.gateway.log(ORDERS_0).batches
    assert (batch.header.producer_id, batch.header.base_sequence) == (identity["producer_id"], 0)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (media_types.JSON, {"records": [{"value": "x" * 1_500}, {"value": "y" * 1_500}]}),
        (media_types.NDJSON, b'{"value": "%s"}' % (b"x" * 3_000)),
        (media_types.OCTET_STREAM, b"x" * 3_000),
    ],
)
@served(partitions=3)
async def test_a_retry_is_known_though_the_topic_takes_less_now(
    server: HttpServer, content_type: str, body: object
) -> None:
    # requirement: D2
    identity = (await server.post("/v1/producers")).json
    sent = {
        "Raftlog-Producer-Id": str(identity["producer_id"]),
        "Raftlog-Producer-Epoch": "0",
        "Content-Type": content_type,
    }
    first = await server.call("POST", PARTITION, body, sent | {"Raftlog-Producer-Sequence": "0"})
    config = {"config": {"max.message.bytes": 1_024}}
    assert (await server.call("PATCH", "/v1/topics/orders/config", config)).status == 200
    again = await server.call("POST", PARTITION, body, sent | {"Raftlog-Producer-Sequence": "0"})
    assert (again.status, again.json) == (200, first.json)
    refused = await server.call("POST", PARTITION, body, sent | {"Raftlog-Producer-Sequence": "2"})
    assert (refused.code, refused.json["limit_bytes"]) == ("record_too_large", 1_024)


@served()
async def test_the_producer_headers_come_together_and_to_one_partition(server: HttpServer) -> None:
    await server.topic(max_message_bytes=1024)
    body: object = {"records": [{"value": 1}]}
    whole = {"Raftlog-Producer-Id": "1", "Raftlog-Producer-Epoch": "0", "Raftlog-Producer-Sequence": "0"}
    for name in whole:
        part = {other: value for other, value in whole.items() if other != name}
        refused = await server.call("POST", PARTITION, body, part)
        assert (refused.status, refused.json["field"]) == (422, name)
    assert (await server.call("POST", TOPIC, body, whole)).status == 422
    assert (await server.call("POST", PARTITION, one_batch(b"a"), whole | BINARY)).status == 422
    assert (
        await server.call("POST", PARTITION, body, whole | {"Raftlog-Producer-Epoch": "-1"})
    ).status == 422
    assert (
        await server.call("POST", PARTITION, body, whole | {"Raftlog-Producer-Sequence": "2147483648"})
    ).status == 422
    large = {"records": [{"value": "x" * 300}] * 10}  # does not fit into one batch
    assert (await server.call("POST", PARTITION, large, whole)).code == "record_too_large"


@served(Limits(request_bytes_in_flight_max=2500), partitions=1)
async def test_too_much_in_flight_is_refused_before_it_is_read(server: HttpServer) -> None:
    # requirement: N2
    server.cluster.gateway.append_delay_s = 0.2
    raw = {"Content-Type": "application/octet-stream"}
    replies = await asyncio.gather(*(server.call("POST", TOPIC, b"x" * 1000, raw) for _ in range(4)))
    refused = [reply for reply in replies if reply.status != 200]
    assert {reply.code for reply in refused} == {"overloaded"}
    assert {reply.status for reply in refused} == {503}
    assert all(reply.headers["retry-after"] for reply in refused)
    assert 1 <= len(refused) <= 2
    assert (await server.call("POST", TOPIC, b"x" * 1000, raw)).status == 200


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (Limits(request_bytes_in_flight_client_max=1500, request_bytes_in_flight_max=4000), "quota_exceeded"),
        (Limits(request_bytes_in_flight_client_max=4000, request_bytes_in_flight_max=1500), "overloaded"),
    ],
)
async def test_what_was_refused_takes_no_place(limits: Limits, code: str) -> None:
    # requirement: N2
    async with serve(limits) as server:
        await server.topic(partitions=1)
        raw = {"Content-Type": "application/octet-stream"}
        for _ in range(5):
            assert (await server.call("POST", TOPIC, b"x" * 2000, raw)).code == code
        assert (await server.call("POST", TOPIC, b"x" * 1000, raw)).status == 200


@served(Limits(request_bytes_in_flight_client_max=2500), partitions=1)
async def test_one_client_cannot_take_everything(server: HttpServer) -> None:
    server.cluster.gateway.append_delay_s = 0.2
    raw = {"Content-Type": "application/octet-stream"}
    replies = await asyncio.gather(*(server.call("POST", TOPIC, b"x" * 1000, raw) for _ in range(3)))
    assert sorted(reply.status for reply in replies) == [200, 200, 429]
    (refused,) = (reply for reply in replies if reply.status == 429)
    assert (refused.code, refused.json["retryable"]) == ("quota_exceeded", True)


GROUP = "/v1/groups/g"
MEMBER = f"{GROUP}/members/a"


# requirement: A9
@served(partitions=1)
async def test_a_client_produces_consumes_and_is_a_member_of_a_group(server: HttpServer) -> None:
    values = [b"x" * 1_000] * 1_000  # a megabyte in one request
    produced = await server.call("POST", PARTITION, batch_of(*values[:500]) + batch_of(*values[500:]), BINARY)
    assert (produced.status, produced.json["record_count"]) == (200, 1_000)
    fetched = await server.get(f"{PARTITION}?offset=0&max_bytes=4000000", Accept=media_types.BATCH)
    assert values_of(fetched.body) == values
    for batch in split_batches(fetched.body):
        check_batch(batch)
    joined = await server.post(f"{GROUP}/members", {"topics": ["orders"], "member_id": "a"})
    generation = {"generation": joined.json["generation"]}
    synced = await server.post(f"{MEMBER}:sync", {**generation, "assignments": "auto"})
    assert synced.json["assignment"] == [{"topic": "orders", "partitions": [0]}]
    beat = await server.post(f"{MEMBER}:heartbeat", generation)
    assert beat.json["action"] == "continue"
    place = {"topic": "orders", "partition": 0, "offset": 1_000}
    commit = {**generation, "member_id": "a", "offsets": [place]}
    assert (await server.call("PUT", f"{GROUP}/offsets", commit)).status == 204
    assert (await server.call("DELETE", MEMBER)).status == 204


# requirement: A9 M3
@pytest.mark.parametrize("position", [17, 21, 24, 43, HEADER_BYTES, -1])
@served(partitions=1)
async def test_a_batch_with_a_flipped_bit_is_refused_wherever_it_is(
    server: HttpServer, position: int
) -> None:
    damaged = bytearray(batch_of(b"value"))
    damaged[position] ^= 1
    for sent in (bytes(damaged), bytes(damaged[:30])):
        refused = await server.call("POST", PARTITION, sent, BINARY)
        assert (refused.status, refused.code) == (422, "corrupt_batch")
    assert (await server.get(f"{PARTITION}?offset=0")).status == 204
