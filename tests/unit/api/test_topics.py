"""Topics over HTTP: their configuration, their partitions and replicas, and where their records begin."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from partitions.values import PartitionStatus
from raftlog.errors import CommitUnknown, NoLeader, PartitionDecommissioned
from raftlog.records.keys import partition_for_key
from raftlog.types import NodeId, TopicPartition
from raftlog.wire import partitions as partition_operations
from tests.helpers.fake_admin import FakeAdmin
from tests.helpers.http_server import HttpServer, served


@served()
async def test_a_topic_is_made_described_and_deleted(server: HttpServer) -> None:
    made = await server.topic("orders", retention_ms=5000)
    assert made.headers["location"] == "/v1/topics/orders"
    assert made.json["name"] == "orders"
    assert made.json["partitions"] == 3
    assert made.json["internal"] is False
    got = await server.get("/v1/topics/orders")
    assert got.json == made.json
    assert got.json["config"]["retention.ms"] == 5000  # type: ignore[index]
    assert got.headers["etag"] == made.headers["etag"] == f'"{got.json["metadata_version"]}"'
    gone = await server.call("DELETE", "/v1/topics/orders")
    assert gone.status == 200
    assert (await server.get("/v1/topics/orders")).code == "topic_not_found"


@served(partitions=1)
async def test_a_topic_names_what_depends_on_it(server: HttpServer) -> None:
    # requirement: T1
    path = "/v1/topics/orders"
    for name in ("other", "orders.mail.dlq"):
        await server.topic(name, partitions=1)
    nothing = (await server.get("/v1/topics/other/dependents")).json
    assert (nothing["groups"], nothing["group_count"], nothing["schedules"]) == ([], 0, 0)
    offset = {"offsets": [{"topic": "orders", "partition": 0, "offset": 0}]}
    one, schedule = (
        {"records": [{"value": 1}]},
        {"topic": "orders", "cron": "0 3 * * *", "record": {"value": "x"}},
    )
    done = [
        *[await server.call("PUT", f"/v1/groups/{group}/offsets", offset) for group in ("billing", "audit")],
        await server.post("/v1/groups/late/members", {"topics": ["orders"], "member_id": "m"}),
        await server.post(f"{path}/records", one),
        await server.post("/v1/queues/orders/mail:receive", {}),
        await server.post("/v1/schedules", schedule),
        await server.post(f"{path}/records?delay=1h", one),
    ]
    assert all(reply.status < 300 for reply in done), done
    found = (await server.get(f"{path}/dependents")).json
    counts = [found[name] for name in ("group_count", "schedules", "delayed", "delayed_failed")]
    assert counts == [4, 1, 1, 0]
    mail = {"queue": True, "open_jobs": 1, "dead_letter_topic": "orders.mail.dlq"}
    plain = {"queue": False, "open_jobs": 0, "dead_letter_topic": None}
    assert found["groups"] == [
        {"group": "audit", "members": 0, "partitions": 1, **plain},
        {"group": "billing", "members": 0, "partitions": 1, **plain},
        {"group": "late", "members": 1, "partitions": 0, **plain},
        {"group": "mail", "members": 0, "partitions": 1, **mail},
    ]
    assert (await server.get("/v1/topics/none/dependents")).code == "topic_not_found"


@served()
async def test_creating_a_topic_twice_is_a_conflict_and_changes_nothing(server: HttpServer) -> None:
    # requirement: T1
    made = await server.topic("orders")
    again = await server.post("/v1/topics", {"name": "orders", "partitions": 9, "replication_factor": 3})
    assert (again.status, again.code) == (409, "topic_exists")
    assert (await server.get("/v1/topics/orders")).json == made.json


@served(brokers=1)
async def test_a_topic_on_one_broker_needs_its_name_only(server: HttpServer) -> None:
    # requirement: RP1
    made = await server.post("/v1/topics", {"name": "plain"})
    assert (made.json["partitions"], made.json["replication_factor"]) == (1, 1)
    assert made.json["config"]["min.insync.replicas"] == 1
    refused = await server.post("/v1/topics", {"name": "more", "replication_factor": 3})
    assert (refused.status, refused.json["field"]) == (422, "replication_factor")
    refused = await server.post("/v1/topics", {"name": "more", "config": {"min.insync.replicas": 2}})
    assert (refused.status, refused.json["field"]) == (422, "config.min.insync.replicas")
    assert "replication_factor" not in refused.json["detail"]


@served()
async def test_topics_are_listed_in_pages(server: HttpServer) -> None:
    for name in "cab":
        await server.topic(name, partitions=1)
    first = await server.get("/v1/topics?limit=2")
    assert [item["name"] for item in first.json["items"]] == ["a", "b"]  # type: ignore[attr-defined]
    token = first.json["next_page_token"]
    second = await server.get(f"/v1/topics?limit=2&page_token={token}")
    assert [item["name"] for item in second.json["items"]] == ["c"]  # type: ignore[attr-defined]
    assert second.json["next_page_token"] is None


@served(partitions=12)
async def test_partitions_are_listed_by_number_in_pages(server: HttpServer) -> None:
    seen: list[object] = []
    path = "/v1/topics/orders/partitions?limit=5"
    token = ""
    while True:
        page = await server.get(path + token)
        seen += [item["partition"] for item in page.json["items"]]  # type: ignore[attr-defined]
        if page.json["next_page_token"] is None:
            break
        token = f"&page_token={page.json['next_page_token']}"
    assert seen == list(range(12))
    for listed, token in (
        (path, "7"),
        (path, "NaN"),
        ("/v1/topics?limit=1", "a/b"),
        ("/v1/brokers?limit=1", ""),
    ):
        refused = await server.get(f"{listed}&page_token={token}")
        assert (refused.status, refused.json["field"]) == (422, "page_token")
    one = await server.get("/v1/topics/orders/partitions/11")
    assert one.json["partition"] == 11
    assert one.json["replicas"] == [3, 1, 2]
    missing = await server.get("/v1/topics/orders/partitions/12")
    assert (missing.status, missing.code) == (404, "partition_not_found")


@served()
async def test_config_is_complete_and_says_what_was_set(server: HttpServer) -> None:
    await server.topic(retention_ms=5000)
    path = "/v1/topics/orders/config"
    got = await server.get(path)
    assert got.json["overrides"] == {"retention.ms": 5000}
    assert got.json["config"]["max.message.bytes"] == 1114112  # type: ignore[index]
    changed = await server.call("PATCH", path, {"config": {"retention.ms": None, "segment.bytes": 4096}})
    assert changed.json["overrides"] == {"segment.bytes": 4096}
    typed = {"validate.records": False, "min.cleanable.dirty.ratio": 0.25, "retention.archive.required": True}
    shown = await server.call("PATCH", path, {"config": typed})
    assert shown.json["overrides"] == {"segment.bytes": 4096, **typed}
    whole = await server.call("PATCH", path, {"config": {"retention.bytes": 1}})
    assert whole.json["config"]["retention.bytes"] == 1  # type: ignore[index]
    assert whole.json["config"]["segment.bytes"] == 4096  # type: ignore[index]


@served()
async def test_a_preset_stands_for_settings_that_the_body_does_not_name(server: HttpServer) -> None:
    # requirement: N6
    await server.post("/v1/topics", {"name": "orders", "preset": "latency"})
    path, lag = "/v1/topics/orders/config", "replica.lag.max.ms"
    assert (await server.get(path)).json["overrides"] == {lag: 2000}
    for body, overrides in (
        ({"preset": "throughput"}, {"validate.records": False}),
        ({"preset": "latency", "config": {lag: 5}}, {lag: 5}),
        ({"preset": "throughput", "config": {"validate.records": None}}, {}),
    ):
        assert (await server.call("PATCH", path, body)).json["overrides"] == overrides
    refused = await server.call("PATCH", path, {"preset": "fast"})
    assert (refused.status, refused.json["field"]) == (422, "/preset")


@served()
async def test_a_change_with_if_match_holds_only_while_nobody_else_changed(server: HttpServer) -> None:
    tag = (await server.topic()).headers["etag"]
    path, body = "/v1/topics/orders/config", {"config": {"retention.ms": 1}}
    first = await server.call("PATCH", path, body, {"If-Match": tag})
    assert first.status == 200
    late = await server.call("PATCH", path, body, {"If-Match": tag})
    assert (late.status, late.code) == (412, "precondition_failed")
    foreign = await server.call("DELETE", "/v1/topics/orders", sent={"If-Match": '"abc"'})
    assert foreign.status == 412
    gone = await server.call("DELETE", "/v1/topics/orders", sent={"If-Match": first.headers["etag"]})
    assert gone.status == 200


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a b",
        "x" * 250,
        "gr\u00f6\u00dfe",
        "\u043erders",
        "a\u0000",
        "a\n",
        "%2e%2e",
        "a\\b",
    ],
)
@served()
async def test_a_name_that_could_be_a_path_or_a_twin_is_refused(server: HttpServer, name: str) -> None:
    made = await server.post("/v1/topics", {"name": name, "replication_factor": 3})
    assert (made.status, made.code) == (422, "invalid_request")
    assert (await server.get("/v1/topics")).json["items"] == []


@served()
async def test_the_longest_name_is_taken(server: HttpServer) -> None:
    name = "x" * 249
    await server.topic(name)
    assert (await server.get(f"/v1/topics/{name}")).status == 200


# requirement: F4
@served()
async def test_partitions_are_added_once_also_by_two_administrators(server: HttpServer) -> None:
    made = await server.topic("orders")
    path = "/v1/topics/orders/partitions:add"
    added = await server.post(path, {"count": 2, "expected": 3})
    assert (added.status, added.json["partitions"], added.json["warnings"]) == (200, 5, [])
    assert added.headers["etag"] == f'"{added.json["metadata_version"]}"' != made.headers["etag"]
    again = await server.post(path, {"count": 2, "expected": 3})
    assert (again.status, again.json) == (200, added.json)
    other = await server.post(path, {"count": 1, "expected": 3})
    assert (other.status, other.code) == (412, "precondition_failed")
    late = await server.post(path, {"count": 1}, If_Match=made.headers["etag"])
    assert (late.status, late.code) == (412, "precondition_failed")
    assert (await server.get("/v1/topics/orders")).json["partitions"] == 5
    plain = await server.post(path, {"count": 1}, If_Match=added.headers["etag"])
    assert plain.json["partitions"] == 6


# requirement: F4 K6
@served()
async def test_adding_partitions_to_a_compacted_topic_warns_of_its_keys(server: HttpServer) -> None:
    await server.topic("prices", cleanup_policy="compact")
    added = await server.post("/v1/topics/prices/partitions:add", {"count": 1})
    assert added.status == 200
    (warning,) = added.json["warnings"]  # type: ignore[misc]
    assert "compacted" in warning


DELETE_BEFORE = "/v1/topics/orders/partitions/0:delete-before"
RECORDS_0 = "/v1/topics/orders/partitions/0/records"


# requirement: RT5
@served(partitions=3)
async def test_readers_below_the_offset_get_410_with_the_valid_range(server: HttpServer) -> None:
    await server.post(RECORDS_0, {"records": [{"value": number} for number in range(5)]})
    deleted = await server.post(DELETE_BEFORE, {"offset": 3})
    assert (deleted.status, deleted.json) == (200, {"partition": 0, "log_start_offset": 3})
    refused = await server.get(f"{RECORDS_0}?offset=2")
    assert (refused.status, refused.code) == (410, "offset_out_of_range")
    assert (refused.json["start"], refused.json["end"]) == (3, 5)
    found = await server.get(f"{RECORDS_0}?offset=earliest")
    assert [record["offset"] for record in found.json["records"]] == [3, 4]


# requirement: RT5
@served(partitions=3)
async def test_an_offset_below_the_log_start_returns_the_log_start(server: HttpServer) -> None:
    await server.post(RECORDS_0, {"records": [{"value": 1}, {"value": 2}]})
    for offset in (1, 0, 1):
        assert (await server.post(DELETE_BEFORE, {"offset": offset})).json["log_start_offset"] == 1


SET_ARCHIVED = "/v1/topics/orders/partitions/0:set-archived"
ORDERS = "/v1/topics/orders/partitions/0"


# requirement: A8
@served(partitions=3)
async def test_the_offset_is_shown_and_goes_back_only_on_request(server: HttpServer) -> None:
    await server.post(f"{ORDERS}/records", {"records": [{"value": number} for number in range(5)]})
    for body, expected in (({"offset": 3}, 3), ({"offset": 2}, 3), ({"offset": 2, "allow_lower": True}, 2)):
        found = await server.post(SET_ARCHIVED, body)
        assert (found.status, found.json) == (200, {"partition": 0, "archived_up_to": expected})
        assert (await server.get(ORDERS)).json["archived_up_to"] == expected


RECOVER = "/v1/topics/orders/partitions/0:unsafe-recover"


def admin(server: HttpServer) -> FakeAdmin:
    found = server.cluster.services.admin
    assert isinstance(found, FakeAdmin)
    return found


@served(partitions=3)
async def test_leadership_moves_to_the_broker_named_or_to_any(server: HttpServer) -> None:
    moved = await server.post(f"{ORDERS}:transfer-leadership", {"to": 3})
    assert (moved.status, moved.json) == (
        200,
        {"topic": "orders", "partition": 0, "leader": 3, "leader_epoch": 8},
    )
    for body in ({}, None):
        assert (await server.post(f"{ORDERS}:transfer-leadership", body)).status == 200
    assert (await server.get(ORDERS)).json["leader"] != 3


@served(partitions=3)
async def test_a_transfer_out_of_a_term_is_done_once_however_often_it_is_sent(server: HttpServer) -> None:
    sent = [await server.post(f"{ORDERS}:transfer-leadership", {"leader_epoch": 7}) for _ in range(3)]
    assert [reply.status for reply in sent] == [200] * 3
    assert len({(reply.json["leader"], reply.json["leader_epoch"]) for reply in sent}) == 1
    again = await server.post(f"{ORDERS}:transfer-leadership", {"leader_epoch": 8})
    assert again.json["leader"] != sent[0].json["leader"]


@served(partitions=3)
async def test_a_transfer_that_cannot_be_says_why(server: HttpServer) -> None:
    stranger = await server.post(f"{ORDERS}:transfer-leadership", {"to": 9})
    assert (stranger.status, stranger.code) == (422, "invalid_request")
    admin(server).dead.add(NodeId(2))
    dead = await server.post(f"{ORDERS}:transfer-leadership", {"to": 2})
    assert (dead.status, dead.code) == (409, "conflict")
    admin(server).unmoved = True
    late = await server.post(f"{ORDERS}:transfer-leadership", {"to": 3})
    assert (late.status, late.code) == (504, "leadership_not_moved")


# requirement: F2
@served(brokers=5, partitions=3)
async def test_a_target_is_taken_and_shown_and_waited_for(server: HttpServer) -> None:
    assert (await server.get(ORDERS)).json["reassignment"] is None
    taken = await server.post(f"{ORDERS}:add-replica", {"broker_id": 4})
    assert taken.status == 202
    assert taken.json["reassignment"] == {
        "target": [1, 2, 3, 4],
        "state": "preparing",
        "caught_up_percent": 0,
    }
    fewer = await server.post(f"{ORDERS}:remove-replica", {"broker_id": 1})
    assert fewer.json["reassignment"]["target"] == [2, 3, 4]  # type: ignore[index]
    done = await server.post(f"{ORDERS}:set-replicas?wait=10s", {"replicas": [4, 5, 2]})
    assert (done.status, done.json["replicas"], done.json["reassignment"]) == (200, [4, 5, 2], None)


@pytest.mark.parametrize(
    ("action", "body", "status"),
    [
        ("add-replica", {"broker_id": 77}, 422),
        ("add-replica", {"broker_id": 2}, 422),
        ("add-replica", {"broker_id": 0}, 422),
        ("add-replica", {"broker_id": "4"}, 422),
        ("add-replica", {"broker_id": 4.5}, 422),
        ("add-replica", {"broker_id": None}, 422),
        ("add-replica", {"broker_id": 10**30}, 422),
        ("add-replica", b'{"broker_id": NaN}', 422),
        ("add-replica", {}, 422),
        ("add-replica", {"broker_id": 4, "force": True}, 422),
        ("remove-replica", {"broker_id": 4}, 422),
        ("set-replicas", {"replicas": []}, 422),
        ("set-replicas", {"replicas": [1, 1, 2]}, 422),
        ("set-replicas", {"replicas": [1, 2, 3, 4, 5, 6, 7, 8]}, 422),
        ("set-replicas", {"replicas": "1,2,3"}, 422),
        ("set-replicas", [1, 2, 3], 422),
        ("set-replicas?wait=soon", {"replicas": [1]}, 422),
        ("set-replicas?force=yes", {"replicas": [1]}, 422),
        ("transfer-leadership", {"to": -1}, 422),
        ("transfer-leadership", {"to": True}, 422),
    ],
)
@served(brokers=4, partitions=3)
async def test_what_makes_no_sense_changes_nothing(
    server: HttpServer, action: str, body: object, status: int
) -> None:
    before = server.cluster.controller.image
    path, mark, query = action.partition("?")
    answer = await server.call(
        "POST", f"{ORDERS}:{path}{mark}{query}", body, {"Content-Type": "application/json"}
    )
    assert answer.status == status
    assert answer.code == "invalid_request"
    assert server.cluster.controller.image is before


# requirement: F6
@served(partitions=3)
async def test_the_last_resort_estimates_first_and_takes_its_phrase_only(server: HttpServer) -> None:
    needless = await server.post(RECOVER, {"confirm": "anything"})
    assert (needless.status, needless.code) == (409, "conflict")
    admin(server).dead |= {NodeId(2), NodeId(3)}
    estimate = await server.post(RECOVER, None)
    assert (estimate.status, estimate.code) == (409, "conflict")
    phrase = estimate.json["confirm"]
    assert phrase == "recover orders/0 from broker 1 without brokers 2, 3"
    assert "offset 41" in str(estimate.json["detail"])
    assert (await server.post(RECOVER, {"confirm": "yes"})).status == 409
    done = await server.post(RECOVER, {"confirm": phrase})
    assert (done.status, done.json["replicas"]) == (200, [1])
    assert done.json["unsafe_recoveries"] == [
        {"survivor": 1, "lost": [2, 3], "last_offset": 41, "committed_offset": 40, "recovered_at": 1000}
    ]
    assert partition_operations.UNSAFE_RECOVER.at(topic="orders", partition=0) == RECOVER


# requirement: F2 F6
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{ORDERS}:set-replicas", {"replicas": [3, 2, 1]}),
        (RECOVER, {"confirm": "recover orders/0 from broker 1 without brokers 2, 3"}),
    ],
)
@served(partitions=3)
async def test_a_change_of_replicas_that_cannot_be_shown_is_an_unknown_outcome(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, path: str, body: object
) -> None:
    admin(server).dead |= {NodeId(2), NodeId(3)}
    before = server.cluster.controller.image

    async def describe(topic: str, partitions: Collection[int] | None = None) -> list[PartitionStatus]:
        raise NoLeader("no broker answers")

    monkeypatch.setattr(server.cluster.gateway, "describe", describe)
    told = await server.post(path, body)
    assert (told.status, told.code) == (504, "commit_unknown")
    assert server.cluster.controller.image is not before
    refused = await server.post(path, {"replicas": []} if "set" in path else None)
    assert refused.status in (409, 422), "nothing is done"


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
    ("path", "record"), [("/partitions/2/records", {"value": 1}), ("/records", {"value": 1, "partition": 2})]
)
@served()
async def test_a_named_partition_is_refused(server: HttpServer, path: str, record: dict[str, object]) -> None:
    await decommissioned(server, 2)
    refused = await server.post(f"{TOPIC}{path}", {"records": [record]})
    assert (refused.status, refused.code) == (409, "partition_decommissioned")
    assert refused.json["retryable"] is False


# requirement: F5 P3
@served(partitions=2)
async def test_a_partition_chosen_by_old_metadata_is_retryable(server: HttpServer) -> None:
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
@served()
async def test_requests_that_the_topic_contradicts_are_refused(server: HttpServer) -> None:
    path = f"{TOPIC}/partitions:decommission"
    await decommissioned(server, 2)
    late = await server.post(path, {"count": 2, "expected": 3})
    assert late.status == 412, late
    assert "have changed: it has 3, of which 2 accept records" in str(late.json["detail"])
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


# requirement: RT5 A8 F5
@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/topics", {"name": "x", "partitons": 1}, "/partitons"),
        ("/v1/topics", {"partitions": 1}, "/name"),
        ("/v1/topics", {"name": "x", "partitions": "many"}, "/partitions"),
        ("/v1/topics", {"name": "x", "partitions": 1.5}, "/partitions"),
        ("/v1/topics", {"name": "x", "partitions": 1 << 63}, "/partitions"),
        ("/v1/topics", {"name": "x", "config": {"retention.ms": [1]}}, "/config/..."),
        ("/v1/topics", {"name": "x", "config": {"retention.msec": 1}}, "config.retention.msec"),
        ("/v1/topics", {"name": "x", "replication_factor": 2}, "replication_factor"),
        (f"{TOPIC}/partitions:add", {}, "/count"),
        (f"{TOPIC}/partitions:add", {"cuont": 1}, "/cuont"),
        (f"{TOPIC}/partitions:decommission", {}, "partitions"),
        (f"{TOPIC}/partitions:decommission", {"count": 1, "partitions": [2]}, "partitions"),
        (f"{TOPIC}/partitions:decommission", {"count": 3}, "count"),
        (f"{TOPIC}/partitions:decommission", {"count": 9}, "count"),
        (f"{TOPIC}/partitions:decommission", {"partitions": [0]}, "partitions"),
        (f"{TOPIC}/partitions:decommission", {"partition": [2]}, "/partition"),
        (DELETE_BEFORE, {"offset": 1}, "offset"),  # above the high watermark
        (DELETE_BEFORE, {}, "/offset"),
        (DELETE_BEFORE, {"ofset": 0}, "/ofset"),
        (SET_ARCHIVED, {"offset": 1}, "offset"),  # above the end
        (SET_ARCHIVED, {}, "/offset"),
        (SET_ARCHIVED, {"offset": 0, "partition": 0}, "/partition"),
    ],
)
@served(partitions=3)
async def test_a_wrong_field_is_named(server: HttpServer, path: str, body: object, field: str) -> None:
    refused = await server.post(path, body)
    assert (refused.status, refused.code, refused.json["field"]) == (422, "invalid_request", field)


# requirement: RT5 A8
@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("partitions/9:delete-before", {"offset": 0}),
        ("partitions/9:set-archived", {"offset": 0}),
        ("partitions:add", {"count": 1}),
        ("partitions:decommission", {"partitions": [9]}),
        ("partitions/9:add-replica", {"broker_id": 3}),
    ],
)
@served(partitions=3)
async def test_unknown_topics_and_partitions_are_404(server: HttpServer, action: str, body: object) -> None:
    assert (await server.post(f"/v1/topics/none/{action}", body)).code == "topic_not_found"
    if action != "partitions:add":
        assert (await server.post(f"{TOPIC}/{action}", body)).code == "partition_not_found"


# requirement: RT5 A8
@pytest.mark.parametrize("path", [DELETE_BEFORE, SET_ARCHIVED])
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (CommitUnknown("it is not committed yet; repeat"), "commit_unknown"),
        (NoLeader("orders/0 has no leader", retry_after_ms=200), "no_leader"),
    ],
)
@served(partitions=3)
async def test_errors_of_a_leader_are_reported(
    server: HttpServer, path: str, fault: Exception, code: str
) -> None:
    server.cluster.gateway.faults[TopicPartition("orders", 0)] = fault
    assert (await server.post(path, {"offset": 0})).code == code


# requirement: N2
@served(partitions=100)
async def test_one_partition_costs_its_own_description_alone(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = server.cluster.gateway
    described = gateway.describe
    asked = list[Collection[int] | None]()

    async def describe(topic: str, partitions: Collection[int] | None = None) -> list[PartitionStatus]:
        asked.append(partitions)
        return await described(topic, partitions)

    monkeypatch.setattr(gateway, "describe", describe)
    assert (await server.get("/v1/topics/orders/partitions/7")).json["partition"] == 7
    assert (await server.get("/v1/topics/orders/partitions?limit=2")).status == 200
    assert [len(one or ()) for one in asked] == [1, 2]
