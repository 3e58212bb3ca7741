"""``Idempotency-Key``: equal requests are carried out once, and each gets the first answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import pytest

from raftlog.errors import NoLeader
from raftlog.types import TopicPartition
from tests.helpers.http_server import HttpServer, Json, Reply, served
from tests.helpers.producing import BINARY, ORDERS_0, PARTITION, TOPIC, one_batch

EXECUTE = "/v1/transactions:execute"
OFFSETS = {"group": "g", "offsets": [{"topic": "orders", "partition": 0, "offset": 0}]}
RAW = {"Content-Type": "application/octet-stream"}
NDJSON = {"Content-Type": "application/x-ndjson"}


async def keyed(server: HttpServer, path: str, body: object, key: str = "order-1", **sent: str) -> Reply:
    """One attempt."""
    return await server.call("POST", path, body, {"Idempotency-Key": key, **sent})


def written(server: HttpServer) -> int:
    """How many records the topic has."""
    return sum(server.cluster.gateway.log(TopicPartition("orders", number)).end for number in range(3))


# requirement: D3
@pytest.mark.parametrize(
    ("path", "body", "sent", "count"),
    [
        (TOPIC, {"records": [{"value": n} for n in range(5)] + [{"key": "a", "value": 1}]}, {}, 6),
        (PARTITION, {"records": [{"value": 1}]}, {}, 1),
        (TOPIC, b'{"value":1}\n{"value":2}\n', NDJSON, 2),
        (TOPIC, b"raw", RAW, 1),
        (PARTITION, b"raw", RAW, 1),
        (EXECUTE, {"records": [{"topic": "orders", "value": 1}]}, {}, 1),
        (EXECUTE, {"transactional_id": "a", "records": [{"topic": "orders", "value": 1}]}, {}, 1),
        (
            EXECUTE,
            {
                "records": [{"topic": "orders", "value": 1}],
                "group_offsets": OFFSETS,
            },
            {},
            1,
        ),
    ],
)
@served(partitions=3)
async def test_a_repetition_gets_the_first_answer(
    server: HttpServer, path: str, body: object, sent: dict[str, str], count: int
) -> None:
    first = await keyed(server, path, body, **sent)
    assert first.status == 200, first
    assert "idempotency-replayed" not in first.headers
    for query in ("", "?timeout=10s"):
        again = await keyed(server, path + query, body, **sent)
        assert (again.status, again.body) == (200, first.body)
        assert again.headers["idempotency-replayed"] == "true"
        assert again.headers["content-type"] == first.headers["content-type"]
    assert written(server) == count
    other = await keyed(server, path, body, "order-2", **sent)
    assert other.body != first.body
    assert written(server) == 2 * count


# requirement: D3
@pytest.mark.parametrize("more", [{}, {"transactional_id": "a"}])
@served(partitions=3)
async def test_a_repetition_gets_the_first_answer_after_changes(server: HttpServer, more: Json) -> None:
    await server.topic("gone")
    records = [{"topic": "gone", "value": 1}, {"topic": "orders", "value": "x" * 2_000}]
    body, produce = {"records": records, **more}, {"records": [{"value": "x" * 2_000}]}
    first, produced = await keyed(server, EXECUTE, body), await keyed(server, TOPIC, produce)
    await server.call("DELETE", "/v1/topics/gone")
    config = {"config": {"max.message.bytes": 1_024}}
    assert (await server.call("PATCH", "/v1/topics/orders/config", config)).status == 200
    for path, wanted, answer in ((EXECUTE, body, first), (TOPIC, produce, produced)):
        again = await keyed(server, path, wanted)
        assert (again.status, again.body) == (200, answer.body)
        refused = await keyed(server, path, wanted, "another")
        assert refused.code in ("topic_not_found", "record_too_large")
    other = await keyed(server, EXECUTE, {**body, "records": records[:1]})
    assert other.code == "idempotency_key_reused"


# requirement: D3
@served(partitions=3)
async def test_a_repetition_gets_the_first_answer_after_its_partition_is_removed(server: HttpServer) -> None:
    body = {"records": [{"value": 1, "partition": 2}]}
    first = await keyed(server, TOPIC, body)
    controller = server.cluster.controller
    orders = controller.image.topics["orders"]
    fewer = replace(orders, partitions=orders.partitions[:2])
    controller.image = replace(controller.image, topics={**controller.image.topics, "orders": fewer})
    again = await keyed(server, TOPIC, body)
    assert (again.status, again.body) == (200, first.body)
    refused = await keyed(server, TOPIC, body, "another")
    assert (refused.status, refused.code) == (422, "invalid_record")


@served(partitions=3)
async def test_a_key_is_unique_in_its_transactional_id(server: HttpServer) -> None:
    records = [{"topic": "orders", "value": 1}]
    for more in ({}, {"transactional_id": "a"}, {"transactional_id": "b"}):
        done = await keyed(server, EXECUTE, {"records": records, **more})
        assert (done.status, "idempotency-replayed" in done.headers) == (200, False)
    assert written(server) == 3


@served(partitions=3)
async def test_the_answer_of_a_produce_is_that_of_one_without_a_key(server: HttpServer) -> None:
    body = {"records": [{"value": 1}, {"value": 2}]}
    plain = (await server.post(PARTITION, body)).json
    with_key = (await keyed(server, PARTITION, body)).json
    assert with_key["durability"] == plain["durability"]
    offsets = [receipt["offset"] for receipt in msgspec.convert(with_key["records"], list[Json])]
    assert offsets == [2, 3]


# requirement: D3
@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b"other", RAW),
        (b"one", {**RAW, "Raftlog-Key": "k"}),
        (b"one", {**RAW, "Raftlog-Header-Source": "web"}),
        (b'{"value":"one"}', NDJSON),
    ],
)
@served(partitions=3)
async def test_another_request_with_the_same_key_is_refused(
    server: HttpServer, body: bytes, sent: dict[str, str]
) -> None:
    assert (await keyed(server, TOPIC, b"one", **RAW)).status == 200
    refused = await keyed(server, TOPIC, body, **sent)
    assert (refused.status, refused.code) == (422, "idempotency_key_reused")
    assert refused.json["retryable"] is False
    assert written(server) == 1
    assert (await keyed(server, PARTITION, body, **sent)).status == 200, "another path"


@served(partitions=3)
async def test_a_request_that_is_running_is_not_carried_out_beside_itself(server: HttpServer) -> None:
    server.cluster.gateway.append_delay_s = 0.2
    body = {"records": [{"value": 1}]}
    replies = await asyncio.gather(*(keyed(server, TOPIC, body) for _ in range(5)))
    good = [reply for reply in replies if reply.status == 200]
    assert len(good) == 1
    assert {reply.code for reply in replies if reply.status != 200} == {"idempotency_in_progress"}
    running = next(reply for reply in replies if reply.status != 200)
    assert (running.status, running.json["retryable"], running.headers["retry-after"]) == (409, True, "1")
    assert (await keyed(server, TOPIC, body)).body == good[0].body
    assert written(server) == 1


# requirement: D3
@served(partitions=3)
async def test_a_request_that_failed_is_carried_out_when_it_is_repeated(server: HttpServer) -> None:
    body = {"records": [{"value": 1}]}
    server.cluster.gateway.faults[ORDERS_0] = NoLeader("it elects a leader")
    assert (await keyed(server, PARTITION, body)).code == "no_leader"
    del server.cluster.gateway.faults[ORDERS_0]
    other = await keyed(server, PARTITION, {"records": [{"value": 2}]})
    assert other.status == 200, "nothing was carried out with this key before"


@served()
async def test_a_key_of_a_deleted_topic_is_free_in_the_next_topic_of_this_name(server: HttpServer) -> None:
    body = {"records": [{"value": 1}]}
    for _ in range(2):
        await server.topic()
        done = await keyed(server, TOPIC, body)
        assert (done.status, "idempotency-replayed" in done.headers) == (200, False)
        assert (await server.call("DELETE", "/v1/topics/orders")).status in (200, 204)


@pytest.mark.parametrize("key", ["", "x" * 256, "x" * 300, "two words", "k\u00e9", "tab\tbed"])
@served(partitions=3)
async def test_a_key_is_visible_ascii(server: HttpServer, key: str) -> None:
    for path, body in ((TOPIC, {"records": [{"value": 1}]}), (EXECUTE, {"records": []})):
        refused = await keyed(server, path, body, key)
        assert (refused.status, refused.json["field"]) == (422, "Idempotency-Key")
    assert (await keyed(server, TOPIC, {"records": [{"value": 1}]}, "!" + "~" * 254)).status == 200


@pytest.mark.parametrize(
    ("path", "body", "sent"),
    [
        (PARTITION, one_batch(b"a"), BINARY),
        (PARTITION + "?acks=1", {"records": [{"value": 1}]}, {}),
        (TOPIC + "?acks=0", {"records": [{"value": 1}]}, {}),
        (PARTITION, {"records": [{"value": 1}]}, {"Raftlog-Transaction": "a@1.0"}),
        (
            PARTITION,
            {"records": [{"value": 1}]},
            {"Raftlog-Producer-Id": "1", "Raftlog-Producer-Epoch": "0", "Raftlog-Producer-Sequence": "0"},
        ),
    ],
)
@served(partitions=3)
async def test_a_key_that_cannot_be_kept_is_refused_with_the_remedy(
    server: HttpServer, path: str, body: object, sent: dict[str, str]
) -> None:
    refused = await keyed(server, path, body, **sent)
    assert (refused.status, refused.json["field"]) == (422, "Idempotency-Key")
    assert written(server) == 0


@served(partitions=3)
async def test_a_request_with_a_key_has_a_bounded_answer(server: HttpServer) -> None:
    for count, status in ((1_000, 200), (1_001, 413)):
        records = [{"value": number} for number in range(count)]
        assert (await keyed(server, TOPIC, {"records": records}, f"{count}")).status == status
        body = {"records": [{"topic": "orders", **record} for record in records]}
        assert (await keyed(server, EXECUTE, body, f"{count}")).status == status
    assert written(server) == 2_000
