"""``records:delete-before`` over HTTP."""

from __future__ import annotations

import pytest

from raftlog.errors import CommitUnknown, NoLeader
from raftlog.types import TopicPartition
from tests.helpers.http_server import HttpServer, served

PATH = "/v1/topics/orders/records:delete-before"
RECORDS = "/v1/topics/orders/partitions/0/records"


# requirement: RT5
@served(partitions=3)
async def test_readers_below_the_offset_get_410_with_the_valid_range(server: HttpServer) -> None:
    await server.post(RECORDS, {"records": [{"value": number} for number in range(5)]})
    deleted = await server.post(PATH, {"partition": 0, "offset": 3})
    assert (deleted.status, deleted.json) == (200, {"partition": 0, "log_start_offset": 3})
    refused = await server.get(f"{RECORDS}?offset=2")
    assert (refused.status, refused.code) == (410, "offset_out_of_range")
    assert (refused.json["start"], refused.json["end"]) == (3, 5)
    found = await server.get(f"{RECORDS}?offset=earliest")
    assert [record["offset"] for record in found.json["records"]] == [3, 4]


# requirement: RT5
@served(partitions=3)
async def test_an_offset_below_the_log_start_returns_the_log_start(server: HttpServer) -> None:
    await server.post(RECORDS, {"records": [{"value": 1}, {"value": 2}]})
    for offset in (1, 0, 1):
        assert (await server.post(PATH, {"partition": 0, "offset": offset})).json["log_start_offset"] == 1


# requirement: RT5
@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"partition": 0, "offset": 1}, 422, "offset"),  # above the high watermark
        ({"partition": 0, "offset": -1}, 422, "/offset"),
        ({"partition": 0}, 422, "/offset"),
        ({"partition": -1, "offset": 0}, 422, "/partition"),
        ({"partition": 0, "ofset": 0}, 422, "/ofset"),
    ],
)
@served(partitions=3)
async def test_a_wrong_field_is_named(server: HttpServer, body: object, status: int, field: str) -> None:
    refused = await server.post(PATH, body)
    assert (refused.status, refused.json["field"]) == (status, field)


# requirement: RT5
@served(partitions=3)
async def test_unknown_topics_and_partitions_are_404(server: HttpServer) -> None:
    body = {"partition": 99, "offset": 0}
    assert (await server.post(PATH, body)).code == "partition_not_found"
    assert (await server.post(PATH.replace("orders", "none"), body)).code == "topic_not_found"


# requirement: RT5
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (CommitUnknown("the log start is not committed yet; repeat"), "replication_timeout"),
        (NoLeader("orders/0 has no leader", retry_after_ms=200), "no_leader"),
    ],
)
@served(partitions=3)
async def test_an_unknown_outcome_and_a_missing_leader_are_reported(
    server: HttpServer, fault: Exception, code: str
) -> None:
    server.cluster.gateway.faults[TopicPartition("orders", 0)] = fault
    assert (await server.post(PATH, {"partition": 0, "offset": 0})).code == code
