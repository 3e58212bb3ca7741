"""Schedules over HTTP: how they are created, refused, listed, paused and deleted."""

from __future__ import annotations

import pytest

from tests.helpers.http_server import HttpServer, Reply, served

SCHEDULES = "/v1/schedules"
NIGHTLY = {
    "topic": "orders",
    "cron": "30 3 * * MON-FRI",
    "time_zone": "Europe/Berlin",
    "record": {"key": "k", "value": {"job": 1}, "tags": ["t"], "headers": {"a": "b"}},
}


async def create(server: HttpServer, name: str = "nightly", **changed: object) -> Reply:
    """A schedule."""
    return await server.call("POST", SCHEDULES, {**NIGHTLY, "schedule_id": name, **changed})


# requirement: A5
@served(partitions=3)
async def test_a_schedule_is_created_described_and_listed(server: HttpServer) -> None:
    made = await create(server)
    assert (made.status, made.headers["location"]) == (201, f"{SCHEDULES}/nightly")
    shown = (await server.call("GET", f"{SCHEDULES}/nightly")).json
    assert shown == made.json
    assert (shown["state"], shown["last_at"], shown["missed"]) == ("active", None, "once")
    assert (shown["key"], shown["value"], shown["encoding"]) == ("k", {"job": 1}, "json")
    assert (shown["tags"], shown["headers"]) == (["t"], {"a": "b"})
    assert isinstance(shown["next_at"], int)
    assert shown["next_at"] > server.cluster.services.clock.wall_ms()
    assert (await create(server)).json == shown, "it may be repeated"
    other = await create(server, cron="0 0 * * *")
    assert (other.status, other.code) == (409, "conflict")


# requirement: A5
@served(partitions=3)
async def test_a_broker_chooses_an_id_and_lists_have_pages(server: HttpServer) -> None:
    made = [await server.call("POST", SCHEDULES, NIGHTLY) for _ in range(3)]
    names = sorted(str(reply.json["schedule_id"]) for reply in made)
    assert len(set(names)) == 3
    found: list[str] = []
    query = "?limit=2"
    while query:
        page = (await server.call("GET", SCHEDULES + query)).json
        items = page["items"]
        assert isinstance(items, list)
        found += [item["schedule_id"] for item in items]
        query = f"?limit=2&page_token={page['next_page_token']}" if page["next_page_token"] else ""
    assert found == names
    assert (await server.call("GET", f"{SCHEDULES}?topic=none")).json["items"] == []
    assert (await server.call("GET", f"{SCHEDULES}?page_token=zz")).status == 422


# requirement: A5
@served(partitions=3)
async def test_a_schedule_is_paused_resumed_and_deleted(server: HttpServer) -> None:
    await create(server)
    path = f"{SCHEDULES}/nightly"
    paused = (await server.call("PATCH", path, {"paused": True})).json
    assert (paused["state"], paused["next_at"]) == ("paused", None)
    assert (await server.call("PATCH", path, {"paused": False})).json["state"] == "active"
    assert (await server.call("DELETE", path)).status == 204
    assert (await server.call("DELETE", path)).status == 204
    assert (await server.call("GET", path)).code == "schedule_not_found"
    for method, body in (("GET", None), ("PATCH", {"paused": True}), ("DELETE", None)):
        for name in ("other", "not%20a%20name", "%00"):
            reply = await server.call(method, f"{SCHEDULES}/{name}", body)
            assert (reply.status, reply.code) == (404, "schedule_not_found"), reply


# requirement: A5
@pytest.mark.parametrize(
    ("changed", "status", "field"),
    [
        ({"cron": "0 0 30 2 *"}, 422, "cron"),
        ({"cron": "@daily"}, 422, "cron"),
        ({"cron": "x" * 9_999}, 422, "cron"),
        ({"time_zone": "Mars/Base"}, 422, "time_zone"),
        ({"time_zone": "../../etc/passwd"}, 422, "time_zone"),
        ({"schedule_id": "a b"}, 422, "schedule_id"),
        ({"schedule_id": ""}, 422, "schedule_id"),
        ({"topic": "__offsets"}, 404, ""),
        ({"topic": "nowhere"}, 404, ""),
        ({"record": {"value": 1, "delay": "1s"}}, 422, "record/delay"),
        ({"record": {"value": 1, "timestamp": 5}}, 422, "record/timestamp"),
        ({"record": {"value": 1, "partition": 99}}, 422, "record/partition"),
        ({"record": {"value": "x" * 20_000}}, 413, ""),
        ({"missed": "some"}, 422, ""),
        ({"cronn": "x"}, 422, ""),
    ],
)
@served(partitions=3)
async def test_bad_input_is_refused_with_the_field(
    server: HttpServer, changed: dict[str, object], status: int, field: str
) -> None:
    reply = await server.call("POST", SCHEDULES, {**NIGHTLY, **changed})
    assert reply.status == status, reply
    if field:
        assert reply.json["field"] == field
    assert (await server.call("GET", SCHEDULES)).json["items"] == []


# requirement: A5
@served()
async def test_a_compacted_topic_needs_a_key(server: HttpServer) -> None:
    config = {"cleanup.policy": "compact"}
    body = {"name": "compacted", "partitions": 1, "replication_factor": 1, "config": config}
    await server.call("POST", "/v1/topics", body)
    reply = await create(server, topic="compacted", record={"value": 1})
    assert "key" in str(reply.json["detail"])
    assert (await create(server, topic="compacted")).status == 201
