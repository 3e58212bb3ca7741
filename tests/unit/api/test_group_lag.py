"""The lag of a group counts what can be read: over HTTP, of one group and of its partitions."""

from __future__ import annotations

from raftlog.types import TopicPartition
from raftlog.wire import media_types
from tests.helpers.http_server import HttpServer, served
from tests.helpers.undecodable_batch import FIRST_RECORD, undecodable_batch

# requirement: G1

ZERO = TopicPartition("orders", 0)


async def produce(server: HttpServer, count: int) -> None:
    """Records of 1998."""
    records = [{"value": number, "timestamp": 900_000_000_000} for number in range(count)]
    body = {"records": records}
    assert (await server.post("/v1/topics/orders/partitions/0/records", body)).status == 200


async def lag_from(server: HttpServer, offset: int) -> tuple[object, bool]:
    """Records, and whether there are seconds, of a group that committed an offset."""
    commit = {"offsets": [{"topic": "orders", "partition": 0, "offset": offset}]}
    assert (await server.call("PUT", "/v1/groups/slow/offsets", commit)).status == 204
    group = (await server.get("/v1/groups/slow")).json
    items = (await server.get("/v1/groups/slow/offsets")).json["items"]
    assert isinstance(items, list)
    assert [group["lag"], group["lag_seconds"]] == [items[0]["lag"], items[0]["lag_seconds"]]
    return items[0]["lag"], items[0]["lag_seconds"] > 0


@served()
async def test_deleted_records_are_no_lag(server: HttpServer) -> None:
    await server.topic(partitions=1, message_timestamp_type="CreateTime")
    await produce(server, 100)
    assert await lag_from(server, 5) == (95, True)
    server.cluster.gateway.cut(ZERO, 90)
    assert await lag_from(server, 5) == (10, True)
    assert await lag_from(server, 95) == (5, True)
    server.cluster.gateway.cut(ZERO, 100)
    assert await lag_from(server, 5) == (0, False)


@served()
async def test_what_brokers_write_for_themselves_is_no_lag(server: HttpServer) -> None:
    await server.topic(partitions=1, message_timestamp_type="CreateTime")
    await produce(server, 3)
    server.cluster.gateway.change_leader(ZERO)
    assert await lag_from(server, 3) == (0, False)
    await produce(server, 2)
    assert await lag_from(server, 3) == (2, True)


@served()
async def test_a_batch_that_is_no_records_is_lag(server: HttpServer) -> None:
    await server.topic(partitions=1, message_timestamp_type="CreateTime", validate_records="false")
    batch = undecodable_batch(FIRST_RECORD)
    path = "/v1/topics/orders/partitions/0/records"
    assert (await server.post(path, batch, Content_Type=media_types.BATCH)).status == 200
    assert await lag_from(server, 1) == (2, True)
