"""What of a produce is refused or done once: sequences of producers, and too much in flight."""

from __future__ import annotations

import asyncio

import pytest

from api.http.services import Limits
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.http_server import HttpServer, serve, served
from tests.helpers.producing import BINARY, ORDERS_0, PARTITION, TOPIC, one_batch


@served(partitions=3)
async def test_a_retry_with_the_same_sequence_is_stored_once(server: HttpServer) -> None:
    identity = (await server.post("/v1/producers")).json
    assert identity["epoch"] == 0
    sent = {"Producer-Id": str(identity["producer_id"]), "Producer-Epoch": "0", "Producer-Seq": "0"}
    body = {"records": [{"value": 1}, {"value": 2}]}
    first = await server.call("POST", PARTITION, body, sent)
    again = await server.call("POST", PARTITION, body, sent)
    assert first.json == again.json
    (batch,) = server.cluster.gateway.log(ORDERS_0).batches
    assert (batch.header.producer_id, batch.header.base_sequence) == (identity["producer_id"], 0)


@served()
async def test_the_producer_headers_come_together_and_to_one_partition(server: HttpServer) -> None:
    await server.topic(max_message_bytes=1024)
    body: object = {"records": [{"value": 1}]}
    whole = {"Producer-Id": "1", "Producer-Epoch": "0", "Producer-Seq": "0"}
    for name in whole:
        part = {other: value for other, value in whole.items() if other != name}
        refused = await server.call("POST", PARTITION, body, part)
        assert (refused.status, refused.json["field"]) == (422, name)
    assert (await server.call("POST", TOPIC, body, whole)).status == 422
    assert (await server.call("POST", PARTITION, one_batch(b"a"), whole | BINARY)).status == 422
    assert (await server.call("POST", PARTITION, body, whole | {"Producer-Epoch": "-1"})).status == 422
    assert (await server.call("POST", PARTITION, body, whole | {"Producer-Seq": "2147483648"})).status == 422
    large = {"records": [{"value": "x" * 300}] * 10}  # does not fit into one batch
    assert (await server.call("POST", PARTITION, large, whole)).code == "record_too_large"


@served(Limits(bodies_bytes_max=2500), partitions=1)
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
        (Limits(bodies_bytes_client_max=1500, bodies_bytes_max=4000), "quota_exceeded"),
        (Limits(bodies_bytes_client_max=4000, bodies_bytes_max=1500), "overloaded"),
    ],
)
@in_virtual_time
async def test_what_was_refused_takes_no_place(limits: Limits, code: str) -> None:
    # requirement: N2
    async with serve(limits) as server:
        await server.topic(partitions=1)
        raw = {"Content-Type": "application/octet-stream"}
        for _ in range(5):
            assert (await server.call("POST", TOPIC, b"x" * 2000, raw)).code == code
        assert (await server.call("POST", TOPIC, b"x" * 1000, raw)).status == 200


@served(Limits(bodies_bytes_client_max=2500), partitions=1)
async def test_one_client_cannot_take_everything(server: HttpServer) -> None:
    server.cluster.gateway.append_delay_s = 0.2
    raw = {"Content-Type": "application/octet-stream"}
    replies = await asyncio.gather(*(server.call("POST", TOPIC, b"x" * 1000, raw) for _ in range(3)))
    assert sorted(reply.status for reply in replies) == [200, 200, 429]
    (refused,) = (reply for reply in replies if reply.status == 429)
    assert (refused.code, refused.json["retryable"]) == ("quota_exceeded", True)
