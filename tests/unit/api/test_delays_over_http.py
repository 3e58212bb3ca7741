"""Delayed messages and schedules over HTTP: accepted, refused, listed, changed and cancelled."""

from __future__ import annotations

import pytest

from api.resources import delays
from delayed.records import Message
from delayed.requests import Described
from delayed.service import MessageId
from raftlog.errors import NoLeader
from tests.helpers.http_server import HttpServer, Reply, served
from tests.helpers.producing import BINARY, PARTITION, TOPIC, one_batch

DELAYED = "/v1/delayed"
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
MILLISECONDS = {"s": 1_000, "m": 60_000, "h": 3_600_000}


def rows(reply: Reply, name: str = "records") -> list[dict[str, object]]:
    """A list of objects in the body."""
    found = reply.json[name]
    assert isinstance(found, list)
    return found


async def delayed(server: HttpServer, query: str = "?delay=30m", **record: object) -> dict[str, object]:
    """The receipt of one record."""
    reply = await server.call("POST", TOPIC + query, {"records": [{"value": 1, **record}]})
    assert reply.status == 200, reply
    (receipt,) = rows(reply)
    return receipt


# requirement: A4
@served(partitions=3)
async def test_each_level_is_a_delay_and_so_is_any_other_time(server: HttpServer) -> None:
    for level in [*LEVELS.split(), "17s", "13d"]:
        before_ms = server.cluster.services.clock.wall_ms()
        receipt = await delayed(server, f"?delay={level}")
        after_ms = server.cluster.services.clock.wall_ms()
        delay_ms = int(level[:-1]) * MILLISECONDS.get(level[-1], 86_400_000)
        due_ms = receipt["deliver_at"]
        assert isinstance(due_ms, int)
        assert before_ms + delay_ms <= due_ms <= after_ms + delay_ms


# requirement: A5
@served(partitions=3)
async def test_a_time_may_be_in_the_query_or_in_a_record(server: HttpServer) -> None:
    due_ms = server.cluster.services.clock.wall_ms() + 60_000
    assert (await delayed(server, f"?deliver_at={due_ms}"))["deliver_at"] == due_ms
    assert (await delayed(server, "", deliver_at=due_ms))["deliver_at"] == due_ms
    assert (await delayed(server, "?delay=1s", deliver_at=due_ms))["deliver_at"] == due_ms
    records = [{"value": 1, "delay": "1h"}, {"value": 2, "delay": 60_000}]
    reply = await server.call("POST", PARTITION, {"records": records})
    first, second = rows(reply)
    assert 3_500_000 < int(str(first["deliver_at"])) - int(str(second["deliver_at"])) < 3_600_000
    assert first["partition"] == 0
    raw = {"Content-Type": "application/octet-stream", "Raftlog-Key": "u1"}
    assert (await server.call("POST", f"{TOPIC}?delay=1h", b"raw", raw)).status == 200


# requirement: A4
@pytest.mark.parametrize(
    ("query", "record", "sent", "field"),
    [
        ("?delay=-1s", {}, {}, "delay"),
        ("?delay=1y", {}, {}, "delay"),
        ("?delay=soon", {}, {}, "delay"),
        ("?delay=15d", {}, {}, "delay"),
        ("?deliver_at=tomorrow", {}, {}, "deliver_at"),
        ("?deliver_at=9999-01-01T00:00:00Z", {}, {}, "deliver_at"),
        ("?delay=1s&deliver_at=5", {}, {}, "deliver_at"),
        ("?delay=1s&acks=1", {}, {}, "acks"),
        ("?delay=1s", {}, {"Idempotency-Key": "a"}, "Idempotency-Key"),
        ("?delay=1s", {}, {"Raftlog-Transaction": "a@7.0"}, "delay"),
    ],
)
@served(partitions=3)
async def test_a_delay_that_cannot_hold_is_refused(
    server: HttpServer, query: str, record: dict[str, object], sent: dict[str, str], field: str
) -> None:
    body = {"records": [{"value": 1, **record}]}
    reply = await server.call("POST", TOPIC + query, body, sent)
    assert (reply.status, reply.json.get("field")) == (422, field), reply
    assert not rows(await server.call("GET", DELAYED), "items")


# requirement: A4
@served(partitions=3)
async def test_records_with_and_without_a_delay_do_not_mix(server: HttpServer) -> None:
    for wrong in ({"delay": "1s", "deliver_at": 5}, {"delay": "-1s"}, {"delay": -1}, {"deliver_at": -1}):
        reply = await server.call("POST", TOPIC, {"records": [{"value": 1, **wrong}]})
        assert (reply.status, reply.code) == (422, "invalid_record"), reply
    reply = await server.call("POST", TOPIC, {"records": [{"value": 1, "delay": "1s"}, {"value": 2}]})
    assert (reply.status, reply.code) == (422, "invalid_record"), reply
    execute = {"records": [{"topic": "orders", "value": 1, "delay": "1s"}]}
    assert (await server.call("POST", "/v1/transactions:execute", execute)).status == 422
    reply = await server.call("POST", f"{PARTITION}?delay=1s", one_batch(b"a"), BINARY)
    assert (reply.status, reply.json.get("field")) == (422, "delay"), reply
    many = {"records": [{"value": 1}] * 901}
    assert (await server.call("POST", f"{TOPIC}?delay=1s", many)).code == "record_too_large"


# requirement: A3
@served()
async def test_a_compacted_topic_takes_no_delayed_record_without_a_key(server: HttpServer) -> None:
    await server.topic(cleanup_policy="compact")
    reply = await server.call("POST", f"{TOPIC}?delay=1s", {"records": [{"value": 1}]})
    assert (reply.status, reply.code) == (422, "invalid_record"), reply
    assert "key" in str(reply.json["detail"])
    assert (await delayed(server, key="u1"))["delayed_id"]


# requirement: A3
@served(partitions=3)
async def test_pending_messages_are_listed_page_by_page(server: HttpServer) -> None:
    sent = sorted([str((await delayed(server, key=f"u{n}"))["delayed_id"]) for n in range(5)])
    found: list[str] = []
    path = f"{DELAYED}?topic=orders&limit=2"
    while True:
        page = await server.call("GET", path)
        found += (str(item["delayed_id"]) for item in rows(page, "items"))
        assert {item["state"] for item in rows(page, "items")} == {"pending"}
        if page.json["next_page_token"] is None:
            break
        path = f"{DELAYED}?topic=orders&limit=2&page_token={page.json['next_page_token']}"
    assert found == sent
    assert not rows(await server.call("GET", f"{DELAYED}?topic=other"), "items")


# requirement: A3
@served(partitions=3)
async def test_a_change_that_cannot_hold_is_refused(server: HttpServer) -> None:
    path = f"{DELAYED}/{(await delayed(server))['delayed_id']}"
    for wrong in ({}, {"delay": "15d"}, {"delay": "1s", "deliver_at": 5}, {"delay": "x"}):
        assert (await server.call("PATCH", path, wrong)).status == 422, wrong
    for _ in range(2):
        assert (await server.call("DELETE", path)).status == 204
    for unknown in ("x", "0000" + "00" * 12, "ffff" + "00" * 12):
        assert (await server.call("DELETE", f"{DELAYED}/{unknown}")).code == "delayed_not_found"


# requirement: A5
@served(partitions=3)
async def test_a_message_that_cannot_be_read_is_not_rescheduled(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = await delayed(server)
    path = f"{DELAYED}/{receipt['delayed_id']}"

    async def message(which: MessageId, found: Described, timeout_ms: int) -> Message:
        raise NoLeader("__delayed/0 has no leader")

    monkeypatch.setattr(server.cluster.services.delayed, "message", message)
    assert (await server.call("PATCH", path, {"delay": "1h"})).code == "no_leader"
    monkeypatch.undo()
    assert (await server.get(path)).json["deliver_at"] == receipt["deliver_at"], "nothing is done"
    changed = await server.call("PATCH", path, {"delay": "1h"})
    assert changed.json == (await server.get(path)).json
    assert changed.json["deliver_at"] != receipt["deliver_at"]


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
@pytest.mark.parametrize(
    ("method", "path", "change"),
    [
        ("POST", "/v1/topics/orders/partitions:add", {"count": 5}),
        ("POST", "/v1/topics/orders/partitions:decommission", {"partitions": [1, 2]}),
        ("PATCH", "/v1/topics/orders/config", {"config": {"max.message.bytes": 1_024}}),
    ],
)
@pytest.mark.parametrize("place", [{"key": "u1"}, {"partition": 2}, {}])
@served(partitions=3)
async def test_a_schedule_is_the_same_after_its_topic_has_changed(
    server: HttpServer, place: dict[str, object], method: str, path: str, change: object
) -> None:
    record = {"value": "x" * 2_000, **place}
    made = await create(server, record=record)
    assert (await server.call(method, path, change)).status in (200, 202)
    again = await create(server, record=record)
    assert (again.status, again.json) == (201, made.json)
    other = await create(server, record={**record, "value": "y" * 2_000})
    assert other.status in (409, 413, 422), other


# requirement: A5
@served(partitions=3)
async def test_a_schedule_of_another_partition_is_another_one(server: HttpServer) -> None:
    assert (await create(server, record={"value": 1, "partition": 0})).status == 201
    for place in ({"partition": 2}, {"partition": 1, "key": "u1"}):
        other = await create(server, record={"value": 1, **place})
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
async def test_a_deleted_or_unknown_schedule_is_not_found(server: HttpServer) -> None:
    await create(server)
    for _ in range(2):
        assert (await server.call("DELETE", f"{SCHEDULES}/nightly")).status == 204
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
        ({"cron": "x" * 9_999}, 422, "/cron"),
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


# requirement: N2
@served(partitions=3)
async def test_a_page_of_messages_with_large_keys_is_short(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays, "KEYS_BYTES_MAX", 1_000)
    accepted = {str((await delayed(server, key="k" * 600))["delayed_id"]) for _ in range(5)}
    found, sizes, token = list[object](), list[int](), "0" * 28
    while token:
        page = await server.get(f"{DELAYED}?page_token={token}")
        sizes.append(len(rows(page, "items")))
        found += [item["delayed_id"] for item in rows(page, "items")]
        token = str(page.json.get("next_page_token") or "")
    assert sizes == [2, 2, 1]
    assert found == sorted(accepted)
