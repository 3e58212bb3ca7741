"""Decommissioned partitions over HTTP: where records go, and which requests are refused."""

from __future__ import annotations

import pytest

from raftlog.errors import PartitionDecommissioned
from raftlog.records.keys import partition_for_key
from raftlog.types import TopicPartition
from tests.helpers.http_server import HttpServer, served

TOPIC = "/v1/topics/orders"
KEYS = [f"k{number}" for number in range(30)]


async def decommissioned(server: HttpServer, *partitions: int) -> None:
    await server.topic("orders", 3)
    changed = await server.post(f"{TOPIC}/partitions:decommission", {"partitions": list(partitions)})
    assert (changed.status, changed.json["decommissioned"]) == (202, list(partitions))


# requirement: F5 K6 K1
@served()
async def test_keys_map_to_the_partitions_that_take_records(server: HttpServer) -> None:
    await decommissioned(server, 2)
    body = {"records": [{"key": key, "value": 1} for key in KEYS]}
    stored = (await server.post(f"{TOPIC}/records", body)).json["records"]
    assert isinstance(stored, list)
    assert [one["partition"] for one in stored] == [partition_for_key(key.encode(), 2) for key in KEYS]
    for _ in range(20):
        raw = await server.post(f"{TOPIC}/records", b"x", Content_Type="application/octet-stream")
        assert raw.json["records"][0]["partition"] in (0, 1)  # type: ignore[index]


# requirement: F5
@pytest.mark.parametrize(
    ("path", "record"),
    [("/partitions/2/records", {"value": 1}), ("/records", {"value": 1, "partition": 2})],
)
@served()
async def test_a_named_partition_is_refused_for_good(
    server: HttpServer, path: str, record: dict[str, object]
) -> None:
    await decommissioned(server, 2)
    refused = await server.post(f"{TOPIC}{path}", {"records": [record]})
    assert (refused.status, refused.code) == (409, "partition_decommissioned")
    assert refused.json["retryable"] is False


# requirement: F5 P3
@served(partitions=2)
async def test_a_partition_that_the_broker_has_chosen_by_old_metadata_is_retryable(
    server: HttpServer,
) -> None:
    key = next(key for key in KEYS if partition_for_key(key.encode(), 2) == 1)
    newer = PartitionDecommissioned("its leader knows", topic="orders", partition=1)
    server.cluster.gateway.faults[TopicPartition("orders", 1)] = newer
    refused = await server.post(f"{TOPIC}/records", {"records": [{"key": key, "value": 1}]})
    assert (refused.status, refused.code) == (503, "no_leader")
    assert refused.json["retryable"] is True


# requirement: F5
@served()
async def test_the_topic_and_its_partitions_show_it_and_it_can_be_ended(server: HttpServer) -> None:
    await decommissioned(server, 1, 2)
    assert (await server.get(TOPIC)).json["decommissioned"] == [1, 2]
    items = (await server.get(f"{TOPIC}/partitions")).json["items"]
    assert isinstance(items, list)
    assert [one["state"] for one in items] == ["active", "decommissioned", "decommissioned"]
    ended = await server.post(f"{TOPIC}/partitions:recommission", {"partitions": [1]})
    assert (ended.status, ended.json["decommissioned"]) == (200, [2])
    assert (await server.post(f"{TOPIC}/partitions:recommission", {})).json["decommissioned"] == []
    assert "decommissioned" not in (await server.get(TOPIC)).json


# requirement: F5
@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "partitions"),
        ({"count": 1, "partitions": [2]}, 422, "partitions"),
        ({"count": 0}, 422, "/count"),
        ({"count": 3}, 422, "count"),
        ({"count": 9}, 422, "count"),
        ({"partitions": [-1]}, 422, "/partitions/0"),
        ({"partitions": [0]}, 422, "partitions"),
        ({"partition": [2]}, 422, "/partition"),
    ],
)
@served(partitions=3)
async def test_a_wrong_request_names_its_field(
    server: HttpServer, body: object, status: int, field: str
) -> None:
    refused = await server.post(f"{TOPIC}/partitions:decommission", body)
    assert (refused.status, refused.json["field"]) == (status, field)


# requirement: F5
@served()
async def test_requests_that_the_topic_contradicts_are_refused(server: HttpServer) -> None:
    path = f"{TOPIC}/partitions:decommission"
    assert (await server.post(path, {"count": 1})).code == "topic_not_found"
    await decommissioned(server, 2)
    assert (await server.post(path, {"partitions": [7]})).code == "partition_not_found"
    late = await server.post(path, {"count": 2, "expected": 3})
    assert late.status == 412, late
    assert "have changed: it has 3, of which 2 take records" in str(late.json["detail"])
    added = await server.post(f"{TOPIC}/partitions:add", {"count": 1})
    assert (added.status, added.code) == (409, "conflict")
    assert "partitions [2] of topic 'orders' are decommissioned" in str(added.json["detail"])


# requirement: F5
@served()
async def test_topics_that_keep_records_for_ever_are_warned_about(server: HttpServer) -> None:
    for name, config, text in (
        ("kept", {"retention_ms": -1}, "retention.ms is -1"),
        ("compacted", {"cleanup_policy": "compact"}, "cleanup.policy is compact"),
        ("both", {"cleanup_policy": "compact,delete"}, "is compacted, and most keys"),
    ):
        await server.topic(name, 3, **config)  # type: ignore[arg-type]
        path = f"/v1/topics/{name}/partitions:decommission"
        warnings = (await server.post(path, {"count": 1})).json["warnings"]
        assert text in str(warnings)
    await server.topic("usual", 3)
    usual = await server.post("/v1/topics/usual/partitions:decommission", {"count": 1})
    assert usual.json["warnings"] == []
