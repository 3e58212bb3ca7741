"""Topics, their configuration and partitions over HTTP."""

from __future__ import annotations

import pytest

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


@served()
async def test_creating_a_topic_twice_is_a_conflict_and_changes_nothing(server: HttpServer) -> None:
    # requirement: T1
    made = await server.topic("orders")
    again = await server.post("/v1/topics", {"name": "orders", "partitions": 9, "replication_factor": 3})
    assert (again.status, again.code) == (409, "topic_exists")
    assert (await server.get("/v1/topics/orders")).json == made.json


@served()
async def test_a_replication_factor_that_is_left_out_is_the_brokers_default(server: HttpServer) -> None:
    made = await server.post("/v1/topics", {"name": "plain"})
    assert (made.json["partitions"], made.json["replication_factor"]) == (1, 3)


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
    assert got.json["config"]["max.message.bytes"] == 1048588  # type: ignore[index]
    changed = await server.call("PATCH", path, {"config": {"retention.ms": None, "segment.bytes": 4096}})
    assert changed.json["overrides"] == {"segment.bytes": 4096}
    whole = await server.call("PATCH", "/v1/topics/orders", {"config": {"retention.bytes": 1}})
    assert whole.json["config"]["retention.bytes"] == 1  # type: ignore[index]
    assert whole.json["config"]["segment.bytes"] == 4096  # type: ignore[index]


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


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": "x", "partitons": 1}, "/partitons"),
        ({"partitions": 1}, "/name"),
        ({"name": "x", "partitions": "many"}, "/partitions"),
        ({"name": "x", "partitions": 1.5}, "/partitions"),
        ({"name": "x", "partitions": 0}, "/partitions"),
        ({"name": "x", "partitions": 1 << 63}, "/partitions"),
        ({"name": "x", "config": {"retention.ms": [1]}}, "/config/..."),
        ({"name": "x", "config": {"retention.msec": 1}}, "config.retention.msec"),
        ({"name": "x", "replication_factor": 2}, "replication_factor"),
    ],
)
@served()
async def test_a_wrong_field_is_named(server: HttpServer, body: object, pointer: str) -> None:
    refused = await server.post("/v1/topics", body)
    assert (refused.status, refused.code) == (422, "invalid_request")
    assert refused.json["field"] == pointer


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
    assert (await server.post("/v1/topics/none/partitions:add", {"count": 1})).code == "topic_not_found"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/count"),
        ({"count": 0}, "/count"),
        ({"count": 1, "expected": 0}, "/expected"),
        ({"cuont": 1}, "/cuont"),
    ],
)
@served(partitions=3)
async def test_a_wrong_count_of_partitions_is_named(server: HttpServer, body: object, pointer: str) -> None:
    refused = await server.post("/v1/topics/orders/partitions:add", body)
    assert (refused.status, refused.json["field"]) == (422, pointer)


# requirement: F4 K6
@served()
async def test_adding_partitions_to_a_compacted_topic_warns_of_its_keys(server: HttpServer) -> None:
    await server.topic("prices", cleanup_policy="compact")
    added = await server.post("/v1/topics/prices/partitions:add", {"count": 1})
    assert added.status == 200
    (warning,) = added.json["warnings"]  # type: ignore[misc]
    assert "compacted" in warning
